//! Which boot of the host this is.

use std::fs;

/// A name of this boot that no other one has; `None`: the kernel does not tell.
pub(crate) fn current() -> Option<String> {
    let told = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = told.trim();
    (!boot.is_empty()).then(|| boot.to_owned())
}
