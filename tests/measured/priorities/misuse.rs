//! Machines that ask for more priority than they may have, or for all there are.

use super::{MINUTE, TOLERANCE, WHILE};
use anyhow::ensure;
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::with_paced_lab;
use headgate_lab::premise::Premises;
use headgate_lab::process::Process;
use headgate_lab::sample::{Interval, Sample};
use headgate_lab::streams::Division;
use headgate_lab::{Lab, Server, wait_for};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// `headgate load` as a machine, since a guest's kernel would not write what this one writes.
pub(super) fn attack(
    lab: &Lab,
    daemon: &Headgate,
    disk: &str,
    options: &[&str],
) -> anyhow::Result<Process> {
    let mut command = Command::new(headgate_lab::headgate::binary()?);
    command.args(["load", "--seconds=3600"]).args(options).arg(daemon.vhost_socket(disk));
    Process::spawn(disk, command, &lab.dir().join(format!("{disk}.log")))
}

#[test]
fn a_machine_that_asks_for_everything_gets_what_it_may_and_no_more() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = Headgate::start(lab)?;
        let rate = pace.rate(800);
        let model = format!("rate={rate},depth=8");
        daemon.command(&["datastore", "add", "array", "--emulated", &model, "--queue-depth=8"])?;
        for disk in ["honest", "greedy"] {
            daemon.command(&[
                "disk",
                "create",
                disk,
                "--datastore=array",
                "--size=64M",
                "--vm",
                disk,
            ])?;
        }
        daemon.command(&["vm", "set", "greedy", "--max-priority=50"])?;
        let mut honest = attack(lab, &daemon, "honest", &["--depth=32"])?;
        let honest_at = ("honest", 100);
        for scope in ["within", "across"] {
            for vm in ["honest", "greedy"] {
                daemon.command(&["vm", "set", vm, "--priority-scope", scope])?;
            }
            // By shares, which are equal; by priorities, of which the greedy machine's are cut to
            // 50.
            let due = if scope == "within" { 1.0 / 2.0 } else { 100.0 / 150.0 };
            let mut greedy = attack(lab, &daemon, "greedy", &["--depth=128", "--priority=rt/0"])?;
            eprintln!("the highest priority everywhere, {scope}");
            let contended = Premises::new()
                .busy("array", rate.into())
                .backlog("honest", 32)
                .backlog("greedy", 128);
            let streams = [honest_at, ("greedy", 50)];
            let division = Division::measure(&daemon, &contended, &streams, pace.time(WHILE / 2))?;
            division.ensure(&[(honest_at, due), (("greedy", 50), 1.0 - due)], TOLERANCE)?;
            greedy.interrupt()?;
            greedy.wait(MINUTE)?;
        }
        honest.interrupt()?;
        honest.wait(MINUTE)?;
        daemon.stop()
    });
}

#[test]
fn a_machine_that_writes_every_priority_there_is_harms_nobody_and_costs_nothing() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = Headgate::start(lab)?;
        let rate = pace.rate(2000);
        let model = format!("rate={rate},depth=8");
        daemon.command(&["datastore", "add", "array", "--emulated", &model, "--queue-depth=8"])?;
        for disk in ["honest", "greedy"] {
            daemon.command(&[
                "disk",
                "create",
                disk,
                "--datastore=array",
                "--size=64M",
                "--vm",
                disk,
            ])?;
        }
        daemon.command(&["vm", "set", "greedy", "--max-priority=50"])?;
        let mut honest = attack(lab, &daemon, "honest", &["--depth=32"])?;
        let mut greedy =
            attack(lab, &daemon, "greedy", &["--depth=128", "--queues=2", "--priority=each"])?;
        sleep(Duration::from_secs(5));
        let memory = daemon.memory_kib()?;
        let contended =
            Premises::new().busy("array", rate.into()).backlog("honest", 32).backlog("greedy", 128);
        let all_values = || {
            let before = Sample::read(&daemon)?;
            wait_for(
                "the greedy machine should go through all values",
                pace.time(3 * MINUTE),
                || {
                    sleep(Duration::from_millis(500));
                    let now = Sample::read(&daemon)?;
                    Ok((now.of_disk("greedy") - before.of_disk("greedy") > 1 << 16).then_some(()))
                },
            )
        };
        let ((), Interval { from: before, to: after }) = contended.measure(&daemon, all_values)?;
        let grown = daemon.memory_kib()?.saturating_sub(memory);
        let got = |disk: &str| (after.of_disk(disk) - before.of_disk(disk)) as f64;
        let part = got("honest") / (got("honest") + got("greedy"));
        let streams = (1..=254).filter(|p| after.of_stream("greedy", *p) > 0).count();
        eprintln!(
            "{streams} priorities at once: the honest machine gets {part:.3}, the daemon grows by {grown} KiB"
        );
        ensure!(
            (part / 0.5 - 1.0).abs() <= TOLERANCE,
            "the honest machine gets {part:.3} instead of half"
        );
        ensure!(streams == 50, "{streams} priorities of 1 to 50 were served: {after:?}");
        ensure!(
            (51..=254).all(|p| after.of_stream("greedy", p) == 0),
            "something counted more than 50: {after:?}"
        );
        // Less than 16 bytes for each value.
        ensure!(grown < 1024, "the daemon grew by {grown} KiB");
        for process in [&mut greedy, &mut honest] {
            process.interrupt()?;
            process.wait(MINUTE)?;
        }
        daemon.stop()
    });
}
