//! Numbers in few characters.

/// A latency in at most four characters: `350u`, `4.2m`, `12m`, `1.5s`.
pub(super) fn micros(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros}u"),
        1_000..9_950 => format!("{:.1}m", micros as f64 / 1e3),
        9_950..999_500 => format!("{}m", (micros + 500) / 1_000),
        999_500..9_950_000 => format!("{:.1}s", micros as f64 / 1e6),
        _ => format!("{}s", (micros + 500_000) / 1_000_000),
    }
}

/// A rate in at most five characters: `0`, `7.5`, `812`, `9999`, `12.3k`, `123k`.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        r if r < 0.05 => "0".into(),
        r if r < 9.95 => format!("{r:.1}"),
        r if r < 9_999.5 => format!("{r:.0}"),
        r if r < 99_950.0 => format!("{:.1}k", r / 1e3),
        r if r < 999_500.0 => format!("{:.0}k", r / 1e3),
        r => format!("{:.1}M", r / 1e6),
    }
}

/// A bandwidth in MiB per second.
pub(super) fn mebibytes(bytes_per_sec: f64) -> String {
    rate(bytes_per_sec / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        for (given, text) in [
            (350, "350u"),
            (4_200, "4.2m"),
            (9_960, "10m"),
            (999_499, "999m"),
            (999_500, "1.0s"),
            (61_000_000, "61s"),
        ] {
            assert_eq!(micros(given), text);
        }
        for (given, text) in [
            (0.0, "0"),
            (7.46, "7.5"),
            (811.6, "812"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (4.5e6, "4.5M"),
        ] {
            assert_eq!(rate(given), text);
        }
    }
}
