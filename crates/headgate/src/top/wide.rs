//! What a wide terminal shows behind a disk's figures: its rate of late, and what it waits for.

use super::screen::Screen;
use headgate_api::blame::Blame;
use headgate_api::top::TopDisk;
use ratatui::style::Stylize;
use ratatui::text::Span;
use std::collections::VecDeque;
use std::ops::Range;

/// Readings that a sparkline shows, a second apart.
pub(super) const READINGS: usize = 30;

const HEAD: &str = "  IOPS, LAST 30 s                 WAITS FOR";

/// Whether there is room behind the figures, which take `taken` columns.
fn has_room(taken: usize, width: usize) -> bool {
    width >= taken + HEAD.len()
}

/// What stands in the line of heads.
pub(super) fn heads(taken: usize, width: usize) -> &'static str {
    if has_room(taken, width) { HEAD } else { "" }
}

/// Behind figures that end where `gap` begins; nothing where there is no room.
pub(super) fn rest(
    screen: &Screen,
    disk: &TopDisk,
    gap: Range<usize>,
    width: usize,
) -> Vec<Span<'static>> {
    if !has_room(gap.end, width) {
        return Vec::new();
    }
    let line = screen.rates.get(&disk.name).map_or_else(String::new, sparkline);
    let room = width - gap.end - READINGS - 4;
    let waits: String =
        disk.blame.as_ref().map_or_else(String::new, Blame::words).chars().take(room).collect();
    let space = " ".repeat(gap.len());
    vec![Span::from(space), Span::from(format!("  {line:<READINGS$}  ")).cyan(), Span::from(waits)]
}

/// The largest is the full height; nothing is a space.
fn sparkline(rates: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = rates.iter().copied().fold(0.0, f64::max);
    let bar = |rate: &f64| match rate {
        rate if *rate < 0.05 => ' ',
        rate => BARS[((rate / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    rates.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_rate_is_the_full_height() {
        assert_eq!(sparkline(&VecDeque::from([0.0, 1.0, 50.0, 100.0])), " ▁▄█");
        assert_eq!(sparkline(&VecDeque::from([0.0, 0.0])), "  ");
        assert_eq!((heads(94, 120), heads(94, 200)), ("", HEAD));
    }
}
