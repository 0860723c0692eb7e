//! Hosts' windows: once a period each host's controller says how many requests it may have outstanding, as in the daemon.

use super::gate::{Controlled, Gate, Window};
use super::{Event, World};
use crate::board::{Board, Sightings};
use crate::outcome::Counters;
use crate::random::Stream;
use crate::record::{Seen, WindowRecorder};
use crate::run::RunError;
use crate::scenario::{self, Control, Knowledge};
use headgate_qos::window::{
    BoardView, Controller, DemandMeter, LatencyMeter, LoadEvent, Pacer, Slots, Usage,
};
use headgate_qos::{AnyScheduler, Scheduler as _, SchedulerKind};
use headgate_units::Nanos;

/// The window of one host at one datastore.
pub(super) struct HostWindow {
    gate: u32,
    pub(super) host: usize,
    pub(super) datastore: usize,
    pub(super) recorder: WindowRecorder,
    /// None where it is fixed.
    control: Option<Box<Periods>>,
}

/// What happens from period to period.
struct Periods {
    controller: Controller,
    demand: DemandMeter,
    knowledge: Knowledge,
    /// Its number on the datastore's board.
    number: usize,
    sightings: Sightings,
    /// When the present period began; none before the first.
    began: Option<Nanos>,
    /// The host's disks there, and what they had done when the period began.
    disks: Vec<(u32, Counters)>,
    /// Whether load that no window controls has been noticed.
    unmanaged: bool,
}

/// What a disk did in a time of `length`.
fn usage(counters: &Counters, length: Nanos) -> Usage {
    let millionths = u128::from(counters.outstanding) * 1_000_000;
    let mean = millionths.checked_div(u128::from(length.0)).unwrap_or(0);
    Usage {
        outstanding: Slots::from_millionths(u64::try_from(mean).unwrap_or(u64::MAX)),
        ios: counters.completed,
        bytes: counters.bytes,
    }
}

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
        let place = super::Place::Host { datastore: datastore as u32 };
        let scheduler = own.scheduler.unwrap_or(store.scheduler);
        let depth = own.queue_depth.unwrap_or(store.queue_depth);
        let control = match &store.issue_window {
            Some(scenario::IssueWindow::Controlled(control)) if own.queue_depth.is_none() => Some(control),
            _ => None,
        };
        let gate = self.gates.len() as u32;
        let (window, size, periods) = match control {
            None => (Window::Fixed(depth), Slots::whole(depth), None),
            Some(control) => {
                let (controlled, periods) = self.controlled(control, host, datastore)?;
                let name = format!("window {}/{}", own.name, store.name);
                // Hosts do not know of each other when to begin.
                let phase = Nanos(Stream::new(seed, &name).below(control.config.period.0));
                self.queue.push(phase, Event::Window { window: self.windows.len() as u32 });
                let size = periods.controller.window();
                (Window::Controlled(Box::new(controlled)), size, Some(Box::new(periods)))
            }
        };
        if store.issue_window.is_some() {
            let recorder = WindowRecorder::new(size);
            self.windows.push(HostWindow { gate, host, datastore, recorder, control: periods });
        }
        self.push_gate(scheduler, store, window, place)?;
        Ok(gate)
    }

    fn controlled(
        &mut self,
        control: &Control,
        host: usize,
        datastore: usize,
    ) -> Result<(Controlled, Periods), RunError> {
        let store = &self.setup.datastores[datastore];
        let controller = Controller::new(control.config)?;
        let controlled = Controlled {
            pacer: Pacer::new(Nanos::ZERO, controller.window()),
            meter: LatencyMeter::new(store.config.cost_model, control.config.smoothing)?,
            seen: self.setup.hosts[host].latency_percent,
        };
        let periods = Periods {
            controller,
            demand: DemandMeter::new(store.config.cost_model)?,
            knowledge: control.knowledge,
            number: self.boards[datastore].join(),
            sightings: Sightings::default(),
            began: None,
            disks: Vec::new(),
            unmanaged: false,
        };
        Ok((controlled, periods))
    }

    pub(super) fn push_gate(
        &mut self,
        kind: SchedulerKind,
        store: &scenario::Datastore,
        window: Window,
        place: super::Place,
    ) -> Result<u32, RunError> {
        let scheduler = AnyScheduler::new(kind, store.config)?;
        self.gates.push(Gate::new(scheduler, window, place));
        Ok(self.gates.len() as u32 - 1)
    }

    /// A disk more behind this gate.
    pub(super) fn count_disk(&mut self, gate: u32, disk: u32) {
        let windows = self.windows.iter_mut().filter(|window| window.gate == gate);
        for periods in windows.filter_map(|window| window.control.as_mut()) {
            periods.disks.push((disk, Counters::default()));
        }
    }

    /// A fixed window changes its size, if it is one.
    pub(super) fn set_depth(&mut self, gate: u32, depth: u32) {
        if let Window::Fixed(size) = &mut self.gates[gate as usize].window {
            *size = depth;
            let recorders = self.windows.iter_mut().filter(|window| window.gate == gate);
            recorders.for_each(|window| window.recorder.set(self.now, Slots::whole(depth)));
            self.ask(gate);
        }
    }

    /// A period of a host's window ends, and the next begins.
    pub(super) fn end_period(&mut self, index: u32) {
        let now = self.now;
        let HostWindow { gate, datastore, recorder, control: Some(periods), .. } =
            &mut self.windows[index as usize]
        else {
            return;
        };
        let Window::Controlled(controlled) = &mut self.gates[*gate as usize].window else { return };
        let period = periods.controller.config().period;
        self.queue.push(now + period, Event::Window { window: index });
        let own = controlled.meter.take();
        let began = periods.began.replace(now);
        let mut usages = Vec::with_capacity(periods.disks.len());
        for (key, before) in &mut periods.disks {
            let disk = &mut self.disks[*key as usize];
            let done = disk.recorder.so_far(now);
            let usage = usage(&done.since(before), now.since(began.unwrap_or(now)));
            usages.push((self.gates[disk.gate as usize].scheduler.policy(disk.id).ok(), usage));
            *before = done;
        }
        let board = &mut self.boards[*datastore];
        let peers = periods.sightings.look(board, now, periods.number, period);
        if began.is_none() {
            return;
        }
        let latency = own.map(|own| own.latency);
        let demand = |(policy, usage): (Option<headgate_qos::Policy>, Usage)| {
            Some(periods.demand.demand(&policy?, usage, latency))
        };
        let demands: Vec<_> = usages.into_iter().filter_map(demand).collect();
        let view = match (periods.knowledge, &peers) {
            (Knowledge::Local, _) => BoardView::Alone,
            (Knowledge::Cluster, Some(peers)) => BoardView::Shared(peers),
            (Knowledge::Cluster, None) => BoardView::Unreachable,
        };
        let update = periods.controller.update(own, &demands, view);
        board.write(now, periods.number, update.report);
        match update.event {
            Some(LoadEvent::Began(_)) => periods.unmanaged = true,
            Some(LoadEvent::Ended) => periods.unmanaged = false,
            None => {}
        }
        let seen = Seen { beta: update.beta, latency: update.latency, unmanaged: periods.unmanaged };
        recorder.set(now, update.window);
        recorder.see(seen);
        let (gate, window) = (*gate, update.window);
        if let Window::Controlled(controlled) = &mut self.gates[gate as usize].window {
            controlled.pacer.set_window(now, window);
        }
        self.ask(gate);
    }
}
