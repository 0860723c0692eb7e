//! Advice that nobody has to carry out: the rules do, by what is learnt of the load.

use super::Pod;
use anyhow::ensure;
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// When it is clear that nothing begins, and how often one looks.
const NOTHING: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(500);

impl Pod {
    /// Has the rules carry out what they find, and answers what they did. Moves that they make go
    /// at the usual pace, which would take minutes beside eight clients at full load: they are
    /// hurried, as an operator may.
    pub(super) fn carried_by_rules(&self) -> anyhow::Result<Value> {
        let run =
            || -> anyhow::Result<Value> { Ok(self.daemon.json(&["balance"])?["run"].clone()) };
        ensure!(run()?.is_null(), "there was a run before");
        self.daemon.command(&["rules", "--automatic=on"])?;
        let (began, patience) = (Instant::now(), self.pace.time(super::MOVED));
        let ended = loop {
            let now = run()?;
            let ours = now["by"] == "automatic";
            ensure!(ours || now.is_null(), "somebody else moves disks: {now}");
            if now["ended"].is_u64() || (!ours && began.elapsed() > self.pace.time(NOTHING)) {
                break now;
            }
            ensure!(began.elapsed() < patience, "the moves of the rules do not end: {now}");
            let moves = now["moves"].as_array().cloned().unwrap_or_default();
            for one in moves.iter().filter(|one| one["state"] == "moving") {
                let disk = one["disk"].as_str().unwrap_or_default();
                // It may be over by now.
                let _ = self.daemon.command(&["disk", "migrate", disk, super::SHARES]);
            }
            sleep(GLANCE);
        };
        self.daemon.command(&["rules", "--automatic=off"])?;
        Ok(ended)
    }
}
