//! The search for the adversary that comes nearest to a bound.

use super::dice::Dice;
use super::world::{Action, Observer, Setup, Subject, Verdict, World};
use std::fmt;

/// What a random action is made of.
#[derive(Clone, Debug, Default)]
pub struct Space {
    pub disks: usize,
    pub counts: Vec<u32>,
    pub costs: Vec<u64>,
    /// Outstanding requests of closed loops.
    pub depths: Vec<u32>,
    pub waits: Vec<u64>,
    /// Disks and entries of the menu.
    pub policies: Vec<(usize, usize)>,
    pub paces: Vec<u64>,
    pub stalls: Vec<u64>,
}

impl Space {
    fn draw(&self, dice: &mut Dice) -> Action {
        loop {
            let disk = dice.below(self.disks);
            match dice.below(10) {
                0..3 => return Action::Wait(dice.one_of(&self.waits)),
                3..5 if !self.counts.is_empty() => {
                    let (count, cost) = (dice.one_of(&self.counts), dice.one_of(&self.costs));
                    return Action::Send { disk, count, cost };
                }
                5..7 if !self.depths.is_empty() => {
                    let outstanding = dice.one_of(&self.depths);
                    return Action::Keep { disk, outstanding, cost: dice.one_of(&self.costs) };
                }
                7 if !self.policies.is_empty() => {
                    let (disk, entry) = dice.one_of(&self.policies);
                    return Action::Policy { disk, entry };
                }
                8 if !self.paces.is_empty() => return Action::Pace(dice.one_of(&self.paces)),
                9 if !self.stalls.is_empty() => return Action::Stall(dice.one_of(&self.stalls)),
                9 => return Action::Withdraw { disk },
                _ => {}
            }
        }
    }
}

/// Builds who judges a claim.
pub type MakeObserver = Box<dyn Fn(&Setup) -> Box<dyn Observer>>;

/// A claim in a set-up, and the adversaries to try.
pub struct Case {
    pub name: &'static str,
    pub setup: Setup,
    /// What every adversary begins with.
    pub start: Vec<Action>,
    /// All sequences of so many of these are tried.
    pub alphabet: Vec<Action>,
    pub depth: u32,
    /// Then longer ones of these, by annealing.
    pub space: Space,
    pub length: usize,
    /// Steps of annealing.
    pub steps: u64,
    /// How long the world is watched after the last action.
    pub tail: u64,
    pub observer: MakeObserver,
}

/// The worst adversary that was found.
pub struct Worst {
    pub case: &'static str,
    pub verdict: Verdict,
    pub actions: Vec<Action>,
    pub runs: u64,
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { found, bound } = self.verdict;
        let percent = 100.0 * self.verdict.ratio();
        let Worst { case, runs, actions, .. } = self;
        write!(f, "{case}: {found} of {bound}, {percent:.1} %, in {runs} runs\n    {actions:?}")
    }
}

struct Hunt<'a> {
    case: &'a Case,
    make: &'a dyn Fn(&Setup) -> Box<dyn Subject>,
    best: (Verdict, Vec<Action>),
    runs: u64,
}

impl Hunt<'_> {
    fn judge(&mut self, actions: &[Action]) -> Verdict {
        self.runs += 1;
        let setup = &self.case.setup;
        let observer = (self.case.observer)(setup);
        let world = World::new(setup, (self.make)(setup), observer);
        let all = [&self.case.start, actions].concat();
        let verdict = world.play(&all, self.case.tail);
        if verdict.ratio() > self.best.0.ratio() || self.runs == 1 {
            self.best = (verdict, actions.to_vec());
        }
        verdict
    }

    /// Every sequence of `depth` letters. Stops at the first that breaks the claim.
    fn exhaust(&mut self) {
        let letters = &self.case.alphabet;
        for depth in 0..=self.case.depth {
            for number in 0..letters.len().pow(depth) {
                let mut rest = number;
                let digit = |_| {
                    let letter = letters[rest % letters.len()];
                    rest /= letters.len();
                    letter
                };
                let word: Vec<Action> = (0..depth).map(digit).collect();
                if self.judge(&word).is_broken() {
                    return;
                }
            }
        }
    }

    fn change(&self, actions: &mut Vec<Action>, dice: &mut Dice) {
        let new = self.case.space.draw(dice);
        let place = dice.below(actions.len() + 1);
        match dice.below(4) {
            0 if actions.len() < self.case.length => actions.insert(place, new),
            1 if !actions.is_empty() => drop(actions.remove(place.min(actions.len() - 1))),
            2 if actions.len() > 1 => {
                let other = dice.below(actions.len());
                let place = place.min(actions.len() - 1);
                actions.swap(place, other);
            }
            _ if place < actions.len() => actions[place] = new,
            _ if actions.len() < self.case.length => actions.push(new),
            _ => {}
        }
    }

    /// Annealing: a worse adversary is kept if it is worse by no more than a threshold that falls
    /// to nothing. Half of the restarts begin with the best so far.
    fn anneal(&mut self, steps: u64, restarts: u64) {
        for restart in 0..restarts {
            let mut dice = Dice::new(restart);
            let mut here = match restart % 2 {
                0 => self.best.1.clone(),
                _ => (0..self.case.length).map(|_| self.case.space.draw(&mut dice)).collect(),
            };
            let mut height = self.judge(&here).ratio();
            for step in 0..steps {
                if self.best.0.is_broken() {
                    return;
                }
                let mut there = here.clone();
                for _ in 0..=dice.below(3) {
                    self.change(&mut there, &mut dice);
                }
                let reached = self.judge(&there).ratio();
                let allowed = 0.1 * (1.0 - step as f64 / steps as f64).powi(2);
                if reached >= height - allowed {
                    (here, height) = (there, reached);
                }
            }
        }
    }

    /// Leaves out what the worst adversary does not need.
    fn shrink(&mut self) {
        let broken = self.best.0.is_broken();
        let mut at = 0;
        while at < self.best.1.len() {
            let mut fewer = self.best.1.clone();
            fewer.remove(at);
            let verdict = self.judge(&fewer);
            let as_bad = verdict.ratio() >= self.best.0.ratio();
            if as_bad || (broken && verdict.is_broken()) {
                self.best = (verdict, fewer);
            } else {
                at += 1;
            }
        }
    }
}

/// By how much the steps of annealing are multiplied, and restarts.
const SMALL: (u64, u64) = (1, 3);
const LARGE: (u64, u64) = (8, 20);

/// Searches, with the same result in every run. `make` builds what is played against.
fn search(case: &Case, make: &dyn Fn(&Setup) -> Box<dyn Subject>, effort: (u64, u64)) -> Worst {
    let (steps, restarts) = (effort.0 * case.steps, effort.1);
    let mut hunt = Hunt { case, make, best: Default::default(), runs: 0 };
    hunt.exhaust();
    if !hunt.best.0.is_broken() {
        hunt.anneal(steps, restarts);
    }
    hunt.shrink();
    let (verdict, actions) = hunt.best;
    Worst { case: case.name, verdict, actions, runs: hunt.runs }
}

/// The worst of each case; they are printed. `HEADGATE_SEARCH=large` searches for longer.
pub fn worst_of(cases: &[Case], make: &dyn Fn(&Setup) -> Box<dyn Subject>) -> Vec<Worst> {
    let large = std::env::var("HEADGATE_SEARCH").is_ok_and(|size| size == "large");
    let effort = if large { LARGE } else { SMALL };
    let mut worst = Vec::new();
    for case in cases {
        let one = search(case, make, effort);
        println!("{one}");
        worst.push(one);
    }
    worst
}

/// Whether some case breaks; what broke is printed.
pub fn breaks(cases: &[Case], make: &dyn Fn(&Setup) -> Box<dyn Subject>) -> bool {
    let broken = cases.iter().map(|case| search(case, make, SMALL)).find(|w| w.verdict.is_broken());
    if let Some(worst) = &broken {
        println!("{worst}");
    }
    broken.is_some()
}
