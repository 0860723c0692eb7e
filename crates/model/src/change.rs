//! A field of a patch, or of a policy that says a part only.

use serde::{Deserialize, Deserializer, Serialize};

/// A field that may say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// Absent: stays as it is.
    #[default]
    Keep,
    /// `null`: taken away.
    Remove,
    /// A new value.
    Set(T),
}

impl<T> Change<T> {
    /// Leaves the field as it is.
    pub fn is_keep(&self) -> bool {
        matches!(self, Change::Keep)
    }

    /// The field's value after the change.
    pub fn apply(self, before: Option<T>) -> Option<T> {
        match self {
            Change::Keep => before,
            Change::Remove => None,
            Change::Set(value) => Some(value),
        }
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Change::Set(value) => serializer.serialize_some(value),
            Change::Keep | Change::Remove => serializer.serialize_none(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Change<T>, D::Error> {
        Ok(Option::<T>::deserialize(deserializer)?.map_or(Change::Remove, Change::Set))
    }
}
