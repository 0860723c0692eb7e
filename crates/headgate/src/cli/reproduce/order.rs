//! In which order experiments run.

use super::course::simulated;
use headgate_sim::Scenario;

/// How the order in which experiments run differs from the one in which they were given: one of
/// them comes before all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// Where that one stood.
    from: usize,
}

impl Order {
    /// Puts the experiment with the least simulated time first, as the first result then is soon
    /// there to be read; the first of several such. The others keep their order.
    pub(super) fn least_first(each: &mut [(&Scenario, Vec<u64>)]) -> Order {
        let length = |(scenario, seeds): &(&Scenario, Vec<u64>)| simulated(scenario, seeds.len());
        let least = each.iter().map(length).enumerate().min_by_key(|&(_, length)| length);
        let from = least.map_or(0, |(index, _)| index);
        if let Some(until) = each.get_mut(..=from) {
            until.rotate_right(1);
        }
        Order { from }
    }

    /// Those that have ended, in the order in which they were given: what ended so far is the
    /// beginning of the order in which they run.
    pub(super) fn as_given<T>(self, mut done: Vec<T>) -> Vec<T> {
        let until = done.len().min(self.from + 1);
        if until > 0 {
            done[..until].rotate_left(1);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasting(seconds: u32) -> Scenario {
        let text = format!(
            r#"
            name = "{seconds}"
            title = "One VM"
            duration = "{seconds}s"
            datastore = [{{ name = "lun", device = "rate=500,latency=1ms" }}]
            vm = [{{ name = "a", disk = [{{ shares = 100 }}], workload = [{{ kind = "closed" }}] }}]
            "#
        );
        Scenario::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn the_least_runs_first_and_what_ended_is_told_of_in_the_order_it_was_asked_for() {
        // Seconds of each, its seeds, where the least is, and what has ended after each.
        for (given, from) in [
            (vec![(9, 1), (5, 3), (2, 2), (7, 1)], 2),
            (vec![(9, 1), (5, 3), (2, 9), (7, 1)], 3),
            (vec![(3, 1), (1, 3), (4, 1)], 0),
            (vec![(6, 1)], 0),
        ] {
            let scenarios: Vec<Scenario> =
                given.iter().map(|&(seconds, _)| lasting(seconds)).collect();
            let seeds = given.iter().map(|&(_, seeds)| (0..seeds).collect::<Vec<u64>>());
            let mut each: Vec<(&Scenario, Vec<u64>)> = scenarios.iter().zip(seeds).collect();
            let order = Order::least_first(&mut each);
            assert_eq!(order, Order { from }, "{given:?}");
            let name = |(scenario, seeds): &(&Scenario, Vec<u64>)| {
                (scenario.name.parse::<u32>().unwrap(), seeds.len() as u64)
            };
            let runs: Vec<(u32, u64)> = each.iter().map(name).collect();
            assert_eq!(runs[0], given[from]);
            for ended in 0..=runs.len() {
                let told = order.as_given(runs[..ended].to_vec());
                let expected: Vec<(u32, u64)> =
                    given.iter().copied().filter(|one| runs[..ended].contains(one)).collect();
                assert_eq!(told, expected, "{given:?} after {ended}");
            }
        }
        assert_eq!(Order::least_first(&mut []), Order { from: 0 });
    }
}
