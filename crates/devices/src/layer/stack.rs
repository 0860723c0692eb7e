//! A stack of layers and the requests that it holds.

use super::fault::Fault;
use super::spec::{LayerSpec, Percentage, Stragglers, Which};
use super::stall::Stall;
use crate::rng::SplitMix64;
use crate::{DeviceIo, IoKind};
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use headgate_units::{Iops, Nanos};

/// Where a request goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Down: execute it.
    Start,
    /// Up: it has ended, with this result.
    End(Result<(), Fault>),
    /// A layer holds it; [`Layers::poll`] returns it later.
    Held,
}

/// A request that a layer held until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The caller's name for it.
    pub id: u64,
    /// When it was released: not later than the poll, possibly earlier.
    pub at: Nanos,
    /// The request, as it was submitted.
    pub io: DeviceIo,
    /// `None`: execute it. Else it has ended with this result.
    pub ended: Option<Result<(), Fault>>,
}

/// One request in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// Its number among all requests that the layer recorded, from 0.
    pub serial: u64,
    /// The caller's name for it.
    pub id: u64,
    /// When it came to the trace layer.
    pub submitted: Nanos,
    /// When it came back.
    pub completed: Nanos,
    /// The request.
    pub io: DeviceIo,
    /// Whether it succeeded.
    pub result: Result<(), Fault>,
}

/// A stack of layers, outermost first, and the requests that they hold.
///
/// # Contract
/// - [`submit`](Layers::submit) each request once, with an `id` that no other inside has.
/// - Execute what [`Passage::Start`] or a [`Released`] without a result says, and report it with
///   [`complete`](Layers::complete) once.
/// - Call [`poll`](Layers::poll) at [`next_event`](Layers::next_event), until it returns `None`.
///
/// What goes down is decided by the instants of submissions alone: a late poll moves nothing but
/// the moment at which the caller learns of it. What comes up is held from the time given to
/// `complete`. Times are the caller's monotonic clock.
///
/// # Complexity
/// O(layers) for a request that passes, O(log held) for each hold. Memory grows with the requests
/// inside, which the caller bounds.
#[derive(Debug)]
pub struct Layers {
    stack: Vec<Layer>,
    held: BinaryHeap<Reverse<Held>>,
    serial: u64,
}

/// A held request and the layer where it goes on.
#[derive(Clone, Copy, Debug)]
struct Held {
    at: Nanos,
    /// Order among equals: first held, first released.
    serial: u64,
    id: u64,
    io: DeviceIo,
    way: Way,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.serial == other.serial
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> core::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// This layer is next.
    Down(usize),
    /// So many layers are left above.
    Up(usize, Result<(), Fault>),
}

/// What one layer does with a request.
enum Step {
    Pass,
    Hold(Nanos),
    Fail(Fault),
}

impl Layers {
    /// A stack, outermost layer first, with nothing inside.
    pub fn new(specs: &[LayerSpec]) -> Layers {
        let stack = specs.iter().map(Layer::new).collect();
        Layers { stack, held: BinaryHeap::new(), serial: 0 }
    }

    /// Takes a request down.
    pub fn submit(&mut self, now: Nanos, id: u64, io: DeviceIo) -> Passage {
        self.pass(now, id, io, Way::Down(0))
    }

    /// Takes a request up that was executed.
    pub fn complete(
        &mut self,
        now: Nanos,
        id: u64,
        io: DeviceIo,
        result: Result<(), Fault>,
    ) -> Passage {
        self.pass(now, id, io, Way::Up(self.stack.len(), result))
    }

    /// When to [`poll`](Layers::poll) next. `None`: nothing is held.
    pub fn next_event(&self) -> Option<Nanos> {
        self.held.peek().map(|Reverse(held)| held.at)
    }

    /// Requests held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// One request that is released by `now`, in the order of release; `None` when there is none
    /// (left).
    pub fn poll(&mut self, now: Nanos) -> Option<Released> {
        while self.next_event().is_some_and(|at| at <= now) {
            let Reverse(Held { at, id, io, way, .. }) = self.held.pop()?;
            match self.pass(at, id, io, way) {
                Passage::Held => {}
                Passage::Start => return Some(Released { id, at, io, ended: None }),
                Passage::End(result) => {
                    return Some(Released { id, at, io, ended: Some(result) });
                }
            }
        }
        None
    }

    /// A request that is held, released before its time, in the order in which they would have
    /// been released: for a stack that is taken away. The layers that were left for it to pass do
    /// nothing with it. `None` when none is held (any more).
    pub fn evict(&mut self, now: Nanos) -> Option<Released> {
        let Reverse(Held { id, io, way, .. }) = self.held.pop()?;
        let ended = match way {
            Way::Down(_) => None,
            Way::Up(_, result) => Some(result),
        };
        Some(Released { id, at: now, io, ended })
    }

    /// The requests that the first trace layer has kept, oldest first, from this serial number on;
    /// nothing without one. O(log kept) to find the first.
    pub fn trace(&self, from: u64) -> impl Iterator<Item = &TraceEntry> {
        let kept = self.first_trace().map(|trace| {
            let start = trace.entries.partition_point(|entry| entry.serial < from);
            trace.entries.range(start..)
        });
        kept.into_iter().flatten()
    }

    /// How many requests the first trace layer has recorded, kept or not. `None` without one.
    pub fn traced(&self) -> Option<u64> {
        self.first_trace().map(|trace| trace.recorded)
    }

    /// Has trace layers forget the requests that they have kept whose `id` is one of these.
    /// O(kept).
    pub fn forget_traced(&mut self, is_one: impl Fn(u64) -> bool) {
        for layer in &mut self.stack {
            if let Layer::Trace(trace) = layer {
                trace.entries.retain(|entry| !is_one(entry.id));
            }
        }
    }

    fn first_trace(&self) -> Option<&Trace> {
        self.stack.iter().find_map(|layer| match layer {
            Layer::Trace(trace) => Some(trace),
            _ => None,
        })
    }

    fn pass(&mut self, now: Nanos, id: u64, io: DeviceIo, mut way: Way) -> Passage {
        loop {
            let (step, next) = match way {
                Way::Down(at) => match self.stack.get_mut(at) {
                    None => return Passage::Start,
                    Some(layer) => match layer.down(now, id, io) {
                        Step::Fail(fault) => (Step::Pass, Way::Up(at, Err(fault))),
                        step => (step, Way::Down(at + 1)),
                    },
                },
                Way::Up(0, result) => return Passage::End(result),
                Way::Up(above, result) => {
                    (self.stack[above - 1].up(now, id, io, result), Way::Up(above - 1, result))
                }
            };
            way = next;
            if let Step::Hold(at) = step
                && at > now
            {
                self.serial += 1;
                self.held.push(Reverse(Held { at, serial: self.serial, id, io, way }));
                return Passage::Held;
            }
        }
    }
}

#[derive(Debug)]
enum Layer {
    Delay { time: Nanos, on: Which },
    Rate(Spacing, Which),
    Error(Errors),
    Stragglers { every: u64, held: Nanos, seen: u64 },
    Stall(Stall),
    Trace(Trace),
}

impl Layer {
    fn new(spec: &LayerSpec) -> Layer {
        match *spec {
            LayerSpec::Delay { time, on } => Layer::Delay { time, on },
            LayerSpec::Rate { rate, on } => Layer::Rate(Spacing::new(rate), on),
            LayerSpec::Error { chance, on, fault, after, count, seed } => Layer::Error(Errors {
                chance,
                on,
                fault,
                passing: after,
                left: count.unwrap_or(u64::MAX),
                random: SplitMix64::new(seed),
            }),
            LayerSpec::Stragglers(Stragglers { every, held }) => {
                Layer::Stragglers { every: u64::from(every.get()), held, seen: 0 }
            }
            LayerSpec::Stall(stall) => Layer::Stall(stall),
            LayerSpec::Trace { entries } => Layer::Trace(Trace::new(entries.get() as usize)),
        }
    }

    fn down(&mut self, now: Nanos, id: u64, io: DeviceIo) -> Step {
        match self {
            Layer::Delay { time, on } if on.includes(io.kind) => Step::Hold(now + *time),
            Layer::Rate(spacing, on) if on.includes(io.kind) => Step::Hold(spacing.next(now)),
            Layer::Error(errors) => errors.judge(io.kind),
            Layer::Stall(stall) => Step::Hold(stall.end(now)),
            Layer::Trace(trace) => {
                trace.inside.insert(id, now);
                Step::Pass
            }
            Layer::Delay { .. } | Layer::Rate(..) | Layer::Stragglers { .. } => Step::Pass,
        }
    }

    fn up(&mut self, now: Nanos, id: u64, io: DeviceIo, result: Result<(), Fault>) -> Step {
        match self {
            Layer::Stragglers { every, held, seen } => {
                *seen += 1;
                if seen.is_multiple_of(*every) { Step::Hold(now + *held) } else { Step::Pass }
            }
            Layer::Stall(stall) => Step::Hold(stall.end(now)),
            Layer::Trace(trace) => {
                trace.record(now, id, io, result);
                Step::Pass
            }
            Layer::Delay { .. } | Layer::Rate(..) | Layer::Error(_) => Step::Pass,
        }
    }
}

/// Instants 1/rate apart, exact in the long run.
#[derive(Debug)]
struct Spacing {
    rate: u64,
    /// The earliest instant that is free.
    free: Nanos,
    /// What `free` is short of, in units of 1/rate nanoseconds, below `rate`.
    carried: u64,
}

impl Spacing {
    const SECOND: u64 = 1_000_000_000;

    fn new(rate: Iops) -> Spacing {
        Spacing { rate: rate.get(), free: Nanos::ZERO, carried: 0 }
    }

    /// Takes the first free instant from `now` on.
    fn next(&mut self, now: Nanos) -> Nanos {
        if now > self.free {
            (self.free, self.carried) = (now, 0);
        }
        let taken = self.free;
        // Both terms are below the rate, which is at most 10⁹.
        let carried = self.carried + Self::SECOND % self.rate;
        self.free = taken + Nanos(Self::SECOND / self.rate + carried / self.rate);
        self.carried = carried % self.rate;
        taken
    }
}

#[derive(Debug)]
struct Errors {
    chance: Percentage,
    on: Which,
    fault: Fault,
    /// Requests that still pass before the first may fail.
    passing: u64,
    /// Requests that may still fail.
    left: u64,
    random: SplitMix64,
}

impl Errors {
    fn judge(&mut self, kind: IoKind) -> Step {
        if !self.on.includes(kind) {
            return Step::Pass;
        }
        if self.passing > 0 {
            self.passing -= 1;
            return Step::Pass;
        }
        if self.left == 0 || self.random.below(1_000_000) >= self.chance.ppm() {
            return Step::Pass;
        }
        self.left -= 1;
        Step::Fail(self.fault)
    }
}

#[derive(Debug)]
struct Trace {
    most: usize,
    /// By serial number, ascending.
    entries: VecDeque<TraceEntry>,
    /// How many there were.
    recorded: u64,
    /// Requests below this layer, and when they came.
    inside: BTreeMap<u64, Nanos>,
}

impl Trace {
    fn new(most: usize) -> Trace {
        Trace { most, entries: VecDeque::with_capacity(most), recorded: 0, inside: BTreeMap::new() }
    }

    /// A request that came before the layer is not recorded.
    fn record(&mut self, completed: Nanos, id: u64, io: DeviceIo, result: Result<(), Fault>) {
        let Some(submitted) = self.inside.remove(&id) else { return };
        if self.entries.len() == self.most {
            self.entries.pop_front();
        }
        let serial = self.recorded;
        self.recorded += 1;
        self.entries.push_back(TraceEntry { serial, id, submitted, completed, io, result });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Bytes;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn io(kind: IoKind) -> DeviceIo {
        DeviceIo { kind, offset: 4096, bytes: Bytes(4096) }
    }

    fn layers(specs: &[&str]) -> Layers {
        Layers::new(&specs.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn a_delay_holds_its_kind_for_its_time() {
        let mut layers = layers(&["delay=5ms,on=write"]);
        assert_eq!(layers.submit(Nanos(MS), 1, io(IoKind::Read)), Passage::Start);
        assert_eq!(layers.submit(Nanos(MS), 2, io(IoKind::Write)), Passage::Held);
        assert_eq!(layers.next_event(), Some(Nanos(6 * MS)));
        assert_eq!(layers.poll(Nanos(6 * MS - 1)), None);
        let released = layers.poll(Nanos(9 * MS)).unwrap();
        assert_eq!((released.id, released.at, released.ended), (2, Nanos(6 * MS), None));
        assert_eq!((layers.poll(Nanos(9 * MS)), layers.held()), (None, 0));
    }

    #[test]
    fn a_rate_spaces_requests_out_exactly() {
        let mut layers = layers(&["rate=7"]);
        let second = Nanos::from_secs(1);
        assert_eq!(layers.submit(Nanos::ZERO, 0, io(IoKind::Read)), Passage::Start);
        for id in 1..=14 {
            assert_eq!(layers.submit(Nanos::ZERO, id, io(IoKind::Read)), Passage::Held);
        }
        let mut at = Vec::new();
        while let Some(released) = layers.poll(second + second) {
            at.push(released.at);
        }
        assert_eq!((at[6], at[13]), (second, second + second));
    }

    #[test]
    fn a_late_poll_moves_no_decision() {
        let mut layers = layers(&["delay=2ms", "delay=3ms"]);
        assert_eq!(layers.submit(Nanos::ZERO, 1, io(IoKind::Read)), Passage::Held);
        // Both delays are over, though nobody asked in between.
        let released = layers.poll(Nanos(6 * MS)).map(|released| released.at);
        assert_eq!(released, Some(Nanos(5 * MS)));
    }

    #[test]
    fn a_delay_above_a_rate_is_added_and_disturbs_nobody_else() {
        let mut layers = layers(&["delay=100ms,on=flush", "rate=1000"]);
        assert_eq!(layers.submit(Nanos::ZERO, 1, io(IoKind::Flush)), Passage::Held);
        assert_eq!(layers.submit(Nanos::ZERO, 2, io(IoKind::Read)), Passage::Start);
        assert_eq!(layers.submit(Nanos::ZERO, 3, io(IoKind::Read)), Passage::Held);
        let ids: Vec<(u64, Nanos)> =
            std::iter::from_fn(|| layers.poll(Nanos::from_secs(1))).map(|r| (r.id, r.at)).collect();
        assert_eq!(ids, [(3, Nanos(MS)), (1, Nanos(100 * MS))]);
    }

    #[test]
    fn errors_come_by_count_after_what_passes_and_only_to_their_kind() {
        let mut layers = layers(&["error=100%,on=write,after=1,count=2,errno=ENOSPC"]);
        let mut judge = |kind| layers.submit(Nanos::ZERO, 0, io(kind));
        let full = Passage::End(Err(Fault::NoSpace));
        assert_eq!(judge(IoKind::Write), Passage::Start);
        assert_eq!(judge(IoKind::Read), Passage::Start);
        assert_eq!(judge(IoKind::Write), full);
        assert_eq!(judge(IoKind::Flush), Passage::Start);
        assert_eq!(judge(IoKind::Write), full);
        assert_eq!(judge(IoKind::Write), Passage::Start);
    }

    #[test]
    fn errors_have_their_probability_and_repeat_with_their_seed() {
        let failed = |text: &str| {
            let mut layers = layers(&[text]);
            let failed =
                |id: &u64| layers.submit(Nanos::ZERO, *id, io(IoKind::Read)) != Passage::Start;
            (0..100_000).filter(failed).collect::<Vec<u64>>()
        };
        let few = failed("error=1%,seed=5");
        // Five standard deviations: 5 x sqrt(100,000 x 0.01 x 0.99) = 157.
        assert!((843..=1157).contains(&few.len()), "{}", few.len());
        assert_eq!(few, failed("error=1%,seed=5"));
        assert_ne!(few, failed("error=1%,seed=6"));
    }

    #[test]
    fn stragglers_are_held_on_their_way_up() {
        let mut layers = layers(&["stragglers=2:20ms"]);
        for id in 0..2 {
            assert_eq!(layers.submit(Nanos::ZERO, id, io(IoKind::Read)), Passage::Start);
        }
        let done = Passage::End(Ok(()));
        assert_eq!(layers.complete(Nanos(MS), 0, io(IoKind::Read), Ok(())), done);
        assert_eq!(layers.complete(Nanos(MS), 1, io(IoKind::Read), Err(Fault::Io)), Passage::Held);
        let released = layers.poll(Nanos(21 * MS)).unwrap();
        assert_eq!((released.id, released.ended), (1, Some(Err(Fault::Io))));
    }

    #[test]
    fn nothing_begins_and_nothing_completes_in_a_stall() {
        let mut layers = layers(&["stall=2ms/10ms"]);
        let read = io(IoKind::Read);
        assert_eq!(layers.submit(Nanos(7 * MS), 1, read), Passage::Start);
        assert_eq!(layers.submit(Nanos(8 * MS), 2, read), Passage::Held);
        assert_eq!(layers.complete(Nanos(9 * MS), 1, read, Ok(())), Passage::Held);
        assert_eq!(layers.next_event(), Some(Nanos(10 * MS)));
        let mut next = || layers.poll(Nanos(12 * MS)).map(|r| (r.id, r.at, r.ended));
        assert_eq!(next(), Some((2, Nanos(10 * MS), None)));
        assert_eq!(next(), Some((1, Nanos(10 * MS), Some(Ok(())))));
        assert_eq!(layers.complete(Nanos(17 * MS), 2, read, Ok(())), Passage::End(Ok(())));
    }

    #[test]
    fn a_trace_keeps_the_last_requests_and_sees_what_is_below_it() {
        let mut layers = layers(&["trace=2", "delay=1ms", "error=100%,count=1"]);
        for id in 0..3 {
            let at = Nanos(id * 10 * MS);
            assert_eq!(layers.submit(at, id, io(IoKind::Write)), Passage::Held);
            let released = layers.poll(at + Nanos(MS)).unwrap();
            if released.ended.is_none() {
                let end = layers.complete(at + Nanos(3 * MS), id, io(IoKind::Write), Ok(()));
                assert_eq!(end, Passage::End(Ok(())));
            }
            if id == 0 {
                let first = layers.trace(0).next().copied().unwrap();
                assert_eq!((first.completed, first.result), (Nanos(MS), Err(Fault::Io)));
            }
        }
        let kept: Vec<(Nanos, Nanos)> =
            layers.trace(0).map(|entry| (entry.submitted, entry.completed)).collect();
        assert_eq!(kept, [(Nanos(10 * MS), Nanos(13 * MS)), (Nanos(20 * MS), Nanos(23 * MS))]);
        let serials =
            |layers: &Layers, from| layers.trace(from).map(|e| e.serial).collect::<Vec<_>>();
        assert_eq!((serials(&layers, 0), layers.traced()), (vec![1, 2], Some(3)));
        assert_eq!(serials(&layers, 2), [2]);
        layers.forget_traced(|id| id == 1);
        assert_eq!((serials(&layers, 0), layers.traced()), (vec![2], Some(3)));
    }

    #[test]
    fn a_stack_that_is_taken_away_lets_go_all_that_it_holds() {
        let mut layers = layers(&["delay=5ms,on=write", "error=100%,on=read", "stragglers=1:9ms"]);
        assert_eq!(layers.submit(Nanos::ZERO, 1, io(IoKind::Write)), Passage::Held);
        assert_eq!(layers.submit(Nanos::ZERO, 2, io(IoKind::Flush)), Passage::Start);
        assert_eq!(layers.complete(Nanos(MS), 2, io(IoKind::Flush), Ok(())), Passage::Held);
        let evicted = |layers: &mut Layers| layers.evict(Nanos(MS)).map(|r| (r.id, r.ended));
        assert_eq!(evicted(&mut layers), Some((1, None)), "it has still to be executed");
        assert_eq!(evicted(&mut layers), Some((2, Some(Ok(())))));
        assert_eq!((evicted(&mut layers), layers.next_event()), (None, None));
    }

    proptest! {
        /// Every request comes back exactly once, whatever the layers do, and releases are in the
        /// order of time.
        #[test]
        fn every_request_ends_once(
            steps in prop::collection::vec((0u64..3 * MS, 0u8..4), 1..300)
        ) {
            let mut layers = layers(&[
                "stall=3ms/40ms", "stragglers=3:7ms", "delay=2ms,on=read", "rate=900", "error=20%,seed=3", "trace=5",
            ]);
            let kinds = [IoKind::Read, IoKind::Write, IoKind::Flush, IoKind::Discard];
            let (mut now, mut ended, mut started) = (Nanos::ZERO, Vec::new(), VecDeque::new());
            let mut last = Nanos::ZERO;
            for (id, (passed, kind)) in (0u64..).zip(&steps) {
                now += Nanos(*passed);
                match layers.submit(now, id, io(kinds[usize::from(*kind)])) {
                    Passage::Start => started.push_back((id, io(kinds[usize::from(*kind)]))),
                    Passage::End(_) => ended.push(id),
                    Passage::Held => {}
                }
                if let Some((id, io)) = started.pop_front()
                    && let Passage::End(_) = layers.complete(now, id, io, Ok(()))
                {
                    ended.push(id);
                }
                while let Some(released) = layers.poll(now) {
                    prop_assert!(released.at >= last && released.at <= now);
                    last = released.at;
                    match released.ended {
                        None => started.push_back((released.id, released.io)),
                        Some(_) => ended.push(released.id),
                    }
                }
            }
            while layers.held() > 0 || !started.is_empty() {
                now = layers.next_event().unwrap_or(now).max(now);
                while let Some(released) = layers.poll(now) {
                    match released.ended {
                        None => started.push_back((released.id, released.io)),
                        Some(_) => ended.push(released.id),
                    }
                }
                for (id, io) in std::mem::take(&mut started) {
                    if let Passage::End(_) = layers.complete(now, id, io, Ok(())) {
                        ended.push(id);
                    }
                }
            }
            ended.sort_unstable();
            prop_assert_eq!(ended, (0..steps.len() as u64).collect::<Vec<_>>());
        }
    }
}
