//! What documents make different, in words: like things with like changes in one line.

use super::documents::amount;
#[cfg(test)]
use headgate_api::apply::Applied;
use headgate_api::apply::{Act, FieldChange, PromisesOn, ThingChange};
use headgate_model::Name;
use serde_json::Value;

/// The most names in a line.
const NAMED: usize = 6;

fn value(field: &str, value: &Value) -> String {
    let last = field.rsplit('.').next().unwrap_or(field);
    let is_amount = matches!(last, "size" | "max_space") || last.ends_with("bandwidth");
    match value {
        Value::Null => "none".into(),
        Value::Number(number) => match number.as_u64().filter(|_| is_amount) {
            Some(bytes) => amount(bytes),
            None => number.to_string(),
        },
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn of_new(change: &FieldChange) -> String {
    format!("{} {}", change.field, value(&change.field, &change.to))
}

fn of_changed(change: &FieldChange) -> String {
    let [from, to] = [&change.from, &change.to].map(|one| value(&change.field, one));
    format!("{} {from} -> {to}", change.field)
}

/// Whether two things are told together.
fn alike(one: &ThingChange, other: &ThingChange) -> bool {
    let of = |thing: &ThingChange| (thing.kind.clone(), thing.act, thing.by_class.clone());
    of(one) == of(other) && one.fields == other.fields
}

fn names(all: &[&ThingChange]) -> String {
    let named: Vec<&str> = all.iter().take(NAMED).map(|one| one.name.as_str()).collect();
    let more = all.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{rest}", named.join(", "))
}

fn plural(kind: &str) -> String {
    if kind.ends_with('s') { format!("{kind}es") } else { format!("{kind}s") }
}

/// Things that are alike.
fn line(all: &[&ThingChange]) -> String {
    let Some(first) = all.first() else { return String::new() };
    let (sign, words): (&str, Vec<String>) = match first.act {
        Act::Create => ("+", first.fields.iter().map(of_new).collect()),
        Act::Change => ("~", first.fields.iter().map(of_changed).collect()),
        Act::Remove => ("-", Vec::new()),
    };
    let by = first.by_class.as_ref().map(|class: &Name| format!(" by class {class}"));
    let by = by.unwrap_or_default();
    let words = if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) };
    match all {
        [one] => format!("{sign} {} {}{by}{words}\n", one.kind, one.name),
        _ => {
            let kind = plural(&first.kind);
            format!("{sign} {} {kind}{by}{words}\n    {}\n", all.len(), names(all))
        }
    }
}

fn promises(on: &PromisesOn) -> String {
    let of = on.reservable.map_or("nobody knows how many".to_owned(), |all| all.to_string());
    format!("  datastore {}: {} -> {} of {of} IOPS reserved\n", on.datastore, on.before, on.after)
}

/// All of it.
pub(super) fn text(changes: &[ThingChange], on: &[PromisesOn]) -> String {
    let mut groups: Vec<Vec<&ThingChange>> = Vec::new();
    for thing in changes {
        match groups.iter_mut().find(|group| alike(group[0], thing)) {
            Some(group) => group.push(thing),
            None => groups.push(vec![thing]),
        }
    }
    let mut text: String = groups.iter().map(|group| line(group)).collect();
    text.extend(on.iter().map(promises));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn like_changes_are_in_one_line_and_amounts_have_units() {
        let field =
            |field: &str, from: Value, to: Value| json!({"field": field, "from": from, "to": to});
        let disk = |name: String| {
            json!({"kind": "disk", "name": name, "act": "change", "by_class": "gold",
                "fields": [field("limit", json!(500), json!(700)), field("limit_bandwidth", json!(null), json!(209_715_200))]})
        };
        let mut changes = vec![
            json!({"kind": "class", "name": "gold", "act": "create", "fields": [field("shares", json!(null), json!(5))]}),
            json!({"kind": "disk", "name": "new", "act": "create", "fields": [field("size", json!(null), json!(1 << 30))]}),
        ];
        changes.extend((0..8).map(|at| disk(format!("d{at}"))));
        changes.push(json!({"kind": "disk", "name": "old", "act": "remove", "fields": []}));
        let applied: Applied = serde_json::from_value(json!({
            "changes": changes, "to_create": ["new"], "to_remove": ["old"], "changed": false,
            "promises": [{"datastore": "fast", "before": 5, "after": 9, "reservable": 1600}],
        }))
        .unwrap();
        assert_eq!(
            text(&applied.changes, &applied.promises),
            "+ class gold: shares 5\n\
             + disk new: size 1G\n\
             ~ 8 disks by class gold: limit 500 -> 700, limit_bandwidth none -> 200M\n    \
             d0, d1, d2, d3, d4, d5, and 2 more\n\
             - disk old\n  \
             datastore fast: 5 -> 9 of 1600 IOPS reserved\n"
        );
    }
}
