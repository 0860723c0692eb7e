//! Requests between a workload and its virtual disk, where the guest puts them in order.

use super::{Event, World};
use crate::elevator::{Next, Waiting};
use crate::workload::Issue;

impl World<'_> {
    /// A workload issued a request to a disk whose guest has an elevator.
    pub(super) fn order_in_guest(&mut self, key: u32, process: u32, issue: Issue) {
        let disk = self.requests[key as usize].disk;
        let Issue { kind, offset, bytes, .. } = issue;
        if let Some(elevator) = &mut self.disks[disk as usize].elevator {
            let request = Waiting { key, process, kind, offset, bytes: bytes.0, since: self.now };
            elevator.add(self.now, request);
        }
        self.settle_guest(disk);
    }

    /// Sends what the guest's elevator lets go.
    pub(super) fn settle_guest(&mut self, disk: u32) {
        while let Some(elevator) = &mut self.disks[disk as usize].elevator {
            match elevator.next(self.now) {
                Next::Send(request) => self.arrive(request.key, request.offset),
                Next::WaitUntil(at) => return self.queue.push(at, Event::Guest { disk }),
                Next::Idle => return,
            }
        }
    }
}
