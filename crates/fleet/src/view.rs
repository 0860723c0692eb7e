//! What all hosts have told, and how old it is.

use crate::key::{HostKey, PartKey, PartKind};
use crate::part::{Header, Part};
use crate::text::clipped;
use crate::{
    AdviceWord, DatastoreWord, DiskWord, HostWord, KeyError, PartError, Running, SILENT_PERIODS,
    UnixSeconds,
};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use headgate_units::Nanos;

/// Hosts that are shown.
pub const HOSTS_MAX: usize = 1_024;

/// Bytes of parts that are kept, as they were told. In memory they take about four times that.
pub const BYTES_MAX: usize = 32 << 20;

/// Keys without a good part that are named.
pub const UNREADABLE_MAX: usize = 16;

/// A word may come so much late before its host counts as silent.
const LATE: Nanos = Nanos::from_secs(1);

/// Disks are told again after so many periods, if they have changed: see
/// [`Publisher`](crate::Publisher).
const DISK_PERIODS: u64 = 3;

/// Added to every instant, so that what is older than the clock has one, too: ten years.
const LONG: Nanos = Nanos::from_secs(10 * 365 * 24 * 60 * 60);

/// How a part came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was heard as it was told.
    Told,
    /// It stood there when all was read. How old it is only its host's clock says; here is ours.
    Read(UnixSeconds),
}

/// A key whose value is no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The key, as far as it can be printed.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

/// How long ago something was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(pub Nanos);

/// What is known of a host's daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState {
    /// It has told something within three of its periods.
    Running,
    /// It was stopped in good order.
    Stopped,
    /// It has not told anything for three of its periods, while others were heard.
    Silent,
    /// Nobody was heard since it told something: it may run.
    Unknown,
}

/// A host in the view.
#[derive(Clone, Copy, Debug)]
pub struct HostView<'a> {
    /// Which it is.
    pub host: HostKey,
    /// What it said of itself.
    pub word: &'a HostWord,
    /// Which run of its daemon said so, and when by its clock.
    pub header: Header,
    /// What is known of its daemon.
    pub state: HostState,
    /// How long ago it was heard.
    pub age: Age,
    entry: &'a Entry,
    now: Nanos,
}

#[derive(Clone, Debug)]
struct Held {
    header: Header,
    part: Part,
    heard: Nanos,
    bytes: usize,
    /// In which reading it was last there.
    reading: u64,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    parts: BTreeMap<PartKind, Held>,
}

impl Entry {
    fn word(&self) -> Option<(&HostWord, &Held)> {
        let held = self.parts.get(&PartKind::Host)?;
        match &held.part {
            Part::Host(word) => Some((word, held)),
            _ => None,
        }
    }
}

/// What all hosts have told. Bounded by [`HOSTS_MAX`] and [`BYTES_MAX`], whatever they tell.
#[derive(Clone, Debug)]
pub struct View {
    own: HostKey,
    hosts: BTreeMap<HostKey, Entry>,
    unreadable: BTreeMap<String, String>,
    /// Keys without a good part, also those that are not named.
    unreadable_count: u64,
    bytes: usize,
    left_out: u64,
    reading: u64,
    heard: Option<Nanos>,
}

impl View {
    /// Nothing is known. `own` is the host that looks.
    pub fn new(own: HostKey) -> View {
        View {
            own,
            hosts: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            unreadable_count: 0,
            bytes: 0,
            left_out: 0,
            reading: 0,
            heard: None,
        }
    }

    /// This stands under a key. O(log n) beside the value's length.
    pub fn put(&mut self, now: Nanos, found: Found, key: &[u8], value: &[u8]) {
        let read = core::str::from_utf8(key).map_err(|_| KeyError).and_then(str::parse::<PartKey>);
        let key_of = match read {
            Ok(key) => key,
            Err(error) => return self.refuse(key, &error.to_string()),
        };
        let (header, part) = match Part::decode(key_of.kind, value) {
            Ok(read) => read,
            Err(error) => return self.refuse(key, &error.to_string()),
        };
        self.accept(key);
        self.insert(now, found, key_of, header, part, value.len());
    }

    /// What this host says of itself: it needs nobody to tell it.
    pub fn put_own(&mut self, now: Nanos, kind: PartKind, value: &[u8]) -> Result<(), PartError> {
        let (header, part) = Part::decode(kind, value)?;
        let key = PartKey { host: self.own, kind };
        self.insert(now, Found::Told, key, header, part, value.len());
        Ok(())
    }

    fn insert(
        &mut self,
        now: Nanos,
        found: Found,
        key: PartKey,
        header: Header,
        part: Part,
        bytes: usize,
    ) {
        let now = now + LONG;
        let is_new = !self.hosts.contains_key(&key.host);
        let before = self.hosts.get(&key.host).and_then(|entry| entry.parts.get(&key.kind));
        let freed = before.map_or(0, |held| held.bytes);
        if (is_new && self.hosts.len() >= HOSTS_MAX && key.host != self.own)
            || self.bytes - freed + bytes > BYTES_MAX
        {
            self.left_out += 1;
            return;
        }
        let is_same = |held: &&Held| held.header == header && held.part == part;
        let heard = match (found, before.filter(is_same)) {
            (Found::Told, _) => now,
            (Found::Read(_), Some(held)) => held.heard,
            (Found::Read(wall), None) => {
                let seconds = wall.0.saturating_sub(header.at.0);
                now.since(Nanos(seconds.saturating_mul(1_000_000_000)))
            }
        };
        self.bytes = self.bytes - freed + bytes;
        let held = Held { header, part, heard, bytes, reading: self.reading };
        self.hosts.entry(key.host).or_default().parts.insert(key.kind, held);
    }

    /// Nothing stands under a key any more. O(log n).
    pub fn remove(&mut self, key: &[u8]) {
        self.accept(key);
        let Some(key) = core::str::from_utf8(key).ok().and_then(|key| key.parse::<PartKey>().ok())
        else {
            return;
        };
        if key.host == self.own {
            return;
        }
        let Some(entry) = self.hosts.get_mut(&key.host) else { return };
        if let Some(held) = entry.parts.remove(&key.kind) {
            self.bytes -= held.bytes;
        }
        if entry.parts.is_empty() {
            self.hosts.remove(&key.host);
        }
    }

    /// All is read anew from here on.
    pub fn begin_reading(&mut self) {
        self.reading += 1;
        self.left_out = 0;
        self.unreadable.clear();
        self.unreadable_count = 0;
    }

    /// All was read: what was not there is gone. O(n).
    pub fn end_reading(&mut self) {
        let (own, reading) = (self.own, self.reading);
        let mut bytes = 0;
        self.hosts.retain(|host, entry| {
            entry.parts.retain(|_, held| *host == own || held.reading == reading);
            bytes += entry.parts.values().map(|held| held.bytes).sum::<usize>();
            !entry.parts.is_empty()
        });
        self.bytes = bytes;
    }

    /// The hosts' meeting place has answered.
    pub fn heard(&mut self, now: Nanos) {
        self.heard = Some(now + LONG);
    }

    /// How long ago the meeting place answered; `None`: it never did.
    pub fn age(&self, now: Nanos) -> Option<Age> {
        self.heard.map(|heard| Age((now + LONG).since(heard)))
    }

    fn refuse(&mut self, key: &[u8], why: &str) {
        let key = printed(key);
        if let Some(known) = self.unreadable.get_mut(&key) {
            *known = why.to_owned();
            return;
        }
        self.unreadable_count += 1;
        if self.unreadable.len() < UNREADABLE_MAX {
            self.unreadable.insert(key, why.to_owned());
        }
    }

    fn accept(&mut self, key: &[u8]) {
        if self.unreadable.is_empty() {
            return;
        }
        if self.unreadable.remove(&printed(key)).is_some() {
            self.unreadable_count = self.unreadable_count.saturating_sub(1);
        }
    }

    /// Keys without a good part: how many, and the first of them.
    pub fn unreadable(&self) -> (u64, Vec<Unreadable>) {
        let named = self.unreadable.iter();
        let named = named.map(|(key, why)| Unreadable { key: key.clone(), why: why.clone() });
        (self.unreadable_count, named.collect())
    }

    /// Parts for which there was no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Bytes of all parts, as they were told.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many hosts are known.
    pub fn count(&self) -> usize {
        self.hosts.len()
    }

    /// Hosts that were heard within three of their periods. O(n).
    pub fn running(&self, now: Nanos) -> usize {
        self.hosts(now).filter(|host| host.state == HostState::Running).count()
    }

    /// All hosts that have said who they are, by identity.
    pub fn hosts(&self, now: Nanos) -> impl Iterator<Item = HostView<'_>> {
        let now = now + LONG;
        self.hosts.iter().filter_map(move |(host, entry)| {
            let (word, held) = entry.word()?;
            let (host, header) = (*host, held.header);
            let age = Age(now.since(held.heard));
            let state = self.state(host, word, held.heard, now);
            Some(HostView { host, word, header, state, age, entry, now })
        })
    }

    fn state(&self, host: HostKey, word: &HostWord, heard: Nanos, now: Nanos) -> HostState {
        let patience = Nanos(word.period.0.saturating_mul(SILENT_PERIODS)) + LATE;
        let others = self.heard.unwrap_or(Nanos::ZERO);
        if word.running == Running::Stopped && host != self.own {
            HostState::Stopped
        } else if now.since(heard) <= patience {
            HostState::Running
        } else if others.since(heard) > patience {
            HostState::Silent
        } else {
            HostState::Unknown
        }
    }

    /// What each host is called here: its name, and where another has the same one its name and as
    /// much of its identity as tells it from all others, such as `web~3fa9`. O(n log n).
    pub fn labels(&self) -> BTreeMap<HostKey, String> {
        let words = || self.hosts.iter().filter_map(|(host, entry)| Some((*host, entry.word()?.0)));
        let mut names: BTreeMap<&str, Vec<HostKey>> = BTreeMap::new();
        words().for_each(|(host, word)| names.entry(&word.name).or_default().push(host));
        let digits = digits(&self.hosts);
        let label = |(host, word): (HostKey, &HostWord)| {
            let is_alone = names.get(word.name.as_str()).is_some_and(|of| of.len() == 1);
            // A name that looks like a label is none.
            let label = if is_alone && !word.name.contains('~') {
                word.name.clone()
            } else {
                format!("{}~{}", word.name, &host.to_string()[..digits])
            };
            (host, label)
        };
        words().map(label).collect()
    }
}

/// As many digits as tell all hosts apart, 4 at least.
fn digits(hosts: &BTreeMap<HostKey, Entry>) -> usize {
    let apart = |digits: &usize| {
        let short: BTreeSet<String> =
            hosts.keys().map(|host| host.to_string()[..*digits].to_owned()).collect();
        short.len() == hosts.len()
    };
    (4..32).find(apart).unwrap_or(32)
}

/// A key for people; without its end where it is long.
fn printed(key: &[u8]) -> String {
    clipped(&String::from_utf8_lossy(&key[..key.len().min(200)]), 200)
}

impl<'a> HostView<'a> {
    /// The chunks of one kind that count: as many as the host says, of this run of its daemon.
    fn parts(&self, kinds: core::ops::RangeInclusive<PartKind>) -> impl Iterator<Item = &'a Held> {
        let HostView { entry, header, word, .. } = *self;
        let counts = move |kind: PartKind| match kind {
            PartKind::Datastores(chunk) => chunk < word.datastore_chunks,
            PartKind::Disks(chunk) => chunk < word.disk_chunks,
            PartKind::Host | PartKind::Advice => true,
        };
        let range = entry.parts.range(kinds);
        range
            .filter(move |(kind, held)| counts(**kind) && held.header.instance == header.instance)
            .map(|(_, held)| held)
    }

    /// How old it may be what a part says: the host has looked at it when it was last heard, and
    /// tells what has changed within `periods`.
    fn age_of(&self, held: &Held, periods: u64) -> Age {
        let heard = self.now.since(self.age.0);
        let before = heard.since(held.heard);
        let most = Nanos(self.word.period.0.saturating_mul(periods));
        Age(self.age.0 + before.min(most))
    }

    /// Its datastores, and how old it may be what is said of each.
    pub fn datastores(&self) -> impl Iterator<Item = (&'a DatastoreWord, Age)> {
        let this = *self;
        self.parts(PartKind::Datastores(0)..=PartKind::Datastores(u16::MAX)).flat_map(move |held| {
            let list = match &held.part {
                Part::Datastores(list) => list.as_slice(),
                _ => &[],
            };
            let age = this.age_of(held, 1);
            list.iter().map(move |one| (one, age))
        })
    }

    /// Its disks, likewise.
    pub fn disks(&self) -> impl Iterator<Item = (&'a DiskWord, Age)> {
        let this = *self;
        self.parts(PartKind::Disks(0)..=PartKind::Disks(u16::MAX)).flat_map(move |held| {
            let list = match &held.part {
                Part::Disks(list) => list.as_slice(),
                _ => &[],
            };
            let age = this.age_of(held, DISK_PERIODS);
            list.iter().map(move |one| (one, age))
        })
    }

    /// What it advises, likewise.
    pub fn advice(&self) -> impl Iterator<Item = (&'a AdviceWord, Age)> {
        let this = *self;
        self.parts(PartKind::Advice..=PartKind::Advice).flat_map(move |held| {
            let list = match &held.part {
                Part::Advice(list) => list.as_slice(),
                _ => &[],
            };
            let age = this.age_of(held, 1);
            list.iter().map(move |one| (one, age))
        })
    }
}
