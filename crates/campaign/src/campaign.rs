//! Many set-ups on all cores.

use crate::class::Class;
use crate::draw::draw;
use crate::judge::{Sample, Score, judge};
use crate::record::Record;
use crate::run::run;
use crate::setup::{Setup, Suspect};
use crate::targets;
use anyhow::Result;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The n of the floor that disks without a reservation are promised: the default of
/// [`Floor`](headgate_qos::Floor). The oracle expects it whatever the scheduler is told.
pub const FLOOR: Option<u16> = Some(100);

/// Threads that can run at once.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The score of one set-up.
///
/// # Errors
/// Those of [`run`].
pub fn score(class: Class, seed: u64, suspect: Suspect) -> Result<Score> {
    let (_, samples) = judged(&draw(class, seed), suspect)?;
    let mut score = Score::default();
    samples.iter().for_each(|sample| score.add(seed, sample));
    Ok(score)
}

/// Runs a set-up and compares it with what was due.
///
/// # Errors
/// Those of [`run`].
pub fn judged(setup: &Setup, suspect: Suspect) -> Result<(Record, Vec<Sample>)> {
    let record = run(setup, suspect)?;
    let mut samples = Vec::new();
    judge(setup, &record, FLOOR, &mut |sample| samples.push(sample));
    if setup.class == Class::LatencyTarget {
        targets::judge(setup, &record, suspect, &mut |sample| samples.push(sample))?;
    }
    Ok((record, samples))
}

/// The scores of classes over these seeds, the same for any number of `jobs`. Ends early
/// once `stop` is set. `progress` hears how many set-ups are done, and of how many.
///
/// # Errors
/// The first of a set-up.
pub fn campaign(
    classes: &[Class],
    seeds: Range<u64>,
    suspect: Suspect,
    jobs: usize,
    stop: &AtomicBool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<BTreeMap<Class, Score>> {
    // Seed by seed, so that an interrupted campaign has something of each class.
    let work: Vec<(Class, u64)> =
        seeds.flat_map(|seed| classes.iter().map(move |&class| (class, seed))).collect();
    let next = AtomicUsize::new(0);
    let scores = Mutex::new(Ok(BTreeMap::<Class, Score>::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(class, seed)) = work.get(number) else { return };
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = score(class, seed, suspect);
                    let mut scores = scores.lock().unwrap_or_else(PoisonError::into_inner);
                    match (&mut *scores, result) {
                        (Ok(scores), Ok(score)) => scores.entry(class).or_default().merge(score),
                        (Ok(_), Err(error)) => *scores = Err(error),
                        (Err(_), _) => return,
                    }
                    progress(number + 1, work.len());
                }
            });
        }
    });
    scores.into_inner().unwrap_or_else(PoisonError::into_inner)
}
