//! Moves on trial: a move after which requests take longer is rolled back.

use super::state::{Pool, Step};
use crate::outcome::pool::PoolMove;
use headgate_placement::{
    Course, Done, Finding, LEAST_INTERVALS, Made, Permille, PoolError, check_rollback, review,
};
use headgate_units::Nanos;
use std::collections::BTreeMap;

/// Intervals that are looked at before moves and after them, at most.
const MOST_INTERVALS: usize = 16;

/// What the moves on trial mean for advice.
pub(super) enum Sentence {
    /// There are none any more: new moves may be made.
    Free,
    /// It is too soon to say.
    Wait,
    /// These go back where they were.
    Back(Vec<Step>),
}

impl Pool<'_> {
    /// Judges the moves on trial, if enough was seen since they were done. Those that rules keep
    /// from going back stay.
    ///
    /// # Errors
    /// When the pool contradicts itself.
    pub(super) fn judge(
        &mut self,
        books: &headgate_placement::Pool,
        margin: Permille,
    ) -> Result<Sentence, PoolError> {
        let tried = &self.moves[self.trials.open.clone()];
        let Some(advised) = tried.first().map(|step| step.advised) else {
            return Ok(Sentence::Free);
        };
        let done: Option<Vec<Nanos>> = tried.iter().map(|step| step.done).collect();
        let Some(done) = done.and_then(|done| done.into_iter().max()) else {
            return Ok(Sentence::Wait);
        };
        let before = &self.moves[..self.trials.open.start];
        let settled = before.iter().filter_map(|step| step.done).max().unwrap_or_default();
        // What was under way when disks moved ends where they were: one interval is neither before
        // nor after.
        let sample = self.spec.sample;
        let calm = |end: Nanos, since: Nanos| end >= since + sample + sample;
        let seen = &self.trials.seen;
        let earlier = seen.iter().rev().filter(|&&(end, _)| end <= advised && calm(end, settled));
        let later = seen.iter().rev().filter(|&&(end, _)| calm(end, done));
        let (earlier, later): (Vec<_>, Vec<_>) =
            (earlier.take(MOST_INTERVALS).collect(), later.take(MOST_INTERVALS).collect());
        if later.len() < LEAST_INTERVALS {
            return Ok(Sentence::Wait);
        }
        let of = |intervals: &[&(Nanos, Vec<Done>)], store: usize| {
            intervals.iter().rev().map(|(_, did)| did[store]).collect::<Vec<Done>>()
        };
        let course =
            |store: usize| Course { before: of(&earlier, store), after: of(&later, store) };
        let names = || books.datastores.iter().map(|datastore| &datastore.name);
        let courses: BTreeMap<_, _> =
            names().enumerate().map(|(store, name)| (name.clone(), course(store))).collect();
        let made = |step: &PoolMove| Made {
            disk: step.disk.as_str().into(),
            from: step.from.as_str().into(),
            to: step.to.as_str().into(),
        };
        let made: Vec<Made> = tried.iter().map(made).collect();
        let mut back = Vec::new();
        for found in review(&made, &courses, margin) {
            let Finding::Worse { before, after } = found.finding else { continue };
            let decision: Vec<Made> =
                found.moves.iter().map(|&index| made[index].clone()).collect();
            if check_rollback(books, &decision)?.is_some() {
                continue;
            }
            for made in &decision {
                let member = self.members.iter().position(|member| member.name == made.disk);
                let to = names().position(|name| *name == made.from);
                if let (Some(member), Some(to)) = (member, to) {
                    let why = format!("taken back: requests took {before} before and take {after}");
                    back.push(Step { member, to, why, taken_back: true });
                }
            }
        }
        self.trials.open = 0..0;
        Ok(if back.is_empty() { Sentence::Free } else { Sentence::Back(back) })
    }
}
