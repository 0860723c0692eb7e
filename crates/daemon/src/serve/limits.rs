//! What NBD clients may hold: from the command line, the configuration, or the machine.

use super::Config;
use headgate_frontends::nbd::ConnectionLimits;
use headgate_frontends::nbd::server::ServerConfig;
use headgate_units::Bytes;
use std::fs;
use std::num::NonZeroU32;

/// Of so many parts of the machine's memory, NBD clients have one.
const MEMORY_PART: u64 = 16;

/// What they have at least and at most, unless the operator says otherwise.
const MEMORY_RANGE: (Bytes, Bytes) = (Bytes::from_mib(256), Bytes::from_gib(4));

/// The arguments of `headgate serve` for it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct NbdArgs {
    /// The most NBD connections in all; a disk that has none gets its first one all the same
    /// [default: 4096]
    #[arg(long, value_name = "N")]
    nbd_connections: Option<NonZeroU32>,
    /// The most NBD connections to the disks of one machine [default: 256]
    #[arg(long, value_name = "N")]
    nbd_connections_per_vm: Option<NonZeroU32>,
    /// The most NBD connections to one disk [default: 64]
    #[arg(long, value_name = "N")]
    nbd_connections_per_disk: Option<NonZeroU32>,
    /// The most memory that NBD clients hold in buffers, besides 64 KiB each; one disk's clients
    /// hold a quarter of it at most [default: a sixteenth of the machine's, 256M to 4G]
    #[arg(long, value_name = "SIZE")]
    nbd_memory: Option<Bytes>,
}

impl NbdArgs {
    /// A server's settings, of which only what clients may hold is set.
    pub(super) fn settings(&self, config: &Config) -> ServerConfig {
        let default = ServerConfig::default();
        let most = |argument: Option<NonZeroU32>, key: Option<NonZeroU32>, default: usize| {
            argument.or(key).map_or(default, |most| most.get() as usize)
        };
        let limits = default.connections;
        ServerConfig {
            connections: ConnectionLimits {
                total: most(self.nbd_connections, config.nbd_connections, limits.total),
                per_machine: most(
                    self.nbd_connections_per_vm,
                    config.nbd_connections_per_vm,
                    limits.per_machine,
                ),
                per_disk: most(
                    self.nbd_connections_per_disk,
                    config.nbd_connections_per_disk,
                    limits.per_disk,
                ),
            },
            memory: self.nbd_memory.or(config.nbd_memory).unwrap_or_else(default_memory),
            ..default
        }
    }
}

fn default_memory() -> Bytes {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_memory(&text));
    // A machine that does not say what it has gets the least.
    let part = machine.map_or(0, |all| all.0 / MEMORY_PART);
    Bytes(part.clamp(MEMORY_RANGE.0.0, MEMORY_RANGE.1.0))
}

/// `MemTotal` of `/proc/meminfo`.
fn total_memory(meminfo: &str) -> Option<Bytes> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok().map(Bytes::from_kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_comes_before_a_key_and_a_key_before_the_default() {
        let key = NonZeroU32::new(7);
        let config =
            Config { nbd_connections: key, nbd_connections_per_vm: key, ..Config::default() };
        let args = NbdArgs { nbd_connections: NonZeroU32::new(9), ..NbdArgs::default() };
        let settings = args.settings(&config);
        let per_disk = ConnectionLimits::default().per_disk;
        assert_eq!(settings.connections, ConnectionLimits { total: 9, per_machine: 7, per_disk });
        assert!((MEMORY_RANGE.0..=MEMORY_RANGE.1).contains(&settings.memory));
    }

    #[test]
    fn the_machines_memory_is_read() {
        let text = "MemTotal:       24689764 kB\nMemFree:          100 kB\n";
        assert_eq!(total_memory(text), Some(Bytes::from_kib(24_689_764)));
        assert_eq!(total_memory("MemTotal: much"), None);
    }
}
