use crate::cost::Cost;
use headgate_units::Bytes;
use thiserror::Error;

/// Service that a disk received at other servers since its last request to this one: the paper's δ
/// and ρ less the request's own cost. See the [module documentation](crate::dmclock).
///
/// The part served by reservation is never more than the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServedElsewhere {
    delta: Cost,
    rho: Cost,
    bytes: Bytes,
}

/// Counts that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ServedElsewhereError {
    /// More was served by reservation than was served.
    #[error(
        "{rho} IOs served by reservation at other servers are more than the {delta} served there in all: rho must be at most delta"
    )]
    RhoAboveDelta {
        /// What was said to be served by reservation.
        rho: Cost,
        /// What was said to be served.
        delta: Cost,
    },
}

impl ServedElsewhere {
    /// Nothing, as a disk on one server sends, and every disk with its first request to a server.
    pub const NONE: ServedElsewhere =
        ServedElsewhere { delta: Cost::from_ios(0), rho: Cost::from_ios(0), bytes: Bytes(0) };

    /// The most that one request reports, per count: 1,048,576 reference IOs. Far beyond what a
    /// scheduler remembers of service elsewhere.
    pub const MAX: Cost = Cost::from_ios(1 << 20);

    /// The pair that a request carries. Counts are capped at [`ServedElsewhere::MAX`] and 1 TiB.
    ///
    /// # Errors
    /// [`ServedElsewhereError::RhoAboveDelta`].
    pub fn new(
        delta: Cost,
        rho: Cost,
        bytes: Bytes,
    ) -> Result<ServedElsewhere, ServedElsewhereError> {
        if rho > delta {
            return Err(ServedElsewhereError::RhoAboveDelta { rho, delta });
        }
        let bytes = bytes.min(Bytes(1 << 40));
        Ok(ServedElsewhere {
            delta: delta.min(ServedElsewhere::MAX),
            rho: rho.min(ServedElsewhere::MAX),
            bytes,
        })
    }

    /// Charged cost of all of it.
    pub fn delta(&self) -> Cost {
        self.delta
    }

    /// Charged cost of what was served in the reservation phase.
    pub fn rho(&self) -> Cost {
        self.rho
    }

    /// Bytes moved.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Whether both counts are zero.
    #[inline]
    pub fn is_none(&self) -> bool {
        *self == ServedElsewhere::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rho_above_delta_is_refused_and_large_counts_are_held() {
        let one = Cost::ONE;
        let error = ServedElsewhere::new(one, Cost::from_ios(2), Bytes(0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "2.000 IOs served by reservation at other servers are more than the 1.000 served there in all: rho must be at most delta"
        );
        let huge = Cost::from_millionths(u64::MAX);
        let held = ServedElsewhere::new(huge, huge, Bytes(u64::MAX)).unwrap();
        assert_eq!(
            (held.delta(), held.rho(), held.bytes()),
            (ServedElsewhere::MAX, ServedElsewhere::MAX, Bytes(1 << 40))
        );
        assert!(
            ServedElsewhere::new(Cost::default(), Cost::default(), Bytes(0)).unwrap().is_none()
        );
    }
}
