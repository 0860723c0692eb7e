//! Traces as workloads.

use crate::common::scenario;
use headgate_devices::IoKind;
use headgate_sim::{Outcome, Quiet, RunError, TraceRecord, Traces, run_with};
use headgate_units::{Bytes, Nanos};

struct Recorded(Vec<Result<TraceRecord, String>>);

impl Traces for Recorded {
    fn open(
        &self,
        name: &str,
    ) -> Result<Box<dyn Iterator<Item = Result<TraceRecord, String>>>, String> {
        match name {
            "trace.csv" => Ok(Box::new(self.0.clone().into_iter())),
            other => Err(format!("there is no trace '{other}'; there is 'trace.csv'")),
        }
    }
}

/// A record every 100 ms, the first a second after the trace's time zero.
fn trace(records: u64) -> Recorded {
    let kinds = [IoKind::Read, IoKind::Write, IoKind::Flush, IoKind::Discard];
    let record = |n: u64| TraceRecord {
        at: Nanos::from_millis(1_000 + 100 * n),
        kind: kinds[(n % 4) as usize],
        offset: if n == 5 { u64::MAX - 1 } else { n << 20 },
        bytes: Bytes(if n == 6 { u64::MAX } else { 4_096 }),
    };
    Recorded((0..records).map(|n| Ok(record(n))).collect())
}

fn play(keys: &str, traces: &Recorded) -> Result<Outcome, RunError> {
    let text = format!(
        r#"
        name = "replay"
        title = "A trace"
        duration = "20s"
        interval = "100ms"
        datastore = [{{ name = "lun", device = "rate=1000,latency=1ms", cost-model = "unit" }}]
        vm = [{{ name = "vm", start = "1s", disk = [{{}}], workload = [{{ kind = "replay", {keys} }}] }}]
        "#
    );
    run_with(&scenario(&text), "default", 1, &mut Quiet, traces)
}

fn arrivals(outcome: &Outcome) -> Vec<usize> {
    let points = outcome.subject("vm").unwrap().series.iter().enumerate();
    points.filter(|(_, point)| point.arrived > 0).map(|(index, _)| index).collect()
}

#[test]
fn times_are_kept_from_the_first_record_on_or_scaled() {
    let outcome = play("trace = 'trace.csv'", &trace(20)).unwrap();
    assert_eq!(arrivals(&outcome), (10..30).collect::<Vec<_>>());
    let counters = outcome.subject("vm").unwrap().whole.counters;
    assert_eq!(counters.completed, 20);
    assert_eq!(counters.bytes, 19 * 4_096 + u64::from(u32::MAX), "sizes are kept, absurd ones cut");
    let slower = play("trace = 'trace.csv', speed = '50%'", &trace(20)).unwrap();
    assert_eq!(arrivals(&slower), (10..50).step_by(2).collect::<Vec<_>>());
    let faster = play("trace = 'trace.csv', speed = '1000%'", &trace(20)).unwrap();
    assert_eq!(arrivals(&faster), [10, 11]);
}

#[test]
fn a_closed_replay_keeps_its_number_outstanding() {
    let outcome =
        play("trace = 'trace.csv', timing = 'closed', outstanding = 4", &trace(2_000)).unwrap();
    let vm = outcome.subject("vm").unwrap();
    assert_eq!(vm.whole.counters.completed, 2_000);
    assert_eq!(
        vm.whole.counters.mean_latency(),
        Some(Nanos::from_micros(3_997)),
        "four at 1 ms each"
    );
}

#[test]
fn a_trace_repeats() {
    let outcome = play("trace = 'trace.csv', repeat = true", &trace(10)).unwrap();
    let completed = outcome.subject("vm").unwrap().whole.counters.completed;
    assert!((205..=212).contains(&completed), "rounds of 900 ms: {completed}");
    let one = play("trace = 'trace.csv', repeat = true", &trace(1)).unwrap();
    assert!(
        one.subject("vm").unwrap().whole.counters.dropped > 0,
        "a trace of no length ends all the same"
    );
}

#[test]
fn what_is_wrong_with_a_trace_ends_the_run() {
    let missing = play("trace = 'trace.csb'", &trace(1)).unwrap_err();
    assert_eq!(missing.to_string(), "there is no trace 'trace.csb'; there is 'trace.csv'");
    let mut damaged = trace(10);
    damaged.0[7] = Err("trace.csv:9: the offset is missing; write a number of bytes".to_owned());
    let error = play("trace = 'trace.csv'", &damaged).unwrap_err();
    assert_eq!(error.to_string(), "trace.csv:9: the offset is missing; write a number of bytes");
}
