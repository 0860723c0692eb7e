//! Static probes of the data path, as a tracer sees them.

use anyhow::{Context, ensure};
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a tracer may take to attach, or a client to move a few requests.
const PATIENCE: Duration = Duration::from_secs(120);
/// The disk's limit. A request at depth 8 waits some 80 ms for it.
const LIMIT: &str = "100";

/// The probes in a binary, each with the number of its arguments.
fn probes(binary: &Path) -> anyhow::Result<Vec<(String, usize)>> {
    let mut readelf = Command::new("readelf");
    readelf.arg("--notes").arg(binary);
    let notes = run_to_end(readelf, PATIENCE)?.stdout;
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut is_ours = false;
    for line in notes.lines().map(str::trim) {
        if let Some(provider) = line.strip_prefix("Provider: ") {
            is_ours = provider == "headgate";
        } else if let Some(name) = line.strip_prefix("Name: ").filter(|_| is_ours) {
            found.push((name.to_owned(), 0));
        } else if let Some(arguments) = line.strip_prefix("Arguments: ").filter(|_| is_ours) {
            found.last_mut().context("arguments of nothing")?.1 =
                arguments.split_whitespace().count();
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

#[test]
fn the_binary_names_its_probes_and_their_arguments() {
    with_lab(&["readelf"], |_| {
        let found = probes(&binary()?)?;
        let wanted = ["complete", "dispatch", "enqueue"].map(|name| (name.to_owned(), 6));
        ensure!(found == wanted, "found {found:?}");
        Ok(())
    });
}

/// Whether the kernel lets this process trace others.
fn may_trace() -> bool {
    let mut probe = Command::new("bpftrace");
    probe.args(["-e", "BEGIN { exit(); }"]);
    run_to_end(probe, PATIENCE).is_ok_and(|finished| finished.status.success())
}

/// Attaches bpftrace to a daemon, with a script that prints what it counted when it ends.
fn attach(lab: &Lab, daemon: &Headgate) -> anyhow::Result<(Process, std::path::PathBuf)> {
    let (binary, script, log) =
        (binary()?, lab.dir().join("probes.bt"), lab.dir().join("bpftrace.log"));
    let at = |probe: &str| format!("usdt:{}:headgate:{probe}", binary.display());
    let text = format!(
        "{} {{ @enqueued[str(arg0, arg1)] = count(); @offsets = sum(arg4); }}\n\
         {} {{ @queued[str(arg0, arg1), arg4] = sum(arg3); }}\n\
         {} {{ @completed[str(arg0, arg1), arg5] = count(); @total = sum(arg4); }}\n\
         interval:ms:200 {{ printf(\"attached\\n\"); }}\n",
        at("enqueue"),
        at("dispatch"),
        at("complete"),
    );
    std::fs::write(&script, text)?;
    let mut command = Command::new("bpftrace");
    command.arg("-p").arg(daemon.pid().to_string()).arg(&script);
    let mut tracer = Process::spawn("bpftrace", command, &log)?;
    wait_for("bpftrace should attach", PATIENCE, || {
        tracer.ensure_running()?;
        let said = std::fs::read_to_string(&log)?;
        Ok(said.contains("attached").then_some(()))
    })?;
    Ok((tracer, log))
}

/// What bpftrace printed of a map's key.
fn counted(said: &str, key: &str) -> anyhow::Result<u64> {
    let line = said.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let number = line.with_context(|| format!("no {key} in:\n{said}"))?;
    number.trim().parse().with_context(|| format!("{key} is {number}"))
}

#[test]
fn a_tracer_sees_how_long_each_request_waited_and_took() {
    with_lab(&["bpftrace", "qemu-io"], |lab| {
        if !may_trace() {
            eprintln!("SKIPPED: the kernel lets nobody trace here");
            return Ok(());
        }
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "slow", "--size", "8M", "--limit", LIMIT])?;
        daemon.command(&["disk", "create", "free", "--size", "8M"])?;
        let (mut tracer, log) = attach(lab, &daemon)?;

        daemon.command_for(
            PATIENCE,
            &[
                "load",
                &daemon.nbd_uri("slow"),
                "--depth",
                "8",
                "--ios",
                "64",
                "--read-percent",
                "0",
            ],
        )?;
        tools::qemu_io(&daemon.nbd_uri("free"), &["write 1M 64k"])?;
        tracer.interrupt()?;
        tracer.wait(PATIENCE)?;

        let said = std::fs::read_to_string(log)?;
        let (enqueued, completed) =
            (counted(&said, "@enqueued[slow]")?, counted(&said, "@completed[slow, 0]")?);
        ensure!(enqueued >= 64 && completed == enqueued, "{enqueued}, {completed}\n{said}");
        // Nothing is reserved, so all go by shares.
        let queued = Duration::from_nanos(counted(&said, "@queued[slow, 1]")?);
        ensure!(!said.contains("@queued[slow, 0]"), "something went by reservation\n{said}");
        let each = queued / enqueued as u32;
        ensure!(each > Duration::from_millis(20), "each waited {each:?} for a limit\n{said}");
        let total = Duration::from_nanos(counted(&said, "@total")?);
        ensure!(total >= queued, "{total:?} in all is less than {queued:?} queued\n{said}");
        ensure!(counted(&said, "@enqueued[free]")? >= 1, "the other disk was not seen\n{said}");
        daemon.stop()
    });
}
