use super::slots::{MILLION, Slots, ratio};
use crate::cost::Cost;

const ALL: Cost = Cost::from_millionths(u64::MAX);

/// A window: so many requests in flight, and so much work.
///
/// A request may go while fewer requests are in flight than the one, and less work than the other,
/// where no request counts for more than about half of the window. So two large requests fill it,
/// however large they are, and one leaves room for others beside it. A request that is dearer than
/// the whole window goes all the same, when there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkWindow {
    /// Requests: they need not be whole.
    pub requests: Slots,
    /// Reference IOs.
    pub work: Cost,
    /// What one request counts for at the most.
    pub most: Cost,
}

impl WorkWindow {
    /// The largest: it bounds no work.
    pub const OPEN: WorkWindow = WorkWindow { requests: Slots::WINDOW_MAX, work: ALL, most: ALL };

    /// One request, or one reference IO.
    pub const ONE: WorkWindow =
        WorkWindow { requests: Slots::ONE, work: Cost::ONE, most: Cost::ONE };

    /// So many requests that cost so much each, one of which counts for half of that at the most;
    /// saturates.
    pub fn new(requests: Slots, each: Cost) -> WorkWindow {
        let work = ratio(requests.as_millionths(), each.as_millionths(), MILLION);
        let work = Cost::from_millionths(work);
        WorkWindow { requests, work, most: Cost::from_millionths(work.as_millionths() / 2) }
    }

    /// The smaller of both, in each respect.
    #[must_use]
    pub fn min(self, other: WorkWindow) -> WorkWindow {
        WorkWindow {
            requests: self.requests.min(other.requests),
            work: self.work.min(other.work),
            most: self.most.min(other.most),
        }
    }

    /// The larger of both, in each respect.
    #[must_use]
    pub fn max(self, other: WorkWindow) -> WorkWindow {
        WorkWindow {
            requests: self.requests.max(other.requests),
            work: self.work.max(other.work),
            most: self.most.max(other.most),
        }
    }

    /// Whether it holds less than the other in any respect.
    pub fn is_narrower_than(self, other: WorkWindow) -> bool {
        self.requests < other.requests || self.work < other.work
    }

    /// `self · numerator / denominator`, to the nearest millionth; saturates.
    #[must_use]
    pub(crate) fn scaled(self, numerator: u64, denominator: u64) -> WorkWindow {
        let scaled =
            |cost: Cost| Cost::from_millionths(ratio(cost.as_millionths(), numerator, denominator));
        WorkWindow {
            requests: self.requests.scaled(numerator, denominator),
            work: scaled(self.work),
            most: scaled(self.most),
        }
    }

    /// Rounded down to whole requests and reference IOs.
    #[must_use]
    pub(crate) fn floor(self) -> WorkWindow {
        let work = self.work.as_millionths() / MILLION * MILLION;
        WorkWindow {
            requests: Slots::whole(self.requests.floor()),
            work: Cost::from_millionths(work),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(requests: u64, work: u64) -> WorkWindow {
        WorkWindow {
            requests: Slots::from_millionths(requests),
            work: Cost::from_millionths(work),
            most: Cost::ONE,
        }
    }

    #[test]
    fn the_work_is_that_of_the_requests() {
        let each = Cost::from_millionths(4_413_333);
        let window = WorkWindow::new(Slots::from_millionths(1_500_000), each);
        assert_eq!(window.work, Cost::from_millionths(6_620_000));
        let most = WorkWindow::new(Slots::from_millionths(u64::MAX), Cost::MAX);
        assert_eq!(most.work, Cost::from_millionths(u64::MAX));
    }

    #[test]
    fn both_respects_count() {
        let (a, b) = (window(5, 70), window(6, 60));
        assert_eq!((a.min(b), a.max(b)), (window(5, 60), window(6, 70)));
        assert!(a.is_narrower_than(b) && b.is_narrower_than(a) && !a.is_narrower_than(a));
        let wider = WorkWindow { most: Cost::from_millionths(1_250_000), ..window(13, 125) };
        assert_eq!(window(10, 100).scaled(5, 4), wider);
        assert_eq!(window(2_999_999, 7_400_000).floor(), window(2_000_000, 7_000_000));
    }
}
