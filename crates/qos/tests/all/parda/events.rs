//! Request by request: meters, controllers and pacers of several hosts on one queue.

use super::cluster::{in_ratio, near};
use crate::common::Dice;
use headgate_qos::window::{
    Admission, BoardView, Config, Controller, Demand, HostReport, LatencyMeter, Pacer, Peer, Rank,
    Slots, Smoothing, WorkWindow,
};
use headgate_qos::{Cost, CostModel};
use headgate_units::{Bytes, Nanos, Shares};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Every request costs one.
fn window(requests: Slots) -> WorkWindow {
    WorkWindow::new(requests, Cost::ONE)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Completion { issued: Nanos },
    Wake,
}

/// One first-come-first-served server with exponential times, and hosts that always have requests.
struct Array {
    mean: f64,
    free: Nanos,
    dice: Dice,
    events: BinaryHeap<Reverse<(Nanos, usize, Event)>>,
    now: Nanos,
}

impl Array {
    fn new(iops: f64, seed: u64) -> Array {
        Array {
            mean: 1e9 / iops,
            free: Nanos::ZERO,
            dice: Dice::new(seed),
            events: BinaryHeap::new(),
            now: Nanos::ZERO,
        }
    }

    /// Lets `host` send what its pacer allows.
    fn send(&mut self, host: usize, pacer: &mut Pacer) {
        loop {
            match pacer.admit(self.now) {
                Admission::None => return,
                Admission::At(at) => {
                    self.events.push(Reverse((at, host, Event::Wake)));
                    return;
                }
                Admission::Now => {
                    pacer.dispatched(self.now, Cost::ONE);
                    let uniform = (self.dice.below(1 << 40) + 1) as f64 / (1u64 << 40) as f64;
                    self.free = self.free.max(self.now) + Nanos((-uniform.ln() * self.mean) as u64);
                    self.events.push(Reverse((
                        self.free,
                        host,
                        Event::Completion { issued: self.now },
                    )));
                }
            }
        }
    }

    /// Runs until `end`; `done` is told of every completion.
    fn run(&mut self, pacers: &mut [Pacer], end: Nanos, mut done: impl FnMut(usize, Nanos)) {
        for (host, pacer) in pacers.iter_mut().enumerate() {
            self.send(host, pacer);
        }
        while let Some(Reverse((at, host, event))) = self.events.peek().copied()
            && at <= end
        {
            self.events.pop();
            self.now = at;
            if let Event::Completion { issued } = event {
                pacers[host].completed(at, Cost::ONE);
                done(host, at - issued);
            }
            self.send(host, &mut pacers[host]);
        }
        self.now = end;
    }
}

#[test]
fn windows_that_are_not_whole_divide_as_exactly_as_whole_ones() {
    let windows = [0.25, 0.5, 1.0, 1.5, 2.25, 6.5];
    for seed in 1..=3 {
        let mut array = Array::new(10_000.0, seed);
        let mut pacers: Vec<Pacer> = windows
            .iter()
            .map(|w| Pacer::new(Nanos::ZERO, window(Slots::from_millionths((w * 1e6) as u64))))
            .collect();
        let mut done = vec![0u64; windows.len()];
        let mut time = vec![0u64; windows.len()];
        let end = Nanos::from_secs(50);
        array.run(&mut pacers, end, |host, latency| {
            done[host] += 1;
            time[host] += latency.0;
        });
        // In flight on the mean is the window.
        for (time, window) in time.iter().zip(windows) {
            near(*time as f64 / end.0 as f64, window, 0.02);
        }
        // A host's own request is not in its own way: who has few waits a little less, seed {seed}.
        let rates: Vec<f64> = done.iter().map(|n| *n as f64).collect();
        in_ratio(&rates, &windows, 0.15);
    }
}

/// Figure 8 with everything in place: shares 1:1:2:2 at 25 ms, hosts that update at different
/// times.
#[test]
fn pa5_request_by_request() {
    for (seed, config) in [
        (1, super::cluster::published(25)),
        (
            2,
            Config {
                threshold: Nanos::from_millis(25),
                period: Nanos::from_secs(2),
                ..Config::default()
            },
        ),
        (
            3,
            Config {
                threshold: Nanos::from_millis(25),
                period: Nanos::from_millis(500),
                ..Config::default()
            },
        ),
    ] {
        let shares = [1u64, 1, 2, 2];
        let mut array = Array::new(3_400.0, seed);
        let mut controllers: Vec<Controller> =
            shares.iter().map(|_| Controller::new(config).unwrap()).collect();
        let mut pacers: Vec<Pacer> =
            controllers.iter().map(|c| Pacer::new(Nanos::ZERO, window(c.window()))).collect();
        let mut meters = vec![LatencyMeter::new(CostModel::Unit, Smoothing::PUBLISHED).unwrap(); 4];
        let mut board: Vec<Option<(HostReport, Nanos)>> = vec![None; 4];
        let (mut windows, mut done, mut latency, mut ios) = ([0.0; 4], [0.0; 4], 0.0, 0.0);
        let tick = Nanos(config.period.0 / 4);
        for turn in 1..=1_600u64 {
            let now = Nanos(tick.0 * turn);
            array.run(&mut pacers, now, |host, took| {
                meters[host].record(took, Bytes(16_384));
                if turn > 400 {
                    done[host] += 1.0;
                    latency += took.as_secs_f64();
                    ios += 1.0;
                }
            });
            let host = (turn % 4) as usize;
            let demand = Demand {
                shares: Shares::new(shares[host]).unwrap(),
                reservation: None,
                outstanding: Slots::whole(99),
            };
            let peers: Vec<Peer> = board
                .iter()
                .enumerate()
                .filter(|(peer, _)| *peer != host)
                .filter_map(|(_, seen)| {
                    seen.map(|(report, at)| Peer { report, age: now - at, rank: Rank::After })
                })
                .collect();
            let update =
                controllers[host].update(meters[host].take(), &[demand], BoardView::Shared(&peers));
            board[host] = Some((update.report, now));
            pacers[host].set_window(now, window(update.window));
            if turn > 400 {
                for (sum, pacer) in windows.iter_mut().zip(&controllers) {
                    *sum += pacer.window().as_f64() / 1_200.0;
                }
            }
        }
        in_ratio(&windows, &[1.0, 1.0, 2.0, 2.0], 0.1);
        in_ratio(&done, &[1.0, 1.0, 2.0, 2.0], 0.1);
        let latency = latency / ios * 1e3;
        assert!((24.0..28.0).contains(&latency), "{latency}");
        near(ios / (Nanos(tick.0 * 1_200).as_secs_f64()), 3_400.0, 0.02);
    }
}
