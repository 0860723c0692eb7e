use super::mechanics::{Mechanics, Sector, Stance};
use super::spec::DiskKind;
use crate::rng::SplitMix64;
use alloc::collections::VecDeque;
use headgate_units::Nanos;

/// The first in the queue is passed over so many times in a row, then it is its turn.
const PATIENCE: u32 = 64;

/// Who waits for a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A client.
    Foreground,
    /// Nobody: the cache is being emptied in good time.
    Background,
}

/// Does background work go along with the foreground's, or only when there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    Calm,
    Pressing,
}

/// A piece of work for one spindle, reading or writing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The array's job that it belongs to.
    pub job: usize,
    pub start: u64,
    pub len: u64,
}

#[derive(Debug, Default)]
struct Queue {
    parts: VecDeque<(Sector, Part)>,
    /// How often the first was passed over.
    passed_over: u32,
}

/// One disk: an arm, a rotating platter, and a queue from which the piece comes next that the head
/// reaches first.
#[derive(Debug)]
pub(super) struct Spindle {
    mechanics: Mechanics,
    /// Requests that the elevator chooses among: what a disk's command queue holds.
    choice: usize,
    /// The platter's angle at time zero.
    phase: u64,
    /// Past the last byte transferred.
    head: u64,
    busy: Option<Part>,
    foreground: Queue,
    background: Queue,
}

impl Spindle {
    /// A disk of which `span` bytes are used, and whose elevator chooses among the `choice` oldest
    /// pieces.
    pub(super) fn new(kind: DiskKind, span: u64, choice: u32, random: &mut SplitMix64) -> Spindle {
        let mechanics = Mechanics::new(kind, span);
        Spindle {
            mechanics,
            choice: choice as usize,
            phase: random.below(mechanics.rotation()),
            head: random.below(span),
            busy: None,
            foreground: Queue::default(),
            background: Queue::default(),
        }
    }

    pub(super) fn enqueue(&mut self, class: Class, part: Part) {
        let queue = match class {
            Class::Foreground => &mut self.foreground,
            Class::Background => &mut self.background,
        };
        queue.parts.push_back((self.mechanics.sector(part.start), part));
    }

    /// Begins the next piece if the disk is free and has one: when it will be done.
    pub(super) fn begin(&mut self, now: Nanos, urgency: Urgency) -> Option<Nanos> {
        if self.busy.is_some() {
            return None;
        }
        let stance = self.mechanics.stance(now.0, self.phase, self.head);
        let (sector, part) = self.choose(stance, urgency)?;
        let positioning = self.mechanics.positioning(stance, sector);
        let took = positioning.saturating_add(self.mechanics.transfer(part.len));
        self.head = part.start.saturating_add(part.len);
        self.busy = Some(part);
        Some(now + Nanos(took))
    }

    /// The piece in work is done.
    pub(super) fn finish(&mut self) -> Option<Part> {
        self.busy.take()
    }

    fn choose(&mut self, stance: Stance, urgency: Urgency) -> Option<(Sector, Part)> {
        let foreground = self.nearest(stance, &self.foreground);
        let background = match (foreground, urgency) {
            (Some(_), Urgency::Calm) => None,
            _ => self.nearest(stance, &self.background),
        };
        match (foreground, background) {
            (Some((mine, at)), Some((theirs, _))) if mine <= theirs => self.foreground.take(at),
            (_, Some((_, at))) => self.background.take(at),
            (Some((_, at)), None) => self.foreground.take(at),
            (None, None) => None,
        }
    }

    /// The piece that the head reaches first among the first [`Spindle::choice`], or the first one
    /// if it has waited its share.
    fn nearest(&self, stance: Stance, queue: &Queue) -> Option<(u64, usize)> {
        if queue.passed_over >= PATIENCE {
            return Some((0, 0));
        }
        let window = queue.parts.iter().take(self.choice).enumerate();
        window.map(|(at, &(sector, _))| (self.mechanics.positioning(stance, sector), at)).min()
    }
}

impl Queue {
    fn take(&mut self, at: usize) -> Option<(Sector, Part)> {
        self.passed_over = if at == 0 { 0 } else { self.passed_over + 1 };
        self.parts.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 100 << 30;

    fn spindle(kind: DiskKind) -> Spindle {
        Spindle::new(kind, SPAN, 32, &mut SplitMix64::new(7))
    }

    #[test]
    fn a_stream_costs_transfer_only() {
        let mut disk = spindle(DiskKind::Fc15k);
        let mut now = Nanos::from_secs(1);
        let mut read = |start: u64| {
            disk.enqueue(Class::Foreground, Part { job: 0, start, len: 65_536 });
            let done = disk.begin(now, Urgency::Calm).unwrap();
            let took = done - now;
            disk.finish();
            now = done + Nanos::from_micros(700);
            took
        };
        assert!(read(1 << 30) > Nanos(655_360), "the first one seeks");
        assert_eq!(read((1 << 30) + 65_536), Nanos(655_360));
        assert_eq!(read((1 << 30) + 3 * 65_536), Nanos(2 * 655_360), "a gap passes by");
        assert!(read(1 << 30) > Nanos(655_360), "backwards is another revolution");
    }

    #[test]
    fn writing_what_was_just_read_takes_a_revolution() {
        let mut disk = spindle(DiskKind::Fc15k);
        let part = Part { job: 0, start: 400_000 * 1_000, len: 4_096 };
        disk.enqueue(Class::Foreground, part);
        let read = disk.begin(Nanos::ZERO, Urgency::Calm).unwrap();
        disk.finish();
        disk.enqueue(Class::Foreground, part);
        let written = disk.begin(read, Urgency::Calm).unwrap();
        assert!((written - read).0.abs_diff(4_000_000) <= 2, "{}", written - read);
    }

    #[test]
    fn an_elevator_chooses_among_the_oldest_only() {
        let served = |choice| {
            let mut disk = Spindle::new(DiskKind::Fc15k, SPAN, choice, &mut SplitMix64::new(7));
            disk.head = 0;
            for (job, start) in [(0, SPAN / 2), (1, SPAN / 4), (2, 0)] {
                disk.enqueue(Class::Foreground, Part { job, start, len: 4_096 });
            }
            disk.begin(Nanos::ZERO, Urgency::Calm);
            disk.finish().unwrap().job
        };
        assert_eq!((served(1), served(3)), (0, 2));
        assert_ne!(served(2), 2, "the nearest is not among the two oldest");
    }

    #[test]
    fn nobody_is_passed_over_for_ever() {
        let mut disk = spindle(DiskKind::Fc15k);
        disk.head = 0;
        disk.enqueue(Class::Foreground, Part { job: 1, start: SPAN / 2, len: 4_096 });
        let mut now = Nanos::ZERO;
        for turn in 0..1_000 {
            disk.enqueue(Class::Foreground, Part { job: 0, start: disk.head, len: 4_096 });
            now = disk.begin(now, Urgency::Calm).unwrap();
            if disk.finish().unwrap().job == 1 {
                assert!(turn <= PATIENCE, "served after {turn} others");
                return;
            }
        }
        panic!("the far one starved");
    }

    #[test]
    fn background_work_waits_until_it_presses() {
        let served = |urgency| {
            let mut disk = spindle(DiskKind::Fc15k);
            disk.head = 0;
            disk.enqueue(Class::Foreground, Part { job: 1, start: SPAN / 2, len: 4_096 });
            disk.enqueue(Class::Background, Part { job: 2, start: 0, len: 4_096 });
            disk.begin(Nanos::ZERO, urgency);
            disk.finish().unwrap().job
        };
        assert_eq!((served(Urgency::Calm), served(Urgency::Pressing)), (1, 2));
    }
}
