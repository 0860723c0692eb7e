//! A flash drive against what its chips and the equations of OPS isolation (FAST 2015) say.

use crate::common::completion_times;
use headgate_devices::{
    DeviceIo, DeviceModel, DiskPlace, FlashCounters, IoKind, ModelSpec, PlaceError, Reach,
    Readiness, Ssd,
};
use headgate_units::{Bytes, Nanos, Shares};

const MIB: u64 = 1 << 20;

fn drive(text: &str) -> Ssd {
    match text.parse().unwrap() {
        ModelSpec::Ssd(spec) => Ssd::new(&spec),
        other => panic!("{other} is no flash drive"),
    }
}

fn write(offset: u64, bytes: u64) -> DeviceIo {
    DeviceIo { kind: IoKind::Write, offset, bytes: Bytes(bytes) }
}

fn place(offset: u64, size: u64, shares: u64) -> DiskPlace {
    DiskPlace { offset, size: Bytes(size), shares: Shares::new(shares).unwrap() }
}

/// Random pages of some disks of equal size, each with so many writes outstanding.
struct Writers {
    ssd: Ssd,
    size: u64,
    now: Nanos,
    random: u64,
    completed: Vec<u64>,
}

impl Writers {
    fn new(text: &str, size: u64, shares: &[u64]) -> Writers {
        let mut ssd = drive(text);
        for (index, &shares) in shares.iter().enumerate() {
            ssd.add_disk(Nanos::ZERO, place(index as u64 * size, size, shares)).unwrap();
        }
        Writers { ssd, size, now: Nanos::ZERO, random: 7, completed: vec![0; shares.len()] }
    }

    fn submit(&mut self, disk: usize) {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let page = (self.random >> 33) % (self.size / 4_096);
        self.ssd.submit(
            self.now,
            disk as u64,
            write(disk as u64 * self.size + page * 4_096, 4_096),
        );
    }

    fn start(&mut self, outstanding: u32) {
        for _ in 0..outstanding {
            (0..self.completed.len()).for_each(|disk| self.submit(disk));
        }
    }

    fn run(&mut self, time: Nanos) -> Vec<u64> {
        let end = self.now + time;
        let before = self.completed.clone();
        while let Some(next) = self.ssd.next_event().filter(|&next| next <= end) {
            self.now = next;
            while let Some(disk) = self.ssd.poll(self.now) {
                self.completed[disk as usize] += 1;
                self.submit(disk as usize);
            }
        }
        self.now = end;
        self.completed.iter().zip(before).map(|(now, before)| now - before).collect()
    }

    fn flash(&self, disk: usize) -> FlashCounters {
        self.ssd.flash(disk as u64 * self.size).unwrap()
    }
}

fn parts(counts: &[u64]) -> Vec<f64> {
    let sum: u64 = counts.iter().sum();
    counts.iter().map(|&count| count as f64 / sum as f64).collect()
}

#[test]
fn a_page_takes_its_transfer_and_its_program() {
    let mut ssd = drive("ssd=64M");
    ssd.submit(Nanos::ZERO, 1, write(0, 4_096));
    assert_eq!(completion_times(&mut ssd, Nanos::ZERO), [(1, Nanos(302_400))]);
    let start = Nanos::from_secs(1);
    ssd.submit(start, 2, DeviceIo { kind: IoKind::Read, offset: 0, bytes: Bytes(4_096) });
    assert_eq!(completion_times(&mut ssd, start), [(2, start + Nanos(127_400))]);
    // Part of a page: the rest of it is read, which others wait for on the channel.
    let start = Nanos::from_secs(2);
    ssd.submit(start, 3, write(512, 512));
    assert!(completion_times(&mut ssd, start)[0].1 >= start + Nanos(302_400));
    let start = Nanos::from_secs(3);
    ssd.submit(start, 4, DeviceIo { kind: IoKind::Read, offset: 40 * MIB, bytes: Bytes(4_096) });
    assert_eq!(completion_times(&mut ssd, start), [(4, start + Nanos(10_000))], "never written");
}

#[test]
fn dies_and_planes_work_at_once() {
    // 64 planes behind 8 channels: eight transfers one after another on each, each followed by a
    // program.
    let mut ssd = drive("ssd=1G");
    ssd.submit(Nanos::ZERO, 1, write(0, 64 * 4_096));
    assert_eq!(completion_times(&mut ssd, Nanos::ZERO), [(1, Nanos(8 * 102_400 + 200_000))]);
}

#[test]
fn a_buffer_answers_at_once_and_a_flush_waits_for_the_chips() {
    let mut ssd = drive("ssd=64M,buffer=16K");
    (0..6).for_each(|i| ssd.submit(Nanos::ZERO, i, write(i * 4_096, 4_096)));
    ssd.submit(Nanos::ZERO, 9, DeviceIo { kind: IoKind::Flush, offset: 0, bytes: Bytes(0) });
    let times = completion_times(&mut ssd, Nanos::ZERO);
    let at = |id| times.iter().find(|&&(other, _)| other == id).unwrap().1;
    assert!((0..4).all(|id| at(id) == Nanos(10_000)), "{times:?}");
    assert!(at(4) >= Nanos(302_400) && at(9) >= at(5), "{times:?}");
    let start = Nanos::from_secs(1);
    ssd.submit(start, 10, DeviceIo { kind: IoKind::Flush, offset: 0, bytes: Bytes(0) });
    assert_eq!(
        completion_times(&mut ssd, start),
        [(10, start + Nanos(10_000))],
        "nothing to wait for"
    );
}

#[test]
fn equation_1_holds_without_reads_and_erases() {
    // OP-10: one disk, uniform random writes, one after the other.
    for text in
        ["ssd=64M,op=12.5%,aged=yes,read=0s,erase=0s", "ssd=64M,op=25%,aged=yes,read=0s,erase=0s"]
    {
        let mut writers = Writers::new(&format!("{text},dies=4,planes=2"), 64 * MIB, &[1]);
        writers.start(1);
        let done = writers.run(Nanos::from_secs(60))[0] as f64 / 60.0;
        let flash = writers.flash(0);
        let extra = flash.moved_for as f64 / flash.writes as f64;
        let u = flash.victim_valid as f64 / flash.victim_pages as f64;
        assert!(
            (extra / (u / (1.0 - u)) - 1.0).abs() < 0.03,
            "{text}: extra writes {extra}, u {u}"
        );
        let expected = 1e9 / (extra * 200_000.0 + 302_400.0);
        assert!(
            (done / expected - 1.0).abs() < 0.03,
            "{text}: {done} writes/s, equation 1 says {expected}"
        );
    }
}

#[test]
fn dynamic_isolation_divides_by_shares_and_a_shared_drive_does_not() {
    let text = "ssd=192M,op=15%,dies=8,planes=2,rated=2000,hysteresis=0.2%,aged=yes";
    let divided = |isolation: &str| {
        let mut writers =
            Writers::new(&format!("{text},isolation={isolation}"), 64 * MIB, &[1, 3, 6]);
        writers.start(1);
        writers.run(Nanos::from_secs(60));
        let done = parts(&writers.run(Nanos::from_secs(60)));
        (done, writers)
    };
    let error = |done: &[f64]| {
        done.iter()
            .zip([0.1, 0.3, 0.6])
            .map(|(part, share)| (part / share - 1.0).abs())
            .fold(0.0, f64::max)
    };
    let (dynamic, writers) = divided("dynamic");
    assert!(error(&dynamic) < 0.1, "{dynamic:?}");
    for disk in 0..3 {
        let flash = writers.flash(disk);
        assert_eq!((flash.moved_own_for, flash.victims_mixed), (flash.moved_for, 0), "disk {disk}");
    }
    let (fixed, _) = divided("static");
    let (none, writers) = divided("none");
    assert!(error(&fixed) > 2.0 * error(&dynamic), "static {fixed:?}, dynamic {dynamic:?}");
    assert!(error(&none) > error(&fixed), "shared {none:?}, static {fixed:?}");
    let flash = writers.flash(0);
    assert!(
        flash.moved_own_for * 2 < flash.moved_for && flash.victims_mixed * 10 > flash.victims * 9
    );
}

#[test]
fn nobody_waits_for_what_is_collected_behind() {
    let mut ssd = drive("ssd=64M,aged=yes,dies=2,planes=2");
    ssd.submit(Nanos::ZERO, 0, write(0, 4_096));
    completion_times(&mut ssd, Nanos::ZERO);
    // After a pause there are free blocks: a write goes straight to one.
    let start = Nanos::from_secs(10);
    ssd.submit(start, 1, write(MIB, 4_096));
    assert_eq!(completion_times(&mut ssd, start), [(1, start + Nanos(302_400))]);
    // With nobody there it ends, and nothing is planned any more.
    let mut now = start;
    for _ in 0..1_000_000 {
        assert_eq!(ssd.poll(now), None);
        match ssd.next_event() {
            Some(next) => now = next,
            None => return,
        }
    }
    panic!("background collection does not end");
}

#[test]
fn disks_come_and_go_while_there_is_room() {
    let mut ssd = drive("ssd=64M,isolation=static,dies=2,planes=2,aged=full");
    let now = Nanos::ZERO;
    ssd.add_disk(now, place(0, 32 * MIB, 1)).unwrap();
    ssd.add_disk(now, place(32 * MIB, 16 * MIB, 1)).unwrap();
    let error = ssd.add_disk(now, place(48 * MIB, 17 * MIB, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the device has 64 MiB for disks, 16 MiB of it left, and the disk is 17 MiB; give it another size, or remove others"
    );
    assert!(matches!(ssd.add_disk(now, place(0, MIB, 1)), Err(PlaceError::NoSpace { .. })));
    ssd.submit(now, 1, write(40 * MIB, 8_192));
    let after = completion_times(&mut ssd, now)[0].1;
    assert_eq!(ssd.flash(32 * MIB).unwrap().writes, 2);
    ssd.remove_disk(after, 32 * MIB);
    assert_eq!(ssd.flash(32 * MIB), None);
    for round in 0..20 {
        let now = Nanos::from_secs(round + 1);
        ssd.add_disk(now, place(32 * MIB, 32 * MIB, 5)).unwrap();
        ssd.submit(now, round, write(32 * MIB, MIB));
        let done = completion_times(&mut ssd, now);
        assert_eq!(done.len(), 1);
        assert_eq!(ssd.flash(32 * MIB).unwrap().writes, 256);
        ssd.remove_disk(done[0].1, 32 * MIB);
    }
}

#[test]
fn a_disk_that_grows_goes_where_there_is_room_and_keeps_its_pages() {
    let mut ssd = drive("ssd=64M,isolation=static,dies=2,planes=2");
    let now = Nanos::ZERO;
    ssd.add_disk(now, place(0, 16 * MIB, 1)).unwrap();
    ssd.add_disk(now, place(16 * MIB, 16 * MIB, 1)).unwrap();
    ssd.submit(now, 1, write(15 * MIB, MIB));
    let mut now = completion_times(&mut ssd, now)[0].1;
    let refused = |ssd: &mut Ssd, offset, size| {
        matches!(
            ssd.resize_disk(Nanos::ZERO, 0, place(offset, size, 1)),
            Err(PlaceError::NoSpace { .. })
        )
    };
    assert!(refused(&mut ssd, 0, 16 * MIB + 4096), "its neighbour is there");
    assert!(refused(&mut ssd, 64 * MIB, 49 * MIB), "the drive is smaller");
    assert!(refused(&mut ssd, u64::MAX - MIB, 20 * MIB), "there is no such place");
    ssd.resize_disk(now, 0, place(32 * MIB, 40 * MIB, 1)).unwrap();
    assert!(ssd.flash(0).is_none(), "nobody is where it was");
    assert_eq!(ssd.flash(32 * MIB).unwrap().writes, 256, "its past goes along");
    // Its last page that was written, and one that it did not have.
    for at in [32 + 15, 32 + 39] {
        let before = ssd.flash(32 * MIB).unwrap().writes;
        ssd.submit(now, 2, write(at * MIB, MIB));
        now = completion_times(&mut ssd, now)[0].1;
        assert_eq!(ssd.flash(32 * MIB).unwrap().writes - before, 256, "at {at} MiB");
    }
    assert_eq!(ssd.flash_drive().unwrap().writes, 3 * 256);
    // The place where it was is another disk's, and a smaller one leaves room.
    ssd.add_disk(now, place(0, 8 * MIB, 1)).unwrap();
    assert!(ssd.add_disk(now, place(8 * MIB, 8 * MIB, 1)).is_err(), "the drive is full");
    ssd.resize_disk(now, 32 * MIB, place(32 * MIB, 8 * MIB, 1)).unwrap();
    assert_eq!(ssd.flash(40 * MIB), None);
    ssd.resize_disk(now, 32 * MIB, place(32 * MIB, 40 * MIB, 1)).unwrap();
}

#[test]
fn a_disk_grows_into_pages_that_never_had_a_past() {
    let mut ssd = drive("ssd=64M,aged=yes,dies=2,planes=2,isolation=dynamic");
    let now = Nanos::ZERO;
    ssd.add_disk(now, place(0, 20 * MIB, 1)).unwrap();
    ssd.make_ready(now, 256);
    ssd.resize_disk(now, 0, place(0, 40 * MIB, 1)).unwrap();
    assert_eq!(ssd.make_ready(now, 1), Readiness::Ready);
    ssd.submit(now, 1, write(39 * MIB, 4_096));
    assert_eq!(completion_times(&mut ssd, now).len(), 1);
    assert_eq!(ssd.flash(0).unwrap().writes, 1);
}

#[test]
fn discarded_pages_are_not_moved() {
    let moved = |discards: bool| {
        let mut ssd = drive("ssd=64M,aged=yes,dies=2,planes=2,background=no");
        let mut now = Nanos::ZERO;
        if discards {
            ssd.submit(
                now,
                0,
                DeviceIo { kind: IoKind::Discard, offset: 0, bytes: Bytes(32 * MIB) },
            );
        }
        for i in 0..4_000u64 {
            ssd.submit(now, i + 1, write(32 * MIB + i * 7_919 % 8_192 * 4_096, 4_096));
            now = completion_times(&mut ssd, now).last().unwrap().1;
        }
        ssd.flash(0).unwrap().moved_for
    };
    let (kept, given_up) = (moved(false), moved(true));
    assert!(given_up * 2 < kept, "moved {given_up} after discards, {kept} without");
}

#[test]
fn the_same_seed_gives_the_same_drive() {
    let run = |seed: u64| {
        let text = format!("ssd=64M,aged=yes,dies=2,planes=2,seed={seed}");
        let mut writers = Writers::new(&text, 32 * MIB, &[1, 1]);
        writers.start(4);
        writers.run(Nanos::from_secs(2));
        (writers.completed.clone(), writers.flash(0))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_past_that_is_made_in_parts_is_the_same_past() {
    let text = "ssd=64M,aged=yes,dies=2,planes=2,isolation=static";
    let run = |most: Option<u32>| {
        let mut writers = Writers::new(text, 16 * MIB, &[1, 2, 3]);
        let mut parts = 0;
        while let Some(most) = most
            && writers.ssd.make_ready(Nanos::ZERO, most) == Readiness::Busy
        {
            parts += 1;
        }
        writers.start(2);
        writers.run(Nanos::from_secs(1));
        (writers.completed.clone(), writers.flash(1), writers.ssd.flash_drive(), parts)
    };
    let (at_once, in_parts) = (run(None), run(Some(100)));
    assert_eq!((&at_once.0, at_once.1, at_once.2), (&in_parts.0, in_parts.1, in_parts.2));
    assert!(in_parts.3 > 300, "{} parts", in_parts.3);
}

#[test]
fn a_disk_that_goes_while_it_is_given_a_past_takes_it_along() {
    for steps in [1, 30, 60, 90, 150] {
        let mut ssd = drive("ssd=64M,aged=yes,dies=2,planes=2,isolation=dynamic");
        let now = Nanos::ZERO;
        for disk in 0..3 {
            ssd.add_disk(now, place(disk * 20 * MIB, 20 * MIB, 1)).unwrap();
        }
        for _ in 0..steps {
            ssd.make_ready(now, 256);
        }
        ssd.remove_disk(now, 20 * MIB);
        ssd.add_disk(now, place(60 * MIB, 20 * MIB, 1)).unwrap();
        ssd.submit(now, 1, write(60 * MIB, 4_096));
        assert_eq!(completion_times(&mut ssd, now).len(), 1);
        assert_eq!(ssd.make_ready(now, 1), Readiness::Ready);
        assert_eq!(ssd.flash(60 * MIB).unwrap().writes, 1, "after {steps} steps");
        assert_eq!(ssd.flash_drive().unwrap().writes, 1, "after {steps} steps");
    }
}

#[test]
fn a_rate_that_is_sought_divides_by_shares_whatever_the_space() {
    for (op, shares) in [(7, [1, 3, 6]), (15, [6, 1, 3]), (28, [2, 3, 4]), (60, [1, 3, 6])] {
        let text = format!("ssd=96M,op={op}%,dies=8,planes=2,block=32,aged=yes,isolation=dynamic");
        let mut writers = Writers::new(&text, 32 * MIB, &shares);
        writers.start(1);
        writers.run(Nanos::from_secs(60));
        let done = parts(&writers.run(Nanos::from_secs(60)));
        let all: u64 = shares.iter().sum();
        let drive = writers.ssd.flash_drive().unwrap();
        assert!(drive.unassigned <= drive.spare / 16 + 1, "{drive:?}");
        let mut below = 0.0;
        for (disk, share) in (0..3).zip(shares) {
            let standing = writers.ssd.flash_standing(disk as u64 * 32 * MIB).unwrap();
            let error = done[disk] / share as f64 * all as f64 - 1.0;
            println!("op {op} %, {share} of {all}: {error:+.3}, {standing:?}");
            if standing.reach == Reach::AtLeast {
                // What it has too much is not the others'.
                below = 0.05;
                assert!(
                    error > 0.1,
                    "{text}: {error} is no reason to say that the target is out of reach"
                );
                continue;
            }
            assert!(error.abs() < 0.1 + below, "{text}: {share} of {all} is off by {error}");
        }
    }
}
