//! dmClock: the guarantees of [`mclock`](crate::mclock) for a disk that is spread over several servers.
//!
//! Every server runs its own [`MClock`](crate::MClock) and knows only the requests that come to it. What the
//! disk received at the others travels with its requests: the client, that is the host that sends them, counts
//! completions with a [`Tracker`] and sends along what has been added since its last request to the same
//! server, as [`Elsewhere`]. Servers do not speak to each other, and clocks need not agree.
//!
//! ```text
//! client:  let (ticket, elsewhere) = tracker.send(now, server);       // goes with the request
//! server:  scheduler.enqueue_dmclock(now, disk, io, elsewhere, request)
//!          Decision::Dispatch(d)                                      // d.phase, d.cost go with the answer
//! client:  tracker.complete(ticket, Served { phase, cost, bytes });
//! ```
//!
//! # What is counted
//! The paper (section 3.3) sends δ, the IOs of the disk completed at all servers since its last request to this
//! one, and ρ, those of them that were served in the reservation phase; tags advance by δ/l, ρ/r and δ/w
//! instead of 1/l, 1/r and 1/w. Taken literally δ is 0 for the second of two requests in flight, and it counts
//! requests where tags are charged by size. Here, with c the request's own cost,
//!
//! ```text
//! δ = c + service completed at other servers since the last request to this one
//! ρ = c (if this request is served by reservation) + that part of it that was served by reservation
//! ```
//!
//! Own service is charged by the server itself, when it dispatches and in full; what travels is the second
//! summand alone, in charged cost as the other servers reported it (and in bytes, for limits in bytes per
//! second). So no step is ever zero, a request is never counted by both sides, and a disk on one server sends
//! nothing: dmClock is then mClock, decision by decision.
//!
//! # How wrong it can be
//! What a server knows of the others ends with the last completion that the client had seen when it sent its
//! last request. With one request per server in flight and k servers that is at most one request per other
//! server: `|δ sent - δ true| <= k - 1` (paper, section 3.3). With n in flight it is n. The error does not
//! add up: what one request did not carry the next one does.
//!
//! How a server uses it is derived in [`mclock`](crate::mclock#service-at-other-servers).

mod elsewhere;
mod tracker;

pub use elsewhere::{Elsewhere, ElsewhereError};
pub use tracker::{Served, Ticket, Totals, Tracker};
