//! Boards and windows together: hosts that divide a modelled array by what real boards tell them,
//! while the boards are spoilt.

mod common;
#[path = "common/etcd.rs"]
mod server;

use common::{host, secs};
use headgate_cluster::{Board, EtcdBoard, FileBoard};
use headgate_qos::window::{
    BoardView, Config, Controller, Demand, Held, Observation, Slots, Update,
};
use headgate_units::{Nanos, Shares};
use server::{etcd, until};
use std::fs::{self, OpenOptions};

const SHARES: [u64; 4] = [1_000, 1_000, 2_000, 2_000];
const IOPS: f64 = 3_400.0;

struct Host {
    board: Box<dyn Board>,
    controller: Controller,
    shares: u64,
    /// By how many seconds its clock differs.
    clock: u64,
    last: Option<Update>,
    alive: bool,
}

/// Four hosts at 25 ms on an array of 3,400 IOPS, in periods of 4 s.
struct Hosts {
    hosts: Vec<Host>,
    now: u64,
    latency: f64,
}

impl Hosts {
    fn new(board: impl Fn(u8) -> Box<dyn Board>) -> Hosts {
        let host = |(i, shares): (usize, &u64)| Host {
            board: board(i as u8 + 1),
            controller: controller(),
            shares: *shares,
            // The second's is an hour fast.
            clock: if i == 1 { 3_600 } else { 0 },
            last: None,
            alive: true,
        };
        Hosts { hosts: SHARES.iter().enumerate().map(host).collect(), now: 0, latency: 0.0 }
    }

    fn period(&mut self) {
        self.now += 4;
        let living = || self.hosts.iter().filter(|h| h.alive);
        let in_flight: f64 = living().map(|h| h.controller.window().as_f64()).sum();
        self.latency = in_flight / IOPS;
        for host in self.hosts.iter_mut().filter(|h| h.alive) {
            let ios = (host.controller.window().as_f64() / self.latency * 4.0) as u64;
            let latency = Nanos((self.latency * 1e9) as u64);
            let own = Observation { latency, ios, work: ios * 1_000_000 };
            let shares = Shares::new(host.shares).unwrap();
            let demand = Demand { shares, reservation: None, outstanding: Slots::whole(99) };
            // As the last exchange left it, or as if there had been none.
            let now = secs(self.now + host.clock);
            let report = host.last.map(|last| last.report);
            let view = report.map(|report| host.board.exchange(now, &report));
            let peers = view.and_then(Result::ok).and_then(|view| view.peers());
            let view = peers.as_deref().map_or(BoardView::Unreachable, BoardView::Shared);
            host.last = Some(host.controller.update(Some(own), &[demand], view));
        }
    }

    fn periods(&mut self, n: usize) {
        (0..n).for_each(|_| self.period());
    }

    fn windows(&self) -> Vec<f64> {
        self.hosts.iter().filter(|h| h.alive).map(|h| h.controller.window().as_f64()).collect()
    }

    fn held(&self) -> usize {
        let held = |h: &&Host| h.last.is_some_and(|last| last.held == Some(Held::BoardUnreachable));
        self.hosts.iter().filter(|h| h.alive).filter(held).count()
    }

    /// Windows as shares are within 10 %, latency within 10 % of the threshold, nobody holds still.
    #[track_caller]
    fn assert_divided(&self, when: &str) {
        let windows = self.windows();
        let shares: Vec<f64> =
            self.hosts.iter().filter(|h| h.alive).map(|h| h.shares as f64).collect();
        let unit = windows.iter().sum::<f64>() / shares.iter().sum::<f64>();
        for (window, shares) in windows.iter().zip(shares) {
            assert!((window / shares / unit - 1.0).abs() <= 0.1, "{when}: {windows:?}");
        }
        assert!((self.latency / 0.025 - 1.0).abs() <= 0.1, "{when}: {} s", self.latency);
        assert_eq!(self.held(), 0, "{when}");
    }
}

fn controller() -> Controller {
    Controller::new(Config { threshold: Nanos::from_millis(25), ..Config::default() }).unwrap()
}

#[test]
fn a_file_that_is_spoilt_moves_no_window_for_longer_than_three_periods() {
    let dir = tempfile::tempdir().unwrap();
    let (datastore, away) = (dir.path().join("datastore"), dir.path().join("away"));
    fs::create_dir(&datastore).unwrap();
    let board = |n| -> Box<dyn Board> { Box::new(FileBoard::new(&datastore, host(n, n))) };
    let mut hosts = Hosts::new(board);
    hosts.periods(40);
    hosts.assert_divided("at first");
    let path = datastore.join(headgate_cluster::BOARD_FILE);
    let open = || OpenOptions::new().write(true).open(&path).unwrap();
    let spoil: [(&str, &dyn Fn()); 4] = [
        ("deleted", &|| fs::remove_file(&path).unwrap()),
        ("truncated", &|| open().set_len(0).unwrap()),
        ("cut", &|| open().set_len(5_000).unwrap()),
        ("corrupted", &|| fs::write(&path, vec![0xa5; 100_000]).unwrap()),
    ];
    for (what, spoil) in spoil {
        spoil();
        hosts.periods(3);
        hosts.assert_divided(what);
    }

    // The datastore is gone for a while: nothing moves. Then all is as before.
    let before = hosts.windows();
    fs::rename(&datastore, &away).unwrap();
    hosts.periods(20);
    assert_eq!((hosts.windows(), hosts.held()), (before, 4));
    fs::rename(&away, &datastore).unwrap();
    hosts.periods(3);
    hosts.assert_divided("back");

    // A host dies: its slots go to the others, and back when it has come back.
    hosts.hosts[3].alive = false;
    hosts.periods(10);
    hosts.assert_divided("three");
    assert!(hosts.windows()[2] > 35.0, "{:?}", hosts.windows());
    hosts.hosts[3] = Host {
        board: Box::new(FileBoard::new(&datastore, host(4, 44))),
        controller: controller(),
        shares: 2_000,
        clock: 7_200,
        last: None,
        alive: true,
    };
    hosts.periods(40);
    hosts.assert_divided("four again");
}

#[test]
fn an_etcd_that_is_killed_moves_no_window() {
    let Some(mut etcd) = etcd() else { return };
    let board = |n| -> Box<dyn Board> {
        Box::new(EtcdBoard::new(etcd.client(), "gold", host(n, n)).unwrap())
    };
    let mut hosts = Hosts::new(board);
    hosts.periods(40);
    hosts.assert_divided("at first");
    for forgets in [false, true] {
        let before = hosts.windows();
        etcd.kill();
        hosts.periods(5);
        assert_eq!((hosts.windows(), hosts.held()), (before, 4));
        if forgets {
            etcd.forget();
        }
        etcd.start();
        until("the end of an election", || {
            let mut probe = EtcdBoard::new(etcd.client(), "other", host(9, 9)).unwrap();
            probe.exchange(secs(0), &common::report(1)).ok()
        });
        hosts.periods(4);
        hosts.assert_divided(if forgets { "forgot" } else { "restarted" });
    }
}
