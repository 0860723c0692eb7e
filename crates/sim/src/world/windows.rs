//! Hosts' windows: once a period each host's controller says how many requests it may have
//! outstanding, as in the daemon.

use super::event::Event;
use super::gate::{Gate, GateSite};
use super::host_window::{Control, HostWindow};
use super::state::World;
use crate::board::Board;
use crate::progress::RunError;
use crate::random::Stream;
use crate::record::{Seen, WindowRecorder};
use crate::scenario::{self, Knowledge};
use headgate_qos::window::{
    Absence, Alive, BoardView, Controller, DemandMeter, DiskTotals, LatencyMeter, Peer, Periods,
    Rank, Sightings, Slots,
};
use headgate_qos::{AnyScheduler, SchedulerKind};
use headgate_units::Nanos;

impl World<'_> {
    /// The boards of all datastores.
    pub(super) fn add_boards(&mut self) {
        let delay = |store: &scenario::Datastore| match &store.issue_window {
            Some(scenario::IssueWindow::Controlled(control)) => control.delay,
            _ => Nanos::ZERO,
        };
        self.boards = self.setup.datastores.iter().map(|store| Board::new(delay(store))).collect();
    }

    /// The gate of a host at a datastore.
    pub(super) fn add_host_gate(
        &mut self,
        seed: u64,
        host: usize,
        datastore: usize,
    ) -> Result<u32, RunError> {
        let (store, own) = (&self.setup.datastores[datastore], &self.setup.hosts[host]);
        let site = GateSite::Host { datastore: datastore as u32 };
        let scheduler = own.scheduler.unwrap_or(store.scheduler);
        let depth = own.queue_depth.unwrap_or(store.queue_depth);
        let control = match &store.issue_window {
            Some(scenario::IssueWindow::Controlled(control)) if own.queue_depth.is_none() => {
                Some(control)
            }
            _ => None,
        };
        let gate = self.gates.len() as u32;
        let (size, control) = match control {
            None => (Slots::whole(depth), None),
            Some(control) => {
                let (meter, control) = self.controlled(control, datastore)?;
                let name = format!("window {}/{}", own.name, store.name);
                // Hosts do not know of each other when to begin.
                let phase = Nanos(Stream::new(seed, &name).below(control.periods.period().0));
                self.queue.push(phase, Event::Window { window: self.windows.len() as u32 });
                (control.periods.window(), Some((meter, Box::new(control))))
            }
        };
        self.push_gate(scheduler, store, size, site)?;
        let control = control.map(|(meter, control)| {
            self.gates[gate as usize].set_meter(meter, own.latency_percent);
            control
        });
        if store.issue_window.is_some() {
            let recorder = WindowRecorder::new(size);
            self.windows.push(HostWindow { gate, host, datastore, recorder, control });
        }
        Ok(gate)
    }

    fn controlled(
        &mut self,
        control: &scenario::Control,
        datastore: usize,
    ) -> Result<(LatencyMeter, Control), RunError> {
        let store = &self.setup.datastores[datastore];
        let controller = Controller::new(control.config)?;
        let demand = DemandMeter::new(store.config.cost_model)?;
        let meter = LatencyMeter::new(store.config.cost_model, control.config.smoothing)?;
        let control = Control {
            periods: Periods::new(controller, demand),
            has_begun: false,
            knowledge: control.knowledge,
            number: self.boards[datastore].join(),
            sightings: Sightings::new(Absence::Lost),
            disks: Vec::new(),
        };
        Ok((meter, control))
    }

    pub(super) fn push_gate(
        &mut self,
        kind: SchedulerKind,
        store: &scenario::Datastore,
        window: Slots,
        site: GateSite,
    ) -> Result<u32, RunError> {
        let scheduler = AnyScheduler::new(kind, store.config)?;
        self.gates.push(Gate::new(scheduler, window, site));
        Ok(self.gates.len() as u32 - 1)
    }

    /// A disk more behind this gate.
    pub(super) fn count_disk(&mut self, gate: u32, disk: u32) {
        let windows = self.windows.iter_mut().filter(|window| window.gate == gate);
        for control in windows.filter_map(|window| window.control.as_mut()) {
            control.disks.push(disk);
        }
    }

    /// A fixed window changes its size, if it is one.
    pub(super) fn set_depth(&mut self, gate: u32, depth: u32) {
        let windows = self.windows.iter_mut().filter(|window| window.gate == gate);
        for window in windows {
            if window.control.is_some() {
                return;
            }
            window.recorder.set(self.now, Slots::whole(depth));
        }
        self.gates[gate as usize].set_window(self.now, Slots::whole(depth));
        self.ask(gate);
    }

    /// What a disk has done so far.
    fn totals(&mut self, key: u32) -> Option<DiskTotals<u32>> {
        let disk = &mut self.disks[key as usize];
        let done = disk.recorder.so_far(self.now);
        Some(DiskTotals {
            key,
            policy: self.gates[disk.gate as usize].policy(disk.id)?,
            at: self.now,
            outstanding_time: done.outstanding.into(),
            ios: done.completed,
            bytes: done.bytes,
        })
    }

    /// A period of a host's window ends, and the next begins.
    pub(super) fn end_period(&mut self, index: u32) {
        let now = self.now;
        let HostWindow { gate, datastore, control, .. } = &mut self.windows[index as usize];
        let (gate, datastore) = (*gate, *datastore);
        let Some(mut control) = control.take() else { return };
        let period = control.periods.period();
        self.queue.push(now + period, Event::Window { window: index });
        let own = self.gates[gate as usize].take_latency(now);
        let disks: Vec<_> = control.disks.iter().filter_map(|&key| self.totals(key)).collect();
        let board = &mut self.boards[datastore];
        let sightings = &mut control.sightings;
        sightings.observe(now, period, board.posted_by_others(now, control.number));
        if control.has_begun {
            let peers: Option<Vec<Peer>> = sightings.is_settled(period).then(|| {
                let own = control.number;
                let peer = |alive: Alive<'_, usize, _>| Peer {
                    report: *alive.report,
                    age: alive.age,
                    rank: if *alive.host < own { Rank::Before } else { Rank::After },
                };
                sightings.alive(now).map(peer).collect()
            });
            let view = match (control.knowledge, &peers) {
                (Knowledge::Local, _) => BoardView::Alone,
                (Knowledge::Cluster, Some(peers)) => BoardView::Shared(peers),
                (Knowledge::Cluster, None) => BoardView::Unreachable,
            };
            let update = control.periods.end(own, &disks, view).update;
            board.write(now, control.number, update.report);
            let recorder = &mut self.windows[index as usize].recorder;
            recorder.set(now, update.window);
            recorder.see(Seen {
                beta: update.beta,
                latency: update.latency,
                threshold: update.threshold,
                unmanaged: control.periods.controller().unmanaged().is_some(),
            });
            self.gates[gate as usize].set_window(now, update.window);
            self.ask(gate);
        } else {
            control.periods.begin(disks);
            control.has_begun = true;
        }
        self.windows[index as usize].control = Some(control);
    }
}
