//! What a reader should know of results before a scheduler is blamed, or praised, for them.

use headgate_sim::{
    Action, Counters, DiskSpec, Outcome, ReplayTiming, Scenario, TimeDistribution, Variant, Vm,
    Workload, WorkloadKind,
};
use headgate_units::Nanos;
use serde::Serialize;
use std::fmt;

/// Less of a reservation than this is missed.
const MISSED: f64 = 0.97;

/// A closed loop that has less of its requests outstanding does other things as well.
const BUSY: f64 = 0.9;

/// A cache that answers less than this part of the requests leaves the storage enough to do.
const MUCH: f64 = 0.5;

/// Why a result says less of the scheduler than it seems to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Note {
    /// A reservation that no scheduler can meet: with what the disk has outstanding, and without
    /// any wait at the host, the storage's own time allows less.
    #[serde(rename_all = "kebab-case")]
    TooLittleOutstanding {
        /// In which variant.
        variant: String,
        /// In which window; empty for the whole run.
        window: String,
        /// Which disk; its VM's name where that has one.
        disk: String,
        /// What is reserved, in normalised IOs per second.
        reservation: f64,
        /// What it got.
        got: f64,
        /// How many requests it had outstanding.
        outstanding: f64,
        /// How long the storage took for each.
        each: Nanos,
        /// How many would do at this time.
        enough: f64,
        /// Where it lies.
        datastore: String,
    },
    /// Storage that answered most requests from its write-back cache.
    #[serde(rename_all = "kebab-case")]
    Cached {
        /// In which variant.
        variant: String,
        /// Which datastore.
        datastore: String,
        /// The part of all requests of the run.
        part: f64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::TooLittleOutstanding {
                variant,
                window,
                disk,
                reservation,
                got,
                outstanding,
                each,
                enough,
                datastore,
            } => {
                let when = Some(window.as_str()).filter(|window| !window.is_empty());
                let when = when.unwrap_or("the whole run");
                write!(
                    f,
                    "[{variant}] {disk} gets {got:.0} of its reservation of {reservation:.0} in {when}: \
                     it has {outstanding:.1} requests outstanding, and {datastore} takes {each} for \
                     each; {enough:.0} would do, or a smaller queue-depth of {datastore}"
                )
            }
            Note::Cached { variant, datastore, part } => write!(
                f,
                "[{variant}] {datastore} answers {:.0} % of all requests from its write-back cache, \
                 so latencies are the cache's rather than the disks'; 'cache=0' leaves it out",
                part * 100.0
            ),
        }
    }
}

/// What is to be said of the runs of a scenario: means over the seeds of each variant.
pub fn notes(scenario: &Scenario, outcomes: &[Outcome]) -> Vec<Note> {
    let mut notes = Vec::new();
    for variant in &scenario.variants {
        let runs: Vec<&Outcome> =
            outcomes.iter().filter(|outcome| outcome.variant == variant.name).collect();
        let spans = match scenario.spans.len() {
            0 => vec![None],
            many => (0..many).map(Some).collect(),
        };
        for (vm_index, vm) in variant.setup.vms.iter().enumerate() {
            for disk_index in 0..vm.disks.len() {
                let place = Place { variant, vm, vm_index, disk_index };
                let all = spans.iter().filter_map(|&span| place.too_little(scenario, &runs, span));
                notes.extend(all);
            }
        }
        notes.extend(cached(variant, &runs));
    }
    notes
}

/// Datastores of which a cache answers most, over all runs.
fn cached(variant: &Variant, runs: &[&Outcome]) -> Vec<Note> {
    let note = |name: &str| {
        let (mut by_cache, mut all) = (0, 0);
        for run in runs {
            by_cache += run.caches.iter().find(|cache| cache.datastore == name)?.requests;
            all += run.subject(name)?.whole.counters.completed;
        }
        // A request may be answered after the end.
        let part = (by_cache as f64 / all.max(1) as f64).min(1.0);
        let (variant, datastore) = (variant.name.clone(), name.to_owned());
        (part >= MUCH).then_some(Note::Cached { variant, datastore, part })
    };
    variant.setup.datastores.iter().filter_map(|store| note(&store.name)).collect()
}

/// A disk in a variant.
struct Place<'a> {
    variant: &'a Variant,
    vm: &'a Vm,
    vm_index: usize,
    disk_index: usize,
}

impl Place<'_> {
    fn disk(&self) -> &DiskSpec {
        &self.vm.disks[self.disk_index]
    }

    fn name(&self) -> String {
        match self.vm.disks.len() {
            1 => self.vm.name.clone(),
            _ => format!("{}/{}", self.vm.name, self.disk().name),
        }
    }

    /// Its reservation, if it has the same all the time.
    fn reservation(&self) -> Option<f64> {
        let changes = self.variant.setup.timeline.iter().any(|event| {
            matches!(event.action, Action::Policy { vm, disk, .. }
                if (vm, disk) == (self.vm_index, self.disk_index))
        });
        let reservation = self.disk().policy.reservation().filter(|_| !changes)?;
        Some(reservation.get() as f64)
    }

    /// The requests that it always has outstanding; none if that is not certain.
    fn outstanding(&self) -> Option<u32> {
        let own = self.vm.workloads.iter().filter(|workload| workload.disk == self.disk_index);
        own.map(always_outstanding).sum()
    }

    fn too_little(
        &self,
        scenario: &Scenario,
        runs: &[&Outcome],
        span: Option<usize>,
    ) -> Option<Note> {
        let (reservation, wanted) = (self.reservation()?, f64::from(self.outstanding()?));
        let name = self.name();
        let (mut sum, mut length) = (Counters::default(), Nanos::ZERO);
        for run in runs {
            let subject = run.subject(&name)?;
            let stretch = match span {
                Some(at) => subject.spans.get(at)?,
                None => &subject.whole,
            };
            sum = sum.plus(&stretch.counters);
            length += stretch.length();
        }
        let (got, outstanding) = (sum.normalised_iops(length), sum.mean_outstanding(length));
        let each = sum.mean_device()?;
        let dispatched = (sum.by_reservation + sum.by_weight) as f64;
        // Little's law: so many normalised IOs a second, were there no wait at the host.
        let cost = sum.cost as f64 / 1e6 / dispatched;
        let enough = reservation * each.as_secs_f64() / cost;
        let missed = got < reservation * MISSED && outstanding < enough;
        (missed && outstanding >= wanted * BUSY).then(|| Note::TooLittleOutstanding {
            variant: self.variant.name.clone(),
            window: span.map_or_else(String::new, |at| scenario.spans[at].name.clone()),
            disk: name,
            reservation,
            got,
            outstanding,
            each,
            enough: enough.ceil(),
            datastore: self.variant.setup.datastores[self.disk().datastore].name.clone(),
        })
    }
}

fn always_outstanding(workload: &Workload) -> Option<u32> {
    match &workload.kind {
        WorkloadKind::Closed { outstanding, think: TimeDistribution::Constant(Nanos::ZERO) } => {
            Some(*outstanding).filter(|_| workload.outstanding.is_empty())
        }
        WorkloadKind::Replay(replay) => match replay.timing {
            ReplayTiming::Closed { outstanding } => Some(outstanding),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_sim::{Quiet, run};

    fn noted(outstanding: u32, kind: &str) -> Vec<Note> {
        let scenario = Scenario::parse(
            "shallow.toml",
            &format!(
                r#"
                name = "shallow"
                title = "A reservation, and few requests"
                duration = "20s"
                [windows]
                late = "5s..20s"
                [[datastore]]
                name = "lun"
                device = "rate=1000,latency=20ms"
                cost-model = "unit"
                narrow-window = "never"
                [[vm]]
                name = "db"
                disk = [{{ reservation = 300 }}]
                workload = [{{ {kind} }}]
                [[vm]]
                name = "batch"
                disk = [{{}}]
                workload = [{{ kind = "closed", outstanding = {outstanding} }}]
                "#
            ),
        )
        .unwrap_or_else(|e| panic!("{e}"));
        let outcome = run(&scenario, "default", 1, &mut Quiet).unwrap_or_else(|e| panic!("{e}"));
        notes(&scenario, &[outcome])
    }

    #[test]
    fn a_reservation_that_little_cannot_meet_is_noted() {
        let notes = noted(64, r#"kind = "closed", outstanding = 4"#);
        let [Note::TooLittleOutstanding { got, enough, .. }] = notes.as_slice() else {
            panic!("{notes:?}");
        };
        assert!(*got < 290.0 && *enough > 4.0, "{notes:?}");
        let said = notes[0].to_string();
        assert!(said.starts_with("[default] db gets "), "{said}");
        assert!(said.contains(" of its reservation of 300 in late: it has 4.0 requests"), "{said}");
    }

    #[test]
    fn a_cache_that_answers_most_is_noted() {
        let noted = |device: &str, read: &str| {
            let text = format!(
                r#"
                name = "cached"
                title = "Writes and a cache"
                duration = "5s"
                datastore = [{{ name = "lun", device = "{device}" }}]
                [[vm]]
                name = "db"
                disk = [{{ size = "64M" }}]
                workload = [{{ kind = "closed", outstanding = 8, read = "{read}" }}]
                "#
            );
            let scenario = Scenario::parse("cached.toml", &text).unwrap_or_else(|e| panic!("{e}"));
            let outcome = run(&scenario, "default", 1, &mut Quiet).unwrap();
            notes(&scenario, &[outcome])
        };
        let notes = noted("array=6,raid=5", "0%");
        assert!(
            matches!(notes.as_slice(), [Note::Cached { part, .. }] if *part > 0.9),
            "{notes:?}"
        );
        assert!(notes[0].to_string().contains("lun answers "), "{notes:?}");
        assert_eq!(noted("array=6,raid=5,cache=0", "0%"), []);
        assert_eq!(noted("array=6,raid=5", "100%"), []);
        assert_eq!(noted("rate=500,latency=1ms", "0%"), []);
    }

    #[test]
    fn nothing_is_noted_of_enough_outstanding_or_of_who_asks_for_less() {
        for kind in [
            r#"kind = "closed", outstanding = 32"#,
            r#"kind = "open", rate = 100"#,
            r#"kind = "closed", outstanding = 1, think = "100ms""#,
            r#"kind = "closed", outstanding = 32, delay = "17s""#,
        ] {
            assert_eq!(noted(64, kind), [], "{kind}");
        }
    }
}
