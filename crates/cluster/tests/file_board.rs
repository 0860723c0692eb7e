//! The board on a real file: what happens to it, and what hosts make of that. Time is the tests'
//! own.

mod common;

use common::{host, report, secs};
use headgate_cluster::{
    BOARD_FILE, Board, BoardError, FileBoard, HostId, Identity, InstanceId, Record, RecordKey, View,
};
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: u64 = 4096;

struct Hosts {
    boards: Vec<FileBoard>,
    views: Vec<View>,
    now: u64,
}

impl Hosts {
    fn on(dir: &Path, identities: &[Identity]) -> Hosts {
        let boards =
            identities.iter().map(|identity| FileBoard::new(dir, identity.clone())).collect();
        Hosts { boards, views: Vec::new(), now: 1_000 }
    }

    /// All hosts exchange, one after the other, within a period of 4 s.
    fn period(&mut self) {
        self.now += 4;
        let now = self.now;
        let exchange = |board: &mut FileBoard| board.exchange(secs(now), &report(100)).unwrap();
        self.views = self.boards.iter_mut().map(exchange).collect();
    }

    fn periods(&mut self, n: usize) {
        (0..n).for_each(|_| self.period());
    }

    /// Every host sees every other live, none older than two periods.
    fn all_see_all(&self) -> bool {
        let fresh = |view: &View| view.peers.iter().filter(|peer| peer.age <= secs(8)).count();
        self.views.iter().all(|view| fresh(view) == self.boards.len() - 1)
    }
}

fn hosts(n: u8) -> Vec<Identity> {
    (1..=n).map(|i| host(i, i)).collect()
}

#[test]
fn hosts_see_each_other_after_two_periods_and_each_has_a_block() {
    let dir = tempfile::tempdir().unwrap();
    for n in [1, 2, 5, 40] {
        let _ = fs::remove_file(dir.path().join(BOARD_FILE));
        let mut hosts = Hosts::on(dir.path(), &hosts(n));
        hosts.period();
        assert!(hosts.views.iter().all(|view| view.peers().is_none() && view.peers.is_empty()));
        // Some of them may first have to move, for they all started at once.
        hosts.periods(6);
        assert!(hosts.all_see_all(), "{n} hosts");
        let blocks: HashSet<_> = hosts.boards.iter().map(|board| board.block().unwrap()).collect();
        assert_eq!(blocks.len(), usize::from(n));
        assert!(
            hosts
                .views
                .iter()
                .all(|view| view.settled && view.unreadable == 0 && view.duplicate.is_none())
        );
        let peer = hosts.views[0].peers.first();
        assert!(peer.is_none_or(|peer| peer.record.report == report(100)), "{peer:?}");
    }
}

/// Two hosts that claim one block at the same moment: both read that it is free before either
/// writes.
#[test]
fn who_finds_another_in_its_block_moves() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = FileBoard::new(dir.path(), host(1, 1));
    first.exchange(secs(0), &report(1)).unwrap();
    let block = first.block().unwrap();
    // The second's claim arrives a moment later, over the first's.
    let Identity { host: id, instance, epoch, name } = host(2, 2);
    let claim = Record { host: id, instance, epoch, sequence: 1, name, report: report(2) };
    let file = OpenOptions::new().write(true).open(first.path()).unwrap();
    file.write_all_at(&claim.encode(RecordKey::Block(block as u32)), block as u64 * BLOCK).unwrap();

    let mut second = FileBoard::new(dir.path(), host(2, 2));
    for now in [4, 8, 12] {
        first.exchange(secs(now), &report(1)).unwrap();
        second.exchange(secs(now), &report(2)).unwrap();
    }
    assert_ne!(first.block(), Some(block));
    assert_eq!(second.block(), Some(block));
    let view = first.exchange(secs(16), &report(1)).unwrap();
    assert_eq!((view.peers.len(), view.duplicate), (1, None));
}

/// The file deleted, truncated to nothing, to half a block, filled with noise, replaced by an older
/// copy, by a file of another kind of contents: two periods later all is as before.
#[test]
fn whatever_happens_to_the_file_all_hosts_are_back_within_two_periods() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(BOARD_FILE);
    let mut hosts = Hosts::on(dir.path(), &hosts(5));
    hosts.periods(6);
    let old = fs::read(&path).unwrap();
    hosts.periods(3);
    let noise: Vec<u8> = (0..old.len() as u32 + 1_000)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let open = || OpenOptions::new().write(true).open(&path).unwrap();
    let shifted: Vec<u8> = [vec![0; 4096], old.clone()].concat();
    let spoil: [(&str, &dyn Fn()); 8] = [
        ("deleted", &|| fs::remove_file(&path).unwrap()),
        ("emptied", &|| open().set_len(0).unwrap()),
        ("cut", &|| open().set_len(old.len() as u64 / 2 + 100).unwrap()),
        ("noise", &|| fs::write(&path, &noise).unwrap()),
        ("restored", &|| fs::write(&path, &old).unwrap()),
        ("shifted", &|| fs::write(&path, &shifted).unwrap()),
        ("text", &|| fs::write(&path, "nothing to see here\n").unwrap()),
        ("huge", &|| open().set_len(1 << 40).unwrap()),
    ];
    for (what, spoil) in spoil {
        spoil();
        hosts.periods(2);
        assert!(hosts.all_see_all(), "{what}: {:?}", hosts.views);
        hosts.periods(2);
        assert!(hosts.views.iter().all(|view| view.duplicate.is_none()), "{what}");
    }
}

/// Every prefix of a block's write, as it would be left by a device that tears it.
#[test]
fn a_half_written_block_counts_as_its_former_self() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(BOARD_FILE);
    let mut hosts = Hosts::on(dir.path(), &hosts(2));
    hosts.periods(3);
    let block = hosts.boards[1].block().unwrap() as u64;
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut whole = vec![0; BLOCK as usize];
    file.read_exact_at(&mut whole, block * BLOCK).unwrap();
    for cut in [1, 60, 100, 511] {
        file.write_all_at(&vec![0x5a; cut], block * BLOCK).unwrap();
        hosts.now += 1;
        let view = hosts.boards[0].exchange(secs(hosts.now), &report(100)).unwrap();
        assert_eq!(view.unreadable, 1, "{cut} bytes");
        file.write_all_at(&whole, block * BLOCK).unwrap();
        hosts.periods(2);
        assert!(hosts.all_see_all(), "{cut} bytes");
    }
}

#[test]
fn a_host_that_dies_grows_old_and_one_that_leaves_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut hosts = Hosts::on(dir.path(), &hosts(3));
    hosts.periods(4);
    hosts.boards.pop();
    hosts.periods(4);
    let ages: Vec<_> = hosts.views[0].peers.iter().map(|peer| peer.age).collect();
    assert!(ages.iter().any(|age| *age > secs(12)) && ages.len() == 2, "{ages:?}");
    hosts.boards.pop().unwrap().leave().unwrap();
    hosts.period();
    let left: Vec<_> = hosts.views[0].peers.iter().map(|peer| peer.record.host).collect();
    assert_eq!(left, [HostId([3; 16])]);
}

#[test]
fn a_host_that_restarts_uses_its_block_again_and_its_former_life_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut hosts = Hosts::on(dir.path(), &hosts(3));
    hosts.periods(4);
    let block = hosts.boards[1].block();
    hosts.boards[1] = FileBoard::new(dir.path(), host(2, 77));
    hosts.periods(2);
    assert_eq!(hosts.boards[1].block(), block);
    assert!(hosts.all_see_all());
    assert!(hosts.views.iter().all(|view| view.duplicate.is_none()));
}

/// The readers' clocks show anything: one an hour more than the other, and it is set back while it
/// runs.
#[test]
fn nobodys_clock_matters_but_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut right = FileBoard::new(dir.path(), host(1, 1));
    let mut wrong = FileBoard::new(dir.path(), host(2, 2));
    let mut views = (View::default(), View::default());
    for now in 0..6 {
        let back = if now < 3 { 7_200 } else { 3_600 };
        views.0 = right.exchange(secs(4 * now), &report(1)).unwrap();
        views.1 = wrong.exchange(secs(4 * now + back), &report(2)).unwrap();
    }
    for view in [views.0, views.1] {
        assert!(view.peers[0].age <= secs(4), "{view:?}");
    }
}

/// A virtual machine that was cloned whole: the same identity, two instances.
#[test]
fn a_cloned_host_is_named_by_both_and_both_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut hosts = Hosts::on(dir.path(), &hosts(2));
    hosts.periods(4);
    hosts.boards.push(FileBoard::new(dir.path(), host(2, 99)));
    hosts.periods(4);
    assert!(hosts.all_see_all(), "{:?}", hosts.views);
    assert_eq!(hosts.views[0].duplicate, None);
    let named = |view: &View| view.duplicate.as_ref().map(|record| record.instance);
    assert_eq!(named(&hosts.views[1]), Some(InstanceId([99; 16])));
    assert_eq!(named(&hosts.views[2]), Some(InstanceId([2; 16])));
}

#[test]
fn a_board_that_cannot_be_used_says_why_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let datastore = dir.path().join("ds");
    let mut board = FileBoard::new(&datastore, host(1, 1));
    let error = board.exchange(secs(0), &report(1)).unwrap_err();
    assert!(matches!(error, BoardError::Io { doing: "open", .. }), "{error}");
    fs::create_dir(&datastore).unwrap();
    board.exchange(secs(4), &report(1)).unwrap();

    for make in ["directory", "link", "fifo"] {
        fs::remove_file(board.path()).unwrap();
        match make {
            "directory" => fs::create_dir(board.path()).unwrap(),
            "link" => std::os::unix::fs::symlink("/etc/hostname", board.path()).unwrap(),
            _ => assert!(
                std::process::Command::new("mkfifo").arg(board.path()).status().unwrap().success()
            ),
        }
        let error = board.exchange(secs(8), &report(1)).unwrap_err();
        assert!(matches!(error, BoardError::NoFile { .. }), "{make}: {error}");
        if make == "directory" {
            fs::remove_dir(board.path()).unwrap();
            fs::write(board.path(), "").unwrap();
        }
    }
    fs::remove_file(board.path()).unwrap();
    board.exchange(secs(12), &report(1)).unwrap();
}

/// Processes of their own, threads here, without any order between them.
#[test]
fn without_any_order_between_them_hosts_settle() {
    let dir = tempfile::tempdir().unwrap();
    let identities = hosts(16);
    let boards: Vec<(FileBoard, View)> = std::thread::scope(|scope| {
        let run = |identity: &Identity| {
            let mut board = FileBoard::new(dir.path(), identity.clone());
            scope.spawn(move || {
                let mut view = View::default();
                for now in 0..60 {
                    view = board.exchange(secs(now * 4), &report(now)).unwrap();
                }
                (board, view)
            })
        };
        let threads: Vec<_> = identities.iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut boards: Vec<FileBoard> = boards.into_iter().map(|(board, _)| board).collect();
    for now in 60..66 {
        for board in &mut boards {
            board.exchange(secs(now * 4), &report(now)).unwrap();
        }
    }
    let blocks: HashSet<_> = boards.iter().map(|board| board.block().unwrap()).collect();
    assert_eq!(blocks.len(), 16);
    let view = boards[0].exchange(secs(300), &report(1)).unwrap();
    assert_eq!(view.peers.len(), 15);
}
