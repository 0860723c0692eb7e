use crate::batch::{Batch, WrongBatch};
use crate::cost::{CostMeter, CostModel};
use crate::narrow::Narrow;
use headgate_units::{Bytes, Nanos};
use thiserror::Error;

/// How a scheduler of one datastore behaves; disks have a [`Policy`](crate::Policy) each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How the size of a request becomes IOs. Default: `1 + size / 300 KiB`.
    pub cost_model: CostModel,
    /// Send near requests of one disk back to back. Default: off. Helps storage that seeks; delays
    /// others, their reservations too, by up to [`Batch::requests`] IOs for each disk.
    pub batch: Option<Batch>,
    /// What is kept for disks without a reservation while reservations take all. Default: one IO in
    /// 100.
    pub floor: Floor,
    /// How much service late reservations may claim back on storage that gives what is reserved and
    /// no more, as time, 1 ms to 1 h. What goes beyond is forgiven, to all in proportion, unless
    /// [`Config::debt_horizon`] allows more. On storage that gives less than is reserved the bound
    /// is half of it. Default: 250 ms.
    pub debt_bound: Nanos,
    /// Over how much time at work storage that stands still now and then is to make good for it, up
    /// to 1 min. Reservations may claim back what the storage, while it works, gives beyond them in
    /// such a time: up to twice the horizon. Default: 5 s; 0: never more than
    /// [`Config::debt_bound`].
    pub debt_horizon: Nanos,
    /// How many IOs of service beyond its share, given by its reservation, a disk is remembered
    /// for, 2 to 1,024. Below 4 shares lose accuracy beside reservations; more makes the memory
    /// longer, above all where disks get a few IOs per second. Default: 6.
    pub lead: u16,
    /// How late a disk may ask again after its queue was empty without losing its place in the
    /// order of reservations, up to half of [`Config::debt_bound`]. Evens out clients with few
    /// requests outstanding. Default: 2 ms.
    pub anticipation: Nanos,
    /// How much lateness of dispatch a limit makes good for at once, whenever it arose, up to 100
    /// ms; one request of cost c, or 70 ms if that is shorter, about always is. Covers the
    /// caller's timer. n seconds then hold at most `limit · (n + λ + 3/8·slack·(n - 1))` plus one
    /// request, where λ is the larger of the slack and `min(c/limit, 70 ms)`, and any time W
    /// `limit · (W + 250 ms)` plus one. Default: 1 ms.
    ///
    /// What a disk waits for others, with requests queued, is made good for up to 250 ms, as far as
    /// its last second has room. So the slack is also by how much more than its limit a disk that
    /// is late gets in a second. Beside disks that take nine tenths of the storage in random order
    /// a disk may lose a few per cent of its limit with 20 ms (`docs/campaign.md`), more with less.
    pub limit_slack: Nanos,
    /// How long a request that is next by shares may be held back for a better stream, up to 1 ms,
    /// while others are in flight; how long it is is found out by trying, and where it does not pay
    /// it is not done. Where each application has few requests outstanding the scheduler has little
    /// to choose from without it. Default: 0, never.
    pub plug: Nanos,
    /// Whether the window gives way to reservations of disks with few requests outstanding. The
    /// scheduler does not look at it, its [`Gate`](crate::Gate) does. Default: never, as in the
    /// papers.
    pub narrow: Narrow,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cost_model: CostModel::default(),
            batch: None,
            floor: Floor::default(),
            debt_bound: Nanos::from_millis(250),
            debt_horizon: Nanos::from_secs(5),
            lead: 6,
            anticipation: Nanos::from_millis(2),
            limit_slack: Nanos::from_millis(1),
            plug: Nanos::ZERO,
            narrow: Narrow::Never,
        }
    }
}

impl Config {
    /// The longest [`plug`](Config::plug).
    pub const PLUG_MAX: Nanos = Nanos::from_millis(1);

    /// As hosts run it, in the daemon and in the simulator alike: a thread that shares its CPU with
    /// guests is woken late by milliseconds, and a limit must not lose what was not dispatched in
    /// them. A second holds at most 2 % more than the limit for it, five seconds 1 %, and one IO.
    /// And windows give way to reservations.
    pub fn for_hosts(cost_model: CostModel) -> Config {
        Config {
            cost_model,
            limit_slack: Nanos::from_millis(20),
            narrow: Narrow::ForReservations,
            ..Config::default()
        }
    }
}

/// What of a [`Config`] can be changed while disks are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjustment {
    /// See [`Config::plug`]; what is longer than [`Config::PLUG_MAX`] counts as that.
    pub plug: Nanos,
    /// See [`Config::batch`]; what is out of range is no batch.
    pub batch: Option<Batch>,
}

/// The floor: what disks without a reservation get in a shortage, while the storage delivers less
/// than the sum of all reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Nothing, as published.
    Nothing,
    /// One reference IO by shares after n in a row by reservation, 1 to 10,000. Reservations are
    /// met in full while the storage delivers at least their sum times `1 + 1/n`.
    OneIn(u16),
}

impl Default for Floor {
    /// One IO in 100.
    fn default() -> Floor {
        Floor::OneIn(100)
    }
}

/// A configuration out of range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The reference size of the cost model is too small.
    #[error("the reference size of a cost model must be 512 bytes or more, not {0}")]
    CostReference(Bytes),
    /// The batch.
    #[error(transparent)]
    Batch(#[from] WrongBatch),
    /// The floor is no part.
    #[error("the floor must be one in 1 to 10000 IOs, not one in {0}")]
    Floor(u16),
    /// The bound on debt.
    #[error("the bound on reservation debt must be 1 ms to 1 h, not {0}")]
    DebtBound(Nanos),
    /// The horizon of debt.
    #[error("the horizon of reservation debt must be 0 to 1 min, not {0}")]
    DebtHorizon(Nanos),
    /// The lead.
    #[error("the lead must be 2 to 1024 IOs, not {0}")]
    Lead(u16),
    /// The anticipation.
    #[error("the anticipation must be at most half the bound on reservation debt, not {0}")]
    Anticipation(Nanos),
    /// The limit's slack.
    #[error("the slack of limits must be 0 to 100 ms, not {0}")]
    LimitSlack(Nanos),
    /// The plug.
    #[error("the plug must be 0 to 1 ms, not {0}")]
    Plug(Nanos),
}

impl Config {
    /// Checks every range.
    ///
    /// # Errors
    /// The first value out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        CostMeter::new(self.cost_model)?;
        self.batch.map(Batch::validate).transpose()?;
        if let Floor::OneIn(n) = self.floor
            && !(1..=10_000).contains(&n)
        {
            return Err(ConfigError::Floor(n));
        }
        if self.debt_bound < Nanos::from_millis(1) || self.debt_bound > Nanos::from_secs(3_600) {
            return Err(ConfigError::DebtBound(self.debt_bound));
        }
        if self.debt_horizon > Nanos::from_secs(60) {
            return Err(ConfigError::DebtHorizon(self.debt_horizon));
        }
        if !(2..=1_024).contains(&self.lead) {
            return Err(ConfigError::Lead(self.lead));
        }
        if self.anticipation.0 > self.debt_bound.0 / 2 {
            return Err(ConfigError::Anticipation(self.anticipation));
        }
        if self.limit_slack > Nanos::from_millis(100) {
            return Err(ConfigError::LimitSlack(self.limit_slack));
        }
        if self.plug > Config::PLUG_MAX {
            return Err(ConfigError::Plug(self.plug));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_values_out_of_range_are_named() {
        assert_eq!(Config::default().validate(), Ok(()));
        let wrong = Config { lead: 1, ..Config::default() };
        assert_eq!(
            wrong.validate().unwrap_err().to_string(),
            "the lead must be 2 to 1024 IOs, not 1"
        );
        let batch = Some(Batch { requests: 9, ..Batch::default() });
        let wrong = ConfigError::Batch(WrongBatch::Requests(9));
        assert_eq!(Config { batch, ..Config::default() }.validate(), Err(wrong));
        assert!(Config { floor: Floor::OneIn(0), ..Config::default() }.validate().is_err());
        assert!(Config { debt_bound: Nanos::ZERO, ..Config::default() }.validate().is_err());
        assert!(Config { anticipation: Nanos::MAX, ..Config::default() }.validate().is_err());
        assert!(Config { limit_slack: Nanos::MAX, ..Config::default() }.validate().is_err());
        assert!(Config { plug: Nanos(1_000_001), ..Config::default() }.validate().is_err());
    }
}
