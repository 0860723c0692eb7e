//! The priorities that applications set inside unmodified guests divide the host's storage.
//!
//! The tag scheduler report's experiments (TG-1, TG-2) on real guests: fio under `ionice`, or with
//! a priority for each request, on a disk of an emulated array that is slow enough to be what
//! everybody waits for. What each application got is read from the daemon's counters of disks and
//! priorities.

mod across;
mod elevators;
mod misuse;

use anyhow::ensure;
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::sample::Sample;
use headgate_lab::streams::{Division, Stream};
use headgate_lab::{Lab, Server};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// How long a division is measured.
const WHILE: Duration = Duration::from_secs(12);
/// How far a part may be from what is due.
const TOLERANCE: f64 = 0.05;
/// Requests per second of the array at full pace.
const RATE: u32 = 400;

const PROGRAMS: [&str; 2] = [QEMU, "fio"];

/// The four applications: how they are started, and what their requests count.
const APPLICATIONS: [(&str, u8); 4] =
    [("ionice -c1 -n0", 254), ("ionice -c2 -n0", 180), ("ionice -c2 -n7", 40), ("ionice -c3", 10)];

/// A daemon with an array and disks of 64 MiB on it, each of its own virtual machine of the same
/// name.
fn daemon(lab: &Lab, pace: Pace, scheduler: &str, disks: &[&str]) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    add_array(&daemon, pace, "array", scheduler, disks)?;
    Ok(daemon)
}

fn add_array(
    daemon: &Headgate,
    pace: Pace,
    array: &str,
    scheduler: &str,
    disks: &[&str],
) -> anyhow::Result<()> {
    let model = format!("rate={},depth=8", pace.rate(RATE));
    let scheduler = format!("--scheduler={scheduler}");
    daemon.command(&[
        "datastore",
        "add",
        array,
        "--emulated",
        &model,
        "--queue-depth=8",
        &scheduler,
    ])?;
    for disk in disks {
        daemon.command(&[
            "disk",
            "create",
            disk,
            "--datastore",
            array,
            "--size=64M",
            "--vm",
            disk,
        ])?;
    }
    Ok(())
}

fn boot(lab: &Lab, daemon: &Headgate, name: &str, disks: &[&str]) -> anyhow::Result<Guest> {
    let drive = |disk: &&str| Drive::VhostUser { socket: daemon.vhost_socket(disk) };
    let drives = disks.iter().map(drive).collect();
    let mut guest = Guest::boot(
        lab,
        &Machine { memory_mib: 768, drives, ..Machine::new(name, Drive::AsPrinted(Vec::new())) },
    )?;
    // What a guest with several processors, and so several queues, has of itself.
    guest.run("for q in /sys/block/vd*/queue; do echo none >$q/scheduler; done", MINUTE)?;
    Ok(guest)
}

/// Starts fio in a guest, 16 requests deep unless `options` say otherwise, until [`stop`].
fn start(guest: &mut Guest, under: &str, options: &str) -> anyhow::Result<()> {
    start_on("vda", guest, under, options)
}

fn start_on(drive: &str, guest: &mut Guest, under: &str, options: &str) -> anyhow::Result<()> {
    let script = format!(
        "{under} fio --name=application --filename=/dev/{drive} --direct=1 --bs=4k --iodepth=16 --ioengine=libaio --thread \
         --time_based --runtime=3600 --norandommap {options} >>/tmp/fio.out 2>&1 &"
    );
    guest.run(&script, MINUTE).map(drop)
}

/// Ends all fio in a guest; an error that one of them saw is an error.
fn stop(guest: &mut Guest) -> anyhow::Result<()> {
    let said = guest.run(
        "killall -INT fio; while pidof fio >/dev/null; do sleep 0.1; done; cat /tmp/fio.out; rm /tmp/fio.out",
        MINUTE,
    )?;
    let ended = said.lines().filter(|line| line.contains("err="));
    ensure!(ended.clone().count() > 0, "fio has said nothing:\n{said}");
    let failed: Vec<&str> = ended.filter(|line| !line.contains("err= 0")).collect();
    ensure!(failed.is_empty(), "fio saw errors: {failed:?}\n{said}");
    Ok(())
}

/// The part of their requests that applications keep at the daemon. It is above what other tests
/// ask for: the daemon counts the requests of a disk, not of an application, and who is served most
/// runs dry first. The first of four, with 16 requests, gets half of 400 per second: it has none
/// left when the guest stands still for 80 ms, and the last ones get what is its. A guest that was
/// stopped for 170 ms a second kept 61.1 of 64 at half of the pace, and gave its first application
/// 5 % too little and its last 23 % too much. One on a quiet machine keeps 63.5.
const KEPT: f64 = 0.985;

/// What must hold while applications divide their disk: the array is busy, and each application has
/// all its requests, so many together, at the daemon.
fn contended(pace: Pace, depth: u32) -> Premises {
    Premises::new().busy("array", pace.rate(RATE).into()).backlog_of("disk", depth, KEPT)
}

/// Runs the four applications, which keep so many requests outstanding together, and checks that
/// they divide the disk by their priorities.
fn divides(
    daemon: &Headgate,
    guest: &mut Guest,
    what: &str,
    (pace, depth): (Pace, u32),
    start_each: impl Fn(&mut Guest, usize) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let streams: Vec<Stream> =
        APPLICATIONS.iter().map(|(_, priority)| ("disk", *priority)).collect();
    for application in 0..APPLICATIONS.len() {
        start_each(guest, application)?;
    }
    eprintln!("{what}");
    let division = Division::measure(daemon, &contended(pace, depth), &streams, pace.time(WHILE))?;
    stop(guest)?;
    division.ensure_by_priority(TOLERANCE)
}

fn under_ionice(options: &str) -> impl Fn(&mut Guest, usize) -> anyhow::Result<()> {
    move |guest, application| start(guest, APPLICATIONS[application].0, options)
}

#[test]
fn applications_under_ionice_divide_their_disk() {
    with_paced_lab(&PROGRAMS, |lab, pace| {
        let mut daemon = daemon(lab, pace, "mclock", &["disk"])?;
        let mut guest = boot(lab, &daemon, "guest", &["disk"])?;
        let load = (pace, 64);
        divides(&daemon, &mut guest, "direct reads", load, under_ionice("--rw=randread"))?;
        divides(&daemon, &mut guest, "direct writes", load, under_ionice("--rw=randwrite"))?;
        guest.power_off()?;
        daemon.stop()
    });
}

#[test]
fn priorities_of_single_requests_divide_their_disk() {
    with_paced_lab(&PROGRAMS, |lab, pace| {
        let mut daemon = daemon(lab, pace, "mclock", &["disk"])?;
        let mut guest = boot(lab, &daemon, "guest", &["disk"])?;
        for engine in ["libaio", "io_uring"] {
            let start = |guest: &mut Guest, application: usize| {
                let (class, level) = [(1, 0), (2, 0), (2, 7), (3, 0)][application];
                let options = format!(
                    "--ioengine={engine} --cmdprio_percentage=100 --cmdprio_class={class} --cmdprio={level} --rw=randread"
                );
                start(guest, "", &options)
            };
            divides(
                &daemon,
                &mut guest,
                &format!("{engine}, a priority with each request"),
                (pace, 64),
                start,
            )?;
        }
        guest.power_off()?;
        daemon.stop()
    });
}

/// The application writes 4 KiB and calls fsync, beside a deep queue of reads of lower priority. In
/// the order of arrival each of its requests would find 64 before it. The data, the journal and the
/// flushes all count as what the application is.
#[test]
fn an_fsync_counts_as_its_application_from_data_to_flush() {
    with_paced_lab(&PROGRAMS, |lab, pace| {
        let mut daemon = daemon(lab, pace, "mclock", &["disk"])?;
        let mut guest = boot(lab, &daemon, "guest", &["disk"])?;
        guest.run("mkfs.ext4 -q /dev/vda && mount -t ext4 /dev/vda /mnt", MINUTE)?;
        start(&mut guest, "ionice -c2 -n7", "--rw=randread --iodepth=64")?;
        let application = "ionice -c1 -n0 fio --name=log --directory=/mnt --rw=write --bs=4k --size=8m --fsync=1 --time_based \
                           --runtime=3600 --thread >>/tmp/fio.out 2>&1 &";
        guest.run(application, MINUTE)?;
        let (application, reader) = (("disk", 254), ("disk", 40));
        let before = Sample::read(&daemon)?;
        // The application sends its next request when the one before is done: what there must
        // always be are the reader's. Eight requests of the array are 20 ms at full pace, and the
        // application's may wait so long at the device: the machine's disk adds little to that.
        let flush = pace.time(Duration::from_millis(5));
        let contended = contended(pace, 64).flushes(lab, flush);
        let division =
            Division::measure(&daemon, &contended, &[application, reader], pace.time(WHILE))?;
        let after = Sample::read(&daemon)?;
        stop(&mut guest)?;
        // A journal's own priority, and that of flushes and of writes that nobody waits for.
        let since =
            |priority: u8| after.of_stream("disk", priority) - before.of_stream("disk", priority);
        let strays = since(120) + since(100);
        let part = division.part(application);
        eprintln!("{:?}, {strays} at a journal's and a flush's own priority", division.got);
        ensure!(part > 4.0 / 65.0, "the application got {part:.3} of the requests");
        let mine = since(application.1);
        ensure!(
            strays * 20 <= mine,
            "{strays} requests beside {mine} went without their application's priority"
        );
        guest.power_off()?;
        daemon.stop()
    });
}
