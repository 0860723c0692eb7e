//! Board and leases in a real etcd, which is killed, restarted and robbed of its memory. Hosts'
//! clocks are the tests' own, where it matters not etcd's.

mod common;
#[path = "common/etcd.rs"]
mod server;

use common::{host, report, secs};
use headgate_cluster::lease::{Duty, LeaseError, Terms};
use headgate_cluster::{
    Board, BoardError, Client, EtcdBoard, EtcdError, EtcdLeases, HostId, Servers, View,
};
use headgate_units::Nanos;
use server::{Etcd, etcd, until};
use std::time::{Duration, Instant};

fn board(etcd: &Etcd, n: u8) -> EtcdBoard {
    EtcdBoard::new(etcd.client(), "gold", host(n, n)).unwrap()
}

/// Two periods with every host; what the first sees.
fn exchange(boards: &mut [EtcdBoard], now: &mut u64) -> View {
    let mut views = Vec::new();
    for _ in 0..2 {
        *now += 4;
        // The second's clock is an hour fast.
        let at = |i: usize| secs(*now + 3_600 * i as u64);
        views = boards
            .iter_mut()
            .enumerate()
            .map(|(i, b)| b.exchange(at(i), &report(i as u64)).unwrap())
            .collect();
    }
    views.swap_remove(0)
}

#[test]
fn hosts_see_each_other_and_a_server_that_is_killed_or_forgets_is_survived() {
    let Some(mut etcd) = etcd() else { return };
    let mut boards = [board(&etcd, 1), board(&etcd, 2), board(&etcd, 3)];
    let mut now = 0;
    exchange(&mut boards, &mut now);
    let view = exchange(&mut boards, &mut now);
    let seen: Vec<_> =
        view.peers.iter().map(|peer| (peer.record.host, peer.record.report.ios)).collect();
    assert_eq!(seen, [(HostId([2; 16]), 1), (HostId([3; 16]), 2)]);
    assert!(view.settled && view.duplicate.is_none() && view.unreadable == 0);
    assert!(view.peers.iter().all(|peer| peer.age <= secs(4)), "{view:?}");

    for forgets in [false, true] {
        etcd.kill();
        for board in &mut boards {
            let error = board.exchange(secs(now), &report(1)).unwrap_err();
            assert!(matches!(error, BoardError::Etcd(EtcdError::Unreachable { .. })), "{error}");
        }
        if forgets {
            etcd.forget();
        }
        etcd.start();
        for board in &mut boards {
            // Elections take a moment; leases that were forgotten are noticed once.
            until("an exchange", || board.exchange(secs(now), &report(1)).ok());
        }
        exchange(&mut boards, &mut now);
        let view = exchange(&mut boards, &mut now);
        assert_eq!(view.peers.iter().filter(|peer| peer.age <= secs(4)).count(), 2, "{view:?}");
    }

    // One leaves, one just stops: its lease runs out.
    let [mut first, mut second, third] = boards;
    second.leave().unwrap();
    now += 4;
    let view = first.exchange(secs(now), &report(1)).unwrap();
    assert_eq!(view.peers.iter().map(|p| p.record.host).collect::<Vec<_>>(), [HostId([3; 16])]);
    drop(third);
    until("the end of a lease", || {
        first.exchange(secs(now), &report(1)).unwrap().peers.is_empty().then_some(())
    });
}

#[test]
fn clones_are_named_and_what_others_write_is_counted() {
    let Some(etcd) = etcd() else { return };
    let mut boards = [board(&etcd, 1), EtcdBoard::new(etcd.client(), "gold", host(1, 9)).unwrap()];
    let mut now = 0;
    exchange(&mut boards, &mut now);
    let view = exchange(&mut boards, &mut now);
    assert_eq!(view.duplicate.map(|record| record.instance.0[0]), Some(9));
    // Another datastore is another board.
    let mut other = EtcdBoard::new(etcd.client(), "gold2", host(2, 2)).unwrap();
    assert_eq!(other.exchange(secs(now), &report(1)).unwrap().peers, []);
    assert!(EtcdBoard::new(etcd.client(), "a/b", host(2, 2)).is_err());
}

#[test]
fn a_server_that_is_gone_is_passed_over() {
    let Some(etcd) = etcd() else { return };
    let servers = Servers::new(vec![Etcd::nowhere(), etcd.endpoint()], None, None).unwrap();
    let client = Client::new(servers, Duration::from_secs(10)).unwrap();
    let mut board = EtcdBoard::new(client, "gold", host(1, 1)).unwrap();
    board.exchange(secs(0), &report(1)).unwrap();
}

fn terms() -> Terms {
    Terms::new(secs(3), secs(1)).unwrap()
}

/// A monotonic clock.
fn clock() -> impl Fn() -> Nanos + Copy {
    let start = Instant::now();
    move || Nanos::from(start.elapsed())
}

#[test]
fn a_disk_has_one_holder_who_is_named_to_others() {
    let Some(etcd) = etcd() else { return };
    let now = clock();
    let long = Terms::new(secs(60), secs(5)).unwrap();
    let mut first = EtcdLeases::new(etcd.client(), &host(1, 1), long);
    let mut second = EtcdLeases::new(etcd.client(), &host(2, 2), long);
    assert_eq!(first.duty(now()), Duty::Stop);
    let token = first.acquire(now(), "db").unwrap();
    assert!(matches!(first.duty(now()), Duty::Serve { .. }));
    // Asked twice, it is the same lease.
    assert_eq!(first.acquire(now(), "db").unwrap(), token);
    let error = second.acquire(now(), "db").unwrap_err();
    assert!(error.to_string().contains("disk 'db' is served by host 'host1'"), "{error}");
    let LeaseError::Held { token: named, .. } = error else { panic!("{error}") };
    assert_eq!(named, token);
    second.acquire(now(), "web").unwrap();
    assert!(second.acquire(now(), "a/b").is_err());

    first.release("db").unwrap();
    let later = second.acquire(now(), "db").unwrap();
    assert!(later > token);
    // By force: the former holder is told at its next renewal, and keeps the rest.
    assert!(!first.evict("db", token).unwrap());
    assert!(first.evict("db", later).unwrap());
    let latest = first.acquire(now(), "db").unwrap();
    assert!(latest > later);
    assert_eq!(second.renew(now()).unwrap(), ["db"]);
    assert_eq!(second.disks().map(|(disk, _)| disk).collect::<Vec<_>>(), ["web"]);
    assert!(second.renew(now()).unwrap().is_empty());
    // What it gives back now is not what the other holds.
    second.release("db").unwrap();
    assert!(first.renew(now()).unwrap().is_empty());
}

#[test]
fn a_holder_that_died_is_succeeded_when_its_time_is_up() {
    let Some(etcd) = etcd() else { return };
    let now = clock();
    let mut first = EtcdLeases::new(etcd.client(), &host(1, 1), terms());
    let token = first.acquire(now(), "db").unwrap();
    let mut second = EtcdLeases::new(etcd.client(), &host(2, 2), terms());
    let later = until("the end of a lease", || {
        let serving = matches!(first.duty(now()), Duty::Serve { .. });
        let gained = second.acquire(now(), "db").ok();
        // It had stopped before.
        assert!(!(serving && gained.is_some()));
        gained
    });
    assert!(later > token);
    assert_eq!(first.duty(now()), Duty::Stop);
    assert_eq!(first.renew(now()).unwrap(), ["db"]);
}

#[test]
fn a_holder_survives_a_server_that_restarts_and_stops_when_it_stays_away() {
    let Some(mut etcd) = etcd() else { return };
    let now = clock();
    let long = Terms::new(secs(60), secs(5)).unwrap();
    let mut holder = EtcdLeases::new(etcd.client(), &host(1, 1), long);
    let token = holder.acquire(now(), "db").unwrap();
    etcd.kill();
    assert!(holder.renew(now()).is_err());
    assert!(matches!(holder.duty(now()), Duty::Serve { .. }));
    etcd.start();
    let lost = until("a renewal", || holder.renew(now()).ok());
    assert!(lost.is_empty());
    let mut other = EtcdLeases::new(etcd.client(), &host(2, 2), long);
    assert!(
        matches!(other.acquire(now(), "db"), Err(LeaseError::Held { token: t, .. }) if t == token)
    );

    etcd.kill();
    let later = now() + secs(57);
    assert!(holder.renew(later).is_err());
    assert!(matches!(holder.duty(later), Duty::Pause { .. }));
    assert_eq!(holder.duty(now() + secs(61)), Duty::Stop);
    // All is forgotten: so is the lease.
    etcd.forget();
    etcd.start();
    let lost = until("a renewal", || holder.renew(now()).ok());
    assert_eq!(lost, ["db"]);
    until("a new lease", || holder.acquire(now(), "db").ok());
}
