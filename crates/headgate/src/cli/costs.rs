//! Learned costs on the command line.

use super::output::{Align, Table};
use headgate_api::costs::LearnedCosts;
use headgate_units::Nanos;

/// The lines that describe what a datastore's costs were learned from.
pub(super) fn lines(costs: Option<&LearnedCosts>) -> Vec<(&'static str, Option<String>)> {
    let Some(costs) = costs else { return Vec::new() };
    let LearnedCosts { busy_secs, learning_secs, .. } = costs;
    let from = format!("from {busy_secs} s of busy storage, since {learning_secs} s ago");
    let reference = costs
        .reference_ns
        .map(|time| format!("{} of device time: a random read of 4K", Nanos(time)));
    vec![("costs learned", Some(from)), ("reference IO", reference)]
}

/// A line for each class.
pub(super) fn classes(costs: &LearnedCosts) -> String {
    let mut table = Table::new(&[
        ("COST OF A", Align::Left),
        ("4K", Align::Right),
        ("64K", Align::Right),
        ("FROM REQUESTS", Align::Right),
        ("IN BUSY SECONDS", Align::Right),
    ]);
    for class in &costs.classes {
        let from = match class.requests {
            0 => ["as declared".to_owned(), "-".to_owned()],
            n => [n.to_string(), class.busy_secs.to_string()],
        };
        let [requests, busy] = from;
        table.row(vec![
            class.class.clone(),
            format!("{:.2}", class.cost_4k),
            format!("{:.2}", class.cost_64k),
            requests,
            busy,
        ]);
    }
    format!("\n{}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_say_what_they_were_learned_from() {
        let costs: LearnedCosts = serde_json::from_str(
            r#"{"learning_secs": 3600, "busy_secs": 120, "reference_ns": 512000, "classes": [
                {"class": "random read", "cost_4k": 1.0, "cost_64k": 1.2, "requests": 9000, "busy_secs": 60},
                {"class": "random write", "cost_4k": 1.0, "cost_64k": 1.2, "requests": 0, "busy_secs": 0}]}"#,
        )
        .unwrap();
        let lines = lines(Some(&costs));
        assert_eq!(lines[0].1.as_deref(), Some("from 120 s of busy storage, since 3600 s ago"));
        let text = classes(&costs);
        assert!(text.contains("random read   1.00  1.20           9000"), "{text}");
        assert!(text.contains("as declared"), "{text}");
    }
}
