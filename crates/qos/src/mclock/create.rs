//! Makes a scheduler, and finds its disks.

use super::claims::Claims;
use super::delivered::Delivered;
use super::disk::State;
use super::pace::Pace;
use super::seats::Seats;
use super::served_elsewhere::REMEMBERED;
use super::share_order::ShareOrder;
use super::stream::Tagging;
use super::virtual_time::VirtualTime;
use super::{MClock, plug};
use crate::config::{Config, ConfigError};
use crate::cost::Cost;
use crate::learned_cost::Charging;
use crate::queue::Requests;
use crate::scheduler::{DiskId, UnknownDisk};
use crate::steady::Steady;
use crate::tournament::Tournament;
use alloc::vec::Vec;

impl<R> MClock<R> {
    /// An empty scheduler.
    ///
    /// # Errors
    /// A value of the configuration is out of range.
    pub fn new(config: Config) -> Result<MClock<R>, ConfigError> {
        MClock::tagging(config, Tagging::Honoured)
    }

    /// One for which a disk's requests are all alike.
    pub(crate) fn without_streams(config: Config) -> Result<MClock<R>, ConfigError> {
        MClock::tagging(config, Tagging::Ignored)
    }

    fn tagging(config: Config, tagging: Tagging) -> Result<MClock<R>, ConfigError> {
        config.validate()?;
        Ok(MClock {
            charging: Charging::new(config.cost_model)?,
            plug: plug::Plug::new(config.plug),
            in_flight: 0,
            config,
            time: Steady::new(),
            disks: Vec::new(),
            free: Vec::new(),
            requests: Requests::new(),
            shares: ShareOrder::new(),
            reservations: Tournament::new(),
            blocked: Tournament::new(),
            left_over: Tournament::new(),
            seats: Seats::new(),
            virtual_time: VirtualTime::new(),
            forgiven: 0,
            claims: Claims::default(),
            delivered: Delivered::new(config.debt_horizon.0, config.debt_bound.0),
            late: (0, 0),
            largest: Cost::ONE,
            pace: Pace::new(REMEMBERED, VirtualTime::new().0),
            floor_debt: 0,
            batch: None,
            parts: Vec::new(),
            visited: 0,
            tagging,
            priorities: Vec::new(),
            latency_targets: Vec::new(),
            blocks: Vec::new(),
            vacant_blocks: Vec::new(),
            swept: 0,
        })
    }

    pub(super) fn slot(&self, disk: DiskId) -> Result<usize, UnknownDisk> {
        match self.disks.get(disk.slot as usize) {
            Some(d) if d.generation == disk.generation && d.state != State::Free => {
                Ok(disk.slot as usize)
            }
            _ => Err(UnknownDisk(disk)),
        }
    }
}
