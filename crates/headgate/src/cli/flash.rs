//! Emulated flash drives on the command line.

use super::output::{Align, Table, or_dash};
use headgate_api::flash::{Flash, FlashDisk, FlashIsolation, FlashRating, FlashReach, Space};

/// The lines that describe a datastore's drive.
pub(super) fn lines(
    space: Option<Space>,
    flash: Option<&Flash>,
) -> Vec<(&'static str, Option<String>)> {
    let mut lines =
        vec![("space", space.map(|space| format!("{}, {} of it left", space.size, space.left)))];
    let Some(flash) = flash else { return lines };
    let amplification = flash.write_amplification.map_or_else(
        || "nothing written yet".to_owned(),
        |factor| {
            let Flash { page_writes, pages_moved, .. } = flash;
            format!("{factor:.2}: {pages_moved} pages moved for {page_writes} written")
        },
    );
    lines.extend([
        ("isolation", Some(isolation(flash))),
        ("write amplification", Some(amplification)),
        ("spare blocks", Some(spare(flash))),
    ]);
    lines
}

fn isolation(flash: &Flash) -> String {
    match (flash.isolation, flash.rating, flash.rated_page_writes_per_sec) {
        (FlashIsolation::None, ..) => "none: disks share blocks".into(),
        (FlashIsolation::Static, ..) => "static: space by shares".into(),
        (_, Some(FlashRating::Given), Some(rated)) => {
            format!("dynamic: {rated} page writes per second by shares, as given")
        }
        (_, _, Some(rated)) => {
            format!("dynamic: {rated} page writes per second by shares, as achieved")
        }
        (_, _, None) => "dynamic: nothing collected yet".into(),
    }
}

fn spare(flash: &Flash) -> String {
    let size = headgate_units::Bytes(flash.block_bytes);
    match flash.isolation {
        FlashIsolation::None => format!("{} of {size}", flash.spare_blocks),
        _ => format!(
            "{} of {size}, {} of them nobody's",
            flash.spare_blocks, flash.unassigned_blocks
        ),
    }
}

/// A line for each disk, and what is to be said of them.
pub(super) fn disks(flash: &Flash) -> String {
    if flash.disks.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("DISK", Align::Left),
        ("SPARE", Align::Right),
        ("U", Align::Right),
        ("TARGET U", Align::Right),
        ("TARGET/S", Align::Right),
        ("WRITTEN", Align::Right),
        ("MOVED FOR IT", Align::Right),
        ("ITS OWN", Align::Right),
        ("AMPLIFICATION", Align::Right),
    ]);
    let part = |part: Option<f64>| or_dash(part.map(|part| format!("{part:.3}")));
    for disk in &flash.disks {
        table.row(vec![
            disk.name.to_string(),
            or_dash(disk.spare_blocks),
            part(disk.utilisation),
            part(disk.target_utilisation),
            or_dash(disk.target_page_writes_per_sec),
            disk.page_writes.to_string(),
            disk.pages_moved_for.to_string(),
            or_dash(disk.own_part.map(|part| format!("{:.1} %", part * 100.0))),
            or_dash(disk.write_amplification.map(|factor| format!("{factor:.2}"))),
        ]);
    }
    let remarks: String = flash.disks.iter().filter_map(remark).collect();
    format!("\n{}{remarks}", table.render())
}

/// Why a target is not reached, where it cannot be.
fn remark(disk: &FlashDisk) -> Option<String> {
    let why = match disk.reach {
        FlashReach::Open => return None,
        FlashReach::TooFast => {
            "it is slower even when nothing has to be moved; give it fewer shares, more requests at once, or a lower rated"
        }
        FlashReach::NoSpace => {
            "no disk has over-provisioning space to give; give a lower rated, or a drive with more op"
        }
        FlashReach::AtLeast => {
            "it has the least space and is still faster; a limit slows it without moving anything"
        }
    };
    Some(format!("'{}' cannot be on its target: {why}\n", disk.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(isolation: &str) -> Flash {
        serde_json::from_str(&format!(
            r#"{{"isolation": "{isolation}", "rated_page_writes_per_sec": 3350, "rating": "sought", "page_bytes": 4096,
                "block_bytes": 131072, "spare_blocks": 115, "unassigned_blocks": 1, "page_writes": 1000, "pages_moved": 4000,
                "blocks_erased": 150, "write_amplification": 5.0, "disks": [{{"name": "db", "page_writes": 1000,
                "pages_moved_for": 4000, "own_part": 1.0, "pages_moved": 4000, "blocks_collected": 150,
                "write_amplification": 5.0, "spare_blocks": 3, "least_spare_blocks": 3, "utilisation": 0.8,
                "target_utilisation": 0.9, "tolerance": 0.005, "target_page_writes_per_sec": 335, "reach": "at-least"}}]}}"#
        ))
        .unwrap()
    }

    #[test]
    fn a_drive_is_described_with_its_disks_and_targets_out_of_reach_are_said() {
        let drive = drive("dynamic");
        let said = super::super::output::description(&lines(None, Some(&drive)));
        assert_eq!(
            said,
            "isolation:            dynamic: 3350 page writes per second by shares, as achieved\n\
             write amplification:  5.00: 4000 pages moved for 1000 written\n\
             spare blocks:         115 of 128 KiB, 1 of them nobody's\n"
        );
        let said = disks(&drive);
        let row: Vec<&str> = said.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(row, ["db", "3", "0.800", "0.900", "335", "1000", "4000", "100.0", "%", "5.00"]);
        assert!(said.ends_with("a limit slows it without moving anything\n"), "{said}");
    }
}
