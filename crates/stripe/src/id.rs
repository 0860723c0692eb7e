use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// Which striped disk: drawn by whoever makes the disk, and the same in all of its labels. Prints
/// and parses 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeId(pub [u8; 16]);

/// A text that is no [`StripeId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StripeIdError {
    /// It has so many characters.
    #[error("the id of a striped disk has 32 hexadecimal digits, and this has {0} characters")]
    Length(usize),
    /// A character that is none of `0` to `9`, `a` to `f` and `A` to `F`.
    #[error("the id of a striped disk has hexadecimal digits only, and this has {0:?}")]
    Digit(char),
}

/// Prints lower case.
impl fmt::Display for StripeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Takes both cases. O(characters).
impl FromStr for StripeId {
    type Err = StripeIdError;
    fn from_str(text: &str) -> Result<StripeId, StripeIdError> {
        let length = text.chars().count();
        if length != 32 {
            return Err(StripeIdError::Length(length));
        }
        let mut id = [0; 16];
        for (at, digit) in text.chars().enumerate() {
            let value = digit.to_digit(16).ok_or(StripeIdError::Digit(digit))?;
            id[at / 2] = id[at / 2] << 4 | value as u8;
        }
        Ok(StripeId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_parses() {
        let text = "00ff102030405060708090a0b0c0d0e1";
        let id: StripeId = text.parse().unwrap();
        assert_eq!((id.0[0], id.0[1], id.0[2], id.0[15]), (0, 0xFF, 0x10, 0xE1));
        assert_eq!(id.to_string(), text);
        assert_eq!(text.to_uppercase().parse(), Ok(id));
    }

    #[test]
    fn other_texts_are_no_ids() {
        let parse = |text: &str| text.parse::<StripeId>();
        assert_eq!(parse(""), Err(StripeIdError::Length(0)));
        assert_eq!(parse(&"0".repeat(31)), Err(StripeIdError::Length(31)));
        assert_eq!(parse(&"0".repeat(33)), Err(StripeIdError::Length(33)));
        for wrong in ['g', '+', ' ', '-', 'é'] {
            let text = format!("{wrong}{}", "0".repeat(31));
            assert_eq!(parse(&text), Err(StripeIdError::Digit(wrong)));
        }
    }
}
