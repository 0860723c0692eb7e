//! The daemon dies at the writes to its journal of moves, before and after each in turn, while a
//! guest and an NBD client check all they wrote.

use crate::crashes::Companion;
use crate::moves::{GUEST_LOAD, one_copy};
use headgate_lab::death::{Death, Side};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::process::run;
use headgate_lab::writer::{Progress, Writer};
use headgate_lab::{Lab, Server, count, tools, wait_for, with_lab};
use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Kills of the test, unless `HEADGATE_KILLS` says otherwise.
const KILLS: u32 = 24;
const PATIENCE: Duration = Duration::from_secs(120);
const GUEST_PATIENCE: Duration = Duration::from_secs(300);
const BLOCKS: u64 = 4096;
const DISKS: [&str; 2] = ["guest", "client"];

/// How a move ends if nobody dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Switch,
    Cancel,
}

/// What the journal says of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Nothing,
    Preparing,
    Started,
    Switched,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Nothing => "nothing",
            Step::Preparing => "preparing",
            Step::Started => "started",
            Step::Switched => "switched",
        })
    }
}

/// Reads the journal of a daemon that is dead, from copies: whoever opens the catalog's own files
/// mends them.
fn journal(lab: &Lab, daemon: &Headgate) -> anyhow::Result<Step> {
    let autopsy = lab.dir().join("autopsy");
    let _ = std::fs::remove_dir_all(&autopsy);
    std::fs::create_dir(&autopsy)?;
    for file in ["catalog.sqlite", "catalog.sqlite-wal"] {
        let from = daemon.state_dir().join(file);
        if from.exists() {
            std::fs::copy(&from, autopsy.join(file))?;
        }
    }
    let mut python = Command::new("python3");
    python.arg("-c").arg(
        "import sqlite3, sys
for (step,) in sqlite3.connect(sys.argv[1]).execute('SELECT step FROM moves'):
    print(step)",
    );
    python.arg(autopsy.join("catalog.sqlite"));
    match run(python, PATIENCE)?.trim() {
        "" => Ok(Step::Nothing),
        "preparing" => Ok(Step::Preparing),
        "started" => Ok(Step::Started),
        "switched" => Ok(Step::Switched),
        other => anyhow::bail!("the journal says '{other}'"),
    }
}

/// Moves a disk, or begins to and takes it back. The daemon may die at any instant of it.
fn walk(daemon: &Headgate, disk: &str, to: &str, end: End) -> anyhow::Result<()> {
    let words = ["disk", "migrate", disk];
    match end {
        // In a hurry: beside the writers it would hardly ever come to the switch.
        End::Switch => {
            let hurry = ["--to", to, "--move-shares=1000000"];
            daemon.command_for(PATIENCE, &[&words[..], &hurry].concat())?;
        }
        End::Cancel => {
            let slow = ["--to", to, "--move-bandwidth=1M", "--detach"];
            daemon.command(&[&words[..], &slow].concat())?;
            daemon.command(&[&words[..], &["--cancel"]].concat())?;
        }
    }
    Ok(())
}

fn moving(daemon: &Headgate) -> anyhow::Result<bool> {
    let moves = daemon.json(&["disk", "moves"])?;
    let all = moves.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(all.iter().any(|one| one["state"] != "ended"))
}

/// Each disk has one copy, and none moves.
fn at_rest(lab: &Lab, daemon: &Headgate) -> anyhow::Result<()> {
    for disk in DISKS {
        one_copy(lab, daemon, disk)?;
        wait_for("the move should have left the journal", PATIENCE, || {
            Ok((!moving(daemon)?).then_some(()))
        })?;
    }
    Ok(())
}

fn place(daemon: &Headgate, disk: &str) -> anyhow::Result<String> {
    let shown = daemon.json(&["disk", "show", disk])?;
    Ok(shown["datastore"].as_str().unwrap_or_default().to_owned())
}

fn other_than(place: &str) -> &'static str {
    if place == "array" { "other" } else { "array" }
}

/// The deaths so far: by what the journal said of the move, and where the disk was found.
#[derive(Default)]
struct Deaths(BTreeMap<(Step, &'static str), u32>);

impl Deaths {
    fn seen(&self, step: Step) -> bool {
        self.0.keys().any(|(seen, _)| *seen == step)
    }
}

impl fmt::Display for Deaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|((step, found), n)| writeln!(f, "  {step}: {n} {found}"))
    }
}

/// All that the test works with.
struct Bench<'a> {
    lab: &'a Lab,
    daemon: Headgate,
    death: Death,
    guest: Guest,
}

impl Bench<'_> {
    /// How many writes to the catalog a move makes that ends so.
    fn writes_of(&self, end: End) -> anyhow::Result<u64> {
        let to = other_than(&place(&self.daemon, "client")?);
        self.death.count()?;
        walk(&self.daemon, "client", to, end)?;
        at_rest(self.lab, &self.daemon)?;
        self.death.forget()
    }

    /// One death. `None` when the move made fewer writes this time.
    fn die(&mut self, disk: &str, end: End, nth: u64, side: Side) -> anyhow::Result<Option<Step>> {
        let from = place(&self.daemon, disk)?;
        self.death.order(nth, side)?;
        // It fails when the daemon dies on the way, which is what it is for.
        let said = walk(&self.daemon, disk, other_than(&from), end).err();
        let dead = wait_for("the daemon should die, or the move end", PATIENCE, || {
            if self.daemon.has_ended()? {
                return Ok(Some(true));
            }
            // It may die while it is asked.
            let over = said.is_none() && moving(&self.daemon).is_ok_and(|moving| !moving);
            Ok(over.then_some(false))
        })?;
        self.death.forget()?;
        if !dead {
            at_rest(self.lab, &self.daemon)?;
            return Ok(None);
        }
        let step = journal(self.lab, &self.daemon)?;
        self.daemon.start_again()?;
        at_rest(self.lab, &self.daemon)?;
        Ok(Some(step))
    }

    /// All deaths, spread over the writes of both kinds of moves.
    fn die_often(&mut self, kills: u32, progress: &Progress) -> anyhow::Result<Deaths> {
        let mut deaths = Deaths::default();
        let ends = [End::Switch, End::Cancel];
        let writes = [self.writes_of(ends[0])?, self.writes_of(ends[1])?];
        eprintln!(
            "writes to the catalog: {} of a move, {} of one taken back",
            writes[0], writes[1]
        );
        let mut spent = 0;
        for round in 0..kills {
            // Three moves for each that is taken back; first before a write, then after it.
            let kind = usize::from(round / 2 % 4 == 3);
            let side = if round % 2 == 0 { Side::Before } else { Side::After };
            let disk = DISKS[(round / 2) as usize % 2];
            let nth = 1 + u64::from(round / 2) * writes[kind] / u64::from(kills.div_ceil(2));
            let crashes = progress.crashes.load(Ordering::Relaxed);
            let from = place(&self.daemon, disk)?;
            match self.die(disk, ends[kind], nth, side)? {
                Some(step) => {
                    let stayed = place(&self.daemon, disk)? == from;
                    let found = if stayed { "where it was" } else { "where it went" };
                    *deaths.0.entry((step, found)).or_default() += 1;
                    wait_for("the client should have checked its disk", PATIENCE, || {
                        let now = progress.crashes.load(Ordering::Relaxed);
                        Ok((now > crashes).then_some(()))
                    })?;
                }
                None => spent += 1,
            }
            self.guest.get_on(round)?;
        }
        eprintln!("{kills} orders, {spent} of them for writes that did not come\n{deaths}");
        anyhow::ensure!(spent * 4 <= kills, "{spent} of {kills} times nobody died");
        Ok(deaths)
    }
}

fn prepare(lab: &Lab) -> anyhow::Result<Bench<'_>> {
    let death = Death::prepare(lab)?;
    let config = lab.dir().join("headgate.toml");
    std::fs::write(&config, "shards = 2\n")?;
    let (words, config) = (death.words(), config.display().to_string());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let daemon = Headgate::start_as(lab, "state", &words, &["--config", &config])?;
    let other = lab.subdir("other")?;
    daemon.command(&["datastore", "add", "other", "--dir", &other.to_string_lossy()])?;
    let array = "rate=2000,service=exponential,depth=32";
    daemon.command(&["datastore", "add", "array", "--emulated", array])?;
    for (disk, at) in DISKS.into_iter().zip(["other", "array"]) {
        daemon.command(&["disk", "create", disk, "--size=16M", "--datastore", at])?;
    }
    let drive = Drive::VhostUser { socket: daemon.vhost_socket("guest") };
    let mut guest = Guest::boot(lab, &Machine { cpus: 2, ..Machine::new("guest", drive) })?;
    guest.run(GUEST_LOAD, PATIENCE)?;
    Ok(Bench { lab, daemon, death, guest })
}

#[test]
fn a_daemon_that_dies_around_each_write_of_its_journal_loses_nothing_and_leaves_one_copy() {
    with_lab(&[QEMU, "cc", "nbdcopy", "python3"], |lab| {
        let mut bench = prepare(lab)?;
        let kills = count("HEADGATE_KILLS", KILLS)?;
        let writer = Writer::new(bench.daemon.nbd_socket(), "client", 3, BLOCKS);
        let progress = writer.progress();
        let deaths = thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let deaths = bench.die_often(kills, &progress);
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            deaths
        })?;
        for step in [Step::Nothing, Step::Preparing, Step::Started, Step::Switched] {
            anyhow::ensure!(deaths.seen(step), "no death while the journal said '{step}'");
        }
        let Bench { mut daemon, mut guest, .. } = bench;
        let end = "touch /tmp/stop; while [ ! -e /tmp/done ]; do sleep 0.1; done; \
                   cat /tmp/fio.log; test ! -e /tmp/failed";
        guest.run(end, GUEST_PATIENCE)?;
        let console = guest.console();
        anyhow::ensure!(!console.contains("I/O error"), "the guest saw IO errors:\n{console}");
        let hash = guest.run("sha256sum /dev/vda", PATIENCE)?;
        guest.power_off()?;
        let copy = lab.dir().join("copy.raw");
        tools::nbdcopy(&daemon.nbd_uri("guest"), &copy.to_string_lossy())?;
        anyhow::ensure!(hash.starts_with(&tools::sha256(&copy)?), "not what the guest last read");
        let seen = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        eprintln!("{} writes acknowledged over NBD", seen(&progress.writes));
        daemon.stop()
    });
}
