//! Metrics of shards: how they wait for work, and what they take for it.

use super::{Labels, Scrape, Writer};
use headgate_model::ShardWaits;
use std::fmt;

impl Scrape {
    pub(super) fn encode_shards(&self, out: &mut Writer<'_>) -> fmt::Result {
        let help = "Shards that have not answered for some seconds: their datastores are left out";
        out.gauges("stalled_shards", help, &[(Vec::new(), self.stalled_shards as f64)])?;
        let labels = |shard: &ShardWaits| vec![("shard", shard.shard.clone())];
        let of = |read: fn(&ShardWaits) -> f64| -> Vec<(Labels, f64)> {
            self.shards.iter().map(|shard| (labels(shard), read(shard))).collect()
        };
        let help = "Requests that a shard answered";
        out.counters("shard_requests", help, &of(|s| s.served as f64))?;
        let help = "Processor time of a shard's thread in seconds";
        out.counters("shard_cpu_seconds", help, &of(|s| s.cpu.as_secs_f64()))?;
        let mut spent = Vec::new();
        let mut chosen = Vec::new();
        for shard in &self.shards {
            for &(mode, time) in &shard.spent {
                let mut labels = labels(shard);
                labels.push(("mode", mode.to_owned()));
                spent.push((labels.clone(), time.as_secs_f64()));
                chosen.push((labels, f64::from(u8::from(mode == shard.incumbent))));
            }
        }
        let help = "How long a shard waited for work in each mode, in seconds";
        out.counters("shard_waiting_seconds", help, &spent)?;
        let help = "1 for the mode that a shard has found best";
        out.gauges("shard_waiting_mode", help, &chosen)?;
        let help = "Trials in which a shard compared another mode with its own";
        out.counters("shard_waiting_trials", help, &of(|s| s.trials as f64))?;
        let help = "Trials after which a shard changed its mode";
        out.counters("shard_waiting_changes", help, &of(|s| s.changes as f64))
    }
}
