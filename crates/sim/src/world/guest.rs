//! Requests between a workload and its virtual disk, where the guest puts them in order.

use super::event::Event;
use super::state::World;
use crate::io_scheduler::{Next, Waiting};
use crate::workload::Issue;

impl World<'_> {
    /// A workload issued a request to a disk whose guest has an IO scheduler.
    pub(super) fn order_in_guest(&mut self, key: u32, process: u32, issue: Issue) {
        let disk = self.requests[key as usize].disk;
        let Issue { kind, offset, bytes, .. } = issue;
        if let Some(io_scheduler) = &mut self.disks[disk as usize].io_scheduler {
            let request = Waiting { key, process, kind, offset, bytes: bytes.0, since: self.now };
            io_scheduler.add(self.now, request);
        }
        self.settle_guest(disk);
    }

    /// Sends what the guest's IO scheduler lets go.
    pub(super) fn settle_guest(&mut self, disk: u32) {
        while let Some(io_scheduler) = &mut self.disks[disk as usize].io_scheduler {
            match io_scheduler.next(self.now) {
                Next::Send(request) => self.arrive(request.key, request.offset),
                Next::WaitUntil(at) => return self.queue.push(at, Event::Guest { disk }),
                Next::Idle => return,
            }
        }
    }
}
