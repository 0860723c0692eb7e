//! What an answer rests on, and what the record does not tell.

use super::gather::{DISKS_MAX, Gathered, Question};
use super::view::outstanding;
use headgate_api::what_if::WhatIfDisk;
use headgate_history::{Account, Span};
use headgate_model::{Backend, Name};
use headgate_placement::Evidence;
use headgate_sim::what_if::Answer;

/// Who waited for a limit for more than this part of the time was held back by it.
const HELD: f64 = 0.05;
/// Names in a note.
const NAMED: usize = 3;

pub(super) fn of(
    question: &Question,
    gathered: &Gathered,
    answer: &Answer,
    disks: &[WhatIfDisk],
) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(refused) = &question.refused {
        notes.push(format!("'headgate disk set' would refuse this without --force: {refused}"));
    }
    notes.extend(unknown_demand(gathered, answer, disks));
    notes.extend(of_storage(gathered, answer));
    notes.extend(of_policies(question, gathered));
    notes.extend(of_disks(gathered));
    let part = answer.simulated.as_secs_f64() / answer.recorded.as_secs_f64().max(1e-9);
    if part < 0.95 {
        notes.push(format!(
            "{:.0} % of the recorded time was simulated, evenly: there were more requests than one \
             question is allowed",
            100.0 * part
        ));
    }
    notes
}

fn named<'a>(names: impl Iterator<Item = &'a Name>) -> Option<String> {
    let names: Vec<&str> = names.map(Name::as_str).collect();
    let shown = names.iter().take(NAMED).map(|name| format!("'{name}'"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        n if n > NAMED => Some(format!("{shown} and {} more", n - NAMED)),
        _ => Some(shown),
    }
}

fn is_limited(account: &Account) -> bool {
    let all: f64 = account.waits.iter().map(|waited| *waited as f64).sum();
    account.waits.get(1).is_some_and(|limit| *limit as f64 > HELD * all)
}

/// Disks of which the record does not tell how much they would ask for.
fn unknown_demand(gathered: &Gathered, answer: &Answer, disks: &[WhatIfDisk]) -> Vec<String> {
    let each = || gathered.disks.iter().zip(disks);
    let mut notes = Vec::new();
    let limited = each().filter(|(known, _)| is_limited(&known.sum));
    if let Some(names) = named(limited.map(|(known, _)| &known.name)) {
        notes.push(format!(
            "waited for a limit of their own: {names}. What they would ask for without it was not \
             seen; they are taken to keep as many requests outstanding as they did"
        ));
    }
    let more = each().filter(|(known, disk)| {
        !is_limited(&known.sum) && disk.after.iops > 1.1 * disk.before.iops.max(1.0)
    });
    if let Some(names) = named(more.map(|(known, _)| &known.name)) {
        notes.push(format!(
            "would be served more than they were: {names}. What they would do with it was not \
             seen; they are taken to send the next request as soon after a completion as they did"
        ));
    }
    let seconds = answer.recorded.as_secs_f64();
    let held = gathered.disks.iter().filter(|known| {
        let held = known.sum.waits.get(5).map_or(0.0, |held| *held as f64);
        held / 1e6 / seconds.max(1e-9) > HELD * outstanding(&known.sum, seconds)
    });
    if let Some(names) = named(held.map(|known| &known.name)) {
        notes.push(format!(
            "held requests for their storage's trouble: {names}. That is not simulated"
        ));
    }
    notes
}

/// Of the device.
fn of_storage(gathered: &Gathered, answer: &Answer) -> Vec<String> {
    let mut notes = Vec::new();
    match (&gathered.learnt.model, &gathered.learnt.refusal) {
        (Some(model), _) if model.evidence == Evidence::Rise => {
            notes.push(format!("latency of the storage: {model}"));
        }
        (Some(model), _) => notes.push(format!(
            "the storage's model does not say how latency rises ({}): it is taken to do as many \
             requests per second as it did, whatever is in flight",
            model.evidence
        )),
        (None, why) => {
            let why = why.as_ref().map_or_else(|| "no reason is known".into(), ToString::to_string);
            notes.push(format!(
                "there is no model of the storage ({why}): it is taken to do as many requests per \
                 second as it did, whatever is in flight"
            ));
        }
    }
    let in_flight = |side: fn(&headgate_sim::what_if::DiskAnswer) -> f64| -> f64 {
        answer.disks.iter().map(side).sum()
    };
    let before = in_flight(|disk| disk.before.in_flight());
    let after = in_flight(|disk| disk.after.in_flight());
    if after < 0.5 * before || after > 2.0 * before {
        notes.push(format!(
            "with the change {after:.1} requests would be in flight on average, and {before:.1} \
             were: the storage's latency there is not from this record"
        ));
    }
    notes
}

fn of_policies(question: &Question, gathered: &Gathered) -> Vec<String> {
    let mut notes = Vec::new();
    let changed = gathered.disks.iter().filter(|known| known.is_changed());
    if let Some(names) = named(changed.map(|known| &known.name)) {
        notes.push(format!(
            "had another reservation then: {names}. The simulation that is held against the record \
             has that one, the other has the one of now"
        ));
    }
    notes.push(
        "limits, shares, queue depth and groups are those of now: history has reservations alone"
            .to_owned(),
    );
    if question.datastore.window.latency().is_some() {
        notes.push(
            "the datastore's window follows its latency: it is simulated as wide as it is now"
                .to_owned(),
        );
    }
    if matches!(question.datastore.backend, Backend::Nbd { .. } | Backend::Stripe { .. }) {
        notes.push(
            "what the servers behind this datastore do for other hosts is in its latency alone"
                .to_owned(),
        );
    }
    notes
}

fn of_disks(gathered: &Gathered) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(names) = named(gathered.came.iter()) {
        notes.push(format!("not simulated, for they came to this datastore since: {names}"));
    }
    if let Some(names) = named(gathered.left.iter()) {
        notes.push(format!(
            "not simulated, for they are here no more: {names}. What they did was more load"
        ));
    }
    if gathered.beyond > 0 {
        notes.push(format!(
            "{} disks with fewer requests than these {DISKS_MAX} are not simulated",
            gathered.beyond
        ));
    }
    if gathered.span == Span::Hour {
        notes.push(
            "longer ago than a day sums of whole hours are kept: load that came and went within \
             an hour is spread over it, and the hours are counted whole"
                .to_owned(),
        );
    }
    notes
}
