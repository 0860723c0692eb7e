//! What a shard owns beside its ports.

use super::datastore::Datastore;
use super::polled::PolledPorts;
use crate::backend::context::Context;
use crate::sole_client::SoleClient;
use crate::tables::crossing::{Far, Landing};
use crate::tables::moving::Moving;
use headgate_polling::Mode;
use slab::Slab;
use std::collections::BTreeMap;

/// Everything of a shard but the ports themselves, so that a port can be called with it.
pub(crate) struct Core {
    /// What backends work with: the requests, and the ways to the kernel.
    pub ctx: Context,
    pub datastores: Slab<Datastore>,
    /// The windows of all datastores together.
    pub windows: u32,
    pub next_generation: u32,
    /// Live moves. One is out while it is driven.
    pub moves: Slab<Option<Box<Moving>>>,
    pub next_move: u64,
    /// Those targets of moves that are on other shards, by the moves' numbers.
    pub fars: BTreeMap<u32, Far>,
    /// Moves of other shards to disks of this one.
    pub landings: Slab<Landing>,
    /// Ports called in this turn.
    pub touched: Vec<u32>,
    /// Ports that wait for room.
    pub starved: Vec<u32>,
    /// Disks that have begun to hold a request in this round.
    pub held: Vec<u32>,
    /// Ports that are closing.
    pub ending: Vec<u32>,
    /// How the shard waits now.
    pub mode: Mode,
    pub sole_client: SoleClient,
    pub polled: PolledPorts,
}
