//! A front-end that is no QEMU any more shares what it likes with the daemon: event descriptors
//! that block, memory whose pages somebody keeps back, more regions than there is room for. Another
//! disk of the same shard judges each attack.

use anyhow::{Context, ensure};
use headgate_lab::beside::{Neighbour, check};
use headgate_lab::faulty_fs::{Fault, FaultyFs};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::run_to_end;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// Of the array's 400.
const RESERVATION: u32 = 200;
/// Time for which the neighbour is measured without an attack.
const UNDISTURBED: Duration = Duration::from_secs(3);

/// A daemon with one shard; on it an array with the disks `neighbour` and `hostile`, and a disk in
/// a directory, `elsewhere`.
fn start(lab: &Lab, arguments: &[&str]) -> anyhow::Result<Headgate> {
    let config = lab.dir().join("config.toml");
    fs::write(&config, "shards = 1\ndrain-seconds = 2\n")?;
    let config = ["--config", config.to_str().context("a strange directory")?];
    let daemon = Headgate::start_as(lab, "state", &[], &[&config, arguments].concat())?;
    let array = ["datastore", "add", "array", "--emulated", "rate=400,depth=8", "--queue-depth=8"];
    daemon.command(&array)?;
    for (disk, policy) in
        [("neighbour", format!("--reservation={RESERVATION}")), ("hostile", "--limit=100".into())]
    {
        let create = ["disk", "create", disk, "--datastore=array", "--size=16M", "--force"];
        daemon.command(&[&create[..], &[&policy]].concat())?;
    }
    daemon.command(&["disk", "create", "elsewhere", "--datastore=default", "--size=16M"])?;
    Ok(daemon)
}

/// Attacks `hostile`, one attack after the other, while the neighbour judges. Each is over, and the
/// disk is served again, when the program ends well.
fn withstands(
    lab: &Lab,
    daemon: &mut Headgate,
    attacks: &[&str],
    more: &[&str],
) -> anyhow::Result<()> {
    let target = daemon.vhost_socket("hostile").display().to_string();
    let elsewhere = daemon.nbd_uri("elsewhere");
    let neighbour = Neighbour::new(lab, &daemon.nbd_uri("neighbour"));
    let undisturbed = neighbour.alone(UNDISTURBED)?;
    for attack in attacks {
        let mut command = Command::new(headgate::binary()?);
        command.args(["load", &target, &elsewhere, "--depth=1", "--seconds=2", "--hostile"]);
        command.arg(attack).args(more);
        let measured = neighbour.during(|| {
            thread::scope(|scope| {
                let attacked = scope.spawn(|| run_to_end(command, 4 * MINUTE));
                let answers = ["/v1/disks", "/healthz", "/metrics"].map(|path| daemon.get(path));
                (attacked.join().expect("no panic"), answers)
            })
        });
        let (meanwhile, (attacked, answers)) = measured.with_context(|| (*attack).to_owned())?;
        println!("{attack}: the neighbour {meanwhile}; undisturbed {undisturbed}");
        let attacked = attacked?;
        let said = format!("{}{}", attacked.stdout, attacked.stderr);
        println!("{said}");
        ensure!(attacked.status.success(), "{attack}: {said}");
        for answer in answers {
            answer.with_context(|| format!("the API during {attack}"))?;
        }
        check(undisturbed, meanwhile, RESERVATION.into()).with_context(|| (*attack).to_owned())?;
        daemon.ensure_running()?;
    }
    Ok(())
}

fn log_says(daemon: &Headgate, words: &[&str]) -> anyhow::Result<()> {
    let log = daemon.log()?;
    for word in words {
        ensure!(log.contains(word), "the log does not say '{word}'\n{log}");
    }
    Ok(())
}

#[test]
fn event_descriptors_that_block_stop_no_other_disk() {
    with_lab(&[], |lab| {
        let mut daemon = start(lab, &[])?;
        let attacks = ["full-call-counter", "full-error-counter", "full-kick-counter"];
        withstands(lab, &mut daemon, &attacks, &[])?;
        // What is no eventfd is refused by name, also a file whose server does not answer.
        let Some(hanging) = FaultyFs::mount(lab.dir(), "hanging")? else { return daemon.stop() };
        let file = hanging.path().join("event");
        File::create(&file)?.set_len(1 << 20)?;
        hanging.set(Fault::HangData);
        let brought = ["--hostile-file", file.to_str().context("a strange directory")?];
        withstands(lab, &mut daemon, &["no-event-descriptors"], &brought)?;
        log_says(&daemon, &["no eventfd: send one made by eventfd(2)", "hanging/event", "pipe:["])?;
        daemon.stop()
    });
}

#[test]
fn memory_whose_pages_are_kept_back_stops_no_other_disk() {
    with_lab(&[], |lab| {
        let mut daemon = start(lab, &[])?;
        let attacks = ["missing-pages", "punched-memory", "shrinking-memory"];
        withstands(lab, &mut daemon, &attacks, &[])?;
        let Some(hanging) = FaultyFs::mount(lab.dir(), "hanging")? else { return daemon.stop() };
        let file = hanging.path().join("memory");
        File::create(&file)?.set_len(1 << 20)?;
        hanging.set(Fault::HangData);
        let brought = ["--hostile-file", file.to_str().context("a strange directory")?];
        withstands(lab, &mut daemon, &["foreign-memory"], &brought)?;
        ensure!(hanging.held() == 0, "a page of it was asked for");
        // Twice as memory, for each of three requests, and as an in-flight region.
        let refusals = daemon.log()?.matches("or start the daemon with --guest-memory any").count();
        ensure!(refusals == 7, "{refusals} refusals in the log\n{}", daemon.log()?);
        daemon.stop()
    });
}

/// Bytes of address space that the daemon has had at most.
fn most_mapped(daemon: &Headgate) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let kib: u64 = line.context("no VmPeak")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

#[test]
fn regions_without_end_leave_the_daemon_its_address_space() {
    with_lab(&[], |lab| {
        let mut daemon = start(lab, &[])?;
        let before = most_mapped(&daemon)?;
        let attacks = ["huge-regions", "many-regions", "overlapping-regions"];
        withstands(lab, &mut daemon, &attacks, &[])?;
        let taken = most_mapped(&daemon)? - before;
        println!("at most {} GiB of address space were taken", taken >> 30);
        // What one front-end may have mapped, and some stacks.
        ensure!(taken < 9 << 40, "{taken} bytes of address space taken");
        log_says(&daemon, &["and may have 512 regions of 8796093022208 bytes", "256 regions"])?;
        daemon.stop()
    });
}

/// Lines of the log that say so of a disk.
fn lines(daemon: &Headgate, disk: &str, text: &str) -> anyhow::Result<usize> {
    let disk = format!("\"{disk}\"");
    let log = daemon.log()?;
    Ok(log.lines().filter(|line| line.contains(text) && line.contains(&disk)).count())
}

/// The sum of what lines such as `and 1,234 more in the last 10 s: TEXT` leave out.
fn left_out(daemon: &Headgate, disk: &str, text: &str) -> anyhow::Result<usize> {
    let (disk, more) = (format!("\"{disk}\""), " more in the last ");
    let log = daemon.log()?;
    let told = log.lines().filter(|l| l.contains(more) && l.contains(text) && l.contains(&disk));
    told.map(|line| {
        let number = line.split_once(more).and_then(|(before, _)| before.rsplit(' ').next());
        let number = number.with_context(|| line.to_owned())?;
        number.replace(',', "").parse::<usize>().with_context(|| line.to_owned())
    })
    .sum()
}

const DISCONNECTED: &str = "the front-end was disconnected";

#[test]
fn clients_that_break_the_protocol_in_a_loop_do_not_fill_the_log() {
    with_lab(&[], |lab| {
        let mut daemon = start(lab, &[])?;
        withstands(lab, &mut daemon, &["broken-connections"], &[])?;
        // Over NBD too.
        let (victim, other) = (daemon.nbd_uri("elsewhere"), daemon.nbd_uri("neighbour"));
        let attack = ["load", &victim, &other, "--depth=1", "--hostile=broken-connections"];
        daemon.command_for(4 * MINUTE, &attack)?;
        // What another disk's client does is still told, and what was left out is counted.
        let noise = UnixStream::connect(daemon.vhost_socket("elsewhere"))?;
        (&noise).write_all(&[0x5a; 64])?;
        wait_for("another disk's line should appear", MINUTE, || {
            Ok((lines(&daemon, "elsewhere", DISCONNECTED)? == 1).then_some(()))
        })?;
        wait_for("what was left out should be told", MINUTE, || {
            let written = lines(&daemon, "hostile", DISCONNECTED)?;
            let summaries = lines(&daemon, "hostile", &format!(" s: {DISCONNECTED}"))?;
            let all = written - summaries + left_out(&daemon, "hostile", DISCONNECTED)?;
            Ok((all >= CONNECTIONS).then_some(()))
        })?;
        let all = daemon.log()?.lines().count();
        println!("{all} lines in the log after {CONNECTIONS} broken connections twice");
        ensure!(all < LINES, "{all} lines in the log");
        daemon.stop()
    });
}

/// Of one attack.
const CONNECTIONS: usize = 2000;
/// Some three lines a second, if that takes minutes; without a bound there are two for each
/// connection.
const LINES: usize = 1000;
