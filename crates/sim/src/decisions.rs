//! The events at one gate and its decisions, recorded, so that another driver of the same gate can
//! be compared with the simulator's.

use crate::progress::{Quiet, RunError};
use crate::scenario::Scenario;
use crate::workload::NoTraces;
use crate::world::{GateRecord, World};

/// Runs one variant of a scenario and records what happens at its first gate: that of the host and
/// datastore of the first disk, where no storage node has a gate of its own. The same arguments
/// give the same records.
///
/// # Errors
/// See [`RunError`].
pub fn record_gate(
    scenario: &Scenario,
    variant: &str,
    seed: u64,
) -> Result<Vec<GateRecord>, RunError> {
    let chosen = scenario.find(variant)?;
    let mut world = World::new(chosen, &scenario.spans, seed, &NoTraces)?;
    world.record_first_gate();
    world.run(&mut Quiet)?;
    Ok(world.take_gate_records())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::GateStep;

    const SCENARIO: &str = r#"
        name = "timers"
        title = "Two disks, one of which waits for its limit"
        duration = "2s"
        windows = { all = "0s..2s" }
        datastore = [{ name = "lun", device = "rate=1000,latency=1ms", queue-depth = 4 }]
        vm = [
            { name = "limited", disk = [{ limit = 50 }], workload = [{ kind = "closed", outstanding = 4 }] },
            { name = "free", disk = [{ limit = 300 }], workload = [{ kind = "closed", outstanding = 2, think = "5ms" }] },
        ]
    "#;

    #[test]
    fn a_gate_is_asked_when_its_timer_rings_and_ends_each_round_at_rest() {
        let scenario = Scenario::parse("timers.toml", SCENARIO).unwrap();
        let records = record_gate(&scenario, "default", 1).unwrap();
        assert_eq!(records, record_gate(&scenario, "default", 1).unwrap());
        let (mut rang, mut wake, mut asked) = (0, None, false);
        for GateRecord { at, step } in &records {
            if let Some(wake) = wake {
                assert!(*at <= wake, "nothing happened at {wake}, only at {at}");
                rang += usize::from(*at == wake && *step == GateStep::Asked);
            }
            match step {
                GateStep::Asked => asked = true,
                GateStep::Dispatched { .. } => assert!(asked),
                GateStep::Rests { wake: next } => (wake, asked) = (*next, false),
                _ => assert!(!asked, "{step:?} amid the answers"),
            }
        }
        assert!(rang > 50, "{rang}");
    }
}
