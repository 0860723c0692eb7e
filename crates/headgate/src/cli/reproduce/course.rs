//! How far a long command is.

use headgate_sim::Scenario;
use std::time::Instant;

/// How far all experiments are, and about how long the rest takes: by the simulated time of what
/// has ended.
pub(super) struct Course {
    /// Simulated time of each, all runs together.
    lengths: Vec<u128>,
    done: u128,
    began: Instant,
}

impl Course {
    pub(super) fn new(chosen: &[&Scenario], seeds: &[Vec<u64>]) -> Course {
        let each = chosen.iter().zip(seeds);
        let lengths = each.map(|(scenario, seeds)| simulated(scenario, seeds.len())).collect();
        Course { lengths, done: 0, began: Instant::now() }
    }

    /// Of sensitivities: all their values.
    pub(super) fn of_points(chosen: &[&Scenario]) -> Course {
        let length = |scenario: &&Scenario| {
            let all = scenario.sensitivities.iter();
            all.flat_map(|one| one.points.iter().map(|point| (&point.scenario, one.seeds.len())))
                .map(|(scenario, seeds)| simulated(scenario, seeds))
                .sum()
        };
        let lengths = chosen.iter().map(length).collect();
        Course { lengths, done: 0, began: Instant::now() }
    }

    pub(super) fn ended(&mut self, index: usize) {
        self.done += self.lengths[index];
    }

    /// Says which experiment begins.
    pub(super) fn tell(&self, index: usize, scenario: &Scenario) {
        let left: u128 = self.lengths[index..].iter().sum();
        let left = match self.done {
            0 => String::new(),
            done => {
                let seconds = self.began.elapsed().as_secs_f64() * left as f64 / done as f64;
                format!(", about {} left", roughly(seconds))
            }
        };
        eprintln!("[{}/{}] {}{left}", index + 1, self.lengths.len(), scenario.name);
    }
}

/// The simulated time of all runs of an experiment with so many seeds, in nanoseconds.
pub(super) fn simulated(scenario: &Scenario, seeds: usize) -> u128 {
    let variants = scenario.variants.iter();
    variants.map(|one| u128::from(one.setup.duration.0)).sum::<u128>() * seeds as u128
}

/// A time as an estimate is worth it.
fn roughly(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => "10 s".into(),
        s if s < 90.0 => format!("{:.0} s", (s / 10.0).ceil() * 10.0),
        s => format!("{:.0} min", (s / 60.0).ceil()),
    }
}
