//! Tables.

use super::contest::Outcome;
use super::grid::{Below, Reserved, Row, SHARES};
use std::fmt::Write;

/// The most that the p99 beside a neighbour may be, in times of that alone.
pub const BAR: f64 = 1.5;

/// p50, p99 and p99.9 in milliseconds.
fn three(outcome: &Outcome) -> String {
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|part| outcome.took.quantile(part));
    format!("{p50:.1} / {p99:.1} / {p999:.1}")
}

fn p99s(outcomes: &[Outcome]) -> String {
    let p99s: Vec<String> =
        outcomes.iter().map(|outcome| format!("{:.0}", outcome.took.quantile(0.99))).collect();
    p99s.join(" / ")
}

/// One table for each kind of storage and of reserved disks, in Markdown, and what missed the bar
/// or the bound.
pub fn rows(rows: &[Row]) -> String {
    let mut text = String::new();
    for below in Below::ALL {
        for reserved in Reserved::ALL {
            let here: Vec<&Row> = rows
                .iter()
                .filter(|row| row.cell.below == below && row.cell.reserved == reserved)
                .collect();
            if let Some(first) = here.first() {
                one(&mut text, first, &here);
            }
        }
    }
    let misses = |kept: &dyn Fn(&Row) -> bool| {
        let missed: Vec<String> = rows
            .iter()
            .filter(|row| !kept(row))
            .map(|row| {
                let cell = row.cell;
                format!("{}, {}, W {}", cell.below.name(), cell.reserved.name(), cell.window)
            })
            .collect();
        let of = format!("{} of {}", rows.len() - missed.len(), rows.len());
        if missed.is_empty() { of } else { format!("{of}; missed: {}", missed.join("; ")) }
    };
    let _ = writeln!(
        text,
        "p99 at most {BAR} times that alone: {}\n\np99 at most that alone and W/T: {}",
        misses(&|row| row.ratio() <= BAR),
        misses(&|row| row.worst() <= row.bound()),
    );
    text
}

fn one(text: &mut String, first: &Row, rows: &[&Row]) {
    let shares: Vec<String> = SHARES.iter().map(u64::to_string).collect();
    let _ = writeln!(
        text,
        "{}, {}: alone {} ms, {} requests\n",
        first.cell.below.name(),
        first.cell.reserved.name(),
        three(&first.alone),
        first.alone.took.count(),
    );
    text.push_str("| W |");
    for shares in &shares {
        let _ = write!(text, " Headgate, 1:{shares} |");
    }
    let shares = shares.join(", 1:");
    let _ = writeln!(
        text,
        " deadline | deadline, regulated | FIFO p99 | SFQ p99, 1:{shares} | bound | past deadline, worst | \
         × alone | |\n|{}",
        "---|".repeat(SHARES.len() + 9),
    );
    for row in rows {
        let _ = write!(text, "| {} |", row.cell.window);
        for outcome in &row.headgate {
            let _ = write!(text, " {} |", three(outcome));
        }
        let mut missed = Vec::new();
        if row.worst() > row.bound() {
            missed.push("bound");
        }
        if row.ratio() > BAR {
            missed.push("bar");
        }
        let missed = if missed.is_empty() {
            String::new()
        } else {
            format!("missed: {}", missed.join(", "))
        };
        let _ = writeln!(
            text,
            " {} | {} | {:.0} | {} | {:.1} | {:.1} | {:.2} | {missed} |",
            three(&row.deadline),
            three(&row.regulated),
            row.fifo.took.quantile(0.99),
            p99s(&row.sfq),
            row.bound(),
            row.latest(),
            row.ratio(),
        );
    }
    text.push('\n');
}
