//! Routes requests: the node, the position on it, and the IO that the scheduler sees.

use super::state::SimDisk;
use crate::scenario::Route;
use headgate_devices::IoKind;
use headgate_qos::Io;
use headgate_units::{Bytes, Priority};

pub(super) fn request_io(
    kind: IoKind,
    bytes: Bytes,
    position: u64,
    priority: Option<Priority>,
) -> Io {
    let kind = match kind {
        IoKind::Read => headgate_qos::IoKind::Read,
        IoKind::Discard => headgate_qos::IoKind::Discard,
        IoKind::Write => headgate_qos::IoKind::Write,
        IoKind::Flush => headgate_qos::IoKind::Flush,
    };
    Io { bytes, position, priority, kind }
}

impl SimDisk {
    /// The node for a request, and the place on its device, which wraps around at its end.
    #[inline]
    pub(super) fn route(&mut self, offset: u64) -> (u32, u64) {
        // Traces may know of a larger disk.
        let offset = if offset < self.size { offset } else { offset % self.size };
        if let [(node, _)] = self.nodes[..] {
            return (node, self.base.wrapping_add(offset));
        }
        let many = self.nodes.len() as u64;
        let (turn, offset) = match &self.route {
            Route::Uniform => (self.stream.below(many), offset),
            Route::RoundRobin => {
                self.turn = (self.turn + 1) % self.nodes.len();
                (self.turn as u64, offset)
            }
            Route::Striped => {
                let stripe = offset / self.stripe;
                (stripe % many, stripe / many * self.stripe + offset % self.stripe)
            }
            Route::Weighted(weights) => {
                let mut left = self.stream.below(self.weights);
                let pick =
                    weights.iter().position(|&weight| match left.checked_sub(u64::from(weight)) {
                        Some(rest) => {
                            left = rest;
                            false
                        }
                        None => true,
                    });
                (pick.unwrap_or(0) as u64, offset)
            }
        };
        (self.nodes[turn as usize].0, self.base.wrapping_add(offset))
    }
}
