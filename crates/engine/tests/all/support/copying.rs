//! Copies as of one instant, and a client at work that knows the history of each block.

use super::moving::{BLOCK, Numbers, SIZE};
use super::{Answer, Client, PATIENCE};
use headgate_engine::request::{Durability, Op, Unmap, ZeroSpeed};
use headgate_engine::{
    CopyEvent, CopyGauge, CopyId, CopySpec, CopyTerms, DiskId, Engine, Listening, Sharing,
};
use headgate_mirror::TargetContent;
use headgate_mirror::instant::{Limits, Outcome};
use headgate_qos::Policy;
use headgate_units::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, channel};

/// A copy, and what was told of it.
pub struct Copier {
    pub id: CopyId,
    pub gauge: CopyGauge,
    pub events: Receiver<CopyEvent>,
}

pub fn spec(
    source: DiskId,
    target: DiskId,
    content: TargetContent,
) -> (CopySpec, CopyGauge, Receiver<CopyEvent>) {
    let (tell, events) = channel();
    let listener = Box::new(move |event| match tell.send(event) {
        Ok(()) => Listening::Yes,
        Err(_) => Listening::Gone,
    });
    let (pace, patience, gauge) = (Policy::default(), Nanos::from_secs(20), CopyGauge::default());
    let limits = Limits::default();
    let (sharing, shown) = (Sharing::Never, gauge.clone());
    let terms = CopyTerms { sharing, content, pace, limits, patience, gauge: shown, listener };
    (CopySpec { source, target, terms }, gauge, events)
}

impl Copier {
    pub fn begin(engine: &Engine, source: DiskId, target: DiskId) -> Copier {
        Copier::of(engine, spec(source, target, TargetContent::Zeroes))
    }

    pub fn of(
        engine: &Engine,
        (spec, gauge, events): (CopySpec, CopyGauge, Receiver<CopyEvent>),
    ) -> Copier {
        Copier { id: engine.begin_copy(spec).unwrap(), gauge, events }
    }

    pub fn next(&self) -> CopyEvent {
        self.events.recv_timeout(PATIENCE).unwrap()
    }

    pub fn ends(&self, outcome: Outcome) {
        assert_eq!(self.next(), CopyEvent::Ended(outcome));
        assert_eq!(self.next(), CopyEvent::Released);
        assert!(self.gauge.get().is_none(), "it shows something still");
    }
}

/// What a request makes of blocks: a write says its number in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Write,
    Zero,
    /// It zeroes them, or leaves some as they are.
    Discard,
}

#[derive(Debug)]
struct Request {
    change: Change,
    blocks: std::ops::Range<u64>,
    /// Moments at which it was sent, and answered.
    sent: u64,
    answered: Option<u64>,
}

struct UnderWay {
    number: u64,
    op: Op,
    offset: u64,
    len: u64,
    answer: Receiver<Answer>,
}

/// A client that notes what it has asked for, and when. Requests that are under way together do not
/// overlap, so each block has one history.
pub struct Historian<'a> {
    client: &'a Client,
    numbers: Numbers,
    moment: u64,
    requests: BTreeMap<u64, Request>,
    under_way: Vec<UnderWay>,
    next: u64,
}

/// Whether it writes only, so that each block says who wrote it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    Everything,
    Writes,
}

impl<'a> Historian<'a> {
    pub fn new(client: &'a Client, seed: u64) -> Historian<'a> {
        let (requests, under_way) = (BTreeMap::new(), Vec::new());
        Historian { client, numbers: Numbers::new(seed), moment: 0, requests, under_way, next: 1 }
    }

    /// The present moment. Each is one of its own.
    pub fn now(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Whether only writes are under way that change anything.
    pub fn only_writes(&self) -> bool {
        let zeroes = |asked: &UnderWay| {
            self.requests.get(&asked.number).is_some_and(|known| known.change != Change::Write)
        };
        !self.under_way.iter().any(zeroes)
    }

    pub fn done(&self) -> usize {
        self.requests.values().filter(|request| request.answered.is_some()).count()
    }

    fn block(number: u64) -> Vec<u8> {
        let mut block = vec![number as u8; BLOCK as usize];
        block[..8].copy_from_slice(&number.to_le_bytes());
        block
    }

    pub fn step(&mut self, asks: Asks, depth: usize) {
        let blocks = SIZE / BLOCK;
        let len = [1, 1, 1, 2, 16, 64][self.numbers.below(6) as usize];
        let first = self.numbers.below(blocks - len);
        let (offset, bytes) = (first * BLOCK, len * BLOCK);
        let free =
            |other: &UnderWay| other.offset + other.len <= offset || offset + bytes <= other.offset;
        if self.under_way.iter().all(free) {
            let fua = self.numbers.below(8) == 0;
            let when = if fua { Durability::Fua } else { Durability::Cached };
            let (op, change) = match self.numbers.below(16) {
                0 if asks == Asks::Everything => (Op::Flush, None),
                1..=2 if asks == Asks::Everything => (Op::Discard, Some(Change::Discard)),
                3..=4 if asks == Asks::Everything => {
                    let unmap = if fua { Unmap::May } else { Unmap::MustNot };
                    let speed = ZeroSpeed::Any;
                    (Op::WriteZeroes { unmap, speed, durability: when }, Some(Change::Zero))
                }
                5..=7 => (Op::Read, None),
                _ => (Op::Write(when), Some(Change::Write)),
            };
            let number = self.next;
            self.next += 1;
            let data = match op {
                Op::Write(_) => Historian::block(number).repeat(len as usize),
                Op::Read => vec![0; bytes as usize],
                _ => Vec::new(),
            };
            let sent = self.now();
            if let Some(change) = change {
                let blocks = first..first + len;
                self.requests.insert(number, Request { change, blocks, sent, answered: None });
            }
            let (at, size) = if op == Op::Flush { (0, 0) } else { (offset, bytes) };
            let answer = self.client.start(op, at, size, data, 0);
            self.under_way.push(UnderWay { number, op, offset: at, len: size, answer });
        }
        // In any order, as they come.
        let mut n = 0;
        while n < self.under_way.len() {
            match self.under_way[n].answer.try_recv() {
                Ok(answer) => self.hear(n, &answer),
                Err(_) => n += 1,
            }
        }
        while self.under_way.len() > depth {
            let answer = self.under_way[0].answer.recv_timeout(PATIENCE).unwrap();
            self.hear(0, &answer);
        }
    }

    fn hear(&mut self, n: usize, (result, ..): &Answer) {
        let asked = self.under_way.remove(n);
        result.unwrap_or_else(|e| panic!("{:?} at {}: {e}", asked.op, asked.offset));
        let moment = self.now();
        if let Some(request) = self.requests.get_mut(&asked.number) {
            request.answered = Some(moment);
        }
    }

    pub fn settle(&mut self) {
        while !self.under_way.is_empty() {
            let answer = self.under_way[0].answer.recv_timeout(PATIENCE).unwrap();
            self.hear(0, &answer);
        }
    }

    /// Whether this is the disk as of one instant between two moments: what was answered before
    /// the first is in it, what was sent after the second is not, each request in between is or is
    /// not as a whole, and none is without one that was answered before it was sent.
    pub fn check(&self, image: &[u8], (from, to): (u64, u64)) {
        let mut history: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (&number, request) in &self.requests {
            for block in request.blocks.clone() {
                history.entry(block).or_default().push(number);
            }
        }
        let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
        for (block, content) in image.chunks(BLOCK as usize).enumerate() {
            let known = history.get(&(block as u64)).map_or(&[][..], Vec::as_slice);
            // Numbers rise with the moments at which requests were sent.
            let is_zero = content.iter().all(|byte| *byte == 0);
            let says = |number: &u64| match self.requests[number].change {
                Change::Write => content == Historian::block(*number),
                Change::Zero | Change::Discard => is_zero,
            };
            // What was answered before the window, and is not hidden by later ones, comes first.
            let before = known
                .iter()
                .rposition(|n| self.requests[n].answered.is_some_and(|answered| answered < from));
            let first = before.map_or(0, |n| n + 1);
            let open: Vec<u64> =
                known[first..].iter().copied().filter(|n| self.requests[n].sent <= to).collect();
            let last = open.iter().rposition(&says);
            // Up to the last one that must have been done.
            let done = known[..first].iter().rev();
            let must = |number: &&u64| self.requests[number].change != Change::Discard;
            let discards = done.clone().take_while(|number| !must(number)).count() > 0;
            let is_old = (discards && is_zero) || done.clone().find(must).map_or(is_zero, says);
            assert!(
                is_old || last.is_some(),
                "block {block} is of no time in {from}..{to}: {:?}, last {:?}",
                &content[..8],
                known.iter().map(|n| (*n, &self.requests[n])).collect::<Vec<_>>()
            );
            // In the window there are writes only, which say which of them was the last.
            let shown = if is_old { 0 } else { last.map_or(0, |n| n + 1) };
            inside.extend(&open[..shown]);
            outside.extend(&open[shown..]);
        }
        let torn: Vec<_> = inside.intersection(&outside).collect();
        assert!(torn.is_empty(), "in one block and not in another: {torn:?}");
        for number in &inside {
            let sent = self.requests[number].sent;
            for missing in &outside {
                let answered = self.requests[missing].answered;
                assert!(
                    answered.is_none_or(|answered| answered > sent),
                    "{number} is there without {missing}, which was answered before it was sent"
                );
            }
        }
    }
}
