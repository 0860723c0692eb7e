use super::LogFormat;
use super::confinement::LandlockMode;
use super::events::EventsSize;
use super::fleet::FleetMode;
use super::keep::KeepRemoved;
use super::shards::ShardGroups;
use headgate_cluster::Endpoint;
use headgate_engine::{Mode, Waiting};
use headgate_frontends::vhost::GuestMemorySource;
use headgate_history::{PERIOD_MAX, PERIOD_MIN};
use headgate_units::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU32};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The configuration file. Everything has a default; an unknown key is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Config {
    /// Group whose members may do everything over the API; default the daemon's own.
    pub api_group: Option<String>,
    /// Group whose members may read over the API; default none.
    pub api_read_group: Option<String>,
    /// Group whose members may use the API for the disks of their machines; default none.
    pub api_tenant_group: Option<String>,
    /// Group whose members may connect to the sockets of disks; default the daemon's own.
    pub socket_group: Option<String>,
    /// Directories that datastores may be in, besides the state directory; default, when there is
    /// no `allow-block` either, all that the daemon can open.
    #[serde(default)]
    pub allow_dir: Vec<PathBuf>,
    /// Block devices that may be datastores, or directories of such devices; default as above.
    #[serde(default)]
    pub allow_block: Vec<PathBuf>,
    /// Whether the kernel confines the daemon to these and to what it needs; default `auto`.
    pub landlock: Option<LandlockMode>,
    /// Serve NBD over TCP on this address; not at all by default.
    pub nbd_listen: Option<SocketAddr>,
    /// Directory of certificates: serve NBD there over TLS only, with its rules, and reach servers
    /// at `nbds://`; none by default.
    pub nbd_tls: Option<PathBuf>,
    /// The most NBD connections in all; default 4096.
    pub nbd_connections: Option<NonZeroU32>,
    /// The most NBD connections to the disks of one machine; default 256.
    pub nbd_connections_per_vm: Option<NonZeroU32>,
    /// The most NBD connections to one disk; default 64.
    pub nbd_connections_per_disk: Option<NonZeroU32>,
    /// The most memory that NBD clients hold in buffers, besides 64 KiB each, such as `512M`;
    /// default a sixteenth of the machine's, 256M to 4G.
    #[serde(default, deserialize_with = "size")]
    pub nbd_memory: Option<Bytes>,
    /// Serve metrics and health over TCP on this address, to read only; not at all by default.
    pub metrics_listen: Option<SocketAddr>,
    /// Serve the API over TCP on this address; not at all by default.
    pub api_listen: Option<SocketAddr>,
    /// Directory of certificates and roles for it; none by default.
    pub api_tls: Option<PathBuf>,
    /// File of tokens for it, on a loopback address; none by default.
    pub api_tokens: Option<PathBuf>,
    /// How much space the log of events may take, such as `64M`, at least `1M`; default 64M.
    pub events_size: Option<EventsSize>,
    /// How much of a datastore's capacity may be reserved, in per cent, 1 to 100; default 100.
    #[serde(default, deserialize_with = "percent")]
    pub reservable_percent: Option<NonZeroU8>,
    /// How long disks may take to finish their requests at the end, in seconds; default 10.
    pub drain_seconds: Option<u16>,
    /// How long the content of removed disks is kept, such as `12h` or `7d`; `0` keeps nothing;
    /// default `1d`.
    pub keep_removed_for: Option<KeepRemoved>,
    /// Threads for IO, 1 to 255; default one for two CPUs, at most 8.
    pub shards: Option<NonZeroU8>,
    /// Groups of datastores that have one such thread more to themselves, by name; default none.
    #[serde(default)]
    pub shard_groups: ShardGroups,
    /// Keep each such thread on one CPU; default no.
    pub pin_shards: Option<bool>,
    /// How such a thread waits for work; default `adaptive`.
    pub waiting: Option<WaitingRule>,
    /// How long an interval is that placement learns from, in seconds, 2 to 10; default 5.
    #[serde(default, deserialize_with = "sample_seconds")]
    pub sample_seconds: Option<u8>,
    /// Which files front-ends may bring as guest memory; default memory files.
    pub guest_memory: Option<GuestMemory>,
    /// `text` or `json`; default `text`.
    pub log_format: Option<LogFormat>,
    /// The etcd servers through which hosts know of each other, separated by commas; default none.
    #[serde(default, deserialize_with = "endpoints")]
    pub etcd: Vec<Endpoint>,
    /// Directory of certificates: reach those over TLS only; none by default.
    pub etcd_tls: Option<PathBuf>,
    /// File with `USER:PASSWORD` for them in its first line; none by default.
    pub etcd_credentials: Option<PathBuf>,
    /// Whether hosts that meet there show each other's disks, `auto` or `off`; default `auto`.
    pub fleet: Option<FleetMode>,
}

/// Which files front-ends may bring as guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum GuestMemory {
    /// memfd, tmpfs and hugetlbfs
    MemoryFiles,
    /// Any file: whoever serves its pages can stop disks
    Any,
}

impl From<GuestMemory> for GuestMemorySource {
    fn from(guest_memory: GuestMemory) -> GuestMemorySource {
        match guest_memory {
            GuestMemory::MemoryFiles => GuestMemorySource::MemoryFiles,
            GuestMemory::Any => GuestMemorySource::Any,
        }
    }
}

/// How shards wait for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum WaitingRule {
    /// Polling or asleep, as each shard measures what brings more
    Adaptive,
    /// Always asleep
    Plain,
    /// Never asleep: each shard takes a whole processor
    Poll,
    /// As `poll-events` in the metrics, always: to measure it alone.
    #[value(hide = true)]
    PollEvents,
    /// The same of `poll-client`.
    #[value(hide = true)]
    PollClient,
    /// The same of `hold-answers`.
    #[value(hide = true)]
    HoldAnswers,
}

impl From<WaitingRule> for Waiting {
    fn from(rule: WaitingRule) -> Waiting {
        match rule {
            WaitingRule::Adaptive => Waiting::Adaptive,
            WaitingRule::Plain => Waiting::Plain,
            WaitingRule::Poll => Waiting::Poll,
            WaitingRule::PollEvents => Waiting::Only(Mode::PollEvents),
            WaitingRule::PollClient => Waiting::Only(Mode::PollClient),
            WaitingRule::HoldAnswers => Waiting::Only(Mode::HoldAnswers),
        }
    }
}

/// Why the configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file says what cannot be.
    #[error("the configuration {} is wrong: {source}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line.
        source: Box<toml::de::Error>,
    },
}

fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroU8>, D::Error> {
    let percent = NonZeroU8::deserialize(deserializer)?;
    if percent.get() > 100 {
        return Err(D::Error::custom(format!(
            "reservable-percent must be 1 to 100, not {percent}"
        )));
    }
    Ok(Some(percent))
}

fn sample_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    let seconds = u8::deserialize(deserializer)?;
    if !(PERIOD_MIN..=PERIOD_MAX).contains(&seconds) {
        return Err(D::Error::custom(format!(
            "sample-seconds must be {PERIOD_MIN} to {PERIOD_MAX}, not {seconds}"
        )));
    }
    Ok(Some(seconds))
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
    let size = String::deserialize(deserializer)?;
    size.parse().map(Some).map_err(|e| D::Error::custom(format!("nbd-memory: {e}")))
}

fn endpoints<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Endpoint>, D::Error> {
    let list = String::deserialize(deserializer)?;
    list.split(',')
        .map(|one| one.trim().parse().map_err(|e| D::Error::custom(format!("etcd: {e}"))))
        .collect()
}

impl Config {
    /// Reads a file; without one the defaults hold.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(path: Option<&Path>) -> Result<Config, ConfigError> {
        let Some(path) = path else { return Ok(Config::default()) };
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|source| ConfigError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Config::read(Some(file.path()))
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_its_line() {
        let error = read("shards = 2\nreservable-procent = 90\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("reservable-procent"), "{error}");
        assert!(error.contains("reservable-percent"), "{error}");
    }

    #[test]
    fn values_out_of_range_are_errors() {
        for bad in [
            "reservable-percent = 101",
            "reservable-percent = 0",
            "shards = 0",
            "sample-seconds = 1",
            "sample-seconds = 11",
            "nbd-listen = \"x\"",
            "nbd-connections = 0",
            "nbd-memory = \"much\"",
            "events-size = \"1K\"",
            "keep-removed-for = \"1 week\"",
            "metrics-listen = \"9108\"",
            "etcd = \"x\"",
            "guest-memory = \"all\"",
            "landlock = \"yes\"",
        ] {
            read(bad).unwrap_err();
        }
    }

    #[test]
    fn everything_has_a_default() {
        assert_eq!(read("").unwrap(), Config::default());
        let full = read(
            "metrics-listen = \"127.0.0.1:9108\"\n\
             nbd-listen = \"127.0.0.1:10809\"\nreservable-percent = 90\ndrain-seconds = 5\nshards = 2\n\
             pin-shards = true\nguest-memory = \"any\"\nlog-format = \"json\"\n\
             api-group = \"root\"\nsocket-group = \"kvm\"\nallow-dir = [\"/srv\"]\n\
             etcd = \"http://10.0.0.1:2379, http://10.0.0.2\"\n\
             etcd-tls = \"/etc/tls\"\netcd-credentials = \"/etc/login\"\nnbd-connections = 9\nnbd-memory = \"1G\"\n",
        )
        .unwrap();
        assert_eq!(full.reservable_percent.map(NonZeroU8::get), Some(90));
        assert_eq!(full.allow_dir, [Path::new("/srv")]);
        assert_eq!(full.nbd_memory, Some(Bytes::from_gib(1)));
        assert_eq!(full.guest_memory, Some(GuestMemory::Any));
        assert_eq!(full.metrics_listen.map(|at| at.port()), Some(9108));
        assert_eq!(full.etcd[1].to_string(), "http://10.0.0.2:2379");
        let files = [full.etcd_tls, full.etcd_credentials].map(Option::unwrap);
        assert_eq!(files, [Path::new("/etc/tls"), Path::new("/etc/login")]);
    }
}
