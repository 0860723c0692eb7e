//! A disk array: spindles, striping, a write-back cache, one link to the host.

mod agenda;
mod ages;
mod cache;
mod divisor;
mod layout;
mod mechanics;
mod ranges;
mod read_ahead;
mod spec;
mod spindle;

use alloc::vec::Vec;
pub use spec::{Ageing, ArraySpec, ArraySpecError, CachePower, DiskKind, Raid};

use crate::rng::SplitMix64;
use crate::{DeviceIo, DeviceModel, IoKind};
use agenda::{Agenda, Event};
use alloc::collections::VecDeque;
use cache::{Cache, Want};
use headgate_units::{Bytes, Nanos};
use layout::{Layout, Plan};
use read_ahead::ReadAhead;
use slab::Slab;
use spindle::{Class, Part, Spindle, Urgency};

/// What the controller adds to every request, without being kept busy by it.
const CONTROLLER: Nanos = Nanos::from_micros(500);
/// What every request occupies the link for, besides its bytes.
const LINK_REQUEST: Nanos = Nanos::from_micros(10);
/// Bytes per second on the link: Fibre Channel of 4 Gbit/s.
const LINK_RATE: u64 = 400_000_000;
/// Rows written back at once, for each spindle: enough for its elevator to choose from.
const WRITE_BACK_DEPTH: usize = 8;

/// A disk array whose throughput depends on what is asked of it, as a real one's does.
///
/// - Each spindle has one arm. A piece of work costs a seek (shortest + (longest - shortest) *
///   sqrt(distance / stroke)), the rest of a revolution until the place passes the head, and its
///   transfer. Going on where the head is costs the transfer only. The capacity is spread over the
///   whole stroke of the spindles, however small it is.
/// - A spindle's queue is served shortest positioning time first among the oldest, 32 unless the
///   specification says another number, and who has waited longer is the nearer for it
///   ([`Ageing`]). So throughput grows with depth and with locality, and nobody waits for longer
///   than 300 ms, unless the specification says another time, and one turn of each other piece.
/// - RAID-5 reads old data and parity before it writes both, unless the rest of the row is fewer
///   reads, or the whole row is written.
/// - A write is done once it is in the write-back cache. Neighbours and overwrites become one
///   there. What is a whole row, or older than a second, is written to the disks when no client
///   waits for them; from half full on all is, in sweeps over the array; from three quarters on it
///   competes with the clients' reads. A write that finds no room waits for it: then clients see
///   the speed of the disks. Reads of what is in the cache are answered from there. There is no
///   read cache.
/// - Read-ahead, if the specification has any: a read that begins where one of the last 32 ended
///   begins a stream, of which whole stripe units are fetched until so many bytes lie ahead. They
///   compete with the clients' reads. A read of what was fetched is answered from there, of what is
///   on its way when it comes. 16 streams are followed, each until it is written into. Reads larger
///   than the read-ahead go to the disks by themselves.
/// - One link of 400 MB/s to the host, 10 us more for each request, and 500 us in the controller
///   for each. A discard costs the controller's time and does nothing.
///
/// A range past the capacity wraps around at its beginning, and is cut at its end.
///
/// Everything is a function of the specification, the capacity and the submissions (with their
/// instants). A request costs O(log n) for n requests and rows inside, and as many positioning
/// times for each piece on a spindle as its elevator chooses among.
#[derive(Clone, Debug)]
pub struct SpindleArray {
    layout: Layout,
    capacity: u64,
    /// Time inside passes so many times as slowly as outside.
    slowdown: u64,
    power: CachePower,
    spindles: Vec<Spindle>,
    cache: Cache,
    read_ahead: ReadAhead,
    requests: Slab<Request>,
    jobs: Slab<Job>,
    agenda: Agenda,
    seen: Nanos,
    link_free: Nanos,
    /// Writes that wait for room in the cache, in order.
    waiting: VecDeque<usize>,
    /// Flushes that wait for everything up to a stamp of the cache, in order.
    flushing: VecDeque<(u64, usize)>,
    writing_back: usize,
    /// Reads and writes that did not wait for a disk.
    by_cache: u64,
    /// The earliest planned [`Event::Ripe`].
    ripe_planned: Option<Nanos>,
    done: VecDeque<(Nanos, u64)>,
    /// Emptied lists of pieces, for plans to come.
    spare: Vec<Vec<layout::Extent>>,
}

/// A client's request.
#[derive(Clone, Debug)]
struct Request {
    id: u64,
    kind: IoKind,
    start: u64,
    end: u64,
    jobs_left: u32,
}

/// One plan on its way through the spindles.
#[derive(Clone, Debug)]
struct Job {
    purpose: Purpose,
    class: Class,
    parts_left: usize,
    /// To be done when the reads are; empty once they are under way.
    writes: Vec<layout::Extent>,
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Client { request: usize },
    WriteBack { row: u64 },
    ReadAhead { fetch: usize },
}

impl SpindleArray {
    /// An array with nothing in its cache, of 1 byte to 1 EiB: a capacity outside is taken to be
    /// the nearest of the two.
    pub fn new(spec: &ArraySpec, capacity: Bytes) -> SpindleArray {
        let capacity = Bytes(capacity.0.clamp(1, 1 << 60));
        let layout = Layout::new(spec, capacity);
        let mut random = SplitMix64::new(spec.seed);
        let queue = (spec.elevator, spec.ageing);
        let spindle = |_| Spindle::new(spec.disk, layout.span(), queue, &mut random);
        let spindles = (0..spec.spindles).map(spindle).collect();
        SpindleArray {
            capacity: capacity.0,
            slowdown: spec.slowdown.into(),
            power: spec.power,
            spindles,
            cache: Cache::new(spec.cache.0, layout.row_bytes()),
            read_ahead: ReadAhead::new(spec.readahead.0, spec.unit.0, capacity.0),
            layout,
            requests: Slab::new(),
            jobs: Slab::new(),
            agenda: Agenda::new(),
            seen: Nanos::ZERO,
            link_free: Nanos::ZERO,
            waiting: VecDeque::new(),
            flushing: VecDeque::new(),
            writing_back: 0,
            by_cache: 0,
            ripe_planned: None,
            done: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    #[inline]
    fn advance(&mut self, now: Nanos) {
        if self.agenda.is_due(now) {
            self.handle_due(now);
        }
        self.seen = self.seen.max(now);
    }

    fn handle_due(&mut self, now: Nanos) {
        while let Some((at, event)) = self.agenda.take_due(now) {
            self.seen = at;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Received { request } => self.on_received(request),
            Event::PieceDone { spindle } => self.on_piece_done(spindle),
            Event::Answered { request } => {
                let request = self.requests.remove(request);
                self.done.push_back((self.seen, request.id));
            }
            Event::Ripe => {
                self.ripe_planned = None;
                self.write_back();
            }
        }
    }

    /// The time inside.
    #[inline]
    fn inside(&self, now: Nanos) -> Nanos {
        match self.slowdown {
            1 => now,
            slowdown => Nanos(now.0 / slowdown),
        }
    }

    /// Occupies the link from now, or from when it is free: when the bytes are over.
    fn transfer(&mut self, bytes: u64) -> Nanos {
        let nanos = match bytes.checked_mul(1_000_000_000) {
            Some(product) => product / LINK_RATE,
            None => {
                let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(LINK_RATE);
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        };
        let took = LINK_REQUEST + Nanos(nanos);
        self.link_free = self.link_free.max(self.seen) + took;
        self.link_free
    }

    fn answer(&mut self, after: Nanos, request: usize) {
        self.agenda.plan(after + CONTROLLER, Event::Answered { request });
    }

    fn on_read(&mut self, request: usize, start: u64, end: u64) {
        if start == end || self.cache.holds(self.layout.rows_of(start, end)) {
            self.by_cache += 1;
            self.on_client_done(request);
            return;
        }
        if let Some(read) = self.read_ahead.on_read(request, start, end) {
            self.requests[request].jobs_left = read.waits;
            for (fetch, from, to) in read.fetches {
                self.read(from, to, Purpose::ReadAhead { fetch });
            }
            if read.waits == 0 {
                self.on_client_done(request);
            }
            return;
        }
        self.requests[request].jobs_left = 1;
        self.read(start, end, Purpose::Client { request });
    }

    fn read(&mut self, start: u64, end: u64, purpose: Purpose) {
        let mut reads = self.spare.pop().unwrap_or_default();
        self.layout.pieces(start, end, &mut reads);
        self.begin(Plan { reads, writes: Vec::new() }, purpose);
    }

    fn put_by(&mut self, mut extents: Vec<layout::Extent>) {
        if extents.capacity() > 0 {
            extents.clear();
            self.spare.push(extents);
        }
    }

    fn on_received(&mut self, request: usize) {
        let Request { start, end, .. } = self.requests[request];
        if end - start > self.cache.size() {
            let plans = self.layout.write(start, end);
            self.requests[request].jobs_left = plans.len() as u32;
            plans.into_iter().for_each(|plan| self.begin(plan, Purpose::Client { request }));
        } else {
            self.waiting.push_back(request);
            self.admit_writes();
            // In the order of arrival: who waits is the last one.
            self.by_cache += u64::from(self.waiting.is_empty());
        }
    }

    /// Takes waiting writes into the cache, in order, while there is room.
    fn admit_writes(&mut self) {
        while let Some(&request) = self.waiting.front() {
            let Request { start, end, .. } = self.requests[request];
            if !self.cache.insert(self.seen, self.layout.rows_of(start, end)) {
                break;
            }
            self.waiting.pop_front();
            self.read_ahead.on_written(start, end);
            self.answer(self.seen, request);
        }
        self.write_back();
    }

    /// The disks, or the cache, have done their part.
    fn on_client_done(&mut self, request: usize) {
        let Request { kind, start, end, .. } = self.requests[request];
        if kind == IoKind::Read {
            let over = self.transfer(end - start);
            self.answer(over, request);
        } else {
            self.read_ahead.on_written(start, end);
            self.answer(self.seen, request);
        }
    }

    fn on_flush(&mut self, request: usize) {
        let stamp = self.cache.last_stamp();
        if self.power == CachePower::Battery || self.cache.is_clean_up_to(stamp) {
            self.answer(self.seen, request);
        } else {
            self.flushing.push_back((stamp, request));
            self.write_back();
        }
    }

    fn answer_flushes(&mut self) {
        while let Some(&(stamp, request)) = self.flushing.front() {
            if !self.cache.is_clean_up_to(stamp) {
                break;
            }
            self.flushing.pop_front();
            self.answer(self.seen, request);
        }
    }

    /// Hands rows of the cache to the disks, as many as are wanted now.
    fn write_back(&mut self) {
        while self.writing_back < WRITE_BACK_DEPTH * self.spindles.len() {
            let want = match self.flushing.back() {
                Some(&(stamp, _)) => Want::UpTo(stamp),
                None if self.cache.is_filling() || !self.waiting.is_empty() => Want::Room,
                None => Want::Ripe,
            };
            let Some((row, ranges)) = self.cache.next_to_write(self.seen, want) else { break };
            self.writing_back += 1;
            let mut plan = Plan {
                reads: self.spare.pop().unwrap_or_default(),
                writes: self.spare.pop().unwrap_or_default(),
            };
            self.layout.write_row(row, ranges, &mut plan);
            self.begin(plan, Purpose::WriteBack { row });
        }
        let ripe = self.cache.next_ripe().filter(|&at| at > self.seen);
        if let Some(at) = ripe.filter(|&at| self.ripe_planned.is_none_or(|planned| at < planned)) {
            self.ripe_planned = Some(at);
            self.agenda.plan(at, Event::Ripe);
        }
    }

    fn begin(&mut self, plan: Plan, purpose: Purpose) {
        let class = match purpose {
            Purpose::Client { .. } | Purpose::ReadAhead { .. } => Class::Foreground,
            Purpose::WriteBack { .. } => Class::Background,
        };
        let job = self.jobs.insert(Job { purpose, class, parts_left: 0, writes: plan.writes });
        if plan.reads.is_empty() {
            self.begin_writes(job);
        } else {
            self.enqueue(job, &plan.reads);
        }
        self.put_by(plan.reads);
    }

    fn begin_writes(&mut self, job: usize) {
        let writes = core::mem::take(&mut self.jobs[job].writes);
        self.enqueue(job, &writes);
        self.put_by(writes);
    }

    fn enqueue(&mut self, job: usize, extents: &[layout::Extent]) {
        self.jobs[job].parts_left = extents.len();
        let class = self.jobs[job].class;
        for extent in extents {
            let spindle = extent.spindle as usize;
            let part = Part { job, start: extent.start, len: extent.len };
            self.spindles[spindle].enqueue(self.seen, class, part);
            self.begin_piece(spindle);
        }
    }

    fn begin_piece(&mut self, spindle: usize) {
        let pressing =
            self.cache.is_pressing() || !self.waiting.is_empty() || !self.flushing.is_empty();
        let urgency = if pressing { Urgency::Pressing } else { Urgency::Calm };
        if let Some(at) = self.spindles[spindle].begin(self.seen, urgency) {
            self.agenda.plan(at, Event::PieceDone { spindle });
        }
    }

    fn on_piece_done(&mut self, spindle: usize) {
        if let Some(part) = self.spindles[spindle].finish() {
            let job = &mut self.jobs[part.job];
            job.parts_left -= 1;
            if job.parts_left == 0 {
                if job.writes.is_empty() {
                    let purpose = job.purpose;
                    self.jobs.remove(part.job);
                    self.on_job_done(purpose);
                } else {
                    self.begin_writes(part.job);
                }
            }
        }
        self.begin_piece(spindle);
    }

    fn on_part_done(&mut self, request: usize) {
        self.requests[request].jobs_left -= 1;
        if self.requests[request].jobs_left == 0 {
            self.on_client_done(request);
        }
    }

    fn on_job_done(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Client { request } => self.on_part_done(request),
            Purpose::ReadAhead { fetch } => {
                self.read_ahead
                    .on_fetched(fetch)
                    .into_iter()
                    .for_each(|request| self.on_part_done(request));
            }
            Purpose::WriteBack { row } => {
                self.writing_back -= 1;
                self.cache.left(row);
                self.answer_flushes();
                self.admit_writes();
            }
        }
    }
}

impl DeviceModel for SpindleArray {
    fn submit(&mut self, now: Nanos, id: u64, io: DeviceIo) {
        self.advance(self.inside(now));
        let start = match io.offset < self.capacity {
            true => io.offset,
            false => io.offset % self.capacity,
        };
        let end = start.saturating_add(io.bytes.0).min(self.capacity);
        let request = self.requests.insert(Request { id, kind: io.kind, start, end, jobs_left: 0 });
        match io.kind {
            IoKind::Read => self.on_read(request, start, end),
            IoKind::Write => {
                let received = self.transfer(end - start);
                self.agenda.plan(received, Event::Received { request });
            }
            IoKind::Flush => self.on_flush(request),
            IoKind::Discard => self.answer(self.seen, request),
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let answered = self.done.front().map(|&(at, _)| at);
        let next = answered.or_else(|| self.agenda.next());
        next.map(|at| Nanos(at.0.saturating_mul(self.slowdown)))
    }

    fn poll(&mut self, now: Nanos) -> Option<u64> {
        self.advance(self.inside(now));
        self.done.pop_front().map(|(_, id)| id)
    }

    fn in_flight(&self) -> usize {
        self.requests.len() + self.done.len()
    }

    fn by_cache(&self) -> Option<u64> {
        (self.cache.size() > 0).then_some(self.by_cache)
    }
}
