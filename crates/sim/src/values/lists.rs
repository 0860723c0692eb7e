//! Lists: names, seeds, and sizes with their frequencies.

use super::{RequestSize, parse_size, size_of};
use headgate_units::Bytes;
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Sizes of requests: one, or several with their relative frequencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<(Bytes, u32)>);

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sizes, D::Error> {
        struct Mix;
        impl<'de> Visitor<'de> for Mix {
            type Value = Sizes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as '16K', or sizes with how often each comes, such as { 4K = 3, 64K = 1 }")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Sizes, E> {
                let size = parse_size(text).and_then(RequestSize::new).map_err(E::custom)?;
                Ok(Sizes(vec![(size.0, 1)]))
            }
            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Sizes, E> {
                let size = size_of(bytes).and_then(RequestSize::new).map_err(E::custom)?;
                Ok(Sizes(vec![(size.0, 1)]))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sizes, A::Error> {
                let mut sizes = Vec::new();
                while let Some((size, weight)) = map.next_entry::<String, u32>()? {
                    let size = parse_size(&size).map_err(A::Error::custom)?;
                    if weight > 0 {
                        sizes.push((RequestSize::new(size).map_err(A::Error::custom)?.0, weight));
                    }
                }
                match sizes.is_empty() {
                    true => Err(A::Error::custom(
                        "a mix of sizes needs one that comes; give one a number above 0",
                    )),
                    false => Ok(Sizes(sizes)),
                }
            }
        }
        deserializer.deserialize_any(Mix)
    }
}

schema!(Sizes, {
    "description": "A size, or sizes with how often each comes relative to the others: { 4K = 3, 64K = 1 }",
    "type": ["string", "integer", "object"],
    "additionalProperties": { "type": "integer", "minimum": 0 },
});

/// One name or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Names, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Names;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, or a list of names such as ['VM1', 'VM2']")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Names, E> {
                Ok(Names(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = seq.next_element()? {
                    names.push(name);
                }
                match names.is_empty() {
                    true => Err(A::Error::custom("a list of names is empty; name one")),
                    false => Ok(Names(names)),
                }
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

schema!(Names, {
    "description": "A name, or a list of names",
    "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" }, "minItems": 1 }],
});

/// A list of seeds, or their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeds(pub(crate) Vec<u64>);

impl<'de> Deserialize<'de> for Seeds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seeds, D::Error> {
        struct ListOrCount;
        impl<'de> Visitor<'de> for ListOrCount {
            type Value = Seeds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seeds such as [1, 2, 3], or how many from 1 on, up to 10000")
            }
            fn visit_i64<E: Error>(self, many: i64) -> Result<Seeds, E> {
                match u64::try_from(many) {
                    Ok(many @ 1..=10_000) => Ok(Seeds((1..=many).collect())),
                    _ => Err(E::custom(format!("{many} is no number of seeds; write 1 to 10000"))),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Seeds, A::Error> {
                let mut seeds = Vec::new();
                while let Some(seed) = seq.next_element()? {
                    seeds.push(seed);
                }
                match seeds.is_empty() {
                    true => Err(A::Error::custom(
                        "there is no seed; write at least one, such as [1, 2, 3]",
                    )),
                    false => Ok(Seeds(seeds)),
                }
            }
        }
        deserializer.deserialize_any(ListOrCount)
    }
}

schema!(Seeds, {
    "description": "Seeds, or how many from 1 on",
    "anyOf": [
        { "type": "integer", "minimum": 1, "maximum": 10_000 },
        { "type": "array", "items": { "type": "integer", "minimum": 0 } },
    ],
});
