//! Amounts of bytes as people write them.

/// A policy's fields with a bandwidth, in bytes per second.
pub(super) const BANDWIDTHS: [&str; 4] =
    ["limit_bandwidth", "limit_read_bandwidth", "limit_write_bandwidth", "limit_peak_bandwidth"];

/// Bytes with the largest unit that leaves no rest.
pub(in crate::cli) fn amount(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let fits = |(_, bits): &&(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= *bits;
    match units.iter().find(fits) {
        Some((unit, bits)) => format!("{}{unit}", bytes >> bits),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Bytes;

    #[test]
    fn amounts_are_exact() {
        for (bytes, text) in
            [(0, "0"), (1, "1"), (1536, "1536"), (10 << 30, "10G"), (1 << 40, "1T")]
        {
            assert_eq!(amount(bytes), text);
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes));
        }
    }
}
