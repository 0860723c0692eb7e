//! Medians of interleaved samples, as a table.

use crate::client::Sample;
use crate::servers::Contender;

/// Prints one workload's table. Ratios are of the same round and way of attachment: Headgate
/// divided by the server of the row.
pub fn print(workload: &str, contenders: &[Contender], samples: &[Vec<Sample>]) {
    println!("\n**{workload}**\n");
    println!(
        "| server | n | IOPS (min..max) | p50 us | p99 us | p99.9 us | server CPU s/M IO | headgate/this IOPS (min..max) | \
         headgate/this CPU |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (contender, own) in contenders.iter().zip(samples) {
        let all = |of: fn(&Sample) -> f64| own.iter().map(of).collect::<Vec<f64>>();
        let iops = all(|s| s.iops);
        let ours = contenders.iter().position(|c| c.is_headgate() && c.way() == contender.way());
        let ratios = |of: fn(&Sample) -> f64| -> Vec<f64> {
            let Some(ours) = ours else { return Vec::new() };
            samples[ours].iter().zip(own).map(|(a, b)| of(a) / of(b)).collect()
        };
        let speed = ratios(|s| s.iops);
        let cpu = ratios(|s| s.cpu_per_million);
        println!(
            "| {} | {} | {:.0} ({:.0}..{:.0}) | {:.1} | {:.1} | {:.1} | {:.2} | {} | {} |",
            contender.name(),
            own.len(),
            median(&iops),
            least(&iops),
            most(&iops),
            median(&all(|s| s.p50_us)),
            median(&all(|s| s.p99_us)),
            median(&all(|s| s.p999_us)),
            median(&all(|s| s.cpu_per_million)),
            if speed.is_empty() {
                "-".to_owned()
            } else {
                format!("{:.2} ({:.2}..{:.2})", median(&speed), least(&speed), most(&speed))
            },
            if cpu.is_empty() { "-".to_owned() } else { format!("{:.2}", median(&cpu)) },
        );
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
