//! Reviews of recent moves: compares the hours after a move with the same hours of the day before.

use super::pools::contradiction;
use super::{Control, ControlError};
use headgate_api::placement::MoveReview;
use headgate_history::StoreHour;
use headgate_model::Lookback;
use headgate_model::Name;
use headgate_placement as placement;
use headgate_placement::{
    Course, Done, Finding, Made, PastMove, Permille, Pool, check_rollback, review,
};
use headgate_units::Nanos;
use std::collections::BTreeMap;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// Tolerated increase of latency after moves: the days of a pool differ by some per cent.
const MARGIN: Permille = Permille(50);
/// The least of an hour that must have been seen.
const SEEN: Nanos = Nanos::from_secs(1_800);

impl Control {
    /// Judges the moves whose disks are still where they came, from the fifth hour after the last
    /// of them to the end of the day. Moves that were made within an hour of each other are taken
    /// for those of one advice.
    ///
    /// # Errors
    /// When samples cannot be read, or the rules contradict each other.
    pub(super) fn reviews(&self, pool: &Pool) -> Result<Vec<MoveReview>, ControlError> {
        let mut reviews = Vec::new();
        for round in rounds(pool) {
            let last = round.iter().map(|&(past, _)| past.at).max().unwrap_or_default();
            let first = round.iter().map(|&(past, _)| past.at).min().unwrap_or_default();
            let made: Vec<Made> = round
                .iter()
                .map(|&(past, to)| Made {
                    disk: past.disk.clone(),
                    from: past.from.clone(),
                    to: to.clone(),
                })
                .collect();
            let mut hours = BTreeMap::new();
            for name in made.iter().flat_map(|made| [&made.from, &made.to]) {
                let here = pool.datastores.iter().any(|datastore| datastore.name == *name);
                let Some(known) = name.as_str().parse::<Name>().ok().filter(|_| here) else {
                    continue;
                };
                hours.insert(name.clone(), self.samples.history(&known, Lookback::MONTH)?);
            }
            // A datastore that is gone has no hours, and without it nothing can be said.
            let gone = made
                .iter()
                .any(|made| !hours.contains_key(&made.from) || !hours.contains_key(&made.to));
            if gone {
                continue;
            }
            let courses = courses(&hours, first, last);
            for found in review(&made, &courses, MARGIN) {
                let decision: Vec<Made> =
                    found.moves.iter().map(|&index| made[index].clone()).collect();
                let barred = match found.finding {
                    Finding::Worse { .. } => {
                        check_rollback(pool, &decision).map_err(|e| contradiction(&e))?
                    }
                    Finding::NoWorse | Finding::Changed | Finding::TooSoon => None,
                };
                let of = |&index: &usize| {
                    let at = round[index].0.at;
                    MoveReview::new(&made[index], at, found.finding, barred.as_ref())
                };
                reviews.extend(found.moves.iter().map(of));
            }
        }
        Ok(reviews)
    }
}

/// Moves of the last two days that were not rolled back, each with its disk's present datastore, in
/// the order in which they were made. Only a disk's last move counts.
fn rounds(pool: &Pool) -> Vec<Vec<(&PastMove, &placement::Name)>> {
    let since = Nanos(pool.now.0.saturating_sub(2 * DAY.unsigned_abs() * 1_000_000_000));
    let mut last: BTreeMap<&placement::Name, &PastMove> = BTreeMap::new();
    for past in &pool.history {
        let known = last.entry(&past.disk).or_insert(past);
        if past.at >= known.at {
            *known = past;
        }
    }
    let at = |disk: &placement::Name| {
        pool.disks.iter().find(|known| known.name == *disk).map(|disk| &disk.datastore)
    };
    let mut recent: Vec<(&PastMove, &placement::Name)> = last
        .into_values()
        .filter(|past| past.at >= since)
        .filter_map(|past| Some((past, at(&past.disk)?)))
        .filter(|&(past, to)| {
            let came_back = pool.history.iter().any(|old| old.disk == past.disk && old.from == *to);
            past.from != *to && !came_back
        })
        .collect();
    recent.sort_by_key(|(past, _)| past.at);
    let mut rounds: Vec<Vec<(&PastMove, &placement::Name)>> = Vec::new();
    for step in recent {
        match rounds.last_mut() {
            Some(round) if round[0].0.at + Nanos::from_secs(HOUR.unsigned_abs()) >= step.0.at => {
                round.push(step)
            }
            _ => rounds.push(vec![step]),
        }
    }
    rounds
}

/// Whole hours of the day after moves, and the same hours of the day before them, as far as all
/// datastores were seen in both.
fn courses(
    hours: &BTreeMap<placement::Name, BTreeMap<i64, StoreHour>>,
    first: Nanos,
    last: Nanos,
) -> BTreeMap<placement::Name, Course> {
    let begin = |at: Nanos| (at.0 / 1_000_000_000).cast_signed() / HOUR * HOUR;
    let seen = |hour: i64| {
        let here = |known: &BTreeMap<i64, StoreHour>| {
            known.get(&hour).is_some_and(|hour| hour.seen >= SEEN)
        };
        hours.values().all(here)
    };
    // The day before ends with the hour before the first move.
    let (after, end) = (begin(last) + HOUR, begin(first) + DAY);
    let both: Vec<i64> = (0..24)
        .map(|n| after + n * HOUR)
        .filter(|&hour| hour < end && seen(hour) && seen(hour - DAY))
        .collect();
    let done = |hour: &StoreHour| Done {
        iops: hour.per_second(hour.reads.count.saturating_add(hour.writes.count)),
        outstanding: hour.mean_outstanding(),
    };
    let of = |known: &BTreeMap<i64, StoreHour>, earlier: i64| -> Vec<Done> {
        both.iter().filter_map(|hour| known.get(&(hour - earlier))).map(done).collect()
    };
    hours
        .iter()
        .map(|(name, known)| (name.clone(), Course { before: of(known, DAY), after: of(known, 0) }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::{Affinity, Mobility, PoolDisk};
    use headgate_units::Bytes;

    /// An hour of requests that took so many milliseconds each.
    fn hour(iops: u64, millis: u64) -> StoreHour {
        let seen = Nanos::from_secs(3_600);
        let mut hour =
            StoreHour { seen, outstanding: iops * 3_600 * millis, ..StoreHour::default() };
        hour.reads.count = iops * 3_600;
        hour
    }

    fn at(hour: i64) -> Nanos {
        Nanos::from_secs((hour * HOUR).unsigned_abs() + 600)
    }

    fn disk(name: &str, datastore: &str) -> PoolDisk {
        PoolDisk {
            name: name.into(),
            vm: None,
            datastore: datastore.into(),
            size: Bytes::from_gib(1),
            used: Bytes::from_gib(1),
            reservation: None,
            workload: None,
            mobility: Mobility::Free,
            class: None,
            affinity: Affinity::None,
        }
    }

    fn past(disk: &str, from: &str, hour: i64) -> PastMove {
        PastMove { disk: disk.into(), from: from.into(), at: at(hour) }
    }

    #[test]
    fn the_hours_after_a_move_are_held_against_those_of_the_day_before() {
        // By day twice as much is done as by night, more slowly; from hour 1,012 on all takes half
        // as long again.
        let course = |h: i64| match (h % 24 < 12, h < 1_012) {
            (true, true) => hour(400, 10),
            (true, false) => hour(400, 15),
            (false, true) => hour(200, 6),
            (false, false) => hour(200, 9),
        };
        let known: BTreeMap<i64, StoreHour> = (980..1_020).map(|h| (h * HOUR, course(h))).collect();
        let hours = BTreeMap::from([("a".into(), known.clone()), ("b".into(), known)]);
        let found = |h: i64| {
            let made = [Made { disk: "db".into(), from: "a".into(), to: "b".into() }];
            let courses = courses(&hours, at(h), at(h));
            (
                courses.values().map(|course| course.after.len()).collect::<Vec<_>>(),
                review(&made, &courses, MARGIN),
            )
        };
        let (seen, worse) = found(1_011);
        assert_eq!(seen, [8, 8], "hours 1,012 to 1,019");
        assert!(matches!(worse[0].finding, Finding::Worse { .. }), "{worse:?}");
        // Of a move that was made eight hours earlier most hours were fine.
        let (_, fine) = found(1_003);
        assert_eq!(fine[0].finding, Finding::NoWorse);
        let (seen, soon) = found(1_017);
        assert_eq!((seen, soon[0].finding), (vec![2, 2], Finding::TooSoon));
    }

    #[test]
    fn moves_that_are_old_or_were_taken_back_are_judged_no_more() {
        let pool = Pool {
            now: at(1_100),
            disks: vec![
                disk("new", "b"),
                disk("with", "b"),
                disk("later", "b"),
                disk("old", "b"),
                disk("back", "a"),
            ],
            history: vec![
                past("new", "a", 1_090),
                past("later", "a", 1_095),
                past("with", "c", 1_090),
                past("old", "a", 1_040),
                past("back", "a", 1_080),
                past("back", "b", 1_090),
                past("gone", "a", 1_090),
            ],
            ..Pool::default()
        };
        let names: Vec<Vec<&str>> = rounds(&pool)
            .iter()
            .map(|round| round.iter().map(|(past, _)| past.disk.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["new", "with"], vec!["later"]]);
    }
}
