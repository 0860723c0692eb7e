use super::slots::Slots;
use headgate_units::Nanos;

/// Reports older than so many periods do not count.
pub(super) const OLDEST: u64 = 3;

/// The windows that were in force, the present one first.
#[derive(Clone, Debug)]
pub(super) struct History([Slots; OLDEST as usize + 2]);

impl History {
    pub(super) fn new(window: Slots) -> History {
        History([window; OLDEST as usize + 2])
    }

    pub(super) fn push(&mut self, window: Slots) {
        self.0.rotate_right(1);
        self.0[0] = window;
    }

    /// The window in force during the period that ended `age` ago; between two of them the weighted
    /// mean.
    pub(super) fn at(&self, age: Nanos, period: Nanos) -> Slots {
        let period = period.0.max(1);
        let index = usize::try_from(age.0 / period).unwrap_or(usize::MAX).min(self.0.len() - 2);
        let into = (age.0 - index as u64 * period).min(period);
        self.0[index].scaled(period - into, period) + self.0[index + 1].scaled(into, period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_by_age() {
        let mut history = History::new(Slots::whole(10));
        history.push(Slots::whole(20));
        history.push(Slots::whole(40));
        let at = |age| history.at(Nanos(age), Nanos(100));
        assert_eq!(
            [at(0), at(50), at(100), at(150), at(200)],
            [40, 30, 20, 15, 10].map(Slots::whole)
        );
        assert_eq!(at(u64::MAX), Slots::whole(10));
    }
}
