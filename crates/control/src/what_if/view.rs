//! The answer as the API has it.

use super::gather::{Gathered, Known, Question, requests};
use super::notes;
use headgate_api::top::LatencyMicros;
use headgate_api::what_if::{Deviation, Received, Trust, WhatIfAnswer, WhatIfDisk};
use headgate_history::Account;
use headgate_sim::what_if::{Answer, LoadKind, Simulated};
use headgate_units::Nanos;

pub(super) fn answer(question: Question, gathered: &Gathered, answer: &Answer) -> WhatIfAnswer {
    let seconds = answer.recorded.as_secs_f64();
    let disks = gathered.disks.iter().zip(&answer.disks).map(|(known, disk)| {
        let is_asked = known.name == question.disk;
        WhatIfDisk {
            disk: known.name.clone(),
            load: load(known, disk.load, seconds),
            policy_before: known.then,
            policy_after: if is_asked { question.after } else { known.now },
            recorded: recorded(&known.sum, seconds),
            before: simulated(&disk.before, seconds),
            after: simulated(&disk.after, seconds),
        }
    });
    let disks: Vec<WhatIfDisk> = disks.collect();
    let deviation = deviation(&disks, gathered);
    let notes = notes::of(&question, gathered, answer, &disks);
    WhatIfAnswer {
        disk: question.disk,
        datastore: question.datastore.name,
        since: question.within.start,
        until: question.within.end,
        recorded_seconds: seconds,
        simulated_seconds: answer.simulated.as_secs_f64(),
        deviation,
        disks,
        notes,
    }
}

/// How many requests a disk had outstanding on average, what was held for trouble aside.
pub(super) fn outstanding(account: &Account, seconds: f64) -> f64 {
    let waited: f64 = account.waits.iter().take(5).map(|waited| *waited as f64).sum();
    waited / 1e6 / seconds.max(1e-9)
}

fn load(known: &Known, kind: Option<LoadKind>, seconds: f64) -> String {
    let outstanding = outstanding(&known.sum, seconds);
    match kind {
        None => "asks for nothing".to_owned(),
        Some(LoadKind::Closed { .. }) => format!("keeps {outstanding:.1} outstanding"),
        Some(LoadKind::Open) => {
            let rate = requests(&known.sum) as f64 / seconds.max(1e-9);
            format!("sends {rate:.0} a second")
        }
    }
}

fn micros(latency: Option<(Nanos, Nanos)>) -> Option<LatencyMicros> {
    let of = |latency: Nanos| latency.0.div_ceil(1_000);
    latency.map(|(p50, p99)| LatencyMicros { p50: of(p50), p99: of(p99) })
}

fn recorded(sum: &Account, seconds: f64) -> Received {
    let per_second = |count: f64| count / seconds.max(1e-9);
    let at = |permille| sum.latency.at_permille(permille);
    Received {
        iops: per_second(requests(sum) as f64),
        normalised_iops: per_second(sum.received as f64 / 1e3),
        total_micros: micros(at(500).zip(at(990))),
        demanded_seconds: sum.demanded_time.as_secs_f64(),
        short_seconds: sum.short_time.as_secs_f64(),
    }
}

fn simulated(run: &Simulated, seconds: f64) -> Received {
    let at = |permille| run.latency.at_permille(permille);
    let scale = seconds / run.length.as_secs_f64().max(1e-9);
    Received {
        iops: run.rate(),
        normalised_iops: run.received_rate(),
        total_micros: micros(at(500).zip(at(990))),
        demanded_seconds: run.demanded as f64 * scale,
        short_seconds: run.short as f64 * scale,
    }
}

fn deviation(disks: &[WhatIfDisk], gathered: &Gathered) -> Deviation {
    let (mut missed, mut all) = (0.0, 0.0);
    let (mut late, mut weight) = (0.0, 0.0);
    for (disk, known) in disks.iter().zip(&gathered.disks) {
        missed += (disk.before.iops - disk.recorded.iops).abs();
        all += disk.recorded.iops;
        if let (Some(was), Some(is)) = (&disk.recorded.total_micros, &disk.before.total_micros) {
            let requests = requests(&known.sum) as f64;
            late += requests * (is.p99 as f64 - was.p99 as f64).abs() / was.p99.max(1) as f64;
            weight += requests;
        }
    }
    let iops_percent = 100.0 * missed / f64::max(all, 1e-9);
    let p99_percent = (weight > 0.0).then(|| 100.0 * late / weight);
    Deviation { trust: Trust::of(iops_percent), iops_percent, p99_percent }
}
