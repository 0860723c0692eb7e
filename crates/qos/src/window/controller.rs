use super::board::{BoardView, Bound, Cluster, HostReport, Load, toil};
use super::config::{Config, ConfigError, Division, Feedback, Gain, LowerBound};
use super::demand::{ActiveShares, Demand, reserved};
use super::history::History;
use super::latency::Observation;
use super::slots::{Fraction, MILLION, Slots, ratio};
use super::watch::{LoadEvent, Unmanaged, Watch};
use headgate_units::Nanos;

/// What of [`Controller::toil`] is of the last period.
const TOIL: Fraction = Fraction::percent(25);

/// One host's window at one datastore.
///
/// Call [`update`](Controller::update) at the end of every [period](Config::period) and let no more
/// requests out than its [window](Update::window) says; [`Pacer`](super::Pacer) does that for
/// windows that are not whole. What it returns to be [reported](Update::report) goes to the other
/// hosts.
#[derive(Clone, Debug)]
pub struct Controller {
    config: Config,
    history: History,
    window: Slots,
    bound: Bound,
    /// The lower bound, without reservations, as last agreed with the other hosts.
    least: Slots,
    /// What a slot of this host takes for its work, relative to one of all hosts, in millionths:
    /// the mean of some periods.
    toil: u64,
    watch: Watch,
    /// See [`HostReport::follows`].
    follows: Option<Nanos>,
}

/// What one period led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// How many requests may be in flight until the next update.
    pub window: Slots,
    /// What holds it there.
    pub bound: Bound,
    /// β, in slots per period. Zero while the window is held.
    pub beta: Slots,
    /// The mean latency of all IOs of all hosts; `None` when there were none, or the board could
    /// not be read.
    pub latency: Option<Nanos>,
    /// The threshold that all hosts act by.
    pub threshold: Nanos,
    /// The hosts whose word counted, this one included.
    pub hosts: u32,
    /// Those among them whose threshold or period is another than this host's.
    pub differing: u32,
    /// Why the window was left as it was, if so.
    pub held: Option<Held>,
    /// What all hosts did.
    pub load: Load,
    /// What somebody should hear of.
    pub event: Option<LoadEvent>,
    /// What to tell the other hosts.
    pub report: HostReport,
}

/// Why a window stays as it is. Its bounds count nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The board could not be read: alone, hosts would drift apart, for each measures another
    /// latency.
    BoardUnreachable,
    /// No host did any IOs.
    NoIos,
}

impl Controller {
    /// A window of [`Config::initial`].
    ///
    /// # Errors
    /// The first value of the configuration that is out of range.
    pub fn new(config: Config) -> Result<Controller, ConfigError> {
        config.validate()?;
        let window = config.initial.clamp(config.min, config.max);
        let (history, watch) = (History::new(window), Watch::new());
        let (bound, least) = (Bound::Free, config.min);
        let (toil, follows) = (MILLION, None);
        Ok(Controller { config, history, window, bound, least, toil, watch, follows })
    }

    /// The window now.
    pub fn window(&self) -> Slots {
        self.window
    }

    /// The configuration now.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The load that no window controls, while there is any.
    pub fn unmanaged(&self) -> Option<Unmanaged> {
        self.watch.state()
    }

    /// Changes the configuration from the next update on.
    ///
    /// # Errors
    /// The first value that is out of range; the configuration stays as it was then.
    pub fn configure(&mut self, config: Config) -> Result<(), ConfigError> {
        config.validate()?;
        self.config = config;
        Ok(())
    }

    /// Acts by this threshold from the next update on; `base` is what it is without a trial.
    pub(super) fn follow(&mut self, threshold: Nanos, base: Nanos) {
        (self.config.threshold, self.follows) = (threshold, Some(base));
    }

    /// The threshold follows nothing any more.
    pub(super) fn follow_no_more(&mut self) {
        self.follows = None;
    }

    /// Ends a period: `own` is what this host saw in it, `vms` what its VMs wanted, `board` what
    /// the others say. O(VMs + hosts).
    pub fn update(
        &mut self,
        own: Option<Observation>,
        vms: &[Demand],
        board: BoardView<'_>,
    ) -> Update {
        let shares = ActiveShares::of(vms, self.window);
        let report = HostReport {
            latency: own.map_or(Nanos::ZERO, |own| own.latency),
            ios: own.map_or(0, |own| own.ios),
            work: own.map_or(0, |own| own.work),
            window: self.window,
            bound: self.bound,
            shares,
            threshold: self.config.threshold,
            period: self.config.period,
            follows: self.follows,
        };
        let (peers, readable) = match board {
            BoardView::Alone => (&[][..], true),
            BoardView::Shared(peers) => (peers, true),
            BoardView::Unreachable => (&[][..], false),
        };
        let cluster = Cluster::new(report, peers);
        let threshold = cluster.threshold();
        let latency = if readable { cluster.latency() } else { None };
        let (wanted, beta, held) = match latency {
            Some(latency) => {
                self.least = self.lower_bound(&cluster);
                self.toil = self.toil(&cluster, vms);
                let (wanted, beta) = self.law(&cluster, (latency, threshold));
                (wanted, beta, None)
            }
            None if readable => (self.window, Slots::ZERO, Some(Held::NoIos)),
            None => (self.window, Slots::ZERO, Some(Held::BoardUnreachable)),
        };
        (self.window, self.bound) = self.bounded(wanted, self.reserved(vms, own, threshold));
        self.history.push(self.window);
        let event = latency.and_then(|latency| {
            let collapsed = cluster.collapsed(self.window, self.bound);
            self.watch.observe(self.config.alarm, (latency, threshold), collapsed, self.bound)
        });
        Update {
            window: self.window,
            bound: self.bound,
            beta,
            latency,
            threshold,
            hosts: cluster.hosts(),
            differing: cluster.differing(),
            held,
            load: cluster.load(latency, threshold),
            event,
            report: HostReport { window: self.window, bound: self.bound, ..report },
        }
    }

    /// Equation 2; the new window and β.
    fn law(&self, cluster: &Cluster<'_>, (latency, threshold): (Nanos, Nanos)) -> (Slots, Slots) {
        let (beta, aim) = match self.config.gain {
            Gain::SharesPerSlot(per) => {
                let own = Slots::from_millionths(cluster.own_shares().as_millionths());
                (own.scaled(1, u64::from(per.get())), threshold)
            }
            Gain::Excess(part) => {
                let (used, shares) = cluster.shared();
                let own = cluster.own_shares().as_millionths();
                let due = match self.config.division {
                    Division::Slots => used.scaled(own, shares.as_millionths()),
                    Division::Service => {
                        let own = ratio(own, self.toil, MILLION);
                        used.scaled(own, cluster.laden_shares())
                    }
                };
                let beta = Slots::from_millionths(part.of(due.as_millionths()));
                (beta, Nanos(part.rest().of(threshold.0).max(1)))
            }
        };
        let measured = match self.config.feedback {
            Feedback::Present => None,
            Feedback::Matched => cluster.window(|age| self.history.at(age, self.config.period)),
        };
        let target = measured.unwrap_or(self.window).scaled(aim.0, latency.0) + beta;
        let (old, new) = (self.config.step.rest(), self.config.step);
        (part_of(old, self.window) + part_of(new, target), beta)
    }

    /// [`Controller::toil`] after this period. One period alone would set what this host measured
    /// just now against reports of a time when all windows were others; where those are late, that
    /// rings.
    fn toil(&self, cluster: &Cluster<'_>, vms: &[Demand]) -> u64 {
        // Not by the latency that was measured: who measures too much would get too much.
        let wanted = vms.iter().fold(Slots::ZERO, |all, vm| all + vm.outstanding);
        let own = (wanted.min(self.window), cluster.own_work());
        let (all, work) = (cluster.shared().0, cluster.work());
        let Some(now) = toil(own, (all, work)) else { return self.toil };
        part_of(TOIL.rest(), Slots::from_millionths(self.toil)).as_millionths()
            + part_of(TOIL, Slots::from_millionths(now)).as_millionths()
    }

    /// The lower bound, leaving reservations aside.
    fn lower_bound(&self, cluster: &Cluster<'_>) -> Slots {
        let min = self.config.min;
        match self.config.lower_bound {
            LowerBound::Alike => min,
            LowerBound::ByShares => {
                if cluster.own_shares() == ActiveShares::ZERO {
                    // It uses nothing, and shall have something to come back with.
                    return min;
                }
                let (hosts, shares) = cluster.active();
                let all =
                    Slots::from_millionths(min.as_millionths().saturating_mul(u64::from(hosts)));
                let own = all.scaled(cluster.own_shares().as_millionths(), shares.as_millionths());
                own.max(min.min(Slots::ONE))
            }
        }
    }

    /// What the reservations need: Σr·𝓛 in any case. While this host's requests take longer, they
    /// need more to get what they are promised; but no more than the configured maximum, or hosts
    /// that were promised more than there is would drive each other up without end.
    fn reserved(&self, vms: &[Demand], own: Option<Observation>, threshold: Nanos) -> Slots {
        let at_rest = reserved(vms, threshold);
        let latency = own.map_or(threshold, |own| own.latency.max(threshold));
        at_rest.max(reserved(vms, latency).min(self.config.max))
    }

    /// Holds a window to its bounds. Where they contradict each other, what was promised goes
    /// before what was configured.
    fn bounded(&self, window: Slots, reserved: Slots) -> (Slots, Bound) {
        let reserved = reserved.min(Slots::WINDOW_MAX);
        let least = self.least.min(self.config.max);
        let (low, bound) =
            if reserved > least { (reserved, Bound::Reservations) } else { (least, Bound::Min) };
        let high = self.config.max.max(low);
        match window {
            _ if window <= low => (low, bound),
            _ if window >= high => (high, Bound::Max),
            _ => (window, Bound::Free),
        }
    }
}

fn part_of(part: Fraction, slots: Slots) -> Slots {
    slots.scaled(u64::from(part.as_millionths()), MILLION)
}
