//! A front-end that is no QEMU any more shares what it likes with the daemon: event descriptors
//! that block, memory whose pages somebody keeps back, more regions than there is room for. Another
//! disk of the same shard judges each attack.

use anyhow::{Context, ensure};
use headgate_lab::beside::{Neighbour, check};
use headgate_lab::faulty_fs::{Fault, FaultyFs};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::run_to_end;
use headgate_lab::{Lab, Server, with_lab};
use std::fs::{self, File};
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
