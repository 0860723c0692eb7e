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

/// What its storage can do: read latency over outstanding reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// How much longer a read takes for each read more that is outstanding, in picoseconds.
    pub slope_ps: u64,
    /// Reads per second that this is: BASIL's ability P.
    pub ability: Rate,
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
        to.maybe(self.model.map(|model| model.slope_ps));
        to.maybe(self.model.map(|model| model.ability.0));
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
            model: both(from.maybe("model")?, from.maybe("model")?, "model")?
                .map(|(slope_ps, ability)| Model { slope_ps, ability: Rate(ability) }),
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
