//! Recorded requests, fitted to a disk. Pure; the time comes in.
//!
//! An open loop: a request is due when it was recorded, whatever is outstanding, and its latency
//! counts from then.

use crate::link::{Durability, Kind, Op};
use crate::workload::Priority;
use headgate_units::Nanos;
use serde::Serialize;

const SECTOR: u64 = 512;

/// The operation of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Data from the disk.
    Read,
    /// Data to the disk.
    Write,
    /// Completed writes to stable storage.
    Flush,
    /// To forget a range. Cannot be asked of a disk here, and is left out.
    Discard,
}

/// A recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When, from the beginning of the recording; not earlier than the one before.
    pub at: Nanos,
    /// Its operation.
    pub asked: Asked,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A recording, in the order of its times. An error ends the replay.
pub type Recording = Box<dyn Iterator<Item = Result<Recorded, String>> + Send>;

/// Whether writes and flushes are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Yes: data on the disk is overwritten.
    Replayed,
    /// No, only reads are.
    LeftOut,
}

/// How a recording fitted the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Recorded requests that were replayed.
    pub requests: u64,
    /// Of these, longer than a request may be here, and sent in several parts.
    pub split: u64,
    /// Of these, beyond the end of the disk, and moved onto it.
    pub moved: u64,
    /// Discards, and with reads alone also writes and flushes: left out.
    pub left_out: u64,
}

/// How recorded requests become requests to a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Bytes of the disk.
    pub size: u64,
    /// Bytes of the longest request, a multiple of a sector.
    pub max_len: u32,
    /// 100 for as fast as recorded.
    pub speed_percent: u64,
    pub changes: Changes,
}

/// The rest of a request that is sent in parts.
#[derive(Clone, Copy, Debug)]
struct Rest {
    due: Nanos,
    kind: Kind,
    offset: u64,
    left: u64,
}

/// Plays a recording.
pub(crate) struct Player {
    recording: Option<Recording>,
    fit: Fit,
    start: Nanos,
    rest: Option<Rest>,
    failure: Option<String>,
    replayed: Replayed,
}

impl Player {
    pub(crate) fn new(recording: Recording, fit: Fit) -> Player {
        Player {
            recording: Some(recording),
            fit,
            start: Nanos::ZERO,
            rest: None,
            failure: None,
            replayed: Replayed::default(),
        }
    }

    pub(crate) fn start(&mut self, start: Nanos) {
        self.start = start;
    }

    /// When the next request is due; `None` at the end.
    pub(crate) fn due(&mut self) -> Option<Nanos> {
        while self.rest.is_none() {
            match self.recording.as_mut()?.next() {
                Some(Ok(recorded)) => self.rest = self.fitted(recorded),
                Some(Err(why)) => {
                    self.failure = Some(why);
                    self.recording = None;
                }
                None => self.recording = None,
            }
        }
        self.rest.map(|rest| rest.due)
    }

    /// The next request, however early.
    pub(crate) fn next_op(&mut self) -> Option<Op> {
        self.due()?;
        let rest = self.rest.as_mut()?;
        let (kind, offset) = (rest.kind, rest.offset);
        let len = rest.left.min(u64::from(self.fit.max_len));
        rest.offset += len;
        rest.left -= len;
        if rest.left == 0 {
            self.rest = None;
        }
        // At most `max_len`, so it fits.
        let len = u32::try_from(len).unwrap_or(self.fit.max_len);
        Some(Op { kind, offset, len, durability: Durability::AtFlush, priority: Priority(0) })
    }

    /// Whether all was played, and if not, why it cannot be.
    pub(crate) fn end(&mut self) -> Option<Result<(), String>> {
        if self.due().is_some() {
            return None;
        }
        Some(self.failure.clone().map_or(Ok(()), Err))
    }

    pub(crate) fn replayed(&self) -> Replayed {
        self.replayed
    }

    /// The request on the disk: whole sectors, within its size. `None` when it is left out.
    fn fitted(&mut self, recorded: Recorded) -> Option<Rest> {
        let Fit { size, max_len, speed_percent, changes } = self.fit;
        let kind = match (recorded.asked, changes) {
            (Asked::Read, _) => Kind::Read,
            (Asked::Write, Changes::Replayed) => Kind::Write,
            (Asked::Flush, Changes::Replayed) => Kind::Flush,
            (Asked::Discard, _) | (_, Changes::LeftOut) => {
                self.replayed.left_out += 1;
                return None;
            }
        };
        let after = u128::from(recorded.at.0) * 100 / u128::from(speed_percent.max(1));
        let due = self.start + Nanos(u64::try_from(after).unwrap_or(u64::MAX));
        self.replayed.requests += 1;
        if kind == Kind::Flush {
            return Some(Rest { due, kind, offset: 0, left: 0 });
        }
        let sectors = size / SECTOR;
        let first = recorded.offset / SECTOR;
        let behind = recorded.offset.saturating_add(recorded.bytes).div_ceil(SECTOR);
        let wanted = (behind - first).max(1);
        let length = wanted.min(sectors.max(1));
        // Neighbours stay neighbours, but for the one place where the disk ends.
        let place =
            if behind > sectors { first % (sectors.saturating_sub(length) + 1) } else { first };
        if behind > sectors {
            self.replayed.moved += 1;
        }
        self.replayed.split += u64::from(length * SECTOR > u64::from(max_len));
        Some(Rest { due, kind, offset: place * SECTOR, left: length * SECTOR })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn player(recorded: Vec<Recorded>, fit: Fit) -> Player {
        Player::new(Box::new(recorded.into_iter().map(Ok)), fit)
    }

    const FIT: Fit =
        Fit { size: 1 << 20, max_len: 65_536, speed_percent: 100, changes: Changes::Replayed };

    fn read(at: u64, offset: u64, bytes: u64) -> Recorded {
        Recorded { at: Nanos(at), asked: Asked::Read, offset, bytes }
    }

    fn play(player: &mut Player) -> Vec<(u64, Kind, u64, u32)> {
        std::iter::from_fn(|| {
            let due = player.due()?;
            player.next_op().map(|op| (due.0, op.kind, op.offset, op.len))
        })
        .collect()
    }

    proptest! {
        #[test]
        fn requests_lie_on_the_disk_in_whole_sectors_and_add_up(
            recorded in prop::collection::vec((0u64..1_000, 0u64..4 << 20, 1u64..300_000), 0..40),
            sectors in 1u64..3_000,
        ) {
            let all = recorded.iter().map(|&(at, offset, bytes)| read(at, offset, bytes)).collect();
            let fit = Fit { size: sectors * 512 + 100, ..FIT };
            let mut player = player(all, fit);
            let played = play(&mut player);
            for &(_, _, offset, len) in &played {
                prop_assert_eq!((offset % 512, u64::from(len) % 512), (0, 0));
                prop_assert!(len > 0 && len <= fit.max_len && offset + u64::from(len) <= fit.size);
            }
            prop_assert_eq!(player.replayed().requests, recorded.len() as u64);
            prop_assert_eq!(player.end(), Some(Ok(())));
            let covered = |offset: u64, bytes: u64| ((offset + bytes).div_ceil(512) - offset / 512).min(sectors) * 512;
            let wanted: u64 = recorded.iter().map(|&(_, offset, bytes)| covered(offset, bytes)).sum();
            prop_assert_eq!(played.iter().map(|&(.., len)| u64::from(len)).sum::<u64>(), wanted);
        }
    }

    #[test]
    fn times_are_kept_or_scaled() {
        let all = vec![read(0, 0, 512), read(1_000, 512, 512), read(3_000, 0, 100_000)];
        let mut recorded = player(all.clone(), FIT);
        recorded.start(Nanos(50));
        let played = play(&mut recorded);
        assert_eq!(played.iter().map(|op| op.0).collect::<Vec<_>>(), [50, 1_050, 3_050, 3_050]);
        assert_eq!(recorded.replayed(), Replayed { requests: 3, split: 1, ..Replayed::default() });
        let mut fast = player(all, Fit { speed_percent: 200, ..FIT });
        assert_eq!(play(&mut fast)[2].0, 1_500);
    }

    #[test]
    fn what_cannot_be_asked_is_left_out_and_counted() {
        let asked = |asked| Recorded { at: Nanos(0), asked, offset: 0, bytes: 512 };
        let all = vec![
            asked(Asked::Discard),
            asked(Asked::Write),
            asked(Asked::Flush),
            asked(Asked::Read),
        ];
        let kinds = |player: &mut Player| play(player).iter().map(|op| op.1).collect::<Vec<_>>();
        let mut whole = player(all.clone(), FIT);
        assert_eq!(kinds(&mut whole), [Kind::Write, Kind::Flush, Kind::Read]);
        assert_eq!(whole.replayed().left_out, 1);
        let mut reads = player(all, Fit { changes: Changes::LeftOut, ..FIT });
        assert_eq!(kinds(&mut reads), [Kind::Read]);
        assert_eq!(reads.replayed().left_out, 3);
    }

    #[test]
    fn a_recording_that_breaks_off_says_why() {
        let recording: Recording =
            Box::new([Ok(read(0, 0, 512)), Err("line 2".to_owned())].into_iter());
        let mut player = Player::new(recording, FIT);
        assert_eq!(player.end(), None);
        assert_eq!(play(&mut player).len(), 1);
        assert_eq!(player.end(), Some(Err("line 2".into())));
    }
}
