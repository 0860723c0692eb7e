//! Counts what was sent while the storage was busy all the time.

use super::class::IoClass;
use super::table::QueuedSize;
use headgate_units::Nanos;

/// A stretch is at least so long,
pub(super) const SHORTEST: Nanos = Nanos::from_secs(1);

/// and up to so much longer, so that nothing keeps in step with it.
const JITTER: u64 = 250_000_000;

/// It has so many times as many requests as are in flight: what was sent before it and ended in it
/// stands for what was sent in it and ends later.
const TURNS: u32 = 8;

/// After so long it ends with fewer,
const LONGEST: Nanos = Nanos::from_secs(8);

/// if there were as many as this.
const FEWEST: u32 = 32;

/// A stretch in which the window stood open for more than one in so many parts of it tells nothing:
/// nobody knows whether the storage was busy meanwhile.
const OPEN_PART: u64 = 16;

/// A clock that leaps further than this, and a window open for so long, begin a new stretch.
const LEAP: Nanos = Nanos::from_secs(30);
const OPEN: Nanos = Nanos::from_millis(250);

/// What was sent in a stretch of busy time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// How long it was.
    pub(super) busy: Nanos,
    /// Requests of each class.
    pub(super) requests: [u32; IoClass::COUNT],
    /// Bytes of each class.
    pub(super) bytes: [u64; IoClass::COUNT],
    /// The squares of their sizes, in units of 4 KiB.
    pub(super) squares: [u64; IoClass::COUNT],
}

impl Sample {
    const EMPTY: Sample = Sample {
        busy: Nanos::ZERO,
        requests: [0; IoClass::COUNT],
        bytes: [0; IoClass::COUNT],
        squares: [0; IoClass::COUNT],
    };
}

/// Cuts busy time into stretches.
///
/// The storage is taken to be busy from when the window refuses a request until the gate has room
/// and nothing to send. Nothing else is known of the device.
#[derive(Clone, Debug)]
pub(super) struct Stretches {
    /// When the stretch began, while there is one.
    begun: Option<Nanos>,
    /// Since when the window stands open, while it does.
    opened: Option<Nanos>,
    /// How long it did, in this stretch.
    open: u64,
    sent: Sample,
    total: u32,
    /// How long this stretch is to be.
    length: Nanos,
}

impl Stretches {
    pub(super) fn new() -> Stretches {
        Stretches {
            begun: None,
            opened: None,
            open: 0,
            sent: Sample::EMPTY,
            total: 0,
            length: SHORTEST,
        }
    }

    /// A request goes to the storage.
    #[inline]
    pub(super) fn dispatched(&mut self, size: QueuedSize) {
        let (class, bytes) = size.parts();
        let pages = bytes >> 12;
        self.sent.requests[class] = self.sent.requests[class].saturating_add(1);
        self.sent.bytes[class] = self.sent.bytes[class].saturating_add(bytes);
        self.sent.squares[class] = self.sent.squares[class].saturating_add(pages * pages);
        self.total = self.total.saturating_add(1);
    }

    /// The window has room, and there is nothing to send.
    #[inline]
    pub(super) fn opened(&mut self, now: Nanos) {
        if self.opened.is_none() {
            self.opened = Some(now);
        }
    }

    /// The window is full. Returns what was sent in the stretch that ends now, if one does; a part
    /// of a second is drawn from `random` for the next.
    #[inline]
    pub(super) fn filled(&mut self, now: Nanos, in_flight: u32, random: u64) -> Option<Sample> {
        let Some(begun) = self.begun else {
            self.begin(now, random);
            return None;
        };
        if let Some(opened) = self.opened.take() {
            let open = now.since(opened);
            self.open = self.open.saturating_add(open.0);
            if open > OPEN {
                self.begin(now, random);
                return None;
            }
        }
        let passed = now.since(begun);
        if passed < self.length {
            return None;
        }
        self.end(now, passed, in_flight, random)
    }

    fn end(&mut self, now: Nanos, passed: Nanos, in_flight: u32, random: u64) -> Option<Sample> {
        let enough = self.total >= in_flight.saturating_mul(TURNS).max(FEWEST);
        if !enough && passed < LONGEST {
            return None;
        }
        let busy = passed.0 - self.open.min(passed.0);
        let sent = Sample { busy: Nanos(busy), ..self.sent };
        let tells = self.total >= FEWEST
            && passed <= LEAP
            && self.open <= passed.0 / OPEN_PART
            && busy >= SHORTEST.0 / 2;
        self.begin(now, random);
        tells.then_some(sent)
    }

    /// The next stretch begins.
    fn begin(&mut self, now: Nanos, random: u64) {
        *self = Stretches { begun: Some(now), ..Stretches::new() };
        self.length = SHORTEST + Nanos(random % JITTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Bytes;

    const MS: u64 = 1_000_000;

    fn read() -> QueuedSize {
        QueuedSize::of_class(IoClass::ReadRandom, Bytes::from_kib(8))
    }

    /// Sends a request each millisecond for so long and returns what ended.
    fn run(stretches: &mut Stretches, from: u64, to: u64) -> Vec<Sample> {
        let mut ended = Vec::new();
        for ms in from..to {
            ended.extend(stretches.filled(Nanos(ms * MS), 4, 0));
            stretches.dispatched(read());
        }
        ended
    }

    #[test]
    fn a_stretch_is_a_second_of_a_full_window() {
        let mut stretches = Stretches::new();
        let ended = run(&mut stretches, 0, 2_500);
        assert_eq!(ended.len(), 2);
        let Sample { busy, requests, bytes, squares } = ended[1];
        assert_eq!((busy, requests[0], bytes[0]), (Nanos(1_000 * MS), 1_000, 8_192_000));
        assert_eq!(squares[0], 4_000);
    }

    #[test]
    fn a_window_that_stood_open_tells_nothing() {
        let mut stretches = Stretches::new();
        assert_eq!(run(&mut stretches, 0, 500).len(), 0);
        stretches.opened(Nanos(500 * MS));
        stretches.opened(Nanos(550 * MS));
        assert_eq!(run(&mut stretches, 600, 1_500).len(), 0, "open for a tenth of it");
        assert_eq!(run(&mut stretches, 1_500, 2_200).len(), 1, "the next is whole");
        stretches.opened(Nanos(2_200 * MS));
        assert_eq!(run(&mut stretches, 2_230, 3_100).len(), 1);
        stretches.opened(Nanos(3_100 * MS));
        assert_eq!(run(&mut stretches, 60_000, 60_900).len(), 0, "a new one after a pause");
        assert_eq!(run(&mut stretches, 60_900, 61_100)[0].busy, Nanos(1_000 * MS));
    }

    #[test]
    fn a_short_gap_is_not_counted_as_busy() {
        let mut stretches = Stretches::new();
        run(&mut stretches, 0, 500);
        stretches.opened(Nanos(500 * MS));
        let ended = run(&mut stretches, 540, 1_100);
        assert_eq!(ended[0].busy, Nanos(960 * MS));
    }

    #[test]
    fn slow_storage_makes_a_stretch_longer_and_a_leap_of_the_clock_none() {
        let mut stretches = Stretches::new();
        let mut ended = Vec::new();
        for tick in 0..200 {
            ended.extend(stretches.filled(Nanos(tick * 20 * MS), 8, 0));
            stretches.dispatched(read());
        }
        assert_eq!(ended[0].requests[0], 64, "eight turns of eight");
        let mut stretches = Stretches::new();
        run(&mut stretches, 0, 600);
        assert_eq!(stretches.filled(Nanos(400_000 * MS), 4, 0), None);
        assert_eq!(stretches.filled(Nanos(5 * MS), 4, 0), None, "a step back");
    }

    #[test]
    fn a_stall_belongs_to_the_stretch_that_it_falls_into() {
        let mut stretches = Stretches::new();
        run(&mut stretches, 0, 500);
        let ended = run(&mut stretches, 2_000, 2_010);
        assert_eq!((ended[0].busy, ended[0].requests[0]), (Nanos(2_000 * MS), 500));
    }
}
