//! What each priority of each disk has got, and how that compares with its part.

use crate::headgate::Headgate;
use crate::wait_for;
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// An application as the daemon sees it: its disk and the priority that its requests count.
pub type Stream = (&'static str, u8);

/// How long a division may take to begin, and to settle.
const BEGIN: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(3);

/// Requests dispatched by disk and priority since the disks were opened.
#[derive(Clone, Debug)]
pub struct Counts {
    at: Instant,
    ios: BTreeMap<(String, u8), u64>,
}

impl Counts {
    /// As the daemon has them now.
    pub fn read(daemon: &Headgate) -> anyhow::Result<Counts> {
        let stats: serde_json::Value = serde_json::from_str(&daemon.get("/v1/stats")?)?;
        let at = Instant::now();
        let mut ios = BTreeMap::new();
        let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
        for disk in list(&stats).iter().flat_map(|store| list(&store["disks"])) {
            let name = disk["name"].as_str().context("a disk without a name")?;
            for stream in list(&disk["streams"]) {
                let number =
                    |key: &str| stream[key].as_u64().with_context(|| format!("no {key} in {stream}"));
                ios.insert((name.to_owned(), u8::try_from(number("priority")?)?), number("ios")?);
            }
        }
        Ok(Counts { at, ios })
    }

    /// Requests of one stream.
    pub fn of(&self, (disk, priority): Stream) -> u64 {
        self.ios.get(&(disk.to_owned(), priority)).copied().unwrap_or(0)
    }

    /// Requests of all streams of a disk.
    pub fn of_disk(&self, disk: &str) -> u64 {
        self.ios.iter().filter(|((name, _), _)| name == disk).map(|(_, ios)| ios).sum()
    }
}

/// What streams got over a while.
#[derive(Clone, Debug)]
pub struct Division {
    /// Each with its requests.
    pub got: Vec<(Stream, u64)>,
    /// How long it was.
    pub time: Duration,
}

impl Division {
    /// Waits until all streams are served, lets them settle, and counts for `time`, again while the daemon lacks a CPU.
    pub fn measure(daemon: &Headgate, streams: &[Stream], time: Duration) -> anyhow::Result<Division> {
        let before = Counts::read(daemon)?;
        wait_for("every stream should be served", BEGIN, || {
            let now = Counts::read(daemon)?;
            Ok(streams.iter().all(|s| now.of(*s) >= before.of(*s) + 2).then_some(()))
        })?;
        sleep(SETTLE);
        daemon.measure_quietly(|| {
            let from = Counts::read(daemon)?;
            sleep(time);
            let to = Counts::read(daemon)?;
            let got = streams.iter().map(|s| (*s, to.of(*s) - from.of(*s))).collect();
            Ok(Division { got, time: to.at - from.at })
        })
    }

    /// Requests per second of all streams together.
    pub fn rate(&self) -> f64 {
        self.got.iter().map(|(_, ios)| *ios as f64).sum::<f64>() / self.time.as_secs_f64()
    }

    /// The part of a stream, 0 to 1.
    pub fn part(&self, stream: Stream) -> f64 {
        let all: u64 = self.got.iter().map(|(_, ios)| ios).sum();
        let mine = self.got.iter().find(|(s, _)| *s == stream).map_or(0, |(_, ios)| *ios);
        mine as f64 / all as f64
    }

    /// Prints what was got, and fails unless every part is within `tolerance` of the priority's part of all priorities.
    pub fn ensure_by_priority(&self, tolerance: f64) -> anyhow::Result<()> {
        let sum: f64 = self.got.iter().map(|((_, priority), _)| f64::from(*priority)).sum();
        let due: Vec<(Stream, f64)> = self.got.iter().map(|(s, _)| (*s, f64::from(s.1) / sum)).collect();
        self.ensure(&due, tolerance)
    }

    /// Prints what was got, and fails unless every part is within `tolerance` of what is due.
    pub fn ensure(&self, due: &[(Stream, f64)], tolerance: f64) -> anyhow::Result<()> {
        let mut worst: Option<String> = None;
        for ((disk, priority), due) in due {
            let part = self.part((*disk, *priority));
            let off = part / due - 1.0;
            let line = format!(
                "{disk} at {priority}: {part:.4} of the requests, due {due:.4} ({:+.1} %)",
                off * 100.0
            );
            eprintln!("  {line}");
            if off.abs() > tolerance {
                worst = Some(line);
            }
        }
        eprintln!("  {:.1} requests per second", self.rate());
        ensure!(worst.is_none(), "{}", worst.unwrap_or_default());
        Ok(())
    }
}
