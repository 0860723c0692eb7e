//! Runs that are alike up to an instant: what they share is simulated once.
//!
//! Variants of one experiment often differ in what happens late: which advice a pool takes, where
//! a disk goes that comes after ten seconds. Until then their runs with one seed are the same run.
//! That is simulated as a *trunk*; where setups part, it is doubled, and each decides by itself.
//! Those that decide the same are one run again, with a [`Mind`] each, until the next decision; the
//! others go on by themselves. Outcomes are those of single runs, to the byte.

use crate::outcome::Outcome;
use crate::progress::{Progress, RunError};
use crate::scenario::{Balancing, Chooser, Pool, Scenario, Setup, Variant, Vm, WorkloadKind};
use crate::workload::Traces;
use crate::world::{Mind, World};
use headgate_devices::ModelSpec;
use headgate_placement::Rules;
use headgate_units::Nanos;

/// A variant of a scenario.
pub type Branch<'a> = (&'a Scenario, &'a str);

impl Setup {
    /// What runs have in common that may share a trunk: the setup as text, without what matters
    /// late. `None` where nothing can: runs that differ late have pools, and some runs cannot be
    /// doubled.
    pub fn trunk(&self) -> Option<String> {
        let mut setup = self.clone();
        let pool = setup.pool.as_mut()?;
        pool.balancing = Balancing::Off;
        pool.take_back = None;
        pool.rules = rules_for_places(&pool.rules);
        for disk in setup.vms.iter_mut().flat_map(|vm| &mut vm.disks) {
            disk.place = disk.place.map(|_| Chooser::Load);
        }
        self.can_fork().then(|| format!("{setup:?}"))
    }

    fn can_fork(&self) -> bool {
        let stores = &self.datastores;
        let simple = |device: &ModelSpec| match device {
            ModelSpec::Array(_) => true,
            ModelSpec::Rate(spec) => spec.layers().is_empty(),
            _ => false,
        };
        let replays = |vm: &Vm| {
            vm.workloads.iter().any(|workload| matches!(workload.kind, WorkloadKind::Replay(_)))
        };
        self.sweeps.is_empty()
            && !self.vms.iter().any(replays)
            && stores.iter().all(|store| {
                // With several nodes there are trackers.
                store.issue_window.is_none()
                    && store.nodes.len() == 1
                    && store.nodes.iter().all(|node| simple(&node.device))
            })
    }

    /// The first instant at which runs of the two may differ, if they have the same trunk.
    fn parts_from(&self, other: &Setup) -> Nanos {
        let mut parts = Nanos::MAX;
        let (Some(mine), Some(theirs)) = (&self.pool, &other.pool) else { return Nanos::ZERO };
        if mine.balancing != theirs.balancing || mine.rules != theirs.rules {
            parts = parts.min(advice(mine, 0));
        }
        if mine.take_back != theirs.take_back {
            // At the first advice nothing is on trial.
            parts = parts.min(advice(mine, 1));
        }
        for (mine, theirs) in self.vms.iter().zip(&other.vms) {
            let places = |vm: &Vm| vm.disks.iter().map(|disk| disk.place).collect::<Vec<_>>();
            let by_load = places(mine).contains(&Some(Chooser::Load));
            let other_rules = self.pool.as_ref().map(|pool| &pool.rules)
                != other.pool.as_ref().map(|pool| &pool.rules);
            if places(mine) != places(theirs) || (by_load && other_rules) {
                parts = parts.min(self.first_start(mine));
            }
        }
        parts
    }

    /// The first instant at which the VM may start.
    fn first_start(&self, vm: &Vm) -> Nanos {
        let events = self.timeline.iter().map(|event| event.at).min().unwrap_or(Nanos::MAX);
        vm.start.unwrap_or(Nanos::MAX).min(events)
    }

    /// The first instant from `since` on at which the pool may decide anything.
    fn decides_from(&self, since: Nanos) -> Nanos {
        let placed = self.vms.iter().filter(|vm| vm.disks.iter().any(|disk| disk.place.is_some()));
        let starts = placed.filter_map(|vm| vm.start);
        let advice = self.pool.iter().flat_map(|pool| pool.advice.iter().copied());
        let all = starts.chain(self.timeline.iter().map(|event| event.at)).chain(advice);
        all.filter(|&at| at >= since).min().unwrap_or(Nanos::MAX)
    }
}

fn advice(pool: &Pool, number: usize) -> Nanos {
    pool.advice.get(number).copied().unwrap_or(Nanos::MAX)
}

/// Of rules what says whether a disk may be somewhere; all other is of advice, and of who is placed
/// by load.
fn rules_for_places(rules: &Rules) -> Rules {
    Rules {
        affinity: rules.affinity.clone(),
        anti_affinity: rules.anti_affinity.clone(),
        space: rules.space,
        ..Rules::default()
    }
}

/// Runs variants with one seed; what they share is simulated once. `ended` is told of each by its
/// index. They have the same spans and [`Setup::trunk`]s.
///
/// `progress` is told of one run after the other, each from where it left the others.
pub fn run_branches(
    branches: &[Branch<'_>],
    seed: u64,
    progress: &mut dyn Progress,
    traces: &dyn Traces,
    ended: &mut dyn FnMut(usize, Result<Outcome, RunError>),
) {
    let mut tree = Tree { branches, seed, progress, traces, variants: Vec::new(), ended };
    for (index, (scenario, variant)) in branches.iter().enumerate() {
        match scenario.find(variant) {
            Ok(variant) => tree.variants.push((index, variant)),
            Err(why) => (tree.ended)(index, Err(why)),
        }
    }
    let all = tree.variants.clone();
    let Some(&(first, variant)) = all.first() else { return };
    match World::new(variant, &branches[first].0.spans, seed, traces) {
        Ok(world) => tree.grow(Bough::new(world, all), Nanos::ZERO),
        Err(why) => tree.end_all(&all, &why),
    }
}

/// A variant and the index of its branch.
type Twig<'a> = (usize, &'a Variant);

/// One run that is, so far, that of all of these but for the minds of their pools.
struct Bough<'a> {
    world: World<'a>,
    /// Those with the run's own mind; nothing was decided yet that differs between them.
    first: Vec<Twig<'a>>,
    /// The others by their minds.
    others: Vec<(Mind, Vec<Twig<'a>>)>,
}

/// The first instant at which they may differ.
fn parts(one: &Twig<'_>, other: &Twig<'_>) -> Nanos {
    one.1.setup.parts_from(&other.1.setup)
}

impl<'a> Bough<'a> {
    fn new(world: World<'a>, first: Vec<Twig<'a>>) -> Bough<'a> {
        Bough { world, first, others: Vec::new() }
    }

    fn twigs(&self) -> Vec<Twig<'a>> {
        let others = self.others.iter().flat_map(|(_, twigs)| twigs);
        self.first.iter().chain(others).copied().collect()
    }

    /// When, from `since` on, something may be decided that is not the same for all.
    fn parts_from(&self, since: Nanos) -> Nanos {
        let classes = self.others.iter().map(|(_, twigs)| twigs).chain([&self.first]);
        let within = classes.filter_map(|class| {
            let (first, rest) = class.split_first()?;
            rest.iter().map(|twig| parts(first, twig)).min()
        });
        let between = match (self.others.is_empty(), self.first.first()) {
            (false, Some((_, variant))) => variant.setup.decides_from(since),
            _ => Nanos::MAX,
        };
        within.min().unwrap_or(Nanos::MAX).min(between)
    }

    /// The run once for each class of twigs of one mind that are alike, ready to go on as that; and
    /// the twigs for which it cannot be doubled.
    fn split(
        self,
        alike: impl Fn(&Twig<'a>, &Twig<'a>) -> bool,
    ) -> (Vec<Bough<'a>>, Vec<Twig<'a>>) {
        let Bough { world, first, others } = self;
        let Some(own) = world.mind() else { return (Vec::new(), first) };
        let mut classes: Vec<(Mind, Vec<Twig<'a>>)> = Vec::new();
        for (mind, twigs) in [(own, first)].into_iter().chain(others) {
            let begin = classes.len();
            for twig in twigs {
                let known = classes[begin..].iter_mut().map(|(_, class)| class);
                match known.into_iter().find(|class| alike(&class[0], &twig)) {
                    Some(class) => class.push(twig),
                    None => classes.push((mind.clone(), vec![twig])),
                }
            }
        }
        let last = classes.pop();
        let (mut boughs, mut lost) = (Vec::new(), Vec::new());
        for (mind, twigs) in classes {
            match world.fork(twigs[0].1) {
                Some(fork) => boughs.push(Bough::new(fork.with(mind, twigs[0].1), twigs)),
                None => lost.extend(twigs),
            }
        }
        if let Some((mind, twigs)) = last {
            boughs.push(Bough::new(world.with(mind, twigs[0].1), twigs));
        }
        (boughs, lost)
    }
}

struct Tree<'a, 'c> {
    branches: &'c [Branch<'a>],
    seed: u64,
    progress: &'c mut dyn Progress,
    traces: &'c dyn Traces,
    variants: Vec<Twig<'a>>,
    ended: &'c mut dyn FnMut(usize, Result<Outcome, RunError>),
}

impl<'a> Tree<'a, '_> {
    /// Goes on with a run in which all before `since` was decided.
    fn grow(&mut self, mut bough: Bough<'a>, since: Nanos) {
        let Some(&(index, variant)) = bough.first.first() else { return };
        if bough.first.len() == 1 && bough.others.is_empty() {
            let result = bough.world.run(self.progress);
            return self.end(index, result.map(|()| bough.world));
        }
        let end = variant.setup.duration;
        let until = bough.parts_from(since).min(end);
        if let Err(why) = bough.world.run_before(until, self.progress) {
            return self.end_all(&bough.twigs(), &why);
        }
        // At the end of all time nobody decides anything any more.
        let ends = until == end;
        let (boughs, lost) = bough.split(|one, other| !ends && parts(one, other) > until);
        let boughs = if ends { boughs } else { self.decide(boughs, until) };
        for bough in boughs {
            self.grow(bough, until + Nanos(1));
        }
        self.grow_anew(lost);
    }

    /// Lets each decide what it has to at this instant. Those that decided the same are one run
    /// again.
    fn decide(&mut self, boughs: Vec<Bough<'a>>, at: Nanos) -> Vec<Bough<'a>> {
        let mut decided: Vec<Bough<'a>> = Vec::new();
        for mut bough in boughs {
            if let Err(why) = bough.world.run_before(at + Nanos(1), self.progress) {
                self.end_all(&bough.twigs(), &why);
                continue;
            }
            let like = decided.iter_mut().find(|other| other.world.went_like(&bough.world));
            match like.zip(bough.world.mind()) {
                Some((other, mind)) => other.others.push((mind, bough.first)),
                None => decided.push(bough),
            }
        }
        decided
    }

    /// Runs that cannot share what was simulated begin again.
    fn grow_anew(&mut self, twigs: Vec<Twig<'a>>) {
        for twig in twigs {
            let spans = &self.branches[twig.0].0.spans;
            match World::new(twig.1, spans, self.seed, self.traces) {
                Ok(world) => self.grow(Bough::new(world, vec![twig]), Nanos::ZERO),
                Err(why) => self.end_all(&[twig], &why),
            }
        }
    }

    fn end(&mut self, index: usize, result: Result<World<'a>, RunError>) {
        let (scenario, variant) = self.branches[index];
        let outcome = result.map(|world| world.finish(&scenario.name, variant, self.seed));
        (self.ended)(index, outcome);
    }

    fn end_all(&mut self, twigs: &[Twig<'a>], why: &RunError) {
        for &(index, _) in twigs {
            (self.ended)(index, Err(why.clone()));
        }
    }
}
