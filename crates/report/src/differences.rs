//! Rows of `docs/differences.md`: where numbers are not the published ones.

use headgate_sim::{Finding, Judgement, PaperInBound, Standing};

/// What the page says where a file gives no reason.
const UNKNOWN: &str = "not known";

/// A row for each number of an experiment that is not as published: more than 20 % off, outside of
/// the bound that we hold ours to, or known not to be what the paper claims.
///
/// Columns: experiment, variant, number, paper, ours, how far off, why.
pub fn difference_rows(experiment: &str, findings: &[Finding]) -> Vec<String> {
    findings.iter().filter_map(|finding| row(experiment, finding)).collect()
}

fn row(experiment: &str, finding: &Finding) -> Option<String> {
    let off = finding.published.as_ref().filter(|published| !published.as_published());
    let differs = finding.standing() == Standing::Differs;
    if off.is_none() && !differs {
        return None;
    }
    let unit = finding.shown_unit();
    // A claim without a number is what the check asks for.
    let paper = match finding.paper {
        Some(paper) => unit.show(paper),
        None => finding.expected.clone(),
    };
    let ours = finding.ours().map_or_else(|| "nothing".to_owned(), |ours| unit.show(ours));
    let far = match off {
        Some(published) => match (published.deviation, published.bound) {
            (Some(far), PaperInBound::Inside) => format!("{:+.1} %", far * 100.0),
            (Some(far), PaperInBound::Outside) => {
                format!("{:+.1} %, held to {}", far * 100.0, finding.expected)
            }
            (None, _) => "not in %".to_owned(),
        },
        None if finding.judgement == Judgement::AtOnePoint => "holds at one point only".to_owned(),
        None => "claim not met".to_owned(),
    };
    let given =
        off.and_then(|published| published.reason.as_deref()).or(finding.differs.as_deref());
    let cells: [&str; 7] = [
        experiment,
        &finding.variant,
        &finding.what,
        &paper,
        &ours,
        &far,
        given.unwrap_or(UNKNOWN),
    ];
    let cells =
        cells.map(|cell| cell.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|"));
    Some(format!("| {} |", cells.join(" | ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{expect, on_500_iops};
    use headgate_sim::{Quiet, judge, run};

    fn rows(expectations: &str) -> Vec<String> {
        let scenario = on_500_iops("x", expectations);
        let outcomes = [run(&scenario, "default", 7, &mut Quiet).unwrap()];
        difference_rows("x", &judge(&scenario, &outcomes))
    }

    #[test]
    fn rows_are_of_what_is_not_as_published() {
        let number = "iops of a in end";
        let same = expect("equals = 500\nwithin = \"9%\"\npaper = 460");
        assert_eq!(rows(&same), [""; 0]);
        let far = expect("at-least = 1\npaper = 1000\noff-paper = \"a | b\"");
        let why = format!("| x | default | {number} | 1000/s | 500.0/s | -50.0 % | a \\| b |");
        assert_eq!(rows(&far), [why]);
        let own = expect("equals = 500\nwithin = \"1%\"\npaper = 480");
        let why = format!(
            "| x | default | {number} | 480.0/s | 500.0/s | +4.2 %, held to 500.0/s ± 1 % | not known |"
        );
        assert_eq!(rows(&own), [why]);
        let claim = expect("at-least = 800\ndiffers = \"too slow\"");
        let why = format!(
            "| x | default | {number} | at least 800.0/s | 500.0/s | claim not met | too slow |"
        );
        assert_eq!(rows(&claim), [why]);
    }
}
