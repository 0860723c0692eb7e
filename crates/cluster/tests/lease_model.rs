//! Every run of a host that holds a lease, of one that takes its disk, and of the etcd between
//! them: messages take any time or are lost, the holder stands still at any moment and goes on at
//! any other, the successor waits for the end of the lease or evicts. No write of the holder may
//! reach the storage from when the successor serves.
//!
//! States are told apart by what lies before and behind the present instant, so there are finitely
//! many, and all are visited. The holder's rule is [`Term`] itself. Clocks run alike here; those
//! that do not are in the tests of `Term`.

use headgate_cluster::lease::{Duty, Term, Terms};
use headgate_units::Nanos;
use std::collections::HashSet;

/// Time passes in steps of half a second: a lease lasts six, of which its holder uses four.
const STEP: Nanos = Nanos::from_millis(500);
const TTL: i8 = 6;
const MARGIN: i8 = 2;
/// What lies longer ago than this makes no difference to anybody.
const LONG_AGO: i8 = -TTL - 1;

fn terms() -> Terms {
    let steps = |n: i8| Nanos(STEP.0 * u64::from(n.unsigned_abs()));
    Terms::new(steps(TTL), steps(MARGIN)).unwrap()
}

/// What keeps the holder from its disk, and how long what it has begun may take.
#[derive(Clone, Copy, Debug)]
struct Rules {
    check: Check,
    count: Count,
    /// The longest time of a write at the storage, in steps.
    slowest: i8,
    /// How long a successor waits after an eviction, in steps.
    wait: i8,
}

/// Where the term is compared with the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// As a write is handed to the storage.
    AtSubmission,
    /// As it is dispatched, which is some time before.
    AtDispatch,
    /// By another thread, now and then.
    ByGuard,
}

/// What a term counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    /// When it was asked for.
    FromQuestion,
    /// When the answer came.
    FromAnswer,
}

const SOUND: Rules =
    Rules { check: Check::AtSubmission, count: Count::FromQuestion, slowest: MARGIN, wait: TTL };

/// A question to etcd. Instants are relative to the present, as all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Message {
    None,
    /// On its way there: to prolong the lease, or for a new one.
    Asked {
        at: i8,
        new: bool,
    },
    /// The lease was prolonged; whose the disk is will be read.
    Prolonged {
        at: i8,
    },
    /// On its way back: whether the disk is still the holder's.
    Answered {
        at: i8,
        holds: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Holder,
    Nobody,
    Successor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    /// What the holder's term counts from, if it has one.
    counts_from: Option<i8>,
    /// Until when the holder may write, as all its threads see it.
    until: Option<i8>,
    /// What its guard said last.
    serves: bool,
    /// A write is dispatched and not at the storage.
    dispatched: bool,
    message: Message,
    /// When the last of the holder's writes may take effect, if that lies ahead.
    effect: Option<i8>,
    /// When the holder's lease ends by etcd's count.
    lease_ends: Option<i8>,
    owner: Owner,
    /// From when the successor serves. Not after the present once it does.
    successor_from: Option<i8>,
}

const START: State = State {
    counts_from: Some(0),
    until: Some(TTL - MARGIN),
    serves: true,
    dispatched: false,
    message: Message::None,
    effect: None,
    lease_ends: Some(TTL),
    owner: Owner::Holder,
    successor_from: None,
};

impl State {
    /// Whether a write of the holder may take effect when the successor serves.
    fn is_broken(&self) -> bool {
        matches!((self.effect, self.successor_from), (Some(effect), Some(from)) if effect >= from)
    }

    /// Until when the holder may write by its term.
    fn term_until(&self) -> Option<i8> {
        // Far enough from the clock's origin.
        let now = 100;
        let instant = |at: i8| Nanos(STEP.0 * u64::try_from(now + i64::from(at)).unwrap());
        let mut term = Term::granted(terms(), instant(self.counts_from?));
        match term.duty(instant(0)) {
            Duty::Serve { stop_at, .. } => {
                Some(i8::try_from(i64::try_from(stop_at.0 / STEP.0).unwrap() - now).unwrap())
            }
            Duty::Pause { .. } | Duty::Stop => None,
        }
    }

    /// etcd ends what has run out, and may answer or not.
    fn etcd(self) -> Vec<State> {
        let mut state = self;
        if state.lease_ends.is_none() && state.owner == Owner::Holder {
            state.owner = Owner::Nobody;
        }
        let mut all = vec![state];
        let lives = state.lease_ends.is_some();
        match state.message {
            Message::Asked { at, new: false } if lives => all.push(State {
                lease_ends: Some(TTL),
                message: Message::Prolonged { at },
                ..state
            }),
            Message::Asked { at, new: true } if state.owner == Owner::Nobody => all.push(State {
                lease_ends: Some(TTL),
                owner: Owner::Holder,
                message: Message::Answered { at, holds: true },
                ..state
            }),
            Message::Asked { at, .. } => {
                all.push(State { message: Message::Answered { at, holds: false }, ..state });
            }
            Message::Prolonged { at } => {
                let holds = state.owner == Owner::Holder;
                all.push(State { message: Message::Answered { at, holds }, ..state });
            }
            Message::None | Message::Answered { .. } => {}
        }
        if state.message != Message::None {
            all.push(State { message: Message::None, ..state });
        }
        all
    }

    /// The successor takes the disk, or not yet.
    fn successor(self, rules: Rules) -> Vec<State> {
        let taken = |from| State { owner: Owner::Successor, successor_from: Some(from), ..self };
        match self.owner {
            Owner::Nobody => vec![self, taken(0)],
            Owner::Holder => vec![self, taken(rules.wait)],
            Owner::Successor => vec![self],
        }
    }

    /// The holder stands still, or hears, asks, and writes.
    fn holder(self, rules: Rules) -> Vec<State> {
        let mut all = vec![self];
        let mut heard = vec![self];
        if let Message::Answered { at, holds } = self.message {
            let from = if rules.count == Count::FromQuestion { at } else { 0 };
            let later = self.counts_from.map_or(from, |before| before.max(from));
            let counts_from = holds.then_some(later);
            let mut state = State { counts_from, message: Message::None, ..self };
            state.until = state.term_until();
            heard.push(State { serves: state.serves || state.until.is_some(), ..state });
        }
        for state in heard {
            let new = state.counts_from.is_none();
            let asks = State { message: Message::Asked { at: 0, new }, ..state };
            let may_ask = state.message == Message::None;
            for state in [Some(state), may_ask.then_some(asks)].into_iter().flatten() {
                all.extend(state.writes(rules));
            }
        }
        all
    }

    /// What the holder does with its disk in one step: it always has something to write.
    fn writes(self, rules: Rules) -> Vec<State> {
        let lasts = self.until.is_some();
        let written = State { effect: Some(rules.slowest), ..self };
        match rules.check {
            Check::AtSubmission if lasts => vec![written],
            Check::AtSubmission => vec![self],
            // It may be stopped in between, and go on here at another time.
            Check::AtDispatch => {
                let state = if self.dispatched { written } else { self };
                vec![State { dispatched: lasts, ..state }]
            }
            // The guard comes after.
            Check::ByGuard => {
                let state = if self.serves { written } else { self };
                vec![State { serves: lasts, ..state }]
            }
        }
    }

    /// A step of time has passed.
    fn later(self) -> State {
        let ahead = |at: Option<i8>| at.map(|at| at - 1).filter(|&at| at > 0);
        let ago = |at: i8| (at - 1).max(LONG_AGO);
        let message = match self.message {
            Message::None => Message::None,
            Message::Asked { at, new } => Message::Asked { at: ago(at), new },
            Message::Prolonged { at } => Message::Prolonged { at: ago(at) },
            Message::Answered { at, holds } => Message::Answered { at: ago(at), holds },
        };
        let mut state = State {
            counts_from: self.counts_from.map(ago),
            until: ahead(self.until),
            message,
            // A write that takes effect at this very instant still does.
            effect: self.effect.map(|at| at - 1).filter(|&at| at >= 0),
            lease_ends: ahead(self.lease_ends),
            successor_from: self.successor_from.map(|at| (at - 1).max(0)),
            ..self
        };
        if state.counts_from.is_some_and(|at| at <= -TTL) {
            state.counts_from = None;
        }
        state
    }
}

/// Visits all states. Returns their number, and one in which both write.
fn explore(rules: Rules) -> (usize, Option<State>) {
    let mut seen = HashSet::from([START]);
    let mut open = vec![START];
    while let Some(state) = open.pop() {
        if state.is_broken() {
            return (seen.len(), Some(state));
        }
        for state in state.etcd() {
            for state in state.successor(rules) {
                for state in state.holder(rules) {
                    if state.is_broken() {
                        return (seen.len(), Some(state));
                    }
                    let state = state.later();
                    if seen.insert(state) {
                        open.push(state);
                    }
                }
            }
        }
    }
    (seen.len(), None)
}

#[test]
fn no_write_of_a_former_holder_meets_its_successor() {
    let (states, broken) = explore(SOUND);
    println!("{states} states");
    assert_eq!(broken, None);
    assert!(states > 1_000, "only {states} states: the model does next to nothing");
}

#[test]
fn each_part_of_the_rule_is_needed() {
    let wrong = [
        ("a guard stops the disk", Rules { check: Check::ByGuard, ..SOUND }),
        ("the term is checked before the submission", Rules { check: Check::AtDispatch, ..SOUND }),
        ("terms count from answers", Rules { count: Count::FromAnswer, ..SOUND }),
        ("writes take longer than the margin", Rules { slowest: MARGIN + 1, ..SOUND }),
        ("a successor that evicts waits less", Rules { wait: TTL - 1, ..SOUND }),
    ];
    for (what, rules) in wrong {
        assert!(explore(rules).1.is_some(), "{what}, and nothing happens");
    }
}
