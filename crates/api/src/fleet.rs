//! Wire types of the view of all hosts that meet in one etcd.

use super::state::ServiceState;
use headgate_model::Name;
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// Where the view comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ViewSource {
    /// Hosts tell each other in etcd.
    Etcd,
    /// This host alone: it has no etcd, or is to tell nobody of itself.
    Alone,
}

/// A key in etcd that holds no summary of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnreadableKey {
    /// The key.
    pub key: String,
    /// What is wrong with its value.
    pub why: String,
}

/// How good the view is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetView {
    /// Where it comes from.
    pub source: ViewSource,
    /// How long ago etcd was heard, in seconds; `null`: never, or there is none.
    pub age_seconds: Option<f64>,
    /// What is wrong with etcd, or with what is told there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Keys that hold no summary of this version.
    #[serde(default)]
    pub unreadable: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable_keys: Vec<UnreadableKey>,
    /// Parts of summaries that there was no room for.
    #[serde(default)]
    pub left_out: u64,
}

/// What is known of a host's daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// It has told something within three of its periods.
    Running,
    /// It was stopped in good order.
    Stopped,
    /// It was not heard for three of its periods, while others were: it is down, or cannot reach
    /// etcd.
    Silent,
    /// Nobody was heard since: etcd does not answer here.
    Unknown,
}

impl HostState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            HostState::Running => "running",
            HostState::Stopped => "stopped",
            HostState::Silent => "silent",
            HostState::Unknown => "unknown",
        }
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Host {
    /// What it is called here: its name, with the beginning of its identity where another host has
    /// the same name, as `web~3fa9`.
    pub label: String,
    /// Its own name. Not unique.
    pub name: String,
    /// Its identity: the same after a restart.
    pub id: String,
    /// Whether it is the host that answers.
    #[serde(default)]
    pub is_this: bool,
    /// What is known of its daemon.
    pub state: HostState,
    /// When it was heard last, in seconds since 1970, by the clock of the host that answers.
    pub last_seen: u64,
    /// How long ago that was, in seconds.
    pub age_seconds: f64,
    /// How soon it tells something again, in seconds.
    pub period_seconds: f64,
    /// Its version of Headgate.
    pub version: String,
    /// Where its API is, if it serves it over TCP.
    pub api: Option<String>,
    /// How often its daemon was started.
    pub starts: u64,
    /// Datastores that it has.
    pub datastores: u64,
    /// Disks that it has.
    pub disks: u64,
    /// Of those, how many it does not tell of: it has more than are told.
    #[serde(default)]
    pub disks_untold: u64,
    /// Disks that are not in service.
    pub failed: u64,
    /// Disks whose reservation is missed.
    pub missed: u64,
    /// What its disks receive, in normalised IOs per second.
    pub iops: u64,
    /// The same in bytes per second.
    pub bytes_per_sec: u64,
    /// Requests that wait.
    pub queued: u64,
    /// Another living daemon tells things in the name of this host: a clone of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<String>,
}

/// All hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hosts {
    /// How good the view is.
    pub view: FleetView,
    /// The hosts, by label.
    pub hosts: Vec<Host>,
}

/// Whose something is, and how old what is said of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Told {
    /// The host's label.
    pub host: String,
    /// The host's identity.
    pub host_id: String,
    /// What is known of its daemon.
    pub host_state: HostState,
    /// How old it may be what is said here, in seconds.
    pub age_seconds: f64,
}

/// What a disk's requests wait for most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetWaits {
    /// `device`, `limit`, `own`, `neighbours`, `window` or `held`.
    pub cause: String,
    /// The part of their time, 0 to 1.
    pub part: f64,
    /// The disk that they wait for most, if they wait for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// The part of their time that this one disk took, 0 to 1, whatever the cause is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_part: Option<f64>,
}

impl FleetWaits {
    /// In words: `flooder 62 %`, or `limit 71 %, flooder 20 %` where another cause took more than
    /// all neighbours together.
    pub fn words(&self) -> String {
        let said = |who: &str, part: f64| format!("{who} {:.0} %", part * 100.0);
        let behind = self.behind.as_deref().zip(self.behind_part).filter(|(_, part)| *part >= 0.01);
        let behind = behind.map(|(who, part)| said(who, part));
        match (self.cause.as_str(), behind) {
            ("neighbours", Some(behind)) => behind,
            (cause, Some(behind)) => format!("{}, {behind}", said(cause, self.part)),
            (cause, None) => said(cause, self.part),
        }
    }
}

/// A disk of any host. Loads are right to a twentieth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetDisk {
    /// Whose it is.
    #[serde(flatten)]
    pub told: Told,
    /// Its name there.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// The virtual machine it belongs to.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// The datastore that it is on.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// Is it in service.
    pub state: ServiceState,
    /// Its size in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// What is reserved for it, in normalised IOs per second.
    pub reservation: Option<u64>,
    /// Its limit, likewise.
    pub limit: Option<u64>,
    /// Its shares.
    pub shares: u64,
    /// What it receives, in normalised IOs per second.
    pub iops: u64,
    /// The same in bytes per second.
    pub bytes_per_sec: u64,
    /// Its reservation is missed.
    pub reservation_missed: bool,
    /// Requests that wait.
    pub queued: u64,
    /// What 99 % of its requests do not take longer than, waiting and device, in microseconds.
    pub latency_micros: Option<u64>,
    /// What its requests wait for most; `null` when it asked for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<FleetWaits>,
}

/// Disks of all hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetDisks {
    /// How good the view is.
    pub view: FleetView,
    /// How many there are that were asked for.
    pub total: usize,
    /// Those whose reservation is missed, then those that are not in service, then those that
    /// receive the most; as many as were asked for.
    pub disks: Vec<FleetDisk>,
}

/// A datastore as one host sees it. Loads are right to a twentieth, and are those of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DatastoreAtHost {
    /// Whose word it is.
    #[serde(flatten)]
    pub told: Told,
    /// Its name there.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Is it in service there.
    pub state: ServiceState,
    /// What this host's disks receive, in normalised IOs per second.
    pub iops: u64,
    /// The same in bytes per second.
    pub bytes_per_sec: u64,
    /// What 99 % of requests do not take longer than at the device, in microseconds.
    pub latency_micros: Option<u64>,
    /// Requests that may be at the device.
    pub window: f64,
    /// Requests that are.
    pub in_flight: u64,
    /// Requests that wait.
    pub queued: u64,
    /// What it can promise, in normalised IOs per second.
    pub capacity_iops: Option<u64>,
    /// What this host has reserved on it.
    pub reserved_iops: u64,
    /// Disks of this host on it.
    pub disks: u64,
    /// Its size in bytes; `null` where that is not known.
    pub size: Option<u64>,
    /// What is free of it.
    pub free: Option<u64>,
    /// What its storage can do, in reads per second (BASIL's P); `null` where that is not known.
    pub ability: Option<f64>,
}

/// A datastore of any host, or of several that have the same storage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetDatastore {
    /// The storage that it is, the same for all hosts that have it; `null` where no other host can
    /// have it, or there is no telling.
    pub storage: Option<String>,
    /// What it can promise, in normalised IOs per second: the least that a host says.
    pub capacity_iops: Option<u64>,
    /// What all hosts have reserved on it.
    pub reserved_iops: u64,
    /// What all hosts' disks receive, in normalised IOs per second.
    pub iops: u64,
    /// The same in bytes per second.
    pub bytes_per_sec: u64,
    /// Disks of all hosts on it.
    pub disks: u64,
    /// What each host says, by label.
    pub hosts: Vec<DatastoreAtHost>,
}

/// Datastores of all hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetDatastores {
    /// How good the view is.
    pub view: FleetView,
    /// The datastores. What hosts have that are silent or stopped counts in no sum.
    pub datastores: Vec<FleetDatastore>,
}

/// Who can carry advice out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CarriedOut {
    /// The disk's host, by `headgate balance --apply` or `headgate disk migrate`.
    Host,
    /// Nobody by itself: the disk's host does not have the storage that it should go to.
    Nobody,
}

/// A move that is advised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetAdvice {
    /// Whose disk it is, and who advises.
    #[serde(flatten)]
    pub told: Told,
    /// The disk.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// The datastore that it is on.
    pub from: String,
    /// The datastore that it should go to; at another host as `HOST/DATASTORE`.
    pub to: String,
    /// Why.
    pub why: String,
    /// Who can carry it out.
    pub carried_out: CarriedOut,
    /// What keeps it from being carried out, and what would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
}

/// What all hosts advise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetAdvices {
    /// How good the view is.
    pub view: FleetView,
    /// The moves.
    pub moves: Vec<FleetAdvice>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_named_with_its_own_part() {
        let words = |cause: &str, part, behind: Option<(&str, f64)>| {
            let (behind, behind_part) = behind.map(|(who, part)| (who.to_owned(), part)).unzip();
            FleetWaits { cause: cause.into(), part, behind, behind_part }.words()
        };
        assert_eq!(words("neighbours", 0.8, Some(("flooder", 0.62))), "flooder 62 %");
        assert_eq!(words("limit", 0.7, Some(("flooder", 0.2))), "limit 70 %, flooder 20 %");
        assert_eq!(words("limit", 1.0, Some(("flooder", 0.001))), "limit 100 %");
        assert_eq!(words("neighbours", 0.8, None), "neighbours 80 %");
    }
}
