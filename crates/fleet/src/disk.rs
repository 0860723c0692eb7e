//! What a host says of a disk, and what it advises.

use crate::codec::{Coded, PartError, Reader, Writer};
use crate::datastore::{Service, micros};
use crate::text::NOTE_MAX;
use crate::{Rate, Thousandths};
use alloc::string::String;
use headgate_units::{Bytes, Nanos};

/// What a disk's requests wait for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The device.
    Device,
    /// The disk's own limits.
    Limit,
    /// Its own requests at the device.
    Own,
    /// Requests of other disks.
    Neighbours,
    /// A window that is narrower than it was.
    Window,
    /// The storage's trouble.
    Held,
}

impl Cause {
    const ALL: [Cause; 6] =
        [Cause::Device, Cause::Limit, Cause::Own, Cause::Neighbours, Cause::Window, Cause::Held];
}

/// Where the time of a disk's requests goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// What took the largest part.
    pub cause: Cause,
    /// That part.
    pub part: Thousandths,
    /// The disk that it waits for most, if it waits for one.
    pub behind: Option<Behind>,
}

/// A disk that another waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Its name at the same host.
    pub disk: String,
    /// The part of the other's waiting time that it took, whatever the largest cause is.
    pub part: Thousandths,
}

/// Whether a disk's reservation is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It is, or the disk asks for less, or it has none.
    Kept,
    /// Requests waited all the time, and it got less.
    Missed,
}

/// What a disk asks of whatever storage it is on: the traits of BASIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Requests outstanding, in thousandths.
    pub outstanding: Thousandths,
    /// Bytes of a request.
    pub size: Bytes,
    /// Reads among reads and writes.
    pub read: Thousandths,
    /// Requests that continue no stream.
    pub random: Thousandths,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskWord {
    /// Its name at its host.
    pub name: String,
    /// The virtual machine that it belongs to.
    pub vm: Option<String>,
    /// The datastore that it is on, by its name at the host.
    pub datastore: String,
    /// Whether it is in service.
    pub service: Service,
    /// Its size.
    pub size: Bytes,
    /// What is reserved for it, in normalised IOs per second.
    pub reservation: Option<Rate>,
    /// Its limit, likewise.
    pub limit: Option<Rate>,
    /// Its shares.
    pub shares: u64,
    /// What it receives, in normalised IOs per second.
    pub received: Rate,
    /// The same in bytes.
    pub bandwidth: Rate,
    /// Whether its reservation is kept.
    pub promise: Promise,
    /// Requests that wait.
    pub queued: u64,
    /// What 99 % of requests do not wait longer than, and take longer at the device, together.
    pub latency: Option<Nanos>,
    /// Where their time goes; `None` when it asked for nothing.
    pub waits: Option<Waits>,
    /// What it usually asks for; `None` while that is not known.
    pub workload: Option<Workload>,
}

impl Coded for Waits {
    fn put(&self, to: &mut Writer) {
        to.number(Cause::ALL.iter().position(|one| *one == self.cause).unwrap_or(0) as u64);
        to.number(self.part.0);
        to.list(self.behind.as_slice());
    }

    fn get(from: &mut Reader<'_>) -> Result<Waits, PartError> {
        let cause = from.up_to("cause", Cause::ALL.len() as u64 - 1)?;
        Ok(Waits {
            cause: *Cause::ALL.get(cause as usize).ok_or(PartError::Value("cause"))?,
            part: thousandths(from)?,
            behind: get_one(from, "neighbour")?,
        })
    }
}

impl Coded for Behind {
    fn put(&self, to: &mut Writer) {
        to.text(&self.disk);
        to.number(self.part.0);
    }

    fn get(from: &mut Reader<'_>) -> Result<Behind, PartError> {
        Ok(Behind { disk: from.name("neighbour")?, part: thousandths(from)? })
    }
}

impl Coded for Workload {
    fn put(&self, to: &mut Writer) {
        let Workload { outstanding, size, read, random } = *self;
        [outstanding.0, size.0, read.0, random.0].into_iter().for_each(|number| to.number(number));
    }

    fn get(from: &mut Reader<'_>) -> Result<Workload, PartError> {
        Ok(Workload {
            outstanding: Thousandths(from.up_to("requests", u32::MAX.into())?),
            size: Bytes(from.up_to("request", 1 << 40)?),
            read: thousandths(from)?,
            random: thousandths(from)?,
        })
    }
}

fn thousandths(from: &mut Reader<'_>) -> Result<Thousandths, PartError> {
    from.up_to("part", 1_000).map(Thousandths)
}

/// A list of at most one.
fn get_one<T: Coded>(from: &mut Reader<'_>, what: &'static str) -> Result<Option<T>, PartError> {
    from.list(what, 1).map(|list| list.into_iter().next())
}

impl Coded for DiskWord {
    fn put(&self, to: &mut Writer) {
        to.text(&self.name);
        to.maybe_text(self.vm.as_deref());
        to.text(&self.datastore);
        self.service.put(to);
        to.number(self.size.0);
        to.maybe(self.reservation.map(|rate| rate.0));
        to.maybe(self.limit.map(|rate| rate.0));
        [self.shares, self.received.0, self.bandwidth.0].into_iter().for_each(|n| to.number(n));
        to.number(match self.promise {
            Promise::Kept => 0,
            Promise::Missed => 1,
        });
        to.number(self.queued);
        to.maybe(self.latency.map(|latency| latency.0 / 1_000));
        to.list(self.waits.as_slice());
        to.list(self.workload.as_slice());
    }

    fn get(from: &mut Reader<'_>) -> Result<DiskWord, PartError> {
        Ok(DiskWord {
            name: from.name("disk")?,
            vm: from.maybe_name("machine")?,
            datastore: from.name("datastore")?,
            service: Service::get(from)?,
            size: Bytes(from.number("size")?),
            reservation: from.maybe("reservation")?.map(Rate),
            limit: from.maybe("limit")?.map(Rate),
            shares: from.up_to("shares", 1_000_000)?,
            received: Rate(from.number("rate")?),
            bandwidth: Rate(from.number("rate")?),
            promise: match from.up_to("promise", 1)? {
                0 => Promise::Kept,
                _ => Promise::Missed,
            },
            queued: from.number("requests")?,
            latency: from.maybe("latency")?.map(micros).transpose()?,
            waits: get_one(from, "waits")?,
            workload: get_one(from, "workload")?,
        })
    }
}

/// A move that a host advises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdviceWord {
    /// The disk.
    pub disk: String,
    /// Where it is.
    pub from: String,
    /// Where it should go: a datastore there, or one of another host as `HOST/DATASTORE`.
    pub to: String,
    /// Why, in words.
    pub why: String,
}

impl Coded for AdviceWord {
    fn put(&self, to: &mut Writer) {
        [&self.disk, &self.from, &self.to, &self.why].into_iter().for_each(|text| to.text(text));
    }

    fn get(from: &mut Reader<'_>) -> Result<AdviceWord, PartError> {
        Ok(AdviceWord {
            disk: from.name("disk")?,
            from: from.name("datastore")?,
            to: from.text("target", NOTE_MAX)?,
            why: from.text("reason", NOTE_MAX)?,
        })
    }
}
