//! Prints models and moves of a pool, for `sim run`.

use crate::cli::error::CliError;
use crate::cli::output::{Align, Table};
use headgate_sim::{Outcome, PoolOutcome};
use std::io::Write;

/// Models and moves of the run with the first seed.
pub(super) fn print_pool(out: &mut dyn Write, runs: &[&Outcome]) -> Result<(), CliError> {
    let Some((first, pool)) = runs.first().and_then(|run| Some((run, run.pool.as_ref()?))) else {
        return Ok(());
    };
    writeln!(out, "\nthe pool with seed {}", first.seed)?;
    print_models(out, pool)?;
    for (index, round) in pool.rounds.iter().enumerate() {
        let show = |imbalance: Option<String>| imbalance.unwrap_or_else(|| "-".to_owned());
        let before = show(round.before.as_ref().map(|outlook| outlook.imbalance.to_string()));
        let after = show(round.after.as_ref().map(|outlook| outlook.imbalance.to_string()));
        let verdict =
            round.verdict.as_ref().map_or_else(String::new, |verdict| format!(": {verdict}"));
        writeln!(out, "{}: imbalance {before} -> {after}{verdict}", round.at)?;
        let next = pool.rounds.get(index + 1).map(|next| next.at);
        let here = |at| round.at <= at && next.is_none_or(|next| at < next);
        for step in pool.moves.iter().filter(|step| here(step.advised)) {
            let done = match step.done {
                Some(done) if done == step.advised => String::new(),
                Some(done) => format!(", there after {}", done.since(step.advised)),
                None => ", not done when the run ended".to_owned(),
            };
            writeln!(
                out,
                "  {}: {} -> {}, {}, {}{done}",
                step.disk, step.from, step.to, step.size, step.why
            )?;
        }
    }
    if pool.violations > 0 {
        writeln!(out, "rules were found broken {} times", pool.violations)?;
    }
    Ok(())
}

fn print_models(out: &mut dyn Write, pool: &PoolOutcome) -> Result<(), CliError> {
    let mut table = Table::new(&[
        ("DATASTORE", Align::Left),
        ("DISKS", Align::Right),
        ("LOAD", Align::Right),
        ("PREDICTED", Align::Right),
        ("MODEL", Align::Left),
    ]);
    for store in &pool.datastores {
        let outlook = pool
            .last
            .as_ref()
            .and_then(|last| last.datastores.iter().find(|o| o.name.as_str() == store.name));
        let model = match (&store.model, &store.refused) {
            (Some(model), _) => model.to_string(),
            (None, Some(refused)) => refused.to_string(),
            (None, None) => "nothing was learnt".to_owned(),
        };
        table.row(vec![
            store.name.clone(),
            store.disks.to_string(),
            outlook.map_or_else(|| "-".into(), |outlook| outlook.relative.to_string()),
            outlook
                .and_then(|outlook| outlook.latency)
                .map_or_else(|| "-".into(), |latency| latency.to_string()),
            model,
        ]);
    }
    Ok(out.write_all(table.render().as_bytes())?)
}
