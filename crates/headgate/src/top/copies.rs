//! Copies of disks, of those that move and as of one instant, on both of their datastores.

use super::format::mebibytes;
use headgate_api::copies::Copy;
use headgate_api::imports::Import;
use headgate_api::moves::{Move, MoveState};
use headgate_api::top::{Top, TopDatastore};
use ratatui::style::{Color, Stylize};
use ratatui::text::Line;

/// The copies that are made from a datastore and to it.
pub(super) fn lines(top: &Top, datastore: &TopDatastore) -> Vec<Line<'static>> {
    let of = |one: &&Move| one.from == datastore.name || one.to == datastore.name;
    let mut lines: Vec<_> = top.moves.iter().filter(of).map(|one| line(one, datastore)).collect();
    let has = |one: &&Copy| {
        one.datastore == datastore.name || datastore.disks.iter().any(|d| d.name == one.source)
    };
    lines.extend(top.copies.iter().filter(has).map(instant_line));
    let into = |one: &&Import| one.datastore == datastore.name;
    lines.extend(top.imports.iter().filter(into).map(import_line));
    lines
}

fn instant_line(one: &Copy) -> Line<'static> {
    let done = one.copied.0.saturating_mul(100) / one.size.0.max(1);
    let (state, waiting) = (one.state.as_str(), one.waiting);
    let mut text = format!("    copy {} of {}: {state}, {done} %", one.disk, one.source);
    push_speed(&mut text, one.rate, one.seconds_left);
    text.push_str(&format!(", shares {}", one.shares));
    if waiting > 0 {
        text.push_str(&format!(", {waiting} changes of the disk wait for it"));
    }
    Line::from(text).fg(Color::Cyan)
}

fn import_line(one: &Import) -> Line<'static> {
    let done = one.copied.0.saturating_mul(100) / one.size.0.max(1);
    let mut text = format!("    import of {}: {}, {done} %", one.disk, one.state.as_str());
    push_speed(&mut text, one.rate, one.seconds_left);
    Line::from(text).fg(Color::Cyan)
}

fn push_speed(text: &mut String, rate: Option<u64>, seconds_left: Option<u64>) {
    if let Some(rate) = rate {
        text.push_str(&format!(", {} MiB/s", mebibytes(rate as f64)));
    }
    if let Some(left) = seconds_left {
        text.push_str(&format!(", {}:{:02} left", left / 60, left % 60));
    }
}

fn line(one: &Move, datastore: &TopDatastore) -> Line<'static> {
    let way = match one.from == datastore.name {
        true => format!("to {}", one.to),
        false => format!("from {}", one.from),
    };
    let done = one.copied.0.saturating_mul(100) / one.size.0.max(1);
    let mut text = format!("    copy of {} {way}: {}, {done} %", one.disk, one.state.as_str());
    let rate = one.rate.filter(|_| one.state == MoveState::Copying);
    push_speed(&mut text, rate, one.seconds_left);
    text.push_str(&format!(", shares {}", one.shares));
    Line::from(text).fg(Color::Cyan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: &str) -> TopDatastore {
        serde_json::from_value(serde_json::json!({
            "name": name, "state": "serving", "scheduler": "mclock", "window": 32.0,
            "in_flight": 0, "queued": 0, "capacity_iops": null, "reserved_iops": 0,
            "overbooked_iops": 0, "disks": [],
            "load": {"iops": 0.0, "normalised_iops": 0.0, "bytes_per_sec": 0.0,
                "read_fraction": null, "outstanding": 0.0, "errors": 0, "queue_micros": null,
                "device_micros": null},
        }))
        .unwrap()
    }

    fn text(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_copy_as_of_one_instant_is_shown_where_it_is_and_where_its_disk_is() {
        let one: Copy = serde_json::from_value(serde_json::json!({
            "disk": "db0-mon", "source": "db0", "datastore": "fast", "state": "copying",
            "instant": 0, "copied": 37_580_963_840u64, "size": 107_374_182_400u64,
            "rate": 28_311_552u64, "seconds_left": 245, "shares": 100, "limit": null,
            "limit_bandwidth": null, "blocks": "copied", "waiting": 3,
            "began": 0, "ended": null, "reason": null,
        }))
        .unwrap();
        let done = Copy { waiting: 0, ..one.clone() };
        let mut top = Top { copies: vec![one], ..Top::default() };
        let line = "    copy db0-mon of db0: copying, 35 %, 27 MiB/s, 4:05 left, shares 100";
        let waits = format!("{line}, 3 changes of the disk wait for it");
        assert_eq!(text(&lines(&top, &store("fast"))), [waits]);
        assert!(lines(&top, &store("array")).is_empty());
        top.copies = vec![done];
        let load = headgate_api::top::Load::default();
        let mut on = serde_json::to_value(store("array")).unwrap();
        on["disks"] = serde_json::json!([{
            "name": "db0", "vm": null, "state": "serving", "policy": {}, "clients": 1, "queued": 0,
            "in_flight": 0, "load": load, "reservation_achieved": null,
            "reservation_missed": false, "share_achieved": null,
        }]);
        let on = serde_json::from_value(on).unwrap();
        assert_eq!(text(&lines(&top, &on)), [line]);
    }

    #[test]
    fn an_import_is_shown_on_its_datastore() {
        let one: Import = serde_json::from_value(serde_json::json!({
            "disk": "db1", "datastore": "fast", "state": "copying", "source": "a.qcow2",
            "copied": 37_580_963_840u64, "size": 107_374_182_400u64, "rate": 28_311_552u64,
            "seconds_left": 245, "began": 0,
        }))
        .unwrap();
        let top = Top { imports: vec![one], ..Top::default() };
        let line = "    import of db1: copying, 35 %, 27 MiB/s, 4:05 left";
        assert_eq!(text(&lines(&top, &store("fast"))), [line]);
        assert!(lines(&top, &store("array")).is_empty());
    }

    #[test]
    fn a_copy_is_shown_on_both_of_its_datastores_and_nowhere_else() {
        let mut one: Move = serde_json::from_value(serde_json::json!({
            "disk": "db0", "from": "array", "to": "fast", "state": "copying",
            "copied": 37_580_963_840u64, "size": 107_374_182_400u64, "rate": 28_311_552u64,
            "seconds_left": 245, "shares": 100, "limit": null, "limit_bandwidth": null,
            "began": 0, "ended": null, "outcome": null, "reason": null,
        }))
        .unwrap();
        let mut top = Top { moves: vec![one.clone()], ..Top::default() };
        let rest = "copying, 35 %, 27 MiB/s, 4:05 left, shares 100";
        let from = text(&lines(&top, &store("array")));
        assert_eq!(from, [format!("    copy of db0 to fast: {rest}")]);
        let to = text(&lines(&top, &store("fast")));
        assert_eq!(to, [format!("    copy of db0 from array: {rest}")]);
        assert!(lines(&top, &store("other")).is_empty());
        (one.state, one.rate, one.seconds_left) = (MoveState::Paused, None, None);
        top.moves = vec![one];
        let to = text(&lines(&top, &store("fast")));
        assert_eq!(to, ["    copy of db0 from array: paused, 35 %, shares 100"]);
    }
}
