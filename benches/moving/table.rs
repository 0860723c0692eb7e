//! The tables.

use crate::Args;
use crate::clients::Served;
use crate::setting::{Case, Sample, Times};
use std::fs;

const MIB: f64 = 1_048_576.0;

/// Median, and the range if there is one.
fn spread(samples: &[Sample], of: impl Fn(&Sample) -> f64, digits: usize) -> String {
    let mut all: Vec<f64> = samples.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    match all.as_slice() {
        [] => "-".into(),
        [one] => format!("{one:.digits$}"),
        [least, .., most] => {
            format!("{:.digits$} ({least:.digits$}..{most:.digits$})", all[all.len() / 2])
        }
    }
}

/// What the machine is, and what else it does.
pub fn print_machine() {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let model = model.trim_start_matches(['\t', ' ', ':']);
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cpus} processors: {model}; load {}", load.trim());
}

/// What each case came to.
pub fn print(args: &Args, samples: &[Vec<Sample>]) {
    println!("\nMedians of {} rounds of {} s (range):\n", args.rounds, args.seconds);
    println!(
        "| | moving disk, IOPS | p99 ms | p99.9 ms | longest ms | beside it, IOPS | p99 ms | \
         p99.9 ms | longest ms | copied MiB/s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (case, samples) in Case::ALL.iter().zip(samples) {
        let of = |disk: fn(&Sample) -> Served| {
            [
                spread(samples, |s| disk(s).iops, 0),
                spread(samples, |s| disk(s).p99_ms, 1),
                spread(samples, |s| disk(s).p999_ms, 1),
                spread(samples, |s| disk(s).longest_ms, 0),
            ]
            .join(" | ")
        };
        println!(
            "| {} | {} | {} | {} |",
            case.name(args),
            of(|s| s.moving),
            of(|s| s.beside),
            spread(samples, |s| s.copied / MIB, 1)
        );
    }
}

/// How long whole moves took.
pub fn print_times(args: &Args, times: &Times) {
    let mib = args.timed_mib as f64;
    let (idle, busy) = (times.idle.as_secs_f64(), times.busy.as_secs_f64());
    println!(
        "\n{mib:.0} MiB of data: one client reads it at {:.0} MiB/s and writes as much at {:.0}. A \
         move of the idle disk takes {idle:.1} s, {:.0} MiB/s; of the busy one, whose client has {:.0} \
         requests a second meanwhile, {busy:.1} s, {:.1} MiB/s.",
        times.reads / MIB,
        times.writes / MIB,
        mib / idle,
        times.busy_iops,
        mib / busy
    );
}
