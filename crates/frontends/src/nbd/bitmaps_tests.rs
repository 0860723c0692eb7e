use super::*;
use headgate_units::Bytes;
use proptest::prelude::*;

const GRAIN: u64 = 64 << 10;

/// What has these grains changed.
pub(crate) fn changed(size: u64, grains: impl IntoIterator<Item = u64>) -> Arc<ChangedBlocks> {
    let mut bytes = vec![0; size.div_ceil(GRAIN).div_ceil(64) as usize * 8];
    for grain in grains {
        bytes[grain as usize / 8] |= 1 << (grain % 8);
    }
    Arc::new(ChangedBlocks::from_bytes(Bytes(size), &bytes).expect("grains of the disk"))
}

pub(crate) fn bitmap(name: &str, changes: Arc<ChangedBlocks>) -> Bitmap {
    Bitmap::new(name.parse().unwrap(), changes)
}

/// Ranges of grains of a disk of some GiB: short ones, and such that pass several marks.
fn dirty() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let len = prop_oneof![3 => 1..9u64, 1 => 1..40_000u64];
    let edge = (0..6u64, -2..3i64).prop_map(|(gib, by)| (gib << 14).saturating_add_signed(by));
    prop::collection::vec((prop_oneof![0..80_000u64, edge], len), 0..12)
}

proptest! {
    #[test]
    fn runs_are_those_of_the_grains(
        size in 1..(5u64 << 30),
        dirty in dirty(),
        asked in prop::collection::vec((0..(5u64 << 30), 1..=u32::MAX), 1..12),
    ) {
        let grains = size.div_ceil(GRAIN);
        let is_dirty = |grain: u64| {
            grain >= grains || dirty.iter().any(|(from, len)| (*from..from + len).contains(&grain))
        };
        let map: Vec<bool> = (0..grains + (9 << 14)).map(is_dirty).collect();
        let all = (0..grains).filter(|grain| map[*grain as usize]);
        let bitmap = bitmap("b", changed(size, all));
        for (offset, len) in asked {
            let end = offset + u64::from(len);
            let mut at = offset;
            for Extent { len, kind } in bitmap.extents(offset, len) {
                prop_assert!(len > 0 && at < end);
                let until = at.saturating_add(len).min(end);
                // What lies behind the disk in its last grain is dirty too, whatever the grain is.
                let tail = size..size.next_multiple_of(GRAIN);
                let parts = [(at, until.min(size)), (at.max(size), until)];
                for (from, to) in parts.into_iter().filter(|(from, to)| from < to) {
                    for grain in from / GRAIN..to.div_ceil(GRAIN) {
                        let is = map[grain as usize] || tail.contains(&from);
                        prop_assert_eq!(kind == Change::Dirty, is, "grain {}", grain);
                    }
                }
                at = until;
            }
            prop_assert_eq!(at, end);
        }
    }
}

#[test]
fn the_runs_of_a_large_disk_are_found_without_passing_over_them() {
    // 8 TiB of which the first and the last grain are dirty. With a step for each 4 MiB of the run
    // between them, this would take up to two million of them for each question.
    let size = 8u64 << 40;
    let bitmap = bitmap("b", changed(size, [0, size / GRAIN - 1]));
    for at in (GRAIN..size - (1 << 32)).step_by(1 << 29) {
        let extent = bitmap.extents(at, u32::MAX).next().unwrap();
        assert_eq!((at + extent.len, extent.kind), (size - GRAIN, Change::Clean));
    }
}

#[test]
fn a_set_is_the_same_for_all_who_hold_it_and_has_each_name_once() {
    let bitmaps = Bitmaps::none();
    let held = bitmaps.clone();
    assert!(held.now().is_empty());
    let (one, other) = (changed(GRAIN, [0]), changed(GRAIN, []));
    let list = [("a", &one), ("b", &one), ("a", &other)];
    bitmaps.set(list.map(|(name, changes)| bitmap(name, changes.clone())).into());
    let before = held.now();
    let names: Vec<_> = before.iter().map(|bitmap| bitmap.name().as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(before[0].run_at(0), (GRAIN, Change::Dirty), "the first one counts");
    bitmaps.set(Vec::new());
    assert!(held.now().is_empty() && before.len() == 2);
}
