//! Metrics of learned costs.

use super::{Labels, Scrape, Writer};
use headgate_api::costs::{ClassCost, LearnedCosts};
use std::fmt;

impl Scrape {
    /// Costs, of datastores that learn them.
    pub(super) fn encode_costs(&self, out: &mut Writer<'_>) -> fmt::Result {
        let all: Vec<(String, LearnedCosts)> = self
            .samples
            .iter()
            .filter_map(|s| Some((s.name.to_string(), LearnedCosts::of(s)?)))
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let by_class = |read: &dyn Fn(&ClassCost) -> f64| -> Vec<(Labels, f64)> {
            let of = |(store, costs): &(String, LearnedCosts)| {
                let class = |class: &ClassCost| {
                    let labels = vec![
                        ("datastore", store.clone()),
                        ("class", class.class.replace(' ', "_")),
                    ];
                    (labels, read(class))
                };
                costs.classes.iter().map(class).collect::<Vec<_>>()
            };
            all.iter().flat_map(of).collect()
        };
        let help = "What a request of 4 KiB costs, in reference IOs, as learned";
        out.gauges("datastore_learned_cost_4k", help, &by_class(&|c| c.cost_4k))?;
        let help = "What a request of 64 KiB costs, in reference IOs, as learned";
        out.gauges("datastore_learned_cost_64k", help, &by_class(&|c| c.cost_64k))?;
        let help = "Requests that costs were learned from";
        out.counters("datastore_learned_cost_requests", help, &by_class(&|c| c.requests as f64))?;
        let reference: Vec<(Labels, f64)> = all
            .iter()
            .filter_map(|(store, costs)| {
                let time = costs.reference_ns? as f64 / 1e9;
                Some((vec![("datastore", store.clone())], time))
            })
            .collect();
        let help = "Device time of a random read of 4 KiB, as learned";
        out.gauges("datastore_reference_io_seconds", help, &reference)
    }
}
