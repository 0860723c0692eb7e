//! Names of datastores, disks and virtual machines.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A name that is safe as a file name, an NBD export name and a metric label.
///
/// 1 to 64 characters out of `A-Z a-z 0-9 . _ -`, the first a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// A text that cannot be a name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{given}' is not a name: use 1 to 64 letters, digits, '.', '_' or '-', and start with a letter or a digit"
)]
pub struct NameError {
    given: String,
}

/// The longest name, in bytes.
pub const NAME_MAX: usize = 64;

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;
    fn from_str(s: &str) -> Result<Name, NameError> {
        let starts_well = s.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        let legal = s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if starts_well && legal && s.len() <= NAME_MAX {
            Ok(Name(s.to_owned()))
        } else {
            // What came from outside is not repeated at any length.
            Err(NameError { given: s.chars().take(80).collect() })
        }
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;
    fn try_from(s: String) -> Result<Name, NameError> {
        s.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_cannot_leave_its_directory() {
        for bad in
            ["", ".", "..", ".hidden", "-x", "_x", "a/b", "a\0b", "a b", "ä", &"a".repeat(65)]
        {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
        for good in ["a", "0", "db-1.data_x", &"a".repeat(64)] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
    }

    proptest! {
        #[test]
        fn a_name_survives_json(text in "\\PC{0,70}") {
            if let Ok(name) = text.parse::<Name>() {
                let json = serde_json::to_string(&name).unwrap();
                prop_assert_eq!(serde_json::from_str::<Name>(&json).unwrap(), name);
            }
        }
    }
}
