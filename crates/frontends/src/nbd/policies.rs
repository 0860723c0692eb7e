//! Policies that gateways announce, and who takes them.

use headgate_nbd::policy::Announcement;
use headgate_tls::Bounds;

/// What a client that may do so says of a disk.
#[derive(Clone, Copy, Debug)]
pub struct AnnouncedPolicy<'a> {
    /// The disk's own name, which may be another than that of the export.
    pub disk: &'a str,
    /// The first name in the client's certificate.
    pub peer: &'a str,
    /// What it says.
    pub said: &'a Announcement<'a>,
    /// What it may have disks promised.
    pub bounds: Bounds,
}

/// Takes announced policies. Called on a thread of the client's own; may block.
pub trait Policies: Send + Sync {
    /// Puts a policy in force.
    ///
    /// # Errors
    /// Why not, for people. The policy of before holds then.
    fn take(&self, policy: AnnouncedPolicy<'_>) -> Result<(), String>;
}
