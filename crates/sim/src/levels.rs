//! Published numbers that a line over time can be held against.

use crate::scenario::{Expectation, Scenario, Summary};
use headgate_units::Nanos;

/// A published number of one subject over a stretch of time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Level {
    /// What was measured, as files name it: `iops`.
    pub measure: String,
    /// Of what.
    pub of: String,
    /// The stretch begins here.
    pub from: Nanos,
    /// And ends here.
    pub to: Nanos,
    /// The published number, in seconds, bytes per second or plain.
    pub value: f64,
}

impl Scenario {
    /// The published numbers of a variant that are means over a window: what is divided by
    /// something, ranked, counted or extreme is no height of a line.
    pub fn levels(&self, variant: &str) -> Vec<Level> {
        let of_variant =
            self.expectations.iter().filter(|one| one.variants.iter().any(|name| name == variant));
        let mut levels: Vec<Level> = Vec::new();
        for level in of_variant.flat_map(|one| self.levels_of(one)) {
            if !levels.contains(&level) {
                levels.push(level);
            }
        }
        levels
    }

    fn levels_of(&self, expectation: &Expectation) -> Vec<Level> {
        let name = expectation.span.as_deref();
        let span = self.spans.iter().find(|span| Some(span.name.as_str()) == name);
        let number = expectation.paper.filter(|_| is_mean(expectation)).zip(span);
        let Some((value, span)) = number else { return Vec::new() };
        let alone = expectation.groups.iter().filter_map(|group| match &group[..] {
            [one] => Some(one.clone()),
            _ => None,
        });
        alone
            .map(|of| Level {
                measure: expectation.measure.name(),
                of,
                from: span.from,
                to: span.to,
                value,
            })
            .collect()
    }
}

fn is_mean(expectation: &Expectation) -> bool {
    let Expectation { every, settles_within, reversal, per, rank_with, members, .. } = expectation;
    every.is_none()
        && settles_within.is_none()
        && reversal.is_none()
        && per.is_none()
        && rank_with.is_none()
        && members.is_none()
        && expectation.rank_among.is_empty()
        && !matches!(expectation.summary, Summary::Share(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_the_published_means_of_one_subject_over_a_window() {
        let expect = |keys: &str| format!("[[expect]]\nmeasure = \"iops\"\n{keys}\n");
        let text = [
            r#"
            name = "x"
            title = "x"
            duration = "30s"
            windows = { end = "10s..30s" }
            datastore = [{ name = "lun", device = "rate=500,latency=1ms" }]
            vm = [
                { name = "a", disk = [{}], workload = [{ kind = "closed" }] },
                { name = "b", disk = [{}], workload = [{ kind = "closed" }] },
            ]
            [[variant]]
            name = "one"
            [[variant]]
            name = "two"
            "#,
            &expect("each = [\"a\", \"b\"]\nwindow = \"end\"\nat-least = 1\npaper = 250"),
            &expect("of = \"a\"\nwindow = \"end\"\nat-least = 1"),
            &expect("of = \"a\"\nat-least = 1\npaper = 240"),
            &expect("of = [\"a\", \"b\"]\nwindow = \"end\"\nat-least = 1\npaper = 500"),
            &expect("of = \"a\"\nwindow = \"end\"\nper = { of = \"b\" }\nat-least = 1\npaper = 1"),
            &expect("of = \"a\"\nwindow = \"end\"\nevery = \"5s\"\nat-least = 1\npaper = 230"),
            "[[expect]]\nvariant = \"two\"\nmeasure = \"latency\"\nof = \"b\"\nwindow = \"end\"\n\
             at-most = \"1s\"\npaper = \"30ms\"\n",
        ]
        .concat();
        let scenario = Scenario::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let shown = |variant: &str| -> Vec<(String, String, f64)> {
            let levels = scenario.levels(variant);
            assert!(levels.iter().all(|l| l.from == Nanos::from_secs(10)), "{levels:?}");
            assert!(levels.iter().all(|l| l.to == Nanos::from_secs(30)), "{levels:?}");
            levels.into_iter().map(|l| (l.measure, l.of, l.value)).collect()
        };
        let iops = |of: &str| ("iops".to_owned(), of.to_owned(), 250.0);
        assert_eq!(shown("one"), [iops("a"), iops("b")]);
        let latency = ("latency".to_owned(), "b".to_owned(), 0.03);
        assert_eq!(shown("two"), [iops("a"), iops("b"), latency]);
    }
}
