//! Tenants as an operator has them: promised something as a whole and bounded by quotas, by
//! commands and by documents, across kills; and a datastore that goes to and fro between disks
//! alone and disks in groups loses no request and no byte.

use anyhow::{Context, ensure};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::{Lab, Server, with_lab};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// A command that must fail: what it says.
fn refused(daemon: &Headgate, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(headgate::binary()?);
    command.args(words).env("HEADGATE_STATE_DIR", daemon.state_dir());
    let finished = run_to_end(command, PATIENCE)?;
    ensure!(finished.status.code() == Some(1), "{words:?}: {}", finished.status);
    Ok(finished.stderr)
}

fn ensure_says(said: &str, words: &[&str]) -> anyhow::Result<()> {
    words.iter().try_for_each(|one| {
        ensure!(said.contains(one), "'{one}' is not in: {said}");
        Ok(())
    })
}

/// A daemon with an array of 2,000 IOPS and a disk on it for each machine.
fn daemon(lab: &Lab, machines: &[&str]) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    daemon.command(&["datastore", "add", "array", "--emulated", "rate=2000"])?;
    for vm in machines {
        let words = ["disk", "create", vm, "--datastore=array", "--size=16M", "--vm", vm];
        daemon.command(&words)?;
    }
    Ok(daemon)
}

fn promised(daemon: &Headgate) -> anyhow::Result<Vec<(String, u64)>> {
    let tenants = daemon.json(&["tenant", "list"])?;
    let of = |tenant: &Value| {
        let on = tenant["datastores"].as_array().context("no datastores")?;
        let sum = on.iter().filter_map(|one| one["promised_iops"].as_u64()).sum();
        Ok((tenant["name"].as_str().context("no name")?.to_owned(), sum))
    };
    tenants.as_array().context("no list")?.iter().map(of).collect()
}

#[test]
fn what_a_tenant_is_promised_survives_a_kill_and_what_does_not_fit_is_said_with_figures() {
    with_lab(&[], |lab| {
        let mut daemon = daemon(lab, &["web", "db", "lone"])?;
        daemon.command(&["tenant", "set", "red", "--reservation=1200", "--max-disks=2"])?;
        for vm in ["web", "db"] {
            daemon.command(&["vm", "set", vm, "--tenant=red"])?;
        }
        daemon.command(&["vm", "set", "web", "--shares=3000", "--limit=900"])?;
        ensure!(promised(&daemon)? == [("red".to_owned(), 1_200)]);
        let said = refused(&daemon, &["disk", "set", "lone", "--reservation=900"])?;
        ensure_says(&said, &["1200 of 2000 IOPS are reserved already", "100 IOPS are missing"])?;
        let said = refused(&daemon, &["disk", "set", "web", "--reservation=901"])?;
        let above = "virtual machine 'web' would promise 901 IOPS to what is in it on datastore \
                     'array', 1 more than its limit of 900 IOPS";
        ensure_says(&said, &[above, "headgate vm set"])?;
        let new = ["disk", "create", "new", "--datastore=array", "--size=1M", "--vm=web"];
        let said = refused(&daemon, &new)?;
        ensure_says(
            &said,
            &["tenant 'red' would have 3 disks, and may have 2", "tenant show red"],
        )?;
        let before = (promised(&daemon)?, daemon.json(&["vm", "show", "web"])?);
        daemon.kill()?;
        daemon.start_again()?;
        ensure!((promised(&daemon)?, daemon.json(&["vm", "show", "web"])?) == before);
        let shown = daemon.command(&["tenant", "show", "red"])?;
        let on = "array: 1200 IOPS promised, 0 to what is in it";
        ensure_says(&shown, &[on, "disks:             2 of at most 2", "db, web"])?;
        let events = daemon.command(&["events", "--json"])?;
        ensure_says(&events, &["tenant set", "vm set"])?;
        ensure_says(&refused(&daemon, &["tenant", "remove", "red"])?, &["--tenant none"])?;
        daemon.stop()
    });
}

#[test]
fn documents_say_tenants_and_machines_and_what_is_printed_is_no_difference() {
    with_lab(&[], |lab| {
        let mut daemon = daemon(lab, &["web", "db"])?;
        let documents = json!({
            "tenants": [{"name": "red", "reservation": 500, "max_space": "1G"}],
            "vms": [{"name": "web", "tenant": "red", "limit": 700}, {"name": "db", "tenant": "red"}],
            "disks": [{"name": "more", "datastore": "array", "size": "1M", "vm": "db",
                       "policy": {"reservation": 300}}],
        });
        let path = lab.dir().join("site.yaml");
        fs::write(&path, documents.to_string())?;
        let file = path.to_str().context("a path that is text")?;
        let said = daemon.command(&["apply", file, "--set=site"])?;
        ensure_says(&said, &["+ tenant red", "max_space 1G", "+ vm web", "+ disk more"])?;
        ensure!(promised(&daemon)? == [("red".to_owned(), 500)]);
        let again = daemon.command(&["apply", file, "--set=site"])?;
        ensure!(!again.contains("tenant red") && !again.contains("vm web"), "{again}");
        let printed = lab.dir().join("printed.yaml");
        fs::write(&printed, daemon.command(&["get"])?)?;
        let text = fs::read_to_string(&printed)?;
        ensure_says(&text, &["tenants:", "max_space: 1G", "vms:"])?;
        let printed = printed.to_str().context("a path that is text")?;
        let same = daemon.command(&["apply", printed, "--dry-run"])?;
        ensure!(!same.contains("tenant") && !same.contains("vm "), "{same}");
        // More than fits changes nothing, of the disks either.
        let larger = documents.to_string().replace("500", "2500");
        fs::write(&path, larger.replace("\"more\"", "\"other\""))?;
        let said = refused(&daemon, &["apply", file, "--set=site"])?;
        ensure_says(&said, &["would have promised 2500", "500 too many"])?;
        ensure!(promised(&daemon)? == [("red".to_owned(), 500)]);
        ensure!(daemon.json(&["disk", "list"])?.as_array().map(Vec::len) == Some(3));
        daemon.stop()
    });
}

#[test]
fn going_to_and_fro_between_disks_and_groups_loses_no_request_and_no_byte() {
    with_lab(&[], |lab| {
        let mut daemon = daemon(lab, &["web", "db", "lone"])?;
        for vm in ["web", "db"] {
            daemon.command(&["tenant", "set", "red"])?;
            daemon.command(&["vm", "set", vm, "--tenant=red"])?;
        }
        let mut loads = Vec::new();
        for disk in ["web", "db", "lone"] {
            let mut command = Command::new(headgate::binary()?);
            command.args(["load", "--verify", "--read-percent=50", "--seconds=12", "--depth=32"]);
            command.args(["--flush-every=64", "--timeout=10"]).arg(daemon.nbd_uri(disk));
            let log = lab.dir().join(format!("load-{disk}.log"));
            loads.push(Process::spawn("headgate load", command, &log)?);
        }
        let mut switches = 0;
        while loads.iter_mut().all(|load| load.ensure_running().is_ok()) && switches < 60 {
            let limit = ["--limit=1500", "--limit=none"][switches % 2];
            daemon.command(&["tenant", "set", "red", limit])?;
            switches += 1;
        }
        ensure!(switches >= 20, "only {switches} switches");
        for mut load in loads {
            let status = load.wait(Duration::from_secs(60))?;
            ensure!(status.success(), "headgate load --verify: {status}\n{}", load.said());
        }
        daemon.stop()
    });
}
