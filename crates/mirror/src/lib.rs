//! The live move of one disk from one storage to another while its guest uses it.
//!
//! The disk is copied once, from its beginning to its end. What the guest changes behind the copy
//! goes to both sides and is answered when both have it, so nothing has to be copied twice. When
//! all is copied and durable, one record says that the target counts. Until then the target is
//! nothing but a copy that may be thrown away.
//!
//! [`Mirror`] is told what happens and says what to do. It knows neither clock nor storage, and
//! allocates nothing once it is made. Its sibling [`instant`] makes a copy as of one instant, and
//! [`changes`] knows what changed from one such copy to the next, and [`stamp`] whether somebody
//! changed an image while nobody noted that.
//!
//! | what | where |
//! |---|---|
//! | the guest's requests | [`Mirror::request`], [`Action::Answer`] |
//! | what storages do | [`Action::Send`], [`Mirror::done`], [`Mirror::found`] |
//! | the copy; its caller sets the pace | [`Mirror::copy`] |
//! | what outlives the machine | [`Action::Record`], [`Mirror::recorded`], [`Recovery`] |
//! | pause, end | [`Mirror::pause`], [`Mirror::cancel`], [`Mirror::lose_target`] |
//!
//! ```
//! use headgate_mirror::*;
//! use headgate_units::Bytes;
//!
//! let mut out = Vec::new();
//! let size = Bytes::from_gib(10);
//! let setup = Setup { size, target: TargetContent::Zeroes, limits: Limits::default() };
//! let mut mirror = Mirror::new(setup, &mut out)?;
//! assert_eq!(out.pop(), Some(Action::Record(Record::Started)));
//! mirror.recorded(Word::Made, &mut out)?;
//!
//! // The first step: the source says that it begins with a hole, and that is all there is to it.
//! assert_eq!(mirror.copy(&mut out), Turn::Began);
//! out.clear();
//! mirror.found(StepId(0), Found::Hole, Bytes::from_mib(64), &mut out)?;
//!
//! // A write behind it goes to both sides.
//! let extent = Extent::new(Bytes(0), Bytes::from_kib(4)).ok_or("not empty")?;
//! let write = Request::Write(extent, Durability::Cached);
//! mirror.request(RequestId(7), write, &mut out)?;
//! assert_eq!(out.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rules
//! 1. **Order.** Of two requests that overlap and of which one changes something, the one that came
//!    first is over before the other is sent. A step of the copy stands in the same order, but
//!    reads pass it, and so do writes and zeroes of what it is not just writing: they go to both
//!    sides, and what they bring is not the step's to write. Nobody is overtaken by somebody whom
//!    he waits for.
//! 2. **Sides.** Until the switch, reads go to the source. A change goes to both sides if any of it
//!    lies before the *cursor*, the end of what steps have found, or if it passes a step, else to
//!    the source alone. Flushes go to both sides once something else has.
//! 3. **Answers.** What went to both sides is answered when both have ended it, as the side that
//!    counts ended it.
//! 4. **Steps.** A step ends before the first change under way ahead of it, or waits for that if it
//!    begins there. It has the source say what is there, moves the cursor as far as that goes,
//!    reads, and writes what no change has passed, stretch by stretch. The stretch that is being
//!    written is its own. A hole is passed if nothing was ever sent to a target of
//!    zeroes from there on, else it is made, in the same way.
//! 5. **Again.** A change that the source failed and the target did not is copied again. A flush or
//!    a write through that the source failed ends the move, and so does a step that it failed.
//! 6. **Target.** Until the record of the switch is asked for, a failure of the target ends the
//!    move. Nobody waits for the target any more, and the source has the disk.
//! 7. **Switch.** When nothing is left to copy, and no change that has passed a step is under way,
//!    the target is flushed. When that is done, flushes
//!    and writes through that were sent before end too. If there is still nothing to copy, the
//!    switch is recorded. Changes go on being mirrored meanwhile.
//! 8. **Doubt.** While the record is being made nobody knows which side counts. What no side has
//!    failed is answered, the rest waits for the word. Nothing ends the move now. *Made*: the
//!    target counts, alone. *Not made*: it is as before the last flush, and the next invitation to
//!    copy tries again. *Unknown*: it stays so, until the caller has read the journal. A flush or a
//!    write through that the source failed has failed whatever the word, and the source is waited
//!    for: reads may have shown what it has lost.
//! 9. **End.** The copy that does not count is given up when nothing is under way there.
//!
//! # Why it is right
//! *One disk.* By rule 1 overlapping requests happen one after the other, whatever each side makes
//! of concurrency. That is the order in which the guest may think of them: one storage may do two
//! overlapping writes in this order and the other in that, and then the sides would differ for
//! ever. It also makes each read see whole changes only. So none sees a change that the other side
//! lacks, and then loses it by the switch.
//!
//! *The invariant.* For each byte before the cursor that no step and no change is at work on, and
//! that is not noted to be copied again, the sides are alike. A step makes it so for what it
//! writes: that is what it has read, for nobody changed it since it was looked at (rules 1 and 4).
//! A change keeps it so: behind the cursor both sides take it, or rule 5 or 6 speaks, and one that
//! passes a step makes it so for what it brings, whatever the step has seen of it. It is at work on
//! that until both sides have it, and no step writes there any more. One that is sent to the
//! source alone lies ahead of the cursor as it is sent, and no step passes it before it is over. A
//! failed flush may take back what was read already, on either side, so nothing is known of the
//! sides afterwards: rules 5 and 6 end the move.
//!
//! *Durability.* The record of the switch is asked for after a flush of the target that was sent
//! when every step was over. So what was copied is durable there, and what was mirrored before. Of
//! what came later, a flush that was answered went to both sides. A flush may be believed only if
//! no other failed before it unheard: storages report the loss of a cache once. That is why rule 7
//! waits for those under way.
//!
//! *The switch.* The record is one durable word. Before it the source has everything that was
//! answered, for all changes went there. After it the target has: by rule 8 nothing was answered
//! while the record was made that the target does not have. So a crash may fall on either side.
//!
//! One gap is known: a source that fails a flush, and loses its cache, while the record is being
//! made (`docs/decisions/0086-live-moves.md`).
//!
//! *No pause.* A request waits for requests and for writing steps that it overlaps, and for nothing
//! else: a change for no more than one write of the copy at the target, discards aside, and a ninth
//! change that passes a step in a place of its own.
//!
//! # After a crash
//! [`Recovery`] says by the last record which copy is the disk. The other is removed, or the move
//! begins anew: changes that were under way may be on one side only, and nobody noted where. An
//! intent record before each first change of a region would save the copying, at the price of a
//! durable write before such a change is sent.
//!
//! # What the caller owes
//! - Both sides write the same bytes. A guest may change its buffer while it is written, so what
//!   goes to both sides is copied out of the guest's memory first.
//! - A buffer lives until everything that was sent for its request has ended, also what is not
//!   waited for any more.
//! - What is sent may be carried out in any order. A storage that reported an error of a flush
//!   before the move began is not to be moved from.
//! - A storage that does not answer is the caller's to judge: [`Mirror::lose_target`].
//! - Between two words `Unknown` the caller reads the journal, and repeats that until it can.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
pub mod changes;
mod error;
mod extent;
pub mod instant;
mod journal;
mod mirror;
mod order;
mod passed;
mod redo;
mod request;
pub mod stamp;

pub use action::{Action, Outcome, Turn};
pub use error::{NotCancelled, NotTaken, Operation, Reason, Refused, SetupError, Unexpected};
pub use extent::Extent;
pub use journal::{Record, Recovery, Word};
pub use mirror::{Limits, Mirror, Progress, Setup, State, TargetContent};
pub use request::{
    Answer, Completion, Durability, Found, Job, Op, Request, RequestId, Side, StepId, Unmap,
};
