use super::orders::{Issue, Orders};
use super::pattern::Source;
use crate::random::Stream;
use crate::scenario::Oltp;
use headgate_devices::IoKind;
use headgate_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The terminals of a transaction processing application: a closed queueing network of thinking,
/// processors and storage.
#[derive(Clone)]
pub(crate) struct Terminals {
    disk: usize,
    model: Oltp,
    terminals: Vec<Terminal>,
    /// When each processor is free; empty when there is one for each terminal.
    processors: BinaryHeap<Reverse<Nanos>>,
    log_cursor: u64,
}

#[derive(Clone, Copy)]
struct Terminal {
    stage: Stage,
    began: Nanos,
}

/// The state of a terminal. A number is the requests that it waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Thinking,
    Computing,
    Reading(u32),
    Writing(u32),
    Logging,
}

impl Terminals {
    pub(crate) fn new(disk: usize, model: Oltp) -> Terminals {
        let terminals = Vec::new();
        Terminals { disk, model, terminals, processors: BinaryHeap::new(), log_cursor: 0 }
    }

    pub(crate) fn start(&mut self, now: Nanos, stream: &mut Stream, orders: &mut Orders) {
        self.terminals =
            vec![Terminal { stage: Stage::Thinking, began: now }; self.model.terminals as usize];
        self.processors = (0..self.model.processors).map(|_| Reverse(now)).collect();
        for terminal in 0..self.model.terminals {
            orders.timers.push((now + self.model.think.draw(stream), terminal));
        }
    }

    pub(crate) fn timer(
        &mut self,
        now: Nanos,
        token: u32,
        source: &mut Source,
        stream: &mut Stream,
        orders: &mut Orders,
    ) {
        let Some(terminal) = self.terminals.get_mut(token as usize) else { return };
        if terminal.stage == Stage::Thinking {
            *terminal = Terminal { stage: Stage::Computing, began: now };
            let work = self.model.cpu.draw(stream);
            let begins = self.processors.pop().map_or(now, |Reverse(free)| free.max(now));
            if self.model.processors > 0 {
                self.processors.push(Reverse(begins + work));
            }
            if begins + work > now {
                orders.timers.push((begins + work, token));
                return;
            }
        }
        self.storage(now, token, Stage::Reading(self.model.reads), source, stream, orders);
    }

    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        tag: u32,
        source: &mut Source,
        stream: &mut Stream,
        orders: &mut Orders,
    ) {
        let Some(terminal) = self.terminals.get(tag as usize) else { return };
        let next = match terminal.stage {
            Stage::Reading(left) => Stage::Reading(left.saturating_sub(1)),
            Stage::Writing(left) => {
                let left = left.saturating_sub(1);
                if left > 0 {
                    self.terminals[tag as usize].stage = Stage::Writing(left);
                    return;
                }
                Stage::Logging
            }
            Stage::Logging => return self.end(now, tag, stream, orders),
            // Of the time before a restart.
            Stage::Thinking | Stage::Computing => return,
        };
        self.storage(now, tag, next, source, stream, orders);
    }

    /// Enters a stage of the storage part, or the first after it that has something to do.
    fn storage(
        &mut self,
        now: Nanos,
        tag: u32,
        stage: Stage,
        source: &mut Source,
        stream: &mut Stream,
        orders: &mut Orders,
    ) {
        let mut stage = stage;
        loop {
            self.terminals[tag as usize].stage = stage;
            match stage {
                Stage::Reading(0) => stage = Stage::Writing(self.model.writes),
                Stage::Reading(_) => {
                    orders.issues.push(source.of_kind(IoKind::Read, self.disk, tag, stream));
                    return;
                }
                Stage::Writing(0) => stage = Stage::Logging,
                Stage::Writing(many) => {
                    for _ in 0..many {
                        orders.issues.push(source.of_kind(IoKind::Write, self.disk, tag, stream));
                    }
                    return;
                }
                Stage::Logging => {
                    let Some((disk, bytes)) = self.model.log else {
                        return self.end(now, tag, stream, orders);
                    };
                    let offset = self.log_cursor;
                    self.log_cursor = (self.log_cursor + bytes.0) % (1 << 30);
                    orders.issues.push(Issue { disk, kind: IoKind::Write, offset, bytes, tag });
                    return;
                }
                Stage::Thinking | Stage::Computing => return,
            }
        }
    }

    fn end(&mut self, now: Nanos, tag: u32, stream: &mut Stream, orders: &mut Orders) {
        let terminal = &mut self.terminals[tag as usize];
        orders.transaction = Some(now - terminal.began);
        terminal.stage = Stage::Thinking;
        orders.timers.push((now + self.model.think.draw(stream), tag));
    }
}
