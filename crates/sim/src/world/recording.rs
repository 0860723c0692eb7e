//! Records what happens at the first gate.

use super::gate_record::{GateRecord, GateStep};
use super::state::World;

use headgate_units::Nanos;

impl World<'_> {
    /// From now on what happens at the first gate is recorded.
    pub(crate) fn record_first_gate(&mut self) {
        let Some(first) = self.gates.first_mut() else { return };
        let disks = self.disks.iter().filter(|disk| disk.gate == 0).filter_map(|disk| {
            let step = GateStep::Disk {
                disk: disk.id,
                policy: first.policy(disk.id)?,
                priorities: first.priorities(disk.id)?,
            };
            Some(GateRecord { at: Nanos::ZERO, step })
        });
        let mut records: Vec<GateRecord> = disks.collect();
        let step = GateStep::Window { window: first.window() };
        records.push(GateRecord { at: Nanos::ZERO, step });
        first.record_after(records);
    }

    pub(crate) fn take_gate_records(&mut self) -> Vec<GateRecord> {
        self.gates.first_mut().map(|gate| gate.take_records()).unwrap_or_default()
    }
}
