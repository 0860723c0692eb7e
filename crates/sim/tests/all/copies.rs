//! Disks that move by the product's own copy, under their guests' requests.

use crate::common::outcome;
use headgate_sim::Outcome;
use headgate_units::Nanos;

/// Two arrays, a disk that moves from the one to the other at 10 s, and one beside it that stays.
fn pair(pool: &str, (device, target): (&str, &str), moving: &str, beside: &str) -> String {
    format!(
        r#"
        name = "pair"
        title = "One of two disks moves"
        duration = "60s"
        windows = {{ before = "2s..10s", during = "10.5s..30s", after = "50s..60s" }}
        [pool]
        sample = "1s"
        balance = "count"
        advice = ["10s", "59s"]
        moves = "copy"
        {pool}
        [[datastore]]
        name = "from"
        device = "{device}"
        queue-depth = 32
        [[datastore]]
        name = "to"
        device = "{target}"
        queue-depth = 32
        [[vm]]
        name = "moving"
        disk = [{{ datastore = "from", size = "6G" }}]
        workload = [{{ {moving} }}]
        [[vm]]
        name = "beside"
        disk = [{{ datastore = "from", size = "6G", pinned = true, reservation = 200 }}]
        workload = [{{ {beside} }}]
        "#
    )
}

fn iops(outcome: &Outcome, name: &str, window: &str) -> f64 {
    let subject = outcome.subject(name).unwrap();
    subject.spans.iter().find(|stretch| stretch.name == window).unwrap().iops()
}

/// What the copy has copied, in MiB, and how long it took once it was advised.
fn copied(outcome: &Outcome) -> (u64, Option<Nanos>) {
    let pool = outcome.pool.as_ref().unwrap();
    let [step] = &pool.moves[..] else { panic!("one disk moves: {:?}", pool.moves) };
    assert_eq!((step.from.as_str(), step.to.as_str()), ("from", "to"));
    (pool.copied.0 >> 20, step.done.map(|done| done.since(step.advised)))
}

/// A guest that sends next to nothing.
const IDLE: &str = "kind = 'closed', outstanding = 1, think = '10s'";

const SPINDLES: (&str, &str) = ("array=6", "array=6");

/// Six spindles with two guests, as decision 89 measured the daemon: 2,015 to 2,101 and 1,016 to
/// 1,074 requests a second without a move, 1,837 to 1,999 and 954 to 1,032 with it, and 12 to 13
/// MiB/s copied.
#[test]
fn a_copy_takes_as_much_as_the_daemons_does() {
    let guests = [
        "kind = 'closed', outstanding = 8, read = '70%'",
        "kind = 'closed', outstanding = 4, read = '70%'",
    ];
    let outcome = outcome(&pair("", SPINDLES, guests[0], guests[1]), 1);
    for (name, measured) in [("moving", [2_015.0, 2_101.0]), ("beside", [1_016.0, 1_074.0])] {
        let [before, during] = ["before", "during"].map(|window| iops(&outcome, name, window));
        assert!((measured[0] * 0.93..=measured[1] * 1.07).contains(&before), "{name}: {before}");
        // The daemon's disks lost 4 to 11 % of their requests.
        assert!((0.89..=0.97).contains(&(during / before)), "{name}: {before} then {during}");
    }
    let (mib, done) = copied(&outcome);
    assert!((50 * 11..=50 * 16).contains(&mib) && done.is_none(), "{mib} MiB in 50 s: {done:?}");
}

#[test]
fn a_copy_with_many_shares_is_in_a_hurry() {
    let guests = [
        "kind = 'closed', outstanding = 8, read = '70%'",
        "kind = 'closed', outstanding = 4, read = '70%'",
    ];
    let with = |shares: u32| {
        let pool = format!("copy-shares = {shares}");
        let outcome = outcome(&pair(&pool, SPINDLES, guests[0], guests[1]), 1);
        let (mib, done) = copied(&outcome);
        // But for what guests have written in its place.
        assert!((6140..=6144).contains(&mib), "{mib}");
        (iops(&outcome, "moving", "during") / iops(&outcome, "moving", "before"), done.unwrap())
    };
    let (as_a_disk, in_a_hurry) = (with(1_000), with(10_000));
    // The shares of one of three, and much more than those of both.
    assert!(
        (0.5..0.75).contains(&as_a_disk.0) && as_a_disk.1 < Nanos::from_secs(48),
        "{as_a_disk:?}"
    );
    assert!(in_a_hurry.0 < as_a_disk.0 && in_a_hurry.1 < as_a_disk.1, "{in_a_hurry:?}");
}

#[test]
fn a_limit_of_the_copy_holds_where_nobody_else_is() {
    let with = |pool: &str| copied(&outcome(&pair(pool, SPINDLES, IDLE, IDLE), 1));
    let (mib, done) = with("copy-bandwidth = '50M'");
    assert!((50 * 47..=50 * 50 + 4).contains(&mib) && done.is_none(), "{mib} MiB in 50 s");
    let (mib, done) = with("");
    assert!(mib == 6 << 10 && done.is_some_and(|done| done < Nanos::from_secs(40)), "{done:?}");
}

/// The source takes a millisecond for a request, the target 30.
#[test]
fn a_write_behind_the_copy_waits_for_both_sides_and_a_read_for_one() {
    let devices = ("rate=50000,latency=1ms", "rate=50000,latency=30ms");
    let guest = |read: u32| format!("kind = 'open', rate = 200, read = '{read}%'");
    let latency = |read: u32| {
        let text = pair("copy-shares = 10000", devices, &guest(read), IDLE);
        let outcome = outcome(&text.replace("6G", "4G"), 1);
        let subject = outcome.subject("moving").unwrap();
        let of = |window: &str| {
            let span = subject.spans.iter().find(|span| span.name == window).unwrap();
            span.counters.mean_latency().unwrap().as_secs_f64() * 1e3
        };
        let (mib, done) = copied(&outcome);
        assert_eq!(mib, 4 << 10, "what guests write does not count");
        (["before", "during", "after"].map(of), done.unwrap().as_secs_f64())
    };
    let ([before, during, after], took) = latency(0);
    // From 0.5 to 20 s after the copy has begun it has passed so much of the disk.
    let passed = 10.25 / took;
    let expected = 1.0 + passed * 29.0;
    assert!(took > 20.0 && took < 39.0, "{took}");
    assert!((before - 1.0).abs() < 0.1 && (after - 30.0).abs() < 0.5, "{before}, {after}");
    assert!((during / expected - 1.0).abs() < 0.1, "{during} where {expected} is due");
    let ([before, during, after], _) = latency(100);
    assert!((before - 1.0).abs() < 0.1 && (after - 30.0).abs() < 0.5, "{before}, {after}");
    assert!((during - 1.0).abs() < 0.1, "reads go to the source alone: {during}");
}

#[test]
fn what_is_not_allocated_is_not_copied() {
    let text = pair("", SPINDLES, IDLE, IDLE);
    let text = text.replacen("size = \"6G\"", "size = \"6G\", used = '25%'", 1);
    let (mib, done) = copied(&outcome(&text, 1));
    assert!(mib == 1536 && done.is_some(), "{mib} MiB: {done:?}");
}

/// The source takes three seconds for each request. One of the disk is under way from 9 to 12 s,
/// and then the only step is read.
#[test]
fn what_was_under_way_before_ends_before_anything_is_copied() {
    let devices = ("rate=50000,latency=3s", "rate=50000,latency=1ms");
    let guest = "kind = 'closed', outstanding = 1, think = '6s'";
    let text = pair("copy-shares = 10000", devices, guest, &IDLE.replace("10s", "100s"));
    let text = text.replacen("size = \"6G\"", "size = \"6G\", used = '0.01%'", 1);
    let took = copied(&outcome(&text, 1)).1.unwrap().as_secs_f64();
    assert!((5.0..5.1).contains(&took), "{took} s after 10 s");
}

/// The longest that a guest's request waited for a copy, in milliseconds.
fn longest_wait(outcome: &Outcome) -> f64 {
    outcome.pool.as_ref().unwrap().longest_wait.as_secs_f64() * 1e3
}

/// Whatever a guest writes, and wherever, the copy holds it up for no longer than one write of it
/// takes at the target: 20 ms here. The source takes 40 ms for each request, and a step reads there
/// before it writes. What the guest has to wait for at the two datastores is as beside any other
/// client.
#[test]
fn a_guest_waits_for_one_write_of_the_copy_at_most() {
    let devices = ("rate=50000,latency=40ms", "rate=50000,latency=20ms");
    let mut longest: f64 = 0.0;
    for seed in 1..=12_u32 {
        let (read, kib, depth) = (seed * 31 % 70, 1 << (2 + seed % 5), 1 + seed * 7 % 24);
        let shares = [100, 1_000, 10_000][seed as usize % 3];
        let guest = format!(
            "kind = 'closed', outstanding = {depth}, read = '{read}%', size = '{kib}K', \
             random = '{}%'",
            [100, 50, 0][seed as usize / 4 % 3]
        );
        // So small that the guest meets the copy again and again.
        let text = pair(&format!("copy-shares = {shares}"), devices, &guest, IDLE);
        let text = text.replacen("size = \"6G\"", "size = \"64M\"", 1);
        let outcome = outcome(&text, u64::from(seed));
        let (waited, copied) = (longest_wait(&outcome), copied(&outcome).0);
        assert!(copied > 8, "{guest}: {copied} MiB");
        assert!(waited <= 20.01, "{guest}, {shares} shares: {waited} ms");
        longest = longest.max(waited);
    }
    assert!(longest > 5.0, "no request met a copy: {longest} ms");
}
