//! What changes made of what was.

use headgate_api::priorities::{Priorities, VmSockets};
use headgate_api::types::Vm;
use headgate_control::configuration;
use headgate_model::{GroupPolicy, Name};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The longest body of a request, in bytes.
pub(super) const BODY_MAX: usize = 2 << 20;

/// What a change made of what was: `policy.limit: null -> 500`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Edit {
    pub(super) old: Option<Value>,
    pub(super) new: Option<Value>,
}

impl Edit {
    /// The difference of two views of one thing, which have only what can be set.
    pub(super) fn between<T: Serialize>(before: &T, now: &T) -> Edit {
        let [before, now] = [before, now].map(leaves);
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let (mut old, mut new) = (Map::new(), Map::new());
        for name in names.into_iter().filter(|name| before.get(*name) != now.get(*name)) {
            old.insert(name.clone(), before.get(name).cloned().unwrap_or_default());
            new.insert(name.clone(), now.get(name).cloned().unwrap_or_default());
        }
        Edit { old: Some(old.into()), new: Some(new.into()) }
    }

    /// Something that was not there before.
    pub(super) fn made<T: Serialize>(now: &T) -> Edit {
        Edit { old: None, new: Some(leaves(now).into_iter().collect::<Map<_, _>>().into()) }
    }

    /// Something that is there no more.
    pub(super) fn removed<T: Serialize>(before: &T) -> Edit {
        Edit { old: Some(leaves(before).into_iter().collect::<Map<_, _>>().into()), new: None }
    }

    /// For a line of the daemon's log; `None`: what was asked for says it.
    pub(super) fn text(&self) -> Option<String> {
        let (Value::Object(old), Value::Object(new)) = (self.old.as_ref()?, self.new.as_ref()?)
        else {
            return None;
        };
        let value = |map: &Map<String, Value>, name: &String| {
            map.get(name).map_or("null".to_owned(), Value::to_string)
        };
        let changes: Vec<String> = new
            .keys()
            .map(|name| format!("{name}: {} -> {}", value(old, name), value(new, name)))
            .collect();
        Some(if changes.is_empty() { "as before".into() } else { changes.join(", ") })
    }
}

/// The values of a view by their names. One that is no JSON has none.
fn leaves<T: Serialize>(view: &T) -> BTreeMap<String, Value> {
    configuration::leaves(serde_json::to_value(view).unwrap_or_default())
}

/// What can be set of a virtual machine.
#[derive(Serialize)]
pub(super) struct VmSettings<'a> {
    #[serde(flatten)]
    priorities: &'a Priorities,
    #[serde(flatten)]
    sockets: &'a VmSockets,
    tenant: &'a Option<Name>,
    promised: &'a GroupPolicy,
}

impl VmSettings<'_> {
    pub(super) fn of(vm: &Vm) -> VmSettings<'_> {
        let Vm { priorities, sockets, tenant, policy, .. } = vm;
        VmSettings { priorities, sockets, tenant, promised: policy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_edit_names_what_is_different_and_nothing_else() {
        let before = json!({"policy": {"limit": null, "shares": 1000}, "vm": "a"});
        let now = json!({"policy": {"limit": 500, "shares": 1000}, "vm": "b"});
        let edit = Edit::between(&before, &now);
        assert_eq!(edit.text().unwrap(), r#"policy.limit: null -> 500, vm: "a" -> "b""#);
        assert_eq!(edit.old.unwrap(), json!({"policy.limit": null, "vm": "a"}));
        assert_eq!(edit.new.unwrap(), json!({"policy.limit": 500, "vm": "b"}));
        assert_eq!(Edit::between(&now, &now).text().unwrap(), "as before");
        assert_eq!(Edit::removed(&before).old.unwrap()["policy.shares"], 1_000);
        assert_eq!(Edit::made(&before).text(), None);
    }
}
