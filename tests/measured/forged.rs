//! A gateway lies about what its disk receives elsewhere: it says nothing, everything, or another
//! thing with each request. It gets less by that or the same, and others lose nothing.
//!
//! A neighbour with a reservation judges each tale, and a disk without one that has little beside
//! the shares of the liar's: it gets what it gets beside a client that says nothing. So does the
//! disk of a gateway that tells the truth.

use crate::neighbour::{DEPTH, LIMIT, RATE, RESERVATION};
use anyhow::ensure;
use headgate_lab::counted::{BLOCK, Counted, REAL_TIME, Reach, Says, connect, request, told};
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::Headgate;
use headgate_lab::ledger::splitmix;
use headgate_lab::nbd::CMD_READ;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::process::Process;
use headgate_lab::sample::Interval;
use headgate_lab::{Lab, Server};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const SETTLE: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(4);
const MINUTE: Duration = Duration::from_secs(60);
/// Requests that are refused, and connections that report once and leave, beside a tale.
const MANY: u32 = 3_000;
/// Between two of them.
const PAUSE: Duration = Duration::from_micros(500);
/// The hostile disk's reservation where it has one, and its shares then.
const OWN_RESERVATION: u32 = 200;

/// What a request says, by its number.
type Tale = fn(u64) -> Says;

/// What is done beside the client that tells a tale.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Requests behind the disk's end, which say something else each.
    Refused,
    /// Connections that say something once. Half of them do not wait for the answer.
    Connections,
}

/// A client that lies, in words.
#[derive(Clone, Copy)]
struct Liar(&'static str, Tale, Beside);

const HONEST: Liar = Liar("says nothing", nothing, Beside::Nothing);
const EVERYTHING: Liar = Liar("everything elsewhere", everything, Beside::Nothing);
const RESERVED: Liar = Liar("everything elsewhere, by reservation", reserved, Beside::Nothing);
const BYTES: Liar = Liar("no IO elsewhere, and all bytes", bytes, Beside::Nothing);
const FALLING: Liar = Liar("less with each request", falling, Beside::Nothing);
const LEAPING: Liar = Liar("anything with each request", leaping, Beside::Nothing);
const WAVES: Liar = Liar("nothing, and everything now and then", waves, Beside::Nothing);
const URGENT: Liar = Liar("real-time class", urgent, Beside::Nothing);
const REFUSED: Liar = Liar("beside refused requests", nothing, Beside::Refused);
const CONNECTIONS: Liar = Liar("beside connections", nothing, Beside::Connections);

fn nothing(_: u64) -> Says {
    Says::default()
}

fn everything(_: u64) -> Says {
    Says { delta: u64::MAX, ..Says::default() }
}

fn reserved(_: u64) -> Says {
    Says { delta: u64::MAX, rho: u64::MAX, ..Says::default() }
}

fn bytes(_: u64) -> Says {
    Says { bytes: u64::MAX, ..Says::default() }
}

/// From everything to nothing in 65 steps, and again.
fn falling(n: u64) -> Says {
    let delta = u64::MAX.checked_shr((n % 65) as u32).unwrap_or(0);
    Says { delta, rho: delta / 2, bytes: delta, ioprio: 0 }
}

fn leaping(n: u64) -> Says {
    let dice = |of: u64| splitmix(n << 3 | of);
    // All magnitudes are as likely.
    let delta = dice(0) >> (dice(1) % 64);
    let rho = if delta == u64::MAX { dice(2) } else { dice(2) % (delta + 1) };
    Says { delta, rho, bytes: dice(3) >> (dice(4) % 64), ioprio: dice(5) as u16 }
}

/// So that it is served well most of the time, and each mean is wrong.
fn waves(n: u64) -> Says {
    if n.is_multiple_of(100) { reserved(n) } else { nothing(n) }
}

fn urgent(_: u64) -> Says {
    Says { ioprio: REAL_TIME, ..Says::default() }
}

/// What is beside a liar's own client, until it is over; and counted.
fn beside(socket: &Path, disk: &str, what: Beside, over: &AtomicBool, count: &AtomicU32) {
    let outcome = match what {
        Beside::Nothing => Ok(()),
        Beside::Refused => refused(socket, disk, over, count),
        Beside::Connections => connections(socket, disk, over, count),
    };
    if let Err(error) = outcome {
        // Too few of them were there then.
        eprintln!("  it ended: {error:#}");
    }
}

fn refused(socket: &Path, disk: &str, over: &AtomicBool, count: &AtomicU32) -> anyhow::Result<()> {
    let tale = |n| {
        sleep(PAUSE);
        (leaping(n), Reach::Beyond)
    };
    let client = Counted::telling(socket, disk, DEPTH, tale);
    while !over.load(Ordering::Relaxed) {
        client.ensure_running()?;
        sleep(Duration::from_millis(10));
    }
    let told = client.stop()?;
    ensure!(told.replies == 0, "{} of them were served", told.replies);
    count.store(told.refused as u32, Ordering::Relaxed);
    Ok(())
}

fn connections(
    socket: &Path,
    disk: &str,
    over: &AtomicBool,
    count: &AtomicU32,
) -> anyhow::Result<()> {
    use std::io::Write;
    while !over.load(Ordering::Relaxed) {
        let n = count.fetch_add(1, Ordering::Relaxed);
        let mut client = connect(socket, disk)?;
        let waits = n.is_multiple_of(2);
        let offset = if waits { client.size } else { 0 };
        client.stream.write_all(&request(1, CMD_READ, offset, BLOCK, leaping(n.into())))?;
        if waits {
            ensure!(client.reply()?.is_some_and(|(error, _)| error != 0), "no refusal");
            told(&mut client)?;
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// An array of known speed, the neighbour, and the disk that has little beside it.
fn set_up(lab: &Lab, pace: Pace) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    let model = format!("rate={},depth={DEPTH}", pace.rate(RATE));
    let depth = format!("--queue-depth={DEPTH}");
    daemon.command(&["datastore", "add", "array", "--emulated", &model, &depth])?;
    let reservation = format!("--reservation={}", pace.rate(RESERVATION));
    create(&daemon, "neighbour", &["--shares=10", &reservation])?;
    create(&daemon, "third", &["--shares=100"])?;
    Ok(daemon)
}

fn create(daemon: &Headgate, disk: &str, policy: &[&str]) -> anyhow::Result<()> {
    let create = ["disk", "create", disk, "--datastore=array", "--size=16M", "--force"];
    daemon.command(&[&create[..], policy].concat()).map(drop)
}

/// What the scheduler gave each disk per second.
struct Got {
    neighbour: f64,
    third: f64,
    liar: f64,
    seconds: f64,
}

/// A liar works on a new disk with this policy, for what was said is remembered.
fn measure(
    daemon: &Headgate,
    pace: Pace,
    disk: &str,
    policy: &[&str],
    liar: Liar,
) -> anyhow::Result<Got> {
    create(daemon, disk, policy)?;
    let Liar(words, tale, what) = liar;
    let socket = daemon.nbd_socket();
    let client = Counted::telling(socket, disk, DEPTH, move |n| (tale(n), Reach::Inside));
    let premises = Premises::new()
        .busy("array", pace.rate(RATE).into())
        .backlog("neighbour", DEPTH)
        .backlog("third", DEPTH)
        .backlog(disk, DEPTH);
    let (over, count) = (AtomicBool::new(false), AtomicU32::new(0));
    let interval = thread::scope(|scope| {
        let other = scope.spawn(|| beside(socket, disk, what, &over, &count));
        sleep(pace.time(SETTLE));
        let interval = premises.watch(daemon, pace.time(MEASURED));
        let until = Instant::now() + MINUTE;
        while what == Beside::Connections
            && count.load(Ordering::Relaxed) < MANY
            && !other.is_finished()
            && Instant::now() < until
        {
            sleep(Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
        interval
    })?;
    client.leave()?;
    let count = count.into_inner();
    ensure!(what == Beside::Nothing || count >= MANY, "{words}: only {count} of them");
    let got = of(&interval, disk)?;
    let Got { neighbour, third, liar, .. } = got;
    let beside = if count > 0 { format!(" ({count} of them)") } else { String::new() };
    eprintln!(
        "  {words}{beside}: the neighbour {neighbour:.1} of {}, the third {third:.1}, itself \
         {liar:.1}",
        pace.rate(RESERVATION)
    );
    ensure!(
        neighbour >= 0.99 * f64::from(pace.rate(RESERVATION)),
        "{words}: the neighbour got {neighbour:.1}"
    );
    Ok(got)
}

fn of(interval: &Interval, liar: &str) -> anyhow::Result<Got> {
    let given = |disk: &str| Ok::<_, anyhow::Error>(interval.phases(disk)?[0]);
    let (neighbour, third) = (given("neighbour")?, given("third")?);
    Ok(Got { neighbour, third, liar: given(liar)?, seconds: interval.seconds() })
}

/// Plain clients of the neighbour and of the third disk.
fn start_others(daemon: &Headgate, lab: &Lab) -> anyhow::Result<Vec<Process>> {
    let start = |disk| load(lab.dir(), disk, &daemon.nbd_uri(disk), DEPTH);
    ["neighbour", "third"].into_iter().map(start).collect()
}

/// Beside each of these nobody has less than beside the first, and the liar has no more. Gives what
/// each liar got, and over how many seconds.
fn withstands(
    daemon: &Headgate,
    lab: &Lab,
    pace: Pace,
    policy: &[&str],
    liars: &[Liar],
) -> anyhow::Result<Vec<Got>> {
    let others = start_others(daemon, lab)?;
    let mut all: Vec<Got> = Vec::new();
    for (n, liar) in liars.iter().enumerate() {
        let got = measure(daemon, pace, &format!("liar{n}"), policy, *liar)?;
        let honest = all.first().unwrap_or(&got);
        // One request more may have begun in one interval than in the other.
        let one = 1.0 / got.seconds;
        let words = liar.0;
        ensure!(
            got.third >= 0.95 * honest.third - one,
            "{words}: the third disk got {:.1}, and {:.1} beside an honest client",
            got.third,
            honest.third
        );
        ensure!(
            got.liar <= 1.05 * honest.liar + one,
            "{words}: it got {:.1}, and {:.1} when it said nothing",
            got.liar,
            honest.liar
        );
        all.push(got);
    }
    others.into_iter().try_for_each(end)?;
    Ok(all)
}

/// The liar is alone at first, and what its tale makes of the scheduler's clock is its own. Then
/// come the others, and a gateway that tells the truth: as much elsewhere as here.
fn alone_first(
    daemon: &Headgate,
    lab: &Lab,
    pace: Pace,
    disk: &str,
    Liar(words, tale, _): Liar,
) -> anyhow::Result<[f64; 4]> {
    create(daemon, disk, &[SHARES])?;
    let socket = daemon.nbd_socket();
    let client = Counted::telling(socket, disk, DEPTH, move |n| (tale(n), Reach::Inside));
    sleep(pace.time(SETTLE));
    client.ensure_running()?;
    let others = start_others(daemon, lab)?;
    let truth = Says { delta: 1_000_000, ..Says::default() };
    let gateway = Counted::start(socket, "gateway", DEPTH, truth);
    sleep(pace.time(SETTLE));
    let disks = ["neighbour", "third", "gateway", disk];
    let busy = Premises::new().busy("array", pace.rate(RATE).into());
    let premises = disks.into_iter().fold(busy, |all, disk| all.backlog(disk, DEPTH));
    let interval = premises.watch(daemon, pace.time(MEASURED))?;
    client.leave()?;
    gateway.stop()?;
    others.into_iter().try_for_each(end)?;
    let mut got = [0.0; 4];
    for (got, disk) in got.iter_mut().zip(disks) {
        *got = interval.phases(disk)?[0];
    }
    let [neighbour, third, gateway, itself] = got;
    eprintln!(
        "  {words}, alone at first: the neighbour {neighbour:.1} of {}, the third {third:.1}, the \
         gateway {gateway:.1}, itself {itself:.1}",
        pace.rate(RESERVATION)
    );
    Ok(got)
}

const SHARES: &str = "--shares=1000";

#[test]
fn what_a_client_forges_takes_nothing_from_others() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = set_up(lab, pace)?;
        let liars = [
            HONEST,
            EVERYTHING,
            RESERVED,
            BYTES,
            FALLING,
            LEAPING,
            WAVES,
            URGENT,
            REFUSED,
            CONNECTIONS,
        ];
        let got = withstands(&daemon, lab, pace, &[SHARES], &liars)?;
        // Or there would be nothing to lie about.
        let rest = f64::from(pace.rate(RATE - RESERVATION));
        ensure!(got[0].liar >= 0.8 * rest, "beside the honest client {:.1}", got[0].liar);
        ensure!(got[1].liar <= 0.1 * rest, "its lie is not believed: {:.1}", got[1].liar);
        daemon.stop()
    });
}

#[test]
fn no_tale_lets_a_client_pass_its_limit() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = set_up(lab, pace)?;
        let most = pace.rate(LIMIT);
        let limit = format!("--limit={most}");
        // Twice as much: it does not bind an honest client.
        let bandwidth = format!("--limit-bandwidth={}", 2 * most * BLOCK);
        let liars =
            [HONEST, EVERYTHING, BYTES, FALLING, LEAPING, WAVES, URGENT, REFUSED, CONNECTIONS];
        let got = withstands(&daemon, lab, pace, &[SHARES, &limit, &bandwidth], &liars)?;
        let most = f64::from(most);
        ensure!(got[0].liar >= 0.95 * most, "the honest client got {:.1} of {most}", got[0].liar);
        for (Got { liar, seconds, .. }, words) in got.iter().zip(&liars) {
            let most = 1.01 * most + 1.0 / seconds;
            ensure!(*liar <= most, "{}: {liar:.1} where {most:.1} may be", words.0);
        }
        daemon.stop()
    });
}

#[test]
fn no_tale_raises_a_reservation() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = set_up(lab, pace)?;
        let reservation = format!("--reservation={}", pace.rate(OWN_RESERVATION));
        let liars = [HONEST, EVERYTHING, RESERVED, FALLING, LEAPING, WAVES, URGENT];
        let got = withstands(&daemon, lab, pace, &["--shares=1", &reservation], &liars)?;
        let due = f64::from(pace.rate(OWN_RESERVATION));
        ensure!(got[0].liar >= 0.99 * due, "the honest client got {:.1} of {due}", got[0].liar);
        daemon.stop()
    });
}

#[test]
fn a_claimed_priority_is_cut_where_machines_compete_by_it() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = set_up(lab, pace)?;
        daemon.command(&["disk", "set", "third", "--vm=third"])?;
        let liars = [HONEST, URGENT, RESERVED, FALLING, LEAPING, WAVES];
        for (vm, words) in [("third", &[][..]), ("liar", &["--max-priority=50"])] {
            let set = ["vm", "set", vm, "--priority-scope=across"];
            daemon.command(&[&set[..], words].concat())?;
        }
        withstands(&daemon, lab, pace, &[SHARES, "--vm=liar"], &liars)?;
        daemon.stop()
    });
}

#[test]
fn a_liar_that_was_alone_has_others_served_all_the_same() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = set_up(lab, pace)?;
        create(&daemon, "gateway", &["--shares=100"])?;
        let liars = [HONEST, EVERYTHING, RESERVED, FALLING, LEAPING, WAVES, HONEST];
        let mut honest = None;
        for (n, liar) in liars.into_iter().enumerate() {
            let got = alone_first(&daemon, lab, pace, &format!("liar{n}"), liar)?;
            let due = *honest.get_or_insert(got);
            for (who, got, due) in [
                ("the neighbour", got[0], 0.99 * f64::from(pace.rate(RESERVATION))),
                ("the third disk", got[1], 0.95 * due[1]),
                ("the gateway", got[2], 0.95 * due[2]),
            ] {
                ensure!(got >= due, "{}: {who} got {got:.1}, and {due:.1} are due", liar.0);
            }
        }
        daemon.stop()
    });
}
