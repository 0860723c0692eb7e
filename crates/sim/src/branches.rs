//! Runs that are alike up to an instant: what they share is simulated once.
//!
//! Variants of one experiment often differ in what happens late: which advice a pool takes, where
//! a disk goes that comes after ten seconds. Until then their runs with one seed are the same run.
//! That is simulated as a *trunk*; where setups part, it is doubled, and each goes on by itself.
//! Outcomes are those of single runs, to the byte.

use crate::outcome::Outcome;
use crate::progress::{Progress, RunError};
use crate::scenario::{Balancing, Chooser, Pool, Scenario, Setup, Variant, Vm, WorkloadKind};
use crate::workload::Traces;
use crate::world::World;
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
        Ok(world) => tree.grow(world, all),
        Err(why) => tree.end_all(&all, &why),
    }
}

/// A variant and the index of its branch.
type Twig<'a> = (usize, &'a Variant);

struct Tree<'a, 'c> {
    branches: &'c [Branch<'a>],
    seed: u64,
    progress: &'c mut dyn Progress,
    traces: &'c dyn Traces,
    variants: Vec<Twig<'a>>,
    ended: &'c mut dyn FnMut(usize, Result<Outcome, RunError>),
}

impl<'a> Tree<'a, '_> {
    /// Goes on with a run that is, so far, that of all of these.
    fn grow(&mut self, mut world: World<'a>, twigs: Vec<Twig<'a>>) {
        let Some(&(first, variant)) = twigs.first() else { return };
        if twigs.len() == 1 {
            let result = world.run(self.progress);
            return self.end(first, result.map(|()| world));
        }
        let parts = |twig: &Twig<'a>, other: &Twig<'a>| twig.1.setup.parts_from(&other.1.setup);
        let until = twigs[1..].iter().map(|twig| parts(&twigs[0], twig)).min();
        let until = until.unwrap_or(Nanos::MAX).min(variant.setup.duration);
        if let Err(why) = world.run_before(until, self.progress) {
            return self.end_all(&twigs, &why);
        }
        let mut classes: Vec<Vec<Twig<'a>>> = Vec::new();
        for twig in twigs {
            match classes.iter_mut().find(|class| parts(&class[0], &twig) > until) {
                Some(class) => class.push(twig),
                None => classes.push(vec![twig]),
            }
        }
        // At the end of all time nobody parts any more.
        if let [alike] = &mut classes[..] {
            let rest = alike.split_off(1);
            classes.extend(rest.into_iter().map(|twig| vec![twig]));
        }
        let last = classes.pop();
        for class in classes {
            match world.fork(class[0].1) {
                Some(fork) => self.grow(fork, class),
                None => self.grow_anew(class),
            }
        }
        if let Some(class) = last {
            world.go_on_as(class[0].1);
            self.grow(world, class);
        }
    }

    /// Runs that cannot share what was simulated begin again.
    fn grow_anew(&mut self, twigs: Vec<Twig<'a>>) {
        for twig in twigs {
            let spans = &self.branches[twig.0].0.spans;
            match World::new(twig.1, spans, self.seed, self.traces) {
                Ok(world) => self.grow(world, vec![twig]),
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
