//! Service elsewhere: what requests here stand for, and how fast the share clock goes.

use super::disk::{Standing, weight};
use super::{FINE, ION, Oracle, SECOND};
use crate::dmclock::ServedElsewhere;
use crate::scheduler::Phase;

/// What a disk received here and elsewhere, an entry for each period of a second or more.
#[derive(Default)]
pub(super) struct Spread {
    /// Requests, their cost, cost elsewhere.
    periods: Vec<[i128; 3]>,
    since: i128,
    pub(super) in_advance: i128,
    surplus: i128,
    pub(super) received: i128,
}

impl Spread {
    fn elsewhere_with(&self, cost: i128) -> i128 {
        let [mut here, mut elsewhere] = [0, 0];
        for period in self.periods.iter().rev().take(2) {
            here += period[1];
            elsewhere += period[2];
        }
        elsewhere * cost / here.max(ION)
    }

    fn current(&mut self) -> &mut [i128; 3] {
        if self.periods.is_empty() {
            self.periods.push([0; 3]);
        }
        self.periods.last_mut().unwrap()
    }

    /// A request came.
    pub(super) fn ask(&mut self, now: i128, cost: i128) {
        if now - self.since >= SECOND && self.current()[0] >= 32 {
            self.periods.push([0; 3]);
            self.since = now;
        }
        let current = self.current();
        current[0] += 1;
        current[1] += cost;
    }

    /// What to charge to share and reservation with a request here.
    pub(super) fn expect(&mut self, reserved: bool, cost: i128, in_flight: i128) -> [i128; 2] {
        let each = self.elsewhere_with(cost).min((1 << 20) * ION);
        let share = (each / 2).min((each / 2 * in_flight - self.in_advance).max(0));
        self.in_advance += share;
        let due = if reserved { each } else { 0 };
        self.surplus = (self.surplus - due).max(0);
        [share, due]
    }

    /// Service that a reservation of this rate takes so long for.
    pub(super) fn receive(&mut self, now: i128, late: i128, cost: i128, rate: i128, lead: i128) {
        let from = self.received.max(now - late);
        let lead = lead * SECOND / rate;
        let late_reports = 24 * self.elsewhere_with(ION).min((1 << 20) * ION) * 1_000 / rate;
        self.received = (from + cost * SECOND / ION / rate)
            .min(now + (2 * SECOND).max(lead).min(lead + late_reports));
    }

    /// What to charge to share and reservation for a report.
    pub(super) fn report(&mut self, delta: i128, rho: i128, chance: i128) -> [i128; 2] {
        let usual = 8 * (self.elsewhere_with(ION) + ION);
        self.current()[2] += delta.min(usual);
        let settled = delta.min(self.in_advance);
        self.in_advance -= settled;
        self.surplus += rho;
        let due = (self.surplus - chance).max(0);
        self.surplus -= due;
        [delta - settled, due]
    }
}

/// V at the end of every busy quarter of a second.
#[derive(Default)]
pub(super) struct Pace {
    marks: Vec<i128>,
    busy: i128,
}

impl Pace {
    pub(super) fn note(&mut self, busy: i128, v: i128) {
        self.busy += busy;
        // Ten are as good as any more.
        for _ in 0..(self.busy / (SECOND / 4)).min(10) {
            self.marks.push(v);
        }
        self.busy %= SECOND / 4;
    }

    /// How far V has come in the last two seconds and the part that has begun.
    pub(super) fn risen(&self, v: i128) -> i128 {
        v - self.marks.iter().rev().nth(7).copied().unwrap_or(0)
    }
}

impl Oracle {
    pub(in crate::mclock) fn served_elsewhere(&mut self, slot: usize, elsewhere: ServedElsewhere) {
        let (now, v, lead) = (self.now, self.v, self.config.lead);
        let [delta, rho] =
            [elsewhere.delta(), elsewhere.rho()].map(|c| i128::from(c.as_millionths()));
        let bytes = i128::from(elsewhere.bytes().0);
        if delta + rho + bytes == 0 {
            return;
        }
        if slot >= self.reported {
            self.reported = self.disks.len();
        }
        self.disks[slot].as_mut().unwrap().has_reported = true;
        self.disks[slot].as_mut().unwrap().settle(now);
        let ahead = self.lead_of(slot);
        let disk = self.disks[slot].as_mut().unwrap();
        let in_lead = i128::from(lead) * ION;
        let chance = in_lead.max(disk.reservation.map_or(0, |r| r.rate * 2 * ION));
        let [share, due] = disk.spread.report(delta, rho, chance);
        if !disk.is_across() {
            disk.share.advance_within(share * FINE, v + ahead * FINE / disk.share.rate);
        } else if disk.waits() {
            let weight = disk.weight_with(disk.front());
            let room = (v + ahead * FINE / weight - disk.share_at()).max(0);
            disk.shift((share * FINE / weight).min(room));
        }
        if let Some(tag) = &mut disk.reservation {
            let far = (2 * SECOND).max(i128::from(lead) * SECOND / tag.rate);
            tag.advance_within(due * SECOND / ION, now + far);
        }
        self.receive(slot, share);
        self.hold_to_received(slot);
        let disk = self.disks[slot].as_mut().unwrap();
        if let Some(limit) = &mut disk.limit {
            limit.charge_elsewhere(delta * SECOND / ION, now + 30 * SECOND, now);
        }
        if let Some(limit) = &mut disk.bandwidth {
            limit.charge_elsewhere(bytes * SECOND, now + 30 * SECOND, now);
        }
        let was_ready = disk.standing == Standing::Ready;
        let until = disk.until();
        let due_later = disk.reservation.is_some_and(|r| r.at() >= until);
        disk.standing = match disk.standing {
            Standing::Ready if until > now && due_later => Standing::Pending,
            Standing::Ready if until > now => Standing::Blocked,
            Standing::Pending if !due_later => Standing::Blocked,
            same => same,
        };
        if matches!(disk.standing, Standing::Blocked | Standing::Pending) {
            disk.begin_to_wait(now);
        }
        disk.busy_elsewhere |= disk.standing == Standing::Empty;
        if !was_ready {
            self.forget_credit(slot, u64::from(lead));
        }
    }

    /// How many IOs the share may be ahead of V.
    pub(super) fn lead_of(&self, slot: usize) -> i128 {
        let disk = self.disks[slot].as_ref().unwrap();
        let own = (i128::from(self.config.lead) * ION).max(4 * disk.peak * 1_000);
        let lead = own.max(self.largest);
        if !disk.has_reported {
            return lead;
        }
        let rate = match disk.is_across() {
            true if disk.waits() => weight(disk.front()),
            true => return lead,
            false => disk.share.rate,
        };
        lead.max((self.pace.risen(self.v) * rate / FINE).min(4 * 65_536 * ION))
    }

    pub(super) fn charge_in_advance(&mut self, slot: usize, phase: Phase, cost: i128) {
        let ahead = self.lead_of(slot);
        let (now, v, lead) = (self.now, self.v, i128::from(self.config.lead));
        let disk = self.disks[slot].as_mut().unwrap();
        if !disk.has_reported || disk.is_across() {
            return;
        }
        let reserved = phase == Phase::Reservation;
        let [share, due] = disk.spread.expect(reserved, cost, disk.in_flight);
        disk.share.advance_within(share * FINE, v + ahead * FINE / disk.share.rate);
        if let Some(tag) = &mut disk.reservation {
            let far = (2 * SECOND).max(lead * SECOND / tag.rate);
            tag.advance_within(due * SECOND / ION, now + far);
        }
        self.receive(slot, cost + share);
        if reserved {
            self.hold_to_received(slot);
        }
    }

    pub(super) fn receive(&mut self, slot: usize, cost: i128) {
        let (late, lead) = (self.config.debt_bound.0 / 2, self.config.lead);
        let (late, lead) = (i128::from(late), i128::from(lead));
        let disk = self.disks[slot].as_mut().unwrap();
        if let Some(tag) = disk.reservation {
            disk.spread.receive(self.now, late, cost, tag.rate, lead);
        }
    }

    /// Who has not received the reservation is due, unless nobody does.
    pub(super) fn hold_to_received(&mut self, slot: usize) {
        let most = i128::from(self.config.debt_bound.0 / 2);
        let disk = self.disks[slot].as_mut().unwrap();
        let in_shortage = self.late.0 >= most && self.now - self.late.1 <= most;
        if disk.has_reported && !in_shortage {
            let received = disk.spread.received.max(self.now - most);
            disk.reservation.iter_mut().for_each(|tag| tag.lower_to(received));
        }
    }

    /// Holds the next disk in turn to the lead.
    pub(super) fn visit(&mut self) {
        self.visited = if self.visited + 1 < self.reported { self.visited + 1 } else { 0 };
        let slot = self.visited;
        if self.disks[slot]
            .as_ref()
            .is_some_and(|d| d.standing == Standing::Ready && d.has_reported)
        {
            let (ahead, v) = (self.lead_of(slot), self.v);
            self.disks[slot].as_mut().unwrap().hold_ahead(v, ahead);
            self.hold_to_received(slot);
        }
    }
}
