use crate::check::PoolError;
use crate::interference::Demand;
use crate::plan_state::{Mark, PlanState, Wants, reserved};
use crate::space::taken;
use crate::{Affinity, Name, NewDisk, NotThere, Permille, Pool};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where a new disk should be, and what speaks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Where.
    pub datastore: Name,
    /// By what it was chosen.
    pub basis: Basis,
    /// All datastores that would take it, the best first: the chosen one is the first.
    pub ranking: Vec<Candidate>,
    /// The others, and why not.
    pub refused: Vec<(Name, NotThere)>,
}

/// A datastore that would take a new disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name.
    pub datastore: Name,
    /// Its normalised load with the disk, relative to the mean of all that would take it, likewise.
    pub load: Permille,
    /// Predicted read latency with the disk; `None` without a model.
    pub latency: Option<Nanos>,
}

/// By what a datastore was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// It has the least normalised load with the disk.
    LeastLoad,
    /// On those with less it would break sequential streams
    /// ([`Interference::Streams`](crate::Interference::Streams)).
    SparesStreams,
    /// Nothing is known of it, and it is empty: the disk is to learn by.
    ToLearn,
    /// Nothing is known of it, and there is no better: all take it for as good as the slowest that
    /// is known, or for alike.
    Assumed,
    /// The disk must be with others that are there.
    Together,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Basis::LeastLoad => "it will have the least load for its ability",
            Basis::SparesStreams => "where there is less load it would break sequential streams",
            Basis::ToLearn => "it is empty, and its ability is to be learnt",
            Basis::Assumed => "its ability is not known yet, and none that is known is better",
            Basis::Together => "disks that it must be together with are there",
        })
    }
}

/// Why a new disk cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoPlace {
    /// The pool contradicts itself.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The name is taken.
    #[error("there is a disk '{0}' already; choose another name")]
    Exists(Name),
    /// There are no datastores.
    #[error("there is no datastore; add one first")]
    Empty,
    /// None takes it.
    #[error("no datastore takes the disk: {}", list(.0))]
    Nowhere(Vec<(Name, NotThere)>),
}

fn list(refused: &[(Name, NotThere)]) -> String {
    let each: Vec<String> =
        refused.iter().map(|(name, because)| format!("'{name}': {because}")).collect();
    each.join("; ")
}

/// Finds the place for a new disk: of the datastores that may take it, the one with the least
/// normalised load once it is there (section 4.3 takes the least before; that is the same for a
/// light disk, and worse for a heavy one).
///
/// One whose streams it would break is taken only if there is no other, likewise one that it would
/// fill beyond [`Space::relieve`](crate::Space::relieve), and rather last of all one that it would
/// fill beyond [`Space::full`](crate::Space::full).
///
/// A datastore without a model takes one
/// disk to learn by, as soon as its assumed load is the least; after that it is the last choice.
/// O(n log n) in disks and datastores.
///
/// # Errors
/// [`NoPlace`] says why there is none, datastore by datastore.
pub fn place(pool: &Pool, disk: &NewDisk) -> Result<Placement, NoPlace> {
    let state = PlanState::of(pool)?;
    if state.index.disks.contains_key(disk.name.as_str()) {
        return Err(NoPlace::Exists(disk.name.clone()));
    }
    if state.stores.is_empty() {
        return Err(NoPlace::Empty);
    }
    let profile = disk.workload.unwrap_or(state.usual);
    let load = pool.rules.constants.load(&profile).0;
    let (used, demand) =
        (disk.expected.map_or(disk.size.0, |bytes| bytes.0), state.demand_of(&profile));
    let named = |group: &&crate::Group| group.disks.contains(&disk.name);
    let apart: Vec<usize> = (0..pool.rules.anti_affinity.len())
        .filter(|&rule| named(&&pool.rules.anti_affinity[rule]))
        .collect();
    let with = companion(&state, disk);

    let wants = Wants {
        class: disk.class.as_ref(),
        apart: &apart,
        unit: None,
        comes_from: None,
        used,
        size: disk.size.0,
        reserved: reserved(disk.reservation),
    };
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for (store, spec) in pool.datastores.iter().enumerate() {
        let device = state.stores[store].device;
        let fits = match &with {
            Some((on, with)) if *on != store => Err(NotThere::Affinity {
                with: with.clone(),
                on: pool.datastores[*on].name.clone(),
            }),
            _ => state.admits(store, &wants, Mark::Last),
        };
        match fits {
            Ok(()) => {
                let after = u128::from(state.devices[device].load.saturating_add(load))
                    * u128::from(state.devices[device].slope);
                let last = (
                    state.overfull(store, taken(spec.provisioning, used, disk.size.0)),
                    state.has_models() && state.is_learning(device),
                    state.spoils(device, demand),
                );
                found.push((last, after, state.volume(store).occupied, store));
            }
            Err(because) => refused.push((spec.name.clone(), because)),
        }
    }
    found.sort_unstable();
    let Some(&(_, least, _, chosen)) = found.first() else { return Err(NoPlace::Nowhere(refused)) };
    let mean = found.iter().map(|&(_, after, _, _)| after as f64).sum::<f64>() / found.len() as f64;
    let ranking = found.iter().map(|&(_, after, _, store)| {
        let device = state.stores[store].device;
        Candidate {
            datastore: pool.datastores[store].name.clone(),
            load: Permille::of_ratio(after as f64 / mean),
            latency: state.devices[device]
                .model
                .and_then(|_| state.latency_with(device, demand, Demand::default())),
        }
    });
    let device = &state.devices[state.stores[chosen].device];
    let spares = found.iter().any(|&((_, _, spoils), after, ..)| spoils && after < least);
    Ok(Placement {
        datastore: pool.datastores[chosen].name.clone(),
        basis: match (&with, &device.model) {
            (Some(_), _) => Basis::Together,
            (None, Some(_)) if spares => Basis::SparesStreams,
            (None, Some(_)) => Basis::LeastLoad,
            (None, None) if device.workloads == 0 => Basis::ToLearn,
            (None, None) => Basis::Assumed,
        },
        ranking: ranking.collect(),
        refused,
    })
}

/// Where the family of a new disk is, and what it is called: most of its bytes, should it be
/// divided.
fn companion(state: &PlanState, disk: &NewDisk) -> Option<(usize, Name)> {
    let together =
        state.pool.rules.affinity.iter().filter(|group| group.disks.contains(&disk.name));
    let named = together
        .flat_map(|group| &group.disks)
        .filter_map(|name| state.index.disks.get(name.as_str()).copied());
    let of_vm = state.pool.disks.iter().enumerate().filter(|(_, other)| {
        disk.affinity == Affinity::Vm
            && other.affinity == Affinity::Vm
            && disk.vm.is_some()
            && other.vm == disk.vm
    });
    let families: Vec<usize> =
        named.chain(of_vm.map(|(index, _)| index)).map(|other| state.index.family[other]).collect();
    let parts = (0..state.units.len()).filter(|&unit| families.contains(&state.units[unit].family));
    let main = parts.max_by_key(|&unit| {
        (state.units[unit].pinned.is_some(), state.units[unit].used, Reverse(unit))
    })?;
    Some((state.units[main].store, crate::evacuation::call(state, main)))
}
