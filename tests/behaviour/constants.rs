//! Constants of the load formula are fitted to what clients did to a device that is not the
//! paper's, and set.

use anyhow::{Context, ensure};
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::{Server, fleet, with_lab};
use serde_json::Value;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// What a client does, three seconds each: requests under way, their size in KiB, reads in per
/// cent. No trait goes with another.
fn works() -> impl Iterator<Item = (u64, u64, u64)> {
    (0..32u64).map(|n| {
        let depth = [1, 24, 4, 12, 2, 32, 8, 16][(n % 8) as usize];
        let size = [4, 64, 16, 128, 32][(n % 5) as usize];
        let reads = [100, 30, 60][(n % 3) as usize];
        (depth, size, reads)
    })
}

fn work(daemon: &Headgate, (depth, size, reads): (u64, u64, u64)) -> anyhow::Result<()> {
    let mut command = Command::new(binary()?);
    command.args(["load", &daemon.nbd_uri("db"), "--seconds=3", "--timeout=120"]);
    command.args([format!("--depth={depth}"), format!("--block-size={size}k")]);
    let done = command.arg(format!("--read-percent={reads}")).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn fit(daemon: &Headgate) -> anyhow::Result<Value> {
    let fit = daemon.json(&["rules", "fit"])?;
    eprintln!("{}", daemon.command(&["rules", "fit"])?);
    Ok(fit)
}

fn intervals(fit: &Value) -> u64 {
    let datastores = fit["datastores"].as_array().map_or(&[][..], Vec::as_slice);
    let of = datastores.iter().filter(|one| one["datastore"] == "plain");
    of.filter_map(|one| one["intervals"].as_u64()).sum()
}

#[test]
fn constants_are_fitted_to_what_clients_did_alone_and_set_once_they_predict_better() {
    with_lab(&[], |lab| {
        let config = lab.dir().join("headgate.toml");
        std::fs::write(&config, "sample-seconds = 2\n")?;
        let config = config.display().to_string();
        let mut daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
        // Without a cache writes are as slow as reads.
        let emulated = ["datastore", "add", "plain", "--emulated", "array=4,raid=0,cache=0"];
        daemon.command(&[&emulated[..], &["--queue-depth=256"]].concat())?;
        for disk in ["db", "other"] {
            daemon.command(&["disk", "create", disk, "--size=64M", "--datastore=plain"])?;
        }
        let clients =
            ["db", "other"].map(|disk| fleet::load(lab.dir(), disk, &daemon.nbd_uri(disk), 4));
        thread::sleep(Duration::from_secs(7));
        let refused = daemon.command(&["rules", "fit", "--apply"]);
        let fitted = fit(&daemon)?;
        clients.into_iter().try_for_each(|client| fleet::end(client?))?;
        ensure!(intervals(&fitted) <= 1, "two were busy: {fitted}");
        let refused = refused.err().context("nothing was told, and it was set")?.to_string();
        ensure!(refused.contains("tell of no factor"), "{refused}");

        works().try_for_each(|one| work(&daemon, one))?;
        // The last interval ends.
        thread::sleep(Duration::from_secs(5));
        let fitted = fit(&daemon)?;
        ensure!(intervals(&fitted) >= 40, "{fitted}");
        for factor in &fitted["factors"].as_array().context("no factors")?[..3] {
            ensure!(factor["intervals"].as_u64() >= Some(40), "{factor}");
        }
        let held_out = |of: &str| fitted[of]["held-out"].as_u64().context("no error");
        let (now, then) = (held_out("error_now")?, held_out("error_fitted")?);
        ensure!(then * 10 <= now * 9, "{fitted}");
        let reads = |of: &Value| of["read"].as_u64();
        ensure!(reads(&fitted["fitted"]) > reads(&fitted["now"]), "reads matter less: {fitted}");

        daemon.command(&["rules", "fit", "--apply"])?;
        let rules = daemon.json(&["rules", "show"])?;
        ensure!(rules["constants"] == fitted["fitted"], "{rules}");
        daemon.stop()?;
        let mut daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
        let again = fit(&daemon)?;
        ensure!(again["now"] == fitted["fitted"], "{again}");
        ensure!(intervals(&again) >= intervals(&fitted), "what was measured is lost: {again}");
        ensure!(again["no_gain"].is_string(), "they are the rules already: {again}");
        daemon.stop()
    });
}
