//! The slots of a disk's queue, and which port may use them.
//!
//! The scheduler chooses among what is queued. Were it all taken by requests of one client, those
//! of others would wait outside, whatever their priority. So some slots are kept for each port: as
//! long as it has fewer queued, the others cannot take them. The rest goes to whoever comes first.

/// Requests of one disk that may wait in the scheduler. Past that they stay where they are, in the
/// ring or the socket, so that a throttled guest costs the host nothing.
pub(crate) const QUEUE_MAX: u32 = 256;

/// Slots kept for each port: enough for the next request of an application of high priority and
/// some more, of which the scheduler sees the next when it has sent one.
const KEPT: u32 = 8;

/// Counts the slots of a disk's queue.
#[derive(Debug, Default)]
pub(crate) struct QueueSlots {
    queued: u32,
    ports: u32,
    /// Of the kept slots, those not in use.
    kept: u32,
}

impl QueueSlots {
    /// Requests queued.
    pub(crate) fn queued(&self) -> u32 {
        self.queued
    }

    /// Slots kept for each port: at most half of all together, and none for a port that is alone.
    fn each(&self) -> u32 {
        if self.ports > 1 { KEPT.min(QUEUE_MAX / 2 / self.ports) } else { 0 }
    }

    /// Requests that a port may queue that has `own` queued.
    pub(crate) fn left(&self, own: u32) -> u32 {
        let for_others = self.kept - self.each().saturating_sub(own).min(self.kept);
        QUEUE_MAX.saturating_sub(self.queued + for_others)
    }

    /// Whether to notify a port that found no room: once half of the queue is free, because
    /// refilling in halves keeps turns long, or half of its own slots.
    pub(crate) fn is_worth_notifying(&self, own: u32) -> bool {
        let own_half = self.each().div_ceil(2);
        let few = own_half > 0 && own <= self.each() - own_half;
        self.left(own) >= if few { own_half } else { QUEUE_MAX / 2 }
    }

    /// A port that has `own` queued queues one more.
    pub(crate) fn add(&mut self, own: &mut u32) {
        if *own < self.each() {
            self.kept -= self.kept.min(1);
        }
        (*own, self.queued) = (*own + 1, self.queued + 1);
    }

    /// One of its requests leaves the queue.
    pub(crate) fn remove(&mut self, own: &mut u32) {
        if *own <= self.each() {
            self.kept += 1;
        }
        (*own, self.queued) = (*own - 1, self.queued - 1);
    }

    /// Divides the slots anew after a port came or went. `ports`: how many requests each port has
    /// queued. O(ports).
    pub(crate) fn divide_among(&mut self, ports: impl ExactSizeIterator<Item = u32>) {
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
        let mut slots = QueueSlots::default();
        slots.divide_among([0].into_iter());
        assert_eq!(slots.left(0), QUEUE_MAX);
        slots.divide_among([0, 0, 0].into_iter());
        let (mut greedy, mut other) = (0, 0);
        while slots.left(greedy) > 0 {
            slots.add(&mut greedy);
        }
        assert_eq!(greedy, QUEUE_MAX - 2 * KEPT);
        assert!(!slots.is_worth_notifying(greedy));
        for _ in 0..KEPT {
            assert!(slots.left(other) > 0);
            slots.add(&mut other);
        }
        assert_eq!(slots.left(other), 0);
        slots.remove(&mut other);
        assert!(slots.left(other) == 1 && !slots.is_worth_notifying(other));
        (0..3).for_each(|_| slots.remove(&mut other));
        assert!(slots.is_worth_notifying(other), "half of its slots are free");
        assert!(!slots.is_worth_notifying(greedy));
    }

    proptest! {
        /// Whatever ports do that keep to what is left to them: each can have its slots, and the
        /// queue is never overfull.
        #[test]
        fn every_port_can_have_its_slots(
            ports in 1usize..200,
            steps in prop::collection::vec((any::<prop::sample::Index>(), 0u8..5), 0..2_000),
        ) {
            let mut slots = QueueSlots::default();
            let mut own = vec![0; ports];
            slots.divide_among(own.iter().copied());
            for (which, what) in steps {
                let port = which.index(ports);
                match what {
                    0 if own[port] > 0 => slots.remove(&mut own[port]),
                    _ if slots.left(own[port]) > 0 => slots.add(&mut own[port]),
                    _ => {}
                }
                prop_assert_eq!(slots.queued, own.iter().sum::<u32>());
                prop_assert!(slots.queued + slots.kept <= QUEUE_MAX);
                for own in &own {
                    prop_assert!(slots.left(*own) >= slots.each().saturating_sub(*own));
                }
            }
        }
    }
}
