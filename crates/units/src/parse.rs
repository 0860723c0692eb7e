use alloc::borrow::ToOwned;
use alloc::string::String;
use thiserror::Error;

/// A text that is not the quantity it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{given}' is not {expected}")]
pub struct ParseUnitError {
    given: String,
    expected: &'static str,
}

impl ParseUnitError {
    pub(crate) fn new(given: &str, expected: &'static str) -> ParseUnitError {
        ParseUnitError { given: given.to_owned(), expected }
    }
}

/// `NUMBER[.FRACTION][K|M|G|T|P][iB|B]`, exact in integers, powers of 1,024.
pub(crate) fn parse_scaled(text: &str, expected: &'static str) -> Result<u64, ParseUnitError> {
    let wrong = || ParseUnitError::new(text, expected);
    let digits_end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let unit = suffix.strip_suffix("iB").or_else(|| suffix.strip_suffix('B')).unwrap_or(suffix);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || (number.contains('.') && fraction.is_empty()) {
        return Err(wrong());
    }
    let whole: u128 = whole.parse().map_err(|_| wrong())?;
    let scale = 10u128.pow(fraction.len() as u32);
    let fraction: u128 =
        if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| wrong())? };
    let numerator =
        whole.checked_mul(scale).and_then(|w| w.checked_add(fraction)).ok_or_else(wrong)?;
    let value = numerator.checked_mul(1 << shift).ok_or_else(wrong)? / scale;
    u64::try_from(value).map_err(|_| wrong())
}
