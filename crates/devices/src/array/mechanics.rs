use super::divisor::Divisor;
use super::spec::DiskKind;

/// Fractions are counted in 2⁻³⁰.
const ONE: u32 = 30;

/// The moving parts of a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mechanics {
    /// One revolution.
    rotation: Divisor,
    /// Bytes that pass the head in one revolution.
    track: Divisor,
    /// Seek to the next track.
    shortest_seek: u64,
    /// Seek over the whole stroke.
    longest_seek: u64,
    /// Bytes in use, spread over the whole stroke; scaled so that a distance within can be shifted
    /// by [`ONE`].
    stroke: Divisor,
    /// By so many bits. A stroke that large loses nothing that matters.
    scaled: u32,
}

/// Where a request starts on a spindle, as the mechanics see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sector {
    start: u64,
    track: u64,
    /// When it passes the head, within a revolution.
    angle: u64,
}

/// The arm and the platter at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stance {
    /// Past the last byte transferred.
    head: u64,
    track: u64,
    /// How far the platter has turned, within a revolution.
    turned: u64,
}

impl Mechanics {
    pub(super) fn new(kind: DiskKind, span: u64) -> Mechanics {
        let (rotation, track, shortest_seek, longest_seek) = match kind {
            DiskKind::Fc15k => (4_000_000, 400_000, 300_000, 6_400_000),
            DiskKind::Sata7k => (8_333_333, 583_333, 800_000, 15_200_000),
        };
        let scaled = (ONE + 1).saturating_sub(span.leading_zeros());
        Mechanics {
            rotation: Divisor::new(rotation),
            track: Divisor::new(track),
            shortest_seek,
            longest_seek,
            stroke: Divisor::new(span >> scaled),
            scaled,
        }
    }

    /// One revolution.
    pub(super) fn rotation(&self) -> u64 {
        self.rotation.get()
    }

    pub(super) fn sector(&self, start: u64) -> Sector {
        let (track, within) = self.track.div_rem(start);
        Sector { start, track, angle: self.track.div(within * self.rotation.get()) }
    }

    /// The longest time until the head is over a sector: the whole stroke, and a revolution.
    pub(super) fn longest(&self) -> u64 {
        self.longest_seek + self.rotation.get()
    }

    /// With the platter at `phase` at time zero.
    pub(super) fn stance(&self, now: u64, phase: u64, head: u64) -> Stance {
        Stance {
            head,
            track: self.track.div(head),
            turned: self.rotation.rem(self.rotation.rem(now) + phase),
        }
    }

    pub(super) fn transfer(&self, len: u64) -> u64 {
        match len.checked_mul(self.rotation.get()) {
            Some(product) => self.track.div(product),
            // Past 2 TB in one piece, where a revolution more or less is no matter.
            None => self.track.div(len).saturating_mul(self.rotation.get()),
        }
    }

    /// shortest + (longest - shortest) * sqrt(distance / span): the arm accelerates half the way
    /// and brakes the other half. Over random pairs of places the mean of the root is 8/15.
    #[inline(always)]
    fn seek(&self, distance: u64) -> u64 {
        let distance = (distance >> self.scaled).min(self.stroke.get());
        let root = root(self.stroke.div(distance << ONE) << ONE);
        self.shortest_seek + (((self.longest_seek - self.shortest_seek) * root) >> ONE)
    }

    /// The distance from which on reaching any sector takes `time` at least: the steps of
    /// [`Mechanics::seek`] the other way round, exactly. [`u64::MAX`] where there is none.
    pub(super) fn reach(&self, time: u64) -> u64 {
        let range = self.longest_seek - self.shortest_seek;
        let over = time.saturating_sub(self.shortest_seek);
        if over > range {
            return u64::MAX;
        }
        let root = (over << ONE).div_ceil(range);
        let fraction = (root * root).div_ceil(1 << ONE);
        let distance = (fraction * self.stroke.get()).div_ceil(1 << ONE);
        // On the head's track, and as far behind it, there is no seek.
        (distance << self.scaled).max(self.track.get() + 1)
    }

    /// How far a sector is from the head.
    #[inline(always)]
    pub(super) fn distance(from: Stance, to: Sector) -> u64 {
        to.start.abs_diff(from.head)
    }

    /// Time until the head is over the sector. Continuing at the head costs nothing, and a little
    /// further on costs the time for what passes by: disks read ahead, so a stream does not lose a
    /// revolution between its requests.
    #[inline(always)]
    pub(super) fn positioning(&self, from: Stance, to: Sector) -> u64 {
        if let Some(gap) = to.start.checked_sub(from.head).filter(|&gap| gap <= self.track.get()) {
            return self.transfer(gap);
        }
        let seek = if to.track == from.track { 0 } else { self.seek(to.start.abs_diff(from.head)) };
        let arrived = self.rotation.rem(from.turned + seek);
        let wait = to.angle + self.rotation.get() - arrived;
        seek + if wait >= self.rotation.get() { wait - self.rotation.get() } else { wait }
    }
}

/// The square root, rounded down, of a number up to 2⁶⁰ that a double holds exactly. The
/// processor's root is correctly rounded, so it is this one, or the next where that is nearer.
#[inline]
fn root(number: u64) -> u64 {
    // By way of signed integers, for which processors have instructions.
    let root = libm::sqrt(number as i64 as f64) as i64 as u64;
    if root * root > number { root - 1 } else { root }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;

    const SPAN: u64 = 100 << 30;

    #[test]
    fn seeks_follow_the_root_of_the_distance() {
        for (kind, least, mean, most) in
            [(DiskKind::Fc15k, 300, 3_553, 6_400), (DiskKind::Sata7k, 800, 8_480, 15_200)]
        {
            let mechanics = Mechanics::new(kind, SPAN);
            assert_eq!(mechanics.seek(SPAN), most * 1_000);
            assert_eq!(mechanics.seek(1) / 1_000, least);
            let mut random = SplitMix64::new(1);
            let total: u64 = (0..20_000)
                .map(|_| mechanics.seek(random.below(SPAN).abs_diff(random.below(SPAN))))
                .sum();
            assert!(
                (total / 20_000 / 1_000).abs_diff(mean) < mean / 50,
                "{} us",
                total / 20_000 / 1_000
            );
        }
        assert!(
            Mechanics::new(DiskKind::Fc15k, 0).seek(u64::MAX) <= 6_400_000,
            "out of bounds is not out of order"
        );
    }

    /// Seeks of two disks in milliseconds over so many cylinders, the last over all, as they were
    /// measured for DiskSim 4.0 (CMU-PDL-08-101; `valid/*.seek` in its distribution). With a
    /// disk's own shortest and longest seek the law is at most a quarter off in between, and never
    /// below by more than a twentieth: real arms coast at their top speed over the middle
    /// distances.
    #[test]
    fn the_law_is_near_measured_seeks() {
        let atlas_10k = [
            (1, 1.245),
            (375, 3.047),
            (1_200, 3.825),
            (2_400, 4.891),
            (4_800, 6.714),
            (7_200, 8.686),
            (9_600, 10.160),
            (10_021, 10.828),
        ];
        let cheetah_9lp = [
            (1, 0.831),
            (375, 2.962),
            (1_200, 4.397),
            (2_400, 5.726),
            (3_600, 6.977),
            (4_800, 8.223),
            (6_000, 9.698),
            (6_894, 10.627),
        ];
        let ours = Mechanics::new(DiskKind::Fc15k, SPAN);
        for measured in [atlas_10k, cheetah_9lp] {
            let ((_, shortest), (stroke, longest)) = (measured[0], measured[7]);
            for (cylinders, took) in measured {
                let seek = ours.seek(SPAN / stroke * cylinders);
                let part = (seek - ours.shortest_seek) as f64
                    / (ours.longest_seek - ours.shortest_seek) as f64;
                let off = (shortest + part * (longest - shortest)) / took - 1.0;
                assert!((-0.05..0.25).contains(&off), "{cylinders} of {stroke}: {off:.3}");
            }
        }
    }

    /// Average read seeks in specifications: Hitachi Ultrastar 15K450 3.3 and 3.1 ms (450 and 300
    /// GB), HGST Ultrastar 7K8 8.0 ms.
    #[test]
    fn mean_seeks_are_those_of_specifications() {
        for (kind, specified) in
            [(DiskKind::Fc15k, 3.3), (DiskKind::Fc15k, 3.1), (DiskKind::Sata7k, 8.0)]
        {
            let mechanics = Mechanics::new(kind, SPAN);
            let mut random = SplitMix64::new(3);
            let distances = (0..20_000).map(|_| random.below(SPAN).abs_diff(random.below(SPAN)));
            let mean =
                distances.map(|distance| mechanics.seek(distance) as f64).sum::<f64>() / 2e10;
            assert!((mean / specified - 1.0).abs() < 0.15, "{mean:.2} ms for {specified}");
        }
    }

    /// The same in plain arithmetic, each time from the beginning.
    fn plainly(kind: DiskKind, span: u64, now: u64, phase: u64, head: u64, start: u64) -> u64 {
        let (rotation, track, shortest, longest): (u64, u64, u64, u64) = match kind {
            DiskKind::Fc15k => (4_000_000, 400_000, 300_000, 6_400_000),
            DiskKind::Sata7k => (8_333_333, 583_333, 800_000, 15_200_000),
        };
        if head <= start && start - head <= track {
            return (start - head) * rotation / track;
        }
        let mut seek = 0;
        if start / track != head / track {
            let scaled = 31u32.saturating_sub(span.leading_zeros());
            let fraction =
                ((start.abs_diff(head).min(span) >> scaled) << 30) / (span >> scaled).max(1);
            seek = shortest + (((longest - shortest) * (fraction << 30).isqrt()) >> 30);
        }
        let over = (now % rotation + phase + seek) % rotation;
        let angle = start % track * rotation / track;
        seek + (angle + rotation - over) % rotation
    }

    proptest! {
        #[test]
        fn shortcuts_change_nothing(
            kind in prop::sample::select(vec![DiskKind::Fc15k, DiskKind::Sata7k]),
            shift in 0u32..44,
            span in any::<u64>(),
            now in any::<u64>(),
            phase in 0u64..4_000_000,
            (head, start) in (any::<u64>(), any::<u64>()),
            near in prop::option::of(0u64..2_000_000),
        ) {
            let span = (span >> 3 >> shift).max(1);
            let head = head % span;
            let start = near.map_or(start % span, |near| (head + near).saturating_sub(1_000_000).min(span - 1));
            let mechanics = Mechanics::new(kind, span);
            let ours = mechanics.positioning(mechanics.stance(now, phase, head), mechanics.sector(start));
            prop_assert_eq!(ours, plainly(kind, span, now, phase, head, start));
        }

        /// Also of those whose seek is what the time is, or a nanosecond off.
        #[test]
        fn what_is_out_of_reach_takes_the_time_and_the_rest_might_not(
            kind in prop::sample::select(vec![DiskKind::Fc15k, DiskKind::Sata7k]),
            span in (any::<u64>(), 3u32..44).prop_map(|(span, shift)| (span >> shift).max(1)),
            time in prop_oneof![0u64..20_000_000, Just(u64::MAX)],
            (now, head, start) in (any::<u64>(), any::<u64>(), any::<u64>()),
            off in prop::option::of(0u64..3),
        ) {
            let (head, start) = (head % span, start % span);
            let mechanics = Mechanics::new(kind, span);
            let seek = mechanics.seek(start.abs_diff(head));
            let time = off.map_or(time, |off| (seek + off).saturating_sub(1));
            let reach = mechanics.reach(time);
            let stance = mechanics.stance(now, 0, head);
            let sector = mechanics.sector(start);
            if Mechanics::distance(stance, sector) >= reach {
                prop_assert!(mechanics.positioning(stance, sector) >= time);
            } else if start.abs_diff(head) > mechanics.track.get() {
                prop_assert!(seek < time);
            }
        }

        #[test]
        fn the_root_is_the_integer_one(fraction in 0u64..=1 << 30, near in 0u64..=1 << 15, off in 0u64..3) {
            for fraction in [fraction, (near * near).saturating_sub(off)] {
                prop_assert_eq!(root(fraction << 30), (fraction << 30).isqrt());
            }
        }
    }
}
