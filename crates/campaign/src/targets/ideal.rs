//! What requests would take in an ideal order, behind a window of any size.
//!
//! The same clients, storage and reservations, and none of the scheduler's rules: no shares, no
//! tags beyond the definition of a reservation, no narrowing.

use crate::rng::Rng;
use crate::setup::{Load, Phase, Setup};
use crate::storage::Storage;
use crate::tally::Tally;
use crate::thinking::Thinkers;
use headgate_units::{Bytes, Iops, Nanos};
use std::collections::VecDeque;

/// Which request goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that is due first by the reservations, each a server of its rate (Cruz, 1991); where
    /// none is due yet, one of a disk that always has some. All that reservations promise. Behind a
    /// window that gives less than is reserved all of them fall behind.
    Due,
    /// Any of this disk, as soon as it is there. No order serves the disk better behind the same
    /// window without knowing what comes.
    First(usize),
}

/// Requests that arrive before are not counted: in seconds.
const SETTLED: f64 = 5.0;

struct Disk {
    /// Between two requests by reservation.
    interval: Option<Nanos>,
    /// When the reservation will have served what came so far.
    tag: Nanos,
    /// When those queued came.
    waiting: VecDeque<Nanos>,
    /// Without, the disk always has requests.
    thinkers: Option<Thinkers>,
}

impl Disk {
    fn new(number: usize, phase: &Phase, seed: u64) -> Option<Disk> {
        let &(policy, load) = phase.disks.get(number)?;
        Some(Disk {
            interval: policy.reservation().map(|rate: Iops| Nanos(1_000_000_000 / rate.get())),
            tag: Nanos::ZERO,
            waiting: VecDeque::new(),
            thinkers: thinkers(Nanos::ZERO, number, load, seed),
        })
    }

    /// When its next request is due; `None` where it has none.
    fn due(&self) -> Option<Nanos> {
        self.interval?;
        match self.thinkers {
            None => Some(self.tag),
            Some(_) => self.waiting.front().map(|&arrived| arrived.max(self.tag)),
        }
    }

    /// Takes its next request, and says when it came.
    fn take(&mut self) -> Option<Nanos> {
        let due = self.due()?;
        self.tag = due + self.interval?;
        match self.thinkers {
            None => None,
            Some(_) => self.waiting.pop_front(),
        }
    }
}

/// The clients of a disk that think; those of a run draw the same times.
pub fn thinkers(now: Nanos, disk: usize, load: Load, seed: u64) -> Option<Thinkers> {
    match load {
        Load::Thinking { clients, rate } => {
            let rng = Rng::new(&format!("thinking {disk}"), seed);
            Some(Thinkers::new(now, clients, rate, rng))
        }
        _ => None,
    }
}

/// What the requests of each disk took that thinks, in seconds. Runs the first phase of a set-up
/// for so long. Some disk has to have requests always.
///
/// O(requests · disks).
pub fn run(setup: &Setup, window: u32, order: Order, seconds: u64) -> Vec<Tally> {
    let Some(phase) = setup.phases.first() else { return Vec::new() };
    let mut disks: Vec<Disk> =
        (0..phase.disks.len()).filter_map(|disk| Disk::new(disk, phase, setup.seed)).collect();
    let mut storage = Storage::new(setup, phase.rate);
    let mut took = vec![Tally::default(); disks.len()];
    // By number of a slot of the window; `None` for requests that nobody asks about.
    let mut inside: Vec<Option<(usize, Nanos)>> = vec![None; window as usize];
    let mut free: Vec<usize> = (0..window as usize).collect();
    let (mut now, end) = (Nanos::ZERO, Nanos::from_secs(seconds));
    while now < end {
        for disk in &mut disks {
            let Some(thinkers) = &mut disk.thinkers else { continue };
            disk.waiting.extend(std::iter::from_fn(|| thinkers.take(now)));
        }
        while let Some(slot) = free.pop() {
            inside[slot] = next(&mut disks, order, now);
            storage.submit(now, slot as u64, Bytes::from_kib(4), 1.0);
        }
        let wakes = disks.iter().filter_map(|disk| disk.thinkers.as_ref()?.next());
        let Some(at) = wakes.chain(storage.next_event()).min() else { break };
        now = at.max(now);
        while let Some(slot) = storage.poll(now) {
            let slot = slot as usize;
            free.push(slot);
            let Some((disk, arrived)) = inside[slot].take() else { continue };
            if let Some(thinkers) = &mut disks[disk].thinkers {
                thinkers.answered(now);
            }
            if arrived.as_secs_f64() >= SETTLED {
                took[disk].add(now.since(arrived).as_secs_f64());
            }
        }
    }
    took
}

/// The disk whose request goes next and when that came, where somebody asks.
fn next(disks: &mut [Disk], order: Order, now: Nanos) -> Option<(usize, Nanos)> {
    let disk = match order {
        Order::First(disk) => disk,
        Order::Due => {
            let due = |disk: &Disk| disk.due().filter(|&due| due <= now);
            let dues = disks.iter().enumerate().filter_map(|(n, disk)| Some((due(disk)?, n)));
            dues.min()?.1
        }
    };
    Some((disk, disks.get_mut(disk)?.take()?))
}
