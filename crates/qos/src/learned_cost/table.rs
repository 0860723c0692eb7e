//! What requests cost by class and size, and how a queued request says which it is.

use super::class::IoClass;
use crate::cost::{Cost, clamp_bytes};
use headgate_units::Bytes;

/// Bits of a [`QueuedSize`] that hold the class.
const CLASS_BITS: u32 = 3;
const CLASS_MASK: u32 = (1 << CLASS_BITS) - 1;
const ROWS: usize = 1 << CLASS_BITS;
const _: () = assert!(IoClass::COUNT <= ROWS);

/// The size of the reference IO, a random read.
pub(super) const REFERENCE: Bytes = Bytes::from_kib(4);

/// Costs per byte are counted in so many parts of a millionth.
const FRACTION: u32 = 12;

/// The size of a queued request. With learned costs its last three bits are the class, and the size
/// is rounded up to eight bytes: a decision knows what it charges without more memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueuedSize(u32);

impl QueuedSize {
    /// Of no request.
    pub(crate) const NONE: QueuedSize = QueuedSize(0);

    /// Of a model for which requests of a size are alike.
    #[inline]
    pub(crate) fn plain(bytes: Bytes) -> QueuedSize {
        QueuedSize(clamp_bytes(bytes))
    }

    /// Of a model that tells classes apart.
    #[inline]
    pub(crate) fn of_class(class: IoClass, bytes: Bytes) -> QueuedSize {
        let bytes = clamp_bytes(bytes).min(u32::MAX - CLASS_MASK);
        QueuedSize((bytes + CLASS_MASK) & !CLASS_MASK | class.index() as u32)
    }

    /// As the queue keeps it.
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    #[inline]
    #[cfg(test)]
    pub(crate) fn from_bits(bits: u32) -> QueuedSize {
        QueuedSize(bits)
    }

    /// Class and bytes of one that was made by [`QueuedSize::of_class`].
    #[inline]
    pub(super) fn parts(self) -> (usize, u64) {
        let class = ((self.0 & CLASS_MASK) as usize).min(IoClass::COUNT - 1);
        (class, u64::from(self.bytes_of_class()))
    }

    /// Bytes of one that was made by [`QueuedSize::of_class`].
    #[inline]
    pub(crate) fn bytes_of_class(self) -> u32 {
        self.0 & !CLASS_MASK
    }
}

/// The cost of a request of each class: so much, and so much per byte.
///
/// A random read of 4 KiB costs [`Cost::ONE`]. No request costs less than [`CostTable::LEAST`] or
/// more than [`Cost::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CostTable {
    base: [u64; ROWS],
    /// In 2⁻¹² millionths.
    per_byte: [u64; ROWS],
}

impl CostTable {
    /// The least that a request is charged: a sixteenth of a reference IO.
    pub(crate) const LEAST: Cost = Cost::from_millionths(62_500);

    /// From reference IOs for each request, and for each byte, by class. What is no number or out
    /// of range counts as the nearest that is.
    pub(super) fn new(base: [f64; IoClass::COUNT], per_byte: [f64; IoClass::COUNT]) -> CostTable {
        let one = Cost::ONE.as_millionths() as f64;
        let (mut table, most) = (CostTable { base: [0; ROWS], per_byte: [0; ROWS] }, 1u64 << 31);
        for class in 0..IoClass::COUNT {
            // A cast saturates, and takes what is no number for zero.
            table.base[class] = (base[class] * one + 0.5) as u64;
            table.per_byte[class] =
                ((per_byte[class] * one * f64::from(1 << FRACTION) + 0.5) as u64).min(most);
            table.base[class] = table.base[class].min(Cost::MAX.as_millionths());
        }
        table
    }

    /// Requests of all classes alike: `1 + size / reference`, of 512 bytes at least, but for the
    /// factor that makes the reference IO one.
    pub(super) fn declared(reference: Bytes) -> CostTable {
        let size = reference.0.max(512) as f64;
        let one = 1.0 + REFERENCE.0 as f64 / size;
        CostTable::new([1.0 / one; IoClass::COUNT], [1.0 / size / one; IoClass::COUNT])
    }

    /// One multiplication.
    #[inline]
    pub(crate) fn cost(&self, size: QueuedSize) -> Cost {
        let row = (size.0 & CLASS_MASK) as usize;
        // Below 2^32 · 2^31.
        let data = (u64::from(size.bytes_of_class()) * self.per_byte[row]) >> FRACTION;
        let least = CostTable::LEAST.as_millionths();
        let most = Cost::MAX.as_millionths();
        Cost::from_millionths((self.base[row] + data).clamp(least, most))
    }

    /// What a request of that class and size is charged.
    pub(crate) fn cost_of(&self, class: IoClass, bytes: Bytes) -> Cost {
        self.cost(QueuedSize::of_class(class, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_size_keeps_its_class_and_is_rounded_up(class in 0usize..5, bytes: u64) {
            let size = QueuedSize::of_class(IoClass::ALL[class], Bytes(bytes));
            let (back, rounded) = QueuedSize::from_bits(size.bits()).parts();
            prop_assert_eq!(back, class);
            let clamped = bytes.min(u64::from(u32::MAX - 7));
            prop_assert!(rounded >= clamped && rounded < clamped + 8 && rounded % 8 == 0);
        }

        #[test]
        fn a_cost_is_within_its_bounds_whatever_the_table(
            base: [f64; 5], per_byte: [f64; 5], class in 0usize..5, bytes: u64,
        ) {
            let cost = CostTable::new(base, per_byte).cost_of(IoClass::ALL[class], Bytes(bytes));
            prop_assert!((CostTable::LEAST..=Cost::MAX).contains(&cost));
        }
    }

    #[test]
    fn a_cost_is_a_part_for_the_request_and_a_part_for_its_bytes() {
        let per = 1.0 / 65_536.0;
        let table = CostTable::new([1.0, 0.5, 3.0, 0.001, 1.0], [per, per, 0.0, 0.0, per]);
        let cost = |class, kib| table.cost_of(class, Bytes::from_kib(kib)).as_millionths();
        assert_eq!(cost(IoClass::ReadRandom, 64), 2_000_000);
        assert_eq!(cost(IoClass::ReadSequential, 128), 2_500_000);
        assert_eq!(cost(IoClass::WriteRandom, 1_024), 3_000_000);
        assert_eq!(cost(IoClass::WriteSequential, 4), 62_500, "a sixteenth at the least");
        assert_eq!(cost(IoClass::NoData, 0), 1_000_000);
    }
}
