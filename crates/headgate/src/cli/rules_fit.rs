//! `headgate rules fit`: constants of the load formula by what was measured.

use super::common::Print;
use super::error::CliError;
use super::output::{Align, Table, print_value, warnings};
use clap::Args;
use headgate_api::client::{Client, Tagged};
use headgate_api::constants::{ConstantsFit, FactorFit};
use headgate_api::types::Changed;
use headgate_model::Lookback;
use headgate_placement::{Constants, Load, PredictionError, Rules, Trait};
use hyper::Method;
use std::fmt::Write as _;
use std::io::Write;

/// Arguments of `headgate rules fit`.
#[derive(Debug, Args)]
pub(super) struct Fit {
    /// How far back intervals are looked at, 1min to 7d, such as 90min, 24h or 7d
    #[arg(long, value_name = "TIME", default_value_t = Lookback::WEEK)]
    since: Lookback,
    /// Set the rules to what was fitted, if it predicts intervals that were held out better by a
    /// tenth
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    pub(super) print: Print,
}

impl Fit {
    pub(super) fn run(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        // If somebody changes them meanwhile, nothing is set.
        let rules: Tagged<Rules> = client.get_tagged("/v1/rules")?;
        let fit: ConstantsFit = client.get(&format!("/v1/rules/fit?since={}", self.since))?;
        print_value(out, self.print, &fit, render)?;
        if !self.apply {
            return Ok(());
        }
        if let Some(why) = &fit.no_gain {
            return Err(CliError::Found(format!("the rules stay as they are: {why}")));
        }
        let rules_now = Rules { constants: fit.fitted, ..rules.value };
        let client = client.of(rules.tag);
        let changed: Changed<Rules> = client.send(Method::PUT, "/v1/rules", &rules_now)?;
        warnings(&changed.warnings);
        if !self.print.json {
            writeln!(out, "the rules have the fitted constants now")?;
        }
        Ok(())
    }
}

/// A constant with its unit.
fn constant(of: Trait, constants: &Constants) -> String {
    match of {
        Trait::Outstanding => format!("{:.2}", constants.outstanding.as_f64()),
        Trait::Size => format!("{:.1} KiB", constants.size.0 as f64 / 1_024.0),
        Trait::Read => constants.read.to_string(),
        Trait::Random => constants.random.to_string(),
    }
}

fn render(fit: &ConstantsFit) -> String {
    let columns = [
        ("K", Align::Left),
        ("FACTOR", Align::Left),
        ("NOW", Align::Right),
        ("FITTED", Align::Right),
        ("INTERVALS", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for (number, FactorFit { factor, intervals, kept }) in (1..).zip(&fit.factors) {
        table.row(vec![
            format!("K{number}"),
            factor.to_string(),
            constant(*factor, &fit.now),
            constant(*factor, &fit.fitted),
            intervals.map_or_else(|| "-".into(), |count| count.to_string()),
            kept.clone().unwrap_or_default(),
        ]);
    }
    let mut text = table.render();
    let columns = [("DATASTORE", Align::Left), ("INTERVALS", Align::Right), ("K5", Align::Right)];
    let mut table = Table::new(&columns);
    for datastore in &fit.datastores {
        let per_millisecond = datastore.per_millisecond.map(|load| Load(load).as_f64());
        table.row(vec![
            datastore.datastore.to_string(),
            datastore.intervals.to_string(),
            per_millisecond.map_or_else(|| "-".into(), |load| format!("{load:.1}")),
        ]);
    }
    let _ = write!(
        text,
        "\nintervals of the last {} in which one disk alone was busy\n{}",
        fit.since,
        table.render()
    );
    for outside in &fit.outside {
        let (datastore, reason) = (&outside.datastore, &outside.reason);
        let _ = writeln!(text, "datastore '{datastore}' takes no part: {reason}");
    }
    let change = |of: fn(&PredictionError) -> String| {
        format!("{} -> {}", of(&fit.error_now), of(&fit.error_fitted))
    };
    if fit.datastores.is_empty() {
        text.push_str("\nno interval to predict: no error to tell\n");
    } else {
        let _ = writeln!(
            text,
            "\nerror of predictions, median: {}; on intervals that were held out: {}",
            change(|error| error.fitted.to_string()),
            change(|error| error.held_out.to_string())
        );
    }
    if let Some(why) = &fit.no_gain {
        let _ = writeln!(text, "no gain: {why}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_api::constants::DeviceFit;
    use headgate_api::placement::Outside;
    use headgate_placement::Permille;

    #[test]
    fn a_fit_says_what_was_told_and_what_was_not() {
        let now = Constants::default();
        let fitted = Constants { read: Permille(400), ..now };
        let kept = Some("nearly all intervals have 4.0 KiB; kept as it is".to_owned());
        let factor = |factor, intervals| FactorFit { factor, intervals, kept: None };
        let error = |fitted, held_out| PredictionError {
            fitted: Permille(fitted),
            held_out: Permille(held_out),
        };
        let fit = ConstantsFit {
            since: "7d".into(),
            now,
            fitted,
            factors: vec![
                factor(Trait::Outstanding, Some(720)),
                FactorFit { factor: Trait::Size, intervals: None, kept },
                factor(Trait::Read, Some(1_440)),
                factor(Trait::Random, Some(720)),
            ],
            datastores: vec![DeviceFit {
                datastore: "array".parse().unwrap(),
                intervals: 1_440,
                per_millisecond: Some(35_210),
            }],
            outside: vec![Outside {
                datastore: "lvm".parse().unwrap(),
                reason: "it is a block device, which is one disk".into(),
            }],
            error_now: error(381, 402),
            error_fitted: error(90, 101),
            no_gain: None,
        };
        let text = render(&fit);
        for line in [
            "K1  outstanding requests      1.30      1.30        720",
            "K2  request size          51.0 KiB  51.0 KiB          -  nearly all intervals have 4.0 KiB; kept as it is",
            "K3  reads                    140 %      40 %       1440",
            "intervals of the last 7d in which one disk alone was busy",
            "array           1440  35.2",
            "datastore 'lvm' takes no part: it is a block device, which is one disk",
            "error of predictions, median: 38.1 % -> 9 %; on intervals that were held out: 40.2 % -> 10.1 %",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}:\n{text}");
        }
        assert!(!text.contains("no gain"));
        let stays = ConstantsFit { no_gain: Some("the intervals tell of no factor".into()), ..fit };
        assert!(render(&stays).ends_with("no gain: the intervals tell of no factor\n"));
        let nothing = ConstantsFit { datastores: Vec::new(), ..stays };
        let text = render(&nothing);
        assert!(text.contains("no interval to predict") && !text.contains("error of"), "{text}");
    }
}
