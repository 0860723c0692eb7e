use super::divisor::Divisor;
use super::mechanics::{Mechanics, Sector, Stance};
use super::spec::{Ageing, DiskKind};
use crate::rng::SplitMix64;
use alloc::collections::VecDeque;
use headgate_units::Nanos;

/// Under [`Ageing::Passes`] the first in the queue is passed over so many times in a row, then it
/// is its turn.
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

/// A piece in the queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    sector: Sector,
    part: Part,
    /// What is added to its positioning time when pieces are compared: the later it came, the more.
    handicap: u128,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    /// In the order of arrival, so that handicaps ascend.
    parts: VecDeque<Waiting>,
    /// How often the first was passed over.
    passed_over: u32,
}

/// One disk: an arm, a rotating platter, and a queue from which the piece comes next that the head
/// reaches first, unless another has waited too long.
#[derive(Clone, Debug)]
pub(super) struct Spindle {
    mechanics: Mechanics,
    /// Requests that the elevator chooses among: what a disk's command queue holds.
    choice: usize,
    ageing: Ageing,
    /// The time of [`Ageing::Time`].
    patience: Divisor,
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
    pub(super) fn new(
        kind: DiskKind,
        span: u64,
        (choice, ageing): (u32, Ageing),
        random: &mut SplitMix64,
    ) -> Spindle {
        let mechanics = Mechanics::new(kind, span);
        Spindle {
            mechanics,
            choice: choice as usize,
            ageing,
            patience: match ageing {
                Ageing::Passes => Divisor::new(1),
                Ageing::Time(time) => Divisor::new(time.0),
            },
            phase: random.below(mechanics.rotation()),
            head: random.below(span),
            busy: None,
            foreground: Queue::default(),
            background: Queue::default(),
        }
    }

    /// Calls come in the order of `now`.
    pub(super) fn enqueue(&mut self, now: Nanos, class: Class, part: Part) {
        let handicap = match self.ageing {
            Ageing::Passes => 0,
            // What came later by `time` starts with the longest positioning there is.
            Ageing::Time(time) => {
                let longest = self.mechanics.longest();
                match now.0.checked_mul(longest) {
                    Some(product) => u128::from(self.patience.div(product)),
                    // After ten minutes and more.
                    None => u128::from(now.0) * u128::from(longest) / u128::from(time.0.max(1)),
                }
            }
        };
        let queue = match class {
            Class::Foreground => &mut self.foreground,
            Class::Background => &mut self.background,
        };
        queue.parts.push_back(Waiting {
            sector: self.mechanics.sector(part.start),
            part,
            handicap,
        });
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

    /// The piece that the head reaches first among the first [`Spindle::choice`], ages counted, or
    /// the first one if it has waited its share.
    fn nearest(&self, stance: Stance, queue: &Queue) -> Option<(u128, usize)> {
        if self.ageing == Ageing::Passes && queue.passed_over >= PATIENCE {
            return Some((0, 0));
        }
        // Relative to the first, whose handicap is the least: what it cannot hold is never best.
        let base = queue.parts.front()?.handicap;
        let (mut least, mut best, mut reach) = (u64::MAX, 0, u64::MAX);
        for (at, waiting) in queue.parts.iter().take(self.choice).enumerate() {
            let handicap = u64::try_from(waiting.handicap - base).unwrap_or(u64::MAX);
            if least <= handicap {
                // Those behind have no smaller handicaps.
                break;
            }
            if Mechanics::distance(stance, waiting.sector) >= reach {
                continue;
            }
            let positioning = self.mechanics.positioning(stance, waiting.sector);
            let effort = positioning.saturating_add(handicap);
            if effort < least {
                // Those behind would have to be nearer by what they came later.
                (least, best, reach) = (effort, at, self.mechanics.reach(positioning));
            }
        }
        Some((base + u128::from(least), best))
    }
}

impl Queue {
    fn take(&mut self, at: usize) -> Option<(Sector, Part)> {
        self.passed_over = if at == 0 { 0 } else { self.passed_over + 1 };
        self.parts.remove(at).map(|waiting| (waiting.sector, waiting.part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPAN: u64 = 100 << 30;

    fn spindle(kind: DiskKind) -> Spindle {
        Spindle::new(kind, SPAN, (32, Ageing::Passes), &mut SplitMix64::new(7))
    }

    #[test]
    fn a_stream_costs_transfer_only() {
        let mut disk = spindle(DiskKind::Fc15k);
        let mut now = Nanos::from_secs(1);
        let mut read = |start: u64| {
            disk.enqueue(Nanos::ZERO, Class::Foreground, Part { job: 0, start, len: 65_536 });
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
        disk.enqueue(Nanos::ZERO, Class::Foreground, part);
        let read = disk.begin(Nanos::ZERO, Urgency::Calm).unwrap();
        disk.finish();
        disk.enqueue(Nanos::ZERO, Class::Foreground, part);
        let written = disk.begin(read, Urgency::Calm).unwrap();
        assert!((written - read).0.abs_diff(4_000_000) <= 2, "{}", written - read);
    }

    #[test]
    fn an_elevator_chooses_among_the_oldest_only() {
        let served = |choice| {
            let mut disk = Spindle::new(
                DiskKind::Fc15k,
                SPAN,
                (choice, Ageing::Passes),
                &mut SplitMix64::new(7),
            );
            disk.head = 0;
            for (job, start) in [(0, SPAN / 2), (1, SPAN / 4), (2, 0)] {
                disk.enqueue(Nanos::ZERO, Class::Foreground, Part { job, start, len: 4_096 });
            }
            disk.begin(Nanos::ZERO, Urgency::Calm);
            disk.finish().unwrap().job
        };
        assert_eq!((served(1), served(3)), (0, 2));
        assert_ne!(served(2), 2, "the nearest is not among the two oldest");
    }

    #[test]
    fn nobody_is_passed_over_for_ever() {
        // By passes.
        let mut disk = spindle(DiskKind::Fc15k);
        disk.head = 0;
        disk.enqueue(Nanos::ZERO, Class::Foreground, Part { job: 1, start: SPAN / 2, len: 4_096 });
        let mut now = Nanos::ZERO;
        for turn in 0..1_000 {
            disk.enqueue(
                Nanos::ZERO,
                Class::Foreground,
                Part { job: 0, start: disk.head, len: 4_096 },
            );
            now = disk.begin(now, Urgency::Calm).unwrap();
            if disk.finish().unwrap().job == 1 {
                assert!(turn <= PATIENCE, "served after {turn} others");
                return;
            }
        }
        panic!("the far one starved");
    }

    /// How long the one that lies far away waits while there is always another at the head.
    fn wait_of_the_far_one(ageing: Ageing) -> Nanos {
        let queue = (32, ageing);
        let mut disk = Spindle::new(DiskKind::Fc15k, SPAN, queue, &mut SplitMix64::new(7));
        disk.head = 0;
        let far = Part { job: 1, start: SPAN / 2, len: 4_096 };
        disk.enqueue(Nanos::ZERO, Class::Foreground, far);
        let mut now = Nanos::ZERO;
        for _ in 0..100_000 {
            let near = Part { job: 0, start: disk.head, len: 65_536 };
            disk.enqueue(now, Class::Foreground, near);
            let done = disk.begin(now, Urgency::Calm).unwrap();
            if disk.finish().unwrap().job == 1 {
                return now;
            }
            now = done;
        }
        panic!("the far one starved");
    }

    #[test]
    fn by_time_the_far_one_waits_as_long_as_the_time_says_and_by_passes_as_long_as_others_take() {
        for millis in [1, 20, 300, 5_000] {
            let time = Nanos::from_millis(millis);
            let waited = wait_of_the_far_one(Ageing::Time(time));
            // Its own positioning is less than the longest, and so is its share of the time.
            assert!(waited <= time && waited >= Nanos(time.0 / 4), "{waited} of {time}");
        }
        let by_passes = wait_of_the_far_one(Ageing::Passes);
        assert_eq!(by_passes, Nanos(655_360 * u64::from(PATIENCE)));
    }

    proptest! {
        /// The bound of the documentation, in closed loops: who waited for the time goes before all
        /// that came since, so no more than the others who were there can be served first.
        #[test]
        fn nobody_waits_for_more_than_the_time_and_each_other_once(
            seed in any::<u64>(),
            millis in 1u64..400,
            depth in 1usize..40,
            choice in 1u32..64,
            crowd in 1u64..1_000,
        ) {
            let time = Nanos::from_millis(millis);
            let mut random = SplitMix64::new(seed);
            let queue = (choice, Ageing::Time(time));
            let mut disk = Spindle::new(DiskKind::Sata7k, SPAN, queue, &mut random);
            let most = disk.mechanics.longest() + disk.mechanics.transfer(4_096);
            let bound = time + Nanos(most * depth as u64);
            let mut now = Nanos::from_secs(1);
            let mut came = vec![now; depth];
            // Most of them near each other, some anywhere.
            let mut place = move || match random.below(8) {
                0 => random.below(SPAN),
                _ => random.below(SPAN / crowd),
            };
            for job in 0..depth {
                disk.enqueue(now, Class::Foreground, Part { job, start: place(), len: 4_096 });
            }
            for _ in 0..2_000 {
                now = disk.begin(now, Urgency::Calm).unwrap();
                let job = disk.finish().unwrap().job;
                prop_assert!(now - came[job] <= bound, "{} of {}", now - came[job], bound);
                came[job] = now;
                disk.enqueue(now, Class::Foreground, Part { job, start: place(), len: 4_096 });
            }
        }
    }

    #[test]
    fn background_work_waits_until_it_presses() {
        let served = |urgency| {
            let mut disk = spindle(DiskKind::Fc15k);
            disk.head = 0;
            disk.enqueue(
                Nanos::ZERO,
                Class::Foreground,
                Part { job: 1, start: SPAN / 2, len: 4_096 },
            );
            disk.enqueue(Nanos::ZERO, Class::Background, Part { job: 2, start: 0, len: 4_096 });
            disk.begin(Nanos::ZERO, urgency);
            disk.finish().unwrap().job
        };
        assert_eq!((served(Urgency::Calm), served(Urgency::Pressing)), (1, 2));
    }
}
