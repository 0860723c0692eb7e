//! Advice tried out in the simulator: disks under the daemon's own scheduler, on three arrays.

use crate::common::*;
use headgate_placement::*;
use headgate_sim::{Counters, Outcome, Quiet, Scenario, run};
use headgate_units::{Bytes, Nanos};
use std::fmt::Write;

const ARRAYS: [&str; 3] = ["array3", "array6", "array9"];
const SECOND: Nanos = Nanos::from_secs(1);

/// Random reads of 8 KiB, so many at once for each disk; each begins `apart` after the one before.
fn simulate(disks: &[(&str, u32)], apart: u64, duration: u64) -> Outcome {
    let mut text = format!(
        "name = \"pod\"\ntitle = \"Disks on three arrays\"\nduration = \"{duration}s\"\ninterval = \"1s\"\nwindows = {{ steady = \"5s..{duration}s\" }}\n"
    );
    for (name, spindles) in ARRAYS.into_iter().zip([3, 6, 9]) {
        write!(
            text,
            "[[datastore]]\nname = \"{name}\"\ndevice = \"array={spindles}\"\nqueue-depth = 256\n"
        )
        .unwrap();
    }
    for (index, (array, outstanding)) in disks.iter().enumerate() {
        let start = index as u64 * apart;
        write!(
            text,
            "[[vm]]\nname = \"disk{index}\"\nstart = \"{start}s\"\ndisk = [{{ datastore = \"{array}\", size = \"100G\" }}]\n\
             workload = [{{ kind = \"closed\", outstanding = {outstanding}, size = \"8K\", read = \"100%\", random = \"100%\" }}]\n"
        )
        .unwrap();
    }
    let scenario = Scenario::parse("pod.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    run(&scenario, "default", 1, &mut Quiet).unwrap()
}

/// An array's model, learnt while ten disks of eight requests begin one after the other.
fn learn(array: &str) -> DeviceModel {
    let outcome = simulate(&[(array, 8); 10], 6, 60);
    let points =
        outcome.subject(array).unwrap().series.iter().filter(|second| second.completed > 0);
    let points: Vec<DevicePoint> = points
        .map(|second| DevicePoint {
            outstanding: Outstanding::of(second.mean_outstanding(SECOND)),
            latency: second.mean_latency().unwrap(),
            size: Bytes::from_kib(8),
            random: Permille::WHOLE,
        })
        .collect();
    DeviceModel::learn(&points).unwrap()
}

fn steady(outcome: &Outcome, name: &str) -> Counters {
    outcome.subject(name).unwrap().spans[0].counters
}

fn total(outcome: &Outcome) -> (f64, f64) {
    let all = ARRAYS
        .iter()
        .map(|array| steady(outcome, array))
        .fold(Counters::default(), |sum, each| sum.plus(&each));
    (all.iops(Nanos::from_secs(15)), all.mean_latency().unwrap().0 as f64 / 1e6)
}

/// Predictions beside what is measured.
fn compare(outlook: &Outlook, outcome: &Outcome) {
    for store in outlook.datastores.iter().filter(|store| store.disks > 0) {
        let measured = steady(outcome, store.name.as_str()).mean_latency().unwrap();
        let predicted = store.latency.unwrap();
        println!(
            "  {} with {} disks: predicted {predicted}, measured {measured}",
            store.name, store.disks
        );
        let off = predicted.0 as f64 / measured.0 as f64 - 1.0;
        // Of 3 to 27 requests for each spindle, the line is too low for the fewest: disks that age
        // by time order many requests little better than few.
        let most = if store.disks == 1 { 0.35 } else { 0.2 };
        assert!(off.abs() < most, "{}: {off}", store.name);
    }
}

/// BA-11 once the arrays are known: eight disks on the array of six.
#[test]
fn what_is_predicted_is_what_comes() {
    let mut pool = Pool { now: Nanos::from_secs(1_000_000), ..Pool::default() };
    for array in ARRAYS {
        let model = learn(array);
        println!("{array}: {model}");
        assert_eq!(model.evidence, Evidence::Rise);
        pool.datastores.push(Datastore { model: Some(model), ..datastore(array, 1) });
    }
    let outstanding = [8, 16, 8, 16, 16, 8, 16, 8];
    pool.disks = outstanding
        .iter()
        .enumerate()
        .map(|(n, &depth)| disk(&format!("disk{n}"), "array6", depth))
        .collect();
    let advice = advise(&pool).unwrap();
    let run = |pool: &Pool| {
        let at: Vec<&str> = pool.disks.iter().map(|disk| disk.datastore.as_str()).collect();
        simulate(&at.into_iter().zip(outstanding).collect::<Vec<_>>(), 0, 20)
    };
    let before = run(&pool);
    compare(&advice.before, &before);
    apply(&mut pool, &advice, Nanos::ZERO);
    let after = run(&pool);
    compare(&advice.after, &after);

    let ((iops, latency), (more_iops, less_latency)) = (total(&before), total(&after));
    println!(
        "{} moves: {iops:.0} -> {more_iops:.0} IOPS, {latency:.1} -> {less_latency:.1} ms",
        advice.moves.len()
    );
    assert!(more_iops > 1.8 * iops && less_latency < 0.6 * latency);
    let of = |array: &str| -> u32 {
        let on = pool.disks.iter().zip(outstanding);
        on.filter(|(disk, _)| disk.datastore.as_str() == array).map(|(_, depth)| depth).sum()
    };
    let loads = ARRAYS.map(of);
    assert!(loads[0] < loads[1] && loads[1] <= loads[2], "{loads:?}");
    // Nothing is left to do.
    pool.now += Nanos::from_secs(30 * 24 * HOUR);
    assert_eq!(advise(&pool).unwrap().moves, []);
}
