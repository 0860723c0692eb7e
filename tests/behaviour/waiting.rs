//! How shards wait for work: each way serves verified requests over both front-ends, and the
//! metrics say which it is and what it took.

use anyhow::ensure;
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::run;
use headgate_lab::{Server, wait_for, with_lab};
use std::process::Command;
use std::time::Duration;

/// What both front-ends can be asked for.
const LOAD: &str = "--verify --seconds 3 --read-percent 40 --write-zeroes-percent 15 --flush-every 64 \
                    --block-size 512:10,4k:50,64k:30,1M:10";

const MINUTE: Duration = Duration::from_secs(60);

/// Every value of `--waiting`, and the mode that it fixes.
const WAYS: [(&str, Option<&str>); 3] =
    [("adaptive", None), ("plain", Some("sleep")), ("poll", Some("poll-client"))];

#[test]
fn every_way_of_waiting_serves_and_says_what_it_is() {
    with_lab(&[], |lab| {
        for (waiting, fixed) in WAYS {
            let mut daemon = Headgate::start_as(lab, waiting, &[], &["--waiting", waiting])?;
            daemon.command(&["datastore", "add", "ram", "--memory", "64M"])?;
            daemon.command(&["disk", "create", "disk", "--size", "32M", "--datastore", "ram"])?;
            let nbd = format!("nbd+unix:///disk?socket={}", daemon.nbd_socket().display());
            let vhost = daemon.vhost_socket("disk").display().to_string();
            for target in [nbd, vhost] {
                let mut load = Command::new(headgate::binary()?);
                load.arg("load").arg(target).args(LOAD.split_whitespace());
                run(load, MINUTE)?;
            }
            // Readings are as of the shard's last turn; somebody asks it something every second.
            wait_for("requests should be counted", MINUTE, || {
                let served = daemon.metrics()?.sum("headgate_shard_requests_total", &[])?;
                Ok((served > 1000.0).then_some(()))
            })?;
            let metrics = daemon.metrics()?;
            ensure!(metrics.sum("headgate_shard_cpu_seconds_total", &[])? > 0.0);
            ensure!(metrics.sum("headgate_shard_waiting_seconds_total", &[])? > 1.0);
            let shards = metrics.sum("headgate_shard_waiting_mode", &[])?;
            ensure!(shards >= 1.0, "every shard has one mode");
            if let Some(mode) = fixed {
                let of = |name: &str| metrics.sum(name, &[&format!("mode=\"{mode}\"")]);
                ensure!(of("headgate_shard_waiting_mode")? == shards, "{waiting}");
                let (here, all) = (
                    of("headgate_shard_waiting_seconds_total")?,
                    metrics.sum("headgate_shard_waiting_seconds_total", &[])?,
                );
                ensure!(here == all, "{waiting}: {here} of {all} s in {mode}");
            }
            daemon.ensure_running()?;
            daemon.stop()?;
        }
        Ok(())
    });
}
