//! A scheduler and the window behind it.

use headgate_devices::IoKind;
use headgate_qos::window::{LatencyMeter, Pacer};
use headgate_qos::{AnyScheduler, Scheduler as _};
use headgate_units::{Bytes, Nanos};

pub(super) use headgate_qos::window::Room;

pub(super) struct Gate {
    pub(super) scheduler: AnyScheduler<u32>,
    pub(super) window: Window,
    in_flight: u32,
    /// Comparisons already counted.
    pub(super) compared: u64,
    /// When it asked to be woken; [`Nanos::MAX`] if not.
    pub(super) wake: Nanos,
    pub(super) dirty: bool,
    pub(super) place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Host { datastore: u32 },
    Node { node: u32 },
}

/// How many requests may be outstanding behind a scheduler.
pub(super) enum Window {
    /// Always so many.
    Fixed(u32),
    /// As many as the host's controller says.
    Controlled(Box<Controlled>),
}

/// What belongs to a controlled window where requests go by.
pub(super) struct Controlled {
    pub(super) pacer: Pacer,
    pub(super) meter: LatencyMeter,
    /// What the meter is told of each latency, in per cent.
    pub(super) seen: u32,
}

impl Gate {
    pub(super) fn new(scheduler: AnyScheduler<u32>, window: Window, place: Place) -> Gate {
        Gate { scheduler, window, in_flight: 0, compared: 0, wake: Nanos::MAX, dirty: false, place }
    }

    /// Whether another request may go. Where nothing waits, there is nothing to be woken for.
    #[inline]
    pub(super) fn room(&mut self, now: Nanos) -> Room {
        match &mut self.window {
            Window::Fixed(size) if self.in_flight < *size => Room::Now,
            Window::Fixed(_) => Room::None,
            Window::Controlled(controlled) => match controlled.pacer.room(now) {
                Room::At(_) if self.scheduler.queued() == 0 => Room::None,
                room => room,
            },
        }
    }

    #[inline]
    pub(super) fn dispatched(&mut self, now: Nanos) {
        self.in_flight += 1;
        if let Window::Controlled(controlled) = &mut self.window {
            controlled.pacer.dispatched(now);
        }
    }

    #[inline]
    pub(super) fn completed(&mut self, now: Nanos) {
        self.in_flight -= 1;
        if let Window::Controlled(controlled) = &mut self.window {
            controlled.pacer.completed(now);
        }
    }

    /// A request took so long from its dispatch to its completion.
    #[inline]
    pub(super) fn measure(&mut self, kind: IoKind, latency: Nanos, bytes: Bytes) {
        if let Window::Controlled(controlled) = &mut self.window
            && matches!(kind, IoKind::Read | IoKind::Write)
        {
            let seen = u128::from(latency.0) * u128::from(controlled.seen) / 100;
            controlled.meter.record(Nanos(u64::try_from(seen).unwrap_or(u64::MAX)), bytes);
        }
    }
}
