//! Seats in the tournaments.

use alloc::vec::Vec;

/// Seats in the tournaments, taken by disks with requests queued and given out densely, so that a
/// tournament is as high as the most disks that waited at once since all queues were last empty,
/// however many are registered.
#[derive(Clone)]
pub(super) struct Seats {
    pub(super) vacated: Vec<u32>,
    /// Seats below this one are taken or in `vacated`.
    pub(super) end: u32,
}

impl Seats {
    pub(super) fn new() -> Seats {
        Seats { vacated: Vec::new(), end: 0 }
    }

    pub(super) fn take(&mut self) -> u32 {
        self.vacated.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    /// Frees a seat; returns whether all seats are free.
    pub(super) fn vacate(&mut self, seat: u32) -> bool {
        self.vacated.push(seat);
        let all = self.vacated.len() == self.end as usize;
        if all {
            self.vacated.clear();
            self.end = 0;
        }
        all
    }
}
