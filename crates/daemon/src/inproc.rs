//! A load generator inside the daemon: a port that keeps a disk busy, for calibration and the
//! demonstration.
//!
//! Closed loop: so many requests are outstanding at any time, each followed by the next. What it
//! measures it measures through the engine, on the way that guests' requests take.

use headgate_engine::port::{Detach, Port, PortCommand, PortEvent, PortIo, Rest};
use headgate_engine::request::{Completion, DiskInfo, Durability, Op, Request};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest alignment that direct IO may require.
const ALIGNMENT: usize = 4096;

/// Where the next request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Anywhere.
    Random,
    /// Behind the last one, from the start to the end and over again.
    Sequential,
}

/// The load on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Requests outstanding, at most [`LoadPort`]'s slots; 0 is silence.
    pub depth: u32,
    /// Percentage of reads; the other requests are writes.
    pub read_percent: u8,
    /// Where the next request goes.
    pub order: Order,
}

/// Progress so far.
#[derive(Debug, Default)]
pub struct Counts {
    done: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    /// Requests completed.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Requests that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

/// Memory of one request.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone, like a boxed slice's.
unsafe impl Send for Block {}

impl Block {
    /// `size` bytes, not zero, aligned for direct IO and filled with what neither compresses nor
    /// repeats.
    fn new(size: usize, noise: &mut Noise) -> Option<Block> {
        let layout =
            Layout::from_size_align(size, ALIGNMENT).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: just allocated with this size, zeroed, and nobody else knows the address.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), size) };
        for word in bytes.chunks_mut(8) {
            let random = noise.next().to_ne_bytes();
            word.copy_from_slice(&random[..word.len()]);
        }
        Some(Block { start, layout })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not zero; even enough for block numbers.
    fn below(&mut self, n: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(n);
        (product >> 64) as u64
    }
}

/// Whether a load sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Motion {
    Going,
    /// Not now: its port is to go to another shard.
    Resting,
    Draining,
}

/// Keeps its disk busy. A [`Pattern`] sent as a command replaces the one in force.
pub struct LoadPort {
    pattern: Pattern,
    blocks: Vec<Block>,
    free: Vec<usize>,
    block_size: u64,
    places: u64,
    position: u64,
    noise: Noise,
    counts: Arc<Counts>,
    motion: Motion,
}

impl LoadPort {
    /// A load of requests of `block_size` bytes (a multiple of 4,096, not zero), at most `slots` at
    /// a time.
    pub fn new(
        disk: &DiskInfo,
        pattern: Pattern,
        block_size: u32,
        slots: u32,
        seed: u64,
        counts: Arc<Counts>,
    ) -> LoadPort {
        let mut noise = Noise(seed);
        let blocks: Vec<Block> =
            (0..slots).filter_map(|_| Block::new(block_size as usize, &mut noise)).collect();
        let block_size = u64::from(block_size);
        LoadPort {
            pattern,
            free: (0..blocks.len()).collect(),
            blocks,
            block_size,
            places: disk.size.checked_div(block_size).unwrap_or(0),
            position: 0,
            noise,
            counts,
            motion: Motion::Going,
        }
    }

    fn outstanding(&self) -> usize {
        self.blocks.len() - self.free.len()
    }

    fn fill(&mut self, io: &mut dyn PortIo) {
        while self.motion == Motion::Going
            && self.places > 0
            && self.outstanding() < self.pattern.depth as usize
        {
            if io.room() == 0 {
                return;
            }
            let Some(slot) = self.free.pop() else { return };
            let place = match self.pattern.order {
                Order::Random => self.noise.below(self.places),
                Order::Sequential => {
                    let place = self.position;
                    self.position = (place + 1) % self.places;
                    place
                }
            };
            let reads = self.noise.below(100) < u64::from(self.pattern.read_percent);
            let op = if reads { Op::Read } else { Op::Write(Durability::Cached) };
            let offset = place * self.block_size;
            let request =
                Request { op, offset, len: self.block_size, cookie: slot as u64, ioprio: 0 };
            let block = &self.blocks[slot];
            let buffer =
                libc::iovec { iov_base: block.start.as_ptr().cast(), iov_len: block.layout.size() };
            // SAFETY: the block is this port's until its drop and used by no other request: its
            // slot is not free.
            unsafe { io.submit(request, &[buffer]) };
        }
    }
}

impl Port for LoadPort {
    fn on_start(&mut self, io: &mut dyn PortIo) {
        self.fill(io);
    }

    fn on_event(&mut self, _io: &mut dyn PortIo, _event: PortEvent) {}

    fn on_command(&mut self, io: &mut dyn PortIo, command: PortCommand) {
        if let Ok(pattern) = command.downcast::<Pattern>() {
            self.pattern = *pattern;
            self.fill(io);
        }
    }

    fn on_room(&mut self, io: &mut dyn PortIo) {
        self.fill(io);
    }

    fn on_complete(&mut self, _io: &mut dyn PortIo, completion: Completion) {
        self.free.push(completion.cookie as usize);
        self.counts.done.fetch_add(1, Ordering::Relaxed);
        if completion.result.is_err() {
            self.counts.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_turn_end(&mut self, io: &mut dyn PortIo) {
        self.fill(io);
        if self.motion == Motion::Draining && self.outstanding() == 0 {
            io.close();
        }
    }

    fn on_resize(&mut self, _io: &mut dyn PortIo, info: &DiskInfo) {
        self.places = info.size.checked_div(self.block_size).unwrap_or(0);
    }

    fn come_to_rest(&mut self, _io: &mut dyn PortIo) -> Rest {
        if self.motion == Motion::Going {
            self.motion = Motion::Resting;
        }
        if self.motion == Motion::Resting && self.outstanding() == 0 {
            Rest::Ready
        } else {
            Rest::Busy
        }
    }

    fn on_arrive(&mut self, io: &mut dyn PortIo) {
        self.motion = Motion::Going;
        self.fill(io);
    }

    fn on_detach(&mut self, io: &mut dyn PortIo, how: Detach) {
        self.motion = Motion::Draining;
        if how == Detach::Drain && self.outstanding() == 0 {
            io.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_places_cover_the_disk_evenly() {
        let mut noise = Noise(1);
        let mut hits = [0u32; 10];
        for _ in 0..10_000 {
            hits[noise.below(10) as usize] += 1;
        }
        assert!(hits.iter().all(|&n| (850..1150).contains(&n)), "{hits:?}");
    }
}
