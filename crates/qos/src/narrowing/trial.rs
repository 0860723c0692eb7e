//! What came of narrowing a window for one disk, so that what does not help is not kept.

use super::bounds::{MILLIONTHS, SHRINKING, WHOLE, part};
use crate::cost::Cost;
use crate::window::{Slots, WorkWindow};
use headgate_units::Nanos;

/// The first rest of a disk that nothing helps, and the longest.
const REST: Nanos = Nanos::from_secs(60);
const REST_MAX: Nanos = Nanos::from_secs(3_600);

/// A disk is given up when a window of its own depth was too wide for it so many times.
const TRIES: u8 = 4;

/// Narrowing is judged by what came of it from a quarter on, and after so many requests: less is
/// lost in the spread of times.
const WORTH: u64 = WHOLE / 4;
const WORTH_REQUESTS: u64 = 128;

/// A window that was narrowed by so much is narrowed no further until as many requests show that it
/// helps.
const STOP: u64 = WHOLE / 2;
const ENOUGH_REQUESTS: u64 = 32;

/// The attempts to help one disk by a narrower window.
#[derive(Clone)]
pub(super) struct Trial {
    /// How it was before the window was narrowed for it.
    before: Option<Before>,
    /// How often in a row narrowing did nothing.
    useless: u8,
    /// How often in a row a window of its own depth was too wide.
    at_the_end: u8,
    rest: Nanos,
    rests_until: Option<Nanos>,
}

/// A disk's time in a full window.
#[derive(Clone, Copy)]
struct Before {
    /// Mean work in flight of all disks, in thousandths of a reference IO.
    company: u64,
    /// Mean time in the window, in nanoseconds.
    device: u64,
    /// Since it is narrowed by [`WORTH`] or more: the time in the window, and the requests.
    since: (u64, u64),
}

/// What a disk did in the window since its times were last taken.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    /// Mean work in flight of all disks at its dispatches, in thousandths of a reference IO.
    pub(super) company: u64,
    /// And how many requests that was, in thousandths.
    pub(super) crowd: u64,
    /// The time that its requests were in flight, added up, in nanoseconds.
    pub(super) time: u64,
    /// Its dispatches.
    pub(super) requests: u32,
    /// The work that it has outstanding at the most, in thousandths of a reference IO: it is not
    /// helped by a window of less.
    pub(super) own: u64,
}

/// What a disk's requests did in the window in a stretch of time, added up.
#[derive(Clone, Copy, Default)]
pub(super) struct Flown {
    /// In nanoseconds.
    pub(super) elapsed: u64,
    /// The integral of its requests in flight, in request-nanoseconds.
    pub(super) time: u64,
    /// The work of all disks that was in flight at its dispatches, added up, in thousandths of a
    /// reference IO.
    pub(super) company: u64,
    /// And how many requests that were.
    pub(super) crowd: u64,
    /// What its own counted for, in millionths.
    pub(super) counted: u64,
    /// Its dispatches.
    pub(super) requests: u32,
    /// The most that it had outstanding.
    pub(super) peak: u32,
}

impl Flight {
    /// A window that holds so many thousandths of what is in flight.
    ///
    /// Requests may cost less than a reference IO. Then it holds more of them than of those.
    pub(super) fn kept(&self, part: u64) -> WorkWindow {
        let work = Slots::from_millionths(scaled(self.company, part));
        let requests = work.max(Slots::from_millionths(scaled(self.crowd, part)));
        let work = Cost::from_millionths(scaled(self.company, part.max(SHRINKING)));
        WorkWindow { requests, work, ..WorkWindow::OPEN }
    }
}

/// So many thousandths of what is counted in thousandths, in millionths.
fn scaled(thousandths: u64, part: u64) -> u64 {
    u64::try_from(u128::from(thousandths) * u128::from(part)).unwrap_or(u64::MAX)
}

impl Flown {
    /// Both stretches together.
    pub(super) fn and(self, other: Flown) -> Flown {
        Flown {
            elapsed: self.elapsed.saturating_add(other.elapsed),
            time: self.time.saturating_add(other.time),
            company: self.company.saturating_add(other.company),
            crowd: self.crowd.saturating_add(other.crowd),
            counted: self.counted.saturating_add(other.counted),
            requests: self.requests.saturating_add(other.requests),
            peak: self.peak.max(other.peak),
        }
    }

    pub(super) fn flight(self) -> Flight {
        let Flown { time, company, crowd, requests, peak, .. } = self;
        let each = u64::from(requests.max(1));
        let own = u64::from(peak).saturating_mul(self.mean_counted());
        let crowd = crowd.saturating_mul(WHOLE) / each;
        Flight { company: company / each, crowd, time, requests, own }
    }

    /// The mean work that it had in flight, in thousandths of a reference IO.
    pub(super) fn in_flight(self) -> u64 {
        let work = u128::from(part(self.time, self.elapsed)) * u128::from(self.mean_counted());
        u64::try_from(work / u128::from(WHOLE)).unwrap_or(u64::MAX)
    }

    /// What its requests counted for each, in thousandths of a reference IO.
    fn mean_counted(self) -> u64 {
        self.counted / (u64::from(self.requests.max(1)) * MILLIONTHS)
    }
}

/// How near a disk is to what it needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hope {
    Some,
    Little,
}

/// What is to be done for a disk that does not have what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Narrow the window, or narrow it further.
    Open,
    /// Wait: the window can be no narrower.
    Wait,
    /// Wait: what the window was narrowed by has not been shown to help.
    Prove,
    /// Narrowing did nothing: to be opened and tried again.
    Useless,
    /// The same for the second time, or of a window of the disk's own depth. It is left alone for
    /// a while.
    GivenUp,
}

impl Trial {
    pub(super) fn new() -> Trial {
        Trial { before: None, useless: 0, at_the_end: 0, rest: REST, rests_until: None }
    }

    /// The window is as wide as it was given: what it was like narrowed is of no use.
    pub(super) fn forget_before(&mut self) {
        self.before = None;
    }

    /// Whether the disk is left alone.
    pub(super) fn rests(&self, now: Nanos) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// Whether it was narrowed for the disk to half or less, where so many are in flight.
    pub(super) fn is_halved(&self, company: u64) -> bool {
        self.before.is_some_and(|before| company <= before.company / 2)
    }

    /// Leaves the disk alone for a while.
    pub(super) fn give_up(&mut self, now: Nanos) {
        self.before = None;
        (self.useless, self.at_the_end) = (0, 0);
        self.rests_until = Some(now + self.rest);
        self.rest = Nanos(self.rest.0.saturating_mul(2)).min(REST_MAX);
    }

    /// The disk has what it needs.
    pub(super) fn succeed(&mut self) {
        (self.useless, self.at_the_end, self.rest) = (0, 0, REST);
    }

    /// The disk does not have it.
    pub(super) fn tried(&mut self, now: Nanos, flight: Flight, hope: Hope) -> Outcome {
        let Flight { company, time, requests, own, .. } = flight;
        let requests = u64::from(requests).max(1);
        let before =
            self.before.get_or_insert(Before { company, device: time / requests, since: (0, 0) });
        let narrowed = WHOLE - part(company, before.company).min(WHOLE);
        if narrowed >= WORTH {
            before.since.0 = before.since.0.saturating_add(time);
            before.since.1 += requests;
        }
        let before = *before;
        let quicker =
            WHOLE - part(before.since.0 / before.since.1.max(1), before.device).min(WHOLE);
        let is_clear = before.since.1 >= WORTH_REQUESTS;
        let least = own.saturating_mul(21) / 20;
        if company <= least && before.company > company && hope == Hope::Little {
            self.at_the_end += 1;
            if self.at_the_end < TRIES {
                return Outcome::Wait;
            }
        } else if is_clear && quicker < narrowed / 4 {
            self.before = None;
            self.useless += 1;
            if self.useless < 2 {
                return Outcome::Useless;
            }
        } else {
            if is_clear && quicker >= narrowed / 2 {
                self.useless = 0;
            }
            let is_enough = before.since.1 >= ENOUGH_REQUESTS;
            return if narrowed >= STOP && !(is_enough && quicker >= narrowed / 4) {
                Outcome::Prove
            } else {
                Outcome::Open
            };
        }
        self.give_up(now);
        Outcome::GivenUp
    }
}
