//! Clients' requests on their way to the machine, and back.

use crate::kernel::page_buffer::PageBuffer;
use crate::request::{Durability, IoError, Op, Request, Unmap};
use crate::shard::core::Core;
use crate::tables::lane::Lane;
use crate::tables::machine::Refusal;
use crate::tables::moving::{ClientRequest, Half, Moving, Route, WRITES_MAX};
use crate::tables::port::MovePart;
use headgate_mirror::{Answer, Extent, RequestId, Side};
use headgate_units::Bytes;

/// A request as the machine knows it.
enum Told {
    Request(headgate_mirror::Request),
    /// It changes nothing and asks for no data.
    Past,
    /// It is about no bytes.
    Nothing,
    /// It cannot come to a front.
    Impossible,
}

fn durability(of: Durability) -> headgate_mirror::Durability {
    match of {
        Durability::Cached => headgate_mirror::Durability::Cached,
        Durability::Fua => headgate_mirror::Durability::Fua,
    }
}

fn unmap(of: Unmap) -> headgate_mirror::Unmap {
    match of {
        Unmap::May => headgate_mirror::Unmap::May,
        Unmap::MustNot => headgate_mirror::Unmap::MustNot,
    }
}

fn told(request: &Request) -> Told {
    use headgate_mirror::Request as Known;
    let extent = Extent::new(Bytes(request.offset), Bytes(request.len));
    let of = |known: fn(Extent) -> Known| extent.map_or(Told::Nothing, |e| Told::Request(known(e)));
    match request.op {
        Op::Flush => Told::Request(Known::Flush),
        Op::BlockStatus | Op::Cache => Told::Past,
        Op::Splice | Op::PlacedWrite | Op::Share => Told::Impossible,
        Op::Read => of(Known::Read),
        Op::Discard => of(Known::Discard),
        Op::Write(when) => match extent {
            Some(extent) => Told::Request(Known::Write(extent, durability(when))),
            None => Told::Nothing,
        },
        Op::WriteZeroes { unmap: hole, durability: when, .. } => match extent {
            Some(extent) => Told::Request(Known::Zero(extent, unmap(hole), durability(when))),
            None => Told::Nothing,
        },
    }
}

impl Moving {
    /// Tells the machine of requests, in order, as far as there is room for them.
    pub(super) fn take_requests(&mut self, core: &mut Core) {
        while let Some(&key) = self.waiting.front() {
            let request = core.ctx.tables.slots[key].request;
            let bytes = if let Op::Write(_) = request.op { request.len } else { 0 };
            if self.writes > 0 && self.writes + bytes > WRITES_MAX {
                return;
            }
            match told(&request) {
                Told::Nothing => core.ctx.end_party(key, Ok(())),
                Told::Impossible => core.ctx.end_party(key, Err(IoError::Unsupported)),
                Told::Past => {
                    let id = self.add_client(key, 0, Route::Past);
                    let side = self.machine.counts();
                    self.send_for_client(core, id, side, request);
                }
                Told::Request(known) => {
                    let id = self.add_client(key, bytes, Route::Machine);
                    match self.machine.request(RequestId(id as u64), known, &mut self.out) {
                        Ok(()) => {}
                        Err(Refusal::Full) => {
                            self.remove_client(id);
                            return;
                        }
                        Err(Refusal::Invalid) => {
                            self.remove_client(id);
                            core.ctx.end_party(key, Err(IoError::Invalid));
                        }
                    }
                }
            }
            self.waiting.pop_front();
            // What it is sent as may need memory that the next one wants, too.
            self.carry_out(core);
        }
    }

    fn remove_client(&mut self, id: usize) {
        self.writes -= self.clients.remove(id).bytes;
    }

    fn add_client(&mut self, front: u32, bytes: u64, route: Route) -> usize {
        self.writes += bytes;
        let (source, target) = (Half::default(), Half::default());
        self.clients.insert(ClientRequest {
            route,
            bytes,
            front: Some(front),
            kept: None,
            source,
            target,
        })
    }

    /// Sends a client's request to one side, or a part of it.
    pub(super) fn send_for_client(
        &mut self,
        core: &mut Core,
        id: usize,
        side: Side,
        part: Request,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(front) = client.front else { return };
        let asked = &core.ctx.tables.slots[front];
        let request = Request { cookie: id as u64, ..part };
        let buffers = match &mut client.kept {
            Some(kept) => vec![kept.buffer(usize::MAX)],
            None => asked.buffers.clone(),
        };
        let port = self.senders.of(match side {
            Side::Source => MovePart::Source,
            Side::Target => MovePart::Target,
        });
        // SAFETY: the client keeps its buffers until the front's request is answered, which the
        // machine does not do before a side that uses them has ended it: only what goes to both
        // may be answered while one of them has it, and that has a copy (`keep`), which lives until
        // both have.
        client.half(side).slot =
            Some(unsafe { core.submit(port, request, &buffers, Lane::Client) });
    }

    /// Keeps what a client writes: it goes to both sides, and has to be the same on both.
    pub(super) fn keep(&mut self, core: &Core, id: usize) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(front) = client.front else { return };
        let asked = &core.ctx.tables.slots[front];
        if client.kept.is_none() && matches!(asked.request.op, Op::Write(_)) {
            // SAFETY: the client keeps its buffers valid until it is answered.
            client.kept = Some(unsafe { PageBuffer::of(&asked.buffers) });
        }
    }

    /// Answers a client's request.
    pub(super) fn answer(&mut self, core: &mut Core, id: usize, answer: Answer) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(front) = client.front.take() else { return };
        let result = match answer {
            Answer::Done => Ok(()),
            Answer::Failed(side) => {
                Err(client.half(side).error.unwrap_or(IoError::Backend(libc::EIO)))
            }
        };
        core.ctx.end_party(front, result);
        self.forget_ended(id);
    }

    /// Forgets a client's request that is answered and at neither side any more.
    pub(super) fn forget_ended(&mut self, id: usize) {
        if self.clients.get(id).is_some_and(ClientRequest::is_over) {
            self.remove_client(id);
        }
    }
}
