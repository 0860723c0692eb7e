//! What a host says of a datastore.

use crate::codec::{Coded, PartError, Reader, Writer};
use crate::text::NOTE_MAX;
use crate::{Rate, Thousandths};
use alloc::string::String;
use headgate_units::{Bytes, Nanos};

/// Whether a datastore or a disk is in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// In service.
    Serving,
    /// It is being opened.
    Starting,
    /// Its storage does not answer.
    Hung,
    /// It could not be opened, or was stopped.
    Failed,
    /// Another host has taken it.
    Evicted,
}

impl Service {
    const ALL: [Service; 5] =
        [Service::Serving, Service::Starting, Service::Hung, Service::Failed, Service::Evicted];

    pub(crate) fn put(self, to: &mut Writer) {
        to.number(Service::ALL.iter().position(|one| *one == self).unwrap_or(0) as u64);
    }

    pub(crate) fn get(from: &mut Reader<'_>) -> Result<Service, PartError> {
        let at = from.up_to("state", Service::ALL.len() as u64 - 1)?;
        Service::ALL.get(at as usize).copied().ok_or(PartError::Value("state"))
    }
}

/// What its disks can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub size: Bytes,
    /// What is left.
    pub free: Bytes,
}

/// Where a model's slope comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Latency was seen to rise by it.
    Rise,
    /// Latency did not rise as far as the device was loaded.
    Flat,
    /// Always about the same number of reads.
    Steady,
    /// Latency changed with something else than load.
    Unclear,
}

/// What its storage can do: a line of read latency over outstanding reads, as BASIL has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// How much longer a read takes for each read more that is outstanding, in picoseconds; 1/P.
    pub slope_ps: u64,
    /// It is not less with 95 %, in picoseconds.
    pub low_ps: u64,
    /// It is not more, likewise.
    pub high_ps: u64,
    /// Where the line crosses zero outstanding, in nanoseconds; may be below zero.
    pub base_ns: i64,
    /// The lowest latency seen.
    pub floor: Nanos,
    /// The part of the variance that the line explains.
    pub explained: Thousandths,
    /// Intervals that it was learnt from.
    pub points: u64,
    /// Where the slope comes from.
    pub evidence: Evidence,
    /// Median size of the requests that it was learnt from.
    pub size: Bytes,
    /// The part of them that continued no stream.
    pub random: Thousandths,
}

impl Evidence {
    const ALL: [Evidence; 4] =
        [Evidence::Rise, Evidence::Flat, Evidence::Steady, Evidence::Unclear];
}

/// Small numbers of either sign in few bytes.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

impl Coded for Model {
    fn put(&self, to: &mut Writer) {
        let Model { slope_ps, low_ps, high_ps, base_ns, floor, explained, points, .. } = *self;
        let numbers = [slope_ps, low_ps, high_ps, zigzag(base_ns), floor.0, explained.0, points];
        numbers.into_iter().for_each(|number| to.number(number));
        to.number(Evidence::ALL.iter().position(|one| *one == self.evidence).unwrap_or(0) as u64);
        to.number(self.size.0);
        to.number(self.random.0);
    }

    fn get(from: &mut Reader<'_>) -> Result<Model, PartError> {
        let slope = |from: &mut Reader<'_>| from.up_to("slope", 1 << 60);
        Ok(Model {
            slope_ps: slope(from)?,
            low_ps: slope(from)?,
            high_ps: slope(from)?,
            base_ns: unzigzag(from.up_to("latency", 1 << 60)?),
            floor: Nanos(from.up_to("latency", 1 << 60)?),
            explained: Thousandths(from.up_to("part", 1_000)?),
            points: from.up_to("intervals", u32::MAX.into())?,
            evidence: {
                let at = from.up_to("evidence", Evidence::ALL.len() as u64 - 1)?;
                *Evidence::ALL.get(at as usize).ok_or(PartError::Value("evidence"))?
            },
            size: Bytes(from.up_to("request", 1 << 40)?),
            random: Thousandths(from.up_to("part", 1_000)?),
        })
    }
}

/// A datastore, as one host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatastoreWord {
    /// Its name at that host.
    pub name: String,
    /// Whether it is in service there.
    pub service: Service,
    /// The storage that it is, the same for all hosts that have it; `None`: no other host has it,
    /// or nobody can tell.
    pub storage: Option<String>,
    /// What this host's disks receive, in normalised IOs per second.
    pub received: Rate,
    /// The same in bytes.
    pub bandwidth: Rate,
    /// What 99 % of requests do not take longer than at the device.
    pub latency: Option<Nanos>,
    /// Requests that may be at the device, in thousandths.
    pub window: Thousandths,
    /// Requests at the device.
    pub in_flight: u64,
    /// Requests that wait.
    pub queued: u64,
    /// What it can promise, in normalised IOs per second.
    pub capacity: Option<Rate>,
    /// What is reserved on it by this host.
    pub reserved: Rate,
    /// What is promised beyond what can be kept.
    pub overbooked: Rate,
    /// Disks of this host on it.
    pub disks: u64,
    /// Its space; `None` where nobody knows.
    pub space: Option<Space>,
    /// What its storage can do; `None` where that is not known.
    pub model: Option<Model>,
}

impl Coded for DatastoreWord {
    fn put(&self, to: &mut Writer) {
        to.text(&self.name);
        self.service.put(to);
        to.maybe_text(self.storage.as_deref());
        to.number(self.received.0);
        to.number(self.bandwidth.0);
        to.maybe(self.latency.map(|latency| latency.0 / 1_000));
        [self.window.0, self.in_flight, self.queued].into_iter().for_each(|n| to.number(n));
        to.maybe(self.capacity.map(|rate| rate.0));
        [self.reserved.0, self.overbooked.0, self.disks].into_iter().for_each(|n| to.number(n));
        to.maybe(self.space.map(|space| space.size.0));
        to.maybe(self.space.map(|space| space.free.0));
        to.list(self.model.as_slice());
    }

    fn get(from: &mut Reader<'_>) -> Result<DatastoreWord, PartError> {
        Ok(DatastoreWord {
            name: from.name("datastore")?,
            service: Service::get(from)?,
            storage: from.maybe_text("storage", NOTE_MAX)?,
            received: Rate(from.number("rate")?),
            bandwidth: Rate(from.number("rate")?),
            latency: from.maybe("latency")?.map(micros).transpose()?,
            window: Thousandths(from.up_to("window", 1 << 32)?),
            in_flight: from.number("requests")?,
            queued: from.number("requests")?,
            capacity: from.maybe("capacity")?.map(Rate),
            reserved: Rate(from.number("reservations")?),
            overbooked: Rate(from.number("reservations")?),
            disks: from.number("disks")?,
            space: both(from.maybe("space")?, from.maybe("space")?, "space")?
                .map(|(size, free)| Space { size: Bytes(size), free: Bytes(free) }),
            model: from.list("model", 1)?.into_iter().next(),
        })
    }
}

pub(crate) fn micros(micros: u64) -> Result<Nanos, PartError> {
    micros.checked_mul(1_000).map(Nanos).ok_or(PartError::Value("latency"))
}

/// Two numbers of which there are both or none.
fn both(
    one: Option<u64>,
    other: Option<u64>,
    what: &'static str,
) -> Result<Option<(u64, u64)>, PartError> {
    match (one, other) {
        (Some(one), Some(other)) => Ok(Some((one, other))),
        (None, None) => Ok(None),
        _ => Err(PartError::Value(what)),
    }
}
