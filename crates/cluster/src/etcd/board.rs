use super::client::{Client, part};
use super::error::EtcdError;
use super::wire::{Blob, Int, Outcome, Put, Range, Request, Transaction};
use crate::board::{Board, BoardError, View};
use crate::file::HOSTS_MAX;
use crate::identity::Identity;
use crate::record::{RECORD, Record, RecordKey};
use crate::sightings::Sightings;
use headgate_qos::window::{Absence, HostReport};
use headgate_units::Nanos;

/// The shortest life of what a host says, in seconds.
const SHORTEST: u64 = 5;

/// A board in etcd: one key per host, which goes when its host is gone for three periods (five
/// seconds at least).
///
/// An exchange is two calls: one that prolongs the lease, one that writes the own report and reads
/// all.
#[derive(Debug)]
pub struct EtcdBoard {
    client: Client,
    prefix: String,
    own: Identity,
    lease: Option<Int>,
    sequence: u64,
    sightings: Sightings,
}

impl EtcdBoard {
    /// The board of the datastore that all hosts call by this name.
    ///
    /// # Errors
    /// When the name cannot be part of a key.
    pub fn new(client: Client, datastore: &str, own: Identity) -> Result<EtcdBoard, EtcdError> {
        let prefix = format!("/headgate/board/{}/", part(datastore)?);
        Ok(EtcdBoard {
            client,
            prefix,
            own,
            lease: None,
            sequence: 0,
            sightings: Sightings::new(Absence::Left),
        })
    }

    fn key(&self) -> String {
        format!("{}{}/{}", self.prefix, self.own.host, self.own.instance)
    }

    /// A living lease.
    fn lease(&mut self, period: Nanos) -> Result<Int, EtcdError> {
        if let Some(lease) = self.lease
            && self.client.keep_alive(lease)?
        {
            return Ok(lease);
        }
        let seconds = (period.0.saturating_mul(3)).div_ceil(1_000_000_000).max(SHORTEST);
        let lease = self.client.grant(i64::try_from(seconds).unwrap_or(i64::MAX))?;
        self.lease = Some(lease);
        Ok(lease)
    }

    /// All that stands on the board.
    fn all(&self) -> Range {
        Range {
            key: self.prefix.as_str().into(),
            range_end: Some(end_of(&self.prefix)),
            limit: Int(HOSTS_MAX as i64),
        }
    }

    fn transact(&mut self, success: Vec<Request>) -> Result<Outcome, EtcdError> {
        self.client.transact(&Transaction { success, ..Transaction::default() })
    }

    fn observe(&mut self, now: Nanos, period: Nanos, outcome: Outcome) -> View {
        let mut unreadable = 0;
        let mut records = Vec::new();
        for found in outcome.found() {
            let bytes: Result<[u8; RECORD], _> = found.value.0.try_into();
            match bytes.map(|bytes| Record::decode(&bytes, RecordKey::Key)) {
                Ok(Ok(record)) => records.push(record),
                _ => unreadable += 1,
            }
        }
        self.sightings.observe(now, period, records);
        View {
            peers: self.sightings.peers(now, &self.own),
            settled: self.sightings.is_settled(period),
            duplicate: self.sightings.duplicate(now, &self.own, period),
            unreadable,
        }
    }
}

/// The first key after all that begin with `prefix`.
fn end_of(prefix: &str) -> Blob {
    let mut end = prefix.as_bytes().to_vec();
    // Ends with '/', which has a successor.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Blob(end)
}

impl Board for EtcdBoard {
    fn exchange(&mut self, now: Nanos, report: &HostReport) -> Result<View, BoardError> {
        let lease = self.lease(report.period)?;
        self.sequence += 1;
        let record = self.own.record(self.sequence, report);
        let put = Put {
            key: Blob(self.key().into_bytes()),
            value: Blob(record.encode(RecordKey::Key).to_vec()),
            lease,
        };
        let outcome = self.transact(vec![Request::Put(put), Request::Range(self.all())]);
        if outcome.as_ref().is_err_and(EtcdError::is_not_found) {
            // The lease ended in between: the next exchange makes another.
            self.lease = None;
        }
        Ok(self.observe(now, report.period, outcome?))
    }

    fn read(&mut self, now: Nanos, period: Nanos) -> Result<View, BoardError> {
        let outcome = self.transact(vec![Request::Range(self.all())])?;
        Ok(self.observe(now, period, outcome))
    }

    fn leave(&mut self) -> Result<(), BoardError> {
        match self.lease.take() {
            Some(lease) => Ok(self.client.revoke(lease)?),
            None => Ok(()),
        }
    }
}
