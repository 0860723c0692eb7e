//! Wrong policies, to see whether a scenario's expectations notice them.
//!
//! A mutation is what a wrong program would do: wherever a scenario has one policy, another is in
//! its place. It changes what runs and not what is expected, so outcomes of a mutated scenario are
//! judged by the scenario as it was.

use crate::scenario::{
    Action, Balancing, Chooser, Coordination, IoSchedulerKind, IssueWindow, Knowledge, Scenario,
    Setup,
};
use headgate_devices::ModelSpec;
use headgate_placement::{Interference, Mobility};
use headgate_qos::window::Follow;
use headgate_qos::{Burst, CostModel, Policy, PriorityPolicy, PriorityScope, SchedulerKind};
use headgate_units::{Nanos, Shares};
use serde::Serialize;
use std::fmt;

mod room;

/// A wrong policy in place of the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mutation {
    /// First come, first served.
    Fifo,
    /// Shares alone.
    Sfq,
    /// mClock where the scenario has something to compare it with.
    MClock,
    /// All disks have the same shares.
    EqualShares,
    /// No disk has a reservation.
    NoReservations,
    /// No disk has a limit.
    NoLimits,
    /// No disk has credit for idle time.
    NoCredit,
    /// All disks have as much credit for idle time as there can be.
    FullCredit,
    /// Every request has its VM's default priority.
    NoPriorities,
    /// Priorities count within each VM only.
    PrioritiesWithin,
    /// Priorities count across VMs.
    PrioritiesAcross,
    /// Nothing is held back for a better stream.
    NoPlug,
    /// Every request costs one.
    UnitCost,
    /// Servers are told nothing of each other's service.
    NothingTold,
    /// Windows are as large as nothing ever fills.
    WideWindows,
    /// Windows of one request where a scheduler orders.
    NarrowWindows,
    /// Windows do not follow latency.
    FixedWindows,
    /// Thresholds of windows stay where they begin.
    StillThresholds,
    /// Windows follow it where they did not.
    ControlledWindows,
    /// Each host's window follows what that host sees.
    LocalWindows,
    /// All write into the same flash blocks.
    NoIsolation,
    /// Flash space stays where it is.
    StaticIsolation,
    /// Flash space follows its target.
    DynamicIsolation,
    /// No disk moves.
    NoBalancing,
    /// Disks move by their number.
    BalanceByCount,
    /// Disks move by load.
    BalanceByLoad,
    /// No disk moves where disks moved by load; where they moved by a rule of thumb they still do.
    IgnoreLoad,
    /// Disks go anywhere, whenever they could have moved by load.
    RestlessBalancing,
    /// New disks go anywhere.
    RandomPlacement,
    /// New disks go where load is least.
    PlacementByLoad,
    /// Advice considers load alone.
    NoInterference,
    /// Advice considers streams where it considered load alone.
    Interference,
    /// Moves that did harm stay.
    NoTakeBack,
    /// Disks may be anywhere: no affinity, none of its opposite, and none is pinned.
    NoRules,
    /// All arrays have as many spindles as the first, and such as that has.
    EqualArrays,
    /// All guests hand requests over as they come.
    GuestNoop,
    /// Guests' own schedulers order by position.
    GuestDeadline,
}

impl Mutation {
    /// All, in the order in which they are tried: those of pools first, whose experiments have the
    /// most runs.
    pub const ALL: [Mutation; 37] = [
        Mutation::NoBalancing,
        Mutation::RestlessBalancing,
        Mutation::IgnoreLoad,
        Mutation::RandomPlacement,
        Mutation::BalanceByCount,
        Mutation::Fifo,
        Mutation::Sfq,
        Mutation::NothingTold,
        Mutation::FixedWindows,
        Mutation::StillThresholds,
        Mutation::NoIsolation,
        Mutation::StaticIsolation,
        Mutation::EqualShares,
        Mutation::NoReservations,
        Mutation::NoLimits,
        Mutation::NoCredit,
        Mutation::FullCredit,
        Mutation::NoPriorities,
        Mutation::PrioritiesWithin,
        Mutation::NoPlug,
        Mutation::LocalWindows,
        Mutation::WideWindows,
        Mutation::UnitCost,
        Mutation::NoInterference,
        Mutation::Interference,
        Mutation::NoTakeBack,
        Mutation::NoRules,
        Mutation::EqualArrays,
        Mutation::GuestNoop,
        Mutation::GuestDeadline,
        Mutation::MClock,
        Mutation::PrioritiesAcross,
        Mutation::ControlledWindows,
        Mutation::DynamicIsolation,
        Mutation::BalanceByLoad,
        Mutation::PlacementByLoad,
        Mutation::NarrowWindows,
    ];

    /// The name for it.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::Fifo => "fifo",
            Mutation::Sfq => "sfq",
            Mutation::MClock => "mclock",
            Mutation::EqualShares => "equal-shares",
            Mutation::NoReservations => "no-reservations",
            Mutation::NoLimits => "no-limits",
            Mutation::NoCredit => "no-credit",
            Mutation::FullCredit => "full-credit",
            Mutation::NoPriorities => "no-priorities",
            Mutation::PrioritiesWithin => "priorities-within",
            Mutation::PrioritiesAcross => "priorities-across",
            Mutation::NoPlug => "no-plug",
            Mutation::UnitCost => "unit-cost",
            Mutation::NothingTold => "nothing-told",
            Mutation::WideWindows => "wide-windows",
            Mutation::NarrowWindows => "narrow-windows",
            Mutation::FixedWindows => "fixed-windows",
            Mutation::StillThresholds => "still-thresholds",
            Mutation::ControlledWindows => "controlled-windows",
            Mutation::LocalWindows => "local-windows",
            Mutation::NoIsolation => "no-isolation",
            Mutation::StaticIsolation => "static-isolation",
            Mutation::DynamicIsolation => "dynamic-isolation",
            Mutation::NoBalancing => "no-balancing",
            Mutation::BalanceByCount => "balance-by-count",
            Mutation::BalanceByLoad => "balance-by-load",
            Mutation::IgnoreLoad => "ignore-load",
            Mutation::RestlessBalancing => "restless-balancing",
            Mutation::RandomPlacement => "random-placement",
            Mutation::PlacementByLoad => "placement-by-load",
            Mutation::NoInterference => "no-interference",
            Mutation::Interference => "interference",
            Mutation::NoTakeBack => "no-take-back",
            Mutation::NoRules => "no-rules",
            Mutation::EqualArrays => "equal-arrays",
            Mutation::GuestNoop => "guest-noop",
            Mutation::GuestDeadline => "guest-deadline",
        }
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A scenario with a wrong policy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mutant {
    /// What runs. Expectations are as they were.
    pub scenario: Scenario,
    /// The variants that it changes; the others run as they did.
    pub changed: Vec<String>,
}

impl Scenario {
    /// The scenario with a wrong policy; `None` where it has nothing that could be wrong so.
    pub fn mutated(&self, mutation: Mutation) -> Option<Mutant> {
        let mut scenario = self.clone();
        let control = ControlOf::first(self);
        let mut changed = Vec::new();
        for variant in &mut scenario.variants {
            let before = format!("{:?}", variant.setup);
            change(&mut variant.setup, mutation, &control);
            if format!("{:?}", variant.setup) != before {
                changed.push(variant.name.clone());
            }
        }
        (!changed.is_empty()).then_some(Mutant { scenario, changed })
    }
}

/// How each datastore's windows are controlled in the first variant that does.
struct ControlOf(Vec<Option<IssueWindow>>);

impl ControlOf {
    fn first(scenario: &Scenario) -> ControlOf {
        let stores = scenario.variants.first().map_or(0, |one| one.setup.datastores.len());
        let of = |index: usize| {
            let mut windows = scenario.variants.iter().filter_map(|variant| {
                variant.setup.datastores.get(index).and_then(|store| store.issue_window)
            });
            windows.find(|window| matches!(window, IssueWindow::Controlled(_)))
        };
        ControlOf((0..stores).map(of).collect())
    }
}

fn change(setup: &mut Setup, mutation: Mutation, control: &ControlOf) {
    match mutation {
        Mutation::Fifo
        | Mutation::Sfq
        | Mutation::MClock
        | Mutation::NoCredit
        | Mutation::FullCredit
        | Mutation::UnitCost
        | Mutation::WideWindows
            if !room::has_anything_to_order(setup) => {}
        Mutation::Fifo => schedulers(setup, |_| SchedulerKind::Fifo),
        Mutation::Sfq => schedulers(setup, |kind| match kind {
            SchedulerKind::MClock | SchedulerKind::Sfq => SchedulerKind::Sfq,
            SchedulerKind::Fifo => SchedulerKind::Fifo,
        }),
        Mutation::MClock => schedulers(setup, |_| SchedulerKind::MClock),
        Mutation::EqualShares => policies(setup, |policy| policy.with_shares(Shares::default())),
        // What a policy without the one cannot have keeps it: then it is not wrong so.
        Mutation::NoReservations => {
            policies(setup, |policy| policy.with_reservation(None).unwrap_or(policy));
        }
        Mutation::NoLimits => policies(setup, |policy| {
            policy.with_limit(None).unwrap_or(policy).with_limit_bandwidth(None)
        }),
        Mutation::NoCredit => policies(setup, |policy| policy.with_burst(Burst::NONE)),
        Mutation::FullCredit => policies(setup, |policy| policy.with_burst(Burst::MAX)),
        Mutation::NoPriorities
        | Mutation::PrioritiesWithin
        | Mutation::PrioritiesAcross
        | Mutation::GuestNoop
        | Mutation::GuestDeadline
        | Mutation::RandomPlacement
        | Mutation::PlacementByLoad => change_vms(setup, mutation),
        Mutation::NoPlug
        | Mutation::UnitCost
        | Mutation::NothingTold
        | Mutation::WideWindows
        | Mutation::NarrowWindows
        | Mutation::FixedWindows
        | Mutation::StillThresholds
        | Mutation::ControlledWindows
        | Mutation::LocalWindows => change_datastores(setup, mutation, control),
        Mutation::NoIsolation
        | Mutation::StaticIsolation
        | Mutation::DynamicIsolation
        | Mutation::EqualArrays => change_devices(setup, mutation),
        Mutation::NoBalancing
        | Mutation::BalanceByCount
        | Mutation::BalanceByLoad
        | Mutation::IgnoreLoad
        | Mutation::RestlessBalancing
        | Mutation::NoInterference
        | Mutation::Interference
        | Mutation::NoTakeBack
        | Mutation::NoRules => change_pool(setup, mutation),
    }
}

fn schedulers(setup: &mut Setup, to: impl Fn(SchedulerKind) -> SchedulerKind) {
    for store in &mut setup.datastores {
        store.scheduler = to(store.scheduler);
        for front in store.nodes.iter_mut().filter_map(|node| node.front.as_mut()) {
            front.scheduler = to(front.scheduler);
        }
    }
    for scheduler in setup.hosts.iter_mut().filter_map(|host| host.scheduler.as_mut()) {
        *scheduler = to(*scheduler);
    }
}

fn policies(setup: &mut Setup, to: impl Fn(Policy) -> Policy) {
    for disk in setup.vms.iter_mut().flat_map(|vm| &mut vm.disks) {
        disk.policy = to(disk.policy);
    }
    for event in &mut setup.timeline {
        if let Action::Policy { policy, .. } = &mut event.action {
            *policy = to(*policy);
        }
    }
}

fn change_vms(setup: &mut Setup, mutation: Mutation) {
    for vm in &mut setup.vms {
        let asks = vm.workloads.iter().any(|workload| workload.priority.is_some());
        match mutation {
            Mutation::NoPriorities => {
                vm.workloads.iter_mut().for_each(|workload| workload.priority = None);
                let scope = vm.priorities.scope;
                vm.priorities = PriorityPolicy { scope, ..PriorityPolicy::default() };
            }
            Mutation::PrioritiesWithin => vm.priorities.scope = PriorityScope::WithinVm,
            Mutation::PrioritiesAcross if asks => vm.priorities.scope = PriorityScope::AcrossVms,
            _ => {}
        }
        for disk in &mut vm.disks {
            match (mutation, &mut disk.io_scheduler, &mut disk.place) {
                (Mutation::GuestNoop, Some(guest), _) => guest.kind = IoSchedulerKind::Noop,
                (Mutation::GuestDeadline, Some(guest), _) => guest.kind = IoSchedulerKind::Deadline,
                (Mutation::RandomPlacement, _, Some(place)) => *place = Chooser::Random,
                (Mutation::PlacementByLoad, _, Some(place)) => *place = Chooser::Load,
                _ => {}
            }
        }
    }
}

/// More requests than any scenario has outstanding.
const WIDE: u32 = 4_096;

fn change_datastores(setup: &mut Setup, mutation: Mutation, control: &ControlOf) {
    if mutation == Mutation::WideWindows {
        let own = setup.hosts.iter_mut().filter_map(|host| host.queue_depth.as_mut());
        own.for_each(|depth| *depth = WIDE);
    }
    for (index, store) in setup.datastores.iter_mut().enumerate() {
        let controlled = control.0.get(index).copied().flatten();
        match (mutation, &mut store.issue_window) {
            (Mutation::NoPlug, _) => store.config.plug = Nanos::ZERO,
            (Mutation::UnitCost, _) => store.config.cost_model = CostModel::Unit,
            (Mutation::NothingTold, _) if store.nodes.iter().any(|node| node.front.is_some()) => {
                store.coordination = Coordination::Alone;
            }
            (Mutation::WideWindows, _) => {
                store.queue_depth = WIDE;
                let fronts = store.nodes.iter_mut().filter_map(|node| node.front.as_mut());
                fronts.for_each(|front| front.queue_depth = WIDE);
            }
            (Mutation::NarrowWindows, window) if store.scheduler != SchedulerKind::Fifo => {
                store.queue_depth = 1;
                if window.is_some() {
                    *window = Some(IssueWindow::Fixed);
                }
            }
            (Mutation::FixedWindows, Some(window)) => *window = IssueWindow::Fixed,
            (Mutation::StillThresholds, Some(IssueWindow::Controlled(control))) => {
                control.config.follow = Follow::Never;
            }
            (Mutation::ControlledWindows, window @ Some(IssueWindow::Fixed)) => {
                *window = controlled.or(*window);
            }
            (Mutation::LocalWindows, Some(IssueWindow::Controlled(control))) => {
                control.knowledge = Knowledge::Local;
            }
            _ => {}
        }
    }
}

fn change_devices(setup: &mut Setup, mutation: Mutation) {
    let mut first = None;
    let nodes = setup.datastores.iter_mut().flat_map(|store| &mut store.nodes);
    let devices = nodes.map(|node| &mut node.device);
    for device in devices.chain(setup.sweeps.iter_mut().map(|sweep| &mut sweep.device)) {
        *device = match (mutation, &*device) {
            (Mutation::NoIsolation, ModelSpec::Ssd(_)) => with_option(device, "isolation=none"),
            (Mutation::StaticIsolation, ModelSpec::Ssd(_)) => {
                with_option(device, "isolation=static")
            }
            (Mutation::DynamicIsolation, ModelSpec::Ssd(_)) => {
                with_option(device, "isolation=dynamic")
            }
            (Mutation::EqualArrays, ModelSpec::Array(_)) => {
                let of_first = first.get_or_insert_with(|| device.to_string());
                let same =
                    |option: &str| option.starts_with("array=") || option.starts_with("disk=");
                let options = of_first.split(',').filter(|option| same(option));
                options.fold(device.clone(), |device, option| with_option(&device, option))
            }
            (_, device) => device.clone(),
        };
    }
}

/// A device with one option changed: `key=value`.
fn with_option(device: &ModelSpec, option: &str) -> ModelSpec {
    let key = option.split('=').next().unwrap_or_default();
    let text = device.to_string();
    let parts: Vec<&str> = text
        .split(',')
        .map(|part| if part.split('=').next() == Some(key) { option } else { part })
        .collect();
    // A device that cannot have it stays as it is: then nothing is wrong there.
    parts.join(",").parse().unwrap_or_else(|_| device.clone())
}

fn change_pool(setup: &mut Setup, mutation: Mutation) {
    let Some(pool) = &mut setup.pool else { return };
    match mutation {
        Mutation::NoBalancing => pool.balancing = Balancing::Off,
        Mutation::BalanceByCount if pool.balancing != Balancing::Off => {
            pool.balancing = Balancing::Count;
        }
        Mutation::BalanceByLoad => pool.balancing = Balancing::Load,
        Mutation::IgnoreLoad if pool.balancing == Balancing::Load => {
            pool.balancing = Balancing::Off;
        }
        Mutation::RestlessBalancing if pool.balancing == Balancing::Load => {
            pool.balancing = Balancing::Restless;
        }
        Mutation::NoInterference => pool.rules.interference = Interference::None,
        Mutation::Interference => pool.rules.interference = Interference::Streams,
        Mutation::NoTakeBack => pool.take_back = None,
        Mutation::NoRules => {
            pool.rules.affinity.clear();
            pool.rules.anti_affinity.clear();
            let disks = setup.vms.iter_mut().flat_map(|vm| &mut vm.disks);
            disks.for_each(|disk| disk.membership.mobility = Mobility::Free);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
        name = "two"
        title = "Two"
        duration = "10s"
        datastore = [{ name = "lun", device = "rate=1000,latency=1ms", queue-depth = 4 }]
        vm = [
            { name = "a", disk = [{ shares = 100, reservation = 50, limit = 400 }], workload = [{ kind = "closed" }] },
            { name = "b", disk = [{ shares = 300 }], workload = [{ kind = "closed" }] },
        ]
        event = [{ at = "5s", do = "policy", vm = "b", shares = 700, limit = 300 }]
        [[variant]]
        name = "right"
        [[variant]]
        name = "compared"
        set = { "datastore.lun.scheduler" = "fifo" }
        [[expect]]
        measure = "iops"
        of = "a"
        at-least = 1
    "#;

    fn scenario(text: &str) -> Scenario {
        Scenario::parse("x.toml", text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_mutation_changes_what_it_says_and_only_where_it_is() {
        let two = scenario(TWO);
        let fifo = two.mutated(Mutation::Fifo).unwrap();
        assert_eq!(fifo.changed, ["right"]);
        let kinds = |scenario: &Scenario| -> Vec<SchedulerKind> {
            scenario.variants.iter().map(|v| v.setup.datastores[0].scheduler).collect()
        };
        assert_eq!(kinds(&fifo.scenario), [SchedulerKind::Fifo; 2]);
        assert_eq!(kinds(&two), [SchedulerKind::MClock, SchedulerKind::Fifo], "the original stays");
        let mclock = two.mutated(Mutation::MClock).unwrap();
        assert_eq!(
            (mclock.changed, kinds(&mclock.scenario)),
            (vec!["compared".to_owned()], vec![SchedulerKind::MClock; 2])
        );
        for absent in [
            Mutation::NothingTold,
            Mutation::FixedWindows,
            Mutation::StillThresholds,
            Mutation::NoIsolation,
            Mutation::NoBalancing,
            Mutation::NoPriorities,
            Mutation::NoPlug,
            Mutation::EqualArrays,
        ] {
            assert!(two.mutated(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn policies_are_wrong_from_the_beginning_to_the_end() {
        let two = scenario(TWO);
        let held = |mutation: Mutation| -> Vec<Policy> {
            let setup = two.mutated(mutation).unwrap().scenario.variants.remove(0).setup;
            let disks = setup.vms.iter().map(|vm| vm.disks[0].policy);
            let events = setup.timeline.iter().filter_map(|event| match event.action {
                Action::Policy { policy, .. } => Some(policy),
                _ => None,
            });
            disks.chain(events).collect()
        };
        let equal = held(Mutation::EqualShares);
        assert_eq!(equal.len(), 3);
        assert!(equal.iter().all(|policy| policy.shares() == equal[0].shares()));
        assert!(held(Mutation::NoReservations).iter().all(|p| p.reservation().is_none()));
        assert!(held(Mutation::NoReservations).iter().any(|p| p.limit().is_some()));
        assert!(held(Mutation::NoLimits).iter().all(|p| p.limit().is_none()));
    }

    #[test]
    fn what_moves_by_load_is_wrong_and_what_it_is_compared_with_stays() {
        let three = scenario(
            r#"
            name = "three"
            title = "Three"
            duration = "10s"
            datastore = [
                { name = "a", device = "rate=1000,latency=1ms", capacity = "9G" },
                { name = "b", device = "rate=1000,latency=1ms", capacity = "9G" },
            ]
            pool = { advice = ["5s"] }
            vm = [{ name = "x", disk = [{ datastore = "a", size = "1G", pinned = true }], workload = [{ kind = "closed" }] }]
            variant = [
                { name = "load" },
                { name = "count", set = { "pool.balance" = "count" } },
                { name = "off", set = { "pool.balance" = "off" } },
            ]
            [[expect]]
            measure = "iops"
            of = "x"
            at-least = 1
            "#,
        );
        for (mutation, balancing) in [
            (Mutation::IgnoreLoad, Balancing::Off),
            (Mutation::RestlessBalancing, Balancing::Restless),
        ] {
            let mutant = three.mutated(mutation).unwrap();
            assert_eq!(mutant.changed, ["load"]);
            let setup = &mutant.scenario.variants[0].setup;
            assert_eq!(setup.pool.as_ref().unwrap().balancing, balancing);
        }
        let free = three.mutated(Mutation::NoRules).unwrap();
        let setup = &free.scenario.variants[0].setup;
        assert_eq!(setup.vms[0].disks[0].membership.mobility, Mobility::Free);
    }

    #[test]
    fn devices_keep_all_else() {
        let ssd: ModelSpec =
            "ssd=384M,op=15%,aged=yes,rated=2000,isolation=dynamic".parse().unwrap();
        let none = with_option(&ssd, "isolation=none");
        assert_eq!(none, "ssd=384M,op=15%,aged=yes,rated=2000,isolation=none".parse().unwrap());
        let array: ModelSpec = "array=9,cache=8M".parse().unwrap();
        assert_eq!(with_option(&array, "array=3"), "array=3,cache=8M".parse().unwrap());
    }

    #[test]
    fn every_mutation_has_a_name_of_its_own() {
        let mut names: Vec<&str> = Mutation::ALL.iter().map(|one| one.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Mutation::ALL.len());
    }
}
