//! Who waits for whom, a line for each disk.

use headgate_api::blame::Blame;
use headgate_api::top::TopDisk;
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};

pub(super) const HEAD: &str =
    "DISK             WAIT NEIGHB LIMIT WINDOW  OWN DEVICE HELD  WAITS FOR";

/// A disk's parts, and its neighbours as far as there is room.
pub(super) fn line(disk: &TopDisk, width: usize) -> Line<'static> {
    let name: String = disk.name.to_string().chars().take(14).collect();
    let Some(blame) = &disk.blame else {
        return Line::from(format!("  {name:<14} {:>4}", "-"));
    };
    let percent = |part: f64| format!("{:.0}", part * 100.0);
    let causes = &blame.causes;
    let parts = format!(
        "  {name:<14} {:>4} {:>6} {:>5} {:>6} {:>4} {:>6} {:>4}  ",
        waiting(blame.waiting),
        percent(causes.neighbours),
        percent(causes.limit),
        percent(causes.window),
        percent(causes.own),
        percent(causes.device),
        percent(causes.held),
    );
    let room = width.saturating_sub(parts.chars().count());
    let neighbours = Span::from(neighbours(blame, room));
    let mostly = causes.neighbours > 0.5;
    let neighbours = if mostly { neighbours.fg(Color::Yellow) } else { neighbours };
    Line::from(vec![Span::from(parts), neighbours])
}

/// In four characters.
fn waiting(requests: f64) -> String {
    if requests < 99.95 { format!("{requests:.1}") } else { format!("{requests:.0}") }
}

/// `flooder 61, db 12, and 3 more`: as many as there is room for.
fn neighbours(blame: &Blame, room: usize) -> String {
    let shown: Vec<String> = blame
        .neighbours
        .iter()
        .filter(|one| one.part >= 0.01)
        .map(|one| {
            let copy = if one.copy { "copy of " } else { "" };
            format!("{copy}{} {:.0}", one.disk, one.part * 100.0)
        })
        .collect();
    for count in (0..=shown.len()).rev() {
        let mut text = shown[..count].join(", ");
        if count < shown.len() {
            let comma = if count > 0 { ", " } else { "" };
            text.push_str(&format!("{comma}+{}", shown.len() - count));
        }
        if text.chars().count() <= room {
            return text;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_api::blame::{Blamed, Causes};

    #[test]
    fn neighbours_are_shown_as_far_as_there_is_room() {
        let one = |disk: &str, part| Blamed { disk: disk.parse().unwrap(), copy: false, part };
        let neighbours_are = vec![one("flooder", 0.61), one("db", 0.12), one("web", 0.004)];
        let causes = Causes { neighbours: 0.74, ..Causes::default() };
        let blame = Blame { seconds: 5.0, waiting: 1.0, causes, neighbours: neighbours_are };
        for (room, text) in [(40, "flooder 61, db 12"), (16, "flooder 61, +1"), (9, "+2"), (1, "")]
        {
            assert_eq!(neighbours(&blame, room), text);
        }
    }
}
