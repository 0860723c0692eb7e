//! dmClock: the guarantees of [`mclock`](crate::mclock) for a disk that is spread over several
//! servers.
//!
//! Each server runs its own [`MClock`](crate::MClock) and knows only the requests that reach it.
//! Requests carry the service that their disk received at other servers (delta and rho): the
//! client, that is the host that sends them, counts completions with a [`Tracker`] and attaches the
//! service since its last request to the same server as [`ServedElsewhere`]. Servers do not
//! communicate, and clocks need not agree.
//!
//! ```text
//! client:  let (ticket, elsewhere) = tracker.send(now, server);       // goes with the request
//! server:  scheduler.enqueue_dmclock(now, disk, io, elsewhere, request)
//!          Decision::Dispatch(d)                                      // d.phase, d.cost go with the answer
//! client:  tracker.complete(ticket, Served::one(phase, cost, bytes));
//! ```
//!
//! # What is counted
//! The paper (section 3.3) sends δ, the IOs of the disk completed at all servers since its last
//! request to this one, and ρ, those of them that were served in the reservation phase; tags
//! advance by δ/l, ρ/r and δ/w instead of 1/l, 1/r and 1/w. Taken literally δ is 0 for the second
//! of two requests in flight, and it counts requests where tags are charged by size. Here, with c
//! the request's own cost,
//!
//! ```text
//! δ = c + service completed at other servers since the last request to this one
//! ρ = c (if this request is served by reservation) + that part of it that was served by reservation
//! ```
//!
//! Own service is charged by the server itself, when it dispatches and in full; what travels is the
//! second summand alone, in charged cost as the other servers reported it (and in bytes, for limits
//! in bytes per second). So no step is ever zero, a request is never counted by both sides, and a
//! disk on one server sends nothing: dmClock is then mClock, decision by decision.
//!
//! # How wrong it can be
//! What a server knows of the others ends with the last completion that the client had seen when it
//! sent its last request. With one request per server in flight and k servers that is at most one
//! request per other server: `|δ sent - δ true| <= k - 1` (paper, section 3.3). With n in flight it
//! is n. The error does not add up: what one request did not carry the next one does.
//!
//! # Service at other servers
//! Requests of a disk that is spread over several servers ([`dmclock`](crate::dmclock)) report
//! what the disk has received at the others since its last request here: e IOs, ρ of them by
//! reservation. That service lies in the past, so it is charged where the tags were left, before
//! anything holds them at the present:
//!
//! ```text
//! R  <-  R + ρ/r        L  <-  L + e/l        P  <-  P + e/w
//! ```
//!
//! and then mClock's rules apply as ever: a disk that had nothing queued is raised to `min(t - a,
//! D)` and to `V - credit/w`, a limit makes good for λ of lateness. With the charge for the request
//! itself that is the paper's `max(previous + δ/w, now)` (section 3.3), in which service elsewhere
//! likewise first uses up the time that has passed. It is charged when it is reported, not when the
//! request with the report gets to the head of its queue: the tags are the disk's, so the newest
//! report counts for every request that waits. A disk that reported service elsewhere while it had
//! nothing queued was not idle: its routing sent its requests to other servers. Its credit is that
//! of a disk that a limit held back.
//!
//! # What a request stands for
//! A report comes after the service that it reports: with n servers, and m requests of a disk in
//! flight here, m·(n-1) requests' worth of service is under way that this server has not heard of.
//! Tags that know only reports let a disk go m times in a row, and then hold it back for all of it
//! at once. Where one of many servers is slow, m and n are both large.
//!
//! So a request is charged for more than itself. Let ē be what the disk received elsewhere per cost
//! of the requests that came here, measured over one to two seconds (and 32 to 64 requests): the
//! mean of δ - c. A report counts for no more than 8·(ē + 1) in it, so that no single one moves it
//! far. Requests are counted when they come, not when they are served: a client's requests gather
//! at the server that serves them most slowly, and until they are all there, each that this server
//! dispatches stands for more than its part of the routing.
//!
//! - *Shares.* A dispatch of cost c advances P by `(c + ē·c/2)/w`, but no more than ē·c/2 for each
//!   request in flight is charged in advance. A report is charged less what was charged for it: in
//!   the end P has advanced by what was reported, no more and no less. Half of ē and not all of it,
//!   because servers that divide exactly at every moment never let a client's shorter queue catch
//!   up with its longer ones: on four equal servers, with 64 requests outstanding, shares of 3:1
//!   are 5 % off with all of it, 2 % with half, and exact with 512 outstanding.
//! - *Reservation.* A dispatch by reservation advances R by `(c + ē·c)/r`: the reservation is
//!   claimed at each server in proportion to what the server contributes, and all servers together
//!   claim r. With ρ alone the slowest would claim the whole r on top of what the others give by
//!   weight: three disks of 800, 1,000 and 100 on three servers, equally loaded but for chance, got
//!   1,888, 2,400 and 1,068 for shares of 1:4:6. ρ is charged where it exceeds what requests served
//!   by reservation here stood for, by more than 2 s of the reservation; less is taken for chance.
//! - *The promise.* ē is a mean, and lags behind by a second or two. So each server keeps until
//!   when the disk has received r in all: `T <- max(T, t - b/2) + x/r` for any service x, here or
//!   elsewhere. R is never later than T. A disk that has received less than r in all is due
//!   wherever it waits. While reservations are later than b/2 nobody receives them, and T does not
//!   bind.
//! - *Idle queues.* A client of several servers leaves a queue empty while its requests are at the
//!   others. Its reservation may be late by 30 ms then ([`Config::anticipation`](crate::Config) if
//!   that is longer), and loses the rest.
//! - *Limit.* L is charged by reports alone. From its first dispatch on in any time W a server lets
//!   pass, of what it knows, `l·(W + λ)` and one request; what others did before that, one of these
//!   has counted in the same way. So k servers together let at most `l·(W + k·λ)` and k requests
//!   pass, and those that are not known where they should be: dispatched elsewhere, and their
//!   completion not seen by the client when it last sent a request there, hence no more than the
//!   disk has in flight. In the other direction a limited disk gets its limit, though its
//!   requests may all be elsewhere for a while. A reservation of nearly the limit may lose some
//!   per cent: of 62 with a limit of 63, on twenty servers, came 58.6.
//!
//! # What is remembered
//! How far a disk is ahead of its share is no property of this server: where others have spare time
//! it may receive any multiple of what is left for it here, and each of its requests here would
//! wait longer than the one before, without end. What is remembered is bounded in time:
//!
//! | tag | is never further ahead than |
//! |---|---|
//! | P | what V rose by in the last 2 busy seconds |
//! | R, T | 2 s; T also `(lead + 24·ē)/r` |
//! | L, also in bytes | 30 s |
//!
//! If the lead, or four of the disk's dearest requests, take longer at its share or reservation,
//! they are the bound, as on one server. So no disk waits by its share for more than 2 s at the
//! pace of the last 2 s, whatever it received elsewhere, then or after it has stopped using other
//! servers. When V slows down, tags that are ahead are lowered: each decision looks at one disk, in
//! turn. A false or outdated report costs a disk no more than these bounds. A disk that is due less
//! than one request here in 2 s gets more than its share.
//!
//! L remembers more, because what it forgets is let pass: of a limit of one request per second, 30
//! servers may each let one pass before they hear of each other.
//!
//! # Cost
//! O(1) and two divisions per dispatch of a disk that uses several servers; the others pay for one
//! comparison. Streams that compete across VMs are charged by reports alone.
//!
//! The three charges are the paper's. Ours are: when they are applied, what is charged in advance,
//! T, the bounds, and that costs and bytes are counted instead of requests. A disk that never
//! reported service elsewhere is mClock's, decision by decision.

mod served_elsewhere;
mod tracker;

pub use served_elsewhere::{ServedElsewhere, ServedElsewhereError};
pub use tracker::{Served, Ticket, Totals, Tracker};
