use super::Plan;
use crate::outcome::{HostWindow, WindowCounters, WindowStretch};
use headgate_qos::window::Slots;
use headgate_units::Nanos;

/// Records one host's window at one datastore.
pub(crate) struct WindowRecorder {
    since: Nanos,
    size: Slots,
    seen: Seen,
    counters: WindowCounters,
    at_tick: WindowCounters,
    series: Vec<WindowCounters>,
    marks: Vec<WindowCounters>,
}

/// The inputs that a controller followed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) beta: Slots,
    pub(crate) latency: Option<Nanos>,
    pub(crate) threshold: Nanos,
    pub(crate) unmanaged: bool,
}

impl WindowRecorder {
    pub(crate) fn new(size: Slots) -> WindowRecorder {
        WindowRecorder {
            since: Nanos::ZERO,
            size,
            seen: Seen::default(),
            counters: WindowCounters::default(),
            at_tick: WindowCounters::default(),
            series: Vec::new(),
            marks: Vec::new(),
        }
    }

    fn integrate(&mut self, now: Nanos) {
        let passed = now.since(self.since).0;
        self.since = now;
        let over = |amount: u64, unit: u64| {
            u64::try_from(u128::from(amount) * u128::from(passed) / u128::from(unit))
                .unwrap_or(u64::MAX)
        };
        let counters = &mut self.counters;
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut counters.window, over(self.size.as_millionths(), 1_000_000));
        add(&mut counters.beta, over(self.seen.beta.as_millionths(), 1_000_000));
        if let Some(latency) = self.seen.latency {
            add(&mut counters.known, passed);
            add(&mut counters.latency, over(latency.0, 1_000));
            add(&mut counters.threshold, over(self.seen.threshold.0, 1_000));
        }
        if self.seen.unmanaged {
            add(&mut counters.unmanaged, passed);
        }
    }

    /// The window is another from now on.
    pub(crate) fn set(&mut self, now: Nanos, size: Slots) {
        self.integrate(now);
        self.size = size;
    }

    /// The controller follows other inputs from now on.
    pub(crate) fn see(&mut self, seen: Seen) {
        self.seen = seen;
    }

    pub(crate) fn tick(&mut self, now: Nanos) {
        self.integrate(now);
        self.series.push(self.counters.since(&self.at_tick));
        self.at_tick = self.counters;
    }

    pub(crate) fn mark(&mut self, now: Nanos) {
        self.integrate(now);
        self.marks.push(self.counters);
    }

    pub(crate) fn finish(mut self, name: String, plan: &Plan) -> HostWindow {
        self.mark(plan.duration);
        let nothing = WindowCounters::default();
        let whole = stretch("", Nanos::ZERO, plan.duration, &nothing, self.marks.last());
        let spans = plan.stretches(&self.marks, stretch);
        HostWindow { name, series: self.series, whole, spans }
    }
}

fn stretch(
    name: &str,
    from: Nanos,
    to: Nanos,
    before: &WindowCounters,
    after: Option<&WindowCounters>,
) -> WindowStretch {
    WindowStretch {
        name: name.to_owned(),
        from,
        to,
        counters: after.unwrap_or(before).since(before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_time() {
        let mut recorder = WindowRecorder::new(Slots::whole(10));
        let s = Nanos::from_secs;
        recorder.set(s(1), Slots::whole(20));
        recorder.see(Seen {
            beta: Slots::ONE,
            latency: Some(Nanos::from_millis(30)),
            threshold: Nanos::from_millis(25),
            unmanaged: true,
        });
        recorder.tick(s(2));
        recorder.set(s(4), Slots::whole(30));
        recorder.see(Seen {
            beta: Slots::whole(2),
            latency: Some(Nanos::from_millis(20)),
            threshold: Nanos::from_millis(21),
            unmanaged: false,
        });
        let plan = Plan::new(s(5), &[]);
        recorder.tick(s(5));
        let recorded = recorder.finish("h".into(), &plan);
        let all = recorded.whole.counters;
        assert_eq!(all.mean_window(s(5)), (10.0 + 3.0 * 20.0 + 30.0) / 5.0);
        assert_eq!(all.mean_beta(s(5)), (0.0 + 3.0 + 2.0) / 5.0);
        assert_eq!(
            all.mean_latency(),
            Some(Nanos(27_500_000)),
            "of the time in which it was known"
        );
        assert_eq!(all.unmanaged_part(s(5)), 0.6);
        assert_eq!(recorded.series.len(), 2);
        assert_eq!(recorded.series[0].mean_window(s(2)), 15.0);
    }
}
