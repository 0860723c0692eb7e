//! Which parts of a host's summary are told now.

use crate::bounds::{ADVICE_MAX, DATASTORE_CHUNKS, DATASTORES_EACH, DISK_CHUNKS, DISKS_EACH};
use crate::part::{Header, Part, Summary, chunks};
use crate::steady::steady;
use crate::{HostKey, PartKey, PartKind};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use headgate_units::Nanos;

/// The shortest and the longest period.
const PERIODS: [Nanos; 2] = [Nanos::from_secs(5), Nanos::from_secs(60)];

/// Hosts that tell something in a second, all together, at most.
const WORDS_PER_SECOND: u64 = 10;

/// Disks are told every so many periods at most.
const DISK_PERIODS: u64 = 3;

/// Whatever a host says, it says again after so many periods: who lost it has it back.
const AGAIN_PERIODS: u64 = 60;

/// How often a host tells something, in a fleet of so many: every 5 s up to 50 hosts, then as often
/// as ten hosts a second allow, every 60 s at least.
pub fn period(hosts: usize) -> Nanos {
    let [least, most] = PERIODS;
    Nanos(1_000_000_000 * hosts as u64 / WORDS_PER_SECOND).clamp(least, most)
}

/// A change to the keys of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// This is what stands there now.
    Put(PartKey, Vec<u8>),
    /// From this chunk on there are no more of its kind.
    RemoveFrom(PartKey),
}

/// What was told of one part, and when.
#[derive(Clone, Debug)]
struct Said {
    part: Part,
    at: Nanos,
}

/// Decides which parts are told. What is returned counts as told when
/// [`told`](Publisher::told) says so; until then it is returned again.
#[derive(Clone, Debug)]
pub struct Publisher {
    host: HostKey,
    said: BTreeMap<PartKind, Said>,
    /// What the last turn returned.
    pending: Vec<(PartKind, Said)>,
    /// How many chunks there were when the others were last removed, datastores and disks.
    swept: Option<(u16, u16)>,
    sweeping: Option<(u16, u16)>,
}

impl Publisher {
    /// Nothing is told yet.
    pub fn new(host: HostKey) -> Publisher {
        let (said, pending) = (BTreeMap::new(), Vec::new());
        Publisher { host, said, pending, swept: None, sweeping: None }
    }

    /// What is to be told at `now`, by this summary. The host itself always; another part where it
    /// has changed, and not too often. O(n log n) for n disks.
    pub fn turn(&mut self, now: Nanos, header: Header, summary: Summary) -> Vec<Write> {
        let Summary { host, datastores, disks, mut advice } = summary;
        let period = host.period;
        let datastores = steady(&self.said_datastores(), datastores);
        let disks = steady(&self.said_disks(), disks);
        let datastores = chunks(&datastores, DATASTORES_EACH, DATASTORE_CHUNKS);
        let disks = chunks(&disks, DISKS_EACH, DISK_CHUNKS);
        advice.truncate(ADVICE_MAX);
        let counts = (datastores.len() as u16, disks.len() as u16);
        let mut host =
            crate::HostWord { datastore_chunks: counts.0, disk_chunks: counts.1, ..host };
        if let Some(Part::Host(said)) = self.said.get(&PartKind::Host).map(|said| &said.part) {
            host = host.steadied(said);
        }
        let mut due = alloc::vec![(PartKind::Host, Part::Host(host))];
        let number = |list: Vec<Part>, kind: fn(u16) -> PartKind| {
            list.into_iter().enumerate().map(move |(n, part)| (kind(n as u16), part))
        };
        let datastores = datastores.into_iter().map(Part::Datastores).collect();
        let disks = disks.into_iter().map(Part::Disks).collect();
        let others = number(datastores, PartKind::Datastores)
            .chain(number(disks, PartKind::Disks))
            .chain([(PartKind::Advice, Part::Advice(advice))]);
        due.extend(others.filter(|(kind, part)| self.is_due(now, period, *kind, part)));
        let mut writes = self.sweep(counts);
        self.pending = due.into_iter().map(|(kind, part)| (kind, Said { part, at: now })).collect();
        writes.extend(self.pending.iter().map(|(kind, said)| {
            Write::Put(PartKey { host: self.host, kind: *kind }, said.part.encode(header))
        }));
        writes
    }

    /// Whether a part is told again.
    fn is_due(&self, now: Nanos, period: Nanos, kind: PartKind, part: &Part) -> bool {
        let Some(said) = self.said.get(&kind) else { return true };
        // A turn may come a little early.
        let passed = now.since(said.at) + Nanos(period.0 / 2);
        let wait = match kind {
            PartKind::Disks(_) => DISK_PERIODS,
            PartKind::Host | PartKind::Datastores(_) | PartKind::Advice => 1,
        };
        let after = if said.part == *part { AGAIN_PERIODS } else { wait };
        passed >= Nanos(period.0.saturating_mul(after))
    }

    /// Chunks that were there and are no more: also those of an earlier run of the daemon.
    fn sweep(&mut self, counts: (u16, u16)) -> Vec<Write> {
        self.sweeping = Some(counts);
        let before = self.swept;
        let gone = |now: u16, before: Option<u16>| before.is_none_or(|before| now < before);
        let mut writes = Vec::new();
        for (kind, is_gone) in [
            (PartKind::Datastores(counts.0), gone(counts.0, before.map(|swept| swept.0))),
            (PartKind::Disks(counts.1), gone(counts.1, before.map(|swept| swept.1))),
        ] {
            if is_gone {
                writes.push(Write::RemoveFrom(PartKey { host: self.host, kind }));
            }
        }
        writes
    }

    /// What the last turn returned has been told.
    pub fn told(&mut self) {
        let counts = self.sweeping.take();
        self.swept = counts.or(self.swept);
        self.said.extend(core::mem::take(&mut self.pending));
        if let Some((datastores, disks)) = self.swept {
            self.said.retain(|kind, _| match *kind {
                PartKind::Datastores(chunk) => chunk < datastores,
                PartKind::Disks(chunk) => chunk < disks,
                PartKind::Host | PartKind::Advice => true,
            });
        }
    }

    /// A part is not there any more, or is another's: it is told again.
    pub fn lost(&mut self, kind: PartKind) {
        self.said.remove(&kind);
    }

    /// Nothing that was told may be there any more.
    pub fn lost_all(&mut self) {
        self.said.clear();
        self.swept = None;
    }

    fn said_datastores(&self) -> Vec<crate::DatastoreWord> {
        let parts = self.said.values().filter_map(|said| match &said.part {
            Part::Datastores(list) => Some(list),
            _ => None,
        });
        parts.flatten().cloned().collect()
    }

    fn said_disks(&self) -> Vec<crate::DiskWord> {
        let parts = self.said.values().filter_map(|said| match &said.part {
            Part::Disks(list) => Some(list),
            _ => None,
        });
        parts.flatten().cloned().collect()
    }
}
