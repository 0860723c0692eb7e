//! Numbers and columns of text formats.

use crate::error::Problem;
use crate::record::Kind;

/// Bytes of a sector in formats that count sectors.
pub(crate) const SECTOR: u64 = 512;

/// The columns of a line between commas, without the blanks around them.
pub(crate) fn commas<const N: usize>(line: &[u8]) -> Option<[&[u8]; N]> {
    let mut columns = line.split(|&byte| byte == b',');
    let mut found = [&b""[..]; N];
    for slot in &mut found {
        *slot = columns.next()?.trim_ascii();
    }
    columns.next().is_none().then_some(found)
}

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The words of a line, which are exactly so many.
pub(crate) fn exact_words<const N: usize>(line: &[u8]) -> Option<[&[u8]; N]> {
    let mut all = words(line);
    let mut found = [&b""[..]; N];
    for slot in &mut found {
        *slot = all.next()?;
    }
    all.next().is_none().then_some(found)
}

/// A line has the wrong number of columns.
#[cold]
pub(crate) fn wrong_shape(line: &[u8], expected: &'static str) -> Problem {
    Problem::new("the line", line, expected)
}

fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// A whole number, 0 to 2⁶⁴ - 1.
pub(crate) fn whole(field: &'static str, text: &[u8]) -> Result<u64, Problem> {
    digits(text)
        .ok_or_else(|| Problem::new(field, text, "a whole number from 0 to 18446744073709551615"))
}

/// A whole number times `unit`.
pub(crate) fn scaled(field: &'static str, text: &[u8], unit: u64) -> Result<u64, Problem> {
    let number = whole(field, text)?;
    number.checked_mul(unit).ok_or_else(|| {
        Problem::new(field, text, format!("a whole number from 0 to {}", u64::MAX / unit))
    })
}

/// A decimal number in units of 10^`places` nanoseconds, in nanoseconds. What is finer than that is
/// cut off.
pub(crate) fn decimal(field: &'static str, text: &[u8], places: u32) -> Result<u64, Problem> {
    parse_decimal(text, places).ok_or_else(|| {
        let most = u64::MAX / 10u64.pow(places);
        Problem::new(
            field,
            text,
            format!("a decimal number from 0 to {most} without sign or exponent"),
        )
    })
}

fn parse_decimal(text: &[u8], places: u32) -> Option<u64> {
    let point = text.iter().position(|&byte| byte == b'.');
    let (number, fraction) = match point {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b""[..]),
    };
    // `12.` and `.5` are written by some; a point alone by nobody.
    let number = match (number, fraction) {
        ([], []) => return None,
        ([], _) => 0,
        _ => digits(number)?,
    };
    let mut below = 0u64;
    for position in 0..places as usize {
        let digit = match fraction.get(position) {
            Some(byte) => byte.wrapping_sub(b'0'),
            None => 0,
        };
        if digit > 9 {
            return None;
        }
        below = below * 10 + u64::from(digit);
    }
    let finer = fraction.get(places as usize..).unwrap_or_default();
    if !finer.iter().all(u8::is_ascii_digit) {
        return None;
    }
    number.checked_mul(10u64.pow(places))?.checked_add(below)
}

/// `R` or `W`, and in our own formats `F` and `D`.
pub(crate) fn letter(text: &[u8], allowed: &'static str) -> Result<Kind, Problem> {
    let kind = match text {
        b"R" => Kind::Read,
        b"W" => Kind::Write,
        b"F" => Kind::Flush,
        b"D" => Kind::Discard,
        _ => return Err(Problem::new("the operation", text, allowed)),
    };
    if !allowed.as_bytes().contains(&text[0]) {
        return Err(Problem::new("the operation", text, allowed));
    }
    Ok(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_in_nanoseconds() {
        for (text, places, nanos) in [
            ("0", 9, 0),
            ("1456095145.133076000", 9, 1_456_095_145_133_076_000),
            ("46.1", 3, 46_100),
            ("12.", 3, 12_000),
            (".5", 6, 500_000),
            ("1.0000009", 6, 1_000_000),
            ("7961.833", 6, 7_961_833_000),
        ] {
            assert_eq!(parse_decimal(text.as_bytes(), places), Some(nanos), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_or_too_large_is_refused() {
        for text in [
            "",
            ".",
            "-1",
            "+1",
            "1e3",
            "1.2.3",
            "0x10",
            "99999999999999999999",
            "1.0000000000x",
            "nan",
        ] {
            assert_eq!(parse_decimal(text.as_bytes(), 9), None, "{text}");
        }
        assert_eq!(parse_decimal(b"18446744073.709551615", 9), Some(u64::MAX));
        assert_eq!(parse_decimal(b"18446744073.709551616", 9), None);
        assert_eq!(digits(b"18446744073709551616"), None);
    }
}
