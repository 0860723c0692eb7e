//! A pool with its sums: what stands where, how much each device has to do, and what may go where.
//!
//! All sums are integers, so a move and its reverse leave no trace, and the order of moves does not
//! matter.

use crate::check::{Index, PoolError};
use crate::interference::Demand;
use crate::space::{Volume, taken, volumes};
use crate::{
    DeviceModel, Evidence, Interference, Load, Mobility, Name, NotThere, Outstanding, Permille,
    Pool, State, WorkloadProfile,
};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use headgate_units::{Bytes, Iops, Nanos};

/// How full a datastore may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// For what must be ([`Space::most`](crate::Space::most)).
    Last,
    /// The same if some datastore has room below it.
    Full,
    /// For what is merely better. Beyond it disks would be sent away again for space.
    Relieve,
}

/// A datastore.
pub(crate) struct Store {
    pub(crate) device: usize,
    pub(crate) volume: usize,
    /// IOPS reserved by disks that are on it, or were until their move.
    reserved: u64,
}

/// One device: a datastore, or several that share spindles.
pub(crate) struct Device {
    pub(crate) stores: Vec<usize>,
    pub(crate) model: Option<DeviceModel>,
    /// What it is taken for while it has no model of its own: the slowest of the pool.
    pub(crate) assumed: Option<DeviceModel>,
    /// Picoseconds; of the model, of what is assumed, or one.
    pub(crate) slope: u64,
    /// Σ𝓛.
    pub(crate) load: u64,
    /// The same as predictions need it.
    pub(crate) demand: Demand,
    /// Weight of a request of the model.
    pub(crate) weight: u128,
    /// Units with a load.
    pub(crate) workloads: usize,
    /// Whether it counts for the imbalance: not while all of it is in maintenance.
    pub(crate) counts: bool,
    /// What is on it.
    pub(crate) units: Vec<usize>,
}

impl Device {
    /// N, in (𝓛 · ps).
    fn rough(&self) -> f64 {
        self.load as f64 * self.slope as f64
    }
}

/// How normalised loads of the devices that count are spread.
#[derive(Clone, Copy, Default)]
struct Spread {
    count: f64,
    mean: f64,
    /// Of the differences from the mean.
    squares: f64,
}

/// What moves as one: disks of a family that are on one datastore.
pub(crate) struct Unit {
    pub(crate) disks: Vec<usize>,
    pub(crate) family: usize,
    pub(crate) store: usize,
    pub(crate) load: u64,
    pub(crate) demand: Demand,
    pub(crate) used: u64,
    pub(crate) size: u64,
    reserved: u64,
    pub(crate) class: Option<Name>,
    apart: Vec<usize>,
    pub(crate) pinned: Option<usize>,
    /// Whether all its workloads are known.
    pub(crate) known: bool,
    /// Whether it has been moved here.
    pub(crate) moved: bool,
}

/// What something that is to be on a datastore asks of it.
pub(crate) struct Wants<'a> {
    pub(crate) class: Option<&'a Name>,
    /// Rules that keep it apart.
    pub(crate) apart: &'a [usize],
    /// What it is, if it is there.
    pub(crate) unit: Option<usize>,
    /// The device it is on.
    pub(crate) comes_from: Option<usize>,
    pub(crate) used: u64,
    pub(crate) size: u64,
    /// IOPS.
    pub(crate) reserved: u64,
}

pub(crate) struct PlanState<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) index: Index<'a>,
    pub(crate) stores: Vec<Store>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) devices: Vec<Device>,
    pub(crate) units: Vec<Unit>,
    /// Units of each family that has several.
    pub(crate) divided: BTreeMap<usize, Vec<usize>>,
    /// How many disks of a rule that keeps apart are on a device.
    apart: BTreeMap<(usize, usize), u32>,
    /// Disks that left a datastore lately, and when.
    left: BTreeMap<(usize, usize), Nanos>,
    /// When each disk moved last.
    last: BTreeMap<usize, Nanos>,
    /// What a disk of unknown workload is taken for.
    pub(crate) usual: WorkloadProfile,
    spread: Spread,
    /// N of every device when all is balanced, ΣS/ΣP, in (𝓛 · ps). Moves do not change it.
    pub(crate) level: f64,
}

impl<'a> PlanState<'a> {
    /// O(n log n) in disks and datastores.
    pub(crate) fn of(pool: &'a Pool) -> Result<PlanState<'a>, PoolError> {
        let index = Index::of(pool)?;
        let (volumes, volume_of) = volumes(pool);
        let (stores, devices) = devices(pool, &volume_of);
        let mut state = PlanState {
            pool,
            index,
            stores,
            volumes,
            devices,
            units: Vec::new(),
            divided: BTreeMap::new(),
            apart: BTreeMap::new(),
            left: BTreeMap::new(),
            last: BTreeMap::new(),
            usual: usual(pool),
            spread: Spread::default(),
            level: 0.0,
        };
        state.remember();
        state.make_units();
        let counted = || state.devices.iter().filter(|device| device.counts);
        let load: f64 = counted().map(|device| device.load as f64).sum();
        state.level = load / counted().map(|device| 1.0 / device.slope as f64).sum::<f64>();
        state.spread = state.spread_now();
        Ok(state)
    }

    fn remember(&mut self) {
        for past in &self.pool.history {
            let Some(&disk) = self.index.disks.get(past.disk.as_str()) else { continue };
            let last = self.last.entry(disk).or_default();
            *last = past.at.max(*last);
            if let Some(&store) = self.index.stores.get(past.from.as_str()) {
                let left = self.left.entry((disk, self.stores[store].device)).or_default();
                *left = past.at.max(*left);
            }
        }
    }

    fn make_units(&mut self) {
        let mut found: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let constants = &self.pool.rules.constants;
        for (disk_index, disk) in self.pool.disks.iter().enumerate() {
            let store = self.index.stores[disk.datastore.as_str()];
            let family = self.index.family[disk_index];
            let at = *found.entry((family, store)).or_insert_with(|| {
                self.units.push(Unit {
                    disks: Vec::new(),
                    family,
                    store,
                    load: 0,
                    demand: Demand::default(),
                    used: 0,
                    reserved: 0,
                    size: 0,
                    class: None,
                    apart: Vec::new(),
                    pinned: None,
                    known: true,
                    moved: false,
                });
                self.units.len() - 1
            });
            let unit = &mut self.units[at];
            let profile = disk.workload.unwrap_or(self.usual);
            unit.disks.push(disk_index);
            unit.load = unit.load.saturating_add(constants.load(&profile).0);
            unit.demand = unit.demand.plus(Demand::of(&profile, constants));
            unit.used = unit.used.saturating_add(disk.used.0);
            unit.size = unit.size.saturating_add(disk.size.0.max(disk.used.0));
            unit.reserved = unit.reserved.saturating_add(reserved(disk.reservation));
            unit.class = unit.class.take().or_else(|| disk.class.clone());
            unit.apart.extend_from_slice(&self.index.apart_of[disk_index]);
            if disk.mobility == Mobility::Pinned {
                unit.pinned.get_or_insert(disk_index);
            }
            unit.known &= disk.workload.is_some();
        }
        for unit in 0..self.units.len() {
            self.arrive(unit, self.units[unit].store);
        }
        let mut previous: Option<(usize, usize)> = None;
        for (&(family, _), &unit) in &found {
            if let Some((same, first)) = previous.filter(|&(before, _)| before == family) {
                self.divided.entry(same).or_insert_with(|| vec![first]).push(unit);
            } else {
                previous = Some((family, unit));
            }
        }
    }

    fn arrive(&mut self, unit: usize, store: usize) {
        let at = self.stores[store].device;
        let takes = self.takes(unit, store);
        let (moving, device) = (&self.units[unit], &mut self.devices[at]);
        let volume = &mut self.volumes[self.stores[store].volume];
        volume.occupied = volume.occupied.saturating_add(takes);
        volume.promised = volume.promised.saturating_add(moving.size);
        self.stores[store].reserved = self.stores[store].reserved.saturating_add(moving.reserved);
        device.load = device.load.saturating_add(moving.load);
        device.demand = device.demand.plus(moving.demand);
        if moving.load > 0 {
            device.workloads += 1;
        }
        device.units.push(unit);
        for &rule in &moving.apart {
            *self.apart.entry((rule, at)).or_default() += 1;
        }
        self.units[unit].store = store;
    }

    fn depart(&mut self, unit: usize) {
        let at = self.stores[self.units[unit].store].device;
        let (moving, device) = (&self.units[unit], &mut self.devices[at]);
        device.load = device.load.saturating_sub(moving.load);
        device.demand = device.demand.minus(moving.demand);
        if moving.load > 0 {
            device.workloads -= 1;
        }
        device.units.retain(|&other| other != unit);
        for &rule in &moving.apart {
            if let Some(count) = self.apart.get_mut(&(rule, at)) {
                *count -= 1;
            }
        }
    }

    /// Moves a unit. Space where it was is not free yet.
    pub(crate) fn shift(&mut self, unit: usize, to: usize) {
        let from = self.units[unit].store;
        let takes = self.takes(unit, from);
        let volume = self.volume_mut(from);
        volume.leaving = volume.leaving.saturating_add(takes);
        self.depart(unit);
        self.arrive(unit, to);
        self.spread = self.spread_now();
        self.units[unit].moved = true;
    }

    /// Takes [`PlanState::shift`] back.
    pub(crate) fn unshift(&mut self, unit: usize, from: usize) {
        let (to, size, reserved) = {
            let unit = &self.units[unit];
            (unit.store, unit.size, unit.reserved)
        };
        self.depart(unit);
        // It never left there, as far as space goes.
        let takes = self.takes(unit, from);
        let volume = self.volume_mut(from);
        volume.leaving = volume.leaving.saturating_sub(takes);
        for store in [to, from] {
            let takes = self.takes(unit, store);
            let volume = self.volume_mut(store);
            volume.occupied = volume.occupied.saturating_sub(takes);
            volume.promised = volume.promised.saturating_sub(size);
            self.stores[store].reserved = self.stores[store].reserved.saturating_sub(reserved);
        }
        self.arrive(unit, from);
        self.spread = self.spread_now();
        self.units[unit].moved = false;
    }

    pub(crate) fn device_of(&self, unit: usize) -> usize {
        self.stores[self.units[unit].store].device
    }

    /// Whether a unit may be on a datastore at all: everything but load.
    pub(crate) fn fits(&self, unit: usize, store: usize, mark: Mark) -> Result<(), NotThere> {
        let moving = &self.units[unit];
        let wants = Wants {
            class: moving.class.as_ref(),
            apart: &moving.apart,
            unit: Some(unit),
            comes_from: Some(self.device_of(unit)),
            used: moving.used,
            size: moving.size,
            reserved: moving.reserved,
        };
        self.admits(store, &wants, mark)
    }

    /// The same for what need not be there yet.
    pub(crate) fn admits(&self, store: usize, wants: &Wants, mark: Mark) -> Result<(), NotThere> {
        let (place, spec) = (&self.stores[store], &self.pool.datastores[store]);
        match spec.state {
            State::Active => {}
            State::Closed => return Err(NotThere::Closed),
            State::Maintenance => return Err(NotThere::Maintenance),
        }
        if let Some(class) = wants.class.filter(|&class| spec.class.as_ref() != Some(class)) {
            return Err(NotThere::Class(class.clone()));
        }
        // Who comes from the same device is counted there itself.
        let own = if wants.comes_from == Some(place.device) { 1 } else { 0 };
        let crowded = |rule: &&usize| {
            self.apart.get(&(**rule, place.device)).is_some_and(|&count| count > own)
        };
        if let Some(&rule) = wants.apart.iter().find(crowded) {
            return Err(NotThere::AntiAffinity {
                rule: self.pool.rules.anti_affinity[rule].name.clone(),
                from: self.member_on(rule, place.device, wants.unit),
            });
        }
        let (needs, free) =
            (taken(spec.provisioning, wants.used, wants.size), self.free(store, mark));
        if needs > free {
            return Err(NotThere::Space { needs: Bytes(needs), free: Bytes(free) });
        }
        if let Some(most) = spec.reservable.filter(|_| wants.reserved > 0) {
            let free = most.saturating_sub(place.reserved);
            if wants.reserved > free {
                return Err(NotThere::Reserved { needs: wants.reserved, free });
            }
        }
        let volume = self.volume(store);
        let promised = volume.promised.saturating_add(wants.size);
        if let Some(most) = spec.promisable {
            let disks = Bytes(promised.saturating_sub(volume.foreign));
            if disks > most {
                return Err(NotThere::Promised { promised: disks, most });
            }
        }
        if let Some(most) = self.pool.rules.space.overcommit
            && promised > most.of(volume.capacity)
        {
            let part = u128::from(promised) * 1_000 / u128::from(volume.capacity.max(1));
            let part = Permille(u32::try_from(part).unwrap_or(u32::MAX));
            return Err(NotThere::Overcommitted(part));
        }
        Ok(())
    }

    /// A disk of a rule that is on a device, other than those of a unit.
    pub(crate) fn member_on(&self, rule: usize, device: usize, except: Option<usize>) -> Name {
        let on = |disk: &&usize| {
            self.devices[device]
                .units
                .iter()
                .any(|&unit| Some(unit) != except && self.units[unit].disks.contains(disk))
        };
        let disk = self.index.apart[rule].iter().find(on);
        disk.map_or_else(
            || self.pool.rules.anti_affinity[rule].name.clone(),
            |&disk| self.pool.disks[disk].name.clone(),
        )
    }

    /// A rule by which a unit must not be where it is.
    pub(crate) fn too_close(&self, unit: usize) -> Option<usize> {
        let device = self.device_of(unit);
        let crowded =
            |rule: &usize| self.apart.get(&(*rule, device)).is_some_and(|&count| count > 1);
        self.units[unit].apart.iter().copied().find(crowded)
    }

    /// The datastore of a device on which a unit may be, the emptiest.
    pub(crate) fn way_in(&self, unit: usize, device: usize, mark: Mark) -> Result<usize, NotThere> {
        let mut best: Option<(u64, usize)> = None;
        let mut refused = NotThere::Closed;
        for &store in &self.devices[device].stores {
            match self.fits(unit, store, mark) {
                Ok(()) => {
                    let volume = self.volume(store);
                    let free = volume.capacity.saturating_sub(volume.occupied);
                    if best.is_none_or(|(most, _)| free > most) {
                        best = Some((free, store));
                    }
                }
                Err(why) => refused = why,
            }
        }
        best.map(|(_, store)| store).ok_or(refused)
    }

    /// A device that is not known, and has something to learn by.
    pub(crate) fn is_learning(&self, device: usize) -> bool {
        self.devices[device].model.is_none() && self.devices[device].workloads > 0
    }

    /// How long a unit must still stay because it moved. One that came back to where it was has
    /// been moved in vain, and stays longer.
    pub(crate) fn held(&self, unit: usize) -> Option<Nanos> {
        let moved = self.units[unit].disks.iter().filter_map(|disk| self.last.get(disk)).max()?;
        let left = (*moved + self.pool.rules.calm.hold).since(self.pool.now);
        let left = left.max(self.barred(unit, self.device_of(unit)).unwrap_or_default());
        (left > Nanos::ZERO).then_some(left)
    }

    /// How long a unit must still not go to a device because it was there.
    pub(crate) fn barred(&self, unit: usize, device: usize) -> Option<Nanos> {
        if self.left.is_empty() {
            return None;
        }
        let left = self.units[unit]
            .disks
            .iter()
            .filter_map(|&disk| self.left.get(&(disk, device)))
            .max()?;
        let wait = (*left + self.pool.rules.calm.no_return).since(self.pool.now);
        (wait > Nanos::ZERO).then_some(wait)
    }

    /// N of a device, in (𝓛 · ps): equation 4.
    pub(crate) fn normalised(&self, device: usize) -> u128 {
        u128::from(self.devices[device].load) * u128::from(self.devices[device].slope)
    }

    /// O(D).
    fn spread_now(&self) -> Spread {
        let counted =
            || self.devices.iter().filter(|device| device.counts).map(|device| device.rough());
        let count = counted().count() as f64;
        let mean = counted().sum::<f64>() / count;
        Spread { count, mean, squares: counted().map(|n| (n - mean) * (n - mean)).sum() }
    }

    /// The imbalance (standard deviation over mean, of the population) with other loads on some
    /// devices, each named once, and the mean. O(1) for each.
    pub(crate) fn imbalance_with(&self, changed: &[(usize, u64)]) -> (f64, f64) {
        let Spread { count, mean: now, mut squares } = self.spread;
        let mut shift = 0.0;
        for &(device, load) in changed.iter().filter(|&&(device, _)| self.devices[device].counts) {
            let device = &self.devices[device];
            let (before, after) = (device.rough() - now, load as f64 * device.slope as f64 - now);
            shift += after - before;
            squares += after * after - before * before;
        }
        // About the mean as it was; the mean has shifted.
        let mean = now + shift / count;
        squares = (squares - shift * shift / count).max(0.0);
        let ratio = libm::sqrt(squares / count) / mean;
        // No devices, or nothing to do anywhere, is balanced.
        if ratio.is_finite() { (ratio, mean) } else { (0.0, 0.0) }
    }

    pub(crate) fn imbalance(&self) -> f64 {
        self.imbalance_with(&[]).0
    }

    /// Predicted latency of a device with `more` and without `less` work; `None` where no model
    /// says.
    pub(crate) fn latency_with(&self, device: usize, more: Demand, less: Demand) -> Option<Nanos> {
        let device = &self.devices[device];
        let model = device.model.as_ref().or(device.assumed.as_ref())?;
        let demand = device.demand.plus(more).minus(less);
        Some(demand.latency(self.pool.rules.interference, model, device.weight))
    }

    /// Predicted requests per nanosecond of a device, likewise; its slope may be another than the
    /// model's.
    pub(crate) fn rate_with(
        &self,
        device: usize,
        more: Demand,
        less: Demand,
        slope: impl Fn(&DeviceModel) -> u64,
    ) -> f64 {
        let device = &self.devices[device];
        let Some(model) = device.model.as_ref().or(device.assumed.as_ref()) else { return 0.0 };
        let demand = device.demand.plus(more).minus(less);
        demand.rate(self.pool.rules.interference, model, slope(model), device.weight)
    }

    /// Whether something that comes to a device breaks so much of the streams there that the device
    /// would do less for it.
    pub(crate) fn spoils(&self, device: usize, comes: Demand) -> bool {
        let rate =
            |more| self.rate_with(device, more, Demand::default(), |model| model.slope.as_picos());
        self.pool.rules.interference == Interference::Streams
            && rate(comes)
                < rate(Demand::default()) * (1.0 - self.pool.rules.balance.start.as_f64())
    }

    /// Predicted latency of a device that has a model.
    pub(crate) fn latency(&self, device: usize) -> Option<Nanos> {
        self.devices[device].model?;
        self.latency_with(device, Demand::default(), Demand::default())
    }

    /// What a workload asks for.
    pub(crate) fn demand_of(&self, profile: &WorkloadProfile) -> Demand {
        Demand::of(profile, &self.pool.rules.constants)
    }

    /// Whether any device has a model.
    pub(crate) fn has_models(&self) -> bool {
        self.devices.iter().any(|device| device.model.is_some())
    }

    /// Whether a device is known never to have been busy.
    pub(crate) fn never_busy(&self, device: usize) -> bool {
        self.devices[device].model.is_some_and(|model| model.evidence == Evidence::Flat)
    }
}

/// What disks of the pool usually do: the traits of the median by load, of those that do anything.
fn usual(pool: &Pool) -> WorkloadProfile {
    let load_of = |profile: &WorkloadProfile| pool.rules.constants.load(profile);
    let known = pool.disks.iter().filter_map(|disk| disk.workload);
    let mut known: Vec<(Load, WorkloadProfile)> = known
        .map(|profile| (load_of(&profile), profile))
        .filter(|&(load, _)| load > Load::ZERO)
        .collect();
    known.sort_unstable();
    let nothing_known = WorkloadProfile {
        outstanding: Outstanding::whole(1),
        size: Bytes::from_kib(8),
        read: Permille::WHOLE,
        random: Permille::WHOLE,
    };
    known.get(known.len() / 2).map_or(nothing_known, |&(_, profile)| profile)
}

fn devices(pool: &Pool, volume_of: &[usize]) -> (Vec<Store>, Vec<Device>) {
    let mut shared: BTreeMap<&str, usize> = BTreeMap::new();
    let mut devices: Vec<Device> = Vec::new();
    let mut stores = Vec::with_capacity(pool.datastores.len());
    for (index, store) in pool.datastores.iter().enumerate() {
        let new = devices.len();
        let at =
            store.spindles.as_ref().map_or(new, |name| *shared.entry(name.as_str()).or_insert(new));
        if at == new {
            devices.push(Device {
                stores: Vec::new(),
                model: None,
                assumed: None,
                slope: 1,
                load: 0,
                demand: Demand::default(),
                weight: 1,
                workloads: 0,
                counts: false,
                units: Vec::new(),
            });
        }
        let device = &mut devices[at];
        device.stores.push(index);
        device.counts |= store.state != State::Maintenance;
        // Of several models of one device, the one that more was learnt for.
        let better =
            |model: &DeviceModel| device.model.is_none_or(|known| model.points > known.points);
        device.model = store.model.filter(better).or(device.model);
        stores.push(Store { device: at, volume: volume_of[index], reserved: 0 });
    }
    let slowest = devices.iter().filter_map(|device| device.model).max_by_key(|model| model.slope);
    for device in &mut devices {
        if device.model.is_none() {
            device.assumed = slowest;
        }
        if let Some(model) = device.model.or(slowest) {
            device.slope = model.slope.as_picos();
            device.weight = pool.rules.constants.weight(&model.reference());
        }
    }
    (stores, devices)
}

/// In IOPS.
pub(crate) fn reserved(reservation: Option<Iops>) -> u64 {
    reservation.map_or(0, Iops::get)
}
