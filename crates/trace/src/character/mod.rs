//! What a trace says of its workload.

mod clocked;
mod placed;
mod profile;

pub use profile::{Character, DiskProfile, Profile, Quantiles, Sizes, Volume};

use crate::disks::Disks;
use crate::record::Record;
use clocked::Clocked;
use headgate_units::Nanos;
use placed::Placed;

/// Computes the traits of a workload from its requests, taken in the order of their times: for each
/// disk and for the whole.
///
/// The traits are those of BASIL's workload model (A. Gulati, C. Kumar, I. Ahmad, K. Kumar: "BASIL:
/// Automated IO Load Balancing Across Storage Devices", FAST 2010, section 3): requests
/// outstanding, size, share of reads, randomness, each with the 90th percentile that the model
/// takes.
///
/// - Outstanding requests are known only where every request has a completion time; otherwise the
///   reason is given.
/// - A request is *random* if it begins more than 1 MiB from the end of the one before on the same
///   disk. *Sequential* is what [`headgate_stats`] calls so: it continues one of the last 8
///   requests. A request may be neither.
/// - Shares of reads and of random requests are taken over intervals of [`Characteriser::INTERVAL`]
///   in which there were any.
/// - Footprints count pages of 4 KiB.
///
/// Memory: some KB for each disk, and what the distinct sizes and the gaps between touched pages
/// take.
#[derive(Debug, Default)]
pub struct Characteriser {
    disks: Vec<Option<(Placed, Clocked)>>,
    whole: Clocked,
}

impl Characteriser {
    /// The interval over which shares are taken.
    pub const INTERVAL: Nanos = clocked::INTERVAL;

    /// Nothing seen yet.
    pub fn new() -> Characteriser {
        Characteriser::default()
    }

    /// Takes the next request, which is not earlier than the one before. O(log n) in the number of
    /// ranges touched.
    pub fn push(&mut self, record: &Record) {
        let index = record.disk.index();
        if self.disks.len() <= index {
            self.disks.resize_with(index + 1, || None);
        }
        let (placed, clocked) = self.disks[index].get_or_insert_default();
        let step = placed.push(record);
        clocked.push(record, step);
        self.whole.push(record, step);
    }

    /// What was seen; `disks` has the names.
    pub fn finish(mut self, disks: &Disks) -> Character {
        self.disks.iter_mut().flatten().for_each(|(placed, _)| placed.count_pages());
        let seen = || {
            disks.names().zip(&self.disks).filter_map(|(name, disk)| Some((name, disk.as_ref()?)))
        };
        let whole = seen().fold(Placed::default(), |mut whole, (_, (placed, _))| {
            whole.merge(placed);
            whole
        });
        Character {
            interval: Self::INTERVAL,
            disks: seen()
                .map(|(name, (placed, clocked))| DiskProfile {
                    disk: name.to_owned(),
                    profile: Profile::of(placed, clocked),
                })
                .collect(),
            whole: Profile::of(&whole, &self.whole),
        }
    }
}
