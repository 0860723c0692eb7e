//! Which command follows which answer, until a device is reserved for this host or is not to be
//! had. Pure: no device is spoken to here.

use super::key::{Cover, FenceKey, key_text};
use super::parse::{Kind, Registrants, Reservation};
use thiserror::Error;

/// How often a claim looks at the device: others that claim at the same time change what it saw.
pub const ROUNDS: u8 = 6;

/// From whom a device may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// From nobody: what earlier daemons of this host have left is its own.
    Own,
    /// From a host whose reservation a lease [covered](Cover::Lease): that lease is this host's now.
    Lease,
    /// From any host of Headgate's: an operator evicts it.
    Evict,
}

/// A command to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// READ KEYS and READ RESERVATION.
    Read,
    /// REGISTER AND IGNORE EXISTING KEY, with this host's key.
    Register,
    /// RESERVE: Write Exclusive, Registrants Only.
    Reserve,
    /// PREEMPT AND ABORT of this key, to the same type.
    Preempt(u64),
    /// REGISTER of no key in the place of this host's.
    Unregister,
}

/// What the device answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// To [`Step::Read`].
    Seen(Registrants),
    /// It did so.
    Done,
    /// RESERVATION CONFLICT: it is not as was thought.
    Conflict,
    /// Nobody knows what it did.
    Failed,
}

/// Why a device is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum Refusal {
    /// Another host has it reserved.
    #[error(
        "the device is reserved by another host of Headgate's, with the key {key} (its host id begins with {})",
        key.host()
    )]
    Held {
        /// That host's key.
        key: FenceKey,
    },
    /// Somebody else uses persistent reservations on it.
    #[error("the key {} is registered with the device, which is none of Headgate's", key_text(*key))]
    Foreign {
        /// The key.
        key: u64,
    },
    /// This host's own key has it reserved in a way in which Headgate never does.
    #[error("the device is reserved with this host's key, and the type is {}", kind.as_str())]
    Kind {
        /// The type.
        kind: Kind,
    },
    /// Others claim it all the time.
    #[error("others claim the device at the same time: the reservation changed {ROUNDS} times")]
    Contended,
    /// A command failed.
    #[error("the device failed a command of persistent reservations")]
    Failed,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// This command; its answer goes to [`Claim::on`].
    Do(Step),
    /// The device is this host's, and no other key is registered.
    Reserved,
    /// It is not to be had, and no key of this claim is left there.
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Looking,
    /// A command that changes something was sent; whatever it came to, the device says.
    Changing,
    Registering,
    Leaving(Refusal),
}

/// A claim of a device.
///
/// What a device does with RESERVE and PREEMPT decides between hosts that claim it at the same
/// time: RESERVE succeeds for one of them, and so does PREEMPT of one key. A claim believes no
/// answer of these, but looks again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    own: FenceKey,
    right: Right,
    stage: Stage,
    registered: bool,
    rounds: u8,
}

impl Claim {
    /// Begins. Nothing of an earlier claim of this host may be in the kernel any more.
    pub fn begin(own: FenceKey, right: Right) -> (Claim, Step) {
        let claim = Claim { own, right, stage: Stage::Looking, registered: false, rounds: 0 };
        (claim, Step::Read)
    }

    /// Takes the answer to the step that was last asked for.
    pub fn on(&mut self, answer: &Answer) -> Next {
        match (&self.stage, answer) {
            (Stage::Leaving(refusal), _) => Next::Refused(refusal.clone()),
            (_, Answer::Failed) => self.leave(Refusal::Failed),
            (Stage::Looking, Answer::Seen(seen)) => self.see(seen),
            // To be told so to a question, or to REGISTER AND IGNORE, is none of the answers that
            // there are.
            (Stage::Looking, _) | (Stage::Registering, Answer::Conflict) => {
                self.leave(Refusal::Failed)
            }
            (Stage::Changing | Stage::Registering, _) => {
                self.stage = Stage::Looking;
                Next::Do(Step::Read)
            }
        }
    }

    fn see(&mut self, seen: &Registrants) -> Next {
        self.rounds += 1;
        if let Some(refusal) = self.objection(seen) {
            return self.leave(refusal);
        }
        if self.rounds > ROUNDS {
            return self.leave(Refusal::Contended);
        }
        let own = self.own.number();
        if !self.registered || !seen.keys.contains(&own) {
            self.registered = true;
            self.stage = Stage::Registering;
            return Next::Do(Step::Register);
        }
        self.stage = Stage::Changing;
        match seen.reservation {
            None => Next::Do(Step::Reserve),
            Some(Reservation { key, .. }) if key != own => Next::Do(Step::Preempt(key)),
            // Who is registered may write. Nobody but the holder does, but nobody has to.
            Some(_) => match seen.keys.iter().find(|key| **key != own) {
                Some(other) => Next::Do(Step::Preempt(*other)),
                None => Next::Reserved,
            },
        }
    }

    fn objection(&self, seen: &Registrants) -> Option<Refusal> {
        let holder = seen.reservation;
        let foreign = |key: &u64| FenceKey::read(*key).is_none();
        let keys = holder.iter().map(|holder| holder.key).chain(seen.keys.iter().copied());
        if let Some(key) = keys.into_iter().find(foreign) {
            return Some(Refusal::Foreign { key });
        }
        let Reservation { key, kind } = holder?;
        let key = FenceKey::read(key)?;
        if key == self.own {
            return (kind != Kind::WRITE_EXCLUSIVE_REGISTRANTS).then_some(Refusal::Kind { kind });
        }
        let may_be_taken = key.is_same_host(self.own)
            || match self.right {
                Right::Own => false,
                Right::Lease => key.cover() == Cover::Lease,
                Right::Evict => true,
            };
        (!may_be_taken).then_some(Refusal::Held { key })
    }

    fn leave(&mut self, refusal: Refusal) -> Next {
        if !self.registered {
            return Next::Refused(refusal);
        }
        self.stage = Stage::Leaving(refusal);
        Next::Do(Step::Unregister)
    }
}

/// Whether a device is still this host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Yes.
    Held,
    /// No.
    Lost {
        /// Whose it is, if anybody's.
        to: Option<Reservation>,
    },
}

/// Judges what a device says of itself, once it was claimed with this key.
pub fn standing(own: FenceKey, seen: &Registrants) -> Standing {
    let ours = Reservation { key: own.number(), kind: Kind::WRITE_EXCLUSIVE_REGISTRANTS };
    match seen.reservation {
        Some(found) if found == ours && seen.keys.contains(&ours.key) => Standing::Held,
        to => Standing::Lost { to },
    }
}
