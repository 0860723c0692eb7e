//! The time of modelled devices that two disks with equal shares get, under declared costs and
//! under learned ones: each disk's rate, as a part of its rate where it is alone.

use crate::common::outcome;

const LOADS: [(&str, &str); 6] = [
    ("read 4K", "size = '4K', read = '100%', random = '100%'"),
    ("write 4K", "size = '4K', read = '0%', random = '100%'"),
    ("write 64K", "size = '64K', read = '0%', random = '100%'"),
    ("read 256K", "size = '256K', read = '100%', random = '100%'"),
    ("stream 64K", "size = '64K', read = '100%', random = '0%'"),
    ("write stream 64K", "size = '64K', read = '0%', random = '0%'"),
];

/// Seconds that are measured, at the end of a run.
const MEASURED: usize = 60;

fn rates(device: &str, model: &str, loads: &[&str], seconds: usize) -> Vec<f64> {
    let mut text = format!(
        "name = 'mix'\ntitle = 'A mix'\nduration = '{seconds}s'\nhistograms = false\n[[datastore]]\n\
         name = 'store'\ndevice = '{device}'\ncost-model = '{model}'\nqueue-depth = 32\n"
    );
    for (index, name) in loads.iter().enumerate() {
        let load = LOADS.iter().find(|load| load.0 == *name).unwrap().1;
        text += &format!(
            "[[vm]]\nname = 'vm{index}'\ndisk = [{{ size = '400M' }}]\n\
             workload = [{{ kind = 'closed', outstanding = 32, {load} }}]\n"
        );
    }
    let outcome = outcome(&text, 1);
    let rate = |index: usize| {
        let series = &outcome.subject(&format!("vm{index}")).unwrap().series;
        let counts = series[seconds - MEASURED..].iter().map(|point| point.completed);
        counts.sum::<u64>() as f64 / MEASURED as f64
    };
    (0..loads.len()).map(rate).collect()
}

/// What each of two disks gets of the device's time, under `unit`, `affine=300K` and `learned`.
fn times(device: &str, loads: [&str; 2], seconds: usize) -> [[f64; 2]; 3] {
    let alone = loads.map(|load| rates(device, "unit", &[load], MEASURED + 30)[0]);
    let times = ["unit", "affine=300K", "learned"].map(|model| {
        let got = rates(device, model, &loads, seconds);
        [got[0] / alone[0], got[1] / alone[1]]
    });
    let cell = |time: [f64; 2]| format!("{:.2} : {:.2} ({:.2})", time[0], time[1], jain(time));
    let cells = times.map(cell).join(" | ");
    println!("| {device} | {} / {} | {cells} |", loads[0], loads[1]);
    times
}

/// Jain's index: 1 where both get the same, 1/2 where one gets all.
fn jain([a, b]: [f64; 2]) -> f64 {
    (a + b) * (a + b) / (2.0 * (a * a + b * b))
}

fn learned_are_fairer(device: &str, loads: [&str; 2], seconds: usize, least: f64) {
    let [unit, affine, learned] = times(device, loads, seconds).map(jain);
    assert!(learned >= least, "{device} {loads:?}: {learned}");
    assert!(learned > unit.max(affine) || unit.min(affine) > 0.98, "{unit}, {affine}: {learned}");
}

#[test]
fn disks_on_a_spindle_array_share_its_time() {
    learned_are_fairer("array=4,raid=5,cache=0", ["read 4K", "write 64K"], 240, 0.98);
    learned_are_fairer("array=4,raid=5,cache=0", ["read 4K", "read 256K"], 240, 0.98);
}

#[test]
fn disks_on_flash_share_its_time() {
    let drive = "ssd=1G,aged=yes,dies=2,channels=2";
    let [unit, _, learned] = times(drive, ["read 4K", "read 256K"], 240).map(jain);
    assert!(learned > 0.95 && unit < 0.6, "{learned}, unit {unit}");
}

#[test]
fn requests_that_cost_the_same_are_found_to() {
    let device = "rate=1000,service=exponential";
    let [_, affine, learned] = times(device, ["read 4K", "read 256K"], 300).map(jain);
    assert!(learned > 0.99 && learned > affine, "{learned}, affine {affine}");
}

/// The table of `docs/decisions/0053-learned-costs.md`.
#[test]
#[ignore = "takes minutes: for the table"]
fn all_mixes_on_all_devices() {
    let devices = [
        "array=8,raid=5,cache=0",
        "array=8,raid=5",
        "rate=2000,service=exponential",
        "rate=2000,service=exponential,stall=1s/5s",
        "ssd=1G,aged=yes,dies=2,channels=2",
    ];
    let others = ["write 64K", "write 4K", "stream 64K", "read 256K", "write stream 64K"];
    for device in devices {
        for other in others {
            times(device, ["read 4K", other], 300);
        }
    }
}
