//! Layouts that are small enough to write down, with units of a few bytes: every byte and every
//! range against a table that follows the definition.

use super::*;
use crate::ranges::{Part, Run};

/// Where a byte of the disk lies: its member and the offset in the export.
type Home = (u16, u64);

/// Where each byte of the disk lies, by the definition alone.
fn table(unit: u64, members: u64, size: u64) -> Vec<Home> {
    let home = |byte: u64| {
        let strip = byte / unit;
        ((strip % members) as u16, (1 << 20) + strip / members * unit + byte % unit)
    };
    (0..size).map(home).collect()
}

/// Calls back with each layout of some units of 1 to 5 bytes, whole and cut, and with its table.
fn each_layout(mut look: impl FnMut(Layout, &[Home])) {
    for (unit, members) in (1..=5).flat_map(|unit| (1..=5).map(move |members| (unit, members))) {
        for size in 1..=unit * (2 * members + 2) {
            let layout = Layout { unit: Bytes(unit), members: members as u16, size: Bytes(size) };
            look(layout, &table(unit, members, size));
        }
    }
}

/// Calls back with each range of the disk, and with what lies there.
fn each_range(homes: &[Home], mut look: impl FnMut(u64, u64, &[Home])) {
    for begin in 0..=homes.len() {
        for end in begin..=homes.len() {
            look(begin as u64, (end - begin) as u64, &homes[begin..end]);
        }
    }
}

fn bytes_of(part: Part) -> impl Iterator<Item = Home> {
    (part.offset..part.offset + part.len).map(move |at| (part.member, at))
}

#[test]
fn parts_have_each_byte_of_a_range_once() {
    each_layout(|layout, homes| {
        each_range(homes, |offset, len, expected| {
            let parts: Vec<Part> = layout.parts(offset, len).collect();
            assert!(parts.is_sorted_by(|a, b| a.member < b.member), "{layout}: {parts:?}");
            assert!(parts.iter().all(|part| part.len > 0), "{layout}: {parts:?}");
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            let found: Vec<Home> = parts.iter().copied().flat_map(bytes_of).collect();
            assert_eq!(found, expected, "{layout}: {offset}+{len}");
        });
    });
}

#[test]
fn runs_are_the_range_in_its_order() {
    each_layout(|layout, homes| {
        each_range(homes, |offset, len, expected| {
            let runs: Vec<Run> = layout.runs(offset, len).collect();
            let mut at = 0;
            for run in &runs {
                assert_eq!(run.at, at, "{layout}: {offset}+{len}: {runs:?}");
                let (first, last) = (offset + at, offset + at + run.len - 1);
                assert_eq!(first / layout.unit.0, last / layout.unit.0, "{layout}: {runs:?}");
                for byte in at..at + run.len {
                    let (member, _) = expected[byte as usize];
                    assert_eq!(run.member, member, "{layout}: {offset}+{len}: {runs:?}");
                }
                at += run.len;
            }
            assert_eq!(at, len, "{layout}: {offset}+{len}: {runs:?}");
            // A run ends where a unit does, or the range: none is cut without need.
            let units = (offset + len).div_ceil(layout.unit.0) - offset / layout.unit.0;
            assert_eq!(runs.len() as u64, if len == 0 { 0 } else { units }, "{layout}: {runs:?}");
        });
    });
}

#[test]
fn the_runs_of_a_member_are_its_part() {
    each_layout(|layout, homes| {
        each_range(homes, |offset, len, expected| {
            for part in layout.parts(offset, len) {
                let runs = layout.runs(offset, len).filter(|run| run.member == part.member);
                let lying = runs.flat_map(|run| run.at..run.at + run.len);
                let found: Vec<Home> = lying.map(|byte| expected[byte as usize]).collect();
                assert!(found.into_iter().eq(bytes_of(part)), "{layout}: {offset}+{len}");
            }
        });
    });
}

#[test]
fn an_offset_of_an_export_is_the_byte_that_lies_there() {
    each_layout(|layout, homes| {
        let data = DATA_AT.0;
        for member in 0..=layout.members {
            for at in [0, 1, data - 1].into_iter().chain(data..layout.member_size().0 + 7) {
                let expected = homes.iter().position(|home| *home == (member, at));
                let found = layout.disk_offset(member, at);
                assert_eq!(found, expected.map(|byte| byte as u64), "{layout}: {member}, {at}");
            }
        }
    });
}

#[test]
fn an_export_of_the_least_size_holds_its_data_and_no_unit_more() {
    each_layout(|layout, homes| {
        let end = homes.iter().map(|(_, at)| at + 1).max().unwrap();
        let least = layout.member_size().0;
        assert!((end..end + layout.unit.0).contains(&least), "{layout}: {least}, {end}");
    });
}

#[test]
fn what_lies_beyond_the_disk_is_left_out() {
    each_layout(|layout, homes| {
        let size = homes.len() as u64;
        for offset in 0..=size {
            for len in [size - offset + 1, size + 9, u64::MAX] {
                assert!(layout.parts(offset, len).eq(layout.parts(offset, size - offset)));
                assert!(layout.runs(offset, len).eq(layout.runs(offset, size - offset)));
            }
        }
        for offset in [size, size + 1, u64::MAX] {
            assert_eq!(layout.parts(offset, 7).next(), None);
            assert_eq!(layout.runs(offset, 7).next(), None);
        }
    });
}
