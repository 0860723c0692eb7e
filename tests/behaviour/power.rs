//! The power of a whole host goes at any point: a guest is the host, its disk is recorded, and each
//! point of the record is a disk as the host would find it. ext4 comes back clean, the daemon
//! starts, every flushed byte and every acknowledged change is there.
//!
//! `HEADGATE_CUTS` says how many cuts there are, `HEADGATE_CUT_SEED` which.

use anyhow::{Context, ensure};
use headgate_lab::guest::{Drive, Guest, Kernel, Machine, QEMU};
use headgate_lab::headgate;
use headgate_lab::power::{Expected, Plan, Promise, RoundEnd};
use headgate_lab::process::{run, run_to_end};
use headgate_lab::tools_disk::tools_disk;
use headgate_lab::write_log::{Replay, WriteLog, cuts};
use headgate_lab::{Lab, count, tools, wait_for, with_lab};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// For what a guest without KVM does with a daemon built for debugging.
const LONG: Duration = Duration::from_secs(600);

/// Bytes of the host's disk, and of its disk image.
const HOST_DISK: u64 = 96 << 20;
const PLAN: Plan = Plan { seed: 68, blocks: 512, round: 16, quiet_from: 1_200 };
const OPERATIONS: u64 = 1_600;
/// Disks that are created beside the load; every other one is removed again.
const DISKS: u32 = 16;
/// Of so many cuts one has a daemon started on it, besides those behind a change.
const STARTED: usize = 16;

/// A line from the host, and how long the log of its disk was when it came.
struct Heard {
    line: String,
    log: u64,
}

/// The recorded host, from its first boot to the end of its load.
struct Recording {
    log: WriteLog,
    heard: Vec<Heard>,
    /// Entries before which nothing is promised: the file system is being made.
    from: usize,
}

/// What the host's file system does for a flush.
#[derive(Clone, Copy)]
enum Flushes {
    /// It has the disk flush its cache.
    Sent,
    /// Nothing: such a host loses what it promised.
    Forgotten,
}

const SET_UP: &str = r#"
mkdir -p /host
mount -o ro /dev/vda /host || exit 1
mkfs.ext4 -q -b 4096 /dev/vdb || exit 1
mount -o $OPTIONS /dev/vdb /mnt && mkdir -p /mnt/state || exit 1
sync
export LD_LIBRARY_PATH=/host HEADGATE_STATE_DIR=/mnt/state
/host/headgate serve >/tmp/daemon.log 2>&1 &
tries=0
until /host/headgate disk create db --size 2M >/tmp/create.log 2>&1; do
  tries=$((tries + 1))
  [ $tries -lt 60 ] || { cat /tmp/create.log /tmp/daemon.log; exit 1; }
  sleep 1
done
mkfifo /tmp/promises
port=
for name in /sys/class/virtio-ports/*/name; do
  [ "$(cat "$name")" = headgate.promises ] && port=$(basename "$(dirname "$name")")
done
[ -n "$port" ] || { echo "no port for promises"; exit 1; }
cat </tmp/promises >/dev/$port &
sleep 100000 >/tmp/promises &
sync
"#;

/// Changes of the control plane, each told of when it is acknowledged.
fn changes() -> String {
    let one = |n: u32| {
        let (keep, name) = (n.is_multiple_of(2), format!("disk{n}"));
        let mut script = format!(
            "/host/headgate disk create {name} --size 1M --limit {0} || exit 1
             {1}\n",
            1000 + n,
            if keep { format!("echo created {name} >/tmp/promises") } else { ":".into() },
        );
        if keep {
            script += &format!(
                "/host/headgate disk set {name} --limit {0} || exit 1
                 echo limited {name} >/tmp/promises\n",
                2000 + n
            );
        } else {
            script += &format!(
                "/host/headgate disk remove {name} || exit 1
                 echo removed {name} >/tmp/promises\n"
            );
        }
        script
    };
    (0..DISKS).map(one).collect()
}

fn load() -> String {
    let quiet = PLAN.quiet_from;
    format!(
        r#"
export LD_LIBRARY_PATH=/host HEADGATE_STATE_DIR=/mnt/state
(
{}
) >/tmp/changes.log 2>&1 &
changes=$!
client="/host/power-client /mnt/state/nbd.sock db /tmp/promises --seed {} --blocks {} --round {} --quiet-from {quiet}"
$client --from 1 --operations {} || {{ cat /tmp/daemon.log; exit 1; }}
wait $changes || {{ cat /tmp/changes.log /tmp/daemon.log; exit 1; }}
# Nobody else flushes now.
$client --from {quiet} --operations {OPERATIONS} || {{ cat /tmp/daemon.log; exit 1; }}
"#,
        changes(),
        PLAN.seed,
        PLAN.blocks,
        PLAN.round,
        quiet - 1,
    )
}

fn record(lab: &Lab, flushes: Flushes) -> anyhow::Result<Recording> {
    let (disk, log) = (lab.dir().join("disk.raw"), lab.dir().join("disk.log"));
    tools::sparse_file(&disk, HOST_DISK)?;
    tools::sparse_file(&log, 0)?;
    let programs = [headgate::binary()?, env!("CARGO_BIN_EXE_power-client").into()];
    let (tools_disk, port) =
        (tools_disk(lab, &Kernel::find()?, &programs, &[])?, lab.dir().join("promises.sock"));
    let file = |path: &Path| format!("driver=file,filename={}", path.display());
    let nested = |name: &str, path: &Path| {
        format!("driver=raw,node-name={name},file.driver=file,file.filename={}", path.display())
    };
    let words = [
        "-m",
        "1024",
        "-blockdev",
        &format!("{},node-name=tools,read-only=on", file(&tools_disk)),
        "-device",
        "virtio-blk-pci,drive=tools",
        "-blockdev",
        &nested("data", &disk),
        "-blockdev",
        &nested("log", &log),
        "-blockdev",
        "driver=blklogwrites,node-name=recorded,file=data,log=log,log-sector-size=512",
        "-device",
        "virtio-blk-pci,drive=recorded,write-cache=on,logical_block_size=512",
        "-chardev",
        &format!("socket,id=promises,server=on,wait=off,path={}", port.display()),
        "-device",
        "virtserialport,chardev=promises,name=headgate.promises",
    ];
    let drive = Drive::AsPrinted(words.map(str::to_owned).to_vec());
    let mut guest = Guest::boot(lab, &Machine { cpus: 2, ..Machine::new("host", drive) })?;
    let promises =
        wait_for("the port for promises", MINUTE, || Ok(UnixStream::connect(&port).ok()))?;
    let options = match flushes {
        Flushes::Sent => "barrier=1",
        Flushes::Forgotten => "barrier=0",
    };
    guest.run(&format!("OPTIONS={options}\n{SET_UP}"), LONG)?;
    let from = WriteLog::read(&log)?.entries.len();
    let heard = thread::scope(|scope| {
        let (log, hear) = (&log, promises.try_clone()?);
        let listener = scope.spawn(move || hear_all(hear, log));
        let done = guest.run(&load(), LONG);
        // What was said is on its way for a moment.
        thread::sleep(Duration::from_secs(1));
        promises.shutdown(std::net::Shutdown::Both)?;
        let heard = listener.join().expect("the listener does not panic")?;
        done.map(|_| heard)
    })?;
    drop(guest);
    Ok(Recording { log: WriteLog::read(&log)?, heard, from })
}

fn hear_all(port: UnixStream, log: &Path) -> anyhow::Result<Vec<Heard>> {
    let mut heard = Vec::new();
    for line in BufReader::new(port).lines() {
        let line = line?;
        heard.push(Heard { line, log: fs::metadata(log)?.len() });
    }
    Ok(heard)
}

/// What was promised of the control plane so far: by disk, its limit if it must be there.
#[derive(Default)]
struct Changes(BTreeMap<String, Option<u64>>);

impl Changes {
    /// Takes a line, unless it is of the data.
    fn take(&mut self, line: &str) -> bool {
        let Some((what, disk)) = line.split_once(' ') else { return false };
        let number = || disk.trim_start_matches("disk").parse::<u64>().unwrap_or(0);
        let limit = match what {
            "created" => Some(1000 + number()),
            "limited" => Some(2000 + number()),
            "removed" => None,
            _ => return false,
        };
        self.0.insert(disk.to_owned(), limit);
        true
    }

    /// A daemon on what is left of the state directory serves every disk that must be there.
    fn check(&self, lab: &Lab, name: &str, state: &Path) -> anyhow::Result<()> {
        let daemon = headgate::Headgate::start_on(lab, name, state)?;
        for (disk, limit) in &self.0 {
            let shown = daemon.json(&["disk", "show", disk]);
            let Some(limit) = limit else {
                ensure!(shown.is_err(), "{disk} was removed, and is there: {shown:?}");
                continue;
            };
            let shown = shown.with_context(|| format!("{disk} was created"))?;
            ensure!(shown["state"] == "serving", "{shown}");
            let found = shown["policy"]["limit"].as_u64().unwrap_or(0);
            // Created with the first, changed to the second: that may be there before it is told.
            ensure!([*limit, *limit % 1000 + 2000].contains(&found), "{disk}: limit {found}");
        }
        let list = daemon.json(&["disk", "list"])?;
        for disk in list.as_array().context("a list")? {
            ensure!(disk["state"] == "serving", "{disk}");
        }
        Ok(())
    }
}

/// ext4 replays its journal, and has nothing to complain about afterwards.
fn check_file_system(disk: &Path) -> anyhow::Result<()> {
    for (flags, most) in [("-p", 1), ("-fn", 0)] {
        let mut command = Command::new("e2fsck");
        command.arg(flags).arg(disk);
        let finished = run_to_end(command, MINUTE)?;
        let status = finished.status.code().unwrap_or(i32::MAX);
        ensure!(status <= most, "e2fsck {flags}: {}\n{}", finished.status, finished.stdout);
    }
    Ok(())
}

/// Copies the state directory out of the file system.
fn extract(disk: &Path, to: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("debugfs");
    command.arg("-R").arg(format!("rdump /state {}", to.display())).arg(disk);
    run(command, MINUTE).map(drop)
}

/// The points, at most so many, at which the host had just heard that something forced is durable
/// and no flush of the client's came behind it: spread evenly over all such.
fn behind_forced(recording: &Recording, many: usize) -> Vec<usize> {
    let Recording { log, heard, from } = recording;
    let is_quiet = |said: &&Heard| match Promise::parse(&said.line) {
        Ok(Promise::Forced(number)) => PLAN.round_end(number) == RoundEnd::Quiet,
        Ok(Promise::Flushed(_)) | Err(_) => false,
    };
    let points = heard.iter().filter(is_quiet).map(|said| log.entries_at(said.log));
    evenly(points.filter(|at| at > from), many)
}

/// The points, at most so many, at which the host had just heard that a change was made: nothing
/// has written yet what that change did not write itself.
fn behind_changes(recording: &Recording, many: usize) -> Vec<usize> {
    let Recording { log, heard, from } = recording;
    let is_change = |said: &&Heard| Changes::default().take(&said.line);
    let points = heard.iter().filter(is_change).map(|said| log.entries_at(said.log));
    evenly(points.filter(|at| at > from), many)
}

/// At most so many of these points, spread evenly.
fn evenly(points: impl Iterator<Item = usize>, many: usize) -> Vec<usize> {
    let points: BTreeSet<usize> = points.collect();
    let step = points.len().div_ceil(many.max(1)).max(1);
    points.into_iter().step_by(step).collect()
}

/// Cuts the power at so many points, and checks what is left each time. The error says where
/// something was lost.
fn cut(lab: &Lab, recording: &Recording, many: usize, seed: u64) -> anyhow::Result<()> {
    let Recording { log, heard, from } = recording;
    let flushes = log.entries.iter().filter(|entry| entry.flushes).count();
    let mut replay = Replay::new(log, &lab.dir().join("durable.raw"), HOST_DISK)?;
    let mut expected = Expected::new(PLAN, OPERATIONS);
    let (mut changes, mut lines) = (Changes::default(), heard.iter().peekable());
    let (mut volatile, mut kept, mut started) = (0, 0, 0);
    let moments = cuts(log, many.div_ceil(2), *from, seed)?.into_iter();
    let changed: BTreeSet<usize> =
        behind_changes(recording, many.div_ceil(5)).into_iter().collect();
    let moments = moments.chain(behind_forced(recording, many / 2)).chain(changed.iter().copied());
    let moments: BTreeSet<usize> = moments.collect();
    let many = moments.len();
    for (number, after) in moments.into_iter().enumerate() {
        while let Some(said) = lines.next_if(|said| log.entries_at(said.log) <= after) {
            if !changes.take(&said.line) {
                expected.promise(Promise::parse(&said.line)?);
            }
        }
        let disk = lab.dir().join("cut.raw");
        let cut = replay.cut(after, seed ^ number as u64, &disk)?;
        (volatile, kept) = (volatile + cut.volatile, kept + cut.kept);
        let at = || format!("cut {number}, behind entry {after} of {}", log.entries.len());
        check_file_system(&disk).with_context(at)?;
        let out = lab.subdir("out")?;
        extract(&disk, &out)?;
        let state = out.join("state");
        let image = fs::read(state.join("default/db.img"));
        let image = image.context("the image of db was created and is lost").with_context(at)?;
        expected.check(&image).with_context(at)?;
        if number % STARTED == 0 || number + 1 == many || changed.contains(&after) {
            changes.check(lab, &format!("cut{number}"), &state).with_context(at)?;
            started += 1;
        }
        fs::remove_dir_all(&out)?;
    }
    eprintln!(
        "{many} cuts in a log of {} requests and {flushes} flushes, {} promises; {volatile} \
         requests were volatile at a cut, {kept} of them kept at least in part; {started} daemons \
         started on what was left",
        log.entries.len() - flushes,
        heard.len()
    );
    ensure!(expected.promised() > 100, "only {} blocks were promised", expected.promised());
    ensure!(changes.0.len() > DISKS as usize / 2, "few changes: {:?}", changes.0);
    ensure!(volatile > kept && kept > 0, "no cut met anything volatile");
    Ok(())
}

const PROGRAMS: [&str; 5] = [QEMU, "mkfs.ext4", "e2fsck", "debugfs", "strip"];

#[test]
fn the_power_of_a_host_goes_at_any_point_and_nothing_promised_is_lost() {
    with_lab(&PROGRAMS, |lab| {
        let many = count("HEADGATE_CUTS", 40)? as usize;
        let seed = u64::from(count("HEADGATE_CUT_SEED", 1)?);
        cut(lab, &record(lab, Flushes::Sent)?, many, seed)
    });
}

#[test]
fn a_host_that_forgets_flushes_is_caught() {
    with_lab(&PROGRAMS, |lab| {
        let recording = record(lab, Flushes::Forgotten)?;
        let verdict = cut(lab, &recording, 40, 1).err().map(|e| format!("{e:#}"));
        let verdict = verdict.context("a host that forgets flushes passed the check")?;
        let lost = ["was durable", "e2fsck", "is lost"];
        ensure!(lost.iter().any(|word| verdict.contains(word)), "{verdict}");
        eprintln!("caught: {}", verdict.lines().next().unwrap_or_default());
        Ok(())
    });
}
