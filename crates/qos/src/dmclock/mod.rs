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
//! client:  tracker.complete(ticket, Served { phase, cost, bytes });
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
//! What each tag then says, and how far ahead service elsewhere may bring it:
//!
//! - *Shares.* `P·w` is what the disk has received at all servers, as far as is known here, so the
//!   weight phase takes the disk that has received least in all per share; a disk served elsewhere
//!   above its share is behind the others here until V has caught up. How far it is ahead is no
//!   property of this server: where the others have spare time it may receive any multiple of what
//!   is left for it here, and each of its requests here would wait longer than the one before,
//!   without end. So service elsewhere is forgotten as is that by reservation, beyond `V +
//!   max(lead, 4·peak)/w`. The lead must exceed what the disk may receive before this server hears
//!   of it, as it must exceed one request on one server: with less, share and reservation add up.
//!   That is what is in flight at the others, about e for each request that is in flight here. So
//!   the peak follows also e times the disk's requests in flight here, up to 512 IOs. No disk waits
//!   by its share for longer than the others take for 2,048 IOs per share of its own (or four of
//!   its dearest requests), then or after it has stopped using other servers.
//! - *Reservation.* R is due by what the disk received by reservation at all servers. Service by
//!   weight does not move it, here or there, with one exception. Where one server is the bottleneck
//!   and others have time to spare, those serve by weight what they get, so with ρ alone the whole
//!   r is claimed at the bottleneck, on top of what comes from the others: three disks of 800,
//!   1,000 and 100 on three servers, equally loaded but for chance, got 1,888, 2,400 and 1,068 for
//!   shares of 1:4:6. Therefore at least that part of e counts as by reservation that is so here
//!   (over the last 64 reports, and up to 256 IOs in arrears, so that chance alone does not count):
//!   the reservation is claimed at each server in proportion to what the server contributes. The
//!   promise stays, because R advances by no more than all service, and by this part no further
//!   than `t + lead/r`: a disk that has received less than r in all is due wherever it waits, and
//!   what it received beyond r delays it by no more than the lead. Servers that do not know of each
//!   other's latest dispatches may be ahead of R by one request each; beyond `t + max(b, F/r)`, F
//!   the larger of 1,024 IOs and 4·peak, it is forgotten, as lateness is beyond b: a false or
//!   outdated ρ costs a disk no more than that. A shortage at one server makes the disk due at
//!   others, which make up for it out of what they have.
//! - *Limit.* The same with e instead of ρ, bounded by `t + max(b, F/l)`, as e may have been
//!   received under an older, higher limit. From its first dispatch on in any time W a server lets
//!   pass, of what it knows, `l·(W + λ)` and one request; what others did before that, one of these
//!   has counted in the same way. So k servers together let at most `l·(W + k·λ)` and k requests
//!   pass, and those that are not known where they should be: dispatched elsewhere, and their
//!   completion not seen by the client when it last sent a request there, hence no more than the
//!   disk has in flight. In the other direction, λ does not make good for a time in which all
//!   requests of the disk are at other servers: a limit just above the disk's share may cost it up
//!   to a sixth of that.
//!
//! The three charges are the paper's. Ours are: when they are applied, the bounds, the part of e
//! that counts as by reservation, and that costs and bytes are counted instead of requests. With e
//! = 0 nothing is done at all.

mod served_elsewhere;
mod tracker;

pub use served_elsewhere::{ServedElsewhere, ServedElsewhereError};
pub use tracker::{Served, Ticket, Totals, Tracker};
