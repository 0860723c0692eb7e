//! Who may do what: users of one host try to reach each other's disks, and the daemon's files.

use anyhow::{Context, bail, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::{Lab, Server, nbd, wait_for, with_lab};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The users of two machines, and a third in the group of all other disks. None has a name.
const RED: u32 = 4701;
const BLUE: u32 = 4702;
const OTHER: u32 = 4703;
const GROUP: u32 = 4801;
const READERS: u32 = 4802;

/// What a shell of that user said, and whether it was content.
fn shell(user: u32, group: u32, script: &str) -> anyhow::Result<(bool, String)> {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
    command.args(["--clear-groups", "sh", "-c", script]);
    let done = command.output().with_context(|| format!("{command:?}"))?;
    let said = [done.stdout, done.stderr].concat();
    Ok((done.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// Every way to a disk of a machine, for one user: whether each lets them in.
struct Ways<'a> {
    daemon: &'a Headgate,
    user: u32,
    group: u32,
}

impl Ways<'_> {
    /// The machine's own NBD socket, if it can be reached: the exports there.
    fn exports(&self, machine: &str) -> anyhow::Result<Option<Vec<String>>> {
        let socket = self.daemon.state_dir().join(format!("machines/{machine}/nbd.sock"));
        self.exports_at(&socket.display().to_string())
    }

    fn exports_at(&self, socket: &str) -> anyhow::Result<Option<Vec<String>>> {
        let list = format!("nbdinfo --list 'nbd+unix:///?socket={socket}'");
        let (done, said) = shell(self.user, self.group, &list)?;
        if !done {
            ensure!(said.contains("Permission denied"), "{said}");
            return Ok(None);
        }
        let names = said.lines().filter_map(|line| line.trim().strip_prefix("export=\""));
        Ok(Some(names.filter_map(|name| name.split_once('"')).map(|(n, _)| n.to_owned()).collect()))
    }

    /// The vhost-user socket of a disk.
    fn connects(&self, path: &str) -> anyhow::Result<bool> {
        let socket = self.daemon.state_dir().join(path);
        // One that speaks another protocol is let in, and then sent away: 7 is no connection.
        let ask = format!("curl -s --max-time 60 --unix-socket '{}' http://x/", socket.display());
        let (_, said) = shell(self.user, self.group, &format!("{ask}; echo status=$?"))?;
        Ok(!said.contains("status=7"))
    }
}

fn daemon(lab: &Lab) -> anyhow::Result<Headgate> {
    fs::set_permissions(lab.dir(), fs::Permissions::from_mode(0o711))?;
    let groups = [format!("--socket-group={GROUP}"), format!("--api-read-group={READERS}")];
    let daemon = Headgate::start_as(lab, "state", &[], &groups.each_ref().map(String::as_str))?;
    fs::set_permissions(daemon.state_dir(), fs::Permissions::from_mode(0o711))?;
    for (disk, vm) in [("a", "red"), ("nbd", "red"), ("b", "blue")] {
        daemon.command(&[
            "disk",
            "create",
            disk,
            "--size=16M",
            "--datastore=default",
            "--vm",
            vm,
        ])?;
    }
    daemon.command(&["disk", "create", "c", "--size=16M", "--datastore=default"])?;
    daemon.command(&["export", "add", "a-backup", "--disk=a", "--priority=10"])?;
    daemon.command(&["vm", "set", "red", "--socket-user", &RED.to_string()])?;
    daemon.command(&["vm", "set", "blue", "--socket-user", &BLUE.to_string()])?;
    Ok(daemon)
}

fn each_has_its_own_and_nothing_else(daemon: &Headgate) -> anyhow::Result<()> {
    let ways = |user, group| Ways { daemon, user, group };
    let all = daemon.nbd_socket().display().to_string();
    let (red, blue, other) = (ways(RED, RED), ways(BLUE, BLUE), ways(OTHER, GROUP));
    let mut exports = red.exports("red")?.context("red cannot use its own socket")?;
    exports.sort();
    // A further export tells its disk's name.
    ensure!(exports == ["a", "a", "nbd"], "red sees {exports:?}");
    ensure!(blue.exports("blue")? == Some(vec!["b".into()]), "{:?}", blue.exports("blue")?);
    let foreign = format!("{}/machines/red/nbd.sock", daemon.state_dir().display());
    let (done, said) = shell(RED, RED, &format!("nbdinfo 'nbd+unix:///b?socket={foreign}'"))?;
    ensure!(
        !done && said.contains("No such file or directory for export"),
        "blue's disk at red's socket: {said}"
    );
    for (who, ways) in [("red", &red), ("other", &other)] {
        ensure!(ways.exports("blue")?.is_none(), "{who} reaches blue's NBD socket");
        ensure!(ways.exports_at(&all)?.is_none(), "{who} reaches the NBD socket of all disks");
        for path in ["vhost/b.sock", "machines/blue/b.vhost"] {
            ensure!(!ways.connects(path)?, "{who} reaches {path}");
        }
    }
    ensure!(red.connects("vhost/a.sock")? && red.connects("machines/red/a.vhost")?);
    ensure!(other.connects("vhost/c.sock")? && !red.connects("vhost/c.sock")?);
    Ok(())
}

#[test]
fn the_user_of_a_machine_reaches_its_disks_and_no_others() {
    with_lab(&["setpriv", "nbdinfo", "curl"], |lab| {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root, to be other users");
            return Ok(());
        }
        let mut daemon = daemon(lab)?;
        each_has_its_own_and_nothing_else(&daemon)?;
        daemon.kill()?;
        daemon.start_again()?;
        each_has_its_own_and_nothing_else(&daemon)?;
        daemon.command(&["disk", "set", "a", "--vm", "blue"])?;
        let ways = |user, group| Ways { daemon: &daemon, user, group };
        let (red, blue) = (ways(RED, RED), ways(BLUE, BLUE));
        ensure!(red.exports("red")? == Some(vec!["nbd".into()]), "{:?}", red.exports("red")?);
        ensure!(!red.connects("vhost/a.sock")? && blue.connects("machines/blue/a.vhost")?);
        daemon.command(&["disk", "remove", "nbd"])?;
        ensure!(!daemon.state_dir().join("machines/red").exists(), "the last disk is gone");
        daemon.command(&["vm", "reset", "blue"])?;
        ensure!(ways(OTHER, GROUP).connects("vhost/a.sock")? && !blue.connects("vhost/a.sock")?);
        daemon.stop()
    });
}

/// Connects as a user: the kernel tells the daemon so for as long as the connection lasts.
fn connect_as(user: u32, path: PathBuf) -> anyhow::Result<UnixStream> {
    let connect = move || -> anyhow::Result<UnixStream> {
        // Of this thread alone, which ends at once.
        set_thread_groups(&[])?;
        set_thread_gid(Gid::from_raw(user))?;
        set_thread_uid(Uid::from_raw(user))?;
        let stream = UnixStream::connect(&path).with_context(|| path.display().to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(stream)
    };
    std::thread::spawn(connect).join().expect("the thread that connects")
}

/// The front-ends of two machines, and an NBD client of one.
struct Connected {
    red_front_end: UnixStream,
    red_client: nbd::Client,
    blue_front_end: UnixStream,
}

impl Connected {
    fn to(daemon: &Headgate) -> anyhow::Result<Connected> {
        let state = daemon.state_dir();
        let over = connect_as(RED, state.join("machines/red/nbd.sock"))?;
        let mut red_client = nbd::Handshake::over(over)?.go("nbd")?;
        red_client.read(0, 4096)?;
        let connected = Connected {
            red_front_end: connect_as(RED, state.join("machines/red/a.vhost"))?,
            red_client,
            blue_front_end: connect_as(BLUE, state.join("vhost/b.sock"))?,
        };
        for disk in ["a", "b"] {
            wait_for("the front-end should be connected", Duration::from_secs(30), || {
                let shown = daemon.json(&["disk", "show", disk])?;
                Ok((shown["clients"] == 1).then_some(()))
            })?;
        }
        Ok(connected)
    }

    /// Whether a front-end is sent away: the daemon says nothing that it was not asked.
    fn is_over(front_end: &mut UnixStream) -> anyhow::Result<()> {
        match front_end.read(&mut [0; 1]) {
            Ok(0) => Ok(()),
            other => bail!("the front-end stays: {other:?}"),
        }
    }

    /// Blue's goes on, also over the end of others.
    fn blue_stays(&mut self, daemon: &Headgate) -> anyhow::Result<()> {
        self.blue_front_end.set_nonblocking(true)?;
        let read = self.blue_front_end.read(&mut [0; 1]);
        ensure!(read.is_err_and(|e| e.kind() == ErrorKind::WouldBlock), "blue was sent away");
        ensure!(daemon.json(&["disk", "show", "b"])?["clients"] == 1);
        Ok(())
    }
}

#[test]
fn a_right_that_is_taken_away_ends_what_is_connected() {
    with_lab(&["setpriv"], |lab| {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root, to be other users");
            return Ok(());
        }
        let mut daemon = daemon(lab)?;
        let mut first = Connected::to(&daemon)?;
        // What changes nothing of it ends nothing.
        daemon.command(&["vm", "set", "red", "--max-priority", "9"])?;
        daemon.command(&["vm", "set", "red", "--socket-group", &GROUP.to_string()])?;
        first.red_client.read(0, 4096)?;
        daemon.command(&["vm", "set", "red", "--socket-user", &OTHER.to_string()])?;
        Connected::is_over(&mut first.red_front_end)?;
        first.red_client.expect_hangup()?;
        first.blue_stays(&daemon)?;
        let log = daemon.log()?;
        let told = log.lines().filter(|line| line.contains("may not use this disk any more"));
        ensure!(told.count() == 2, "one line for each disk:\n{log}");

        daemon.command(&["vm", "set", "red", "--socket-user", &RED.to_string()])?;
        drop(first);
        let mut second = Connected::to(&daemon)?;
        for disk in ["a", "nbd"] {
            daemon.command(&["disk", "set", disk, "--vm", "blue"])?;
        }
        Connected::is_over(&mut second.red_front_end)?;
        second.red_client.expect_hangup()?;
        second.blue_stays(&daemon)?;
        daemon.stop()
    });
}

/// As the user of a machine, and as a member of the group of all other disks.
#[test]
fn who_has_a_disk_cannot_touch_the_daemons_files_or_its_api() {
    with_lab(&["setpriv", "nbdinfo", "curl"], |lab| {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root, to be other users");
            return Ok(());
        }
        let mut daemon = daemon(lab)?;
        let state = daemon.state_dir().display().to_string();
        let forbidden = [
            "mv vhost/b.sock vhost/.stolen",
            "mv machines/blue machines/.stolen",
            "rm vhost/b.sock",
            "rm machines/red/nbd.sock",
            "ln -s /etc/shadow default/planted.img",
            "ls .",
            "ls machines",
            "ls machines/blue",
            "ls default",
            "cat catalog.sqlite",
            "cat host-id",
            "cat default/b.img",
            "curl -sf --unix-socket headgate.sock http://x/v1/disks",
        ];
        for (user, group) in [(RED, RED), (OTHER, GROUP)] {
            for script in forbidden {
                let (done, said) = shell(user, group, &format!("cd {state} && {script}"))?;
                ensure!(!done, "user {user} in group {group} could: {script}\n{said}");
            }
        }
        let read = "curl -sf --unix-socket headgate.sock http://x/v1/disks";
        let change = "curl -sf -X DELETE --unix-socket headgate.sock http://x/v1/disks/c";
        let (done, said) = shell(OTHER, READERS, &format!("cd {state} && {read}"))?;
        ensure!(done && said.contains("\"name\":\"b\""), "readers cannot read: {said}");
        let (done, said) = shell(OTHER, READERS, &format!("cd {state} && {change}"))?;
        ensure!(!done, "readers can change: {said}");
        ensure!(daemon.json(&["disk", "show", "c"])?["state"] == "serving");
        daemon.stop()
    });
}

#[test]
fn a_user_that_cannot_open_a_socket_is_named_when_the_disk_is_attached() {
    with_lab(&[], |lab| {
        let mut daemon = daemon(lab)?;
        let attach = |user: u32, disk: &str| {
            daemon.json(&["disk", "attach", disk, "--user", &user.to_string()])
        };
        ensure!(attach(RED, "a")?["vhost_obstacle"].is_null());
        let told = attach(BLUE, "a")?["vhost_obstacle"].to_string();
        ensure!(told.contains(&format!("user '{BLUE}' may not connect to")), "{told}");
        ensure!(told.contains("vhost/a.sock"), "{told}");
        fs::set_permissions(daemon.state_dir(), fs::Permissions::from_mode(0o700))?;
        let told = attach(RED, "a")?["vhost_obstacle"].to_string();
        ensure!(told.contains("may not go through"), "{told}");
        daemon.stop()
    });
}
