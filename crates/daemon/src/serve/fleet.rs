//! Whether this host is in the view of all hosts: from the command line, or the configuration.

use super::api_tcp::{ApiTcpArgs, Configured};
use crate::fleet::{Fleet, FleetError, Myself};
use crate::http::{Shown, TcpApiError};
use crate::observe::Observer;
use headgate_cluster::{Identity, Servers};
use headgate_control::Control;
use serde::Deserialize;
use std::sync::Arc;

/// Whether hosts that meet in etcd show each other's disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FleetMode {
    /// Tell other hosts of this one's disks and datastores in etcd, where --etcd names one, and
    /// show theirs
    #[default]
    Auto,
    /// Tell nobody, and show this host alone
    Off,
}

/// The arguments of `headgate serve` for it.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct FleetArgs {
    /// Whether hosts that meet in --etcd tell each other of their disks and datastores, for
    /// 'headgate host list' and 'headgate top --all' [default: auto]
    #[arg(long, value_enum, value_name = "WHETHER")]
    fleet: Option<FleetMode>,
}

impl FleetArgs {
    /// Begins.
    pub(super) fn start(
        self,
        configured: Option<FleetMode>,
        (control, observer): (&Arc<Control>, &Arc<Observer>),
        myself: Myself,
        etcd: Option<&Servers>,
    ) -> Result<Arc<Fleet>, FleetError> {
        let etcd = match self.fleet.or(configured).unwrap_or_default() {
            FleetMode::Auto => etcd,
            FleetMode::Off => None,
        };
        Ok(Arc::new(Fleet::start(control.clone(), observer.clone(), myself, etcd)?))
    }
}

/// What this host says of itself: its API's address where others can reach it.
pub(super) fn myself(
    identity: Identity,
    api: &ApiTcpArgs,
    configured: Configured<'_>,
) -> Result<Myself, TcpApiError> {
    let api = match api.entrance(configured)? {
        // Every address of this host: its name is as good as any.
        Some((at, Shown::Certificate(_))) if at.ip().is_unspecified() => {
            Some(format!("https://{}:{}", identity.name, at.port()))
        }
        Some((at, Shown::Certificate(_))) if !at.ip().is_loopback() => {
            Some(format!("https://{at}"))
        }
        // Tokens are for this host alone.
        Some((_, Shown::Certificate(_) | Shown::Token(_))) | None => None,
    };
    Ok(Myself { identity, api })
}
