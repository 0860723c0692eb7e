use super::spec::DiskKind;
use crate::rng::SplitMix64;
use headgate_units::Nanos;
use std::collections::VecDeque;

/// Requests that the elevator chooses among: what a disk's command queue holds.
const WINDOW: usize = 32;
/// The first in the queue is passed over so many times in a row, then it is its turn.
const PATIENCE: u32 = 64;

/// The moving parts of a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mechanics {
    /// One revolution.
    rotation: u64,
    /// Bytes that pass the head in one revolution.
    track: u64,
    /// Seek to the next track.
    shortest_seek: u64,
    /// Seek over the whole stroke.
    longest_seek: u64,
}

impl DiskKind {
    pub(super) fn mechanics(self) -> Mechanics {
        match self {
            DiskKind::Fc15k => Mechanics {
                rotation: 4_000_000,
                track: 400_000,
                shortest_seek: 300_000,
                longest_seek: 6_400_000,
            },
            DiskKind::Sata7k => Mechanics {
                rotation: 8_333_333,
                track: 583_333,
                shortest_seek: 800_000,
                longest_seek: 15_200_000,
            },
        }
    }
}

impl Mechanics {
    fn transfer(&self, len: u64) -> u64 {
        match len.checked_mul(self.rotation) {
            Some(product) => product / self.track,
            // Past 2 TB in one piece, where a revolution more or less is no matter.
            None => (len / self.track).saturating_mul(self.rotation),
        }
    }

    /// shortest + (longest - shortest) * sqrt(distance / span): the arm accelerates half the way and brakes the other
    /// half. Over random pairs of places the mean of the root is 8/15.
    fn seek(&self, distance: u64, span: u64) -> u64 {
        // Both scaled so that the distance can be shifted by 30 bits; a span that large loses nothing that matters.
        const ONE: u32 = 30;
        let excess = (ONE + 1).saturating_sub(span.leading_zeros());
        let (distance, span) = (distance.min(span) >> excess, (span >> excess).max(1));
        let root = (((distance << ONE) / span) << ONE).isqrt();
        self.shortest_seek + (((self.longest_seek - self.shortest_seek) * root) >> ONE)
    }

    /// When the place passes the head, within a revolution.
    fn angle(&self, place: u64) -> u64 {
        (place % self.track) * self.rotation / self.track
    }
}

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
    parts: VecDeque<Part>,
    /// How often the first was passed over.
    passed_over: u32,
}

/// One disk: an arm, a rotating platter, and a queue from which the piece comes next that the head reaches first.
#[derive(Debug)]
pub(super) struct Spindle {
    mechanics: Mechanics,
    /// Bytes in use, spread over the whole stroke.
    span: u64,
    /// The platter's angle at time zero.
    phase: u64,
    /// Past the last byte transferred.
    head: u64,
    busy: Option<Part>,
    foreground: Queue,
    background: Queue,
}

impl Spindle {
    pub(super) fn new(mechanics: Mechanics, span: u64, random: &mut SplitMix64) -> Spindle {
        Spindle {
            mechanics,
            span,
            phase: random.below(mechanics.rotation),
            head: random.below(span),
            busy: None,
            foreground: Queue::default(),
            background: Queue::default(),
        }
    }

    pub(super) fn enqueue(&mut self, class: Class, part: Part) {
        match class {
            Class::Foreground => self.foreground.parts.push_back(part),
            Class::Background => self.background.parts.push_back(part),
        }
    }

    /// Begins the next piece if the disk is free and has one: when it will be done.
    pub(super) fn begin(&mut self, now: Nanos, urgency: Urgency) -> Option<Nanos> {
        if self.busy.is_some() {
            return None;
        }
        let part = self.choose(now, urgency)?;
        let took = self.positioning(now, part.start).saturating_add(self.mechanics.transfer(part.len));
        self.head = part.start.saturating_add(part.len);
        self.busy = Some(part);
        Some(now + Nanos(took))
    }

    /// The piece in work is done.
    pub(super) fn finish(&mut self) -> Option<Part> {
        self.busy.take()
    }

    /// From now until the head is over `start`. Going on where the head is costs nothing, a little further on costs what
    /// passes by: disks read ahead, so a stream does not lose a revolution between its requests.
    fn positioning(&self, now: Nanos, start: u64) -> u64 {
        let mechanics = &self.mechanics;
        if let Some(gap) = start.checked_sub(self.head).filter(|&gap| gap <= mechanics.track) {
            return mechanics.transfer(gap);
        }
        let same_track = start / mechanics.track == self.head / mechanics.track;
        let seek = if same_track { 0 } else { mechanics.seek(start.abs_diff(self.head), self.span) };
        let arrived = (now.0 % mechanics.rotation + seek + self.phase) % mechanics.rotation;
        seek + (mechanics.angle(start) + mechanics.rotation - arrived) % mechanics.rotation
    }

    fn choose(&mut self, now: Nanos, urgency: Urgency) -> Option<Part> {
        let foreground = self.nearest(now, &self.foreground);
        let background = match (foreground, urgency) {
            (Some(_), Urgency::Calm) => None,
            _ => self.nearest(now, &self.background),
        };
        match (foreground, background) {
            (Some((mine, at)), Some((theirs, _))) if mine <= theirs => self.foreground.take(at),
            (_, Some((_, at))) => self.background.take(at),
            (Some((_, at)), None) => self.foreground.take(at),
            (None, None) => None,
        }
    }

    /// The piece that the head reaches first among the first [`WINDOW`], or the first one if it has waited its share.
    fn nearest(&self, now: Nanos, queue: &Queue) -> Option<(u64, usize)> {
        if queue.passed_over >= PATIENCE {
            return Some((0, 0));
        }
        let window = queue.parts.iter().take(WINDOW).enumerate();
        window.map(|(at, part)| (self.positioning(now, part.start), at)).min()
    }
}

impl Queue {
    fn take(&mut self, at: usize) -> Option<Part> {
        self.passed_over = if at == 0 { 0 } else { self.passed_over + 1 };
        self.parts.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 100 << 30;

    fn spindle(kind: DiskKind) -> Spindle {
        Spindle::new(kind.mechanics(), SPAN, &mut SplitMix64::new(7))
    }

    #[test]
    fn seeks_follow_the_root_of_the_distance() {
        for (kind, least, mean, most) in
            [(DiskKind::Fc15k, 300, 3_553, 6_400), (DiskKind::Sata7k, 800, 8_480, 15_200)]
        {
            let mechanics = kind.mechanics();
            assert_eq!(mechanics.seek(SPAN, SPAN), most * 1_000);
            assert_eq!(mechanics.seek(1, SPAN) / 1_000, least);
            let mut random = SplitMix64::new(1);
            let total: u64 = (0..20_000)
                .map(|_| mechanics.seek(random.below(SPAN).abs_diff(random.below(SPAN)), SPAN))
                .sum();
            assert!((total / 20_000 / 1_000).abs_diff(mean) < mean / 50, "{} us", total / 20_000 / 1_000);
        }
        assert!(
            DiskKind::Fc15k.mechanics().seek(u64::MAX, 0) <= 6_400_000,
            "out of bounds is not out of order"
        );
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
