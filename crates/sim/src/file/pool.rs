//! Pools, tides and sweeps.

use super::names::{find, find_all, plain_name, some_time, unique};
use super::text::list;
use crate::scenario::{
    Balancing, Copying, Datastore, Moves, Pool, Setup, Sweep, Tide, Vm, WorkloadKind, disk_name,
};
use crate::values::{
    At, Copies, Fault, MaybeBandwidth, Names, Outstanding, Part, Percent, Piece, Pieces, Portion,
    Size, Stretch, Time, Weight, WholePercent,
};
use headgate_devices::ModelSpec;
use headgate_placement::{Group, Interference, Name, Permille, Rules};
use headgate_qos::{Burst, Policy};
use headgate_units::{Bytes, Nanos, Shares};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ops::Range;

/// Shares of a copy by default, the daemon's.
const COPY_SHARES: u64 = 100;
/// Steps of a copy that are under way by default, the daemon's.
const COPY_STEPS: u32 = 4;
/// What a step copies by default, the daemon's.
const COPY_STEP: Bytes = Bytes::from_mib(1);
/// More rounds of advice than this are a mistake in the file.
const ADVICE_MAX: u64 = 10_000;
/// A sweep of so many combinations takes minutes.
const POINTS_MAX: usize = 20_000;

/// Datastores among which disks are placed and moved, by models that are learnt in the run.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PoolFile {
    /// The datastores; all by default.
    pub(super) datastores: Option<At<Names>>,
    /// The length of an interval of statistics; 2s by default.
    sample: Option<At<Time>>,
    /// When advice is taken: one time is a period, several are instants. Never by default.
    advice: Option<At<Names>>,
    /// The source of the advice; load by default.
    balance: Option<Balancing>,
    /// The model of how disks on one device disturb each other; streams by default.
    interference: Option<InterferenceFile>,
    /// How disks move; instant by default.
    moves: Option<MovesFile>,
    /// moves = 'copy': steps of a copy that are under way at once, 1 to 64; 4 by default.
    copy_outstanding: Option<Pieces>,
    /// moves = 'copy': what a step copies at most, 4K to 8M; 1M by default. Beside clients a copy
    /// with fewer than 1000 shares takes 256K.
    #[serde(alias = "copy-piece")]
    copy_step: Option<Piece>,
    /// moves = 'copy': disks that are copied at once; 1 by default.
    copies: Option<Copies>,
    /// moves = 'copy': the most that a copy gets of a datastore, bytes per second; no limit by
    /// default. The costs of moves are computed from it, or from 50M.
    copy_bandwidth: Option<At<MaybeBandwidth>>,
    /// moves = 'copy': the shares of a copy at a datastore; 100 by default, a tenth of a disk's.
    copy_shares: Option<Weight>,
    /// Disks move for load only while the imbalance is above this; 10% by default.
    start: Option<Portion>,
    /// Moves for load end once the imbalance is no higher than this; 5% by default.
    goal: Option<Portion>,
    /// The part of the ideal improvement that moves between two datastores must reach; 30% by
    /// default.
    gain: Option<Portion>,
    /// The predicted latency below which a datastore is not relieved; 1ms by default.
    latency: Option<Time>,
    /// The time within which a move must pay; 24h by default.
    payback: Option<Time>,
    /// The time for which a moved disk stays; 24h by default.
    hold: Option<Time>,
    /// The time for which a moved disk does not go back; 7d by default.
    no_return: Option<Time>,
    /// Moves that lengthen the latency of requests by more than this are undone in the next round
    /// of advice; until that is known, nothing else moves. Never by default.
    take_back: Option<At<Portion>>,
    /// The number of disks that move within 8h at most; 10 by default.
    most: Option<u32>,
    /// Placements and moves leave no datastore fuller than this; 90% by default.
    full: Option<Portion>,
    /// A fuller datastore is relieved; 80% by default.
    relieve: Option<Portion>,
    /// Affinity: groups of disks that must be on one datastore.
    #[serde(default, alias = "together")]
    affinity: Vec<At<Names>>,
    /// Anti-affinity: groups of disks of which no two may be on one device.
    #[serde(default, alias = "apart")]
    anti_affinity: Vec<At<Names>>,
}

/// How disks on one device are taken to disturb each other.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum InterferenceFile {
    /// Not at all: the paper's models as printed.
    None,
    /// Other requests break sequential streams.
    Streams,
}

/// How disks move.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum MovesFile {
    /// At once.
    Instant,
    /// By copying what is allocated, as the daemon does.
    Copy,
}

/// Hours in which closed loops keep fewer requests outstanding: all together by one factor, and
/// each by up to a fifth of its own, both drawn by the seed.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TideFile {
    /// The least factor: '1%' to '99%'.
    low: WholePercent<1, 99>,
    /// The time between two draws.
    every: At<Time>,
    /// When the tide is in force.
    during: Vec<At<Stretch>>,
}

/// A VM whose workload goes through every combination of these values, each on a device that is as
/// new.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SweepFile {
    /// The name in measures.
    name: At<String>,
    /// The VM: with one disk and one workload, kind = 'closed', alone on its datastore.
    vm: At<String>,
    /// Requests outstanding.
    outstanding: At<Vec<Outstanding>>,
    /// Their sizes.
    size: At<Vec<Size>>,
    /// Reads among them.
    read: At<Vec<Part>>,
    /// Random requests among them.
    random: At<Vec<Part>>,
    /// How long each combination runs before it is measured.
    settle: Time,
    /// How long it is measured.
    measure: At<Time>,
    /// A sweep whose constants are tried on these points, in place of their own.
    constants_of: Option<At<String>>,
    /// With constants-of: K5 relative to that sweep's, '200%' for twice the disks; 100% by default.
    k5: Option<Percent>,
}

impl At<PoolFile> {
    pub(super) fn pool(
        &self,
        datastores: &[Datastore],
        vms: &[Vm],
        duration: Nanos,
    ) -> Result<Pool, Fault> {
        let chosen: Vec<usize> = match &self.datastores {
            Some(names) => {
                find_all(names, "datastore", datastores.iter().map(|store| store.name.as_str()))?
            }
            None => (0..datastores.len()).collect(),
        };
        for &index in &chosen {
            check_datastore(&datastores[index], &datastores[chosen[0]], &self.span)?;
        }
        let sample = match &self.sample {
            Some(sample) => some_time(sample, "an interval")?,
            None => Nanos::from_secs(2),
        };
        let pace = self.copy_pace()?;
        let moves = match self.moves {
            Some(MovesFile::Copy) => Moves::Copy(Copying {
                steps: self.copy_outstanding.map_or(COPY_STEPS, |pieces| pieces.0),
                step: self.copy_step.map_or(COPY_STEP, |piece| piece.0),
                at_once: self.copies.map_or(1, |copies| copies.0),
                pace,
            }),
            Some(MovesFile::Instant) | None => Moves::Instant,
        };
        let balancing = self.balance.unwrap_or(Balancing::Load);
        if let Some(key) = &self.take_back {
            key.check(
                balancing == Balancing::Load,
                "only moves for load are taken back; leave this out, or write balance = 'load'",
            )?;
        }
        let mut rules = self.rules();
        rules.copy.rate = pace.limit_bandwidth().unwrap_or(rules.copy.rate);
        rules.affinity = groups(&self.affinity, "affinity", vms)?;
        rules.anti_affinity = groups(&self.anti_affinity, "anti-affinity", vms)?;
        Ok(Pool {
            datastores: chosen,
            sample,
            advice: self.advice.as_ref().map_or(Ok(Vec::new()), |key| advice(key, duration))?,
            balancing,
            moves,
            rules,
            take_back: self.take_back.as_ref().map(|key| key.0),
        })
    }
}

impl PoolFile {
    fn copy_pace(&self) -> Result<Policy, Fault> {
        let shares = match self.copy_shares {
            Some(shares) => shares.0,
            None => Shares::new(COPY_SHARES).unwrap_or(Shares::MIN),
        };
        let bandwidth = self.copy_bandwidth.as_ref().and_then(|bandwidth| bandwidth.0);
        let span = self.copy_bandwidth.as_ref().map_or(0..0, |key| key.span.clone());
        Policy::new(None, None, bandwidth, shares, Burst::default())
            .map_err(|error| Fault::new(&span, error))
    }

    fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        let part = |key: Option<Portion>, usual: Permille| key.map_or(usual, |key| key.0);
        let time = |key: Option<Time>, usual: Nanos| key.map_or(usual, |key| key.0);
        rules.interference = match self.interference {
            Some(InterferenceFile::None) => Interference::None,
            Some(InterferenceFile::Streams) => Interference::Streams,
            None => rules.interference,
        };
        let balance = &mut rules.balance;
        balance.start = part(self.start, balance.start);
        balance.goal = part(self.goal, balance.goal).min(balance.start);
        balance.gain = part(self.gain, balance.gain).min(Permille::WHOLE);
        balance.latency = time(self.latency, balance.latency);
        rules.copy.payback = time(self.payback, rules.copy.payback);
        rules.calm.hold = time(self.hold, rules.calm.hold);
        rules.calm.no_return = time(self.no_return, rules.calm.no_return);
        rules.calm.most = self.most.or(rules.calm.most);
        rules.space.full = part(self.full, rules.space.full);
        rules.space.relieve = part(self.relieve, rules.space.relieve);
        rules
    }
}

/// Groups of disks, named by a word and their number.
fn groups(files: &[At<Names>], word: &str, vms: &[Vm]) -> Result<Vec<Group>, Fault> {
    let names: Vec<String> =
        vms.iter().flat_map(|vm| vm.disks.iter().map(move |disk| disk_name(vm, disk))).collect();
    let group = |(turn, file): (usize, &At<Names>)| {
        find_all(file, "disk", names.iter().map(String::as_str))?;
        let disks = file.0.iter().map(|name| Name::from(name.as_str())).collect();
        Ok(Group { name: format!("{word}-{}", turn + 1).into(), disks })
    };
    files.iter().enumerate().map(group).collect()
}

/// A disk must be the same on all datastores of a pool, so some things are not possible there.
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
    let message = format!(
        "'{}' cannot be in a pool, because it {why}; leave it out, or change it",
        store.name
    );
    Err(Fault::new(span, message))
}

/// One time is a period, several are instants.
fn advice(key: &At<Names>, duration: Nanos) -> Result<Vec<Nanos>, Fault> {
    let mut times = Vec::new();
    for text in &key.0 {
        let time = Time::parse(text).map_err(|message| key.fault(message))?.0;
        let later = time > Nanos::ZERO;
        key.check(later, "advice is taken after the beginning; write a time above 0")?;
        times.push(time);
    }
    if let [every] = times[..] {
        let many = duration.0.saturating_sub(1) / every.0;
        let message = format!("advice would be taken {many} times; let more time pass between");
        key.check(many <= ADVICE_MAX, message)?;
        return Ok((1..=many).map(|n| Nanos(every.0 * n)).collect());
    }
    let fits = times.is_sorted() && times.last().is_none_or(|&last| last < duration);
    key.check(fits, "times of advice ascend and are before the end; change them")?;
    Ok(times)
}

impl TideFile {
    pub(super) fn tide(&self, duration: Nanos) -> Result<Tide, Fault> {
        for stretch in &self.during {
            let message =
                format!("this ends after the run, which lasts {duration}; end it earlier");
            stretch.check(stretch.to <= duration, message)?;
        }
        Ok(Tide {
            low: self.low.0,
            every: some_time(&self.every, "the time between changes")?,
            during: self.during.iter().map(|stretch| (stretch.from, stretch.to)).collect(),
        })
    }
}

impl SweepFile {
    pub(super) fn sweep(
        &self,
        setup: &Setup,
        names: &mut BTreeSet<String>,
    ) -> Result<Sweep, Fault> {
        plain_name(&self.name, "a sweep")?;
        unique(names, &self.name, &self.name.span)?;
        let vm = find(&self.vm, &self.vm.span, "VM", setup.vms.iter().map(|vm| vm.name.as_str()))?;
        let (device, most) = self.check_vm(setup, vm)?;
        let some = "there is no value; write at least one";
        self.outstanding.check(!self.outstanding.is_empty(), some)?;
        self.size.check(!self.size.is_empty(), some)?;
        self.read.check(!self.read.is_empty(), some)?;
        self.random.check(!self.random.is_empty(), some)?;
        if let Some(size) = self.size.iter().find(|size| !(512..=most).contains(&size.0.0)) {
            let message = format!("requests of {} do not fit; write 512 to {most} bytes", size.0);
            return Err(self.size.fault(message));
        }
        let sweep = Sweep {
            name: self.name.value.clone(),
            vm,
            device,
            outstanding: self.outstanding.iter().map(|number| number.0).collect(),
            sizes: self.size.iter().map(|size| size.0).collect(),
            read: self.read.iter().map(|part| part.0).collect(),
            random: self.random.iter().map(|part| part.0).collect(),
            settle: self.settle.0,
            measure: some_time(&self.measure, "the time to measure")?,
            constants_of: self.constants(&setup.sweeps)?,
        };
        let takes = (sweep.settle.0 + sweep.measure.0).saturating_mul(sweep.points() as u64);
        self.name.check(
            sweep.points() <= POINTS_MAX && takes < setup.duration.0,
            format!(
                "{} combinations take {} and the time in which requests end; make the run longer or the sweep smaller",
                sweep.points(),
                Nanos(takes)
            ),
        )?;
        Ok(sweep)
    }

    /// The device that is swept, and the largest request that fits.
    fn check_vm(&self, setup: &Setup, vm: usize) -> Result<(ModelSpec, u64), Fault> {
        let swept = &setup.vms[vm];
        let ([disk], [workload]) = (&swept.disks[..], &swept.workloads[..]) else {
            return Err(self.vm.fault(WRONG_VM));
        };
        let closed = matches!(workload.kind, WorkloadKind::Closed { .. });
        self.vm.check(closed, WRONG_VM)?;
        let store = &setup.datastores[disk.datastore];
        let disks = setup.vms.iter().flat_map(|vm| &vm.disks);
        let alone = disks.filter(|other| other.datastore == disk.datastore).count() == 1;
        self.vm.check(
            alone && store.nodes.len() == 1,
            "the VM of a sweep is alone on its datastore, which has one device; give it one of its own",
        )?;
        let device = store.nodes[0].device.clone();
        let null = matches!(device, ModelSpec::Null);
        self.vm.check(!null, "on a device 'null' no time passes; take another device")?;
        Ok((device, workload.pattern.extent.1.min(64 << 20)))
    }

    /// Another sweep, and the percentage of its K5.
    fn constants(&self, before: &[Sweep]) -> Result<Option<(String, u32)>, Fault> {
        let Some(of) = &self.constants_of else { return Ok(None) };
        let before: Vec<&str> = before.iter().map(|sweep| sweep.name.as_str()).collect();
        of.check(
            before.contains(&of.as_str()),
            format!("there is no sweep '{}' before this one; there is {}", of.value, list(&before)),
        )?;
        let percent = self.k5.map_or(100.0, |k5| k5.0);
        Ok(Some((of.value.clone(), (percent.round() as u32).max(1))))
    }
}

const WRONG_VM: &str = "a sweep goes through the workloads of a VM with one disk and one workload, kind = 'closed'; make it so";
