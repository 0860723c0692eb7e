//! Measures of pools.

use crate::outcome::Outcome;
use crate::outcome::pool::{PoolMove, PoolOutcome};
use crate::scenario::{Measure, Span};
use headgate_placement::{Evidence, Outlook};
use headgate_units::Nanos;

pub(super) fn measure_pool(
    outcome: &Outcome,
    measure: Measure,
    group: &[String],
    span: Option<&Span>,
) -> Option<f64> {
    let pool = outcome.pool.as_ref()?;
    let within = |at: Nanos| span.is_none_or(|span| span.from <= at && at < span.to);
    let datastore = || pool.datastores.iter().find(|store| group.first() == Some(&store.name));
    let outlook = |name: &String| {
        let outlook = outlook_at(pool, span)?;
        outlook.datastores.iter().find(|store| store.name.as_str() == name)
    };
    match measure {
        Measure::Moves => {
            Some(pool.moves.iter().filter(|step| within(step.advised)).count() as f64)
        }
        Measure::Returns => Some(returns(&pool.moves) as f64),
        Measure::Imbalance => Some(outlook_at(pool, span)?.imbalance.as_f64()),
        Measure::Copied => Some(pool.copied.0 as f64 / f64::from(1 << 30)),
        Measure::CopyTime => {
            let done = pool.moves.iter().filter(|step| within(step.advised)).map(|step| step.done);
            let last = done.collect::<Option<Vec<Nanos>>>()?.into_iter().max()?;
            let first = pool
                .moves
                .iter()
                .filter(|step| within(step.advised))
                .map(|step| step.advised)
                .min()?;
            Some(last.since(first).as_secs_f64())
        }
        Measure::Violations => Some(pool.violations as f64),
        Measure::Disks => group
            .iter()
            .map(|name| {
                pool.datastores
                    .iter()
                    .find(|store| store.name == *name)
                    .map(|store| f64::from(store.disks))
            })
            .sum(),
        Measure::Slope => Some(datastore()?.model?.slope.as_picos() as f64 / 1e12),
        Measure::SlopeFit => {
            let model = datastore()?.model?;
            (model.evidence == Evidence::Rise).then(|| model.explained.as_f64())
        }
        Measure::RawSlope => Some(datastore()?.raw_slope? as f64 / 1e12),
        Measure::LeftOut => Some(datastore()?.totals.left_out.iter().sum::<u64>() as f64),
        Measure::RelativeLoad => {
            group.iter().map(|name| Some(outlook(name)?.relative.as_f64())).sum()
        }
        Measure::Predicted => {
            group.first().and_then(|name| Some(outlook(name)?.latency?.as_secs_f64()))
        }
        _ => None,
    }
}

/// As things were before the first advice in the span; at the end where there is no span.
fn outlook_at<'a>(pool: &'a PoolOutcome, span: Option<&Span>) -> Option<&'a Outlook> {
    match span {
        None => pool.last.as_ref(),
        Some(span) => {
            let mut rounds = pool.rounds.iter();
            rounds.find(|round| span.from <= round.at && round.at < span.to)?.before.as_ref()
        }
    }
}

/// Moves of a disk to where it has been before, but for those that take a move back; and any move
/// of a disk that was taken back.
fn returns(moves: &[PoolMove]) -> usize {
    let been = |index: usize| {
        let step = &moves[index];
        let mut before = moves[..index].iter().filter(|before| before.disk == step.disk);
        before.any(|before| before.taken_back || (before.from == step.to && !step.taken_back))
    };
    (0..moves.len()).filter(|&index| been(index)).count()
}
