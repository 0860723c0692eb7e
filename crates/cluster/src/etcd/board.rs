use super::client::{Client, EtcdError, part};
use super::wire::{Blob, Int, Put, Range, Request, Transaction};
use crate::board::{Board, BoardError, View};
use crate::file::HOSTS_MAX;
use crate::identity::Identity;
use crate::record::{Place, RECORD, Record};
use crate::sightings::{Absence, Sightings};
use headgate_qos::window::HostReport;
use headgate_units::Nanos;

/// The shortest life of what a host says, in seconds.
const SHORTEST: u64 = 5;

/// A board in etcd: one key per host, which goes when its host is gone for three periods (five seconds at least).
///
/// An exchange is two calls: one that prolongs the lease, one that writes the own report and reads all.
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
        Ok(EtcdBoard { client, prefix, own, lease: None, sequence: 0, sightings: Sightings::default() })
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
            value: Blob(record.encode(Place::Key).to_vec()),
            lease,
        };
        let all = Range {
            key: self.prefix.as_str().into(),
            range_end: Some(end_of(&self.prefix)),
            limit: Int(HOSTS_MAX as i64),
        };
        let success = vec![Request::Put(put), Request::Range(all)];
        let outcome = self.client.transact(&Transaction { success, ..Transaction::default() });
        if outcome.as_ref().is_err_and(EtcdError::is_not_found) {
            // The lease ended in between: the next exchange makes another.
            self.lease = None;
        }
        let mut unreadable = 0;
        let mut records = Vec::new();
        for found in outcome?.found() {
            let bytes: Result<[u8; RECORD], _> = found.value.0.try_into();
            match bytes.map(|bytes| Record::decode(&bytes, Place::Key)) {
                Ok(Ok(record)) => records.push(record),
                _ => unreadable += 1,
            }
        }
        // Who is not there has left, or its lease ran out.
        self.sightings.observe(now, report.period, records, Absence::Left);
        Ok(View {
            peers: self.sightings.peers(now, &self.own),
            settled: self.sightings.is_settled(report.period, Absence::Left),
            duplicate: self.sightings.duplicate(now, &self.own, report.period),
            unreadable,
        })
    }

    fn leave(&mut self) -> Result<(), BoardError> {
        match self.lease.take() {
            Some(lease) => Ok(self.client.revoke(lease)?),
            None => Ok(()),
        }
    }
}
