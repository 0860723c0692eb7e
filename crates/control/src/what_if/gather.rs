//! What is known of a time: from history to the simulator's record.

use crate::{Control, ControlError};
use headgate_history::{Account, Learnt, Span, StoreHour, wall_clock};
use headgate_model::{DatastoreRecord, DiskGroups, DiskRecord, Lookback, Name, Policy};
use headgate_qos::window::Slots;
use headgate_sim::what_if::{
    Curve, DeviceRecord, DiskRecord as Recorded, LoadRecord, PeriodRecord, Spread, Waited,
};
use headgate_units::{Bytes, Iops, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The most disks that are simulated: those with the most requests.
pub(super) const DISKS_MAX: usize = 256;
/// The longest time of which intervals are read, in seconds.
const FINE_MAX: i64 = 6 * 3_600;
const SECOND: u64 = 1_000_000_000;

/// What is asked, and what of it is known without history.
pub(super) struct Question {
    pub(super) disk: Name,
    pub(super) after: Policy,
    pub(super) within: Range<i64>,
    pub(super) disks: Vec<DiskRecord>,
    pub(super) datastore: DatastoreRecord,
    /// In force now.
    pub(super) window: Option<Slots>,
    pub(super) groups: DiskGroups,
    /// Why the change would not be made without force.
    pub(super) refused: Option<String>,
}

/// A disk's time.
pub(super) struct Known {
    pub(super) name: Name,
    /// The policy now.
    pub(super) now: Policy,
    /// The policy of then, as far as that is recorded.
    pub(super) then: Policy,
    pub(super) sum: Account,
}

/// What is known.
pub(super) struct Gathered {
    pub(super) record: LoadRecord,
    /// In the order of the record.
    pub(super) disks: Vec<Known>,
    pub(super) span: Span,
    pub(super) learnt: Learnt,
    /// Disks that came here since that time, and disks that left.
    pub(super) came: Vec<Name>,
    pub(super) left: Vec<Name>,
    /// Disks beyond those that are simulated.
    pub(super) beyond: usize,
    /// The first period of which anything is known.
    pub(super) kept_since: Option<i64>,
}

/// Disks by when they were on a datastore.
struct Presence {
    came: Vec<Name>,
    left: BTreeSet<Name>,
}

/// A disk with its accounts, by the seconds at which they begin.
type Of<'a> = (&'a DiskRecord, BTreeMap<i64, Account>);

impl Control {
    /// Reads what history has of the disks that were on the datastore.
    pub(super) fn gather(&self, question: &Question) -> Result<Gathered, ControlError> {
        let Question { within, datastore, .. } = question;
        let span = span(within);
        let within = span.begin(within.start)..within.end;
        let Presence { came, left } = self.presence(question, within.start);
        let mut accounts: Vec<Of<'_>> = Vec::new();
        for disk in question.disks.iter().filter(|disk| !came.contains(&disk.name)) {
            accounts.push((disk, self.periods(&disk.name, &within, span)?));
        }
        // Of those that left, only those matter that asked for something.
        let mut departed = Vec::new();
        for name in left {
            let asked = sum_of(&self.periods(&name, &within, span)?) > 0;
            departed.extend(asked.then_some(name));
        }
        accounts.retain(|(disk, periods)| disk.name == question.disk || sum_of(periods) > 0);
        accounts.sort_by_key(|(disk, periods)| {
            (disk.name != question.disk, std::cmp::Reverse(sum_of(periods)))
        });
        let beyond = accounts.len().saturating_sub(DISKS_MAX);
        accounts.truncate(DISKS_MAX);
        let begins: BTreeSet<i64> =
            accounts.iter().flat_map(|(_, periods)| periods.keys().copied()).collect();
        let begins: Vec<i64> = begins.into_iter().collect();
        let fine = span == Span::Minute && within.end - within.start <= FINE_MAX;
        let (mut disks, mut recorded) = (Vec::new(), Vec::new());
        for (disk, of_disk) in &accounts {
            let outstanding =
                if fine { self.outstanding(&disk.name, &within)? } else { BTreeMap::new() };
            let one = Known::of(disk, of_disk);
            let after = if disk.name == question.disk { question.after } else { disk.policy };
            recorded.push(one.recorded(after, of_disk, &begins, &outstanding)?);
            disks.push(one);
        }
        let (device, learnt) = self.device(&datastore.name, &within)?;
        let record = load_record(question, seen(&begins, &accounts), recorded, device, &disks);
        let kept_since = begins.first().copied();
        Ok(Gathered { record, disks, span, learnt, came, left: departed, beyond, kept_since })
    }

    fn presence(&self, question: &Question, from: i64) -> Presence {
        let known = self.samples().known();
        let here = &question.datastore.name;
        let is_here = |name: &Name| question.disks.iter().any(|disk| disk.name == *name);
        let (mut came, mut left) = (BTreeSet::new(), BTreeSet::new());
        for moved in known.moves.iter().filter(|one| (one.at.0 / SECOND).cast_signed() > from) {
            let Ok(name) = moved.disk.as_str().parse::<Name>() else { continue };
            match is_here(&name) {
                true => came.insert(name),
                false if moved.from.as_str() == here.as_str() => left.insert(name),
                false => false,
            };
        }
        let gone =
            known.departed.iter().filter(|(name, was)| was.datastore == *here && !is_here(name));
        left.extend(gone.map(|(name, _)| name.clone()));
        Presence { came: came.into_iter().collect(), left }
    }

    fn periods(
        &self,
        disk: &Name,
        within: &Range<i64>,
        span: Span,
    ) -> Result<BTreeMap<i64, Account>, ControlError> {
        let mut found = self.samples().accounts(Some(disk), within.clone(), span)?;
        Ok(found.remove(disk).unwrap_or_default())
    }

    /// The mean numbers outstanding in a disk's intervals, by the minute that each is in.
    fn outstanding(
        &self,
        disk: &Name,
        within: &Range<i64>,
    ) -> Result<BTreeMap<i64, Vec<f32>>, ControlError> {
        let nanos = |second: i64| Nanos::from_secs(second.max(0).cast_unsigned());
        let within = nanos(within.start)..nanos(within.end + 10);
        let mut minutes: BTreeMap<i64, Vec<f32>> = BTreeMap::new();
        for (ended, interval) in self.samples().disk_intervals(disk, within)? {
            // Most of it was before its end.
            let middle = ended.0.saturating_sub(2 * SECOND) / SECOND;
            let outstanding = interval.0.map_or(0.0, |profile| profile.outstanding.as_f64());
            let minute = Span::Minute.begin(middle.cast_signed());
            minutes.entry(minute).or_default().push(outstanding as f32);
        }
        Ok(minutes)
    }

    /// What is known of the storage.
    fn device(
        &self,
        datastore: &Name,
        within: &Range<i64>,
    ) -> Result<(DeviceRecord, Learnt), ControlError> {
        let learnt = self.samples().learnt(datastore)?;
        let hours = self.samples().history(datastore, Lookback::MONTH)?;
        let mut sum = StoreHour::default();
        for (_, hour) in hours.range(Span::Hour.begin(within.start)..within.end) {
            sum.merge(hour);
        }
        let spread = Spread::by(|permille| sum.device.at_permille(permille));
        let spread = spread.unwrap_or_else(Spread::none);
        let curve = learnt.model.map_or(Curve::Recorded, Curve::Learnt);
        Ok((DeviceRecord { curve, spread }, learnt))
    }
}

/// By what accounts are read: by the minute where those are kept.
fn span(within: &Range<i64>) -> Span {
    let now = (wall_clock().0 / 1_000_000_000).cast_signed();
    if within.start >= now - 24 * 3_600 + 60 { Span::Minute } else { Span::Hour }
}

/// How much was seen of each period: of a disk that asks for nothing, nothing is kept.
fn seen(begins: &[i64], accounts: &[Of<'_>]) -> Vec<Nanos> {
    let of = |begin: &i64| {
        let of_each = accounts.iter().filter_map(|(_, periods)| periods.get(begin));
        of_each.map(|account| account.seen).max().unwrap_or_default()
    };
    begins.iter().map(of).collect()
}

fn load_record(
    question: &Question,
    periods: Vec<Nanos>,
    recorded: Vec<Recorded>,
    device: DeviceRecord,
    disks: &[Known],
) -> LoadRecord {
    let datastore = &question.datastore;
    let (scheduler, config) = datastore.scheduler_setup();
    let fixed = Slots::whole(datastore.queue_depth);
    let window = match datastore.window.latency() {
        None => fixed,
        Some(_) => question.window.unwrap_or(fixed),
    };
    let place = |name: &Name| disks.iter().position(|disk| disk.name == *name);
    let members = question.groups.members.iter();
    LoadRecord {
        periods,
        disks: recorded,
        device,
        scheduler,
        config,
        window,
        groups: question.groups.groups.clone(),
        members: members.filter_map(|(name, group)| Some((place(name)?, *group))).collect(),
    }
}

fn sum_of(periods: &BTreeMap<i64, Account>) -> u64 {
    periods.values().map(requests).sum()
}

pub(super) fn requests(account: &Account) -> u64 {
    account.reads.count.saturating_add(account.writes.count)
}

impl Known {
    fn of(disk: &DiskRecord, periods: &BTreeMap<i64, Account>) -> Known {
        let mut sum = Account::default();
        periods.values().for_each(|account| sum.merge(account));
        let then = policy_of_then(disk.policy, &sum);
        Known { name: disk.name.clone(), now: disk.policy, then, sum }
    }

    /// As the simulator takes it.
    fn recorded(
        &self,
        after: Policy,
        periods: &BTreeMap<i64, Account>,
        begins: &[i64],
        outstanding: &BTreeMap<i64, Vec<f32>>,
    ) -> Result<Recorded, ControlError> {
        let checked = |policy: Policy| {
            let e = |e: headgate_qos::PolicyError| ControlError::Malformed(e.to_string());
            policy.for_scheduler().map_err(e)
        };
        let period = |begin: &i64| {
            let Some(account) = periods.get(begin) else { return PeriodRecord::default() };
            let [device, limit, own, neighbours, window, _] = account.waits;
            PeriodRecord {
                reads: account.reads.count,
                writes: account.writes.count,
                bytes: Bytes(account.reads.bytes.0.saturating_add(account.writes.bytes.0)),
                waited: Waited { device, limit, queue: own + neighbours + window },
                outstanding: outstanding.get(begin).cloned().unwrap_or_default(),
            }
        };
        let at = |permille| self.sum.latency.at_permille(permille);
        Ok(Recorded {
            name: self.name.to_string(),
            before: checked(self.then)?,
            after: checked(after)?,
            periods: begins.iter().map(period).collect(),
            latency: at(500).zip(at(990)),
        })
    }

    /// Whether its reservation is another by now.
    pub(super) fn is_changed(&self) -> bool {
        self.then.reservation != self.now.reservation
    }
}

/// Of a policy, history has the reservation.
fn policy_of_then(now: Policy, sum: &Account) -> Policy {
    let seconds = sum.seen.as_secs_f64();
    if seconds <= 0.0 {
        return now;
    }
    let was = sum.reserved as f64 / 1e3 / seconds;
    let is = now.reservation.map_or(0.0, |iops| iops.get() as f64);
    if (was - is).abs() <= (0.01 * is).max(0.5) {
        return now;
    }
    let then = Policy { reservation: Iops::new(was.round() as u64).ok(), ..now };
    // Its limit was another then, too.
    if then.for_scheduler().is_ok() { then } else { Policy { limit: None, ..then } }
}
