use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Thousandths: a part of a whole, 0 to 1,000, or a ratio beyond it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Permille(pub u32);

impl Permille {
    /// The whole.
    pub const WHOLE: Permille = Permille(1_000);

    /// The nearest to `ratio`. What is not a number, or below zero, is zero; what is too large is
    /// the largest.
    pub fn of_ratio(ratio: f64) -> Permille {
        // A float-to-integer cast saturates, and takes what is not a number for zero.
        Permille(libm::round(ratio * 1e3) as u32)
    }

    /// As a float: 1,000 is 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e3
    }

    /// So many thousandths of `amount`, rounded down; saturates.
    pub fn of(self, amount: u64) -> u64 {
        u64::try_from(u128::from(amount) * u128::from(self.0) / 1_000).unwrap_or(u64::MAX)
    }
}

/// Prints as per cent: `12.5 %`.
impl fmt::Display for Permille {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => write!(f, "{whole} %"),
            (whole, tenth) => write!(f, "{whole}.{tenth} %"),
        }
    }
}

/// What a disk, a datastore, a machine or a rule is called. Cloning copies a pointer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Name(Arc<str>);

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name(text.into())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name(text.into())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.as_str().to_owned()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_that_are_no_numbers_do_no_harm() {
        assert_eq!(Permille::of_ratio(f64::NAN), Permille(0));
        assert_eq!(Permille::of_ratio(-1.0), Permille(0));
        assert_eq!(Permille::of_ratio(f64::INFINITY), Permille(u32::MAX));
        assert_eq!(Permille::of_ratio(0.1254), Permille(125));
    }

    #[test]
    fn thousandths_print_as_per_cent() {
        assert_eq!(Permille(125).to_string(), "12.5 %");
        assert_eq!(Permille(800).to_string(), "80 %");
        assert_eq!(Permille(800).of(u64::MAX), 14_757_395_258_967_641_292);
    }
}
