//! A TOML value before it has a type.

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A TOML value before it has a type.
pub(super) enum Raw {
    Text(String),
    Whole(i64),
    Float(f64),
    /// Anything else, by its kind.
    Other(String),
}

impl Raw {
    pub(super) fn is_not(&self, expected: &str) -> String {
        let found = match self {
            Raw::Text(text) => Unexpected::Str(text).to_string(),
            Raw::Whole(number) => Unexpected::Signed(*number).to_string(),
            Raw::Float(number) => Unexpected::Float(*number).to_string(),
            Raw::Other(kind) => kind.clone(),
        };
        format!("this is the {}; write {expected}", found.replace('`', "'"))
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Raw;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Raw, E> {
                Ok(Raw::Text(text.to_owned()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Raw, E> {
                Ok(Raw::Whole(number))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Raw, E> {
                Ok(Raw::Float(number))
            }
            fn visit_bool<E: Error>(self, truth: bool) -> Result<Raw, E> {
                Ok(Raw::Other(Unexpected::Bool(truth).to_string()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Raw::Other(Unexpected::Seq.to_string()))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Raw::Other(Unexpected::Map.to_string()))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
