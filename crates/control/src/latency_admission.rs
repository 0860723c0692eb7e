//! Admission of latency targets, by what was recorded since the daemon began to serve.

use super::{Control, ControlError, DatastoreEntry, Model, capacity};
use headgate_api::types::Force;
use headgate_model::{DatastoreSample, Name, Policy, Scheduler};
use headgate_placement::latency_bound::{
    LATE, PUNCTUAL, PromisedDisk, ServiceMeter, Storage, Verdict, Why, Work, judge,
};
use headgate_qos::{Config, Floor, Narrow};
use headgate_stats::DiskSnapshot;
use headgate_units::{Iops, Nanos};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

/// What is recorded of the service of each datastore, for as long as it is in service.
#[derive(Default)]
pub(super) struct ServiceRecords(Mutex<Records>);

#[derive(Default)]
struct Records {
    stores: BTreeMap<Name, Recorded>,
    last: Arc<Vec<DatastoreSample>>,
}

struct Recorded {
    last: DiskSnapshot,
    meter: ServiceMeter,
}

impl ServiceRecords {
    /// Takes in what the shards report. O(histogram buckets) for each datastore.
    fn record(&self, sample: &Arc<Vec<DatastoreSample>>) {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.last = sample.clone();
        let known = &mut records.stores;
        known.retain(|name, _| sample.iter().any(|store| store.name == *name));
        for store in sample.iter() {
            let entry = known.entry(store.name.clone()).or_insert_with(|| Recorded {
                last: store.stats.clone(),
                meter: ServiceMeter::new(),
            });
            let passed = store.stats.at.since(entry.last.at);
            if passed > Nanos::ZERO {
                entry.meter.record(passed, &store.stats.difference(&entry.last));
                entry.last = store.stats.clone();
            }
        }
    }
}

impl Records {
    /// The mean cost of a disk's requests, if it had any. O(disks).
    fn cost(&self, datastore: &Name, disk: &Name) -> Option<Work> {
        let store = self.last.iter().find(|store| store.name == *datastore)?;
        let served = &store.disk_near(disk, 0)?.counted.served;
        let requests = u128::from(served.reservation_ios) + u128::from(served.weight_ios);
        let cost = (served.reservation_cost + served.weight_cost).checked_div(requests)?;
        Some(Work::from_millionths(u64::try_from(cost).unwrap_or(u64::MAX)))
    }
}

/// How late other disks may ask for their reservations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Neighbours {
    /// They send their requests as they come.
    Punctual,
    /// They may do anything, such as keep few outstanding for a while and then many.
    Late,
}

/// Whether no window helps: one request alone takes longer.
fn is_certain(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Unlikely(refusal) => matches!(refusal.why, Why::Storage { .. }),
        Verdict::Impossible(_) => true,
        Verdict::Kept(_) | Verdict::Unknown(_) => false,
    }
}

impl Control {
    /// Takes in what the shards report, for the admission of latency targets.
    pub fn record_service(&self, sample: &Arc<Vec<DatastoreSample>>) {
        self.service.record(sample);
    }

    /// Whether a latency target can be promised: what to tell the operator, or why not.
    ///
    /// `disk` is the disk that exists already, with its policy until now.
    pub(super) fn check_latency(
        &self,
        model: &Model,
        datastore: &DatastoreEntry,
        policy: &Policy,
        disk: Option<(&Name, &Policy)>,
        force: Force,
    ) -> Result<Vec<String>, ControlError> {
        let record = &datastore.record;
        let gives_way = record.window.narrow != Narrow::Never && record.window.latency().is_none();
        if policy.latency_target.is_none() || record.scheduler != Scheduler::Mclock || !gives_way {
            return Ok(Vec::new());
        }
        let same = disk.is_some_and(|(_, before)| {
            before.latency_target == policy.latency_target
                && before.reservation == policy.reservation
        });
        if same {
            return Ok(Vec::new());
        }
        let name = disk.map(|(name, _)| name);
        match self.judge_latency(model, datastore, policy, name, Neighbours::Late) {
            Verdict::Kept(_) => return Ok(Vec::new()),
            Verdict::Unknown(_) | Verdict::Unlikely(_) | Verdict::Impossible(_) => {}
        }
        match self.judge_latency(model, datastore, policy, name, Neighbours::Punctual) {
            Verdict::Kept(promise) => Ok(vec![format!(
                "{} is kept while the other disks with reservations send their requests as they come: one that keeps \
                 few outstanding and then many goes first for up to {LATE}",
                promise.target
            )]),
            Verdict::Unknown(missing) => Ok(vec![format!(
                "nobody checked that the latency target can be kept, for {missing}; 'headgate disk show' will tell whether it is"
            )]),
            verdict => match self.unrecorded(&record.name).filter(|_| !is_certain(&verdict)) {
                Some(unrecorded) => Ok(vec![format!(
                    "nobody checked that the latency target can be kept, for the datastore is not recorded with \
                     {unrecorded} requests in it; as it was recorded, {verdict}"
                )]),
                None if force == Force::Yes => {
                    Ok(vec![format!("{verdict}; it is tried and judged all the same")])
                }
                None => Err(ControlError::LatencyNotAdmitted {
                    datastore: record.name.clone(),
                    verdict: verdict.to_string(),
                }),
            },
        }
    }

    /// What is missing to know both how quick a datastore is in a narrow window, and how much it
    /// gives in a wide one.
    fn unrecorded(&self, datastore: &Name) -> Option<&'static str> {
        let records = self.service.0.lock().unwrap_or_else(PoisonError::into_inner);
        let meter = records.stores.get(datastore).map(|recorded| &recorded.meter);
        if meter.is_none_or(|meter| meter.light().is_none()) {
            return Some("few");
        }
        meter.is_none_or(|meter| meter.busy().is_none()).then_some("many")
    }

    fn judge_latency(
        &self,
        model: &Model,
        datastore: &DatastoreEntry,
        policy: &Policy,
        disk: Option<&Name>,
        neighbours: Neighbours,
    ) -> Verdict {
        let record = &datastore.record;
        let records = self.service.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = records.stores.get(&record.name);
        let most = capacity::most(record).and_then(|most| Iops::new(most).ok());
        let rate = capacity::current(record).map(|capacity| capacity.iops);
        let floor = match Config::for_hosts(record.cost_model).floor {
            Floor::OneIn(n) => NonZeroU32::new(n.into()),
            Floor::Nothing => None,
        };
        let storage = Storage {
            rate: [rate, most].into_iter().flatten().min(),
            window: NonZeroU32::new(record.queue_depth).unwrap_or(NonZeroU32::MIN),
            least_window: NonZeroU32::MIN,
            floor,
            light: recorded.and_then(|recorded| recorded.meter.light()),
            busy: recorded.and_then(|recorded| recorded.meter.busy()).into_iter().collect(),
            longest_stall: Nanos::ZERO,
        };
        let promised = |name: Option<&Name>, policy: &Policy, late: Nanos| PromisedDisk {
            reservation: policy.reservation,
            target: policy.latency_target,
            largest: name.and_then(|name| records.cost(&record.name, name)).unwrap_or(Work::ONE),
            late,
            outstanding: None,
            bursts: None,
        };
        let late = match neighbours {
            Neighbours::Punctual => PUNCTUAL,
            Neighbours::Late => LATE,
        };
        let others =
            model.promised_on(&record.name).filter(|other| Some(&other.record.name) != disk);
        let mut disks: Vec<_> = others
            .map(|other| promised(Some(&other.record.name), &other.record.policy, late))
            .collect();
        disks.push(promised(disk, policy, PUNCTUAL));
        judge(&storage, &disks, disks.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use headgate_api::placement::Created;
    use headgate_api::types::Disk;
    use headgate_stats::{DiskStats, Latency, Op, Outcome, Phase};
    use headgate_units::Bytes;
    use serde_json::json;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// For so many seconds this many requests each end on the array, and take so long.
    fn record(bench: &Bench, seconds: u64, requests: u64, device: Nanos) {
        let (mut stats, mut now) = (DiskStats::new(Nanos::ZERO), Nanos::ZERO);
        for _ in 0..=seconds {
            let mut sample = bench.control.sample().unwrap();
            sample[0].name = "array".parse().unwrap();
            sample[0].stats = stats.snapshot(now);
            bench.control.record_service(&Arc::new(sample));
            now += SECOND;
            for _ in 0..requests {
                stats.on_arrival(now, Op::Read, 0, Bytes(4_096));
                stats.on_dispatch(now, Op::Read, Nanos::ZERO, Phase::Weight, 1_000_000);
                let latency = Latency { device, total: device };
                stats.on_complete(now, Op::Read, Bytes(4_096), latency, Outcome::Done);
            }
        }
    }

    fn create(bench: &Bench, target: &str, force: Force) -> Result<Created<Disk>, ControlError> {
        let policy = json!({"reservation": 50, "latency_target": target});
        let disk = json!({"name": "d", "size": 1 << 20, "datastore": "array", "policy": policy, "force": force});
        bench.control.create_disk(serde_json::from_value(disk).unwrap())
    }

    #[test]
    fn a_target_is_promised_by_what_is_recorded_or_refused_with_a_reason() {
        let bench = Bench::new();
        let warnings = create(&bench, "p99=5ms", Force::No).unwrap().warnings;
        assert!(warnings.iter().any(|w| w.contains("nobody checked")), "{warnings:?}");

        let bench = Bench::new();
        record(&bench, 100, 100, Nanos::from_millis(6));
        let error = create(&bench, "p99=5ms", Force::No).unwrap_err();
        assert!(matches!(error, ControlError::LatencyNotAdmitted { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("p99=5ms cannot be"), "{text}");
        assert!(error.hint().is_some_and(|hint| hint.contains("--force")));
        let warnings = create(&bench, "p99=5ms", Force::Yes).unwrap().warnings;
        assert!(warnings.iter().any(|w| w.contains("tried and judged")), "{warnings:?}");

        // Nothing is known of it with few requests inside.
        let bench = Bench::new();
        record(&bench, 100, 1_000, Nanos::from_millis(32));
        let warnings = create(&bench, "p99=5ms", Force::No).unwrap().warnings;
        assert!(warnings.iter().any(|w| w.contains("not recorded with few")), "{warnings:?}");
    }

    /// 100 requests per second say nothing of how many it could serve.
    #[test]
    fn what_was_recorded_idle_refuses_no_target_that_it_is_quick_enough_for() {
        let bench = Bench::new();
        record(&bench, 100, 100, Nanos::from_millis(6));
        let policy = json!({"reservation": 300, "latency_target": "p99=40ms"});
        let disk = json!({"name": "d", "size": 1 << 20, "datastore": "array", "policy": policy});
        let made = bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
        let told = made.warnings.iter().any(|w| w.contains("not recorded with many"));
        assert!(told, "{:?}", made.warnings);
    }

    #[test]
    fn the_same_target_again_is_no_new_question() {
        let bench = Bench::new();
        record(&bench, 100, 100, Nanos::from_millis(6));
        create(&bench, "p99=5ms", Force::Yes).unwrap();
        let same = serde_json::from_value(json!({"shares": 7})).unwrap();
        let warnings = bench.control.set_disk(&"d".parse().unwrap(), same).unwrap().warnings;
        assert!(!warnings.iter().any(|w| w.contains("p99")), "{warnings:?}");

        let bench = Bench::new();
        record(&bench, 100, 100, Nanos::from_millis(6));
        let warnings = create(&bench, "p99=100ms", Force::No).unwrap().warnings;
        assert!(!warnings.iter().any(|w| w.contains("latency")), "{warnings:?}");
    }
}
