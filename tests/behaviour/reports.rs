//! Promises that are not kept are told by history and report, with who was in the way, and an
//! auditor's own program comes to the same from the kept samples.

use anyhow::{Context as _, ensure};
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::Headgate;
use headgate_lab::process::run;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Sums of a disk's samples, without any of the daemon's words but the names of columns.
const AUDIT: &str = r#"
    NR == 1 { for (n = 1; n <= NF; n++) at[$n] = n; next }
    $at[of] == name {
        demanded += $at["demanded_seconds"]; short += $at["short_seconds"]
        reserved += $at["reserved_ios"]; received += $at["received_ios"]; missing += $at["missing_ios"]
    }
    END { printf "%.3f %.3f %.3f %.3f %.3f %.6f\n", reserved, received, demanded, short, missing,
          100 * (demanded - short) / demanded }
"#;

/// Two reservations of 300 on storage that gives 400, and a disk that nothing was promised.
fn set_up(lab: &Lab) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    let array = ["datastore", "add", "array", "--emulated", "rate=400", "--queue-depth", "4"];
    daemon.command(&array)?;
    for (disk, vm) in [("victim", "web"), ("flooder", "batch"), ("free", "web")] {
        let made = ["disk", "create", disk, "--size", "64M", "--datastore", "array", "--vm", vm];
        daemon.command(&made)?;
    }
    for (tenant, vm) in [("red", "web"), ("blue", "batch")] {
        daemon.command(&["tenant", "set", tenant])?;
        daemon.command(&["vm", "set", vm, "--tenant", tenant])?;
    }
    for disk in ["victim", "flooder"] {
        daemon.command(&["disk", "set", disk, "--reservation", "300", "--force"])?;
    }
    Ok(daemon)
}

fn report(daemon: &Headgate) -> anyhow::Result<Value> {
    daemon.json(&["report", "--since", "2h"])
}

fn line<'a>(report: &'a Value, of: &str, name: &str) -> anyhow::Result<&'a Value> {
    let mut lines = report[of].as_array().into_iter().flatten();
    let line = lines.find(|line| line["name"] == name);
    Ok(&line.with_context(|| format!("no {name} in {report}"))?["promise"])
}

fn number(value: &Value, name: &str) -> anyhow::Result<f64> {
    value[name].as_f64().with_context(|| format!("no {name} in {value}"))
}

/// What an auditor makes of the samples in which a column says this: reserved, received, demanded,
/// short, missing, kept.
fn audit(lab: &Lab, samples: &str, of: &str, name: &str) -> anyhow::Result<Vec<f64>> {
    let file = lab.dir().join("samples.csv");
    fs::write(&file, samples)?;
    let mut awk = Command::new("awk");
    awk.args(["-F,", "-v", &format!("of={of}"), "-v", &format!("name={name}"), AUDIT]).arg(&file);
    let said = run(awk, MINUTE)?;
    said.split_whitespace().map(|number| Ok(number.parse()?)).collect()
}

#[test]
fn what_was_not_kept_is_reported_and_an_auditor_comes_to_the_same() {
    with_lab(&[], |lab| {
        let daemon = set_up(lab)?;
        let clients = [("flooder", 32), ("victim", 16), ("free", 1)]
            .map(|(disk, depth)| load(lab.dir(), disk, &daemon.nbd_uri(disk), depth));
        wait_for("seconds should be short", MINUTE, || {
            let report = report(&daemon)?;
            let Ok(victim) = line(&report, "disks", "victim") else { return Ok(None) };
            Ok((number(victim, "short_seconds")? > 6.0).then_some(()))
        })?;
        for client in clients {
            end(client?)?;
        }
        // Until nothing is added any more.
        let report_now = wait_for("the report should stand", MINUTE, || {
            let before = report(&daemon)?;
            std::thread::sleep(Duration::from_secs(3));
            let again = report(&daemon)?;
            let same = line(&before, "disks", "victim")?["demanded_seconds"]
                == line(&again, "disks", "victim")?["demanded_seconds"];
            Ok(same.then_some(again))
        })?;
        let victim = line(&report_now, "disks", "victim")?;
        let (demanded, short) =
            (number(victim, "demanded_seconds")?, number(victim, "short_seconds")?);
        ensure!(
            short > 6.0 && demanded >= short && number(victim, "missing_ios")? > 100.0,
            "{victim}"
        );
        let blamed = number(&victim["short_neighbours"], "flooder")?;
        ensure!(blamed > number(&victim["short_waits"], "neighbours")? * 0.5, "{victim}");
        let free = line(&report_now, "disks", "free")?;
        ensure!(free["kept_percent"].is_null(), "nothing was promised: {free}");
        let machine = line(&report_now, "machines", "web")?;
        ensure!(number(machine, "short_seconds")? == short, "{machine}");

        let samples = daemon.command(&["report", "--since", "2h", "--samples"])?;
        let names =
            ["received_ios", "demanded_seconds", "short_seconds", "missing_ios", "kept_percent"];
        for (lines, column, of) in
            [("disks", "disk", "victim"), ("machines", "vm", "web"), ("tenants", "tenant", "red")]
        {
            let told = line(&report_now, lines, of)?;
            let said = audit(lab, &samples, column, of)?;
            for (name, audited) in names.iter().zip(&said[1..]) {
                let reported = number(told, name)?;
                // Whoever keeps a reservation and asks for nothing is promised it, second after
                // second.
                let is_it = (reported - audited).abs() < 0.01;
                ensure!(is_it, "{of}, {name}: {reported}, audited {audited}");
            }
        }
        let [red, blue] = ["red", "blue"].map(|one| line(&report_now, "tenants", one));
        let (red, blue) = (red?, blue?);
        ensure!(number(red, "short_seconds")? == short, "{red}");
        let all = number(&report_now["all"], "received_ios")?;
        let both = number(red, "received_ios")? + number(blue, "received_ios")?;
        ensure!((all - both).abs() < 0.01, "{all} of all, {both} of both tenants");
        eprintln!("victim: {victim}");

        let history = daemon.json(&["disk", "show", "victim", "--history"])?;
        let periods = history.as_array().context("periods")?;
        let named = periods.iter().any(|period| {
            let neighbours = period["blame"]["neighbours"].as_array().into_iter().flatten();
            period["promise"]["short_seconds"].as_f64() > Some(1.0)
                && neighbours.clone().next().is_some_and(|first| first["disk"] == "flooder")
        });
        ensure!(named, "{history}");
        let text = daemon.command(&["report", "--since", "2h", "--vm", "web"])?;
        ensure!(text.contains("flooder") && !text.contains("batch"), "{text}");
        let page = daemon.command(&["report", "--since", "2h", "--format", "html"])?;
        ensure!(page.contains("<td>victim") && page.contains("flooder"), "{page}");
        ensure!(page.contains("<td>web") && page.contains("<td>red"), "{page}");
        let csv = ["report", "--since", "2h", "--tenant", "blue", "--format", "csv"];
        let csv = daemon.command(&csv)?;
        let kinds: Vec<&str> = csv.lines().filter_map(|line| line.split(',').next()).collect();
        ensure!(kinds == ["of", "disk", "machine", "tenant"], "{csv}");
        eprintln!("{text}");
        let mut daemon = daemon;
        daemon.stop()?;

        let mut daemon = Headgate::start_on(lab, "again", daemon.state_dir())?;
        let after = report(&daemon)?;
        let after = line(&after, "disks", "victim")?;
        ensure!(number(after, "short_seconds")? >= short - 0.001, "{after} after {victim}");
        daemon.stop()
    });
}
