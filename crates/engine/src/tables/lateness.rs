//! How long a storage may have a request.

use headgate_units::Nanos;

/// When the requests at a storage are looked at next. What is sent later becomes late later, so
/// between two looks nothing is missed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lateness {
    patience: Nanos,
    next: Nanos,
}

impl Lateness {
    pub(crate) fn new(now: Nanos, patience: Nanos) -> Lateness {
        Lateness { patience, next: now + patience }
    }

    pub(crate) fn patience(&self) -> Nanos {
        self.patience
    }

    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    /// The oldest request at the storage was sent there at this time. Whether it is late.
    pub(crate) fn looked(&mut self, now: Nanos, oldest: Option<Nanos>) -> bool {
        self.next = oldest.unwrap_or(now) + self.patience;
        self.next <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_late_and_is_seen_at_that_moment() {
        let at = Nanos::from_secs;
        let mut lateness = Lateness::new(at(100), at(20));
        assert_eq!(lateness.next(), at(120));
        assert!(!lateness.looked(at(120), Some(at(101))));
        assert_eq!(lateness.next(), at(121), "when that request is late");
        assert!(!lateness.looked(at(121), None));
        assert_eq!(lateness.next(), at(141));
        assert!(lateness.looked(at(141), Some(at(121))));
        assert!(lateness.looked(at(150), Some(at(121))), "and still");
    }
}
