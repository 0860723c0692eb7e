//! A datastore whose disks are in groups: the scheduler that a gate runs, against the definition,
//! before, during and after switches between flat and tree.

use crate::oracle::{Spec, due, members};
use crate::world::{
    Answer, Client, Device, Dice, MS, SECOND, Service, Subject, World, config, policy,
};
use headgate_qos::{
    AnyScheduler, Decision, DiskId, Group, GroupId, Groups, GroupsError, Io, LimitMode, Policy,
    Scheduler, SchedulerKind,
};
use headgate_units::{Bytes, Iops, Nanos, Priority};

const TENANTS: usize = 3;
const MACHINES: usize = 4;
const DISKS: usize = 3;

fn spec(parent: Option<usize>, reservation: f64, limit: f64, shares: f64) -> Spec {
    let limit = if limit == 0.0 { f64::INFINITY } else { limit };
    Spec { parent, reservation, limit, shares, demand: f64::INFINITY }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Group,
    Disk,
    /// An application, of this priority.
    Stream(u64),
}

/// Three tenants of four machines of three disks, of which each first one has two applications.
fn site() -> (Vec<Spec>, Vec<Part>) {
    let (mut specs, mut parts) = (Vec::new(), Vec::new());
    let mut add = |spec, part| {
        specs.push(spec);
        parts.push(part);
        specs.len() - 1
    };
    for tenant in 0..TENANTS {
        let (reservation, limit, shares) =
            [(3_000.0, 0.0, 1.0), (0.0, 1_500.0, 6.0), (500.0, 4_000.0, 2.0)][tenant];
        let tenant = add(spec(None, reservation, limit, shares), Part::Group);
        for machine in 0..MACHINES {
            let limit = if machine == 3 { 240.0 } else { 0.0 };
            let machine = spec(Some(tenant), 0.0, limit, 1.0 + machine as f64);
            let machine = add(machine, Part::Group);
            for disk in 0..DISKS {
                let reservation = if disk == 1 { 60.0 } else { 0.0 };
                let shares = 100.0 * (disk + 1) as f64;
                let disk_at = add(spec(Some(machine), reservation, 0.0, shares), Part::Disk);
                let priorities: &[u64] = if disk == 0 { &[20, 60] } else { &[100] };
                for priority in priorities {
                    let weight = (10 * priority) as f64;
                    add(spec(Some(disk_at), 0.0, 0.0, weight), Part::Stream(*priority));
                }
            }
        }
    }
    (specs, parts)
}

/// Whether the groups are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Flat,
    Grouped,
}

struct Datastore {
    scheduler: AnyScheduler<usize>,
    specs: Vec<Spec>,
    parts: Vec<Part>,
    disks: Vec<Option<DiskId>>,
    mode: Mode,
}

impl Datastore {
    fn new(specs: &[Spec], parts: &[Part]) -> Datastore {
        let mut scheduler = AnyScheduler::new(SchedulerKind::MClock, config()).unwrap();
        let disks = specs.iter().zip(parts).map(|(spec, part)| {
            (*part == Part::Disk).then(|| scheduler.register(Nanos::ZERO, policy(spec)))
        });
        let disks = disks.collect();
        let (specs, parts) = (specs.to_vec(), parts.to_vec());
        Datastore { scheduler, specs, parts, disks, mode: Mode::Flat }
    }

    /// Of a stream.
    fn disk(&self, leaf: usize) -> DiskId {
        self.disks[self.specs[leaf].parent.unwrap()].unwrap()
    }

    fn groups(&self) -> Groups {
        let id = |node: usize| GroupId(node as u32);
        let group = |node: usize| Group {
            id: id(node),
            parent: self.specs[node].parent.map(id),
            policy: policy(&self.specs[node]),
        };
        let all = 0..self.specs.len();
        let groups = all.clone().filter(|node| self.parts[*node] == Part::Group).map(group);
        let members = all.filter_map(|node| {
            let disk = self.disks[node]?;
            Some((disk, id(self.specs[node].parent?)))
        });
        Groups { groups: groups.collect(), members: members.collect() }
    }

    fn switch(&mut self, now: u64, mode: Mode) {
        self.mode = mode;
        let groups = match mode {
            Mode::Flat => Groups::default(),
            Mode::Grouped => self.groups(),
        };
        self.scheduler.set_groups(Nanos(now), &groups).unwrap();
    }
}

impl Subject for Datastore {
    fn enqueue(&mut self, now: u64, leaf: usize, cost: u64) {
        let Part::Stream(priority) = self.parts[leaf] else { panic!("no stream") };
        let priority = Priority::new(priority).ok();
        let io = Io { bytes: Bytes(cost * 4_096), priority, ..Io::default() };
        self.scheduler.enqueue(Nanos(now), self.disk(leaf), io, leaf).unwrap();
    }

    fn withdraw(&mut self, now: u64, leaf: usize) -> usize {
        let disk = self.disk(leaf);
        self.scheduler.extract(Nanos(now), disk, &mut |of| *of == leaf).unwrap().len()
    }

    fn dispatch(&mut self, now: u64) -> Answer {
        match self.scheduler.dispatch(Nanos(now)) {
            Decision::Dispatch(next) => {
                assert_eq!(next.disk, self.disk(next.request));
                let Part::Stream(priority) = self.parts[next.request] else { panic!("no stream") };
                assert_eq!(u64::from(next.priority.get()), priority);
                Answer::Send(next.request)
            }
            Decision::WaitUntil(at) => Answer::At(at.0),
            Decision::Idle => Answer::Idle,
        }
    }

    fn complete(&mut self, now: u64, leaf: usize) {
        let disk = self.disk(leaf);
        self.scheduler.complete(Nanos(now), disk);
    }

    fn set(&mut self, now: u64, node: usize, spec: &Spec) {
        self.specs[node] = *spec;
        match self.disks[node] {
            Some(disk) => self.scheduler.set_policy(Nanos(now), disk, policy(spec)).unwrap(),
            None => self.switch(now, self.mode),
        }
    }
}

struct Run {
    specs: Vec<Spec>,
    parts: Vec<Part>,
    world: World<Datastore>,
    end: u64,
}

impl Run {
    fn new(service: Service) -> Run {
        let (specs, parts) = site();
        let device = Device { rate: 8_000.0, service, window: 16, stalls: Vec::new() };
        let mut world = World::new(Datastore::new(&specs, &parts), &specs, device, 11);
        for leaf in (0..specs.len()).filter(|node| matches!(parts[*node], Part::Stream(_))) {
            world.client(leaf, Client::Closed { outstanding: 24, cost: 1 });
        }
        Run { specs, parts, world, end: 0 }
    }

    fn switch(&mut self, mode: Mode) {
        let now = self.world.now;
        self.world.subject.switch(now, mode);
    }

    fn set(&mut self, node: usize, change: impl FnOnce(&mut Spec)) {
        change(&mut self.specs[node]);
        self.world.set(node, &self.specs[node]);
    }

    /// What nodes are due, as the scheduler is told of them.
    fn told(&self) -> Vec<Spec> {
        let mut specs = self.specs.clone();
        if self.world.subject.mode == Mode::Flat {
            for (spec, part) in specs.iter_mut().zip(&self.parts) {
                match part {
                    Part::Group => spec.parent = None,
                    Part::Disk => spec.parent = None,
                    Part::Stream(_) => {}
                }
            }
            // Nobody is in a group, and nothing is due to it.
            for (spec, part) in specs.iter_mut().zip(&self.parts) {
                if *part == Part::Group {
                    (spec.demand, spec.reservation) = (0.0, 0.0);
                }
            }
        }
        specs
    }

    /// All nodes are within 2 % of what they are due, and five IOs in twenty seconds.
    fn judge(&mut self, what: &str, told: &[Spec]) -> Result<(), String> {
        let from = self.end + 2 * SECOND;
        self.end += 22 * SECOND;
        self.world.run_until(self.end);
        let got = self.world.got(from, self.end);
        let d = due(told, self.world.pace(from, self.end));
        let groups_count = told.iter().all(|spec| spec.demand > 0.0);
        for (node, got) in got.iter().enumerate() {
            if self.parts[node] == Part::Group && !groups_count {
                continue;
            }
            let due = d.due[node] * 20.0;
            if (got - due).abs() > 0.02 * due + 5.0 {
                return Err(format!("{what}: node {node}: {got} of {due:.1}"));
            }
        }
        Ok(())
    }

    fn judge_told(&mut self, what: &str) {
        let told = self.told();
        self.judge(what, &told).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn all_get_what_they_are_due_while_groups_come_change_and_go() {
    for service in [Service::Constant, Service::Uniform] {
        let mut run = Run::new(service);
        run.judge_told("without groups");
        run.switch(Mode::Grouped);
        run.judge_told("with groups");
        let tenants = members(&run.specs, None);
        run.set(tenants[1], |spec| spec.limit = 2_500.0);
        run.judge_told("the second tenant's limit raised");
        run.set(tenants[0], |spec| spec.reservation = 1_200.0);
        run.judge_told("the first tenant's reservation lowered");
        let disk = members(&run.specs, Some(members(&run.specs, Some(tenants[2]))[0]))[1];
        run.set(disk, |spec| (spec.reservation, spec.limit) = (700.0, 900.0));
        run.judge_told("a disk's reservation and limit set");
        // A machine goes to another tenant, with all its disks.
        let machine = members(&run.specs, Some(tenants[1]))[1];
        run.set(machine, |spec| spec.parent = Some(tenants[0]));
        run.world.regroup(&run.specs);
        run.judge_told("a machine of another tenant");
        run.switch(Mode::Flat);
        run.judge_told("without groups again");
    }
}

/// The same judgement of the flat scheduler.
#[test]
fn without_groups_it_is_judged_wrong() {
    let mut run = Run::new(Service::Constant);
    let told = run.specs.clone();
    let wrong = run.judge("flat", &told).unwrap_err();
    println!("{wrong}");
}

/// However often it goes to and fro, limits hold and nothing is lost or sent twice: the world
/// counts each request, and a limit of 200 is kept in each second.
#[test]
fn switches_keep_limits_and_requests() {
    let mut run = Run::new(Service::Uniform);
    let (tenants, mut dice) = (members(&run.specs, None), Dice::new(5));
    let disk = members(&run.specs, Some(members(&run.specs, Some(tenants[0]))[0]))[2];
    run.set(disk, |spec| spec.limit = 200.0);
    let mut mode = Mode::Flat;
    for _ in 0..400 {
        mode = if mode == Mode::Flat { Mode::Grouped } else { Mode::Flat };
        run.switch(mode);
        let next = run.world.now + dice.below(60) * MS;
        run.world.run_until(next);
    }
    let end = run.world.now;
    for from in (SECOND..end - SECOND).step_by((SECOND / 4) as usize) {
        let got = run.world.got(from, from + SECOND)[disk];
        assert!((150.0..=206.0).contains(&got), "{got} of 200 from {from}");
    }
    let sum: usize = (0..run.specs.len()).map(|leaf| run.world.queued(leaf)).sum();
    assert_eq!(run.world.subject.scheduler.queued(), sum);
}

/// A reservation that fits is met across switches, too: what it is owed goes along.
#[test]
fn switches_cost_no_reservation() {
    let mut run = Run::new(Service::Constant);
    let tenants = members(&run.specs, None);
    let disk = members(&run.specs, Some(members(&run.specs, Some(tenants[2]))[1]))[1];
    run.set(disk, |spec| spec.reservation = 2_000.0);
    let mut mode = Mode::Flat;
    for n in 0..200 {
        mode = if mode == Mode::Flat { Mode::Grouped } else { Mode::Flat };
        run.switch(mode);
        run.world.run_until((n + 1) * 50 * MS);
    }
    for second in 1..9 {
        let got = run.world.got(second * SECOND, (second + 1) * SECOND)[disk];
        assert!(got >= 1_960.0, "{got} of 2000 in second {second}");
    }
}

fn iops(n: u64) -> Option<Iops> {
    Iops::new(n).ok()
}

#[test]
fn what_groups_cannot_be_is_said() {
    let now = Nanos::ZERO;
    let mut mclock = AnyScheduler::<u32>::new(SchedulerKind::MClock, config()).unwrap();
    let disk = mclock.register(now, Policy::default());
    let group = |id, parent: Option<u32>| Group {
        id: GroupId(id),
        parent: parent.map(GroupId),
        policy: Policy::default(),
    };
    let mut said = |groups: Vec<Group>, members| {
        mclock.set_groups(now, &Groups { groups, members }).unwrap_err()
    };
    assert_eq!(said(vec![group(1, Some(2))], vec![]), GroupsError::UnknownParent(GroupId(1)));
    assert_eq!(said(vec![group(1, None), group(1, None)], vec![]), GroupsError::Twice(GroupId(1)));
    let unknown = said(vec![group(1, None)], vec![(disk, GroupId(2))]);
    assert_eq!(unknown, GroupsError::UnknownGroup(GroupId(2)));
    let deep = (0..9).map(|n| group(n, n.checked_sub(1))).collect();
    assert_eq!(said(deep, vec![]), GroupsError::TooDeep);
    let soft = Policy::default().with_limit(iops(9)).unwrap().with_limit_mode(LimitMode::Soft);
    let soft_group = vec![Group { policy: soft, ..group(1, None) }];
    assert!(said(soft_group, vec![]).to_string().contains("has soft limits"));
    mclock.set_policy(now, disk, soft).unwrap();
    let one = Groups { groups: vec![group(1, None)], members: vec![(disk, GroupId(1))] };
    assert!(matches!(mclock.set_groups(now, &one), Err(GroupsError::Disk { .. })));
    mclock.set_policy(now, disk, Policy::default()).unwrap();
    mclock.set_groups(now, &one).unwrap();
    assert!(mclock.cannot_have(soft).is_some() && mclock.cannot_have(Policy::default()).is_none());
    let mut sfq = AnyScheduler::<u32>::new(SchedulerKind::Sfq, config()).unwrap();
    assert_eq!(sfq.set_groups(now, &Groups::default()), Ok(()));
    assert_eq!(
        sfq.set_groups(now, &Groups { members: vec![], ..one }),
        Err(GroupsError::NotMClock)
    );
}

/// Ids, policies and counters of disks are the same ones before, in and after groups; what is in
/// flight meanwhile ends where it may.
#[test]
fn disks_stay_who_they_are() {
    let now = Nanos::from_secs(1);
    let mut mclock = AnyScheduler::<u32>::new(SchedulerKind::MClock, config()).unwrap();
    let [a, b] = [0; 2].map(|_| mclock.register(now, Policy::default()));
    let send = |mclock: &mut AnyScheduler<u32>| match mclock.dispatch(now) {
        Decision::Dispatch(next) => next.request,
        other => panic!("{other:?}"),
    };
    for n in 0..6 {
        mclock.enqueue(now, a, Io::default(), n).unwrap();
    }
    assert_eq!((send(&mut mclock), send(&mut mclock)), (0, 1));
    let limited = Policy::default().with_limit(iops(500)).unwrap();
    let group = Group { id: GroupId(1), parent: None, policy: limited };
    let members = vec![(a, GroupId(1))];
    mclock.set_groups(now, &Groups { groups: vec![group], members }).unwrap();
    let counted = mclock.counters(a).unwrap();
    assert_eq!((counted.queued, counted.in_flight, counted.by_weight), (4, 2, 2));
    assert_eq!(send(&mut mclock), 2);
    assert_eq!(mclock.limited_until(a), Some(now + Nanos::from_millis(2)), "its group's limit");
    let c = mclock.register(now, Policy::default());
    mclock.enqueue(now, c, Io::default(), 10).unwrap();
    assert_eq!(send(&mut mclock), 10, "in no group yet");
    for _ in 0..2 {
        mclock.complete(now, a);
    }
    assert_eq!(mclock.extract(now, a, &mut |n| *n == 4), Ok(vec![4]));
    mclock.set_groups(now, &Groups::default()).unwrap();
    let counted = mclock.counters(a).unwrap();
    assert_eq!((counted.queued, counted.in_flight, counted.by_weight), (2, 1, 3));
    assert_eq!((send(&mut mclock), send(&mut mclock)), (3, 5));
    for _ in 0..3 {
        mclock.complete(now, a);
    }
    assert_eq!(mclock.counters(a).unwrap().in_flight, 0);
    assert_eq!(mclock.unregister(now, b), Ok(Vec::new()));
    assert!(mclock.policy(b).is_err() && mclock.policy(c).is_ok());
}
