//! At which values of freely chosen parameters the claims of an experiment hold.

mod page;

pub use page::sensitivity_report;

use crate::FileTraces;
use crate::known::{Known, RunJobs};
use headgate_sim::{
    Claims, Finding, Judgement, Mark, Origin, Point, Published, Scenario, Sensitivity, Unit, judge,
};
use serde::Serialize;
use std::collections::BTreeSet;

/// A parameter, and what its values do to the claims of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Tried {
    /// The experiment.
    pub experiment: String,
    /// The parameter.
    pub name: String,
    /// What it is, in the file's words; may be empty.
    pub about: String,
    /// The seeds of the runs.
    pub seeds: Vec<u64>,
    /// Its values.
    pub values: Vec<Value>,
    /// What was judged.
    pub claims: Vec<Claim>,
    /// Where all of it holds, where it is one claim.
    pub together: Option<Reach>,
}

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Value {
    /// As the file writes it.
    pub value: String,
    /// Whose it is.
    pub origin: Origin,
}

/// An expectation in one variant, for one group of subjects, at each value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Claim {
    /// The line of the expectation in the file.
    pub line: usize,
    /// The variant.
    pub variant: String,
    /// The number.
    pub what: String,
    /// What is expected of it.
    pub expected: String,
    /// The published number.
    pub paper: Option<f64>,
    /// The unit of the published number and of ours.
    pub unit: Unit,
    /// How it came out at each value.
    pub at: Vec<At>,
    /// Where it holds.
    pub reach: Reach,
}

/// A claim at one value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct At {
    /// What was measured.
    pub ours: Option<f64>,
    /// Whether it is as expected.
    pub judgement: Judgement,
    /// How near it is to the published number.
    pub published: Option<Published>,
}

/// Where a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// At all values.
    Everywhere,
    /// At the file's own value and some others.
    InPart,
    /// At the file's own value alone: it differs.
    OwnPointOnly,
    /// At others, and not at the file's own.
    Elsewhere,
    /// At none.
    Nowhere,
}

impl Reach {
    /// All, from the widest.
    pub const ALL: [Reach; 5] =
        [Reach::Everywhere, Reach::InPart, Reach::OwnPointOnly, Reach::Elsewhere, Reach::Nowhere];

    /// The words for it.
    pub fn name(self) -> &'static str {
        match self {
            Reach::Everywhere => "everywhere",
            Reach::InPart => "in part",
            Reach::OwnPointOnly => "differs: at its own point only",
            Reach::Elsewhere => "elsewhere only",
            Reach::Nowhere => "nowhere",
        }
    }

    /// Of whether something holds at each value.
    fn of(holds: impl Iterator<Item = (Origin, Judgement)> + Clone) -> Reach {
        let at = |origin: Origin| holds.clone().filter(move |(whose, _)| *whose == origin);
        let here = at(Origin::File).any(|(_, judgement)| judgement == Judgement::Holds);
        let (others, all) = (
            at(Origin::Other).filter(|(_, judgement)| *judgement == Judgement::Holds).count(),
            at(Origin::Other).count(),
        );
        match (here, others) {
            (true, others) if others == all => Reach::Everywhere,
            (true, 0) => Reach::OwnPointOnly,
            (true, _) => Reach::InPart,
            (false, 0) => Reach::Nowhere,
            (false, _) => Reach::Elsewhere,
        }
    }
}

impl Tried {
    /// How many of its claims reach so far: each, or all together as one.
    pub fn count(&self, reach: Reach) -> usize {
        match self.together {
            Some(together) => usize::from(together == reach),
            None => self.claims.iter().filter(|claim| claim.reach == reach).count(),
        }
    }
}

/// Judges the claims of a sensitivity at each of its values, with these seeds or those of the file.
/// `run` runs jobs, in their order: only variants that something judged reads, and nothing twice.
///
/// # Errors
/// Those of `run`.
pub fn try_values<E>(
    scenario: &Scenario,
    sensitivity: &Sensitivity,
    seeds: Option<&[u64]>,
    traces: &FileTraces,
    run: &mut RunJobs<'_, E>,
) -> Result<Tried, E> {
    let seeds = seeds.unwrap_or(&sensitivity.seeds);
    let is_judged = |finding: &Finding| sensitivity.judged.contains(&finding.line);
    let mut known = Known::default();
    let mut found: Vec<Vec<Finding>> = Vec::new();
    for Point { scenario, .. } in &sensitivity.points {
        let judged = judge(scenario, &[]);
        let read: BTreeSet<String> = judged
            .iter()
            .filter(|finding| is_judged(finding))
            .flat_map(|finding| scenario.variants_read(finding))
            .collect();
        let wanted: Vec<(&str, u64)> = read
            .iter()
            .flat_map(|name| seeds.iter().map(move |&seed| (name.as_str(), seed)))
            .collect();
        let outcomes = known.outcomes(scenario, &wanted, traces, run)?;
        found.push(judge(scenario, &outcomes).into_iter().filter(is_judged).collect());
    }
    let points = &sensitivity.points;
    let together = || {
        let all = |findings: &Vec<Finding>| {
            let not = findings.iter().find(|one| one.judgement != Judgement::Holds);
            not.map_or(Judgement::Holds, |one| one.judgement)
        };
        Reach::of(points.iter().zip(&found).map(|(point, findings)| (point.origin, all(findings))))
    };
    let count = found.first().map_or(0, Vec::len);
    Ok(Tried {
        experiment: scenario.name.clone(),
        name: sensitivity.name.clone(),
        about: sensitivity.about.clone(),
        seeds: seeds.to_vec(),
        values: points
            .iter()
            .map(|point| Value { value: point.value.clone(), origin: point.origin })
            .collect(),
        together: match sensitivity.claims {
            Claims::Each => None,
            Claims::Together => Some(together()),
        },
        claims: (0..count).filter_map(|index| claim(points, &found, index)).collect(),
    })
}

/// The finding of this index at each point: they are of the same expectations in the same order.
fn claim(points: &[Point], found: &[Vec<Finding>], index: usize) -> Option<Claim> {
    let all: Vec<&Finding> =
        found.iter().map(|findings| findings.get(index)).collect::<Option<_>>()?;
    let first = all.first()?;
    let judgements = points.iter().zip(&all).map(|(point, one)| (point.origin, one.judgement));
    Some(Claim {
        line: first.line,
        variant: first.variant.clone(),
        what: first.what.clone(),
        expected: first.expected.clone(),
        paper: first.paper,
        unit: first.shown_unit(),
        reach: Reach::of(judgements),
        at: all
            .iter()
            .map(|one| At {
                ours: one.ours(),
                judgement: one.judgement,
                published: one.published.clone(),
            })
            .collect(),
    })
}

/// Where the file of an experiment says something else than its sensitivities found, a line each:
/// what holds at its own point only must say so (`at-one-point`), what says so must do so, and what
/// does not hold at its own point must say why (`differs`).
pub fn mismarked(scenario: &Scenario, tried: &[Tried]) -> Vec<String> {
    let mut reached: Vec<(&Claim, Vec<(&str, Reach)>)> = Vec::new();
    for one in tried {
        for claim in &one.claims {
            // What is a part of one claim reaches as far as that.
            let reach = (one.name.as_str(), one.together.unwrap_or(claim.reach));
            match reached.iter_mut().find(|(other, _)| other.is_same(claim)) {
                Some((_, reaches)) => reaches.push(reach),
                None => reached.push((claim, vec![reach])),
            }
        }
    }
    let wrong = |(claim, reaches): (&Claim, Vec<(&str, Reach)>)| {
        let expectation = scenario.expectations.iter().find(|one| one.line == claim.line)?;
        let of = |which: &dyn Fn(Reach) -> bool| {
            reaches.iter().find(|(_, reach)| which(*reach)).map(|(name, _)| *name)
        };
        let alone = of(&|reach| reach == Reach::OwnPointOnly);
        let not_here = of(&|reach| matches!(reach, Reach::Elsewhere | Reach::Nowhere));
        let said = match (expectation.mark(), not_here, alone) {
            (Mark::Plain | Mark::AtOnePoint, Some(name), _) => {
                format!("does not hold at its own point of '{name}'; say why with 'differs'")
            }
            (Mark::Plain, None, Some(name)) => {
                format!("holds at its own point of '{name}' only; say so with 'at-one-point'")
            }
            (Mark::AtOnePoint, None, None) => {
                "holds at other points as well; remove 'at-one-point'".to_owned()
            }
            _ => return None,
        };
        let Claim { line, variant, what, .. } = claim;
        Some(format!("{}.toml:{line}: [{variant}] {what}: {said}", scenario.name))
    };
    reached.into_iter().filter_map(wrong).collect()
}

impl Claim {
    fn is_same(&self, other: &Claim) -> bool {
        let key = |claim: &Claim| (claim.line, claim.variant.clone(), claim.what.clone());
        key(self) == key(other)
    }

    /// The value at a point in its unit, with a mark where it is not as expected.
    pub fn show(&self, at: &At) -> String {
        let ours = at.ours.map_or_else(|| "nothing".into(), |ours| self.unit.show(ours));
        match at.judgement {
            Judgement::Holds => ours,
            _ => format!("{ours} !"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, run_all};
    use headgate_sim::{Outcome, RunError};
    use std::ops::ControlFlow;
    use std::path::Path;

    /// A VM with some requests outstanding on a device of 1,000 IOPS and 1 ms.
    fn scenario(more: &str) -> Scenario {
        let text = format!(
            r#"
            name = "x"
            title = "x"
            duration = "4s"
            seeds = 2
            windows = {{ end = "1s..4s" }}
            datastore = [{{ name = "lun", device = "rate=1000,latency=1ms", queue-depth = 4 }}]
            [[vm]]
            name = "a"
            disk = [{{}}]
            workload = [{{ kind = "closed", outstanding = 8 }}]
            {more}
            "#
        );
        Scenario::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"))
    }

    const DEPTH: &str = r#"
        [[sensitivity]]
        name = "depth"
        set = { "datastore.lun.queue-depth" = "{}" }
        values = [2, 4, 8]
        seeds = 1
        expect = ["waits"]
    "#;

    /// An expectation of how long requests wait at the host: about (8 - depth) ms.
    fn waits(keys: &str) -> String {
        format!(
            "[[expect]]\nname = \"waits\"\nmeasure = \"queue-time\"\nof = \"a\"\nwindow = \"end\"\n{keys}\n"
        )
    }

    /// What was found, and the variant and the seed of each run.
    fn tried(scenario: &Scenario) -> (Vec<Tried>, Vec<(String, u64)>) {
        let traces = FileTraces::within(Path::new("."));
        let mut ran = Vec::new();
        let mut run = |jobs: &[Job<'_>]| -> Result<Vec<Outcome>, RunError> {
            ran.extend(jobs.iter().map(|job| (job.variant.to_owned(), job.seed)));
            run_all(jobs, &mut |_| ControlFlow::Continue(()))
        };
        let all = scenario.sensitivities.iter();
        let tried = all.map(|one| try_values(scenario, one, None, &traces, &mut run).unwrap());
        (tried.collect(), ran)
    }

    fn reach(keys: &str) -> Reach {
        let (all, _) = tried(&scenario(&format!("{DEPTH}{}", waits(keys))));
        all[0].claims[0].reach
    }

    #[test]
    fn a_claim_reaches_as_far_as_it_holds() {
        assert_eq!(reach("at-most = \"1s\""), Reach::Everywhere);
        assert_eq!(reach("at-least = \"3ms\""), Reach::InPart);
        assert_eq!(reach("equals = \"4ms\"\nwithin = \"10%\""), Reach::OwnPointOnly);
        assert_eq!(reach("at-most = \"1ms\""), Reach::Elsewhere);
        assert_eq!(reach("at-least = \"1s\""), Reach::Nowhere);
        let known = "at-least = \"1s\"\ndiffers = \"no\"";
        assert_eq!(reach(known), Reach::Nowhere, "what is known of it counts for nothing");
    }

    #[test]
    fn each_value_is_judged_with_what_it_gave() {
        let keys = waits("equals = \"4ms\"\nwithin = \"10%\"\npaper = \"4ms\"");
        let (all, ran) = tried(&scenario(&format!("{DEPTH}{keys}")));
        let [Tried { values, claims, seeds, .. }] = &all[..] else { panic!("{all:?}") };
        assert_eq!(seeds, &[1]);
        let shown: Vec<(&str, Origin)> =
            values.iter().map(|one| (one.value.as_str(), one.origin)).collect();
        assert_eq!(shown, [("2", Origin::Other), ("4", Origin::File), ("8", Origin::Other)]);
        let waited: Vec<f64> = claims[0].at.iter().map(|at| at.ours.unwrap() * 1e3).collect();
        let near = |(value, due): (&f64, f64)| (value - due).abs() < 0.2;
        assert!(waited.iter().zip([6.0, 4.0, 0.0]).all(near), "{waited:?}");
        let deviations: Vec<bool> =
            claims[0].at.iter().map(|at| at.published.as_ref().unwrap().as_published()).collect();
        assert_eq!(deviations, [false, true, false]);
        assert!(claims[0].show(&claims[0].at[0]).ends_with(" ms !"), "{claims:?}");
        assert_eq!(ran.len(), 3);
    }

    #[test]
    fn only_what_is_read_runs_and_nothing_twice() {
        let more = r#"
            [[variant]]
            name = "own"
            [[variant]]
            name = "fixed"
            set = { "datastore.lun.queue-depth" = 1 }
            [[variant]]
            name = "idle"
            set = { "vm.a.workload.outstanding" = 1 }
        "#;
        let keys = "variant = \"own\"\nper = { variant = \"fixed\" }\nat-most = 1";
        let (_, ran) = tried(&scenario(&[more, DEPTH, &waits(keys)].concat()));
        let count = |name: &str| ran.iter().filter(|(variant, _)| variant == name).count();
        assert_eq!([count("own"), count("fixed"), count("idle")], [3, 1, 0], "{ran:?}");
    }

    #[test]
    fn another_stretch_of_time_is_another_number() {
        let more = r#"
            [[event]]
            at = "2s"
            do = "rate"
            rate = 500
            [[sensitivity]]
            name = "stretch"
            set = { "windows.end" = "{}" }
            values = ["1s..2s", "1s..4s", "3s..4s"]
            expect = "slow"
            [[expect]]
            name = "slow"
            measure = "iops"
            of = "a"
            window = "end"
            at-most = 550
        "#;
        let (all, _) = tried(&scenario(more));
        let holds: Vec<Judgement> = all[0].claims[0].at.iter().map(|at| at.judgement).collect();
        assert_eq!(holds, [Judgement::Fails, Judgement::Fails, Judgement::Holds]);
    }

    #[test]
    fn a_file_must_say_what_holds_at_one_point_only() {
        let wrong = |keys: &str| {
            let scenario = scenario(&format!("{DEPTH}{}", waits(keys)));
            let (all, _) = tried(&scenario);
            mismarked(&scenario, &all)
        };
        let narrow = "equals = \"4ms\"\nwithin = \"10%\"";
        let said = wrong(narrow);
        assert!(
            said.len() == 1 && said[0].contains("only; say so with 'at-one-point'"),
            "{said:?}"
        );
        assert!(said[0].starts_with("x.toml:"), "{said:?}");
        let marked = |keys: &str| wrong(&format!("{keys}\nat-one-point = \"by chance\""));
        assert_eq!(marked(narrow), [""; 0]);
        let said = marked("at-most = \"1s\"");
        assert!(said.len() == 1 && said[0].contains("remove 'at-one-point'"), "{said:?}");
        let said = wrong("at-least = \"1s\"");
        assert!(said.len() == 1 && said[0].contains("say why with 'differs'"), "{said:?}");
        assert_eq!(wrong("at-least = \"1s\"\ndiffers = \"it is not so slow\""), [""; 0]);
        assert_eq!(wrong("at-most = \"1s\""), [""; 0]);
    }

    #[test]
    fn what_is_one_claim_holds_where_all_of_it_does() {
        let second = "[[expect]]\nname = \"more\"\nmeasure = \"queue-time\"\nof = \"a\"\nwindow = \"end\"\n\
                      at-least = \"3ms\"\n";
        let both = |marks: &str| {
            let depth =
                DEPTH.replace("[\"waits\"]", "[\"waits\", \"more\"]\nclaims = \"together\"");
            let first = waits(&format!("at-most = \"5ms\"\n{marks}"));
            let scenario = scenario(&[&depth, first.as_str(), second, marks, "\n"].concat());
            let (all, _) = tried(&scenario);
            let wrong = mismarked(&scenario, &all).len();
            let reaches: Vec<Reach> = all[0].claims.iter().map(|claim| claim.reach).collect();
            assert_eq!(reaches, [Reach::InPart, Reach::InPart]);
            assert_eq!(all[0].together, Some(Reach::OwnPointOnly));
            assert_eq!([all[0].count(Reach::InPart), all[0].count(Reach::OwnPointOnly)], [0, 1]);
            wrong
        };
        assert_eq!(both(""), 2);
        assert_eq!(both("at-one-point = \"by chance\""), 0);
    }

    #[test]
    fn what_holds_at_one_point_only_differs_wherever_it_is_shown() {
        let keys = "equals = \"4ms\"\nwithin = \"10%\"\nat-one-point = \"by chance\"";
        let scenario = scenario(&format!("{DEPTH}{}", waits(keys)));
        let outcome = headgate_sim::run(&scenario, "default", 1, &mut headgate_sim::Quiet).unwrap();
        let findings = judge(&scenario, &[outcome]);
        assert_eq!(findings[0].judgement, Judgement::AtOnePoint);
        assert_eq!(findings[0].standing(), headgate_sim::Standing::Differs);
        assert_eq!(findings[0].differs.as_deref(), Some("by chance"));
        assert_eq!(crate::Tally::of(&findings).known, 1);
        let rows = crate::difference_rows("x", &findings);
        assert!(rows[0].contains("holds at one point only | by chance"), "{rows:?}");
    }
}
