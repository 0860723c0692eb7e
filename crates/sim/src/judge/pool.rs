//! Measures of pools.

use crate::outcome::Outcome;
use crate::outcome::pool::{PoolMove, PoolOutcome, PooledDatastore, ReadsOfInterval, Round};
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
        Measure::PredictionError => prediction_error(pool, span?),
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

/// How far the latencies that were predicted for the last moves before a span are from those
/// measured in it: the mean over datastores, relative to what was measured.
fn prediction_error(pool: &PoolOutcome, span: &Span) -> Option<f64> {
    let moved = |round: &&Round| pool.moves.iter().any(|step| step.advised == round.at);
    let mut before = pool.rounds.iter().filter(|round| round.at < span.from);
    let predicted = before.rfind(moved)?.after.as_ref()?;
    let error = |store: &PooledDatastore| {
        let mut outlooks = predicted.datastores.iter();
        let outlook = outlooks.find(|outlook| outlook.name.as_str() == store.name)?;
        let predicted = outlook.latency?.as_secs_f64();
        let within = |reads: &&ReadsOfInterval| span.from < reads.until && reads.until <= span.to;
        let reads = store.reads.iter().filter(within);
        let (count, total) = reads.fold((0.0, 0.0), |(count, total), reads| {
            let of_this = reads.count as f64;
            (count + of_this, total + of_this * reads.latency.as_secs_f64())
        });
        (count > 0.0).then(|| (predicted * count / total - 1.0).abs())
    };
    let errors: Vec<f64> = pool.datastores.iter().filter_map(error).collect();
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
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

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::{DatastoreOutlook, Load, Permille, Totals};
    use headgate_units::Bytes;

    const SPAN: (u64, u64) = (50, 60);

    fn outlook(latencies: &[(&str, Option<u64>)]) -> Option<Outlook> {
        let datastores = latencies.iter().map(|&(name, millis)| DatastoreOutlook {
            name: name.into(),
            load: Load(1),
            relative: Permille(1_000),
            latency: millis.map(Nanos::from_millis),
            disks: 1,
            used: Bytes(0),
            full: Permille(0),
        });
        let datastores = datastores.collect();
        Some(Outlook { imbalance: Permille(0), latency: None, datastores })
    }

    fn round(at: u64, after: Option<Outlook>) -> Round {
        Round { at: Nanos::from_secs(at), verdict: None, before: None, after }
    }

    fn datastore(name: &str, reads: &[(u64, u64, u64)]) -> PooledDatastore {
        let reads = reads.iter().map(|&(until, count, millis)| ReadsOfInterval {
            until: Nanos::from_secs(until),
            count,
            latency: Nanos::from_millis(millis),
        });
        PooledDatastore {
            name: name.to_owned(),
            disks: 1,
            model: None,
            refused: None,
            totals: Totals::default(),
            raw_slope: None,
            points: Vec::new(),
            reads: reads.collect(),
        }
    }

    fn moved(advised: u64) -> PoolMove {
        PoolMove {
            disk: "a".to_owned(),
            from: "x".to_owned(),
            to: "y".to_owned(),
            why: String::new(),
            taken_back: false,
            size: Bytes(1),
            advised: Nanos::from_secs(advised),
            done: None,
        }
    }

    fn error(moves: Vec<PoolMove>) -> Option<f64> {
        let pool = PoolOutcome {
            rounds: vec![
                round(10, outlook(&[("x", Some(99)), ("y", Some(99))])),
                round(20, outlook(&[("x", Some(12)), ("y", Some(20)), ("z", None)])),
                round(30, outlook(&[("x", Some(98)), ("y", Some(98))])),
                round(55, outlook(&[("x", Some(97)), ("y", Some(97))])),
            ],
            moves,
            last: None,
            datastores: vec![
                // 10 ms in the span: 30 of 8 ms and 10 of 16 ms.
                datastore("x", &[(50, 9, 90), (51, 30, 8), (60, 10, 16), (61, 9, 90)]),
                datastore("y", &[(55, 5, 25)]),
                datastore("z", &[(55, 5, 25)]),
            ],
            disks: Vec::new(),
            copied: Bytes(0),
            longest_wait: Nanos::ZERO,
            violations: 0,
        };
        let (from, to) = (Nanos::from_secs(SPAN.0), Nanos::from_secs(SPAN.1));
        prediction_error(&pool, &Span { name: "after".to_owned(), from, to })
    }

    #[test]
    fn a_prediction_is_held_against_what_reads_took_afterwards() {
        // Of the last advice before the span that moved anything: 12 for 10 ms, and 20 for 25.
        let found = error(vec![moved(10), moved(20), moved(55)]).unwrap();
        assert!((found - 0.2).abs() < 1e-9, "{found}");
        assert_eq!(error(Vec::new()), None, "nothing was predicted");
        assert_eq!(error(vec![moved(55)]), None, "what comes later predicts nothing");
    }
}
