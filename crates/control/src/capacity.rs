//! What a datastore sustains, as far as its settings say so: its device model, its layers and its
//! queue depth.

use headgate_devices::{ModelSpec, Sustained, ceiling};
use headgate_model::{Backend, Capacity, CapacitySource, DatastoreRecord};
use std::num::NonZeroU32;

fn outstanding(record: &DatastoreRecord) -> NonZeroU32 {
    NonZeroU32::new(record.queue_depth).unwrap_or(NonZeroU32::MIN)
}

fn of_model(record: &DatastoreRecord) -> Option<Sustained> {
    let Backend::Emulated { model, .. } = &record.backend else { return None };
    let model: ModelSpec = model.parse().ok()?;
    model.sustained(&record.layers, outstanding(record))
}

/// The capacity of a device model under its layers, if its parameters define it.
pub(super) fn from_model(record: &DatastoreRecord) -> Option<Capacity> {
    of_model(record).map(|s| Capacity { iops: s.rate, source: CapacitySource::Model })
}

/// The capacity in force: one from the model follows the settings, another one stays as it is.
pub(super) fn current(record: &DatastoreRecord) -> Option<Capacity> {
    match &record.capacity {
        Some(Capacity { source: CapacitySource::Model, .. }) => from_model(record),
        known => known.clone(),
    }
}

/// The most that a datastore's layers let through, whatever the storage does, in IOPS; `None`: no
/// bound.
pub(super) fn most(record: &DatastoreRecord) -> Option<u64> {
    ceiling(&record.layers, outstanding(record)).map(|s| s.rate.get())
}

/// Why a datastore promises less than its device or its capacity, where it does.
pub(super) fn reason(record: &DatastoreRecord) -> Option<Sustained> {
    let known = record.capacity.as_ref();
    if known.is_some_and(|capacity| capacity.source == CapacitySource::Model) {
        let plain = |model: &ModelSpec| match model {
            ModelSpec::Rate(spec) => Some(spec.rate),
            _ => None,
        };
        let Backend::Emulated { model, .. } = &record.backend else { return None };
        let device = model.parse().ok().as_ref().and_then(plain);
        return of_model(record).filter(|s| device.is_none_or(|rate| s.rate < rate));
    }
    let most = ceiling(&record.layers, outstanding(record))?;
    known.is_none_or(|capacity| most.rate < capacity.iops).then_some(most)
}

/// What an operator must know whose datastore promises less than its device or its capacity.
pub(super) fn warning(record: &DatastoreRecord) -> Option<String> {
    let (reason, name) = (reason(record)?, &record.name);
    Some(format!("datastore '{name}' can promise no more than {} IOPS: {reason}", reason.rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_model::{Scheduler, WindowRecord};
    use headgate_qos::CostModel;
    use headgate_units::{Iops, Nanos};

    fn record(model: &str, layers: &[&str], capacity: Option<u64>) -> DatastoreRecord {
        let mut record = DatastoreRecord {
            name: "array".parse().unwrap(),
            backend: Backend::Emulated { model: model.into(), path: "x".into() },
            scheduler: Scheduler::Mclock,
            queue_depth: 32,
            capacity: None,
            cost_model: CostModel::Unit,
            plug: Nanos::ZERO,
            batch: None,
            window: WindowRecord::unset(),
            placement: Default::default(),
            layers: layers.iter().map(|text| text.parse().unwrap()).collect(),
        };
        let set = |iops| Capacity { iops: Iops::new(iops).unwrap(), source: CapacitySource::Set };
        record.capacity = capacity.map(set).or_else(|| from_model(&record));
        record
    }

    #[test]
    fn a_model_that_says_its_rate_has_a_capacity() {
        let known = |model: &str, layers: &[&str]| {
            record(model, layers, None).capacity.map(|capacity| capacity.iops.get())
        };
        assert_eq!(known("rate=1600", &[]), Some(1600));
        assert_eq!(known("rate=1600,latency=5ms,depth=4", &[]), Some(800));
        assert_eq!(known("rate=1600,latency=100ms", &[]), Some(320), "32 outstanding");
        assert_eq!(known("rate=2000,stall=1s/5s", &["rate=1000"]), Some(800));
        assert_eq!(known("array=10", &["rate=1000"]), None);
        assert_eq!(known("null", &[]), None);
    }

    #[test]
    fn a_capacity_of_the_model_follows_the_settings_and_another_does_not() {
        let mut modelled = record("rate=2000", &[], None);
        let mut set = record("rate=2000", &[], Some(1500));
        for record in [&mut modelled, &mut set] {
            record.layers = vec!["rate=700".parse().unwrap()];
        }
        assert_eq!(current(&modelled).map(|capacity| capacity.iops.get()), Some(700));
        assert_eq!(current(&set), set.capacity);
        assert_eq!((most(&set), most(&record("rate=2000", &[], None))), (Some(700), None));
    }

    #[test]
    fn only_what_is_less_than_it_seems_has_a_reason() {
        let said = |model, layers: &[&str], capacity| warning(&record(model, layers, capacity));
        assert_eq!(said("rate=2000", &[], None), None);
        assert_eq!(said("rate=2000", &["rate=5000"], None), None);
        assert_eq!(said("array=10", &[], None), None);
        assert_eq!(said("rate=2000", &["rate=5000"], Some(4000)), None);
        assert_eq!(
            said("rate=2000,stall=1s/5s", &[], None).unwrap(),
            "datastore 'array' can promise no more than 1600 IOPS: its device model serves 2000 \
             IOPS, of which stalls leave 1600"
        );
        for (model, capacity) in [("rate=2000", None), ("array=10", None), ("array=10", Some(900))]
        {
            assert_eq!(
                said(model, &["rate=700"], capacity).unwrap(),
                "datastore 'array' can promise no more than 700 IOPS: a layer lets 700 IOPS through"
            );
        }
    }
}
