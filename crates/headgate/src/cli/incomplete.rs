//! Disks whose content is not whole.

use headgate_api::types::Disk;

/// The machine of a disk whose content is not whole. Such a disk is seen in each list, and no
/// machine's user may open its sockets by it.
pub(super) const INCOMPLETE: &str = "incomplete-import";

/// Whether an import has not finished a disk, or never will.
pub(super) fn is_incomplete(disk: &Disk) -> bool {
    disk.vm.as_ref().is_some_and(|vm| vm.as_str() == INCOMPLETE)
}
