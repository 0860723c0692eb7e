//! Pools, tides and sweeps.

use super::super::pool::{BalanceFile, InterferenceFile, MovesFile, PoolFile, SweepFile, TideFile};
use super::super::read::{Fault, list};
use super::super::values::{At, Names, Percent, Time};
use super::names::{find, in_range, plain_name, some_time, unique, whole_percent};
use super::storage::MOST_DEPTH;
use crate::scenario::{
    Balancing, Copying, Datastore, Moves, Pool, Setup, Sweep, Tide, Vm, WorkloadKind, disk_name,
};
use headgate_devices::ModelSpec;
use headgate_placement::{Group, Interference, Name, Permille, Rules};
use headgate_qos::{Burst, Policy};
use headgate_units::{Bytes, BytesPerSec, Nanos, Shares};
use std::collections::BTreeSet;
use std::ops::Range;

/// What a copy gets unless the file says otherwise, as the advice has it.
const COPY_RATE: u64 = 50 << 20;
const COPY_SHARES: u64 = 1_000;
/// More advice than this is a mistake of the file.
const MOST_ADVICE: u64 = 10_000;

pub(super) fn pool(
    file: &At<PoolFile>,
    datastores: &[Datastore],
    vms: &[Vm],
    duration: Nanos,
) -> Result<Pool, Fault> {
    let p = &file.value;
    let known = datastores.iter().map(|store| store.name.as_str());
    let chosen: Vec<usize> = match &p.datastores {
        Some(names) => names
            .value
            .0
            .iter()
            .map(|name| find(name, &names.span, "datastore", known.clone()))
            .collect::<Result<_, _>>()?,
        None => (0..datastores.len()).collect(),
    };
    for store in chosen.iter().map(|&index| &datastores[index]) {
        check_datastore(store, &datastores[chosen[0]], &file.span)?;
    }
    let sample = p.sample.as_ref().map_or(Ok(Nanos::from_secs(2)), |s| some_time(s, "an interval"))?;
    let advice = match &p.advice {
        Some(times) => advice(times, duration)?,
        None => Vec::new(),
    };
    let policy = copy_policy(p)?;
    let moves = match p.moves {
        Some(MovesFile::Copy) => Moves::Copy(copying(p, policy)?),
        Some(MovesFile::Instant) | None => Moves::Instant,
    };
    let balancing = match p.balance {
        Some(BalanceFile::Off) => Balancing::Off,
        Some(BalanceFile::Count) => Balancing::Count,
        Some(BalanceFile::Space) => Balancing::Space,
        Some(BalanceFile::Load) | None => Balancing::Load,
    };
    let mut rules = rules(p)?;
    rules.copy.rate = policy.limit_bandwidth().unwrap_or(BytesPerSec::MAX);
    let names: Vec<String> =
        vms.iter().flat_map(|vm| vm.disks.iter().map(move |disk| disk_name(vm, disk))).collect();
    let group = |(turn, group): (usize, &At<Names>), word: &str| -> Result<Group, Fault> {
        for name in &group.value.0 {
            find(name, &group.span, "disk", names.iter().map(String::as_str))?;
        }
        let disks = group.value.0.iter().map(|name| Name::from(name.as_str())).collect();
        Ok(Group { name: format!("{word}-{}", turn + 1).into(), disks })
    };
    rules.together =
        p.together.iter().enumerate().map(|each| group(each, "together")).collect::<Result<_, _>>()?;
    rules.apart = p.apart.iter().enumerate().map(|each| group(each, "apart")).collect::<Result<_, _>>()?;
    let take_back = match &p.take_back {
        Some(key) if balancing != Balancing::Load => {
            return Err(Fault::new(
                &key.span,
                "only moves for load are taken back; leave this out, or write balance = 'load'",
            ));
        }
        key => key.as_ref().map(part).transpose()?,
    };
    Ok(Pool { datastores: chosen, sample, advice, balancing, moves, rules, take_back })
}

/// What a datastore of a pool may not have: a disk must be the same wherever it is.
fn check_datastore(store: &Datastore, first: &Datastore, span: &Range<usize>) -> Result<(), Fault> {
    let why = if store.nodes.len() > 1 || store.nodes.iter().any(|node| node.front.is_some()) {
        "has nodes of its own"
    } else if store.issue_window.is_some() {
        "has an issue-window"
    } else if !store.rate_by_vms.is_empty() {
        "has rates by the number of VMs"
    } else if store.network != first.network {
        "has another network than the first"
    } else {
        return Ok(());
    };
    let message =
        format!("'{}' cannot be in a pool, because it {why}; leave it out, or change it", store.name);
    Err(Fault::new(span, message))
}

/// One time is how often, several are when.
fn advice(times: &At<Names>, duration: Nanos) -> Result<Vec<Nanos>, Fault> {
    let parsed: Vec<Nanos> = times
        .value
        .0
        .iter()
        .map(|text| match Time::parse(text) {
            Ok(Time(Nanos::ZERO)) => {
                Err("advice is taken after the beginning; write a time above 0".to_owned())
            }
            other => other.map(|time| time.0),
        })
        .collect::<Result<_, _>>()
        .map_err(|message| Fault::new(&times.span, message))?;
    if let [every] = parsed[..] {
        let many = duration.0.saturating_sub(1) / every.0;
        if many > MOST_ADVICE {
            let message = format!("advice would be taken {many} times; let more time pass between");
            return Err(Fault::new(&times.span, message));
        }
        return Ok((1..=many).map(|n| Nanos(every.0 * n)).collect());
    }
    if !parsed.is_sorted() || parsed.last().is_some_and(|&last| last >= duration) {
        return Err(Fault::new(&times.span, "times of advice ascend and are before the end; change them"));
    }
    Ok(parsed)
}

fn copy_policy(p: &PoolFile) -> Result<Policy, Fault> {
    let shares = match &p.copy_shares {
        Some(shares) => shares.value.0,
        None => Shares::new(COPY_SHARES).unwrap_or(Shares::MIN),
    };
    let bandwidth = match &p.copy_bandwidth {
        Some(bandwidth) => bandwidth.value.0,
        None => BytesPerSec::new(COPY_RATE).ok(),
    };
    let span = p.copy_bandwidth.as_ref().map_or(0..0, |key| key.span.clone());
    Policy::new(None, None, bandwidth, shares, Burst::default()).map_err(|error| Fault::new(&span, error))
}

fn copying(p: &PoolFile, policy: Policy) -> Result<Copying, Fault> {
    let outstanding =
        p.copy_outstanding.as_ref().map_or(Ok(2), |n| in_range(n, "the number of pieces", 64))?;
    let piece = match &p.copy_piece {
        Some(size) if !(4_096..=8 << 20).contains(&size.value.0.0) => {
            return Err(Fault::new(&size.span, "a piece is 4K to 8M; write such a size"));
        }
        Some(size) => size.value.0,
        None => Bytes::from_kib(256),
    };
    let at_once = p.copies.as_ref().map_or(Ok(1), |n| in_range(n, "the number of copies", 1_000))?;
    Ok(Copying { outstanding, piece, at_once, policy })
}

fn part(key: &At<Percent>) -> Result<Permille, Fault> {
    if key.value.0 > 1_000.0 {
        return Err(Fault::new(&key.span, "a part is 1000% at most; write such a percentage"));
    }
    Ok(Permille((key.value.0 * 10.0).round() as u32))
}

fn rules(p: &PoolFile) -> Result<Rules, Fault> {
    let mut rules = Rules::default();
    let part = |key: &Option<At<Percent>>, usual: Permille| key.as_ref().map_or(Ok(usual), part);
    let time = |key: &Option<At<Time>>, usual: Nanos| key.as_ref().map_or(usual, |key| key.value.0);
    rules.interference = match p.interference {
        Some(InterferenceFile::None) => Interference::None,
        Some(InterferenceFile::Streams) => Interference::Streams,
        None => rules.interference,
    };
    let balance = &mut rules.balance;
    balance.start = part(&p.start, balance.start)?;
    balance.goal = part(&p.goal, balance.goal)?.min(balance.start);
    balance.gain = part(&p.gain, balance.gain)?.min(Permille::WHOLE);
    balance.latency = time(&p.latency, balance.latency);
    rules.copy.payback = time(&p.payback, rules.copy.payback);
    rules.calm.hold = time(&p.hold, rules.calm.hold);
    rules.calm.no_return = time(&p.no_return, rules.calm.no_return);
    rules.calm.most = p.most.as_ref().map_or(rules.calm.most, |most| Some(most.value));
    rules.space.full = part(&p.full, rules.space.full)?;
    rules.space.relieve = part(&p.relieve, rules.space.relieve)?;
    Ok(rules)
}

pub(super) fn tide(file: &At<TideFile>, duration: Nanos) -> Result<Tide, Fault> {
    let t = &file.value;
    if let Some(late) = t.during.iter().find(|stretch| stretch.value.to > duration) {
        return Err(Fault::new(
            &late.span,
            format!("this ends after the run, which lasts {duration}; end it earlier"),
        ));
    }
    Ok(Tide {
        low: whole_percent(&t.low, 1, 99)?,
        every: some_time(&t.every, "the time between changes")?,
        during: t.during.iter().map(|stretch| (stretch.value.from, stretch.value.to)).collect(),
    })
}

/// A sweep of so many combinations takes minutes.
const MOST_POINTS: usize = 20_000;

pub(super) fn sweep(
    file: &At<SweepFile>,
    setup: &Setup,
    names: &mut BTreeSet<String>,
) -> Result<Sweep, Fault> {
    let s = &file.value;
    plain_name(&s.name, "a sweep")?;
    unique(names, &s.name.value, &s.name.span)?;
    let vm = find(&s.vm.value, &s.vm.span, "VM", setup.vms.iter().map(|vm| vm.name.as_str()))?;
    let swept = &setup.vms[vm];
    let (disk, workload) = match (&swept.disks[..], &swept.workloads[..]) {
        ([disk], [workload]) if matches!(workload.kind, WorkloadKind::Closed { .. }) => (disk, workload),
        _ => {
            let message = "a sweep goes through the workloads of a VM with one disk and one workload, kind = 'closed'; make it so";
            return Err(Fault::new(&s.vm.span, message));
        }
    };
    let alone = |other: &Vm| other.disks.iter().filter(|d| d.datastore == disk.datastore).count();
    if setup.vms.iter().map(alone).sum::<usize>() > 1 || setup.datastores[disk.datastore].nodes.len() > 1 {
        let message =
            "the VM of a sweep is alone on its datastore, which has one device; give it one of its own";
        return Err(Fault::new(&s.vm.span, message));
    }
    if matches!(setup.datastores[disk.datastore].nodes[0].device, ModelSpec::Null) {
        return Err(Fault::new(&s.vm.span, "on a device 'null' no time passes; take another device"));
    }
    let some = |empty: bool, span: &Range<usize>| match empty {
        true => Err(Fault::new(span, "there is no value; write at least one")),
        false => Ok(()),
    };
    some(s.outstanding.value.is_empty(), &s.outstanding.span)?;
    some(s.size.value.is_empty(), &s.size.span)?;
    some(s.read.value.is_empty(), &s.read.span)?;
    some(s.random.value.is_empty(), &s.random.span)?;
    for &outstanding in &s.outstanding.value {
        let at = At { value: outstanding, span: s.outstanding.span.clone() };
        in_range(&at, "the number outstanding", MOST_DEPTH)?;
    }
    let most = workload.pattern.extent.1.min(64 << 20);
    if let Some(size) = s.size.value.iter().find(|size| !(512..=most).contains(&size.0.0)) {
        let message = format!("requests of {} do not fit; write 512 to {most} bytes", size.0);
        return Err(Fault::new(&s.size.span, message));
    }
    let percents = |key: &At<Vec<Percent>>| -> Result<Vec<u8>, Fault> {
        key.value.iter().map(|&value| whole_percent(&At { value, span: key.span.clone() }, 0, 100)).collect()
    };
    let constants_of = match (&s.constants_of, &s.k5) {
        (Some(of), k5) => {
            let before: Vec<&str> = setup.sweeps.iter().map(|sweep| sweep.name.as_str()).collect();
            if !before.contains(&of.value.as_str()) {
                let message =
                    format!("there is no sweep '{}' before this one; there is {}", of.value, list(&before));
                return Err(Fault::new(&of.span, message));
            }
            let percent = k5.as_ref().map_or(100.0, |k5| k5.value.0);
            Some((of.value.clone(), (percent.round() as u32).max(1)))
        }
        (None, Some(k5)) => {
            return Err(Fault::new(&k5.span, "'k5' means nothing without 'constants-of'; add it"));
        }
        (None, None) => None,
    };
    let sweep = Sweep {
        name: s.name.value.clone(),
        vm,
        device: setup.datastores[disk.datastore].nodes[0].device.clone(),
        outstanding: s.outstanding.value.clone(),
        sizes: s.size.value.iter().map(|size| size.0).collect(),
        read: percents(&s.read)?,
        random: percents(&s.random)?,
        settle: s.settle.value.0,
        measure: some_time(&s.measure, "the time to measure")?,
        constants_of,
    };
    let takes = (sweep.settle.0 + sweep.measure.0).saturating_mul(sweep.points() as u64);
    if sweep.points() > MOST_POINTS || takes >= setup.duration.0 {
        let message = format!(
            "{} combinations take {} and the time in which requests end; make the run longer or the sweep smaller",
            sweep.points(),
            Nanos(takes)
        );
        return Err(Fault::new(&s.name.span, message));
    }
    Ok(sweep)
}
