//! What a host says of itself.

use crate::codec::{Coded, PartError, Reader, Writer};
use crate::text::{HOST_NAME_MAX, NOTE_MAX};
use crate::{Rate, bounds};
use alloc::string::String;
use headgate_units::Nanos;

/// Whether the daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// It does.
    Yes,
    /// It was stopped in good order; this is its last word.
    Stopped,
}

/// A host, told once a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostWord {
    /// What people call it. Not unique.
    pub name: String,
    /// Which version of Headgate it runs.
    pub version: String,
    /// Where its API is, if others can reach it: `https://ADDRESS:PORT`.
    pub api: Option<String>,
    /// Whether its daemon runs.
    pub running: Running,
    /// How soon the next word comes, 1 s to 120 s.
    pub period: Nanos,
    /// Chunks of datastores that count.
    pub datastore_chunks: u16,
    /// Chunks of disks that count.
    pub disk_chunks: u16,
    /// Disks that it has, also those that no chunk has room for.
    pub disks: u64,
    /// Disks that are not in service.
    pub failed: u64,
    /// Disks whose reservation is missed now.
    pub missed: u64,
    /// What all disks together receive, in normalised IOs per second.
    pub received: Rate,
    /// The same in bytes.
    pub bandwidth: Rate,
    /// Requests that wait.
    pub queued: u64,
}

impl HostWord {
    /// The periods that there may be.
    pub(crate) const PERIODS: [u64; 2] = [1_000, 120_000];
}

impl Coded for HostWord {
    fn put(&self, to: &mut Writer) {
        to.text(&self.name);
        to.text(&self.version);
        to.maybe_text(self.api.as_deref());
        to.number(match self.running {
            Running::Yes => 0,
            Running::Stopped => 1,
        });
        to.number(self.period.0 / 1_000_000);
        to.number(self.datastore_chunks.into());
        to.number(self.disk_chunks.into());
        let totals = [self.disks, self.failed, self.missed, self.received.0, self.bandwidth.0];
        totals.into_iter().for_each(|number| to.number(number));
        to.number(self.queued);
    }

    fn get(from: &mut Reader<'_>) -> Result<HostWord, PartError> {
        let name = from.maybe_text("name", HOST_NAME_MAX)?;
        let name = name.ok_or(PartError::Value("name"))?;
        let version = from.text("version", HOST_NAME_MAX)?;
        let api = from.maybe_text("address", NOTE_MAX)?;
        let running = match from.number("state")? {
            0 => Running::Yes,
            1 => Running::Stopped,
            _ => return Err(PartError::Value("state")),
        };
        let [least, most] = HostWord::PERIODS;
        let period = from.up_to("period", most)?;
        if period < least {
            return Err(PartError::Value("period"));
        }
        let chunks = |from: &mut Reader<'_>, what, most: usize| {
            from.up_to(what, most as u64).map(|number| number as u16)
        };
        Ok(HostWord {
            name,
            version,
            api,
            running,
            period: Nanos::from_millis(period),
            datastore_chunks: chunks(from, "chunks", bounds::DATASTORE_CHUNKS)?,
            disk_chunks: chunks(from, "chunks", bounds::DISK_CHUNKS)?,
            disks: from.number("disks")?,
            failed: from.number("disks")?,
            missed: from.number("disks")?,
            received: Rate(from.number("rate")?),
            bandwidth: Rate(from.number("rate")?),
            queued: from.number("requests")?,
        })
    }
}
