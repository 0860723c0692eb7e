//! Storage that hangs hangs alone: the other disks are served, the API answers, the daemon starts
//! and ends, and what hung comes back without a restart.

use anyhow::{Context, ensure};
use headgate_lab::faulty_fs::FaultyFs;
use headgate_lab::headgate::Headgate;
use headgate_lab::nbd::{CMD_FLUSH, CMD_READ, CMD_WRITE, Client};
use headgate_lab::process::run;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// What waits for nothing that hangs is done long before; what does never is.
const SOON: Duration = Duration::from_secs(30);
const BLOCK: usize = 4096;

/// A daemon with a datastore `far` that can hang, a disk `there` on it, and a disk `here` on
/// another. The file system ends first, or the daemon would wait for it.
fn with_far(lab: &Lab) -> anyhow::Result<Option<(Headgate, FaultyFs)>> {
    let Some(far) = FaultyFs::mount(lab.dir(), "far")? else { return Ok(None) };
    let config = lab.dir().join("config.toml");
    fs::write(&config, "drain-seconds = 2\nshards = 1\n")?;
    let config = config.display().to_string();
    let daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
    daemon.command(&["datastore", "add", "far", "--dir", &far.path().display().to_string()])?;
    daemon.command(&["disk", "create", "there", "--size=16M", "--datastore=far"])?;
    daemon.command(&["disk", "create", "here", "--size=16M", "--datastore=default"])?;
    Ok(Some((daemon, far)))
}

/// Writes, reads and flushes on a disk, each of which must succeed.
fn check_served(daemon: &Headgate, disk: &str) -> anyhow::Result<()> {
    let mut client = Client::connect(daemon.nbd_socket(), disk)?;
    for block in 0..64 {
        let (offset, data) = (block * BLOCK as u64, [block as u8; BLOCK]);
        let written = client.ask((CMD_WRITE, 0), offset, BLOCK as u32, &data)?;
        ensure!(written == Some(0), "{disk}, block {block}: {written:?}");
        ensure!(client.read(offset, BLOCK as u32)? == data, "{disk}, block {block}");
    }
    let flushed = client.ask((CMD_FLUSH, 0), 0, 0, &[])?;
    ensure!(flushed == Some(0), "{disk}: flush {flushed:?}");
    Ok(())
}

fn state(daemon: &Headgate, kind: &str, name: &str) -> anyhow::Result<String> {
    let shown: serde_json::Value = serde_json::from_str(&daemon.get(&format!("/v1/{kind}"))?)?;
    let list = shown.as_array().context("no list")?;
    let one = list.iter().find(|one| one["name"] == name).context("it is not listed")?;
    Ok(one["state"].as_str().context("no state")?.to_owned())
}

fn wait_state(daemon: &Headgate, kind: &str, name: &str, expected: &str) -> anyhow::Result<()> {
    wait_for(&format!("{name} should be {expected}"), 2 * MINUTE, || {
        Ok((state(daemon, kind, name)? == expected).then_some(()))
    })
}

/// Everything that can be asked is answered.
fn check_answers(daemon: &Headgate) -> anyhow::Result<()> {
    for path in ["/v1/disks", "/v1/datastores", "/metrics", "/healthz", "/v1/top", "/v1/vms"] {
        let start = Instant::now();
        daemon.get(path)?;
        println!("{path} answered in {:?}", start.elapsed());
    }
    daemon.command_for(SOON, &["disk", "show", "there"])?;
    daemon.command_for(SOON, &["datastore", "show", "far"]).map(drop)
}

#[test]
fn an_operation_on_storage_that_hangs_holds_up_no_other() {
    with_lab(&["stat"], |lab| {
        let Some((mut daemon, mut far)) = with_far(lab)? else { return Ok(()) };
        far.hang()?;
        let create = ["disk", "create", "lost", "--size=1M", "--datastore=far"];
        thread::scope(|scope| {
            let creations: Vec<_> =
                [(); 3].map(|()| scope.spawn(|| daemon.command_for(2 * MINUTE, &create))).into();
            thread::sleep(Duration::from_millis(500));
            check_answers(&daemon)?;
            let start = Instant::now();
            let on_default = ["disk", "create", "new", "--size=1M", "--datastore=default"];
            daemon.command_for(SOON, &on_default)?;
            daemon.command_for(SOON, &["disk", "set", "there", "--shares=7"])?;
            println!("create and set took {:?}", start.elapsed());
            check_served(&daemon, "new")?;
            for creation in creations {
                let error = creation.join().expect("no panic").err().context("it was created")?;
                let error = format!("{error:#}");
                ensure!(error.contains("hangs") || error.contains("exists already"), "{error}");
            }
            // It is known by now: nothing is placed there, and who asks for it is told at once.
            let any = ["disk", "create", "any", "--size=1M", "--json"];
            match daemon.command_for(SOON, &any) {
                Ok(placed) => {
                    let placed: serde_json::Value = serde_json::from_str(&placed)?;
                    ensure!(placed["datastore"] == "default", "{placed}");
                    daemon.command_for(SOON, &["disk", "remove", "any"])?;
                }
                // This machine's disk may be full.
                Err(e) => ensure!(format!("{e:#}").contains("'far': it hangs"), "{e:#}"),
            }
            ensure!(state(&daemon, "datastores", "far")? == "hung");
            daemon.command_for(SOON, &["disk", "remove", "new"])?;
            check_answers(&daemon)?;
            check_served(&daemon, "here")
        })?;
        far.heal();
        wait_state(&daemon, "datastores", "far", "serving")?;
        wait_for("the lost creation should be undone", MINUTE, || {
            Ok(daemon.command(&["disk", "show", "lost"]).is_err().then_some(()))
        })?;
        daemon.command(&create)?;
        check_served(&daemon, "lost")?;
        let there = daemon.json(&["disk", "show", "there"])?;
        ensure!(there["effective_policy"]["shares"] == 7, "{there}");
        check_served(&daemon, "there")?;
        daemon.stop()
    });
}

/// What emulated storage keeps is in the daemon's own directory, which may be on a file system that
/// hangs.
#[test]
fn the_directory_of_a_datastore_that_is_removed_holds_up_nobody() {
    with_lab(&["stat"], |lab| {
        let mut daemon = Headgate::start_as(lab, "state", &[], &[])?;
        let emulated = lab.subdir("state/emulated")?;
        let Some(mut far) = FaultyFs::mount(&emulated, "array")? else { return Ok(()) };
        daemon.command(&["disk", "create", "here", "--size=16M", "--datastore=default"])?;
        let add = ["datastore", "add", "array", "--emulated=rate=1000"];
        daemon.command(&add)?;
        far.hang()?;
        let remove = ["datastore", "remove", "array"];
        thread::scope(|scope| {
            let removal = scope.spawn(|| daemon.command_for(SOON, &remove));
            thread::sleep(Duration::from_millis(500));
            // The catalog is nobody's meanwhile.
            daemon.command_for(
                SOON,
                &["disk", "create", "new", "--size=1M", "--datastore=default"],
            )?;
            daemon.command_for(SOON, &["disk", "set", "here", "--shares=7"])?;
            daemon.get("/v1/datastores")?;
            check_served(&daemon, "new")?;
            removal.join().expect("no panic")?;
            ensure!(is_gone(&daemon, "array")?, "it is listed still");
            // Another of its name waits for it, and not for ever.
            let again = daemon.command_for(2 * MINUTE, &add);
            let error = again.err().context("it was added")?;
            ensure!(format!("{error:#}").contains("hangs"), "{error:#}");
            check_served(&daemon, "here")
        })?;
        far.heal();
        wait_for("it should be added", MINUTE, || Ok(daemon.command(&add).ok()))?;
        daemon.command(&["disk", "create", "there", "--size=16M", "--datastore=array"])?;
        check_served(&daemon, "there")?;
        daemon.stop()
    });
}

fn is_gone(daemon: &Headgate, datastore: &str) -> anyhow::Result<bool> {
    let shown: serde_json::Value = serde_json::from_str(&daemon.get("/v1/datastores")?)?;
    let list = shown.as_array().context("no list")?;
    Ok(list.iter().all(|one| one["name"] != datastore))
}

#[test]
fn a_start_serves_what_answers_and_goes_on_with_the_rest() {
    with_lab(&["stat"], |lab| {
        let Some((mut daemon, mut far)) = with_far(lab)? else { return Ok(()) };
        daemon.stop()?;
        far.hang()?;
        let start = Instant::now();
        daemon.start_again()?;
        println!("it serves after {:?}", start.elapsed());
        check_served(&daemon, "here")?;
        check_answers(&daemon)?;
        let known = state(&daemon, "datastores", "far")?;
        ensure!(known == "hung", "far is {known}");
        far.heal();
        wait_state(&daemon, "disks", "there", "serving")?;
        check_served(&daemon, "there")?;
        // One that fails is tried again, too.
        daemon.stop()?;
        far.set(headgate_lab::faulty_fs::Fault::Fail(libc::EIO));
        daemon.start_again()?;
        check_served(&daemon, "here")?;
        ensure!(state(&daemon, "datastores", "far")? == "failed");
        far.heal();
        wait_state(&daemon, "disks", "there", "serving")?;
        check_served(&daemon, "there")?;
        daemon.stop()
    });
}

#[test]
fn a_stop_ends_whatever_hangs_and_the_next_start_serves_the_others() {
    with_lab(&["stat"], |lab| {
        let Some((mut daemon, mut far)) = with_far(lab)? else { return Ok(()) };
        let mut stuck = Client::connect(daemon.nbd_socket(), "there")?;
        far.hang()?;
        for request in 0..16 {
            stuck.send((CMD_READ, 0), request, request * BLOCK as u64, BLOCK as u32, &[])?;
        }
        check_served(&daemon, "here")?;
        let start = Instant::now();
        // The lab gives it a minute.
        daemon.stop()?;
        println!("it ended after {:?}", start.elapsed());
        daemon.start_again()?;
        check_served(&daemon, "here")?;
        far.heal();
        wait_state(&daemon, "disks", "there", "serving")?;
        check_served(&daemon, "there")?;
        daemon.stop()
    });
}

#[test]
fn requests_that_hang_in_a_file_system_stop_no_other_disk() {
    with_lab(&["stat"], |lab| {
        let Some((mut daemon, mut far)) = with_far(lab)? else { return Ok(()) };
        let mut stuck = Client::connect(daemon.nbd_socket(), "there")?;
        far.hang()?;
        // More than the window lets through, of all kinds.
        for request in 0..80 {
            let offset = request % 1024 * BLOCK as u64;
            stuck.send((CMD_READ, 0), request, offset, BLOCK as u32, &[])?;
            stuck.send((CMD_FLUSH, 0), 1000 + request, 0, 0, &[])?;
            let data = [1; BLOCK];
            stuck.send((CMD_WRITE, 0), 2000 + request, offset, BLOCK as u32, &data)?;
        }
        for _ in 0..20 {
            check_served(&daemon, "here")?;
            thread::sleep(Duration::from_millis(100));
        }
        wait_state(&daemon, "datastores", "far", "hung")?;
        check_answers(&daemon)?;
        far.heal();
        let mut answered = 0;
        while answered < 240 {
            let (error, handle) = stuck.reply()?.context("the daemon hung up")?;
            ensure!(error == 0, "request {handle}: error {error}");
            if handle < 1000 {
                let mut data = [0; BLOCK];
                std::io::Read::read_exact(&mut stuck.stream, &mut data)?;
            }
            answered += 1;
        }
        wait_state(&daemon, "datastores", "far", "serving")?;
        daemon.stop()
    });
}

#[test]
fn leases_are_looked_at_while_another_directory_hangs() {
    with_lab(&["stat"], |lab| {
        let Some((mut daemon, mut far)) = with_far(lab)? else { return Ok(()) };
        far.hang()?;
        // Two looks, so that one hangs.
        thread::sleep(Duration::from_secs(3));
        let lease = daemon.image("here")?.with_extension("img.lease");
        let text = fs::read_to_string(&lease)?;
        let mut said: serde_json::Value = serde_json::from_str(&text)?;
        said["holder"]["name"] = "thief".into();
        fs::write(&lease, format!("{said}\n"))?;
        wait_for("the lost disk should be stopped", SOON, || {
            let here = daemon.get("/v1/disks/here")?;
            let here: serde_json::Value = serde_json::from_str(&here)?;
            let stopped = here["state"] == "failed" && here["reason"].to_string().contains("thief");
            Ok(stopped.then_some(()))
        })?;
        far.heal();
        daemon.stop()
    });
}

fn signal(name: &str, server: &Headgate) -> anyhow::Result<()> {
    let mut command = Command::new("kill");
    command.args([name, &server.pid().to_string()]);
    run(command, MINUTE).map(drop)
}

#[test]
fn a_server_that_is_silent_is_noticed_and_holds_up_nobody() {
    with_lab(&[], |lab| {
        let server = Headgate::start_as(lab, "server", &[], &[])?;
        for disk in ["one", "two"] {
            server.command(&["disk", "create", disk, "--size=16M", "--datastore=default"])?;
        }
        let mut daemon = Headgate::start_as(lab, "state", &[], &[])?;
        let uri = format!("nbd+unix:///?socket={}", server.nbd_socket().display());
        daemon.command(&["datastore", "add", "far", "--nbd", &uri])?;
        daemon.command(&["disk", "create", "there", "--datastore=far", "--export=one"])?;
        daemon.command(&["disk", "create", "here", "--size=16M", "--datastore=default"])?;
        check_served(&daemon, "there")?;
        let mut stuck = Client::connect(daemon.nbd_socket(), "there")?;
        signal("-STOP", &server)?;
        for request in 0..8 {
            stuck.send((CMD_READ, 0), request, 0, BLOCK as u32, &[])?;
        }
        let create = ["disk", "create", "more", "--datastore=far", "--export=two"];
        thread::scope(|scope| {
            let creations: Vec<_> =
                (0..20).map(|_| scope.spawn(|| daemon.command_for(2 * MINUTE, &create))).collect();
            thread::sleep(Duration::from_secs(1));
            let start = Instant::now();
            check_answers(&daemon)?;
            println!("all questions were answered in {:?}", start.elapsed());
            daemon.command_for(
                SOON,
                &["disk", "create", "new", "--size=1M", "--datastore=default"],
            )?;
            check_served(&daemon, "here")?;
            for creation in creations {
                ensure!(creation.join().expect("no panic").is_err(), "it was created");
            }
            println!("all creations had an answer after {:?}", start.elapsed());
            anyhow::Ok(())
        })?;
        wait_state(&daemon, "datastores", "far", "hung")?;
        let health = daemon.get("/healthz")?;
        ensure!(health.contains("degraded") && health.contains("'far' hangs"), "{health}");
        signal("-CONT", &server)?;
        wait_state(&daemon, "datastores", "far", "serving")?;
        for _ in 0..8 {
            let (error, _) = stuck.reply()?.context("the daemon hung up")?;
            ensure!(error == 0, "error {error}");
            let mut data = [0; BLOCK];
            std::io::Read::read_exact(&mut stuck.stream, &mut data)?;
        }
        check_served(&daemon, "there")?;
        daemon.stop()
    });
}
