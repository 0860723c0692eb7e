//! From the keys of a file to what runs.

use super::event::EventFile;
use super::expect;
use super::machines::{Builder, check_members};
use super::names::{plain_name, some_time, unique};
use super::schema::ScenarioFile;
use super::vm;
use crate::scenario::{Datastore, Event, Record, Scenario, Setup, Span, Variant, Vm};
use crate::values::{At, Fault};
use headgate_qos::Policy;
use headgate_units::{Bytes, Nanos};
use std::collections::BTreeSet;

/// A run records at most so many points, so that it ends within memory: some 2 GB.
const POINTS_MAX: u64 = 20_000_000;
/// Each disk takes 25 KB, most of it for histograms: some 1.3 GB.
const DISKS_MAX: usize = 50_000;

/// A scenario of the file's variants. What is common to them is read from the first.
pub(super) fn scenario(
    text: &str,
    first: &ScenarioFile,
    variants: Vec<Variant>,
) -> Result<Scenario, Fault> {
    plain_name(&first.name, "a scenario")?;
    let seeds = first.seeds.as_ref().map_or_else(|| vec![1, 2, 3], |seeds| seeds.0.clone());
    let mut all_seeds = seeds.clone();
    if let Some(many) = &first.full_seeds {
        all_seeds = (1..=u64::from(many.0)).collect();
        if let Some(other) = seeds.iter().find(|seed| !all_seeds.contains(seed)) {
            let message =
                format!("seed {other} is none of all; write more of them, or leave it out");
            return Err(many.fault(message));
        }
    }
    let shortest = variants.iter().map(|v| v.setup.duration).min().unwrap_or_default();
    let mut spans = Vec::new();
    for (name, key) in &first.windows {
        let message = format!(
            "the window '{name}' ends after the run, which lasts {shortest}; end it earlier"
        );
        key.check(key.to <= shortest, message)?;
        spans.push(Span { name: name.clone(), from: key.from, to: key.to });
    }
    let mut scenario = Scenario {
        name: first.name.value.clone(),
        title: first.title.trim().to_owned(),
        about: first.about.trim().to_owned(),
        source: first.source.trim().to_owned(),
        seeds,
        all_seeds,
        traces: first.traces.clone(),
        variants,
        spans,
        expectations: Vec::new(),
        sensitivities: Vec::new(),
    };
    scenario.expectations = expect::expectations(text, &first.expect, &scenario)?;
    Ok(scenario)
}

impl ScenarioFile {
    /// Builds the setup of one variant.
    pub(super) fn setup(&self) -> Result<Setup, Fault> {
        let duration = some_time(&self.duration, "the duration")?;
        let interval = match &self.interval {
            Some(interval) => some_time(interval, "the interval")?,
            None => Nanos::from_secs(1),
        };
        let mut names = BTreeSet::new();
        let datastores = self.datastores(&mut names)?;
        let hosts = vm::hosts(&self.host, &mut names)?;
        let builder = Builder { file: self, datastores: &datastores, hosts: &hosts };
        let (vms, mut timeline) = builder.vms(&mut names)?;
        let some = !vms.is_empty();
        self.name.check(some, "nothing would run; add a [[vm]] with a disk and a workload")?;
        self.check_room(&datastores, &vms)?;
        self.check_memory(&vms, duration, interval)?;
        timeline.extend(self.events(&datastores, &vms, duration)?);
        timeline.sort_by_key(|event| event.at);
        let pool = self.pool.as_ref();
        let pool = pool.map(|pool| pool.pool(&datastores, &vms, duration)).transpose()?;
        check_members(self, pool.as_ref(), &vms)?;
        let mut setup = Setup {
            duration,
            interval,
            datastores,
            hosts,
            vms,
            timeline,
            pool,
            tide: self.tide.as_ref().map(|tide| tide.tide(duration)).transpose()?,
            sweeps: Vec::new(),
            record: if self.histograms == Some(false) { Record::Sums } else { Record::Histograms },
        };
        for file in &self.sweep {
            let sweep = file.sweep(&setup, &mut names)?;
            setup.sweeps.push(sweep);
        }
        Ok(setup)
    }

    fn datastores(&self, names: &mut BTreeSet<String>) -> Result<Vec<Datastore>, Fault> {
        let some = !self.datastore.is_empty();
        self.name
            .check(some, "there is no storage; add a [[datastore]] with a name and a device")?;
        let mut datastores = Vec::new();
        for store in &self.datastore {
            plain_name(&store.name, "a datastore")?;
            unique(names, &store.name, &store.name.span)?;
            datastores.push(store.datastore()?);
        }
        Ok(datastores)
    }

    fn events(
        &self,
        datastores: &[Datastore],
        vms: &[Vm],
        duration: Nanos,
    ) -> Result<Vec<Event>, Fault> {
        let mut policies: Vec<Vec<Policy>> =
            vms.iter().map(|vm| vm.disks.iter().map(|disk| disk.policy).collect()).collect();
        let mut files: Vec<&At<EventFile>> = self.event.iter().collect();
        files.sort_by_key(|event| event.at.0);
        let mut events = Vec::new();
        for file in files {
            let at = file.at.0;
            let message =
                format!("this happens after the end, which is at {duration}; set it earlier");
            file.at.check(at < duration, message)?;
            events.push(Event { at, action: file.action(datastores, vms, &mut policies)? });
        }
        Ok(events)
    }

    /// The disks of a device with a capacity of its own must fit there.
    fn check_room(&self, datastores: &[Datastore], vms: &[Vm]) -> Result<(), Fault> {
        for (index, store) in datastores.iter().enumerate() {
            let own = store.nodes.iter().filter_map(|node| node.device.capacity());
            let Some(capacity) = own.min() else { continue };
            let name = &self.datastore[index].name;
            name.check(
                self.pool.is_none(),
                "disks of a pool move, and a flash drive cannot follow yet; remove the pool, or take another device",
            )?;
            let disks = vms.iter().flat_map(|vm| &vm.disks).filter(|disk| disk.datastore == index);
            let needed = disks.fold(Bytes(0), |sum, disk| Bytes(sum.0.saturating_add(disk.size.0)));
            let message = format!(
                "the disks on '{}' are {needed} and it has {capacity}; give disks a smaller size",
                store.name
            );
            name.check(needed <= capacity, message)?;
        }
        Ok(())
    }

    fn check_memory(&self, vms: &[Vm], duration: Nanos, interval: Nanos) -> Result<(), Fault> {
        let disks: usize = vms.iter().map(|vm| vm.disks.len()).sum();
        let message =
            format!("{disks} disks are more than fit into memory; simulate {DISKS_MAX} at most");
        self.name.check(disks <= DISKS_MAX, message)?;
        let series = (disks + vms.len()) as u64;
        let points = duration.0.div_ceil(interval.0).saturating_mul(series);
        let enough = Nanos(duration.0 / (POINTS_MAX / series).max(1));
        let message = format!(
            "a point every {interval} for {disks} disks is more than fits into memory; set interval to {enough} or more"
        );
        self.interval.as_ref().unwrap_or(&self.duration).check(points <= POINTS_MAX, message)
    }
}
