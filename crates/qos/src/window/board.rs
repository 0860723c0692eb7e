use super::config::Division;
use super::demand::ActiveShares;
use super::history::OLDEST;
use super::slots::{MILLION, Slots, ratio};
use headgate_units::Nanos;

/// What a host tells the others about itself and a datastore, once a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// Mean latency of a reference IO in the last period; of no meaning without IOs.
    pub latency: Nanos,
    /// IOs that completed in the last period.
    pub ios: u64,
    /// What they cost, in millionths of a reference IO.
    pub work: u64,
    /// The window from now on.
    pub window: Slots,
    /// What holds the window where it is.
    pub bound: Bound,
    /// The shares of VMs that use their slots.
    pub shares: ActiveShares,
    /// The latency threshold it was given.
    pub threshold: Nanos,
    /// The length of its periods.
    pub period: Nanos,
    /// Its threshold without what a trial adds, where that
    /// [follows](super::Following) the storage; `None` where it was set by hand.
    pub follows: Option<Nanos>,
}

impl HostReport {
    /// The mean number of requests at the storage in the last period, by Little's law.
    pub(super) fn in_use(&self) -> Slots {
        Slots::from_millionths(ratio(
            self.ios.saturating_mul(1_000_000),
            self.latency.0,
            self.period.0,
        ))
    }

    /// The same with requests of any size: large ones take longer than their latency here says.
    fn really_in_use(&self) -> Slots {
        Slots::from_millionths(ratio(self.work, self.latency.0, self.period.0))
    }

    /// Whether three quarters of its window were used: what it got done depends on that.
    fn is_full(&self) -> bool {
        let used = self.really_in_use().as_millionths();
        used.saturating_mul(4) >= self.window.as_millionths().saturating_mul(3)
    }

    /// Millionths of a reference IO per second.
    fn rate(&self) -> u64 {
        ratio(self.work, 1_000_000_000, self.period.0)
    }
}

/// What holds a window where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Latency and shares.
    Free,
    /// The lower bound.
    Min,
    /// What the reservations need.
    Reservations,
    /// The upper bound.
    Max,
}

impl Bound {
    /// Whether the window cannot become smaller.
    pub fn is_lower(self) -> bool {
        matches!(self, Bound::Min | Bound::Reservations)
    }
}

/// Where a host stands in an order that all hosts know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Before this host.
    Before,
    /// After it.
    After,
}

/// Another host's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What it says.
    pub report: HostReport,
    /// For how long we have seen it so, by our own clock.
    pub age: Nanos,
    /// Where it stands among the hosts.
    pub rank: Rank,
}

impl Peer {
    /// Whether its word counts, in periods of this length.
    pub(super) fn is_fresh(&self, period: Nanos) -> bool {
        self.age.0 <= period.0.saturating_mul(OLDEST)
    }
}

/// How hosts used their windows in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Hosts whose windows were not full had most of the requests in flight.
    Spare,
    /// Hosts whose windows were full had half of them or more.
    Full,
    /// So they had, and most of it in windows that could be no smaller, while latency was more than
    /// a tenth above the threshold.
    Pressed,
}

/// What all hosts together did in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Work per second, in millionths of a reference IO.
    pub work: u64,
    /// IOs.
    pub ios: u64,
    /// Requests in flight.
    pub in_use: Slots,
    /// Whether windows were full.
    pub fill: Fill,
}

/// What is known of the other hosts.
#[derive(Clone, Copy, Debug)]
pub enum BoardView<'a> {
    /// There are none: nobody else uses the datastore.
    Alone,
    /// Their reports, in the order of the hosts; those older than three periods do not count.
    Shared(&'a [Peer]),
    /// Nothing, at present.
    Unreachable,
}

/// What the slots of a host take for their work, relative to those of all hosts, itself included:
/// slots and work of the host, and of all. In millionths; no more than [`Division::LEASH`] times
/// what the others' slots take. One where there is nobody to compare with, `None` where nothing was
/// done.
pub(super) fn toil((slots, work): (Slots, u64), all: (Slots, u64)) -> Option<u64> {
    if work == 0 || slots == Slots::ZERO {
        return None;
    }
    let others = (all.0 - slots, all.1.saturating_sub(work));
    if others.0 == Slots::ZERO || others.1 == 0 {
        return Some(MILLION);
    }
    // As many slots as the others, and as all, would take for this work.
    let by_others = others.0.scaled(work, others.1);
    let by_all = all.0.scaled(work, all.1);
    let counted = slots.min(by_others.scaled(u64::from(Division::LEASH), 1));
    let toil = ratio(counted.as_millionths(), MILLION, by_all.as_millionths().max(1));
    Some(toil.clamp(1, TOIL_MAX))
}

/// Past this nobody's slots are counted: no report, however wrong, makes products overflow.
const TOIL_MAX: u64 = 1_000 * MILLION;

/// The hosts whose word counts, the own one first.
pub(super) struct Cluster<'a> {
    own: HostReport,
    peers: &'a [Peer],
}

impl<'a> Cluster<'a> {
    pub(super) fn new(own: HostReport, peers: &'a [Peer]) -> Cluster<'a> {
        Cluster { own, peers }
    }

    fn fresh(&self) -> impl Iterator<Item = &'a Peer> + use<'a> {
        let period = self.own.period;
        self.peers.iter().filter(move |peer| peer.is_fresh(period))
    }

    /// All reports and their ages.
    fn all(&self) -> impl Iterator<Item = (HostReport, Nanos)> + use<'a> {
        core::iter::once((self.own, Nanos::ZERO))
            .chain(self.fresh().map(|peer| (peer.report, peer.age)))
    }

    pub(super) fn own_shares(&self) -> ActiveShares {
        self.own.shares
    }

    pub(super) fn hosts(&self) -> u32 {
        u32::try_from(self.all().count()).unwrap_or(u32::MAX)
    }

    /// The smallest threshold, by which all act.
    pub(super) fn threshold(&self) -> Nanos {
        self.all()
            .map(|(report, _)| report.threshold)
            .min()
            .unwrap_or(self.own.threshold)
            .max(Nanos(1))
    }

    /// Hosts that are configured otherwise than this one. Thresholds that follow the storage agree
    /// by themselves.
    pub(super) fn differing(&self) -> u32 {
        let kind = |report: &HostReport| {
            (report.follows.is_none().then_some(report.threshold), report.period)
        };
        let own = kind(&self.own);
        let differs = |peer: &&Peer| kind(&peer.report) != own;
        u32::try_from(self.fresh().filter(differs).count()).unwrap_or(u32::MAX)
    }

    /// `Σ n·x / Σ n` over the hosts that did IOs; `None` when none did.
    fn mean(&self, value: impl Fn(&HostReport, Nanos) -> u64) -> Option<u64> {
        let (mut sum, mut ios) = (0u128, 0u128);
        for (report, age) in self.all() {
            sum = sum.saturating_add(u128::from(report.ios) * u128::from(value(&report, age)));
            ios += u128::from(report.ios);
        }
        sum.checked_div(ios).map(|mean| u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The mean latency of all IOs of all hosts (section 3.2).
    pub(super) fn latency(&self) -> Option<Nanos> {
        self.mean(|report, _| report.latency.0).map(|mean| Nanos(mean.max(1)))
    }

    /// The mean over all IOs of what `window` says of the age of their report.
    pub(super) fn window(&self, window: impl Fn(Nanos) -> Slots) -> Option<Slots> {
        self.mean(|_, age| window(age).as_millionths()).map(Slots::from_millionths)
    }

    /// This host and all others that latency and shares rule: what is held by a bound is left out.
    fn ruled(&self) -> impl Iterator<Item = HostReport> + use<'a> {
        let free = self.fresh().filter(|peer| peer.report.bound == Bound::Free);
        core::iter::once(self.own).chain(free.map(|peer| peer.report))
    }

    /// Their slots in use and active shares.
    pub(super) fn shared(&self) -> (Slots, ActiveShares) {
        self.ruled().fold((Slots::ZERO, ActiveShares::ZERO), |(used, shares), report| {
            (used + report.in_use(), shares + report.shares)
        })
    }

    /// What they get done, in millionths of a reference IO per second.
    pub(super) fn work(&self) -> u64 {
        self.ruled().fold(0, |all: u64, report| all.saturating_add(report.rate()))
    }

    /// What all hosts did, at this mean latency and by this threshold.
    pub(super) fn load(&self, latency: Option<Nanos>, threshold: Nanos) -> Load {
        let nothing = Load { work: 0, ios: 0, in_use: Slots::ZERO, fill: Fill::Spare };
        let (mut full, mut least) = (Slots::ZERO, Slots::ZERO);
        let all = self.all().fold(nothing, |all, (report, _)| {
            let used = report.really_in_use();
            if report.is_full() {
                full += used;
                if report.bound.is_lower() {
                    least += used;
                }
            }
            Load {
                work: all.work.saturating_add(report.rate()),
                ios: all.ios.saturating_add(report.ios),
                in_use: all.in_use + used,
                ..all
            }
        });
        let is_high = latency.is_some_and(|latency| latency.0 > ratio(threshold.0, 11, 10));
        let is_most = |of: Slots, part: Slots| part + part > of;
        let fill = match () {
            () if full == Slots::ZERO || is_most(all.in_use, all.in_use - full) => Fill::Spare,
            () if is_high && is_most(full, least) => Fill::Pressed,
            () => Fill::Full,
        };
        Load { fill, ..all }
    }

    /// Their active shares, each times what its slots take for their work ([`toil`]), as all of
    /// them see it.
    pub(super) fn laden_shares(&self) -> u64 {
        let all = (self.shared().0, self.work());
        let laden = |report: HostReport| {
            let own = (report.in_use(), report.rate());
            ratio(report.shares.as_millionths(), toil(own, all).unwrap_or(MILLION), MILLION)
        };
        self.ruled().map(laden).fold(0, u64::saturating_add)
    }

    /// What this host gets done.
    pub(super) fn own_work(&self) -> u64 {
        self.own.rate()
    }

    /// Hosts with active shares, and the sum of those.
    pub(super) fn active(&self) -> (u32, ActiveShares) {
        self.all()
            .filter(|(report, _)| report.shares > ActiveShares::ZERO)
            .fold((0, ActiveShares::ZERO), |(hosts, shares), (report, _)| {
                (hosts + 1, shares + report.shares)
            })
    }

    /// The sum of the windows of all hosts that did IOs, if each of them is at its lower bound;
    /// `own` and `bound` are this host's. `None` also when none did IOs.
    pub(super) fn collapsed(&self, own: Slots, bound: Bound) -> Option<Slots> {
        let own = (self.own.ios > 0).then_some((own, bound));
        let others = self.fresh().map(|peer| peer.report).filter(|report| report.ios > 0);
        own.into_iter()
            .chain(others.map(|report| (report.window, report.bound)))
            .try_fold(Slots::ZERO, |total, (window, bound)| {
                bound.is_lower().then_some(total + window)
            })
    }
}
