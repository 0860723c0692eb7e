//! Advice is taken and followed: the daemon's own, or that of the rules of thumb it is compared
//! with.

use super::learn::pool_time;
use super::state::{Pool, Step};
use super::trial::Sentence;
use crate::outcome::pool::{PoolMove, Round};
use crate::scenario::{Balancing, Moves, Setup};
use crate::world::state::World;
use headgate_placement::{PastMove, advise};
use headgate_units::{Bytes, Nanos};

impl World<'_> {
    pub(in crate::world) fn take_advice(&mut self) {
        let Some(mut pool) = self.pool.take() else { return };
        pool.learn();
        let setup = self.setup;
        let before = pool.outlook(setup, self.now);
        let (verdict, steps) = match pool.spec.balancing {
            Balancing::Off => (None, Vec::new()),
            Balancing::Load => match pool.by_load_or_back(setup, self.now) {
                Ok((verdict, steps)) => (Some(verdict), steps),
                Err(why) => {
                    self.failure = Some(why);
                    (None, Vec::new())
                }
            },
            Balancing::Count => (None, pool.by_count(setup)),
            Balancing::Space => (None, pool.by_space(setup)),
            Balancing::Random if !pool.rounds.is_empty() => (None, Vec::new()),
            Balancing::Random | Balancing::Restless => (None, pool.by_chance(setup)),
        };
        let first = pool.moves.len();
        for Step { member, to, why, taken_back } in steps {
            let Some(from) = pool.members[member].at else { continue };
            let name = |store: usize| setup.datastores[pool.stores[store].datastore].name.clone();
            pool.moves.push(PoolMove {
                disk: pool.members[member].name.to_string(),
                from: name(from),
                to: name(to),
                why,
                taken_back,
                size: Bytes(pool.used(setup, &pool.members[member])),
                advised: self.now,
                done: None,
            });
            let number = pool.moves.len() - 1;
            match pool.spec.moves {
                Moves::Instant => self.arrive_there(&mut pool, member, to, number),
                Moves::Copy(_) => {
                    let disk = pool.members[member].disk;
                    pool.copies.ask_for((member, disk), to, number);
                }
            }
        }
        let new = &pool.moves[first..];
        if !new.is_empty() && new.iter().all(|step| !step.taken_back) {
            pool.trials.begin(first..pool.moves.len());
        }
        if pool.copies.are_done() {
            pool.violations += pool.broken(setup);
        }
        let after = pool.outlook(setup, self.now);
        pool.rounds.push(Round { at: self.now, verdict, before, after });
        self.pool = Some(pool);
        self.begin_copies();
    }

    /// A move is done.
    pub(in crate::world) fn arrive_there(
        &mut self,
        pool: &mut Pool<'_>,
        member: usize,
        to: usize,
        number: usize,
    ) {
        let from = &pool.moves[number].from;
        let (disk, at) = (pool.members[member].name.clone(), pool_time(self.now));
        pool.history.push(PastMove { disk, from: from.as_str().into(), at });
        pool.moves[number].done = Some(self.now);
        self.attach_at(pool, member, to);
    }
}

impl Pool<'_> {
    /// Settles moves on trial first: one change at a time, so that harm has one cause.
    fn by_load_or_back(
        &mut self,
        setup: &Setup,
        now: Nanos,
    ) -> Result<(String, Vec<Step>), String> {
        let Some(margin) = self.spec.take_back else { return self.by_load(setup, now) };
        let books = self.books(setup, now);
        match self.judge(&books, margin).map_err(|e| e.to_string())? {
            Sentence::Free => self.by_load(setup, now),
            Sentence::Wait => Ok(("moves are on trial".to_owned(), Vec::new())),
            Sentence::Back(steps) => Ok(("moves did harm and are taken back".to_owned(), steps)),
        }
    }

    fn by_load(&self, setup: &Setup, now: Nanos) -> Result<(String, Vec<Step>), String> {
        let books = self.books(setup, now);
        let advice = advise(&books)
            .map_err(|why| format!("the pool's rules contradict each other: {why}"))?;
        let step = |step: &headgate_placement::Move| {
            Some(Step {
                member: self.members.iter().position(|member| member.name == step.disk)?,
                to: books.datastores.iter().position(|store| store.name == step.to)?,
                why: step.why.to_string(),
                taken_back: false,
            })
        };
        Ok((advice.verdict.to_string(), advice.moves.iter().filter_map(step).collect()))
    }

    /// Disks that may move from a datastore, the smallest first.
    fn smallest(&self, setup: &Setup, at: &[Option<usize>], from: usize) -> Vec<usize> {
        let movable = |&member: &usize| {
            let known =
                &setup.vms[self.members[member].vm].disks[self.members[member].index].membership;
            at[member] == Some(from)
                && known.listed
                && known.mobility == headgate_placement::Mobility::Free
                && !self.copies.of(self.members[member].disk)
        };
        let mut found: Vec<usize> = (0..self.members.len()).filter(movable).collect();
        found.sort_by_key(|&member| (self.used(setup, &self.members[member]), member));
        found
    }

    /// As many disks everywhere.
    fn by_count(&self, setup: &Setup) -> Vec<Step> {
        let (mut taken, mut steps) = (self.taken(setup), Vec::new());
        let mut at: Vec<Option<usize>> = self.members.iter().map(|member| member.at).collect();
        loop {
            let order = |&store: &usize| (taken[store].1, store);
            let (Some(most), Some(fewest)) =
                ((0..taken.len()).max_by_key(order), (0..taken.len()).min_by_key(order))
            else {
                return steps;
            };
            let fits = |&member: &usize| {
                self.has_room(
                    setup,
                    taken[fewest].0,
                    self.used(setup, &self.members[member]),
                    fewest,
                )
            };
            let chosen = self.smallest(setup, &at, most).into_iter().find(fits);
            let Some(member) = chosen.filter(|_| taken[most].1 > taken[fewest].1 + 1) else {
                return steps;
            };
            self.shift(setup, &mut taken, &mut at, member, fewest);
            steps.push(Step {
                member,
                to: fewest,
                why: "fewest disks are there".into(),
                taken_back: false,
            });
        }
    }

    /// As full everywhere, in parts of the capacity.
    fn by_space(&self, setup: &Setup) -> Vec<Step> {
        let (mut taken, mut steps) = (self.taken(setup), Vec::new());
        let mut at: Vec<Option<usize>> = self.members.iter().map(|member| member.at).collect();
        let part = |bytes: u64, store: usize| bytes as f64 / self.capacity(setup, store) as f64;
        loop {
            let mut order: Vec<usize> = (0..taken.len()).collect();
            order.sort_by(|&a, &b| {
                part(taken[a].0, a).total_cmp(&part(taken[b].0, b)).then(a.cmp(&b))
            });
            let (Some(&emptiest), Some(&fullest)) = (order.first(), order.last()) else {
                return steps;
            };
            let gap = part(taken[fullest].0, fullest) - part(taken[emptiest].0, emptiest);
            let narrows = |&member: &usize| {
                let used = self.used(setup, &self.members[member]);
                let after = part(taken[fullest].0.saturating_sub(used), fullest)
                    - part(taken[emptiest].0 + used, emptiest);
                after.abs() < gap - 1e-9
            };
            let Some(member) = self.smallest(setup, &at, fullest).into_iter().find(narrows) else {
                return steps;
            };
            self.shift(setup, &mut taken, &mut at, member, emptiest);
            steps.push(Step {
                member,
                to: emptiest,
                why: "most space is there".into(),
                taken_back: false,
            });
        }
    }

    /// Anywhere with space, once.
    fn by_chance(&mut self, setup: &Setup) -> Vec<Step> {
        let (mut taken, mut steps) = (self.taken(setup), Vec::new());
        let before: Vec<Option<usize>> = self.members.iter().map(|member| member.at).collect();
        let mut at = before.clone();
        for store in 0..self.stores.len() {
            for member in self.smallest(setup, &before, store) {
                let used = self.used(setup, &self.members[member]);
                let fits = |&to: &usize| to == store || self.has_room(setup, taken[to].0, used, to);
                let open: Vec<usize> = (0..self.stores.len()).filter(fits).collect();
                let chosen = self.members[member].place.one_of(&open).copied();
                let Some(to) = chosen.filter(|&to| to != store) else { continue };
                self.shift(setup, &mut taken, &mut at, member, to);
                steps.push(Step { member, to, why: "by chance".into(), taken_back: false });
            }
        }
        steps
    }

    fn shift(
        &self,
        setup: &Setup,
        taken: &mut [(u64, usize)],
        at: &mut [Option<usize>],
        member: usize,
        to: usize,
    ) {
        let used = self.used(setup, &self.members[member]);
        if let Some(from) = at[member].replace(to) {
            taken[from].0 = taken[from].0.saturating_sub(used);
            taken[from].1 -= 1;
        }
        taken[to].0 += used;
        taken[to].1 += 1;
    }
}
