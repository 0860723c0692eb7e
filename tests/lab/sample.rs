//! The daemon's own counters at one instant, and what happened between two of them.
//!
//! All times are the daemon's: a test that is scheduled late reads its sample late, and no rate
//! changes for that.

use crate::headgate::Headgate;
use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;

/// What one disk, or all disks of a datastore, did since they were opened.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// When they were read, in nanoseconds on the daemon's clock.
    at: u64,
    /// Reads and writes completed.
    transfers: u64,
    /// Requests completed, of all kinds, failed ones included.
    completed: u64,
    /// Requests outstanding, integrated over time, in request-nanoseconds.
    outstanding_time: f64,
    /// What the requests cost that were dispatched, in millionths of a normalised IO.
    cost: u64,
    /// What of that was dispatched by reservation.
    reserved: u64,
    /// Requests dispatched, by priority.
    streams: BTreeMap<u8, u64>,
}

/// All disks and datastores at one instant.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    disks: BTreeMap<String, Counters>,
    datastores: BTreeMap<String, Counters>,
    /// On which datastore each disk is.
    places: BTreeMap<String, String>,
}

impl Sample {
    /// As the daemon has them now.
    pub fn read(daemon: &Headgate) -> anyhow::Result<Sample> {
        Sample::parse(&serde_json::from_str(&daemon.get("/v1/stats")?)?)
    }

    fn parse(stats: &Value) -> anyhow::Result<Sample> {
        let mut sample = Sample::default();
        for store in list(stats) {
            for disk in list(&store["disks"]) {
                let mut counters = Counters::parse(&disk["stats"])?;
                for stream in list(&disk["streams"]) {
                    let priority = u8::try_from(number(stream, "priority")?)?;
                    counters.streams.insert(priority, number(stream, "ios")?);
                }
                sample.places.insert(name(disk)?, name(store)?);
                sample.disks.insert(name(disk)?, counters);
            }
            sample.datastores.insert(name(store)?, Counters::parse(&store["stats"])?);
        }
        Ok(sample)
    }

    fn disk(&self, disk: &str) -> anyhow::Result<&Counters> {
        self.disks.get(disk).with_context(|| format!("no counters of disk {disk}"))
    }

    fn datastore(&self, store: &str) -> anyhow::Result<&Counters> {
        self.datastores.get(store).with_context(|| format!("no counters of datastore {store}"))
    }

    /// How many normalised IOs the scheduler gave a disk so far, and how many of them by
    /// reservation.
    pub fn phases(&self, disk: &str) -> anyhow::Result<[f64; 2]> {
        let counters = self.disk(disk)?;
        Ok([counters.cost, counters.reserved].map(|millionths| millionths as f64 / 1e6))
    }

    /// Requests of one priority that a disk has dispatched; 0 for a disk that is not there.
    pub fn of_stream(&self, disk: &str, priority: u8) -> u64 {
        let counters = self.disks.get(disk);
        counters.and_then(|c| c.streams.get(&priority).copied()).unwrap_or(0)
    }

    /// Requests of all priorities that a disk has dispatched; 0 for a disk that is not there.
    pub fn of_disk(&self, disk: &str) -> u64 {
        self.disks.get(disk).map_or(0, |c| c.streams.values().sum())
    }
}

impl Counters {
    fn parse(stats: &Value) -> anyhow::Result<Counters> {
        let kinds = ["reads", "writes", "flushes", "discards", "write_zeroes", "others"];
        let mut counters = Counters {
            at: number(stats, "at")?,
            outstanding_time: stats["outstanding_time"].as_f64().context("no outstanding_time")?,
            ..Counters::default()
        };
        for (index, kind) in kinds.into_iter().enumerate() {
            let done = number(&stats[kind], "done")?;
            counters.completed += done + number(&stats[kind], "errors")?;
            counters.transfers += if index < 2 { done } else { 0 };
        }
        let served = &stats["served"];
        counters.reserved = number(served, "reservation_cost")?;
        counters.cost = counters.reserved + number(served, "weight_cost")?;
        Ok(counters)
    }

    fn seconds_since(&self, earlier: &Counters) -> f64 {
        self.at.saturating_sub(earlier.at) as f64 / 1e9
    }
}

/// What happened between two samples.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Its begin.
    pub from: Sample,
    /// Its end.
    pub to: Sample,
}

impl Interval {
    fn of(&self, disk: &str) -> anyhow::Result<(&Counters, &Counters)> {
        Ok((self.from.disk(disk)?, self.to.disk(disk)?))
    }

    /// How long it was by the daemon's clock.
    pub fn seconds(&self) -> f64 {
        let pairs = self
            .to
            .datastores
            .iter()
            .filter_map(|(name, to)| Some(to.seconds_since(self.from.datastores.get(name)?)));
        pairs.fold(0.0, f64::max)
    }

    /// Reads and writes of a disk per second.
    pub fn iops(&self, disk: &str) -> anyhow::Result<f64> {
        let (from, to) = self.of(disk)?;
        Ok((to.transfers - from.transfers) as f64 / to.seconds_since(from))
    }

    /// Requests of all kinds per second that a disk completed.
    pub fn completions(&self, disk: &str) -> anyhow::Result<f64> {
        let (from, to) = self.of(disk)?;
        Ok((to.completed - from.completed) as f64 / to.seconds_since(from))
    }

    /// Whether a disk was on the same datastore all the time. Its counters are of one.
    pub fn stayed(&self, disk: &str) -> bool {
        self.from.places.get(disk) == self.to.places.get(disk)
    }

    /// How long it was by a disk's own counters, in seconds, and how many requests of all kinds
    /// the disk completed.
    pub fn completed(&self, disk: &str) -> anyhow::Result<(f64, u64)> {
        let (from, to) = self.of(disk)?;
        Ok((to.seconds_since(from), to.completed - from.completed))
    }

    /// How long it was by a disk's own counters, in seconds, and how many normalised IOs the
    /// scheduler gave the disk: what reservations and limits are counted in.
    pub fn given(&self, disk: &str) -> anyhow::Result<(f64, f64)> {
        let (from, to) = self.of(disk)?;
        Ok((to.seconds_since(from), (to.cost - from.cost) as f64 / 1e6))
    }

    /// How many normalised IOs per second the scheduler gave a disk, and how many of them by
    /// reservation.
    pub fn phases(&self, disk: &str) -> anyhow::Result<[f64; 2]> {
        let (from, to) = self.of(disk)?;
        let rate = |ios: u64| ios as f64 / 1e6 / to.seconds_since(from);
        Ok([rate(to.cost - from.cost), rate(to.reserved - from.reserved)])
    }

    /// Requests of a disk outstanding on average, those that wait and those at the device.
    pub fn outstanding(&self, disk: &str) -> anyhow::Result<f64> {
        let (from, to) = self.of(disk)?;
        Ok((to.outstanding_time - from.outstanding_time) / 1e9 / to.seconds_since(from))
    }

    /// Requests of all kinds per second that a datastore completed.
    pub fn throughput(&self, datastore: &str) -> anyhow::Result<f64> {
        let (from, to) = (self.from.datastore(datastore)?, self.to.datastore(datastore)?);
        Ok((to.completed - from.completed) as f64 / to.seconds_since(from))
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn name(of: &Value) -> anyhow::Result<String> {
    Ok(of["name"].as_str().with_context(|| format!("no name in {of}"))?.to_owned())
}

fn number(of: &Value, key: &str) -> anyhow::Result<u64> {
    of[key].as_u64().with_context(|| format!("no {key} in {of}"))
}

#[cfg(test)]
impl Sample {
    /// Datastore `array` and its only disk `disk` at this second, after so many reads per second
    /// and with so many requests outstanding.
    pub(crate) fn made(second: u64, iops: u64, outstanding: u64) -> Sample {
        let none = serde_json::json!({ "done": 0, "errors": 0 });
        let stats = serde_json::json!({
            "at": second * 1_000_000_000,
            "reads": { "done": iops * second, "errors": 0 },
            "served": { "reservation_cost": 1_500_000 * second, "weight_cost": 500_000 * second },
            "writes": none, "flushes": none, "discards": none, "write_zeroes": none, "others": none,
            "outstanding_time": outstanding * second * 1_000_000_000,
        });
        let streams = serde_json::json!([{ "priority": 40, "ios": iops * second }]);
        let disk = serde_json::json!({ "name": "disk", "stats": stats, "streams": streams });
        let store = serde_json::json!([{ "name": "array", "stats": stats, "disks": [disk] }]);
        Sample::parse(&store).expect("counters as the daemon has them")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_what_happened_per_second_of_the_daemons_clock() {
        let interval = Interval { from: Sample::made(3, 100, 16), to: Sample::made(5, 100, 16) };
        assert_eq!(interval.seconds(), 2.0);
        assert_eq!(interval.iops("disk").unwrap(), 100.0);
        assert_eq!(interval.completed("disk").unwrap(), (2.0, 200));
        assert_eq!(interval.given("disk").unwrap(), (2.0, 4.0));
        assert_eq!(interval.throughput("array").unwrap(), 100.0);
        assert_eq!(interval.outstanding("disk").unwrap(), 16.0);
        assert_eq!(interval.to.of_stream("disk", 40), 500);
        assert!(interval.iops("other").is_err());
    }
}
