//! Every interleaving of two hosts that claim one device with persistent reservations, write to it,
//! lose it, give it back and crash. While a host has the device, no write of the other one is
//! accepted, whenever that was sent: a write may stay in its host's kernel for any time, also
//! beyond the death of the daemon that sent it.
//!
//! The device is written from the standard (SPC-4, 5.13). What the hosts do is [`Claim`] itself.

use headgate_cluster::HostId;
use headgate_cluster::fence::{
    Answer, Claim, Cover, FenceKey, Kind, Next, ROUNDS, Refusal, Registrants, Reservation, Right,
    Standing, Step, standing,
};
use std::collections::HashSet;

const KIND: Kind = Kind::WRITE_EXCLUSIVE_REGISTRANTS;
const FOREIGN: u64 = 5;

/// What a model allows and leaves out.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// The rights with which hosts claim.
    rights: &'static [Right],
    covers: [Cover; 2],
    lock: Lock,
    device: DeviceRule,
    /// How often each daemon is started.
    starts: u64,
    /// A third party's key that is registered from the beginning.
    foreign: Option<u64>,
}

/// What a claim begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    /// The lock on the image: nothing of this host is in the kernel.
    Taken,
    /// Nothing.
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceRule {
    /// Who is not registered with a reserved device may not write.
    Refuses,
    /// As one that has no reservations: everything is accepted.
    AcceptsAll,
}

const SOUND: Rules = Rules {
    rights: &[Right::Own, Right::Evict],
    covers: [Cover::Nothing; 2],
    lock: Lock::Taken,
    device: DeviceRule::Refuses,
    starts: 2,
    foreign: None,
};

/// Two paths of hosts, 0 and 1, and one of somebody else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Target {
    keys: [Option<u64>; 3],
    /// The path that has it reserved.
    holder: Option<usize>,
}

impl Target {
    fn conflict_unless(done: bool) -> Answer {
        if done { Answer::Done } else { Answer::Conflict }
    }

    /// A command that comes by this path (SPC-4, 5.13.6 to 5.13.11).
    fn take(&mut self, path: usize, own: u64, step: Step) -> Answer {
        match step {
            Step::Read => {
                let key = |path: usize| self.keys[path].unwrap_or_default();
                let reservation =
                    self.holder.map(|path| Reservation { key: key(path), kind: KIND });
                Answer::Seen(Registrants {
                    keys: self.keys.iter().flatten().copied().collect(),
                    reservation,
                })
            }
            // Of the holder it changes the key, and leaves the reservation.
            Step::Register => {
                self.keys[path] = Some(own);
                Answer::Done
            }
            Step::Unregister => {
                let is_own = self.keys[path] == Some(own);
                if is_own {
                    self.leave(path);
                }
                Target::conflict_unless(is_own)
            }
            Step::Reserve => {
                let may =
                    self.keys[path] == Some(own) && self.holder.is_none_or(|held| held == path);
                if may {
                    self.holder = Some(path);
                }
                Target::conflict_unless(may)
            }
            Step::Preempt(old) => {
                let is_known = self.keys.contains(&Some(old));
                if self.keys[path] != Some(own) || !is_known {
                    return Answer::Conflict;
                }
                let takes = self.holder.is_some_and(|held| self.keys[held] == Some(old));
                for other in (0..3).filter(|other| *other != path) {
                    if self.keys[other] == Some(old) {
                        self.keys[other] = None;
                    }
                }
                if takes {
                    self.holder = Some(path);
                }
                Answer::Done
            }
        }
    }

    /// The registration of a path ends, and with it the reservation that it holds.
    fn leave(&mut self, path: usize) {
        self.keys[path] = None;
        self.holder = self.holder.filter(|held| *held != path);
    }

    fn accepts(&self, path: usize, rule: DeviceRule) -> bool {
        rule == DeviceRule::AcceptsAll || self.holder.is_none() || self.keys[path].is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Run {
    Idle,
    Claiming(Claim, Step),
    Serving,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Host {
    start: u64,
    run: Run,
    /// A write is in this host's kernel.
    in_kernel: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    target: Target,
    hosts: [Host; 2],
    /// Who has the device: whoever claimed it last and has not given it back.
    owner: Option<usize>,
}

/// What went wrong.
type Wrong = String;

impl Rules {
    fn key(&self, host: usize, start: u64) -> FenceKey {
        FenceKey::new(HostId([host as u8 + 1; 16]), start, self.covers[host])
    }

    fn begin(&self) -> State {
        let host = Host { start: 1, run: Run::Idle, in_kernel: false };
        let target = Target { keys: [None, None, self.foreign], holder: None };
        State { target, hosts: [host.clone(), host], owner: None }
    }

    /// All that can happen next.
    fn successors(&self, state: &State) -> Result<Vec<State>, Wrong> {
        let mut next = Vec::new();
        for host in 0..2 {
            self.steps_of(state, host, &mut next)?;
        }
        Ok(next)
    }

    fn steps_of(&self, state: &State, host: usize, next: &mut Vec<State>) -> Result<(), Wrong> {
        let Host { start, run, in_kernel } = &state.hosts[host];
        let own = self.key(host, *start);
        let with = |run: Run| {
            let mut state = state.clone();
            state.hosts[host].run = run;
            state
        };
        match run {
            Run::Idle if self.lock == Lock::Ignored || !in_kernel => {
                for right in self.rights {
                    let (claim, step) = Claim::begin(own, *right);
                    next.push(with(Run::Claiming(claim, step)));
                }
            }
            Run::Idle => {}
            Run::Claiming(claim, step) => next.push(self.claimed(state, host, claim, *step)?),
            Run::Serving => {
                if !in_kernel {
                    let mut writes = state.clone();
                    writes.hosts[host].in_kernel = true;
                    next.push(writes);
                    // It is given back when nothing is in flight any more.
                    let mut released = with(Run::Idle);
                    released.target.take(host, own.number(), Step::Unregister);
                    released.owner = released.owner.filter(|owner| *owner != host);
                    next.push(released);
                }
                let Answer::Seen(seen) = state.target.clone().take(host, 0, Step::Read) else {
                    return Err("a question has another answer".into());
                };
                match standing(own, &seen) {
                    Standing::Lost { .. } => next.push(with(Run::Idle)),
                    Standing::Held if state.owner != Some(host) => {
                        return Err(format!("host {host} believes that it has the device"));
                    }
                    Standing::Held => {}
                }
            }
        }
        if *in_kernel {
            next.push(self.arrived(state, host)?);
        }
        // The daemon dies: what the kernel has stays there, or goes with the whole host.
        if *start < self.starts {
            for in_kernel in [*in_kernel, false] {
                let mut crashed = with(Run::Idle);
                crashed.hosts[host] = Host { start: start + 1, run: Run::Idle, in_kernel };
                next.push(crashed);
            }
        }
        Ok(())
    }

    fn claimed(
        &self,
        state: &State,
        host: usize,
        claim: &Claim,
        step: Step,
    ) -> Result<State, Wrong> {
        let own = self.key(host, state.hosts[host].start).number();
        let (mut state, mut claim) = (state.clone(), claim.clone());
        let answer = state.target.take(host, own, step);
        state.hosts[host].run = match claim.on(&answer) {
            Next::Do(step) => Run::Claiming(claim, step),
            Next::Reserved => {
                let others = state.target.keys.iter().flatten().any(|key| *key != own);
                if state.target.holder != Some(host) || others {
                    return Err(format!("host {host} was told that it is reserved: {state:?}"));
                }
                state.owner = Some(host);
                Run::Serving
            }
            Next::Refused(_) if state.target.keys[host] == Some(own) => {
                return Err(format!("host {host} was refused and left its key: {state:?}"));
            }
            Next::Refused(_) => Run::Idle,
        };
        Ok(state)
    }

    /// A write reaches the device.
    fn arrived(&self, state: &State, host: usize) -> Result<State, Wrong> {
        let mut state = state.clone();
        let accepted = state.target.accepts(host, self.device);
        if accepted && state.owner.is_some_and(|owner| owner != host) {
            return Err(format!("host {host} wrote while it was another's: {state:?}"));
        }
        state.hosts[host].in_kernel = false;
        if !accepted && state.hosts[host].run == Run::Serving {
            state.hosts[host].run = Run::Idle;
        }
        Ok(state)
    }

    /// Alone with the device a claim comes to an end, soon.
    fn ends(&self, state: &State, host: usize) -> Result<(), Wrong> {
        let mut state = state.clone();
        for _ in 0..4 * ROUNDS {
            let Run::Claiming(claim, step) = state.hosts[host].run.clone() else { return Ok(()) };
            state = self.claimed(&state, host, &claim, step)?;
        }
        Err(format!("host {host} claims for ever: {state:?}"))
    }

    /// Visits all states, and answers how many there are.
    fn visit(&self) -> Result<HashSet<State>, Wrong> {
        let first = self.begin();
        let mut seen = HashSet::from([first.clone()]);
        let mut todo = vec![first];
        while let Some(state) = todo.pop() {
            for host in 0..2 {
                self.ends(&state, host)?;
            }
            for next in self.successors(&state)? {
                if seen.insert(next.clone()) {
                    todo.push(next);
                }
            }
        }
        Ok(seen)
    }
}

fn served(states: &HashSet<State>, host: usize) -> bool {
    states.iter().any(|state| state.owner == Some(host))
}

#[test]
fn no_write_is_accepted_while_the_device_is_anothers() {
    let states = SOUND.visit().unwrap();
    assert!(served(&states, 0) && served(&states, 1));
    let refused = |state: &State| {
        state.owner == Some(1) && state.hosts[0].in_kernel && state.target.keys[0].is_none()
    };
    assert!(states.iter().any(refused), "no write was ever overtaken");
    println!("{} states of two hosts that evict each other", states.len());
}

#[test]
fn a_lease_takes_what_a_lease_covered_and_nothing_else() {
    let lease: &[Right] = &[Right::Lease];
    let covered = Rules { rights: lease, covers: [Cover::Lease; 2], starts: 1, ..SOUND };
    let states = covered.visit().unwrap();
    let taken = |state: &State| state.owner == Some(1) && state.hosts[0].run == Run::Serving;
    assert!(states.iter().any(taken), "nobody was evicted");
    let uncovered = Rules { covers: [Cover::Nothing; 2], ..covered };
    assert!(!uncovered.visit().unwrap().iter().any(taken), "somebody was evicted");
}

#[test]
fn who_may_evict_nobody_gets_what_is_free_and_what_is_its_own() {
    let own = Rules { rights: &[Right::Own], ..SOUND };
    let states = own.visit().unwrap();
    assert!(served(&states, 0) && served(&states, 1));
    // A host that crashed, and whose key is there still, gets the device again.
    let again = |state: &State| state.owner == Some(0) && state.hosts[0].start == 2;
    assert!(states.iter().any(again));
    for state in &states {
        let serving = |host: usize| state.hosts[host].run == Run::Serving;
        assert!(!(serving(0) && serving(1)), "{state:?}");
    }
}

#[test]
fn a_key_of_somebody_else_is_left_alone() {
    let rules = Rules { foreign: Some(FOREIGN), rights: &[Right::Own, Right::Evict], ..SOUND };
    let states = rules.visit().unwrap();
    assert!(!served(&states, 0) && !served(&states, 1));
    assert!(states.iter().all(|state| state.target.keys[..2] == [None, None]));
    let (mut claim, _) = Claim::begin(rules.key(0, 1), Right::Evict);
    let seen = Registrants { keys: vec![FOREIGN], reservation: None };
    let refusal = Refusal::Foreign { key: FOREIGN };
    assert_eq!(claim.on(&Answer::Seen(seen)), Next::Refused(refusal));
}

/// Each part of the rule is needed: without it there is a run in which a write of the former holder
/// is accepted.
#[test]
fn the_model_sees_what_is_missing() {
    let without_lock = Rules { lock: Lock::Ignored, ..SOUND };
    assert!(without_lock.visit().is_err(), "what an earlier daemon sent needs no waiting for");
    let without_reservations = Rules { device: DeviceRule::AcceptsAll, ..SOUND };
    assert!(without_reservations.visit().is_err(), "the device needs to refuse nothing");
}

#[test]
fn a_claim_whose_commands_fail_leaves_no_key() {
    let own = SOUND.key(0, 1);
    let free = Registrants::default();
    let (mut claim, step) = Claim::begin(own, Right::Own);
    assert_eq!(step, Step::Read);
    assert_eq!(claim.on(&Answer::Seen(free)), Next::Do(Step::Register));
    // It may have been carried out.
    assert_eq!(claim.on(&Answer::Failed), Next::Do(Step::Unregister));
    assert_eq!(claim.on(&Answer::Failed), Next::Refused(Refusal::Failed));
    let (mut claim, _) = Claim::begin(own, Right::Own);
    assert_eq!(claim.on(&Answer::Failed), Next::Refused(Refusal::Failed));
}

#[test]
fn a_reservation_of_another_type_is_not_ours() {
    let own = SOUND.key(0, 1);
    let of = |kind, keys: &[u64]| Registrants {
        keys: keys.to_vec(),
        reservation: Some(Reservation { key: own.number(), kind }),
    };
    assert_eq!(standing(own, &of(KIND, &[own.number()])), Standing::Held);
    let all = Kind(5);
    for wrong in [of(all, &[own.number()]), of(KIND, &[]), Registrants::default()] {
        assert!(matches!(standing(own, &wrong), Standing::Lost { .. }), "{wrong:?}");
    }
    let (mut claim, _) = Claim::begin(own, Right::Evict);
    let seen = Answer::Seen(of(all, &[own.number()]));
    assert_eq!(claim.on(&seen), Next::Refused(Refusal::Kind { kind: all }));
}
