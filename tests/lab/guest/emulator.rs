//! What an emulator without KVM does wrong to a guest that boots. Who serves the guest's disks has
//! no part in it: all of it was seen before the guest had asked for a byte.

/// The words, of QEMU 7.2 and of Linux 6.1 in it.
const FAILURES: [&str; 3] = [
    // QEMU ended itself, once in some thousand boots: a guest of two CPUs mapped its devices, and a
    // write came behind the end of a device's table of interrupts.
    "msix_table_mmio_write: Assertion",
    // While it boots, the kernel patches its own code, by way of breakpoints. With two CPUs, QEMU
    // now and then goes on with what it had translated before: a CPU falls on a breakpoint that is
    // no more,
    "int3: 0000",
    // or goes round for ever where there is nothing but a `nop`.
    "BUG: soft lockup",
];

/// The emulator has failed, and not what is tested.
#[derive(Debug)]
struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the emulator has failed a guest that boots")
    }
}

/// What came of a boot that failed, by all that is known of it: QEMU's last words in the error, and
/// the kernel's on the console. A kernel that was slow for a while, and then came up, is not asked.
pub(super) fn judge(error: anyhow::Error, console: &str) -> anyhow::Error {
    let said = format!("{error:#}");
    let failed = FAILURES.iter().any(|words| said.contains(words) || console.contains(words));
    if failed { error.context(Failed) } else { error.context("while booting") }
}

/// Whether it was the emulator.
pub(super) fn has_failed(error: &anyhow::Error) -> bool {
    error.is::<Failed>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUNG: &str = "[    0.1] Booting\n\
                        [   28.0] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [swapper/1:0]\n\
                        [   28.0] Modules linked in:";

    #[test]
    fn an_emulator_that_fails_is_told_from_a_disk_that_does() {
        let judged = |said: &'static str, console| judge(anyhow::anyhow!(said), console);
        assert!(has_failed(&judged("no answer within 120s", HUNG)));
        assert!(has_failed(&judged("QEMU ended: msix_table_mmio_write: Assertion `x'", "")));
        let waits = "[  121.0] INFO: task fio:77 blocked for more than 120 seconds.";
        let fails = "[    3.1] blk_update_request: I/O error, dev vda, sector 0";
        for console in [waits, fails, "", "Kernel panic - not syncing: VFS: no root"] {
            assert!(!has_failed(&judged("no answer within 120s", console)), "{console}");
        }
    }
}
