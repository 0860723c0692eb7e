//! What this host tells, part by part.

use super::shared::{Myself, Shared, wall};
use super::slow::Slow;
use super::summary::{Known, holdings};
use crate::observe::Observer;
use headgate_control::Control;
use headgate_fleet::{
    HOST_NAME_MAX, Header, HostKey, HostWord, NOTE_MAX, Promise, Publisher, Rate, Running, Service,
    Summary, UnixSeconds, Write, clipped, period,
};
use headgate_model::Name;
use headgate_units::Nanos;
use std::sync::Arc;

/// Looks at this host, and finds what is to be told of it.
pub(super) struct Teller {
    control: Arc<Control>,
    observer: Arc<Observer>,
    myself: Myself,
    slow: Arc<Slow>,
    publisher: Publisher,
}

impl Teller {
    pub(super) fn new(
        control: Arc<Control>,
        observer: Arc<Observer>,
        myself: Myself,
        slow: Arc<Slow>,
    ) -> Teller {
        let publisher = Publisher::new(HostKey(myself.identity.host.0));
        Teller { control, observer, myself, slow, publisher }
    }

    pub(super) fn instance(&self) -> [u8; 16] {
        self.myself.identity.instance.0
    }

    /// Looks, puts what it sees into the own view, and answers what the others are to be told.
    pub(super) fn turn(&mut self, shared: &Shared, now: Nanos) -> Vec<Write> {
        let running = shared.lock().view.running(now);
        let summary = self.summary(period(running));
        let writes = self.publisher.turn(now, self.header(), summary);
        let mut state = shared.lock();
        for write in &writes {
            let Write::Put(key, value) = write else { continue };
            if let Err(e) = state.view.put_own(now, key.kind, value) {
                tracing::error!(part = %key.kind, error = %e, "the own summary is none");
            }
        }
        writes
    }

    /// What the last turn answered was told.
    pub(super) fn told(&mut self) {
        self.publisher.told();
    }

    pub(super) fn publisher(&mut self) -> &mut Publisher {
        &mut self.publisher
    }

    /// The last word.
    pub(super) fn farewell(&mut self, now: Nanos, running: usize) -> Vec<Write> {
        let mut summary = self.summary(period(running));
        summary.host.running = Running::Stopped;
        self.publisher.turn(now, self.header(), summary)
    }

    fn header(&self) -> Header {
        let identity = &self.myself.identity;
        Header { instance: identity.instance.0, epoch: identity.epoch, at: UnixSeconds(wall()) }
    }

    fn summary(&self, period: Nanos) -> Summary {
        let seen = self.observer.seen();
        let samples = self.control.samples();
        let names: Vec<Name> = seen.datastores.iter().map(|store| store.name.clone()).collect();
        let (workloads, models) = (samples.usual_workloads(), samples.usual_models(&names));
        let known = Known { workloads: &workloads, models: &models, slow: &self.slow };
        let holdings = holdings(&seen, &known);
        let count = |is: fn(&headgate_fleet::DiskWord) -> bool| {
            holdings.disks.iter().filter(|disk| is(disk)).count() as u64
        };
        let total = |of: fn(&headgate_fleet::DiskWord) -> u64| {
            holdings.disks.iter().fold(0u64, |sum, disk| sum.saturating_add(of(disk)))
        };
        let host = HostWord {
            name: clipped(self.myself.identity.name.as_str(), HOST_NAME_MAX),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: self.myself.api.as_deref().map(|api| clipped(api, NOTE_MAX)),
            running: Running::Yes,
            period,
            datastore_chunks: 0,
            disk_chunks: 0,
            disks: holdings.disks.len() as u64,
            failed: count(|disk| disk.service != Service::Serving),
            missed: count(|disk| disk.promise == Promise::Missed),
            received: Rate(total(|disk| disk.received.0)),
            bandwidth: Rate(total(|disk| disk.bandwidth.0)),
            queued: total(|disk| disk.queued),
        };
        let advice = self.slow.advice();
        Summary { host, datastores: holdings.datastores, disks: holdings.disks, advice }
    }
}
