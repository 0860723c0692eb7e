//! What is counted of a run.

use headgate_qos::Cost;
use headgate_stats::{HistogramSnapshot, LatencyHistogram};
use headgate_units::{Iops, Nanos};

/// What a disk received in a run. Where it was not simulated in full, times and sums are those of
/// what was simulated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simulated {
    /// How long.
    pub length: Nanos,
    /// Requests that completed.
    pub requests: u64,
    /// What was dispatched, in millionths of a normalised IO.
    pub received: u64,
    /// From arrival to completion.
    pub latency: HistogramSnapshot,
    /// Sum of the times at the device, in nanoseconds.
    pub device_time: u128,
    /// Seconds in which the reservation was demanded: requests were queued at both ends.
    pub demanded: u64,
    /// Of these, seconds in which less than 97 % of it was received.
    pub short: u64,
    /// What was missing in those, in millionths of a normalised IO.
    pub missing: u64,
}

impl Simulated {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.length.as_secs_f64().max(1e-9)
    }

    /// Normalised IOs per second.
    pub fn received_rate(&self) -> f64 {
        self.received as f64 / 1e6 / self.length.as_secs_f64().max(1e-9)
    }

    /// Mean number of its requests at the device.
    pub fn in_flight(&self) -> f64 {
        self.device_time as f64 / self.length.0.max(1) as f64
    }

    /// Mean time at the device, in nanoseconds; `None` where nothing completed.
    pub(super) fn mean_device_time(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.device_time as f64 / self.requests as f64)
    }
}

/// Counts what a disk receives.
pub(super) struct Tally {
    requests: u64,
    received: u64,
    latency: LatencyHistogram,
    device_time: u128,
    reservation: Option<Iops>,
    /// When the second began, how much was received by then, and whether requests were queued.
    second: (Nanos, u64, bool),
    demanded: u64,
    short: u64,
    missing: u64,
}

/// A reservation counts as kept in a second from this part of it on, in per cent: as history has
/// it.
const KEPT_PERCENT: u64 = 97;

impl Tally {
    pub(super) fn new(reservation: Option<Iops>, now: Nanos) -> Tally {
        Tally {
            requests: 0,
            received: 0,
            latency: LatencyHistogram::new(),
            device_time: 0,
            reservation,
            second: (now, 0, false),
            demanded: 0,
            short: 0,
            missing: 0,
        }
    }

    pub(super) fn has_reservation(&self) -> bool {
        self.reservation.is_some()
    }

    #[inline]
    pub(super) fn on_dispatch(&mut self, cost: Cost) {
        self.received = self.received.saturating_add(cost.as_millionths());
    }

    #[inline]
    pub(super) fn on_complete(&mut self, total: Nanos, device: Nanos) {
        self.requests += 1;
        self.latency.record(total);
        self.device_time += u128::from(device.0);
    }

    /// A second ends.
    pub(super) fn on_second(&mut self, now: Nanos, is_queued: bool) {
        let (began, before, was_queued) = self.second;
        self.second = (now, self.received, is_queued);
        let Some(reservation) = self.reservation.filter(|_| was_queued && is_queued) else {
            return;
        };
        let length = u128::from(now.since(began).0);
        let due = u64::try_from(u128::from(reservation.get()) * length / 1_000).unwrap_or(u64::MAX);
        let got = self.received - before;
        self.demanded += 1;
        if u128::from(got) * 100 < u128::from(due) * u128::from(KEPT_PERCENT) {
            self.short += 1;
            self.missing = self.missing.saturating_add(due.saturating_sub(got));
        }
    }

    pub(super) fn finish(self, length: Nanos) -> Simulated {
        Simulated {
            length,
            requests: self.requests,
            received: self.received,
            latency: self.latency.snapshot(),
            device_time: self.device_time,
            demanded: self.demanded,
            short: self.short,
            missing: self.missing,
        }
    }
}
