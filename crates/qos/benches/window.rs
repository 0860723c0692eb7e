//! What a window costs per request and per period: `cargo bench -p headgate-qos --bench window`.
//!
//! Times are this thread's CPU time, the median of several runs and their range.

use headgate_qos::window::{
    Admission, BoardView, Config, Controller, Demand, LatencyMeter, Observation, Pacer, Peer, Rank,
    Slots, Smoothing, WorkWindow,
};
use headgate_qos::{Cost, CostModel};
use headgate_units::{Bytes, Nanos, Shares};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn report(what: &str, steps: u64, mut step: impl FnMut(u64)) {
    let mut runs: Vec<f64> = (0..9)
        .map(|_| {
            let start = cpu_time();
            (0..steps).for_each(&mut step);
            (cpu_time() - start) as f64 / steps as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{what:<50} {:9.1} ns ({:.1} to {:.1})", runs[4], runs[0], runs[8]);
}

fn main() {
    for (name, smoothing) in [("per period", Smoothing::PUBLISHED), ("per IO", Smoothing::PER_IO)] {
        let mut meter =
            LatencyMeter::new(CostModel::default(), smoothing).expect("the default is valid");
        report(&format!("a latency, smoothed {name}"), 1_000_000, |i| {
            meter.record(Nanos(black_box(100_000 + i)), Bytes(4096 << (i % 5)));
        });
        black_box(meter.take());
    }
    for (name, window) in [("32", 32_000_000), ("31.5", 31_500_000)] {
        let window = WorkWindow::new(Slots::from_millionths(window), Cost::ONE);
        let mut pacer = Pacer::new(Nanos::ZERO, window);
        report(&format!("a request through a window of {name}"), 1_000_000, |i| {
            let now = Nanos(black_box(i * 1_000));
            while pacer.admit(now) == Admission::Now {
                pacer.dispatched(now, Cost::ONE);
            }
            pacer.completed(now, Cost::ONE);
        });
    }
    for (vms, hosts) in [(10, 4), (1_000, 64)] {
        let mut controller = Controller::new(Config::default()).expect("the default is valid");
        let demand =
            Demand { shares: Shares::default(), reservation: None, outstanding: Slots::ONE };
        let demands = vec![demand; vms];
        let own =
            Some(Observation { latency: Nanos::from_millis(31), ios: 1_000, work: 1_000_000_000 });
        let report_of = controller.update(own, &demands, BoardView::Alone).report;
        let peers =
            vec![Peer { report: report_of, age: Nanos::from_secs(1), rank: Rank::After }; hosts];
        report(&format!("a period of {vms} VMs and {hosts} other hosts"), 1_000, |_| {
            black_box(controller.update(black_box(own), &demands, BoardView::Shared(&peers)));
        });
    }
}
