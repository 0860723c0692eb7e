//! The operations of a request on a file, one after the other.

use super::bounce::{BOUNCE, Bounce};
use super::inline::{self, flags};
use super::shared::SharedImage;
use super::submission::Submission;
use super::tenure::Fencing;
use crate::backend::context::Context;
use crate::backend::storage::OpenFile;
use crate::kernel::buffers::{ZERO_BLOCK, ZEROES, remaining};
use crate::kernel::ring::Owner;
use crate::request::{Access, Durability, Extent, ExtentKind, IoError, Op, Step, Unmap, ZeroSpeed};
use crate::tables::lane::Lane;
use crate::tables::slots::Zeroing;
use headgate_units::Bytes;
use io_uring::{opcode, squeue, types::Fixed};

/// So many bytes written count as one read in what a turn moves.
const WRITES_PER_READ: i64 = 4;

/// The file of a request's disk.
#[inline]
fn file_of(ctx: &Context, key: u32) -> Option<&OpenFile> {
    let disk = ctx.tables.slots[key].disk;
    ctx.tables.disks[disk as usize].storage.file()
}

/// Gives the kernel the next step of a request.
pub(crate) fn issue(ctx: &mut Context, key: u32) {
    let tables = &mut ctx.tables;
    let disk = &tables.disks[tables.slots[key].disk as usize];
    let Some(open) = disk.storage.file() else {
        return ctx.end_party(key, Err(IoError::Backend(libc::EBADF)));
    };
    if let Some(memory) = open.image.in_memory()
        && let Some(result) = inline::perform(memory, &mut tables.slots[key])
    {
        // The client of a read has data to work on and may as well begin. That of a write only
        // hears of it.
        let weight = if let Op::Write(_) | Op::PlacedWrite = tables.slots[key].request.op {
            WRITES_PER_READ
        } else {
            1
        };
        ctx.moved(u64::from(result.max(0).unsigned_abs()), weight);
        return on_kernel(ctx, key, result);
    }
    let (file, access, fencing) = (open.fixed, open.image.access(), open.image.tenure().fencing());
    let submission = open.image.submission();
    let slot = &ctx.tables.slots[key];
    let entry = match (slot.step, slot.request.op) {
        (Step::Sync, _) | (_, Op::Flush) => {
            opcode::Fsync::new(file).flags(io_uring::types::FsyncFlags::DATASYNC).build()
        }
        (Step::ZeroFill, _) => zero_fill(ctx, key, file),
        (Step::Main, Op::Read | Op::Write(_)) => transfer(ctx, key, file),
        (Step::Main, Op::Discard) => punch(key, ctx, file),
        (Step::Main, Op::WriteZeroes { unmap: Unmap::May, .. }) => punch(key, ctx, file),
        (Step::Main, Op::WriteZeroes { unmap: Unmap::MustNot, .. }) => zero_range(key, ctx, file),
        (Step::Main, Op::Splice | Op::PlacedWrite) => {
            return ctx.end_party(key, Err(IoError::Unsupported));
        }
        (Step::Main, Op::BlockStatus) => return ask_extents(ctx, key),
        (Step::Main, Op::Share) => return share_blocks(ctx, key),
        (Step::Main, Op::Cache) => {
            if access == Access::Direct {
                return ctx.end_party(key, Ok(()));
            }
            opcode::Fadvise::new(file, slot.request.len as libc::off_t, libc::POSIX_FADV_WILLNEED)
                .offset(slot.request.offset)
                .build()
        }
    };
    let entry = match submission {
        Submission::Shard => entry,
        Submission::Worker => entry.flags(squeue::Flags::ASYNC),
    };
    if fencing == Fencing::AtSubmission {
        return ctx.fenced.push(key, entry);
    }
    // SAFETY: the entry names the request's buffers (valid until its completion), the slot's
    // vectors and bounce buffer (untouched while a party works on the slot), or the static
    // zeroes.
    unsafe { ctx.ring.push(entry, Owner::Request(key)) };
}

/// Reads or writes what is left of a request.
fn transfer(ctx: &mut Context, key: u32, file: Fixed) -> squeue::Entry {
    let Context { tables, spare_bounces, .. } = ctx;
    let slot = &mut tables.slots[key];
    let disk = &tables.disks[slot.disk as usize];
    let alignment = disk.storage.file().map_or(1, |file| file.image.memory_alignment());
    let ioprio = slot.host_ioprio;
    let offset = slot.request.offset + slot.done;
    let left = slot.request.len - slot.done;
    let write = match slot.request.op {
        Op::Write(durability) => Some(durability),
        _ => None,
    };
    let odd = |b: &libc::iovec| (b.iov_base as usize | b.iov_len) & (alignment - 1) != 0;
    if alignment > 1 && slot.buffers.iter().any(odd) {
        let bounce =
            slot.bounce.get_or_insert_with(|| spare_bounces.pop().unwrap_or_else(Bounce::new));
        let len = remaining(&slot.buffers, slot.done, left.min(BOUNCE as u64), &mut slot.rest);
        // More pieces than one vector holds: take whole blocks of what fits.
        let len = len - len % u64::from(disk.info.block_size);
        if write.is_some() {
            // SAFETY: the port keeps the request's buffers valid; the bounce buffer is ours
            // alone.
            unsafe { bounce.gather(&slot.rest, len as usize) };
        }
        return one(file, bounce.as_mut_ptr(), len as u32, offset, write, ioprio);
    }
    let buffers = if slot.done == 0 && slot.buffers.len() <= libc::UIO_MAXIOV as usize {
        &slot.buffers
    } else {
        remaining(&slot.buffers, slot.done, left, &mut slot.rest);
        &slot.rest
    };
    match buffers[..] {
        [only] => one(file, only.iov_base.cast(), only.iov_len as u32, offset, write, ioprio),
        _ => many(file, buffers, offset, write, ioprio),
    }
}

fn zero_fill(ctx: &Context, key: u32, file: Fixed) -> squeue::Entry {
    let slot = &ctx.tables.slots[key];
    let len = (slot.request.len - slot.done).min(ZEROES as u64) as u32;
    let at = slot.request.offset + slot.done;
    let entry = opcode::Write::new(file, ZERO_BLOCK.0.as_ptr(), len).offset(at);
    entry.ioprio(slot.host_ioprio).build()
}

/// The kernel finished a step.
pub(super) fn on_kernel(ctx: &mut Context, key: u32, result: i32) {
    if matches!(-result, libc::EAGAIN | libc::EINTR) {
        return issue(ctx, key);
    }
    if result < 0
        && let Some(file) = file_of(ctx, key)
    {
        file.image.tenure().on_error(-result);
    }
    let slot = &mut ctx.tables.slots[key];
    let op = slot.request.op;
    if result < 0 {
        let error = IoError::from_errno(-result);
        return match (slot.step, op, error) {
            (Step::Main, Op::WriteZeroes { speed: ZeroSpeed::Any, .. }, IoError::Unsupported) => {
                slot.step = Step::ZeroFill;
                slot.zeroing = Zeroing::Written;
                issue(ctx, key);
            }
            _ => ctx.end_party(key, Err(error)),
        };
    }
    let moves = slot.step == Step::ZeroFill || (slot.step == Step::Main && op.moves_data());
    if moves {
        if result == 0 {
            // The file is shorter than the disk: somebody truncated it under us.
            return ctx.end_party(key, Err(IoError::Backend(libc::EIO)));
        }
        if let (Some(bounce), Op::Read) = (&slot.bounce, op) {
            // SAFETY: `rest` names parts of the request's buffers, valid until its completion.
            unsafe { bounce.scatter(&slot.rest, result as usize) };
        }
        slot.done += result as u64;
        if slot.done < slot.request.len {
            return issue(ctx, key);
        }
    }
    let slot = &mut ctx.tables.slots[key];
    if let (Step::Main | Step::ZeroFill, Op::WriteZeroes { durability: Durability::Fua, .. }) =
        (slot.step, op)
    {
        slot.step = Step::Sync;
        return issue(ctx, key);
    }
    ctx.end_party(key, Ok(()));
}

/// A second handle on the image of a disk.
fn handle_on(ctx: &Context, disk: Option<u32>) -> std::io::Result<SharedImage> {
    let disk = disk.and_then(|disk| ctx.tables.disks.get(disk as usize));
    let file = disk.and_then(|disk| disk.storage.file());
    file.ok_or(std::io::ErrorKind::Unsupported)?.image.share()
}

/// Finding extents may block on the file system's metadata: a worker does it. For a copy that
/// shares what is found, it has that written first, while no change waits for it.
fn ask_extents(ctx: &mut Context, key: u32) {
    let slot = &ctx.tables.slots[key];
    let (offset, len) = (slot.request.offset, slot.request.len);
    let image = match handle_on(ctx, Some(slot.disk)) {
        Ok(image) => image,
        Err(e) => return ctx.end_party(key, Err(errno(&e))),
    };
    let shares = ctx.tables.disks[slot.disk as usize].shares_with.is_some();
    let is_copy = matches!(slot.lane, Lane::Copy | Lane::CopyBeforeWrite);
    on_worker(
        ctx,
        key,
        move || match shares && is_copy {
            true => image.written_extents(offset, len),
            false => image.extents(offset, len),
        },
        move |ctx: &mut Context, extents| {
            ctx.tables.slots[key].extents = extents;
        },
    );
}

/// So may the sharing of blocks, and it writes what of them is in memory.
fn share_blocks(ctx: &mut Context, key: u32) {
    let slot = &ctx.tables.slots[key];
    let (offset, len) = (slot.request.offset, slot.request.len);
    let with = ctx.tables.disks[slot.disk as usize].shares_with;
    let (copy, chunk) = (with.map(|with| with.disk), with.map_or(Bytes(len), |with| with.chunk));
    let handles = handle_on(ctx, Some(slot.disk)).and_then(|own| Ok((own, handle_on(ctx, copy)?)));
    match handles {
        Ok((own, copy)) => {
            on_worker(
                ctx,
                key,
                move || own.share_blocks(&copy, offset, len, chunk),
                move |ctx: &mut Context, len| {
                    ctx.tables.slots[key].extents = vec![Extent { len, kind: ExtentKind::Data }];
                },
            );
        }
        Err(e) => ctx.end_party(key, Err(errno(&e))),
    }
}

/// Has the worker do what may block for a request, and ends it.
fn on_worker<T: Send + 'static>(
    ctx: &mut Context,
    key: u32,
    job: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    then: impl FnOnce(&mut Context, T) + Send + 'static,
) {
    let answer = ctx.outlet.clone();
    let job = Box::new(move || {
        let done = job();
        // A shard that is gone needs no answer.
        let _ = answer.send(Box::new(move |ctx: &mut Context| {
            let result = done.map(|done| then(ctx, done)).map_err(|e| errno(&e));
            ctx.end_party(key, result);
        }));
    });
    if ctx.worker.run(job).is_err() {
        ctx.end_party(key, Err(IoError::Backend(libc::EAGAIN)));
    }
}

fn errno(e: &std::io::Error) -> IoError {
    IoError::from_errno(e.raw_os_error().unwrap_or(libc::EIO))
}

fn one(
    file: Fixed,
    at: *mut u8,
    len: u32,
    offset: u64,
    write: Option<Durability>,
    ioprio: u16,
) -> squeue::Entry {
    match write {
        None => opcode::Read::new(file, at, len).offset(offset).ioprio(ioprio).build(),
        Some(d) => opcode::Write::new(file, at, len)
            .offset(offset)
            .rw_flags(flags(d))
            .ioprio(ioprio)
            .build(),
    }
}

fn many(
    file: Fixed,
    buffers: &[libc::iovec],
    offset: u64,
    write: Option<Durability>,
    ioprio: u16,
) -> squeue::Entry {
    let count = buffers.len() as u32;
    match write {
        None => {
            opcode::Readv::new(file, buffers.as_ptr(), count).offset(offset).ioprio(ioprio).build()
        }
        Some(d) => {
            let entry = opcode::Writev::new(file, buffers.as_ptr(), count)
                .offset(offset)
                .rw_flags(flags(d));
            entry.ioprio(ioprio).build()
        }
    }
}

fn punch(key: u32, ctx: &Context, file: Fixed) -> squeue::Entry {
    fallocate(key, ctx, file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
}

fn zero_range(key: u32, ctx: &Context, file: Fixed) -> squeue::Entry {
    fallocate(key, ctx, file, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)
}

fn fallocate(key: u32, ctx: &Context, file: Fixed, mode: i32) -> squeue::Entry {
    let request = &ctx.tables.slots[key].request;
    opcode::Fallocate::new(file, request.len).offset(request.offset).mode(mode).build()
}
