use crate::parse::{ParseUnitError, parse_scaled};
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// A size or an offset in bytes.
///
/// Parses `4096`, `64K`, `10G`, `1.5T`, `10GiB`: K, M, G, T, P are powers of 1,024, as in
/// `qemu-img`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` KiB; saturates.
    pub const fn from_kib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 10))
    }

    /// `n` MiB; saturates.
    pub const fn from_mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 20))
    }

    /// `n` GiB; saturates.
    pub const fn from_gib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 30))
    }
}

impl FromStr for Bytes {
    type Err = ParseUnitError;
    fn from_str(s: &str) -> Result<Bytes, ParseUnitError> {
        parse_scaled(s, "a size in bytes such as 4096, 64K, 10G or 1.5T").map(Bytes)
    }
}

/// Prints with the largest binary unit: `512 B`, `64 KiB`, `1.5 GiB`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let power = (self.0.ilog2() / 10) as usize;
        let value = self.0 as f64 / (1u64 << (10 * power)) as f64;
        let fraction = value - value as u64 as f64;
        let digits = if fraction < 0.005 { 0 } else { 2 };
        write!(f, "{value:.digits$} {}", UNITS[power - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_qemu_img_parses() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65536),
            ("64k", 65536),
            ("10G", 10 << 30),
            ("10GiB", 10 << 30),
            ("1.5M", 3 << 19),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "G", "-1", "10Q", "99999999P", "1e3", "NaN"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn display_round_numbers_without_fraction() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes::from_gib(10).to_string(), "10 GiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.50 GiB");
    }
}
