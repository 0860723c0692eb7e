//! A copy of one disk as of one instant, made while its guest writes on.
//!
//! At one instant the copy begins. It ends with a target that durably holds the disk as it was at
//! that instant, whatever the guest has changed meanwhile. The disk stays the source: nothing that
//! happens to the copy fails a request of the guest, or keeps it waiting for ever. Snapshots and
//! backups are made of this. Elsewhere it is called a point-in-time copy, and its way of working
//! copy-before-write.
//!
//! [`PointInTime`] is told what happens and says what to do. It knows neither clock nor storage,
//! and allocates nothing once it is made.
//!
//! | what | where |
//! |---|---|
//! | requests from before the instant | [`PointInTime::drained`] |
//! | the guest's requests | [`PointInTime::request`], [`Action::Answer`] |
//! | what storages do | [`Action::Send`], [`PointInTime::done`], [`PointInTime::found`], [`PointInTime::read_zeroes`] |
//! | a target that shares blocks | [`Keeps`], [`PointInTime::read_part`], [`PointInTime::refused`] |
//! | the copy in order; its caller sets the pace | [`PointInTime::copy`] |
//! | the end | [`Action::Ended`], [`Action::Release`], [`PointInTime::cancel`], [`PointInTime::lose_target`] |
//!
//! ```
//! use headgate_mirror::instant::*;
//! use headgate_mirror::*;
//! use headgate_units::Bytes;
//!
//! let mut out = Vec::new();
//! let size = Bytes::from_gib(10);
//! let (target, keeps) = (TargetContent::Zeroes, Keeps::Buffers);
//! let setup = Setup { size, target, keeps, limits: Limits::default() };
//! let mut copy = PointInTime::new(setup)?;
//! // No change from before is under way.
//! copy.drained(Completion::Done, &mut out)?;
//!
//! // A write: what it would destroy is read first, the whole chunk.
//! let extent = Extent::new(Bytes::from_kib(8), Bytes::from_kib(4)).ok_or("not empty")?;
//! let write = Request::Write(extent, Durability::Cached);
//! copy.request(RequestId(7), write, &mut out)?;
//! let chunk = Extent::new(Bytes(0), copy.chunk()).ok_or("not empty")?;
//! let (side, job, op) = (Side::Source, Job::Copy(StepId(0)), Op::Read(chunk));
//! assert_eq!(out, [Action::Send { side, job, op }]);
//! out.clear();
//!
//! // It has been read: the target gets it, and the source gets the write.
//! copy.done(Side::Source, Job::Copy(StepId(0)), Completion::Done, &mut out)?;
//! assert_eq!(out.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the machine promises
//! *The instant* lies between the making of the machine and [`PointInTime::drained`]. The disk as
//! of then has every change that ended before, of those that were under way what they left, and
//! nothing of what came to the machine.
//!
//! - With [`Outcome::Complete`] the target durably holds the disk as of the instant: each byte.
//! - The guest's requests are answered once each, as the source ended them. No answer waits for
//!   the target but where this says so.
//! - Reads and flushes are sent to the source in the call that brings them.
//! - So is a change, if all of its chunks are copied. Else it waits for one read of the chunks that
//!   it touches, and before that for [`PointInTime::drained`], and for room: for a buffer or a
//!   step, if all of them are taken. Who waits for room gets it in order of arrival. What a change
//!   waits for at the target is only that room.
//! - A discard waits for nothing: what of it is copied is discarded, up to [`DISCARD_PIECES`]
//!   stretches, and the rest is left out. All of it may be.
//! - Zeroes that reach far are done piece by piece, and wait for room anew with each. They are
//!   answered when all is done.
//! - No more is sent than the [`Limits`] say, and no byte of the target is written twice.
//! - The target of zeroes stays as it was made where the source has a hole, and where zeroes were
//!   read, if the caller looks. A copy is never larger than the disk, and may be smaller: zeroes
//!   that are allocated at the source need not be at the target.
//! - After [`Action::Ended`] nothing waits for the copy. After [`Action::Release`] nothing of it is
//!   under way.
//!
//! # How it ends
//! *Complete* when all is read, the target has it, the target is flushed, and each flush and write
//! through that the source was sent before all was read has ended. *Given up* when anything fails
//! at the target; when a read of a step fails; when a flush or a write through of the guest fails
//! that the source was sent before all was read, for with it may go what the disk held at the
//! instant; and when the target is lost. Other failures of the guest's requests are the guest's,
//! and those of examinations nobody's.
//!
//! # Rules
//! A chunk is *frozen* until it is *copied*: until its content as of the instant has been read into
//! a buffer; or is known to be zeroes, and the target is sent that if it has to be.
//!
//! 1. **Changes.** Nothing that changes any of a frozen chunk is sent to the source. All else is
//!    sent as it comes, in no order.
//! 2. **Before.** Nothing is read or examined until the requests from before have ended.
//! 3. **Steps.** A step reads frozen chunks side by side that no other step reads, and they are
//!    copied when the read has ended. It then has the target write what it read. Zeroes are passed
//!    where the target is of zeroes, else they are made. What an examination finds holds for those
//!    of its chunks that are frozen still, and it keeps nobody from reading them.
//!    A target that shares the source's blocks has what it shares when the read has ended, so that
//!    takes no buffer, and one step in order reads all that was found. What it shared less of, or
//!    refused, stays frozen, and is read by other steps; after a refusal in buffers.
//! 4. **Need.** A change has steps made at once for what it touches and nobody reads. A write goes
//!    when all of it is copied. Zeroes go as far as they are copied, if that is a step's worth or
//!    the rest; while they have more than that left, they examine first, have one step at a time at
//!    the source, and then let others go first.
//! 5. **Room.** Buffers and steps go to changes by their order. If one has to wait for them, nobody
//!    behind it gets any, and the copy in order none at all. That uses half of the buffers at most.
//! 6. **Discards** go for what is copied, stretch by stretch, and are done when the stretches are.
//! 7. **Failures.** [How it ends](#how-it-ends).
//! 8. **End.** When all chunks are copied and all steps over, the target is flushed. When that is
//!    done, and each flush and write through has ended that was sent while something was frozen,
//!    the copy is complete.
//!
//! # Why it is right
//! *One instant.* Between the end of the requests from before and the first copied chunk no change
//! is under way at the source: by rule 1 there can be none, for all chunks are frozen. That state
//! is the disk as of the instant. A frozen chunk still has it, and nobody changes it while it is
//! read, so no chunk is torn, and what a step reads is of the instant whenever it reads. This is
//! also why an examination needs no lock, and why what it found does not grow old.
//!
//! *No order among the guest's requests.* There is one disk, so there are no sides that could come
//! to differ. Two overlapping requests without an answer may be done in either order by any
//! storage, and zeroes in pieces beside a write too, block by block. A change that waits is a
//! change that the storage has not begun: a read may pass it. So no request waits for another.
//!
//! *Flushes.* A flush speaks of what was answered before it. What is held back was not answered,
//! and what was answered is at the source. The target need be durable at its end only.
//!
//! *The write goes when the read has ended*, not when the target has it. If the buffer is lost,
//! with the machine or because the target fails, then so is the copy, and nobody needs it.
//!
//! *Losses.* A storage that fails to make something durable may have lost what it held in a cache,
//! frozen chunks too, and may have shown that to reads before it told. So the copy is given up, and
//! is not complete before all have ended that could tell. The machine flushes only the target:
//! storages tell of a loss once, and the guest has to hear it. A loss that nobody was told of by
//! then is in the copy, as it is in what the guest reads.
//!
//! *Nobody waits for ever*, if storages end what they are sent. A step waits for a storage only.
//! Steps end, so there is room again, and one chunk fits into all of the buffers. The first in the
//! order that needs room gets it; zeroes go behind the others with each piece. A chunk is copied
//! once, so a guest that fills all room with its changes copies the disk by that.
//!
//! # Memory
//! The caller's buffers: [`Limits::buffers`] at most. The machine's: one bit for each *chunk*, the
//! smallest power of two of bytes, at least [`Limits::chunk`], with which they fit into
//! [`Limits::bitmap`]; and about 100 bytes for each request of the limits, and less for a step.
//! With the default limits, chunks are of 64 KiB up to disks of 512 GiB, and of 1 MiB at 8 TiB.
//!
//! # What the caller owes
//! - All requests of the guest from the making on come to the machine. Nobody else changes the
//!   source, and nobody else uses the target.
//! - [`PointInTime::drained`] is called when each change and flush that the source was sent before
//!   has ended. Reads need not have.
//! - A buffer of the guest lives until its request is answered. That of a step lives from its read
//!   to its end: that of the write at the target, or of the read if the machine sends no write.
//!   That holds too when the copy has ended.
//! - What is sent may be carried out in any order. A storage that reported an error of a flush
//!   before the copy began, is not to be copied from.
//! - A storage that does not answer is the caller's to judge: [`PointInTime::lose_target`].
//! - What is to outlive a crash, the caller records: that there is a target, before it makes it,
//!   and that it is complete, after it heard so. After a crash a target without that word is
//!   removed.

mod action;
mod chunks;
mod error;
mod guests;
mod machine;
mod setup;
mod steps;

pub use action::{Action, Outcome, Reason};
pub use error::{NotTaken, Over, SetupError, Unexpected};
pub use machine::PointInTime;
pub use setup::{DISCARD_PIECES, Keeps, Limits, Progress, Setup, State};
