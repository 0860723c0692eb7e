//! What each priority of each disk has got, and how that compares with its part.

use crate::headgate::Headgate;
use crate::premise::Premises;
use crate::sample::Sample;
use crate::wait_for;
use anyhow::ensure;
use std::thread::sleep;
use std::time::Duration;

/// An application as the daemon sees it: its disk and the priority that its requests count.
pub type Stream = (&'static str, u8);

/// How long a division may take to begin, and to settle.
const BEGIN: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(3);

/// What streams got over a while.
#[derive(Clone, Debug)]
pub struct Division {
    /// Each with its requests.
    pub got: Vec<(Stream, u64)>,
    /// How long it was, in seconds.
    pub seconds: f64,
}

impl Division {
    /// Waits until all streams are served, lets them settle, and counts for `time` under these
    /// premises.
    pub fn measure(
        daemon: &Headgate,
        premises: &Premises,
        streams: &[Stream],
        time: Duration,
    ) -> anyhow::Result<Division> {
        let before = Sample::read(daemon)?;
        wait_for("every stream should be served", BEGIN, || {
            let now = Sample::read(daemon)?;
            let served = |(disk, priority): &Stream| {
                now.of_stream(disk, *priority) >= before.of_stream(disk, *priority) + 2
            };
            Ok(streams.iter().all(served).then_some(()))
        })?;
        sleep(SETTLE.max(time / 4));
        let interval = premises.watch(daemon, time)?;
        let got = |(disk, priority): &Stream| {
            interval.to.of_stream(disk, *priority) - interval.from.of_stream(disk, *priority)
        };
        let got = streams.iter().map(|stream| (*stream, got(stream))).collect();
        for disk in streams.iter().map(|(disk, _)| *disk).collect::<std::collections::BTreeSet<_>>()
        {
            eprintln!("  {disk}: {:.2} requests outstanding", interval.outstanding(disk)?);
        }
        Ok(Division { got, seconds: interval.seconds() })
    }

    /// Requests per second of all streams together.
    pub fn rate(&self) -> f64 {
        self.got.iter().map(|(_, ios)| *ios as f64).sum::<f64>() / self.seconds
    }

    /// The part of a stream, 0 to 1.
    pub fn part(&self, stream: Stream) -> f64 {
        let all: u64 = self.got.iter().map(|(_, ios)| ios).sum();
        let mine = self.got.iter().find(|(s, _)| *s == stream).map_or(0, |(_, ios)| *ios);
        mine as f64 / all as f64
    }

    /// Prints what was got, and fails unless every part is within `tolerance` of the priority's
    /// part of all priorities.
    pub fn ensure_by_priority(&self, tolerance: f64) -> anyhow::Result<()> {
        let sum: f64 = self.got.iter().map(|((_, priority), _)| f64::from(*priority)).sum();
        let due: Vec<(Stream, f64)> =
            self.got.iter().map(|(s, _)| (*s, f64::from(s.1) / sum)).collect();
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
