//! Fields of things that are written.

use serde_json::{Map, Value};

/// The fields that have a value.
pub(super) fn thing<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    set.collect::<Map<_, _>>().into()
}

pub(super) fn some<T: ToString>(value: Option<&T>) -> Option<Value> {
    value.map(|value| value.to_string().into())
}
