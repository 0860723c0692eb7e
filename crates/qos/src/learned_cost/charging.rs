//! How a scheduler charges: by a declared model, or by what is learned.

use super::class::{Classifier, IoClass};
use super::table::{CostTable, QueuedSize};
use crate::config::ConfigError;
use crate::cost::{Cost, CostMeter, CostModel, Io, clamp_bytes};
use alloc::boxed::Box;
use headgate_units::Bytes;

/// The work of a window is that of as many requests of this size as it holds. Guests and clients
/// cut what they send into requests of up to so much: for those the window is a number of requests.
const SLOT: Bytes = Bytes::from_mib(1);

/// The cost model of one scheduler.
#[derive(Clone)]
pub(crate) struct Charging {
    meter: CostMeter,
    learned: Option<Box<Learned>>,
}

#[derive(Clone)]
struct Learned {
    /// As declared.
    reference: Bytes,
    table: CostTable,
    classifier: Classifier,
}

impl Charging {
    pub(crate) fn new(model: CostModel) -> Result<Charging, ConfigError> {
        let learned = match model {
            CostModel::Learned { reference } => Some(Box::new(Learned {
                reference,
                table: CostTable::declared(reference),
                classifier: Classifier::default(),
            })),
            CostModel::Unit | CostModel::Affine { .. } | CostModel::Chunks { .. } => None,
        };
        Ok(Charging { meter: CostMeter::new(model)?, learned })
    }

    /// The reference of the declared model, where costs are learned.
    pub(crate) fn learns_from(&self) -> Option<Bytes> {
        self.learned.as_ref().map(|learned| learned.reference)
    }

    /// A disk has that slot from now on.
    pub(crate) fn register(&mut self, slot: usize) {
        if let Some(learned) = &mut self.learned {
            learned.classifier.register(slot);
        }
    }

    /// What is queued for a request of the disk in that slot.
    #[inline]
    pub(crate) fn size(&mut self, slot: usize, io: &Io) -> QueuedSize {
        match &mut self.learned {
            None => QueuedSize::plain(io.bytes),
            Some(learned) => QueuedSize::of_class(learned.classifier.class(slot, io), io.bytes),
        }
    }

    /// What it is charged now, and its bytes.
    #[inline]
    pub(crate) fn charge(&self, size: QueuedSize) -> (Cost, u32) {
        match &self.learned {
            None => (self.meter.cost(size.bits()), size.bits()),
            Some(learned) => (learned.table.cost(size), size.bytes_of_class()),
        }
    }

    /// The most that a request of [`SLOT`] is charged now: the work of each slot of a window.
    pub(crate) fn slot(&self) -> Cost {
        match &self.learned {
            None => self.meter.cost(clamp_bytes(SLOT)),
            Some(learned) => {
                let costs = IoClass::ALL.map(|class| learned.table.cost_of(class, SLOT));
                costs.into_iter().max().unwrap_or(Cost::ONE)
            }
        }
    }

    /// What it charges by, where costs are learned.
    pub(crate) fn table(&self) -> Option<CostTable> {
        self.learned.as_ref().map(|learned| learned.table)
    }

    /// Charges by this table from now on, where costs are learned.
    pub(crate) fn set_table(&mut self, table: CostTable) {
        if let Some(learned) = &mut self.learned {
            learned.table = table;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::IoKind;

    fn io(kind: IoKind, position: u64, bytes: u64) -> Io {
        Io { bytes: Bytes(bytes), position, kind, ..Io::default() }
    }

    #[test]
    fn a_request_is_charged_by_its_class_and_the_table_in_force() {
        let mut charging = Charging::new("learned".parse().unwrap()).unwrap();
        charging.register(0);
        let read = charging.size(0, &io(IoKind::Read, 0, 4_096));
        let write = charging.size(0, &io(IoKind::Write, 1 << 30, 4_096));
        let next = charging.size(0, &io(IoKind::Journal, (1 << 30) + 4_096, 4_096));
        let flush = charging.size(0, &io(IoKind::Flush, 0, 0));
        let all = [read, write, next, flush];
        for size in all.iter().take(3) {
            let (cost, bytes) = charging.charge(*size);
            assert!(cost.as_millionths().abs_diff(1_000_000) < 2, "as declared: {cost}");
            assert_eq!(bytes, 4_096, "what a limit in bytes is charged");
        }
        let mut base = [1.0; IoClass::COUNT];
        base[IoClass::WriteRandom.index()] = 8.0;
        base[IoClass::WriteSequential.index()] = 2.0;
        base[IoClass::NoData.index()] = 5.0;
        charging.set_table(CostTable::new(base, [0.0; IoClass::COUNT]));
        let costs = all.map(|size| charging.charge(size).0);
        assert_eq!(costs, [1, 8, 2, 5].map(Cost::from_ios));
    }

    #[test]
    fn a_declared_model_has_no_table() {
        let mut charging = Charging::new("affine=300K".parse().unwrap()).unwrap();
        charging.set_table(CostTable::new([9.0; 5], [9.0; 5]));
        let write = charging.size(0, &io(IoKind::Write, 0, 4_099));
        assert_eq!(charging.charge(write), (Cost::from_millionths(1_013_343), 4_099));
        assert_eq!(charging.learns_from(), None);
    }
}
