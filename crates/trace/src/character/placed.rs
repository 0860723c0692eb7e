//! What does not depend on time, and adds up over disks: counts, sizes, distances, footprints.

use crate::extents::Extents;
use crate::record::{Kind, Record};
use headgate_stats::{DiskSnapshot, DiskStats, Op};
use headgate_units::Nanos;
use std::collections::BTreeMap;

/// Beginning further than so many bytes from the last end is random.
pub(crate) const FAR: u64 = 1 << 20;
/// Footprints are counted in pages of so many bytes.
pub(crate) const PAGE: u64 = 4 << 10;

/// How a request lies to the one before on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is none before, or this one has no place.
    None,
    Near,
    Far,
}

/// Requests and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Volume {
    /// How many.
    pub requests: u64,
    /// Their lengths added up.
    pub bytes: u64,
}

impl Volume {
    fn add(&mut self, requests: u64, bytes: u64) {
        self.requests += requests;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Requests by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub reads: Volume,
    pub writes: Volume,
    pub flushes: u64,
    pub discards: Volume,
}

#[derive(Debug, Default)]
pub(crate) struct Placed {
    pub counts: Counts,
    pub read_sizes: BTreeMap<u64, u64>,
    pub write_sizes: BTreeMap<u64, u64>,
    pub near: u64,
    pub far: u64,
    /// Known after [`Placed::count_pages`].
    pub touched_pages: u64,
    pub written_pages: u64,
    /// Sequential streams, as the daemon counts them. Merged from the disks; a disk's own are in
    /// `stats`.
    pub streams: DiskSnapshot,
    stats: Option<Box<DiskStats>>,
    end: Option<u64>,
    touched: Extents,
    written: Extents,
}

impl Placed {
    pub(crate) fn push(&mut self, record: &Record) -> Step {
        let bytes = record.bytes.0;
        let op = match record.kind {
            Kind::Flush => {
                self.counts.flushes += 1;
                return Step::None;
            }
            Kind::Discard => {
                self.counts.discards.add(1, bytes);
                return Step::None;
            }
            Kind::Read => Op::Read,
            Kind::Write => Op::Write,
        };
        let end = record.offset.saturating_add(bytes);
        let pages = (record.offset / PAGE, end.div_ceil(PAGE));
        let (volume, sizes) = match op {
            Op::Write => {
                self.written.add(pages.0, pages.1);
                (&mut self.counts.writes, &mut self.write_sizes)
            }
            _ => (&mut self.counts.reads, &mut self.read_sizes),
        };
        volume.add(1, bytes);
        *sizes.entry(bytes).or_insert(0) += 1;
        self.touched.add(pages.0, pages.1);
        let stats = self.stats.get_or_insert_with(|| Box::new(DiskStats::new(Nanos::ZERO)));
        stats.on_arrival(record.at, op, record.offset, record.bytes);
        match self.end.replace(end) {
            None => Step::None,
            Some(before) if record.offset.abs_diff(before) > FAR => {
                self.far += 1;
                Step::Far
            }
            Some(_) => {
                self.near += 1;
                Step::Near
            }
        }
    }

    /// Counts the pages of the footprint.
    pub(crate) fn count_pages(&mut self) {
        (self.touched_pages, self.written_pages) = (self.touched.pages(), self.written.pages());
    }

    /// Adds another disk's.
    pub(crate) fn merge(&mut self, other: &Placed) {
        let Counts { reads, writes, flushes, discards } = &other.counts;
        self.counts.reads.add(reads.requests, reads.bytes);
        self.counts.writes.add(writes.requests, writes.bytes);
        self.counts.flushes += flushes;
        self.counts.discards.add(discards.requests, discards.bytes);
        for (mine, theirs) in
            [(&mut self.read_sizes, &other.read_sizes), (&mut self.write_sizes, &other.write_sizes)]
        {
            theirs.iter().for_each(|(&size, &count)| *mine.entry(size).or_insert(0) += count);
        }
        self.near += other.near;
        self.far += other.far;
        self.touched_pages = self.touched_pages.saturating_add(other.touched_pages);
        self.written_pages = self.written_pages.saturating_add(other.written_pages);
        self.streams.merge(&other.streams());
    }

    /// Sequential streams of this disk, or of all that were merged.
    pub(crate) fn streams(&self) -> DiskSnapshot {
        self.stats
            .as_ref()
            .map_or_else(|| self.streams.clone(), |stats| stats.snapshot(Nanos::ZERO))
    }
}
