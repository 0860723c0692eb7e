//! One line of an operator's: no panic, and what is kept as text, in the catalog or in a file,
//! prints as something that is accepted and prints the same.

use headgate_cluster::Endpoint;
use headgate_devices::{LayerSpec, ModelSpec};
use headgate_model::{
    Backend, BoardPlace, DatastorePlacement, DiskPlacement, Lookback, Name, Policy, Threshold,
    WindowRecord,
};
use headgate_nbd::uri::Uri;
use headgate_placement::Rules;
use headgate_qos::ioprio::IoprioMap;
use headgate_qos::{CostModel, Narrow, SchedulerKind};
use headgate_units::{Bytes, BytesPerSec, Iops, LatencyTarget, Nanos, Priority, Shares};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Display;
use std::str::FromStr;

pub(super) const WORDS: &[&str] = &[
    "rate=",
    "latency=",
    "depth=",
    ",",
    "=",
    "%",
    "..",
    "ms",
    "us",
    "ns",
    "K",
    "KiB",
    "GiB",
    "/s",
    "nbd://",
    "nbd+unix:///",
    "?socket=",
    "http://",
    "[::1]",
    ":",
    "none",
    "auto",
    "unit",
    "affine=",
    "chunks=",
    "error=",
    "errno=ENOSPC",
    "on=write",
    "delay=",
    "stall=",
    "p99<",
    "be/4",
    "rt/0",
    "idle",
    "ssd",
    "disks=",
    "raid5",
    "\"limit\":",
    "null",
    "{}",
    "18446744073709551615",
    "0.1",
    "1e9",
    "%20",
    "@",
];

const SEEDS: &[&str] = &[
    "vm1-root",
    "24h",
    "30ms",
    "auto",
    "etcd",
    "p99<5ms",
    "4KiB",
    "1.5GiB",
    "3",
    "200MiB/s",
    "1500",
    "100",
    "mclock",
    "be0=7,be7=20,idle=1",
    "affine=300K",
    "chunks=16K",
    "unit",
    "on",
    "nbd://server:10809/export",
    "nbd://[::1]:10809/export",
    "nbd+unix:///x?socket=/run/nbd.sock",
    "http://10.0.0.1:2379",
    "rate=1600,latency=5ms",
    "array=raid5,disks=6",
    "ssd",
    "null",
    "delay=5ms",
    "error=1%,on=read",
    "stragglers=8:100ms",
    "stall=1s/10s",
    "trace=100",
    "rate=500",
    "trace",
    r#"{"limit":500,"shares":200}"#,
    r#"{"threshold":"30ms"}"#,
    r#"{"kind":"dir","path":"/srv"}"#,
    r#"{}"#,
    r#"{"rules":[]}"#,
    r#"{"affinity":[]}"#,
];

/// Every kind with every line.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let with = |kind: u8| SEEDS.iter().map(move |text| [&[kind], text.as_bytes()].concat());
    (0..KINDS).flat_map(with).collect()
}

/// What is printed for people to read.
fn shown<T: FromStr + Display>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert!(!value.to_string().is_empty(), "{text:?}");
    }
}

/// What is printed to be read again.
fn kept<T: FromStr + Display>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let printed = value.to_string();
    let Ok(again) = printed.parse::<T>() else { panic!("{text:?} is printed as {printed:?}") };
    assert_eq!(again.to_string(), printed, "{text:?}");
}

fn document<T: DeserializeOwned + Serialize>(text: &str) {
    let Ok(value) = serde_json::from_str::<T>(text) else { return };
    let printed = serde_json::to_string(&value).expect("what was read can be written");
    match serde_json::from_str::<T>(&printed) {
        Ok(again) => assert_eq!(serde_json::to_string(&again).expect("the same"), printed),
        Err(error) => panic!("{text:?} is written as {printed:?}: {error}"),
    }
}

const KINDS: u8 = 24;

pub(super) fn run(input: &[u8]) {
    let Some((&kind, line)) = input.split_first() else { return };
    let Ok(line) = std::str::from_utf8(line) else { return };
    match kind % KINDS {
        0 => kept::<Name>(line),
        1 => kept::<Lookback>(line),
        2 => kept::<Threshold>(line),
        3 => kept::<BoardPlace>(line),
        4 => shown::<LatencyTarget>(line),
        5 => shown::<Bytes>(line),
        6 => shown::<Priority>(line),
        7 => shown::<Nanos>(line),
        8 => shown::<BytesPerSec>(line),
        9 => shown::<Iops>(line),
        10 => shown::<Shares>(line),
        11 => kept::<SchedulerKind>(line),
        12 => kept::<IoprioMap>(line),
        13 => kept::<CostModel>(line),
        14 => kept::<Narrow>(line),
        15 => kept::<Uri>(line),
        16 => kept::<Endpoint>(line),
        17 => kept::<ModelSpec>(line),
        18 => kept::<LayerSpec>(line),
        19 => document::<Policy>(line),
        20 => document::<Rules>(line),
        21 => document::<WindowRecord>(line),
        22 => document::<Backend>(line),
        _ => {
            document::<DiskPlacement>(line);
            document::<DatastorePlacement>(line);
        }
    }
}
