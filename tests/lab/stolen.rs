//! Time that a hypervisor took from this machine.
//!
//! A virtual CPU that has work may wait for a real one. No thread counts as waiting meanwhile, so
//! the scheduler's statistics do not show it. The kernel counts it apart as "steal".

use anyhow::Context;
use std::time::Duration;

/// The time since the start of the machine for which its CPUs had work and the hypervisor ran
/// something else, all CPUs together. Zero on a machine of its own.
///
/// # Errors
/// The kernel says nothing of it.
pub fn stolen() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks = steal(&text).context("/proc/stat says nothing of steal")?;
    Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second())?)
}

/// The eighth number of the line for all CPUs (proc_stat(5)), in ticks of the clock.
fn steal(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    all.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_read_of_all_cpus_together() {
        let stat = "cpu  1 2 3 4 5 6 7 85 9 10\ncpu0 1 2 3 4 5 6 7 40 9 10\nintr 12\n";
        assert_eq!(steal(stat), Some(85));
        assert_eq!(steal("cpu  1 2 3 4\n"), None, "a kernel before 2.6.11");
    }

    #[test]
    fn it_does_not_run_backwards() {
        let before = stolen().unwrap();
        assert!(stolen().unwrap() >= before);
    }
}
