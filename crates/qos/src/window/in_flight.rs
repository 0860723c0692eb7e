use crate::cost::Cost;

/// Classes of costs for each power of two, and the powers that are told apart: from 2^16 to 2^36
/// millionths, a sixteenth of a reference IO to the most that a request is charged.
const PARTS: u64 = 4;
const FIRST: u32 = 16;
const CLASSES: usize = 21 * PARTS as usize;

/// What is in flight: how many requests, and what they count for together.
///
/// A request counts for what it costs, but for no more than a bound that may change while it is in
/// flight. Requests are kept by classes of cost, so that what they count for can be told anew, and
/// bounds are where a class begins, so that it is told exactly. O(1) for each request, and
/// O(classes) for a change of the bound.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    requests: u32,
    counted: Cost,
    /// What one counts for at the most.
    most: Cost,
    classes: [Class; CLASSES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    requests: u32,
    work: Cost,
}

/// The class of a cost: four to each power of two.
#[inline]
fn class(cost: Cost) -> usize {
    let cost = cost.as_millionths();
    let power = cost.max(1).ilog2();
    let Some(powers) = power.checked_sub(FIRST) else { return 0 };
    let part = (cost >> (power - 2)) & (PARTS - 1);
    (u64::from(powers) * PARTS + part).min(CLASSES as u64 - 1) as usize
}

/// Where a class begins.
fn start(class: usize) -> Cost {
    let class = class as u64;
    Cost::from_millionths((PARTS + class % PARTS) << (u64::from(FIRST - 2) + class / PARTS))
}

impl InFlight {
    /// Nothing, where a request counts for no more than [`bound`] makes of this.
    pub(super) fn new(most: Cost) -> InFlight {
        InFlight {
            requests: 0,
            counted: Cost::default(),
            most: bound(most),
            classes: [Class::default(); CLASSES],
        }
    }

    #[inline]
    pub(super) fn requests(&self) -> u32 {
        self.requests
    }

    /// What the requests count for together.
    #[inline]
    pub(super) fn counted(&self) -> Cost {
        self.counted
    }

    /// What a request of this cost counts for.
    #[inline]
    pub(super) fn counts(&self, cost: Cost) -> Cost {
        cost.min(self.most)
    }

    #[inline]
    pub(super) fn add(&mut self, cost: Cost) {
        self.requests = self.requests.saturating_add(1);
        self.counted += self.counts(cost);
        let class = &mut self.classes[class(cost)];
        class.requests = class.requests.saturating_add(1);
        class.work += cost;
    }

    #[inline]
    pub(super) fn remove(&mut self, cost: Cost) {
        self.requests = self.requests.saturating_sub(1);
        self.counted = self.counted - self.counts(cost);
        let class = &mut self.classes[class(cost)];
        class.requests = class.requests.saturating_sub(1);
        class.work = class.work - cost;
        if self.requests == 0 && self.counted != Cost::default() {
            self.heal();
        }
    }

    /// Something came back that did not go out: with nothing in flight there is no work.
    #[cold]
    fn heal(&mut self) {
        debug_assert!(false, "what comes back costs what it did when it went out");
        (self.counted, self.classes) = (Cost::default(), [Class::default(); CLASSES]);
    }

    /// A request counts for no more than [`bound`] makes of this.
    pub(super) fn set_most(&mut self, most: Cost) {
        let most = bound(most);
        if most == self.most {
            return;
        }
        self.most = most;
        let below = class(most);
        self.counted = Cost::default();
        for (number, class) in self.classes.iter().enumerate() {
            self.counted +=
                if number < below { class.work } else { most.times(class.requests.into()) };
        }
    }
}

/// The next beginning of a class, which is a quarter more at the most; the last one for what is
/// beyond it. Never that of the first, which holds all that is less, too.
pub(super) fn bound(most: Cost) -> Cost {
    let class = class(most).max(1);
    if start(class) >= most { start(class) } else { start((class + 1).min(CLASSES - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn classes_are_in_order_and_a_quarter_wide(cost in 81_920u64..=65_536_000_000) {
            let cost = Cost::from_millionths(cost);
            let at = class(cost);
            prop_assert!(start(at) <= cost);
            prop_assert!(at + 1 == CLASSES || cost < start(at + 1));
            let bound = bound(cost).as_millionths();
            prop_assert!(bound >= cost.as_millionths() && bound * 4 <= cost.as_millionths() * 5 + 4);
            prop_assert_eq!(start(class(Cost::from_millionths(bound))).as_millionths(), bound);
        }
    }

    #[test]
    fn the_least_and_the_dearest_have_a_class() {
        assert_eq!((class(Cost::default()), class(Cost::from_millionths(65_535))), (0, 0));
        assert!(class(Cost::MAX) < CLASSES - 1);
        assert_eq!(class(Cost::from_millionths(u64::MAX)), CLASSES - 1);
        assert!(bound(Cost::from_millionths(u64::MAX)) > Cost::MAX);
    }
}
