//! The limit of file descriptors: raised as far as it may be, and told.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the daemon asks for at most: descriptors cost memory of the kernel's only when used, but
/// some limits are in the thousands of millions.
const WANTED: u64 = 1 << 20;

/// A disk's image, its vhost-user socket, and what the two need.
const PER_DISK: u64 = 4;

/// An NBD client's socket, and the pipe of one that reads a disk in memory.
const PER_CLIENT: u64 = 3;

/// The file descriptors that the daemon may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors(u64);

impl Descriptors {
    /// Raises the soft limit to the hard one, and says what it came to.
    pub(super) fn raise() -> Descriptors {
        let found = getrlimit(Resource::Nofile);
        let wanted = found.maximum.unwrap_or(WANTED).min(WANTED);
        let current = found.current.unwrap_or(u64::MAX);
        if current < wanted {
            let raised = Rlimit { current: Some(wanted), maximum: found.maximum };
            if let Err(e) = setrlimit(Resource::Nofile, raised) {
                tracing::warn!(error = %e, "the limit of file descriptors stays at {current}");
            }
        }
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let now = Descriptors(limit);
        tracing::info!(
            descriptors = limit,
            "good for about {} disks with an NBD connection each",
            now.for_clients() / (PER_DISK + PER_CLIENT)
        );
        now
    }

    /// What clients may use of them. The rest is for disks, the catalog and the API.
    pub(super) fn for_clients(self) -> u64 {
        self.0.saturating_sub((self.0 / 8).clamp(32, 256))
    }

    /// Warns when they are few for so many disks.
    pub(super) fn check(self, disks: usize) {
        if let Some(needed) = self.lacking(disks as u64) {
            tracing::warn!(
                descriptors = self.0,
                disks,
                "the limit of file descriptors is low: {needed} are needed for an NBD connection \
                 to each disk; raise it (LimitNOFILE= in the unit, ulimit -Hn in a shell)"
            );
        }
    }

    /// How many are needed, if there are not so many.
    fn lacking(self, disks: u64) -> Option<u64> {
        let needed = disks * (PER_DISK + PER_CLIENT) + (self.0 - self.for_clients());
        (needed > self.0).then_some(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_kept_for_the_daemon_itself() {
        assert_eq!(Descriptors(1024).for_clients(), 1024 - 128);
        assert_eq!(Descriptors(1 << 20).for_clients(), (1 << 20) - 256);
        assert_eq!(Descriptors(100).for_clients(), 68);
        assert_eq!(Descriptors(10).for_clients(), 0);
    }

    #[test]
    fn a_limit_is_low_when_not_every_disk_can_have_a_client() {
        assert_eq!(Descriptors(1024).lacking(128), None);
        assert_eq!(Descriptors(1024).lacking(129), Some(129 * 7 + 128));
    }

    #[test]
    fn the_limit_is_raised_to_what_may_be() {
        let raised = Descriptors::raise();
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(WANTED);
        assert!(raised.0 >= hard.min(WANTED), "{raised:?}");
    }
}
