//! The figure of published numbers beside ours.

use crate::plot::{Group, Ratio, Ratios, Tone};
use headgate_sim::{Finding, Published, Scenario, Standing, Summary, Unit};

/// All numbers of an experiment that were published, with ours beside them; none where none were.
///
/// Each is a row with the quotient of ours and the paper's, on a logarithmic axis. A paper's
/// numbers are of several units and sizes, and the question is of each how far we are from it: on
/// one axis of quotients all can be compared, twice as much is as far from 1 as half as much, and
/// 5, 10 and 20 % are the same bands for all. The numbers themselves stand beside.
pub fn published(scenario: &Scenario, findings: &[Finding]) -> Option<Ratios> {
    let mut groups: Vec<(String, Vec<Ratio>)> = Vec::new();
    for finding in findings {
        let (Some(paper), Some(found)) = (finding.paper, &finding.published) else { continue };
        let name = heading(finding);
        let row = row(finding, paper, found);
        match groups.iter_mut().find(|(other, _)| *other == name) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    if groups.is_empty() {
        return None;
    }
    let source = match scenario.source.as_str() {
        "" => String::new(),
        source => format!(" ({source})"),
    };
    Some(Ratios {
        title: format!("{}: ours beside the published numbers{source}", scenario.name),
        axis: "ours / published".into(),
        reference: "published".into(),
        groups: groups.into_iter().map(|(name, rows)| Group { name, rows }).collect(),
    })
}

/// Numbers of one measure and unit stand together.
fn heading(finding: &Finding) -> String {
    let unit = match finding.shown_unit() {
        Unit::PerSecond => "1/s",
        Unit::BytesPerSecond => "MiB/s",
        Unit::Seconds => "time",
        Unit::Ratio => "quotient",
        _ => "number",
    };
    format!("{} ({unit})", finding.measure)
}

fn row(finding: &Finding, paper: f64, found: &Published) -> Ratio {
    let unit = finding.shown_unit();
    // Parts of the seeds are of no single one.
    let points = match finding.summary {
        Summary::Share(_) => Vec::new(),
        _ => finding.readings.iter().filter_map(|reading| reading.value).collect(),
    };
    let ours = finding.ours();
    Ratio {
        name: finding.what.replacen(&format!("{} of ", finding.measure), "", 1),
        beside: finding.variant.clone(),
        texts: [
            unit.show(paper),
            ours.map_or_else(|| "nothing".into(), |ours| unit.show(ours)),
            found.deviation.map_or_else(|| "not in %".into(), percent),
        ],
        value: ours.and_then(|ours| quotient(ours, paper)),
        points: points.into_iter().filter_map(|value| quotient(value, paper)).collect(),
        tone: match finding.standing() {
            Standing::Holds => Tone::Good,
            Standing::OffPaper => Tone::Off,
            Standing::Differs => Tone::Known,
            Standing::Fails | Standing::NotRun => Tone::Bad,
        },
    }
}

fn percent(deviation: f64) -> String {
    match format!("{:+.1} %", deviation * 100.0) {
        none if none == "-0.0 %" || none == "+0.0 %" => "0.0 %".into(),
        some => some,
    }
}

/// What is nothing both here and there is the same.
fn quotient(ours: f64, paper: f64) -> Option<f64> {
    match (ours, paper) {
        (0.0, 0.0) => Some(1.0),
        (_, 0.0) => None,
        (ours, paper) => Some(ours / paper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{expect, on_500_iops};
    use headgate_sim::{Outcome, Quiet, judge, run};

    fn of(expectations: &str, seeds: &[u64]) -> Option<Ratios> {
        let scenario = on_500_iops("x", expectations);
        let outcomes: Vec<Outcome> = seeds
            .iter()
            .map(|&seed| run(&scenario, "default", seed, &mut Quiet).unwrap())
            .collect();
        published(&scenario, &judge(&scenario, &outcomes))
    }

    #[test]
    fn without_published_numbers_there_is_no_figure() {
        assert!(of(&expect("at-least = 1"), &[7]).is_none());
        assert!(of(&expect("at-least = 1\npaper = 500"), &[]).is_none(), "nothing was run");
    }

    #[test]
    fn each_published_number_is_a_row_under_its_measure() {
        let latency =
            "[[expect]]\nmeasure = \"latency\"\nof = \"a\"\nat-most = \"9ms\"\npaper = \"4ms\"\n";
        let text = [
            expect("at-least = 1\npaper = 1000"),
            latency.to_owned(),
            expect("at-least = 1"),
            expect("equals = 500\nwithin = \"5%\"\npaper = 495"),
            expect("at-least = 1\npaper = 0"),
            expect("at-least = 1\npaper = 500.01"),
            expect("at-least = 1\nin-seeds = \"50%\"\npaper = 1"),
        ]
        .concat();
        let figure = of(&text, &[7, 8]).unwrap();
        let names: Vec<&str> = figure.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["iops (1/s)", "latency (time)", "iops (quotient)"]);
        let rows = &figure.groups[0].rows;
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[0].name.as_str(), rows[0].beside.as_str()), ("a in end", "default"));
        assert_eq!(rows[0].texts, ["1000/s", "500.0/s", "-50.0 %"]);
        assert_eq!((rows[0].value, rows[0].tone), (Some(0.5), Tone::Off));
        assert_eq!(rows[0].points, [0.5, 0.5]);
        assert_eq!(rows[1].tone, Tone::Good);
        assert_eq!((rows[2].value, rows[2].texts[2].as_str()), (None, "not in %"));
        assert_eq!(rows[3].texts[2], "0.0 %", "without a sign");
        let part = &figure.groups[2].rows[0];
        assert_eq!((part.value, part.points.len()), (Some(1.0), 0));
        assert!(figure.svg().unwrap().contains("ours / published"));
    }
}
