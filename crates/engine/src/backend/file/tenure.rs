//! What may take an image from this host while it is open.

use headgate_units::{AtomicNanos, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an image may be taken from this host while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fencing {
    /// No.
    Never,
    /// Its lease may end, or its device be reserved for another: that is looked at as operations
    /// are handed to the kernel.
    AtSubmission,
}

/// For how long an image may be served. The default: for as long as it is open.
#[derive(Debug, Default)]
pub(crate) struct Tenure {
    /// The end of its lease's term, by `CLOCK_BOOTTIME`.
    pub term: Option<Arc<AtomicNanos>>,
    /// Set once its device, which is reserved for this host, refused a request.
    pub refused: Option<Arc<AtomicBool>>,
}

impl Tenure {
    #[inline]
    pub(crate) fn fencing(&self) -> Fencing {
        match (&self.term, &self.refused) {
            (None, None) => Fencing::Never,
            _ => Fencing::AtSubmission,
        }
    }

    /// Whether the term is over, or the device another's.
    pub(crate) fn is_over_at(&self, now: Nanos) -> bool {
        self.term.as_ref().is_some_and(|term| now >= term.get())
            || self.refused.as_ref().is_some_and(|refused| refused.load(Ordering::Acquire))
    }

    /// The storage failed a request in this way.
    pub(crate) fn on_error(&self, errno: i32) {
        // Linux's word for a reservation conflict, whatever the device speaks.
        if errno == libc::EBADE
            && let Some(refused) = &self.refused
        {
            refused.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_conflict_ends_it_and_no_other_error_does() {
        let refused = Arc::new(AtomicBool::new(false));
        let tenure = Tenure { term: None, refused: Some(refused.clone()) };
        assert_eq!(tenure.fencing(), Fencing::AtSubmission);
        for errno in [libc::EIO, libc::ENOSPC, libc::EBADF] {
            tenure.on_error(errno);
            assert!(!tenure.is_over_at(Nanos::MAX), "errno {errno}");
        }
        tenure.on_error(libc::EBADE);
        assert!(tenure.is_over_at(Nanos::ZERO) && refused.load(Ordering::Acquire));
        // Of a device that is not reserved it says nothing.
        let plain = Tenure::default();
        plain.on_error(libc::EBADE);
        assert!(!plain.is_over_at(Nanos::MAX) && plain.fencing() == Fencing::Never);
    }
}
