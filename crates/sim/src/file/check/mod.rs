//! From what a file says to what runs: names resolved, ranges and combinations checked.

mod events;
mod names;
mod pool;
mod storage;
mod vms;
mod window;
mod workloads;

use super::read::Fault;
use super::values::At;
use super::{EventFile, ScenarioFile, expect};
use crate::scenario::{Datastore, Event, Record, Scenario, Setup, Variant, Vm, Window};
use events::action;
use headgate_qos::Policy;
use headgate_units::{Bytes, Nanos};
use names::{in_range, plain_name, some_time, unique};
use std::collections::BTreeSet;
use storage::datastore;
use vms::{add_vms, hosts};

/// A run records at most so many points, so that it ends within memory: some 2 GB.
const MOST_POINTS: u64 = 20_000_000;
/// Each takes 25 KB, most of it for histograms: some 1.3 GB.
const MOST_DISKS: usize = 50_000;

/// What is wrong, and in which variant.
type VariantFault = (usize, Fault);

/// All variants together. There is at least one.
pub(super) fn scenario(text: &str, files: &[(String, ScenarioFile)]) -> Result<Scenario, VariantFault> {
    let mut variants = Vec::new();
    for (index, (name, file)) in files.iter().enumerate() {
        let setup = setup(file).map_err(|fault| (index, fault))?;
        variants.push(Variant { name: name.clone(), setup });
    }
    let Some((_, first)) = files.first() else {
        return Err((0, Fault::new(&(0..0), "the file has no variant; write one")));
    };
    let common = |fault| (0, fault);
    plain_name(&first.name, "a scenario").map_err(common)?;
    let seeds = match &first.seeds {
        Some(seeds) if seeds.value.0.is_empty() => {
            return Err((
                0,
                Fault::new(&seeds.span, "there is no seed; write at least one, such as [1, 2, 3]"),
            ));
        }
        Some(seeds) => seeds.value.0.clone(),
        None => vec![1, 2, 3],
    };
    let all_seeds = match &first.full_seeds {
        Some(many) => {
            let all: Vec<u64> =
                (1..=u64::from(in_range(many, "a number of seeds", 10_000).map_err(common)?)).collect();
            if let Some(other) = seeds.iter().find(|seed| !all.contains(seed)) {
                let message = format!("seed {other} is none of all; write more of them, or leave it out");
                return Err((0, Fault::new(&many.span, message)));
            }
            all
        }
        None => seeds.clone(),
    };
    let mut windows = Vec::new();
    for (name, stretch) in &first.windows {
        let shortest = variants.iter().map(|v| v.setup.duration).min().unwrap_or_default();
        if stretch.value.to > shortest {
            let message =
                format!("the window '{name}' ends after the run, which lasts {shortest}; end it earlier");
            return Err((0, Fault::new(&stretch.span, message)));
        }
        windows.push(Window { name: name.clone(), from: stretch.value.from, to: stretch.value.to });
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
        windows,
        expectations: Vec::new(),
    };
    scenario.expectations = expect::expectations(text, &first.expect, &scenario).map_err(common)?;
    Ok(scenario)
}

/// A device that has a capacity of its own has no room beyond it.
fn check_room(file: &ScenarioFile, datastores: &[Datastore], vms: &[Vm]) -> Result<(), Fault> {
    for (index, store) in datastores.iter().enumerate() {
        let Some(capacity) = store.nodes.iter().filter_map(|node| node.device.capacity()).min() else {
            continue;
        };
        if file.pool.is_some() {
            let message = "disks of a pool move, and a flash drive cannot follow yet; remove the pool, or take another device";
            return Err(Fault::new(&file.datastore[index].value.name.span, message));
        }
        let sizes = vms.iter().flat_map(|vm| &vm.disks).filter(|disk| disk.datastore == index);
        let needed = sizes.fold(Bytes(0), |sum, disk| Bytes(sum.0.saturating_add(disk.size.0)));
        if needed > capacity {
            let message = format!(
                "the disks on '{}' are {needed} and it has {capacity}; give disks a smaller size",
                store.name
            );
            return Err(Fault::new(&file.datastore[index].value.name.span, message));
        }
    }
    Ok(())
}

fn setup(file: &ScenarioFile) -> Result<Setup, Fault> {
    let duration = some_time(&file.duration, "the duration")?;
    let interval = match &file.interval {
        Some(interval) => some_time(interval, "the interval")?,
        None => Nanos::from_secs(1),
    };
    let mut names = BTreeSet::new();
    if file.datastore.is_empty() {
        return Err(Fault::new(
            &file.name.span,
            "there is no storage; add a [[datastore]] with a name and a device",
        ));
    }
    let mut datastores = Vec::new();
    for store in &file.datastore {
        plain_name(&store.value.name, "a datastore")?;
        unique(&mut names, &store.value.name.value, &store.value.name.span)?;
        datastores.push(datastore(&store.value)?);
    }
    let hosts = hosts(file, &mut names)?;
    let mut vms = Vec::new();
    let mut timeline = Vec::new();
    for vm in &file.vm {
        add_vms(vm, file, &datastores, &hosts, &mut names, &mut vms, &mut timeline)?;
    }
    if vms.is_empty() {
        return Err(Fault::new(
            &file.name.span,
            "nothing would run; add a [[vm]] with a disk and a workload",
        ));
    }
    check_room(file, &datastores, &vms)?;
    let disks: usize = vms.iter().map(|vm| vm.disks.len()).sum();
    if disks > MOST_DISKS {
        let message = format!("{disks} disks are more than fit into memory; simulate {MOST_DISKS} at most");
        return Err(Fault::new(&file.name.span, message));
    }
    let points = duration.0.div_ceil(interval.0).saturating_mul((disks + vms.len()) as u64);
    if points > MOST_POINTS {
        let span = file.interval.as_ref().map_or(&file.duration.span, |interval| &interval.span);
        let enough = Nanos(duration.0 / (MOST_POINTS / (disks + vms.len()) as u64).max(1));
        let message = format!(
            "a point every {interval} for {disks} disks is more than fits into memory; set interval to {enough} or more"
        );
        return Err(Fault::new(span, message));
    }
    let mut policies: Vec<Vec<Policy>> =
        vms.iter().map(|vm| vm.disks.iter().map(|disk| disk.policy).collect()).collect();
    let mut events: Vec<&At<EventFile>> = file.event.iter().collect();
    events.sort_by_key(|event| event.value.at.value.0);
    for event in events {
        let at = event.value.at.value.0;
        if at >= duration {
            let message = format!("this happens after the end, which is at {duration}; set it earlier");
            return Err(Fault::new(&event.value.at.span, message));
        }
        let action = action(event, &datastores, &vms, &mut policies)?;
        timeline.push(Event { at, action });
    }
    timeline.sort_by_key(|event| event.at);
    let pool = file.pool.as_ref().map(|file| pool::pool(file, &datastores, &vms, duration)).transpose()?;
    vms::check_members(file, pool.as_ref(), &vms)?;
    let tide = file.tide.as_ref().map(|tide| pool::tide(tide, duration)).transpose()?;
    let record = if file.histograms == Some(false) { Record::Sums } else { Record::Histograms };
    let mut setup = Setup {
        duration,
        interval,
        datastores,
        hosts,
        vms,
        timeline,
        pool,
        tide,
        sweeps: Vec::new(),
        record,
    };
    for sweep in &file.sweep {
        let sweep = pool::sweep(sweep, &setup, &mut names)?;
        setup.sweeps.push(sweep);
    }
    Ok(setup)
}
