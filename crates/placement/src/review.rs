//! What moves did, as measured: those after which everybody waits longer are to be taken back.
//!
//! Models are wrong now and then, most of all about caches and streams. What came of a move can be
//! seen: the datastores that it was between did so much before, and do so much now. A change of
//! what is asked is no fault of the move, and is told from it by Little's law. Of n requests
//! outstanding and x done in each second, each takes n/x. If that rose and
//! - as many as before or more wait, and no more is done than before, then storage does less for
//!   the same: the move did harm;
//! - more is done, or fewer wait, then more or less is asked for, and nothing can be said.
//!
//! So it is for closed loops, where n stays and x falls, and for requests that come by themselves,
//! where x stays and n grows.
//!
//! Moves of one advice that share a datastore are one decision: they are kept or taken back
//! together. A disk that was taken back has left the place where it did harm, and is back where it
//! was before: [`Calm::no_return`](crate::Calm::no_return) bars the one and holds it at the other.
//! So it wanders no further.

use crate::{Name, Permille};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use headgate_stats::Interval;
use headgate_units::Nanos;

/// Intervals before, and as many after, below which nothing is said.
pub const LEAST_INTERVALS: usize = 4;

/// What a datastore did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Requests done, per second.
    pub iops: f64,
    /// Mean number outstanding, those included that wait for us.
    pub outstanding: f64,
}

impl Done {
    /// Of the statistics of an interval.
    pub fn of(interval: &Interval) -> Done {
        Done { iops: interval.iops, outstanding: interval.outstanding }
    }

    fn plus(self, other: Done) -> Done {
        Done { iops: self.iops + other.iops, outstanding: self.outstanding + other.outstanding }
    }

    /// Seconds that a request takes (Little's law); without end where requests wait and none is
    /// done, nothing where none waits.
    fn latency(self) -> f64 {
        if self.outstanding > 0.0 { self.outstanding / self.iops } else { 0.0 }
    }
}

/// A move that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Which disk.
    pub disk: Name,
    /// Where it was.
    pub from: Name,
    /// Where it is.
    pub to: Name,
}

/// What a datastore did in intervals of one length, before moves and after them. The same intervals
/// for all datastores, and none of the time in which disks were copied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Before.
    pub before: Vec<Done>,
    /// After.
    pub after: Vec<Done>,
}

/// What came of moves that are one decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    /// Indices of the moves, ascending.
    pub moves: Vec<usize>,
    /// What came of them.
    pub finding: Finding,
}

/// What came of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Requests take no longer than before, or not by more than is put up with.
    NoWorse,
    /// They take longer, with no more being done: from what, to what.
    Worse {
        /// How long a request took on the datastores together.
        before: Nanos,
        /// And how long it takes.
        after: Nanos,
    },
    /// They take longer, but more or less is asked for than before.
    Changed,
    /// Too few intervals.
    TooSoon,
}

/// What came of moves that were made at one time, by what their datastores did. Worse is what makes
/// requests take longer by more than `margin`, and in three quarters of all pairs of an interval
/// before and one after. A datastore of which nothing is known did nothing.
///
/// O(moves · log moves + datastores · intervals + intervals²).
pub fn review(moves: &[Made], courses: &BTreeMap<Name, Course>, margin: Permille) -> Vec<Review> {
    let mut reviews: Vec<(Vec<&Name>, Vec<usize>)> = Vec::new();
    for (index, made) in moves.iter().enumerate() {
        let touches = |(names, _): &(Vec<&Name>, Vec<usize>)| {
            names.contains(&&made.from) || names.contains(&&made.to)
        };
        let mut joined = (vec![&made.from, &made.to], vec![index]);
        for (names, others) in reviews.extract_if(.., |group| touches(group)) {
            joined.0.extend(names);
            joined.1.extend(others);
        }
        joined.0.sort_unstable();
        joined.0.dedup();
        joined.1.sort_unstable();
        reviews.push(joined);
    }
    let judged = reviews.into_iter().map(|(names, moves)| {
        let courses: Vec<&Course> = names.iter().filter_map(|&name| courses.get(name)).collect();
        let all = |stretch: fn(&Course) -> &Vec<Done>| {
            together(courses.iter().map(|course| stretch(course)))
        };
        Review {
            moves,
            finding: find(&all(|course| &course.before), &all(|course| &course.after), margin),
        }
    });
    judged.collect()
}

/// What datastores did together, interval by interval, as far as all are known.
fn together<'a>(courses: impl Iterator<Item = &'a Vec<Done>> + Clone) -> Vec<Done> {
    let length = courses.clone().map(Vec::len).min().unwrap_or(0);
    (0..length)
        .map(|index| courses.clone().fold(Done::default(), |sum, course| sum.plus(course[index])))
        .collect()
}

fn find(before: &[Done], after: &[Done], margin: Permille) -> Finding {
    if before.len().min(after.len()) < LEAST_INTERVALS {
        return Finding::TooSoon;
    }
    let mean = |of: &[Done]| {
        let sum = of.iter().fold(Done::default(), |sum, &one| sum.plus(one));
        Done { iops: sum.iops / of.len() as f64, outstanding: sum.outstanding / of.len() as f64 }
    };
    let (then, now, margin) = (mean(before), mean(after), margin.as_f64());
    let slower = before
        .iter()
        .map(|b| after.iter().filter(|a| a.latency() > b.latency()).count())
        .sum::<usize>();
    let often = 4 * slower >= 3 * before.len() * after.len();
    if !often || now.latency() <= then.latency() * (1.0 + margin) {
        return Finding::NoWorse;
    }
    if now.iops > then.iops || now.outstanding < then.outstanding * (1.0 - margin) {
        return Finding::Changed;
    }
    // Casts saturate: a request that is never done takes the longest time there is.
    let nanos = |done: Done| Nanos((done.latency() * 1e9) as u64);
    Finding::Worse { before: nanos(then), after: nanos(now) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(disk: &str, from: &str, to: &str) -> Made {
        Made { disk: disk.into(), from: from.into(), to: to.into() }
    }

    /// Intervals of half a second of a device that serves so many at once for so long each, with a
    /// closed loop and with requests that come by themselves.
    fn device(
        servers: f64,
        millis: f64,
        closed: f64,
        open: f64,
        noise: impl Fn(usize) -> f64,
    ) -> Vec<Done> {
        let most = servers / millis * 1e3;
        let interval = |index: usize| {
            let most = most * noise(index);
            let open = open.min(most * 0.95);
            // The queue of an M/M/1 beside the loop, which takes what is left.
            let waiting = open / (most - open);
            Done {
                iops: open + if closed > 0.0 { most - open } else { 0.0 },
                outstanding: closed + waiting,
            }
        };
        (0..8).map(interval).collect()
    }

    fn courses(of: [(&str, Vec<Done>, Vec<Done>); 2]) -> BTreeMap<Name, Course> {
        of.into_iter()
            .map(|(name, before, after)| (name.into(), Course { before, after }))
            .collect()
    }

    fn scattered(index: usize) -> f64 {
        0.99 + 0.02 * f64::from((index as u32).wrapping_mul(2_654_435_761) >> 8)
            / f64::from(1u32 << 24)
    }

    fn finding(before: Vec<Done>, after: Vec<Done>) -> Finding {
        let idle = vec![Done::default(); 8];
        let seen = courses([("a", before, idle.clone()), ("b", idle, after)]);
        let found = review(&[made("disk", "a", "b")], &seen, Permille(30));
        assert_eq!(found.len(), 1);
        found[0].finding
    }

    #[test]
    fn a_slower_place_is_worse_for_loops_and_for_what_comes_by_itself() {
        let at = |servers, closed, open| device(servers, 5.0, closed, open, scattered);
        assert!(matches!(finding(at(9.0, 16.0, 0.0), at(6.0, 16.0, 0.0)), Finding::Worse { .. }));
        assert!(matches!(finding(at(9.0, 0.0, 900.0), at(6.0, 0.0, 900.0)), Finding::Worse { .. }));
        assert_eq!(finding(at(6.0, 16.0, 0.0), at(9.0, 16.0, 0.0)), Finding::NoWorse);
        assert_eq!(finding(at(6.0, 0.0, 900.0), at(9.0, 0.0, 900.0)), Finding::NoWorse);
        assert_eq!(finding(at(6.0, 16.0, 0.0), at(6.0, 16.0, 0.0)), Finding::NoWorse);
    }

    #[test]
    fn who_asks_for_more_or_less_than_before_accuses_nobody() {
        let at = |servers, closed, open| device(servers, 5.0, closed, open, scattered);
        assert_eq!(finding(at(6.0, 16.0, 0.0), at(6.5, 32.0, 0.0)), Finding::Changed);
        assert_eq!(finding(at(6.0, 0.0, 500.0), at(6.0, 0.0, 1_000.0)), Finding::Changed);
        assert_eq!(finding(at(9.0, 32.0, 0.0), at(3.0, 16.0, 0.0)), Finding::Changed);
    }

    #[test]
    fn nothing_done_at_all_is_worst_and_nothing_asked_is_fine() {
        let starved = vec![Done { iops: 0.0, outstanding: 4.0 }; 8];
        let served = vec![Done { iops: 100.0, outstanding: 4.0 }; 8];
        let expected = Finding::Worse { before: Nanos::from_millis(40), after: Nanos(u64::MAX) };
        assert_eq!(finding(served.clone(), starved.clone()), expected);
        assert_eq!(finding(starved, served.clone()), Finding::NoWorse);
        assert_eq!(finding(served, vec![Done::default(); 8]), Finding::NoWorse);
    }

    #[test]
    fn moves_that_share_a_datastore_are_one_decision() {
        let moves = [
            made("1", "a", "b"),
            made("2", "c", "d"),
            made("3", "e", "f"),
            made("4", "d", "b"),
            made("5", "f", "e"),
        ];
        let groups: Vec<Vec<usize>> = review(&moves, &BTreeMap::new(), Permille(30))
            .into_iter()
            .map(|review| review.moves)
            .collect();
        assert_eq!(groups, [vec![0, 1, 3], vec![2, 4]]);
    }

    #[test]
    fn a_few_intervals_say_nothing() {
        let slow = vec![Done { iops: 1.0, outstanding: 9.0 }; 3];
        assert_eq!(
            finding(vec![Done { iops: 900.0, outstanding: 9.0 }; 8], slow),
            Finding::TooSoon
        );
    }

    fn stretch() -> impl Strategy<Value = Vec<Done>> {
        let done =
            (0.0..1e5f64, 0.0..1e3f64).prop_map(|(iops, outstanding)| Done { iops, outstanding });
        prop::collection::vec(done, 0..20)
    }

    proptest! {
        /// Else a disk would go to and fro.
        #[test]
        fn there_and_back_are_never_both_worse(before in stretch(), after in stretch(), margin in 0u32..500) {
            let (there, back) = (find(&before, &after, Permille(margin)), find(&after, &before, Permille(margin)));
            let worse = |finding| matches!(finding, Finding::Worse { .. });
            prop_assert!(!(worse(there) && worse(back)), "{there:?} {back:?}");
        }

        /// Measurements that scatter by a tenth are no reason to take anything back.
        #[test]
        fn scatter_alone_is_not_worse_by_more_than_itself(
            parts in prop::collection::vec((900u32..=1_000, 900u32..=1_000), 4..40), closed in 1.0..64.0f64,
        ) {
            let of = |part: u32| Done { iops: f64::from(part), outstanding: closed };
            let (before, after): (Vec<Done>, Vec<Done>) = parts.into_iter().map(|(b, a)| (of(b), of(a))).unzip();
            prop_assert_eq!(find(&before, &after, Permille(112)), Finding::NoWorse);
        }
    }
}
