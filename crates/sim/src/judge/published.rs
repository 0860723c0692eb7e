//! How near a value is to the published one: a verdict beside that on the expectation.

use super::{Finding, Judgement};
use crate::scenario::{Expectation, Summary};
use serde::Serialize;

/// The published number beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Published {
    /// By how much ours is more, as a part of the published number: 0.1 for 10 % more. `None` where
    /// nothing was measured, or where the published number is 0 and ours is not.
    pub deviation: Option<f64>,
    /// How near that is.
    pub closeness: Closeness,
    /// Whether the published number itself is what the expectation asks for.
    pub bound: PaperInBound,
    /// Why ours is another, in the file's words.
    pub reason: Option<String>,
}

/// How far a value is from the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Closeness {
    /// 5 % at most.
    Within5,
    /// 10 % at most.
    Within10,
    /// 20 % at most.
    Within20,
    /// More, or it cannot be said.
    Differs,
}

impl Closeness {
    /// The words for it.
    pub fn name(self) -> &'static str {
        match self {
            Closeness::Within5 => "within 5 %",
            Closeness::Within10 => "within 10 %",
            Closeness::Within20 => "within 20 %",
            Closeness::Differs => "differs",
        }
    }

    fn of(deviation: Option<f64>) -> Closeness {
        // A deviation of a decimal fraction, such as 1.05 for 1, is on the near side of its border.
        const ROUNDING: f64 = 1e-9;
        let Some(deviation) = deviation else { return Closeness::Differs };
        match deviation.abs() - ROUNDING {
            d if d <= 0.05 => Closeness::Within5,
            d if d <= 0.10 => Closeness::Within10,
            d if d <= 0.20 => Closeness::Within20,
            _ => Closeness::Differs,
        }
    }
}

/// Whether the published number would be as expected, were it ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PaperInBound {
    /// It would.
    Inside,
    /// It would not: the expectation is about our own value.
    Outside,
}

/// Both verdicts on a number as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// As expected, and as published where there is a published number: within 20 % of it, by an
    /// expectation that the published number fulfils too.
    Holds,
    /// As expected, not as published.
    OffPaper,
    /// Known not to be as expected, or to be so at one point only, with the reason.
    Differs,
    /// Not as expected.
    Fails,
    /// There is no outcome.
    NotRun,
}

impl Standing {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Holds => "holds",
            Standing::OffPaper => "off paper",
            Standing::Differs => "differs",
            Standing::Fails => "FAILS",
            Standing::NotRun => "not run",
        }
    }
}

impl Published {
    /// Whether ours counts as the published number.
    pub fn as_published(&self) -> bool {
        self.closeness != Closeness::Differs && self.bound == PaperInBound::Inside
    }

    /// The verdict in words, such as `within 5 % (-3.1 %)`.
    pub fn show(&self) -> String {
        let deviation = match self.deviation {
            Some(deviation) => format!(" ({:+.1} %)", deviation * 100.0),
            None => String::new(),
        };
        let bound = match self.bound {
            PaperInBound::Inside => "",
            PaperInBound::Outside => ", paper not in our bound",
        };
        format!("{}{deviation}{bound}", self.closeness.name())
    }
}

impl Finding {
    /// Both verdicts as one.
    pub fn standing(&self) -> Standing {
        match self.judgement {
            Judgement::NotRun => Standing::NotRun,
            Judgement::Fails => Standing::Fails,
            Judgement::Differs | Judgement::AtOnePoint => Standing::Differs,
            Judgement::Holds => match &self.published {
                Some(published) if !published.as_published() => Standing::OffPaper,
                Some(_) | None => Standing::Holds,
            },
        }
    }

    /// Compares with the published number, where there is one and something was run.
    pub(super) fn compare(&self, expectation: &Expectation) -> Option<Published> {
        let paper = self.paper.filter(|_| self.judgement != Judgement::NotRun)?;
        let deviation = self.ours().and_then(|ours| match (ours - paper, paper) {
            (0.0, _) => Some(0.0),
            (_, 0.0) => None,
            (more, paper) => Some(more / paper.abs()),
        });
        let bound = match self.would_hold(expectation, paper) {
            true => PaperInBound::Inside,
            false => PaperInBound::Outside,
        };
        let reason = expectation.off_paper.as_ref().or(expectation.differs.as_ref()).cloned();
        Some(Published { deviation, closeness: Closeness::of(deviation), bound, reason })
    }

    /// Whether a value of all seeds together would be as expected.
    fn would_hold(&self, expectation: &Expectation, value: f64) -> bool {
        match (expectation.members, self.summary) {
            (_, Summary::Share(permille)) => value * 1_000.0 >= f64::from(permille),
            (Some(members), _) => value >= f64::from(members),
            (None, _) => {
                let targets: Vec<f64> = self.readings.iter().filter_map(|r| r.target).collect();
                let mean = || targets.iter().sum::<f64>() / targets.len() as f64;
                let target = (!targets.is_empty()).then(mean);
                expectation.test.holds(value, expectation.test.value().or(target))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_belong_to_the_nearer_class() {
        let class = |deviation| Closeness::of(Some(deviation));
        assert_eq!(class(1.05 / 1.0 - 1.0), Closeness::Within5);
        assert_eq!(class(-0.0501), Closeness::Within10);
        assert_eq!(class(-0.1), Closeness::Within10);
        assert_eq!(class(0.101), Closeness::Within20);
        assert_eq!(class(0.2), Closeness::Within20);
        assert_eq!(class(-0.201), Closeness::Differs);
        assert_eq!(Closeness::of(None), Closeness::Differs);
    }

    #[test]
    fn words_say_how_far_and_whose_bound() {
        let mut published = Published {
            deviation: Some(-0.0312),
            closeness: Closeness::Within5,
            bound: PaperInBound::Inside,
            reason: None,
        };
        assert_eq!(published.show(), "within 5 % (-3.1 %)");
        assert!(published.as_published());
        published.bound = PaperInBound::Outside;
        assert_eq!(published.show(), "within 5 % (-3.1 %), paper not in our bound");
        assert!(!published.as_published());
    }
}
