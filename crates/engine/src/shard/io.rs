//! Requests at the backend: from the scheduler's decision to the last of their parties.

use super::Core;
use super::bounce::{BOUNCE, Bounce, remaining};
use super::disk::Backend;
use super::inline;
use super::ring::Owner;
use super::slots::{Stage, Step};
use crate::image::Medium;
use crate::request::{Durability, IoError, Op, Unmap, ZeroSpeed};
use headgate_devices::{DeviceIo, IoKind, Readiness};
use headgate_qos::Scheduler as _;
use headgate_qos::window::Room;
use headgate_units::Bytes;
use io_uring::{opcode, squeue, types::Fixed};

/// Zeroes for ranges that must be written by hand; never written to.
#[repr(align(4096))]
pub(super) struct Zeroes(pub [u8; ZEROES]);
pub(super) const ZEROES: usize = 256 << 10;
pub(super) static ZERO_BLOCK: Zeroes = Zeroes([0; ZEROES]);

/// So many bytes written count as one read in what a turn moves.
const WRITES_PER_READ: i64 = 4;

/// So many zeroes of a null backend count as one byte read: making them is cheaper than copying, and four queues are served 8 %
/// faster in turns of 32 requests than of 8. Not so a port that the shard looks at: there is nothing to gather.
const ZEROES_PER_READ: i64 = 4;

/// Page writes of an emulated drive's past that are made up in one round: about 100 us.
const AGED_PER_ROUND: u32 = 256;

impl Core {
    /// Hands a request to its datastore's backend.
    pub(super) fn start(&mut self, key: u32, stage: Stage) {
        let looking = self.watched.has_ports();
        let slot = &mut self.slots[key];
        slot.stage = stage;
        slot.dispatched = self.now;
        let disk = &mut self.disks[slot.disk as usize];
        disk.in_flight += 1;
        let datastore = &mut self.datastores[disk.datastore];
        match &mut datastore.backend {
            Backend::Null => {
                if slot.request.op == Op::Read {
                    for buffer in &slot.buffers {
                        // SAFETY: the port keeps the buffers valid for writes until the request's completion.
                        unsafe { std::ptr::write_bytes(buffer.iov_base.cast::<u8>(), 0, buffer.iov_len) };
                    }
                }
                if slot.request.op == Op::BlockStatus {
                    slot.extents.push(crate::request::Extent {
                        len: slot.request.len,
                        kind: crate::request::ExtentKind::Hole,
                    });
                }
                if slot.request.op.moves_data() {
                    let moved = i64::try_from(slot.request.len).unwrap_or(i64::MAX);
                    let weight = if looking { 1 } else { ZEROES_PER_READ };
                    self.turn_bytes = self.turn_bytes.saturating_sub(moved / weight);
                }
                self.completed.push(key);
            }
            Backend::Files => {
                slot.parties = 1;
                self.issue(key);
            }
            Backend::Remote => {
                slot.parties = 1;
                self.send_away(key);
            }
            Backend::Emulated { model, .. } => {
                slot.parties = 2;
                let (kind, bytes) = match slot.request.op {
                    Op::Read | Op::Lend => (IoKind::Read, slot.request.len),
                    Op::BlockStatus | Op::Cache => (IoKind::Read, 0),
                    Op::Write(_) | Op::Place | Op::WriteZeroes { unmap: Unmap::MustNot, .. } => {
                        (IoKind::Write, slot.request.len)
                    }
                    Op::Flush => (IoKind::Flush, 0),
                    Op::Discard | Op::WriteZeroes { unmap: Unmap::May, .. } => {
                        (IoKind::Discard, slot.request.len)
                    }
                };
                let io = DeviceIo { kind, offset: disk.base + slot.request.offset, bytes: Bytes(bytes) };
                model.submit(self.now, u64::from(key), io);
                self.issue(key);
            }
        }
    }

    /// Gives the kernel the next step of a request.
    fn issue(&mut self, key: u32) {
        let slot = &self.slots[key];
        let disk = &self.disks[slot.disk as usize];
        let Some(file) = disk.file else {
            return self.end_party(key, Err(IoError::Backend(libc::EBADF)));
        };
        if disk.image.medium() == Medium::Memory
            && let Some(fd) = disk.image.fd()
            && let Some(result) = inline::perform(fd, &mut self.slots[key])
        {
            // The data of a read is work for its client, which may as well begin; of a write it only hears.
            let weight =
                if let Op::Write(_) | Op::Place = self.slots[key].request.op { WRITES_PER_READ } else { 1 };
            self.turn_bytes = self.turn_bytes.saturating_sub(i64::from(result.max(0)) / weight);
            return self.on_kernel(key, result);
        }
        let slot = &self.slots[key];
        let entry = match (slot.step, slot.request.op) {
            (Step::Sync, _) | (_, Op::Flush) => {
                opcode::Fsync::new(file).flags(io_uring::types::FsyncFlags::DATASYNC).build()
            }
            (Step::ZeroFill, _) => self.zero_fill(key, file),
            (Step::Main, Op::Read | Op::Write(_)) => self.transfer(key, file),
            (Step::Main, Op::Discard) => punch(key, self, file),
            (Step::Main, Op::WriteZeroes { unmap: Unmap::May, .. }) => punch(key, self, file),
            (Step::Main, Op::WriteZeroes { unmap: Unmap::MustNot, .. }) => zero_range(key, self, file),
            (Step::Main, Op::Lend | Op::Place) => return self.end_party(key, Err(IoError::Unsupported)),
            (Step::Main, Op::BlockStatus) => return self.ask_extents(key),
            (Step::Main, Op::Cache) => {
                if self.disks[slot.disk as usize].image.is_direct() {
                    return self.end_party(key, Ok(()));
                }
                opcode::Fadvise::new(file, slot.request.len as libc::off_t, libc::POSIX_FADV_WILLNEED)
                    .offset(slot.request.offset)
                    .build()
            }
        };
        // SAFETY: the entry names the request's buffers (valid until its completion), the slot's vectors and bounce
        // buffer (untouched while a party works on the slot), or the static zeroes.
        unsafe { self.ring.push(entry, Owner::Request(key)) };
    }

    /// Reads or writes what is left of a request.
    fn transfer(&mut self, key: u32, file: Fixed) -> squeue::Entry {
        let ioprio = self.host_ioprio(key);
        let slot = &mut self.slots[key];
        let alignment = self.disks[slot.disk as usize].image.memory_alignment();
        let offset = slot.request.offset + slot.done;
        let left = slot.request.len - slot.done;
        let write = match slot.request.op {
            Op::Write(durability) => Some(durability),
            _ => None,
        };
        let odd = |b: &libc::iovec| (b.iov_base as usize | b.iov_len) & (alignment - 1) != 0;
        if alignment > 1 && slot.buffers.iter().any(odd) {
            let bounce =
                slot.bounce.get_or_insert_with(|| self.spare_bounces.pop().unwrap_or_else(Bounce::new));
            let len = remaining(&slot.buffers, slot.done, left.min(BOUNCE as u64), &mut slot.rest);
            // More pieces than one vector holds: take whole blocks of what fits.
            let len = len - len % u64::from(self.disks[slot.disk as usize].info.block_size);
            if write.is_some() {
                // SAFETY: the port keeps the request's buffers valid; the bounce buffer is ours alone.
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

    fn zero_fill(&self, key: u32, file: Fixed) -> squeue::Entry {
        let slot = &self.slots[key];
        let len = (slot.request.len - slot.done).min(ZEROES as u64) as u32;
        let at = slot.request.offset + slot.done;
        let entry = opcode::Write::new(file, ZERO_BLOCK.0.as_ptr(), len).offset(at);
        entry.ioprio(self.host_ioprio(key)).build()
    }

    /// The kernel finished a step.
    pub(super) fn on_kernel(&mut self, key: u32, result: i32) {
        if matches!(-result, libc::EAGAIN | libc::EINTR) {
            return self.issue(key);
        }
        let slot = &mut self.slots[key];
        let op = slot.request.op;
        if result < 0 {
            let error = IoError::from_errno(-result);
            return match (slot.step, op, error) {
                (Step::Main, Op::WriteZeroes { speed: ZeroSpeed::Any, .. }, IoError::Unsupported) => {
                    slot.step = Step::ZeroFill;
                    self.issue(key);
                }
                _ => self.end_party(key, Err(error)),
            };
        }
        let moves = slot.step == Step::ZeroFill || (slot.step == Step::Main && op.moves_data());
        if moves {
            if result == 0 {
                // The file is shorter than the disk: somebody truncated it under us.
                return self.end_party(key, Err(IoError::Backend(libc::EIO)));
            }
            if let (Some(bounce), Op::Read) = (&slot.bounce, op) {
                // SAFETY: `rest` names parts of the request's buffers, valid until its completion.
                unsafe { bounce.scatter(&slot.rest, result as usize) };
            }
            slot.done += result as u64;
            if slot.done < slot.request.len {
                return self.issue(key);
            }
        }
        let slot = &mut self.slots[key];
        if let (Step::Main | Step::ZeroFill, Op::WriteZeroes { durability: Durability::Fua, .. }) =
            (slot.step, op)
        {
            slot.step = Step::Sync;
            return self.issue(key);
        }
        self.end_party(key, Ok(()));
    }

    /// One of those who work on a request has done its part.
    pub(super) fn end_party(&mut self, key: u32, result: Result<(), IoError>) {
        let slot = &mut self.slots[key];
        slot.result = slot.result.and(result);
        slot.parties = slot.parties.saturating_sub(1);
        if slot.parties == 0 {
            if let Some(bounce) = slot.bounce.take() {
                self.spare_bounces.push(bounce);
            }
            self.completed.push(key);
        }
    }

    /// Finding extents may block on the file system's metadata: a worker does it.
    fn ask_extents(&mut self, key: u32) {
        let slot = &self.slots[key];
        let (offset, len) = (slot.request.offset, slot.request.len);
        let image = match self.disks[slot.disk as usize].image.share() {
            Ok(Some(image)) => image,
            Ok(None) => return self.end_party(key, Err(IoError::Unsupported)),
            Err(e) => return self.end_party(key, Err(errno(&e))),
        };
        let answer = self.mailbox.clone();
        let job = Box::new(move || {
            let found = image.extents(offset, len);
            // A shard that is gone needs no answer.
            let _ = answer.send(Box::new(move |shard| {
                let core = &mut shard.core;
                let result = found.map(|extents| core.slots[key].extents = extents).map_err(|e| errno(&e));
                core.end_party(key, result);
            }));
        });
        if self.worker.run(job).is_err() {
            self.end_party(key, Err(IoError::Backend(libc::EAGAIN)));
        }
    }

    /// Collects what device models have finished, and hands out what the schedulers and windows allow.
    pub(super) fn pump(&mut self, datastore: usize) {
        let now = self.now;
        while let Some(Backend::Emulated { model, .. }) =
            self.datastores.get_mut(datastore).map(|d| &mut d.backend)
        {
            let Some(id) = model.poll(now) else { break };
            self.end_party(id as u32, Ok(()));
        }
        if let Some(store) = self.datastores.get_mut(datastore)
            && let Backend::Emulated { model, .. } = &mut store.backend
            && store.scheduler.queued() > 0
            && model.make_ready(now, AGED_PER_ROUND) == Readiness::Busy
        {
            // Other datastores of this shard go on meanwhile.
            store.dirty = true;
            return;
        }
        loop {
            let Some(store) = self.datastores.get_mut(datastore) else { return };
            store.dirty = false;
            store.wake = None;
            match store.pacer.room(now) {
                Room::Now => {}
                Room::At(at) => {
                    store.wake = Some(at);
                    return;
                }
                Room::None => return,
            }
            if self.turn_bytes <= 0 {
                // Those whose transfers are done need not wait for the others'.
                store.dirty = true;
                return;
            }
            match store.scheduler.dispatch(now) {
                headgate_qos::Decision::Dispatch(choice) => {
                    store.pacer.dispatched(now);
                    let key = choice.request;
                    let slot = &mut self.slots[key];
                    let queued_for = now - slot.arrived;
                    let disk = &mut self.disks[slot.disk as usize];
                    disk.room.remove(&mut self.port_states[slot.port as usize].queued);
                    let (op, phase) = (super::stats_op(slot.request.op), super::stats_phase(choice.phase));
                    disk.stats.on_dispatch(now, op, queued_for, phase, choice.cost.as_millionths());
                    disk.streams.on_dispatch(choice.priority, choice.cost.as_millionths());
                    slot.priority = choice.priority;
                    self.start(key, Stage::Dispatched);
                }
                headgate_qos::Decision::WaitUntil(at) => {
                    store.wake = Some(at);
                    return;
                }
                headgate_qos::Decision::Idle => return,
            }
        }
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
        Some(d) => opcode::Write::new(file, at, len).offset(offset).rw_flags(flags(d)).ioprio(ioprio).build(),
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
        None => opcode::Readv::new(file, buffers.as_ptr(), count).offset(offset).ioprio(ioprio).build(),
        Some(d) => {
            let entry = opcode::Writev::new(file, buffers.as_ptr(), count).offset(offset).rw_flags(flags(d));
            entry.ioprio(ioprio).build()
        }
    }
}

pub(super) fn flags(durability: Durability) -> i32 {
    match durability {
        Durability::Cached => 0,
        Durability::Fua => libc::RWF_DSYNC,
    }
}

fn punch(key: u32, core: &Core, file: Fixed) -> squeue::Entry {
    fallocate(key, core, file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
}

fn zero_range(key: u32, core: &Core, file: Fixed) -> squeue::Entry {
    fallocate(key, core, file, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)
}

fn fallocate(key: u32, core: &Core, file: Fixed, mode: i32) -> squeue::Entry {
    let request = &core.slots[key].request;
    opcode::Fallocate::new(file, request.len).offset(request.offset).mode(mode).build()
}
