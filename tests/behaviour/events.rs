//! Events: every change leaves a line that says who, what and how it was before; what is refused
//! and what the daemon notices too. A crash tears at most the last line, whoever follows misses
//! none, and a flood of refused requests displaces nothing.

use anyhow::{Context, ensure};
use headgate_lab::faulty_fs::{Fault, FaultyFs};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// What `headgate events` shows, with these words.
fn shown(daemon: &Headgate, words: &[&str]) -> anyhow::Result<Vec<Value>> {
    let page = daemon.json(&[&["events"], words].concat())?;
    Ok(page["events"].as_array().context("no list")?.clone())
}

fn told<'a>(events: &'a [Value], operation: &str) -> anyhow::Result<&'a Value> {
    let mut all = events.iter().filter(|event| event["operation"] == operation);
    all.next_back().with_context(|| format!("no '{operation}' in {events:#?}"))
}

fn wait_told(daemon: &Headgate, operation: &str) -> anyhow::Result<Value> {
    wait_for(&format!("'{operation}' should be told"), PATIENCE, || {
        Ok(told(&shown(daemon, &[])?, operation).ok().cloned())
    })
}

fn ids(events: &[Value]) -> Vec<u64> {
    events.iter().filter_map(|event| event["id"].as_u64()).collect()
}

/// A command that must fail.
fn refused(daemon: &Headgate, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(headgate::binary()?);
    command.args(words).env("HEADGATE_STATE_DIR", daemon.state_dir());
    let finished = run_to_end(command, PATIENCE)?;
    ensure!(!finished.status.success(), "headgate {words:?} was not refused");
    Ok(finished.stderr)
}

#[test]
fn every_change_says_who_and_what_and_how_it_was_and_survives_a_kill() {
    with_lab(&[], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "db", "--size", "8M", "--vm", "shop"])?;
        daemon.command(&["disk", "create", "other", "--size", "8M"])?;
        daemon.command(&["disk", "set", "db", "--limit", "500"])?;
        daemon.command(&["disk", "set", "db", "--limit", "700"])?;
        refused(&daemon, &["disk", "set", "db", "--reservation", "900"])?;
        daemon.command(&["disk", "remove", "other", "--purge"])?;
        // No request after this: what was acknowledged must be there.
        daemon.kill()?;
        daemon.start_again()?;
        let events = shown(&daemon, &[])?;
        let of: Vec<&str> = events.iter().filter_map(|event| event["operation"].as_str()).collect();
        let expected = [
            "daemon start",
            "disk create",
            "disk create",
            "disk set",
            "disk set",
            "disk set",
            "disk remove",
            "daemon start",
        ];
        ensure!(of == expected, "{of:?}");
        ensure!(ids(&events).windows(2).all(|pair| pair[0] < pair[1]), "{events:#?}");
        let set = &events[4];
        ensure!(set["old"] == json!({"policy.limit": 500}), "{set:#}");
        ensure!(set["new"] == json!({"policy.limit": 700}), "{set:#}");
        ensure!(set["result"] == "taken" && set["object"]["name"] == "db", "{set:#}");
        let me = fs::metadata("/proc/self")?;
        ensure!(set["by"]["user"] == me.uid() && set["by"]["group"] == me.gid(), "{set:#}");
        ensure!(set["by"]["process"].as_i64().is_some_and(|process| process > 0), "{set:#}");
        let no = &events[5];
        ensure!(no["result"] == "refused" && no["asked"]["reservation"] == 900, "{no:#}");
        ensure!(no["why"].as_str().is_some_and(|why| why.contains("700")), "{no:#}");
        let gone = &events[6];
        ensure!(gone["old"]["size"] == 8 << 20 && gone.get("new").is_none(), "{gone:#}");
        // By disk, and after one.
        let of_other = ids(&shown(&daemon, &["--disk", "other"])?);
        ensure!(of_other == [ids(&events)[2], ids(&events)[6]], "{of_other:?}");
        let after = ids(&events)[5].to_string();
        ensure!(ids(&shown(&daemon, &["--after", &after])?) == ids(&events)[6..]);
        let text = daemon.command(&["events", "--disk", "db"])?;
        ensure!(text.contains("disk set db, user ") && text.contains("policy.limit: 500 -> 700"));
        let error = refused(&daemon, &["events", "--after", "999"])?;
        ensure!(error.contains("no event 999 yet"), "{error}");
        Ok(())
    });
}

fn file_of(daemon: &Headgate, stream: &str) -> anyhow::Result<PathBuf> {
    let files = fs::read_dir(daemon.state_dir().join("events"))?;
    let mut files: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    files.retain(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(stream)));
    files.sort();
    files.pop().context("no file")
}

#[test]
fn a_torn_line_is_told_and_the_others_are_there() {
    with_lab(&[], |lab| {
        let mut daemon = Headgate::start(lab)?;
        for disk in ["a", "b", "c"] {
            daemon.command(&["disk", "create", disk, "--size", "8M"])?;
        }
        daemon.kill()?;
        let path = file_of(&daemon, "changes")?;
        let bytes = fs::read(&path)?;
        fs::write(&path, &bytes[..bytes.len() - 20])?;
        daemon.start_again()?;
        daemon.command(&["disk", "create", "d", "--size", "8M"])?;
        let mut command = Command::new(headgate::binary()?);
        command.args(["events"]).env("HEADGATE_STATE_DIR", daemon.state_dir());
        let finished = run_to_end(command, PATIENCE)?;
        for disk in ["a", "b", "d"] {
            let line = format!("disk create {disk},");
            ensure!(finished.stdout.contains(&line), "no '{line}' in {}", finished.stdout);
        }
        ensure!(!finished.stdout.contains("disk create c,"), "{}", finished.stdout);
        ensure!(finished.stdout.contains("torn by a crash"), "{}", finished.stdout);
        ensure!(finished.stderr.contains("1 lines of the log are damaged"), "{}", finished.stderr);
        ensure!(daemon.log()?.contains("was torn by a crash"), "the log is silent");
        Ok(())
    });
}

#[test]
fn whoever_follows_misses_nothing_when_the_daemon_is_killed() {
    with_lab(&[], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "db", "--size", "8M"])?;
        let log = lab.dir().join("followed");
        let mut command = Command::new(headgate::binary()?);
        command.args(["events", "--follow", "--json"]);
        command.env("HEADGATE_STATE_DIR", daemon.state_dir());
        let mut follower = Process::spawn("headgate events", command, &log)?;
        let followed = || -> anyhow::Result<Vec<Value>> {
            let text = fs::read_to_string(&log)?;
            // The last line may be on its way; others are words about the daemon.
            Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
        };
        for round in 0..3 {
            for limit in 0..5 {
                let limit = (100 + 10 * round + limit).to_string();
                daemon.command(&["disk", "set", "db", "--limit", &limit])?;
            }
            if round == 1 {
                daemon.kill()?;
            } else {
                daemon.stop()?;
            }
            daemon.start_again()?;
        }
        daemon.command(&["disk", "set", "db", "--limit", "none"])?;
        let all = ids(&shown(&daemon, &[])?);
        wait_for("the follower should have all", PATIENCE, || {
            follower.ensure_running()?;
            Ok((ids(&followed()?).last() >= all.last()).then_some(()))
        })?;
        ensure!(ids(&followed()?) == all, "{:?} and not {all:?}", ids(&followed()?));
        ensure!(all.len() >= 22, "{all:?}");
        Ok(())
    });
}

/// One request after the other on one connection; how many were answered with this status.
fn send(daemon: &Headgate, request: &str, times: usize, status: &str) -> anyhow::Result<usize> {
    let mut found = 0;
    for _ in 0..times {
        let mut stream = UnixStream::connect(daemon.state_dir().join("headgate.sock"))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        found += usize::from(answer.starts_with(&format!("HTTP/1.1 {status}")));
    }
    Ok(found)
}

#[test]
fn a_flood_of_refused_requests_is_counted_and_displaces_no_change() {
    with_lab(&[], |lab| {
        let daemon = Headgate::start_as(lab, "state", &[], &["--events-size", "1M"])?;
        daemon.command(&["disk", "create", "db", "--size", "8M"])?;
        let body = json!({"limit": 5, "junk": "x".repeat(4_000)}).to_string();
        let request = format!(
            "PATCH /v1/disks/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let refused = send(&daemon, &request, 2_000, "400")?;
        ensure!(refused == 2_000, "{refused}");
        let events = shown(&daemon, &[])?;
        told(&events, "disk create")?;
        let flood = events.iter().filter(|event| event["result"] == "refused").count();
        ensure!((20..=25).contains(&flood), "{flood} are written down");
        let dir = fs::read_dir(daemon.state_dir().join("events"))?;
        let bytes: u64 = dir.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
        ensure!(bytes < 1 << 20, "{bytes} bytes");
        Ok(())
    });
}

#[test]
fn no_secret_is_in_an_event() {
    with_lab(&[], |lab| {
        let daemon = Headgate::start(lab)?;
        let uri = "nbd://ann:hunter2@localhost:1/?tls-psk=hunter2";
        refused(&daemon, &["datastore", "add", "far", "--nbd", uri])?;
        // A field that nobody knows is told as it was asked, without its value.
        let body = r#"{"limit": 5, "password": "hunter2"}"#;
        let request = format!(
            "PATCH /v1/disks/none?token=hunter2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        send(&daemon, &request, 1, "400")?;
        let events = shown(&daemon, &[])?;
        let last = told(&events, "disk set")?;
        ensure!(last["asked"]["body"]["password"] == "***", "{last:#}");
        for file in fs::read_dir(daemon.state_dir().join("events"))? {
            let text = fs::read_to_string(file?.path())?;
            ensure!(!text.contains("hunter2"), "{text}");
        }
        ensure!(!daemon.log()?.contains("hunter2"), "the log has it");
        Ok(())
    });
}

fn with_far(lab: &Lab) -> anyhow::Result<Option<(Headgate, FaultyFs)>> {
    let Some(far) = FaultyFs::mount(lab.dir(), "far")? else { return Ok(None) };
    let config = lab.dir().join("config.toml");
    fs::write(&config, "drain-seconds = 2\n")?;
    let config = config.display().to_string();
    let daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
    daemon.command(&["datastore", "add", "far", "--dir", &far.path().to_string_lossy()])?;
    daemon.command(&["disk", "create", "there", "--size=8M", "--datastore=far"])?;
    Ok(Some((daemon, far)))
}

fn load(lab: &Lab, daemon: &Headgate, disk: &str, words: &[&str]) -> anyhow::Result<Process> {
    let mut command = Command::new(headgate::binary()?);
    command.arg("load").arg(daemon.nbd_uri(disk)).args(words);
    Process::spawn("headgate load", command, &lab.dir().join("load.log"))
}

#[test]
fn a_datastore_that_hangs_and_a_disk_that_holds_are_told_and_their_ends() {
    with_lab(&[], |lab| {
        let Some((daemon, mut far)) = with_far(lab)? else { return Ok(()) };
        far.set(Fault::FailWrites(libc::ENOSPC));
        let words = ["--read-percent=0", "--ios=8", "--timeout=600"];
        let mut writer = load(lab, &daemon, "there", &words)?;
        let holds = wait_told(&daemon, "disk holds requests")?;
        ensure!(holds["result"] == "noticed" && holds["by"]["kind"] == "daemon", "{holds:#}");
        ensure!(holds["disks"] == json!(["there"]), "{holds:#}");
        far.heal();
        wait_told(&daemon, "disk holds requests no more")?;
        ensure!(writer.wait(PATIENCE)?.success(), "{}", writer.said());

        far.hang()?;
        let mut reader = load(lab, &daemon, "there", &["--ios=8", "--timeout=600"])?;
        let hangs = wait_told(&daemon, "datastore hangs")?;
        ensure!(hangs["object"] == json!({"kind": "datastore", "name": "far"}), "{hangs:#}");
        far.heal();
        let again = wait_told(&daemon, "datastore answers again")?;
        ensure!(again["why"].as_str().is_some_and(|why| why.starts_with("after ")), "{again:#}");
        ensure!(reader.wait(PATIENCE)?.success(), "{}", reader.said());
        Ok(())
    });
}

#[test]
fn a_reservation_that_is_missed_and_a_move_are_told() {
    with_lab(&[], |lab| {
        let daemon = Headgate::start(lab)?;
        let add = ["datastore", "add", "array", "--emulated", "rate=100", "--capacity", "1000"];
        daemon.command(&add)?;
        let create = ["disk", "create", "db", "--size", "8M", "--datastore", "array"];
        daemon.command(&[&create[..], &["--reservation", "500"]].concat())?;
        let mut busy = load(lab, &daemon, "db", &["--depth=64", "--seconds=60"])?;
        let missed = wait_told(&daemon, "disk reservation missed")?;
        let why = missed["why"].as_str().unwrap_or_default();
        ensure!(why.contains("of 500 normalised IOs per second"), "{missed:#}");
        busy.kill()?;
        wait_told(&daemon, "disk reservation met again")?;
        daemon.command(&["disk", "set", "db", "--reservation", "none"])?;
        daemon.command(&["disk", "migrate", "db", "--to", "default"])?;
        let begun = wait_told(&daemon, "disk migrate")?;
        ensure!(begun["result"] == "taken" && begun["disks"] == json!(["db"]), "{begun:#}");
        let ended = wait_told(&daemon, "disk move switched")?;
        ensure!(ended["by"]["kind"] == "daemon", "{ended:#}");
        Ok(())
    });
}
