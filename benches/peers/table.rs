//! Medians of interleaved samples, as a table.

use crate::Cell;
use crate::client::Sample;
use crate::servers::Contender;

/// Prints one workload's table. Ratios are of the same round and way of attachment: Headgate
/// divided by the server of the row.
pub fn print(cell: &Cell, contenders: &[Contender]) {
    let samples = &cell.samples;
    println!("\n**{}, {}**\n", cell.workload.name, cell.state.name());
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
            if speed.is_empty() { "-".to_owned() } else { with_range(&speed) },
            if cpu.is_empty() { "-".to_owned() } else { format!("{:.2}", median(&cpu)) },
        );
    }
}

/// Prints a row for each cell and way: Headgate beside the peer that was best there, and how many
/// cells meet the bars.
pub fn print_matrix(cells: &[Cell], contenders: &[Contender]) {
    println!("\n**Beside the best peer of each cell** (ratios of the same round: median, range)\n");
    println!("| state | workload | server | best peer | IOPS | x IOPS | x CPU | x p99 | x p99.9 |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut bars = Bars::default();
    for cell in cells {
        for (ours, own) in contenders.iter().zip(&cell.samples).filter(|(c, _)| c.is_headgate()) {
            let peers = contenders.iter().zip(&cell.samples).filter(|(peer, samples)| {
                !peer.is_headgate() && peer.way() == ours.way() && samples.len() == own.len()
            });
            let iops =
                |samples: &[Sample]| median(&samples.iter().map(|s| s.iops).collect::<Vec<_>>());
            let best = peers.max_by(|(_, a), (_, b)| iops(a).total_cmp(&iops(b)));
            let Some((peer, theirs)) = best else { continue };
            let ratios = |of: fn(&Sample) -> f64| -> Vec<f64> {
                own.iter().zip(theirs).map(|(a, b)| of(a) / of(b)).collect()
            };
            let (speed, cpu) = (ratios(|s| s.iops), ratios(|s| s.cpu_per_million));
            bars.count(&speed, &cpu);
            println!(
                "| {} | {} | {} | {} | {:.0} | {} | {} | {:.2} | {:.2} |",
                cell.state.name(),
                cell.workload.name,
                ours.name(),
                peer.name(),
                iops(own),
                with_range(&speed),
                with_range(&cpu),
                median(&ratios(|s| s.p99_us)),
                median(&ratios(|s| s.p999_us)),
            );
        }
    }
    bars.print();
}

/// How many cells are how good.
#[derive(Default)]
struct Bars {
    cells: usize,
    behind: usize,
    surely_behind: usize,
    well_ahead: usize,
    dearer: usize,
    surely_dearer: usize,
}

impl Bars {
    fn count(&mut self, speed: &[f64], cpu: &[f64]) {
        self.cells += 1;
        self.behind += usize::from(median(speed) < 1.0);
        self.surely_behind += usize::from(most(speed) < 1.0);
        self.well_ahead += usize::from(median(speed) >= 1.3);
        self.dearer += usize::from(median(cpu) > 1.0);
        self.surely_dearer += usize::from(least(cpu) > 1.0);
    }

    fn print(&self) {
        println!(
            "\n{} cells: {} with fewer IOPS than the peer ({} in every round), {} with at least 1.3 \
             times as many; {} with more CPU per request ({} in every round).",
            self.cells,
            self.behind,
            self.surely_behind,
            self.well_ahead,
            self.dearer,
            self.surely_dearer
        );
    }
}

fn with_range(values: &[f64]) -> String {
    format!("{:.2} ({:.2}..{:.2})", median(values), least(values), most(values))
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
