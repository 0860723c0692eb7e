//! Expectations.

use super::names::{plain_name, unique};
use super::subjects::Subjects;
use super::text::{hint, position};
use crate::scenario::{
    Against, Expectation, Measure, Per, Quantity as Measured, Record, Scenario, Selection, Summary,
    Target, Test, Unit,
};
use crate::values::{
    At, Fault, Names, Nearness, OfSeeds, Part, Percent, Quantity, Rate, Size, Time,
};
use headgate_units::{BytesPerSec, Nanos};
use serde::Deserialize;
use std::collections::BTreeSet;

/// What is expected of the results.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ExpectFile {
    /// A name for it, by which a sensitivity judges it: letters, digits, - and _.
    name: Option<At<String>>,
    /// The reason, in one line.
    #[serde(default)]
    about: String,
    /// The variants for which it holds; all by default.
    variant: Option<At<Names>>,
    /// What is measured.
    measure: At<Measure>,
    /// The subjects, measured together: VMs, disks, datastores, nodes or hosts.
    of: Option<At<Names>>,
    /// The subjects, each measured by itself.
    each: Option<At<Names>>,
    /// The window of time; the whole run by default.
    window: Option<At<String>>,
    /// Every stretch of this length within the window, instead of the window as a whole.
    every: Option<At<Time>>,
    /// The number of members of 'each' that must hold, instead of all.
    members: Option<At<u32>>,
    /// Over all seeds together: the value that this percentage of them does not exceed. Every seed
    /// by itself by default.
    quantile: Option<At<OfSeeds>>,
    /// The percentage of the seeds that must hold, instead of all. 'paper' is then such a part,
    /// too: 0.9 for 90%.
    in_seeds: Option<OfSeeds>,
    /// Not the value, but its rank among the values of these variants with the same seed: 1 where
    /// none is lower by more than 1%.
    rank_among: Option<At<Names>>,
    /// Of a sweep: the selected points.
    #[serde(rename = "where")]
    selected: Option<At<SelectionFile>>,
    /// The time from the window's beginning until the series stays this near to its final value,
    /// which is the mean of the window's last quarter.
    settles_within: Option<At<Nearness>>,
    /// Divided by this.
    per: Option<At<PerFile>>,
    /// Less this.
    less: Option<At<PerFile>>,
    /// Not the values of 'each', but whether they have the same order as these: Spearman's rank
    /// correlation, 1 for the same order, -1 for the opposite.
    rank_with: Option<At<RivalFile>>,
    /// Not the measure, but the largest step back on its way from the window's beginning to its
    /// end, in means over this length.
    reversal: Option<At<Time>>,
    /// The expected value, with 'within' or 'slack'.
    equals: Option<At<Quantity>>,
    /// Expects what water-filling gives to each: of 'capacity', or of what all running VMs get
    /// together.
    water_fill: Option<bool>,
    /// The capacity for water-filling, in the unit of the measure.
    capacity: Option<Rate>,
    /// The relative tolerance.
    within: Option<Percent>,
    /// The least tolerance in its own unit, however small 'within' is.
    slack: Option<At<Quantity>>,
    /// The lower bound.
    at_least: Option<At<Quantity>>,
    /// The upper bound.
    at_most: Option<At<Quantity>>,
    /// The published value.
    paper: Option<At<Quantity>>,
    /// Why it is known not to hold. It is then an error that it holds.
    differs: Option<String>,
    /// Why it holds at the file's own value of a parameter and at no other that a sensitivity
    /// tries. It then counts as one that differs.
    at_one_point: Option<String>,
    /// Why it holds and is not as published: more than 20% off 'paper', or 'paper' itself is not
    /// as expected.
    off_paper: Option<String>,
}

/// The other measure of each subject, to compare the order. Missing keys are as in the expectation.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RivalFile {
    /// What is measured.
    measure: At<Measure>,
    /// The window of time.
    window: Option<At<String>>,
    /// Divided by this.
    per: Option<At<PerFile>>,
    /// Less this.
    less: Option<At<PerFile>>,
}

/// What a measure is compared with. Missing keys are as in the expectation.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PerFile {
    /// What is measured.
    measure: Option<Measure>,
    /// The subjects, measured together.
    of: Option<At<Names>>,
    /// The window of time.
    window: Option<At<String>>,
    /// The variant, with the same seed; with 'each', {} in it stands for the subject's name.
    variant: Option<At<String>>,
}

/// Points of a sweep: those with one of these values. A missing key selects any value.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SelectionFile {
    /// Requests outstanding.
    #[serde(default)]
    outstanding: Vec<u32>,
    /// Their sizes.
    #[serde(default)]
    size: Vec<Size>,
    /// Reads among them.
    #[serde(default)]
    read: Vec<Part>,
    /// Random requests among them.
    #[serde(default)]
    random: Vec<Part>,
}

pub(super) fn expectations(
    text: &str,
    files: &[At<ExpectFile>],
    scenario: &Scenario,
) -> Result<Vec<Expectation>, Fault> {
    let subjects = Subjects::of(scenario);
    let reader = Reader { text, scenario, subjects: &subjects };
    let mut names = BTreeSet::new();
    for name in files.iter().filter_map(|file| file.name.as_ref()) {
        plain_name(name, "an expectation")?;
        unique(&mut names, name, &name.span)?;
    }
    files.iter().map(|file| reader.expectation(file)).collect()
}

/// The context in which expectations are read.
struct Reader<'a> {
    text: &'a str,
    scenario: &'a Scenario,
    subjects: &'a Subjects,
}

/// A quantity and its subjects, as far as they are known.
struct Base<'a> {
    measure: Measure,
    window: &'a Option<String>,
    groups: &'a [Vec<String>],
}

impl Reader<'_> {
    fn expectation(&self, e: &At<ExpectFile>) -> Result<Expectation, Fault> {
        let measure = e.measure.value;
        let groups = self.groups(e)?;
        let window = self.window(e.window.as_ref(), &None)?;
        let base = Base { measure, window: &window, groups: &groups };
        let per = self.against(e.per.as_ref(), e.less.as_ref(), &base)?;
        let rank_with =
            e.rank_with.as_ref().map(|rival| self.rival(rival, e, &base)).transpose()?;
        let variants = match &e.variant {
            Some(names) => self.variants(names)?,
            None => self.scenario.variants.iter().map(|variant| variant.name.clone()).collect(),
        };
        let rank_among =
            e.rank_among.as_ref().map_or(Ok(Vec::new()), |names| self.variants(names))?;
        let ranks = rank_with.is_some() || !rank_among.is_empty();
        let unit = match (&per, &e.settles_within) {
            _ if ranks => Unit::Number,
            (_, Some(_)) => Unit::Seconds,
            (Some(Per { against: Against::Quotient, .. }), None) => Unit::Ratio,
            (Some(_) | None, None) => measure.unit(),
        };
        let test = e.test(unit)?;
        self.check_course(e, &test, window.as_deref())?;
        self.check_subjects(e, groups.len())?;
        let paper_unit = match (&e.members, e.in_seeds) {
            (_, Some(_)) => Unit::Ratio,
            (Some(_), None) => Unit::Number,
            (None, None) => unit,
        };
        Ok(Expectation {
            line: position(self.text, e.span.start).0,
            name: e.name.as_ref().map(|name| name.value.clone()),
            about: e.about.trim().to_owned(),
            variants,
            measure,
            every: e.every.as_ref().map(|every| every.0),
            settles_within: e.settles_within.as_ref().map(|near| near.0),
            reversal: e.reversal.as_ref().map(|length| length.0),
            per,
            rank_with,
            selection: e.selected.as_ref().map_or_else(Selection::default, |key| key.selection()),
            rank_among,
            members: e.members.as_ref().map(|members| members.value),
            summary: e.summary(&test)?,
            test,
            paper: e.paper.as_ref().map(|paper| quantity(paper, paper_unit)).transpose()?,
            differs: e.differs.clone(),
            at_one_point: e.at_one_point.clone(),
            off_paper: e.off_paper.clone(),
            groups,
            span: window,
        })
    }

    /// Subjects that are measured together: all of them, or each by itself.
    fn groups(&self, e: &At<ExpectFile>) -> Result<Vec<Vec<String>>, Fault> {
        match (&e.of, &e.each) {
            (Some(of), _) => Ok(vec![self.subjects.check(of, e.measure.value)?]),
            (None, Some(each)) => {
                let names = self.subjects.check(each, e.measure.value)?;
                Ok(names.into_iter().map(|name| vec![name]).collect())
            }
            (None, None) => Err(e.fault("it is not said of what; add of = 'VM1'")),
        }
    }

    fn variants(&self, names: &At<Names>) -> Result<Vec<String>, Fault> {
        names.0.iter().try_for_each(|name| self.check_variant(name, names))?;
        Ok(names.0.clone())
    }

    fn check_variant<T>(&self, name: &str, key: &At<T>) -> Result<(), Fault> {
        let known: Vec<&str> = self.scenario.variants.iter().map(|v| v.name.as_str()).collect();
        match known.contains(&name) {
            true => Ok(()),
            false => {
                Err(key.fault(format!("there is no variant '{name}'; {}", hint(name, &known))))
            }
        }
    }

    /// The named window, else another.
    fn window(
        &self,
        key: Option<&At<String>>,
        other: &Option<String>,
    ) -> Result<Option<String>, Fault> {
        let Some(key) = key else { return Ok(other.clone()) };
        let known: Vec<&str> = self.scenario.spans.iter().map(|w| w.name.as_str()).collect();
        match known.contains(&key.as_str()) {
            true => Ok(Some(key.value.clone())),
            false => {
                Err(key.fault(format!("there is no window '{}'; {}", key.value, hint(key, &known))))
            }
        }
    }

    /// What a measure is compared with: divided by it, or less it.
    fn against(
        &self,
        per: Option<&At<PerFile>>,
        less: Option<&At<PerFile>>,
        base: &Base<'_>,
    ) -> Result<Option<Per>, Fault> {
        let (file, against) = match (per, less) {
            (Some(per), Some(_)) => {
                return Err(per.fault("'per' and 'less' exclude each other; keep one"));
            }
            (Some(per), None) => (per, Against::Quotient),
            (None, Some(less)) => (less, Against::Difference),
            (None, None) => return Ok(None),
        };
        let measure = file.measure.unwrap_or(base.measure);
        if let Some(variant) = &file.variant {
            for group in base.groups {
                self.check_variant(&Per::of_group(variant, group), variant)?;
            }
        }
        file.check(
            against == Against::Quotient || measure.unit() == base.measure.unit(),
            "what is taken from it has another unit; use 'per', or the same measure",
        )?;
        file.check(
            measure.of_applications() == base.measure.of_applications() || file.of.is_some(),
            "requests and transactions have different subjects; add 'of'",
        )?;
        Ok(Some(Per {
            against,
            measure,
            of: file.of.as_ref().map(|of| self.subjects.check(of, measure)).transpose()?,
            span: self.window(file.window.as_ref(), base.window)?,
            variant: file.variant.as_ref().map(|variant| variant.value.clone()),
        }))
    }

    fn rival(
        &self,
        rival: &At<RivalFile>,
        e: &ExpectFile,
        base: &Base<'_>,
    ) -> Result<Measured, Fault> {
        rival.check(
            e.each.is_some() && base.groups.len() >= 3 && e.members.is_none(),
            "an order needs three at least; name them with 'each', without 'members'",
        )?;
        let measure = rival.measure.value;
        for group in base.groups {
            let names = At { value: Names(group.clone()), span: rival.measure.span.clone() };
            self.subjects.check(&names, measure)?;
        }
        let window = self.window(rival.window.as_ref(), base.window)?;
        let base = Base { measure, window: &window, groups: base.groups };
        let per = self.against(rival.per.as_ref(), rival.less.as_ref(), &base)?;
        Ok(Measured { measure, span: window, per })
    }

    /// Expectations about the course of a measure need a series of it.
    fn check_course(&self, e: &ExpectFile, test: &Test, window: Option<&str>) -> Result<(), Fault> {
        let plain = e.measure.in_series() && e.per.is_none() && e.less.is_none();
        if let Some(key) = &e.reversal {
            key.check(
                plain && e.every.is_none() && e.settles_within.is_none(),
                "'reversal' works for sums and means only, without 'per', 'less', 'every' and 'settles-within'; remove it",
            )?;
            self.check_length(key, window)?;
        }
        if let Some(key) = &e.settles_within {
            key.check(
                plain && e.every.is_none(),
                "'settles-within' works for sums and means only, without 'per' and 'every'; remove it",
            )?;
            key.check(
                e.water_fill.is_none(),
                "water-filling says nothing of how long something takes; use equals or at-most",
            )?;
        }
        if let Some(key) = &e.every {
            let message = "'every' works for sums and means only, without 'per'; remove it";
            key.check(plain, message)?;
            key.check(
                test.target.is_none() && test.at_least.is_some() != test.at_most.is_some(),
                "'every' needs one bound; write either at-least or at-most, and no other",
            )?;
            self.check_length(key, window)?;
        }
        Ok(())
    }

    /// The length of means must fit the series and the span.
    fn check_length(&self, key: &At<Time>, window: Option<&str>) -> Result<(), Fault> {
        let length = key.0;
        let window = self.scenario.spans.iter().find(|w| Some(w.name.as_str()) == window);
        for setup in self.scenario.variants.iter().map(|variant| &variant.setup) {
            let interval = setup.interval;
            key.check(
                length > Nanos::ZERO && length.0.is_multiple_of(interval.0),
                format!("{length} is not a multiple of the recorded interval, {interval}; change one of them"),
            )?;
            let room = window.map_or(setup.duration, |w| w.to - w.from);
            let message = format!("{length} is longer than the window, {room}; shorten it");
            key.check(length <= room, message)?;
        }
        Ok(())
    }

    /// Rejects combinations that some measures and subjects do not have.
    fn check_subjects(&self, e: &ExpectFile, groups: usize) -> Result<(), Fault> {
        if let Some(members) = &e.members {
            members.check(
                e.each.is_some() && members.value as usize <= groups,
                "'members' says how many of 'each' must be as expected; name at least so many there",
            )?;
        }
        let sweep = e.measure.of_sweeps();
        if let Some(key) = &e.selected {
            key.check(sweep, "'where' picks points of a sweep, and this is of none; remove it")?;
        }
        if let Some(key) = &e.window {
            key.check(!sweep, "a sweep is measured as a whole; remove the window")?;
        }
        let percentile = matches!(
            e.measure.value,
            Measure::LatencyP50 | Measure::LatencyP90 | Measure::LatencyP99
        );
        let sums = self.scenario.variants.iter().any(|v| v.setup.record == Record::Sums);
        e.measure.check(
            !(percentile && sums),
            "without histograms there are no percentiles; measure 'latency', or remove histograms = false",
        )
    }
}

impl At<ExpectFile> {
    fn test(&self, unit: Unit) -> Result<Test, Fault> {
        let read =
            |key: &Option<At<Quantity>>| key.as_ref().map(|key| quantity(key, unit)).transpose();
        let (equals, slack) = (read(&self.equals)?, read(&self.slack)?);
        let (at_least, at_most) = (read(&self.at_least)?, read(&self.at_most)?);
        let target = match (equals, self.water_fill == Some(true)) {
            (Some(equals), _) => Some(Target::Value(equals)),
            (None, true) => {
                let counts = matches!(self.measure.value, Measure::Iops | Measure::NormalisedIops);
                self.check(
                    counts && self.per.is_none() && self.less.is_none(),
                    "water-filling divides IOs; set measure = 'iops' or 'normalised-iops', without 'per'",
                )?;
                Some(Target::WaterFill { capacity: self.capacity.map(|capacity| capacity.0) })
            }
            (None, false) => None,
        };
        self.check(
            target.is_none() || self.within.is_some() || slack.is_some(),
            "no measure is ever exactly equal; add within = '5%' or slack = 10",
        )?;
        self.check(
            target.is_some() || at_least.is_some() || at_most.is_some(),
            "nothing is expected here; add equals, water-fill, at-least or at-most",
        )?;
        if let (Some(least), Some(most), Some(key)) = (at_least, at_most, &self.at_most) {
            key.check(
                least <= most,
                "at-most is below at-least, so nothing can hold; raise the one or lower the other",
            )?;
        }
        let within = self.within.map_or(0.0, |within| within.0 / 100.0);
        Ok(Test { target, within, slack: slack.unwrap_or(0.0), at_least, at_most })
    }

    fn summary(&self, test: &Test) -> Result<Summary, Fault> {
        match (&self.quantile, self.in_seeds) {
            (Some(key), _) => {
                let filled = matches!(test.target, Some(Target::WaterFill { .. }));
                key.check(
                    !filled && self.members.is_none(),
                    "a quantile is of values, held against one value; remove water-fill or members",
                )?;
                Ok(Summary::Quantile(key.0))
            }
            (None, Some(part)) => Ok(Summary::Share(part.0)),
            (None, None) => Ok(Summary::Each),
        }
    }
}

impl SelectionFile {
    fn selection(&self) -> Selection {
        Selection {
            outstanding: self.outstanding.clone(),
            sizes: self.size.iter().map(|size| size.0).collect(),
            read: self.read.iter().map(|part| part.0).collect(),
            random: self.random.iter().map(|part| part.0).collect(),
        }
    }
}

/// A quantity in the unit: seconds, bytes per second, or a plain number.
fn quantity(key: &At<Quantity>, unit: Unit) -> Result<f64, Fault> {
    let expected = match (unit, &key.value) {
        (Unit::Seconds, Quantity::Text(text)) => {
            let time = Time::parse(text).map_err(|message| key.fault(message))?;
            return Ok(time.0.as_secs_f64());
        }
        (Unit::BytesPerSecond, Quantity::Text(text)) => match text.parse::<BytesPerSec>() {
            Ok(bandwidth) => return Ok(bandwidth.get() as f64),
            Err(_) => "bytes per second, such as '50M'",
        },
        (Unit::Seconds, Quantity::Number(_)) => "a time with a unit, such as '30ms'",
        (_, Quantity::Number(number)) => return Ok(*number),
        (Unit::PerSecond | Unit::Number | Unit::Ratio, Quantity::Text(_)) => "a number",
    };
    Err(key.fault(format!("this does not fit what is measured; write {expected}")))
}
