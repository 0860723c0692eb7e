//! Room in a disk's queue, and who may use it.
//!
//! The scheduler chooses among what is queued. Were it all taken by requests of one client, those of others would wait outside,
//! whatever their priority. So some places are kept for each port: as long as it has fewer queued, the others cannot
//! take them. All else is had by who comes first.

use super::disk::QUEUE_MAX;

/// Places kept for each port: enough for the next request of an application of high priority and some more, of which the scheduler
/// sees the next when it has sent one.
const KEPT: u32 = 8;

/// A disk's queue, counted.
#[derive(Debug, Default)]
pub(super) struct Room {
    queued: u32,
    ports: u32,
    /// Of the kept places, those not in use.
    kept: u32,
}

impl Room {
    /// Requests queued.
    pub(super) fn queued(&self) -> u32 {
        self.queued
    }

    /// Places kept for each port: at most half of all together, and none for a port that is alone.
    fn each(&self) -> u32 {
        if self.ports > 1 { KEPT.min(QUEUE_MAX / 2 / self.ports) } else { 0 }
    }

    /// Requests that a port may queue that has `own` queued.
    pub(super) fn left(&self, own: u32) -> u32 {
        let for_others = self.kept - self.each().saturating_sub(own).min(self.kept);
        QUEUE_MAX.saturating_sub(self.queued + for_others)
    }

    /// Whether to tell a port that found no room: once half of the queue is free, because refilling in halves keeps turns long, or half
    /// of its own places.
    pub(super) fn is_worth_telling(&self, own: u32) -> bool {
        let own_half = self.each().div_ceil(2);
        let few = own_half > 0 && own <= self.each() - own_half;
        self.left(own) >= if few { own_half } else { QUEUE_MAX / 2 }
    }

    /// A port that has `own` queued queues one more.
    pub(super) fn add(&mut self, own: &mut u32) {
        if *own < self.each() {
            self.kept -= self.kept.min(1);
        }
        (*own, self.queued) = (*own + 1, self.queued + 1);
    }

    /// One of its requests leaves the queue.
    pub(super) fn remove(&mut self, own: &mut u32) {
        if *own <= self.each() {
            self.kept += 1;
        }
        (*own, self.queued) = (*own - 1, self.queued - 1);
    }

    /// Ports came or went: these are they, by what they have queued. Linear in their number.
    pub(super) fn divide_among(&mut self, ports: impl ExactSizeIterator<Item = u32>) {
        self.ports = ports.len() as u32;
        let each = self.each();
        self.kept = ports.map(|own| each.saturating_sub(own)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_port_alone_has_all_and_one_among_others_leaves_them_theirs() {
        let mut room = Room::default();
        room.divide_among([0].into_iter());
        assert_eq!(room.left(0), QUEUE_MAX);
        room.divide_among([0, 0, 0].into_iter());
        let (mut greedy, mut other) = (0, 0);
        while room.left(greedy) > 0 {
            room.add(&mut greedy);
        }
        assert_eq!(greedy, QUEUE_MAX - 2 * KEPT);
        assert!(!room.is_worth_telling(greedy));
        for _ in 0..KEPT {
            assert!(room.left(other) > 0);
            room.add(&mut other);
        }
        assert_eq!(room.left(other), 0);
        room.remove(&mut other);
        assert!(room.left(other) == 1 && !room.is_worth_telling(other));
        (0..3).for_each(|_| room.remove(&mut other));
        assert!(room.is_worth_telling(other), "half of its places are free");
        assert!(!room.is_worth_telling(greedy));
    }

    proptest! {
        /// Whatever ports do that keep to what is left to them: each can have its places, and the queue is never overfull.
        #[test]
        fn every_port_can_have_its_places(
            ports in 1usize..200,
            steps in prop::collection::vec((any::<prop::sample::Index>(), 0u8..5), 0..2_000),
        ) {
            let mut room = Room::default();
            let mut own = vec![0; ports];
            room.divide_among(own.iter().copied());
            for (which, what) in steps {
                let port = which.index(ports);
                match what {
                    0 if own[port] > 0 => room.remove(&mut own[port]),
                    _ if room.left(own[port]) > 0 => room.add(&mut own[port]),
                    _ => {}
                }
                prop_assert_eq!(room.queued, own.iter().sum::<u32>());
                prop_assert!(room.queued + room.kept <= QUEUE_MAX);
                for own in &own {
                    prop_assert!(room.left(*own) >= room.each().saturating_sub(*own));
                }
            }
        }
    }
}
