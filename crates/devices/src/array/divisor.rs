/// A divisor known beforehand, whose reciprocal turns a division into a multiplication: what costs
/// a disk model most is the division of places by tracks and of times by revolutions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    divisor: u64,
    /// (2⁶⁴ - 1) / divisor, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// Zero is taken to be 1.
    pub(super) const fn new(divisor: u64) -> Divisor {
        let divisor = if divisor == 0 { 1 } else { divisor };
        Divisor { divisor, reciprocal: u64::MAX / divisor }
    }

    #[inline]
    pub(super) const fn get(self) -> u64 {
        self.divisor
    }

    /// Quotient and remainder, exact: the reciprocal lacks less than 1 of 2⁶⁴ / divisor, so the
    /// product lacks less than 1, and rounded down it is the quotient or the one before.
    #[inline]
    pub(super) const fn div_rem(self, number: u64) -> (u64, u64) {
        let quotient = ((number as u128 * self.reciprocal as u128) >> 64) as u64;
        let rest = number - quotient * self.divisor;
        if rest >= self.divisor { (quotient + 1, rest - self.divisor) } else { (quotient, rest) }
    }

    #[inline]
    pub(super) const fn div(self, number: u64) -> u64 {
        self.div_rem(number).0
    }

    /// The quotient rounded up.
    #[inline]
    pub(super) const fn div_ceil(self, number: u64) -> u64 {
        let (quotient, rest) = self.div_rem(number);
        if rest > 0 { quotient + 1 } else { quotient }
    }

    #[inline]
    pub(super) const fn rem(self, number: u64) -> u64 {
        self.div_rem(number).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of all magnitudes, and those beside the powers of two.
    fn number() -> impl Strategy<Value = u64> {
        let any = (any::<u64>(), 0u32..64).prop_map(|(number, shift)| number >> shift);
        let beside = (0u32..64, 0u64..5)
            .prop_map(|(shift, off)| (1u64 << shift).wrapping_add(off).wrapping_sub(2));
        prop_oneof![any, beside]
    }

    proptest! {
        #[test]
        fn it_divides(number in number(), divisor in number()) {
            let divisor = divisor.max(1);
            prop_assert_eq!(Divisor::new(divisor).div_rem(number), (number / divisor, number % divisor));
            prop_assert_eq!(Divisor::new(divisor).div_ceil(number), number.div_ceil(divisor));
        }

        #[test]
        fn it_divides_multiples_and_their_neighbours(divisor in number(), factor in number(), off in 0u64..3) {
            let divisor = divisor.max(1);
            let number = (factor % (u64::MAX / divisor)).wrapping_mul(divisor).wrapping_add(off).wrapping_sub(1);
            prop_assert_eq!(Divisor::new(divisor).div_rem(number), (number / divisor, number % divisor));
        }
    }
}
