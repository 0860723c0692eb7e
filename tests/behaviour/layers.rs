//! Layers above storage, and disks in memory.

use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// How long a client may take that moves a few requests.
const SHORT: Duration = Duration::from_secs(60);

/// Adds a datastore on files with these layers, and a disk on it.
fn add(lab: &Lab, daemon: &Headgate, store: &str, layers: &[&str]) -> anyhow::Result<()> {
    let dir = lab.subdir(&format!("store-{store}"))?;
    let dir = dir.to_string_lossy();
    let mut words = vec!["datastore", "add", store, "--dir", &*dir];
    layers.iter().for_each(|layer| words.extend(["--layer", layer]));
    daemon.command(&words)?;
    let disk = format!("on-{store}");
    daemon.command(&["disk", "create", &disk, "--datastore", store, "--size", "8M"]).map(drop)
}

/// What a disk has counted.
fn stats_of<'a>(stats: &'a serde_json::Value, disk: &str) -> anyhow::Result<&'a serde_json::Value> {
    let stores = stats.as_array().context("no list of datastores")?;
    let mut disks = stores.iter().filter_map(|store| store["disks"].as_array()).flatten();
    Ok(&disks.find(|d| d["name"] == disk).context("no such disk")?["stats"])
}

/// Requests of a disk that failed.
fn failed(daemon: &Headgate, disk: &str) -> anyhow::Result<u64> {
    let stats: serde_json::Value = serde_json::from_str(&daemon.get("/v1/stats")?)?;
    let counted = stats_of(&stats, disk)?;
    let kinds = ["reads", "writes", "flushes", "discards", "write_zeroes", "others"];
    kinds
        .iter()
        .map(|kind| counted[kind]["errors"].as_u64().with_context(|| format!("no {kind}.errors")))
        .sum()
}

#[test]
fn an_error_layer_fails_what_it_names_and_nothing_else() {
    with_lab(&["nbdcopy", "qemu-img", "qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        add(lab, &daemon, "faulty", &["error=100%,on=write,after=3,count=2"])?;
        add(lab, &daemon, "sound", &[])?;
        let (faulty, sound) = (daemon.nbd_uri("on-faulty"), daemon.nbd_uri("on-sound"));

        // Three writes pass and two fail, whatever is read in between.
        tools::qemu_io(&faulty, &["write -P 1 0 4k", "read -P 1 0 4k", "write -P 2 4k 4k"])?;
        tools::qemu_io(&faulty, &["write -P 3 8k 4k", "read -P 2 4k 4k"])?;
        for _ in 0..2 {
            let error = tools::qemu_io(&faulty, &["write -P 9 0 4k"]).err();
            let error = error.context("a write should have failed")?.to_string();
            ensure!(error.contains("Input/output error"), "no EIO: {error}");
        }
        tools::qemu_io(&faulty, &["read -P 1 0 4k", "write -P 4 0 4k", "read -P 4 0 4k"])?;
        ensure!(failed(&daemon, "on-faulty")? == 2, "not two requests failed");

        // A copy fails as its first write does, and the disk beside it is whole.
        let image = lab.dir().join("image.raw");
        let bytes: Vec<u8> =
            (0..MIB).flat_map(|n| headgate_lab::ledger::splitmix(n).to_le_bytes()).collect();
        std::fs::write(&image, bytes)?;
        let image = image.to_string_lossy();
        let set = ["datastore", "set", "faulty", "--layer", "error=100%,on=write"];
        daemon.command(&set)?;
        ensure!(tools::nbdcopy(&image, &faulty).is_err(), "a copy to a disk whose writes fail");
        tools::nbdcopy(&image, &sound)?;
        tools::qemu_img_compare(&sound, &image)?;
        ensure!(failed(&daemon, "on-sound")? == 0, "the other datastore's disk failed");
        daemon.stop()
    });
}

#[test]
fn layers_change_while_requests_are_held_and_outlive_a_restart() {
    with_lab(&["fio"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        add(lab, &daemon, "slow", &["delay=100s,on=write"])?;
        let uri = daemon.nbd_uri("on-slow");
        let options = ["--rw=randwrite", "--bs=4k", "--iodepth=8", "--size=1m", "--number_ios=8"];
        let writer = thread::spawn(move || tools::fio_nbd(&uri, &options, SHORT));
        wait_for("the layer should hold eight writes", SHORT, || {
            let stats: serde_json::Value = serde_json::from_str(&daemon.get("/v1/stats")?)?;
            Ok((stats_of(&stats, "on-slow")?["outstanding"] == 8).then_some(()))
        })?;
        // The layer would hold them for longer than fio may take.
        daemon.command(&["datastore", "set", "slow", "--layer", "stragglers=1000:1ms"])?;
        let report = writer.join().map_err(|_| anyhow::anyhow!("fio panicked"))??;
        ensure!(report["jobs"][0]["error"] == 0, "fio: {report}");
        ensure!(failed(&daemon, "on-slow")? == 0, "a held request was lost");

        daemon.stop()?;
        daemon.start_again()?;
        let layers = daemon.json(&["datastore", "show", "slow"])?["layers"].take();
        ensure!(layers == serde_json::json!(["stragglers=1000:1ms"]), "layers: {layers}");
        let listed = daemon.command(&["datastore", "list"])?;
        ensure!(listed.contains("under stragglers=1000:1ms"), "{listed}");
        daemon.command(&["datastore", "set", "slow", "--layer", "none"])?;
        let layers = daemon.json(&["datastore", "show", "slow"])?["layers"].take();
        ensure!(layers == serde_json::json!([]), "layers: {layers}");

        let bad = ["datastore", "set", "slow", "--layer", "delay=5"];
        let error = daemon.command(&bad).err().context("'delay=5' was taken")?.to_string();
        ensure!(error.contains("delay is a time from 1ns to 100s"), "{error}");
        daemon.stop()
    });
}

#[test]
fn a_trace_has_the_requests_of_a_run() {
    with_lab(&["fio"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        add(lab, &daemon, "traced", &[])?;
        let error = daemon.command(&["datastore", "trace", "traced", "-"]).err();
        let error = error.context("there is no trace layer")?.to_string();
        ensure!(error.contains("--layer trace="), "{error}");
        daemon.command(&["datastore", "set", "traced", "--layer", "trace=4096"])?;

        let uri = daemon.nbd_uri("on-traced");
        let options = [
            "--rw=randread",
            "--bs=16k",
            "--iodepth=4",
            "--size=8m",
            "--number_ios=1500",
            "--norandommap",
        ];
        let report = tools::fio_nbd(&uri, &options, SHORT)?;
        let done = report["jobs"][0]["read"]["total_ios"].as_u64().context("no total_ios")?;
        let file = lab.dir().join("traced.csv");
        let file = file.to_string_lossy();
        daemon.command(&["datastore", "trace", "traced", &file])?;
        let stat = daemon.json(&["trace", "stat", &file])?;
        let disk = &stat["disks"][0];
        ensure!(disk["disk"] == "on-traced", "{stat}");
        let text = std::fs::read_to_string(&*file)?;
        let reads = text.lines().filter(|line| line.contains(",on-traced,R,")).count() as u64;
        ensure!(reads == done, "{reads} reads in the trace, and fio did {done}");
        let sized = text.lines().filter(|line| line.contains(",R,") && line.contains(",16384,"));
        ensure!(sized.count() as u64 == done, "reads of another size");
        daemon.stop()
    });
}

#[test]
fn a_disk_in_memory_keeps_its_data_while_the_daemon_lives() {
    with_lab(&["nbdcopy", "qemu-img", "qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["datastore", "add", "ram", "--memory", "24M"])?;
        daemon.command(&["disk", "create", "fast", "--datastore", "ram", "--size", "16M"])?;
        let more = ["disk", "create", "more", "--datastore", "ram", "--size", "16M"];
        let error = daemon.command(&more).err().context("24M held twice 16M")?.to_string();
        ensure!(error.contains("8388608") || error.contains("8 MiB"), "{error}");
        let shown = daemon.json(&["datastore", "show", "ram"])?;
        ensure!(shown["backend"]["memory"] == 24 * MIB, "{shown}");

        let uri = daemon.nbd_uri("fast");
        let image = lab.dir().join("image.raw");
        let bytes: Vec<u8> =
            (0..2 * MIB).flat_map(|n| headgate_lab::ledger::splitmix(n).to_le_bytes()).collect();
        std::fs::write(&image, bytes)?;
        tools::nbdcopy(&image.to_string_lossy(), &uri)?;
        tools::qemu_img_compare(&uri, &image.to_string_lossy())?;
        // What a user is warned of.
        daemon.stop()?;
        daemon.start_again()?;
        tools::qemu_io(&uri, &["read -P 0 0 16M", "write -P 7 1M 1M", "read -P 7 1M 1M"])?;
        daemon.stop()
    });
}
