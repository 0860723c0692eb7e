//! Two hosts never serve one disk: the second is refused with the holder's name, and has it as soon
//! as the first has let go, was killed, or has lost its lease, with all that was flushed.

use crate::tls::text;
use anyhow::{Context, ensure};
use headgate_lab::etcd::Etcd;
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::loop_device::Loop;
use headgate_lab::process::{Finished, Process, run_to_end};
use headgate_lab::tls::{certificates, issue};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Requests of the loads, and how long one goes on that checks.
const DEPTH: &str = "--depth=8";
const WHILE: &str = "--seconds=2";

/// Whether a host serves the disk, and why not.
fn state(daemon: &Headgate) -> anyhow::Result<(String, String)> {
    let disk = daemon.json(&["disk", "show", "db"])?;
    let text = |key: &str| disk[key].as_str().unwrap_or_default().to_owned();
    Ok((text("state"), text("reason")))
}

fn is_serving(daemon: &Headgate) -> anyhow::Result<bool> {
    Ok(state(daemon)?.0 == "serving")
}

/// Runs a command that must be refused because `holder` serves the disk.
fn refused(daemon: &Headgate, holder: &Headgate, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(headgate::binary()?);
    command.args(arguments).env("HEADGATE_STATE_DIR", daemon.state_dir());
    let Finished { status, stderr, .. } = run_to_end(command, MINUTE)?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let named =
        format!("'db' is served by host '{}' (headgate process {})", host.trim(), holder.pid());
    ensure!(
        status.code() == Some(1) && stderr.contains(&named),
        "{arguments:?}: {status}: {stderr}, not {named}"
    );
    Ok(())
}

/// A client that writes, flushes and checks, and keeps what was flushed in a journal.
struct Writer {
    dir: PathBuf,
    runs: u32,
}

impl Writer {
    fn new(lab: &Lab) -> Writer {
        Writer { dir: lab.dir().to_owned(), runs: 0 }
    }

    fn spawn(&mut self, daemon: &Headgate, length: &str) -> anyhow::Result<Process> {
        self.runs += 1;
        let mut command = Command::new(headgate::binary()?);
        command.args([
            "load",
            &daemon.nbd_uri("db"),
            DEPTH,
            length,
            "--read-percent=30",
            "--flush-every=16",
        ]);
        command.args(["--verify", "--timeout=5", "--journal"]).arg(self.dir.join("journal"));
        Process::spawn("headgate load", command, &self.dir.join(format!("load-{}.log", self.runs)))
    }

    /// Checks what earlier runs left, and writes on.
    fn checks(&mut self, daemon: &Headgate) -> anyhow::Result<()> {
        let status = self.spawn(daemon, WHILE)?.wait(MINUTE)?;
        let log = fs::read_to_string(self.dir.join(format!("load-{}.log", self.runs)))?;
        ensure!(status.success(), "{status}: {log}");
        Ok(())
    }

    /// Writes until the client is cut off, which `cut` brings about.
    fn is_cut_off_by<T>(
        &mut self,
        daemon: &mut Headgate,
        cut: impl FnOnce(&mut Headgate) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let before = daemon.metrics()?.ops("db")?;
        let mut load = self.spawn(daemon, "--seconds=3600")?;
        wait_for("the client should write", MINUTE, || {
            load.ensure_running()?;
            Ok((daemon.metrics()?.ops("db")? > before + 500.0).then_some(()))
        })?;
        let outcome = cut(daemon)?;
        let status = load.wait(MINUTE)?;
        ensure!(!status.success(), "the client noticed nothing");
        Ok(outcome)
    }
}

/// Two daemons with one directory as their datastore `shared`, in which the first has made disk
/// `db`.
fn two_on_a_directory(lab: &Lab) -> anyhow::Result<([Headgate; 2], PathBuf)> {
    let dir = lab.subdir("shared")?;
    let hosts =
        [Headgate::start_as(lab, "one", &[], &[])?, Headgate::start_as(lab, "two", &[], &[])?];
    for host in &hosts {
        host.command(&["datastore", "add", "shared", "--dir", &dir.display().to_string()])?;
    }
    hosts[0].command(&["disk", "create", "db", "--datastore=shared", "--size=16M"])?;
    Ok((hosts, dir.join("db.img.lease")))
}

const TAKE: [&str; 4] = ["disk", "takeover", "db", "--datastore=shared"];
const TAKE_BACK: [&str; 3] = ["disk", "takeover", "db"];

#[test]
fn a_disk_goes_from_host_to_host_and_is_never_at_two() {
    with_lab(&[], |lab| {
        let ([mut one, mut two], _) = two_on_a_directory(lab)?;
        let mut writer = Writer::new(lab);
        refused(&two, &one, &TAKE)?;
        refused(&two, &one, &["disk", "create", "db", "--datastore=shared", "--size=16M"])?;
        writer.is_cut_off_by(&mut one, Server::kill)?;
        two.command_for(MINUTE, &TAKE)?;
        writer.checks(&two)?;

        // The first comes back, sees who has its disk, and does not lay hands on it.
        one.start_again()?;
        let (now, reason) = state(&one)?;
        ensure!(
            now == "failed" && reason.contains(&format!("process {})", two.pid())),
            "{now}: {reason}"
        );
        refused(&one, &two, &TAKE_BACK)?;
        refused(&one, &two, &["disk", "remove", "db", "--force"])?;
        writer.checks(&two)?;

        // In good order: the daemon stops, or lets go of this disk alone.
        two.stop()?;
        one.command(&TAKE_BACK)?;
        writer.checks(&one)?;
        two.start_again()?;
        refused(&two, &one, &TAKE_BACK)?;
        one.command(&["disk", "remove", "db", "--keep-image"])?;
        two.command(&TAKE_BACK)?;
        writer.checks(&two)?;
        ensure!(two.metrics()?.plain("headgate_leases_lost_total")? == 0.0);
        two.command(&["disk", "remove", "db"])?;
        [one, two].iter_mut().try_for_each(Server::stop)
    });
}

#[test]
fn a_host_that_lost_its_lease_stops_before_another_starts() {
    with_lab(&[], |lab| {
        let ([mut one, two], lease) = two_on_a_directory(lab)?;
        let mut writer = Writer::new(lab);
        // Removed: the first makes it good, unless another was quicker.
        writer.is_cut_off_by(&mut one, |_| {
            wait_for("the second should get at the file first", MINUTE, || {
                fs::remove_file(&lease)?;
                Ok(two.command_for(MINUTE, &TAKE).ok())
            })
        })?;
        let (now, reason) = state(&one)?;
        ensure!(
            now == "failed" && reason.contains(&format!("process {})", two.pid())),
            "{now}: {reason}"
        );
        ensure!(one.metrics()?.plain("headgate_leases_lost_total")? == 1.0, "the loss is counted");
        writer.checks(&two)?;

        // Overwritten, as by another host on storage whose locks do not reach the first.
        let mut two = two;
        writer.is_cut_off_by(&mut two, |two| {
            let text = fs::read_to_string(&lease)?;
            let id = serde_json::from_str::<serde_json::Value>(&text)?["holder"]["host"].clone();
            let id = id.as_str().context("no host")?.to_owned();
            fs::write(&lease, text.replace(&id, "00000000000000000000000000000000"))?;
            wait_for("the holder should stop", MINUTE, || Ok((!is_serving(two)?).then_some(())))
        })?;
        one.command_for(MINUTE, &TAKE_BACK)?;
        writer.checks(&one)?;
        [one, two].iter_mut().try_for_each(Server::stop)
    });
}

/// A block device that hosts share; `None`, aloud, where there are no loop devices.
fn device(lab: &Lab) -> anyhow::Result<Option<Loop>> {
    let file = lab.dir().join("device");
    fs::File::create(&file)?.set_len(16 << 20)?;
    let device = Loop::attach(&file);
    if device.is_none() {
        eprintln!("SKIPPED: no loop devices here");
    }
    Ok(device)
}

#[test]
fn hosts_that_share_a_device_have_their_leases_in_etcd_which_may_die() {
    with_lab(&["losetup"], |lab| {
        let Some(device) = device(lab)? else { return Ok(()) };
        let mut etcd = Etcd::start(lab)?;
        let start = |name| Headgate::start_as(lab, name, &[], &["--etcd", &etcd.url()]);
        let (mut one, mut two) = (start("one")?, start("two")?);
        let block = device.0.display().to_string();
        for host in [&one, &two] {
            host.command(&["datastore", "add", "shared", "--block", &block])?;
        }
        one.command(&["disk", "create", "db", "--datastore=shared"])?;
        let mut writer = Writer::new(lab);
        refused(&two, &one, &TAKE)?;
        refused(&two, &one, &["disk", "create", "db", "--datastore=shared"])?;
        writer.is_cut_off_by(&mut one, Server::kill)?;
        // A host is dead when its lease has run out.
        refused(&two, &one, &TAKE)?;
        wait_for("the lease should run out", MINUTE, || Ok(two.command_for(MINUTE, &TAKE).ok()))?;
        writer.checks(&two)?;
        one.start_again()?;
        refused(&one, &two, &TAKE_BACK)?;

        // Without etcd the disk serves on until its term is nearly over, then stops, and goes on
        // when etcd is back.
        writer.is_cut_off_by(&mut two, |two| {
            etcd.kill()?;
            sleep(Duration::from_secs(1));
            ensure!(is_serving(two)?, "stopped at once");
            wait_for("the disk should stop", MINUTE, || Ok((!is_serving(two)?).then_some(())))
        })?;
        let metrics = two.metrics()?;
        ensure!(metrics.plain("headgate_etcd_up")? == 0.0, "etcd is down");
        etcd.start_again()?;
        wait_for("the disk should go on", MINUTE, || Ok(is_serving(&two)?.then_some(())))?;
        writer.checks(&two)?;
        refused(&one, &two, &TAKE_BACK)?;

        // A daemon that is killed and started again needs not wait for its own lease.
        two.kill()?;
        two.start_again()?;
        ensure!(is_serving(&two)?, "{:?}", state(&two)?);
        // In good order, and by force.
        two.stop()?;
        one.command(&TAKE_BACK)?;
        writer.checks(&one)?;
        two.start_again()?;
        refused(&two, &one, &TAKE_BACK)?;
        writer.is_cut_off_by(&mut one, |_| {
            two.command_for(MINUTE, &[&TAKE_BACK[..], &["--evict"]].concat())
        })?;
        ensure!(!is_serving(&one)?, "the evicted host serves on");
        writer.checks(&two)?;
        [one, two].iter_mut().try_for_each(Server::stop)
    });
}

/// A member of three that dies is no reason to stop, whichever it is; two are, until one is back.
#[test]
fn hosts_keep_their_disks_while_members_of_etcd_die() {
    with_lab(&["losetup"], |lab| {
        let Some(device) = device(lab)? else { return Ok(()) };
        let mut members = Etcd::cluster::<3>(lab)?;
        let urls = members.each_ref().map(Etcd::url).join(",");
        let start = |name: &str| -> anyhow::Result<Headgate> {
            let daemon = Headgate::start_as(lab, name, &[], &["--etcd", &urls])?;
            daemon.command(&["datastore", "add", "shared", "--block", text(&device.0)])?;
            Ok(daemon)
        };
        let [mut one, mut two] = [start("one")?, start("two")?];
        one.command(&["disk", "create", "db", "--datastore=shared"])?;
        let mut writer = Writer::new(lab);
        writer.checks(&one)?;
        for member in &mut members {
            member.kill()?;
            // Longer than a lease's term.
            sleep(Duration::from_secs(12));
            ensure!(is_serving(&one)?, "{:?}", state(&one)?);
            refused(&two, &one, &TAKE)?;
            writer.checks(&one)?;
            member.start_again()?;
        }
        let metrics = one.metrics()?;
        ensure!(metrics.plain("headgate_leases_lost_total")? == 0.0, "it lost a lease");
        // Two that cannot agree with anybody promise nothing.
        let [first, second, _] = &mut members;
        writer.is_cut_off_by(&mut one, |one| {
            first.kill()?;
            second.kill()?;
            wait_for("the disk should stop", MINUTE, || Ok((!is_serving(one)?).then_some(())))
        })?;
        first.start_again()?;
        wait_for("the disk should go on", MINUTE, || Ok(is_serving(&one)?.then_some(())))?;
        writer.checks(&one)?;
        refused(&two, &one, &TAKE)?;
        one.stop()?;
        two.command(&TAKE)?;
        writer.checks(&two)?;
        two.stop()
    });
}

/// etcd's user, as the file of `--etcd-credentials` has it.
const LOGIN: &str = "hg:pass:word";

/// An etcd that demands certificates and passwords, and what its clients need.
struct Guarded {
    etcd: Etcd,
    authority: PathBuf,
    login: PathBuf,
    block: String,
}

impl Guarded {
    fn start(lab: &Lab, device: &Path) -> anyhow::Result<Guarded> {
        let [authority, dir, login] =
            ["authority", "etcd-tls", "login"].map(|name| lab.dir().join(name));
        certificates(&["init", text(&authority)])?;
        issue(&authority, "both", "127.0.0.1", &dir)?;
        fs::write(&login, LOGIN)?;
        let (user, password) = LOGIN.split_once(':').context("no password")?;
        let mut etcd = Etcd::start(lab)?;
        etcd.enable_users(user, password)?;
        etcd.secure(&dir, &authority)?;
        Ok(Guarded { etcd, authority, login, block: text(device).to_owned() })
    }

    /// A host with a certificate of its own, and the user in this file.
    fn host(&self, lab: &Lab, name: &str, login: &Path) -> anyhow::Result<Headgate> {
        let tls = lab.dir().join(format!("{name}-tls"));
        issue(&self.authority, "client", &format!("{name}.example"), &tls)?;
        let url = self.etcd.url();
        let words = [
            &["--etcd", &url, "--etcd-tls", text(&tls), "--etcd-credentials", text(login)][..],
            // Landlock, where there is one, keeps the daemon to what it was told of.
            &["--allow-block", &self.block],
        ];
        let daemon = Headgate::start_as(lab, name, &[], &words.concat())?;
        let place = ["--board=etcd=shared", "--latency-threshold=20ms", "--window-period=1s"];
        let add = ["datastore", "add", "shared", "--block", &self.block];
        daemon.command(&[&add[..], &place].concat())?;
        Ok(daemon)
    }
}

/// How many other hosts this one sees on the board.
fn met(daemon: &Headgate) -> anyhow::Result<usize> {
    let datastore = daemon.json(&["datastore", "show", "shared"])?;
    Ok(datastore["window"]["now"]["hosts"].as_array().map_or(0, Vec::len))
}

/// A daemon that does not start, and says why.
fn does_not_start(lab: &Lab, arguments: &[&str], words: &str) -> anyhow::Result<()> {
    let mut command = Command::new(headgate::binary()?);
    command.arg("serve").args(arguments).arg("--state-dir").arg(lab.subdir("not-started")?);
    let Finished { status, stderr, .. } = run_to_end(command, MINUTE)?;
    ensure!(!status.success() && stderr.contains(words), "{status}: {stderr}, not {words}");
    Ok(())
}

#[test]
fn hosts_meet_in_an_etcd_that_demands_certificates_and_passwords() {
    with_lab(&["losetup"], |lab| {
        let Some(device) = device(lab)? else { return Ok(()) };
        let mut guarded = Guarded::start(lab, &device.0)?;
        let [mut one, mut two] =
            [guarded.host(lab, "one", &guarded.login)?, guarded.host(lab, "two", &guarded.login)?];
        one.command(&["disk", "create", "db", "--datastore=shared"])?;
        let mut writer = Writer::new(lab);
        writer.checks(&one)?;
        refused(&two, &one, &TAKE)?;
        wait_for("the hosts should meet", MINUTE, || {
            Ok((met(&one)? == 1 && met(&two)? == 1).then_some(()))
        })?;
        one.stop()?;
        two.command(&TAKE)?;
        writer.checks(&two)?;
        // An etcd that starts again has forgotten whom it let in.
        guarded.etcd.kill()?;
        guarded.etcd.start_again()?;
        one.start_again()?;
        refused(&one, &two, &TAKE_BACK)?;
        sleep(Duration::from_secs(12));
        ensure!(is_serving(&two)?, "{:?}", state(&two)?);
        ensure!(two.metrics()?.plain("headgate_leases_lost_total")? == 0.0, "it lost a lease");
        writer.is_cut_off_by(&mut two, Server::kill)?;
        wait_for("the lease should run out", MINUTE, || {
            Ok(one.command_for(MINUTE, &TAKE_BACK).ok())
        })?;
        writer.checks(&one)?;

        // Who has another password has no disk.
        let wrong = lab.dir().join("wrong");
        fs::write(&wrong, "hg:guess")?;
        let third = guarded.host(lab, "three", &wrong)?;
        let error = third.command(&TAKE).expect_err("a disk without a lease").to_string();
        let expected = "does not let user 'hg' in";
        ensure!(error.contains(expected) && error.contains("--etcd-credentials"), "{error}");
        let url = guarded.etcd.url();
        does_not_start(lab, &["--etcd", &url], "give --etcd-tls DIR")?;
        let tls = lab.dir().join("one-tls");
        let plain = ["--etcd", "http://127.0.0.1:1", "--etcd-tls", text(&tls)];
        does_not_start(lab, &plain, "would be reached without TLS")?;
        let empty = ["--etcd", &url, "--etcd-tls", text(lab.dir())];
        does_not_start(lab, &empty, "ca-cert.pem")?;
        for daemon in [&one, &two, &third] {
            let log = daemon.log()?;
            ensure!(!log.contains("pass:word") && !log.contains("guess"), "a password: {log}");
            ensure!(log.contains("everybody may read the password for etcd"), "{log}");
        }
        [one, third].iter_mut().try_for_each(Server::stop)
    });
}
