//! Expectations in words, and the test of one value.

use crate::scenario::{Against, Expectation, Measure, Per, Quantity, Target, Test, Unit, digits};

impl Test {
    /// The one value that it is held against, if it is one.
    pub(super) fn value(&self) -> Option<f64> {
        match self.target {
            Some(Target::Value(value)) => Some(value),
            Some(Target::WaterFill { .. }) | None => None,
        }
    }

    pub(super) fn holds(&self, value: f64, target: Option<f64>) -> bool {
        let near = match (&self.target, target) {
            (None, _) => true,
            (Some(_), Some(target)) => {
                (value - target).abs() <= (self.within * target.abs()).max(self.slack)
            }
            (Some(_), None) => false,
        };
        near && self.at_least.is_none_or(|least| value >= least)
            && self.at_most.is_none_or(|most| value <= most)
    }

    fn describe(&self, unit: Unit) -> String {
        let mut parts = Vec::new();
        if let Some(target) = self.target {
            let target = match target {
                Target::Value(value) => unit.show(value),
                Target::WaterFill { capacity: Some(capacity) } => {
                    format!("water-filling of {capacity}")
                }
                Target::WaterFill { capacity: None } => "water-filling".to_owned(),
            };
            let mut tolerance = Vec::new();
            if self.within > 0.0 {
                tolerance.push(format!(
                    "{} %",
                    digits(self.within * 100.0).trim_end_matches('0').trim_end_matches('.')
                ));
            }
            if self.slack > 0.0 {
                tolerance.push(unit.show(self.slack));
            }
            parts.push(format!("{target} ± {}", tolerance.join(" or ")));
        }
        parts.extend(self.at_least.map(|least| format!("at least {}", unit.show(least))));
        parts.extend(self.at_most.map(|most| format!("at most {}", unit.show(most))));
        parts.join(", ")
    }
}

impl Expectation {
    pub(super) fn unit(&self) -> Unit {
        if self.members.is_some() || !self.rank_among.is_empty() || self.rank_with.is_some() {
            return Unit::Number;
        }
        self.test_unit()
    }

    /// Of what is tested.
    fn test_unit(&self) -> Unit {
        match (&self.per, self.settles_within) {
            (_, Some(_)) => Unit::Seconds,
            (Some(Per { against: Against::Quotient, .. }), None) => Unit::Ratio,
            (Some(_) | None, None) => self.measure.unit(),
        }
    }

    pub(super) fn expected(&self) -> String {
        let ranks = !self.rank_among.is_empty() || self.rank_with.is_some();
        let unit = if ranks { Unit::Number } else { self.test_unit() };
        let mut text = self.test.describe(unit);
        if let Some(members) = self.members {
            text += &format!(" for {members} of {}", self.groups.len());
        }
        text + &self.summary.expected()
    }

    pub(super) fn describe(&self, group: &[String]) -> String {
        let place = |span: &Option<String>| match span {
            Some(span) => format!(" in {span}"),
            None => String::new(),
        };
        let mut text =
            format!("{} of {}{}", self.measure.name(), group.join(" + "), place(&self.span));
        if let Some(length) = self.every {
            text += &format!(" in every {length}");
        }
        if let Some(within) = self.settles_within {
            text = format!("time until {text} stays within {} %", digits(within * 100.0));
        }
        if let Some(length) = self.reversal {
            text = format!("way back of {text} in means over {length}");
        }
        let variant_of = |variant: &String| match self.rank_with {
            Some(_) => variant.clone(),
            None => Per::of_group(variant, group),
        };
        let base_of = |per: &Per, measure: Measure, span: &Option<String>| {
            let mut base = Vec::new();
            if per.measure != measure {
                base.push(per.measure.name());
            }
            base.extend(per.of.as_ref().map(|of| of.join(" + ")));
            if per.span != *span {
                base.push(format!("in {}", per.span.as_deref().unwrap_or("the whole run")));
            }
            base.extend(
                per.variant.as_ref().map(|variant| format!("under {}", variant_of(variant))),
            );
            let sign = match per.against {
                Against::Quotient => "/",
                Against::Difference => "-",
            };
            format!(" {sign} {}", base.join(" "))
        };
        if let Some(per) = &self.per {
            text += &base_of(per, self.measure, &self.span);
        }
        if let Some(Quantity { measure, span, per }) = &self.rank_with {
            let base = per.as_ref().map_or_else(String::new, |per| base_of(per, *measure, span));
            text = format!("rank correlation of {text} with {}{base}", measure.name());
        }
        if !self.rank_among.is_empty() {
            text = format!("rank of {text} among {}", self.rank_among.join(", "));
        }
        self.summary.describe(text)
    }
}
