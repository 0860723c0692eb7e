//! Layouts as disks have them, against the definition: small ones block by block, large ones at
//! random. The module's own tests look at every byte of tiny ones.

use headgate_stripe::*;
use headgate_units::Bytes;
use proptest::prelude::*;

const BLOCK: u64 = 4096;

fn layout(unit: u64, members: u16, size: u64) -> Layout {
    Layout::new(Bytes(unit), members, Bytes(size)).unwrap()
}

/// Where a byte of the disk lies, by the definition, in numbers that cannot overflow.
fn home(layout: &Layout, byte: u64) -> (u16, u128) {
    let [byte, unit, members] = [byte, layout.unit().0, layout.members().into()].map(u128::from);
    let strip = byte / unit;
    ((strip % members) as u16, (1 << 20) + strip / members * unit + byte % unit)
}

/// Bytes at which something may go wrong: at both ends of a range, and around the ends of units.
fn landmarks(layout: &Layout, offset: u64, len: u64) -> Vec<u64> {
    let unit = layout.unit().0;
    let end = offset + len;
    let row = unit * u64::from(layout.members());
    let near = [offset, end - 1, offset + len / 2, offset + len / 3];
    let around = near.into_iter().flat_map(|at| {
        let (first, of_row) = (at / unit * unit, at / row * row);
        [at, first, first + unit, first.saturating_sub(unit), of_row, of_row + row]
    });
    let close = around.flat_map(|at| [at.saturating_sub(1), at, at + 1]);
    close.filter(|at| (offset..end).contains(at)).collect()
}

/// What holds for a range that lies on the disk.
fn check_range(layout: &Layout, offset: u64, len: u64) {
    let parts: Vec<Part> = layout.parts(offset, len).collect();
    let told = || format!("{layout}: {offset}+{len}: {parts:?}");
    assert!(parts.is_sorted_by(|a, b| a.member < b.member), "{}", told());
    assert!(parts.iter().all(|part| part.len > 0), "{}", told());
    assert!(parts.iter().all(|part| part.member < layout.members()), "{}", told());
    assert_eq!(parts.iter().map(|part| part.len).sum::<u64>(), len, "{}", told());
    for part in &parts {
        let end = part.offset.checked_add(part.len);
        assert!(part.offset >= 1 << 20, "{}", told());
        assert!(end.is_some_and(|end| end <= layout.member_size().0), "{}", told());
        // Both ends are bytes of the range, and what is beyond them is not.
        let inside = |at| {
            layout.disk_offset(part.member, at).is_some_and(|at| at >= offset && at - offset < len)
        };
        assert!(inside(part.offset) && inside(part.offset + part.len - 1), "{}", told());
        assert!(!inside(part.offset - 1) && !inside(part.offset + part.len), "{}", told());
    }
    if len == 0 {
        return;
    }
    for byte in landmarks(layout, offset, len) {
        let (member, at) = home(layout, byte);
        let holds = |part: &&Part| {
            let end = u128::from(part.offset) + u128::from(part.len);
            part.member == member && u128::from(part.offset) <= at && at < end
        };
        assert_eq!(parts.iter().filter(holds).count(), 1, "{byte}: {}", told());
        assert_eq!(layout.disk_offset(member, at as u64), Some(byte), "{}", told());
    }
}

/// What holds for the runs of a range. Looks at each.
fn check_runs(layout: &Layout, offset: u64, len: u64) {
    let parts: Vec<Part> = layout.parts(offset, len).collect();
    // How far each member's part has been found.
    let mut found = vec![0; layout.members().into()];
    let mut at = 0;
    for run in layout.runs(offset, len) {
        assert_eq!(run.at, at, "{layout}: {offset}+{len}");
        let (first, last) = (home(layout, offset + at), home(layout, offset + at + run.len - 1));
        assert_eq!(first.0, run.member, "{layout}: {offset}+{len}: {run:?}");
        assert_eq!(last, (run.member, first.1 + u128::from(run.len) - 1), "{layout}: {run:?}");
        let part = parts.iter().find(|part| part.member == run.member).unwrap();
        let done = &mut found[usize::from(run.member)];
        assert_eq!(u128::from(part.offset + *done), first.1, "{layout}: {offset}+{len}: {run:?}");
        *done += run.len;
        at += run.len;
    }
    assert_eq!(at, len, "{layout}: {offset}+{len}");
    for part in &parts {
        assert_eq!(found[usize::from(part.member)], part.len, "{layout}: {offset}+{len}");
    }
}

#[test]
fn small_disks_at_every_range_of_blocks() {
    for (unit, members) in (0..3).flat_map(|unit| (1..=5).map(move |members| (unit, members))) {
        let unit = BLOCK << unit;
        for blocks in (1..=12).chain([u64::from(members) * unit / BLOCK * 2 + 1]) {
            let layout = layout(unit, members, blocks * BLOCK);
            for begin in 0..=blocks {
                for end in begin..=blocks {
                    check_range(&layout, begin * BLOCK, (end - begin) * BLOCK);
                    check_runs(&layout, begin * BLOCK, (end - begin) * BLOCK);
                }
            }
        }
    }
}

/// Clients that ask for no block size send requests that begin and end anywhere.
#[test]
fn ranges_that_begin_and_end_a_byte_beside_a_block() {
    let layout = layout(2 * BLOCK, 3, 14 * BLOCK);
    let ends = || {
        let near = (0..=14).flat_map(|block| [-1i64, 0, 1, 17].map(|by| (block * 4096) + by));
        near.filter_map(|at| u64::try_from(at).ok()).filter(|at| *at <= 14 * BLOCK)
    };
    for (begin, end) in ends().flat_map(|begin| ends().map(move |end| (begin, end))) {
        if begin <= end {
            check_range(&layout, begin, end - begin);
            check_runs(&layout, begin, end - begin);
        }
    }
}

#[test]
fn one_member_is_the_disk_behind_a_label() {
    let layout = layout(UNIT_MIN.0, 1, Bytes::from_gib(1).0);
    let parts: Vec<Part> = layout.parts(5, 1 << 29).collect();
    assert_eq!(parts, [Part { member: 0, offset: DATA_AT.0 + 5, len: 1 << 29 }]);
    assert_eq!(layout.member_size(), Bytes(Bytes::from_gib(1).0 + DATA_AT.0));
}

#[test]
fn a_request_within_a_unit_goes_to_one_member() {
    let layout = layout(Bytes::from_kib(64).0, MEMBERS_MAX, Bytes::from_gib(1).0);
    // The last unit of a row, and its last byte.
    let unit = Bytes::from_kib(64).0;
    let parts: Vec<Part> = layout.parts(127 * unit, unit).collect();
    assert_eq!(parts, [Part { member: 63, offset: DATA_AT.0 + unit, len: unit }]);
    let parts: Vec<Part> = layout.parts(128 * unit - 1, 2).collect();
    let last = Part { member: 63, offset: DATA_AT.0 + 2 * unit - 1, len: 1 };
    assert_eq!(parts, [Part { member: 0, offset: DATA_AT.0 + 2 * unit, len: 1 }, last]);
}

#[test]
fn the_largest_disks_overflow_nothing() {
    for unit in [UNIT_MIN, UNIT_MAX] {
        for members in [1, 2, 3, 63, MEMBERS_MAX] {
            for size in [SIZE_MAX.0, SIZE_MAX.0 - SIZE_STEP.0] {
                let layout = layout(unit.0, members, size);
                assert!(layout.member_size().0 < 1 << 63, "{layout}");
                check_range(&layout, 0, size);
                check_range(&layout, size - 1, 1);
                check_range(&layout, size / 3, size / 2);
                check_runs(&layout, size - 3 * unit.0 - 1, 3 * unit.0 + 1);
                assert!(layout.parts(1, u64::MAX).eq(layout.parts(1, size - 1)), "{layout}");
                assert!(layout.runs(size - 9, u64::MAX).eq(layout.runs(size - 9, 9)), "{layout}");
            }
        }
    }
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    let good = (Bytes::from_kib(64), 3, Bytes::from_gib(1));
    for unit in [0, 1, 2048, 4095, 4097, 12_288, (64 << 20) + 1, 128 << 20, 1 << 63, u64::MAX] {
        let error = LayoutError::Unit(Bytes(unit));
        assert_eq!(Layout::new(Bytes(unit), good.1, good.2), Err(error));
    }
    for members in [0, 65, u16::MAX] {
        assert_eq!(Layout::new(good.0, members, good.2), Err(LayoutError::Members(members)));
    }
    for size in [0, 1, 512, 4095, 4097, SIZE_MAX.0 + 4096, 1 << 63, u64::MAX] {
        assert_eq!(Layout::new(good.0, good.1, Bytes(size)), Err(LayoutError::Size(Bytes(size))));
    }
    for unit in (12..=26).map(|power| Bytes(1 << power)) {
        for (members, size) in [(1, SIZE_STEP), (MEMBERS_MAX, SIZE_MAX)] {
            let layout = Layout::new(unit, members, size).unwrap();
            assert_eq!((layout.unit(), layout.members(), layout.size()), (unit, members, size));
        }
    }
}

#[test]
fn messages_say_what_was_given_and_what_is_expected() {
    for (error, message) in [
        (
            LayoutError::Unit(Bytes(5000)),
            "a unit of 5000 bytes: expected a power of two from 4 KiB to 64 MiB",
        ),
        (LayoutError::Members(65), "65 members: expected 1 to 64"),
        (
            LayoutError::Size(Bytes(4097)),
            "a disk of 4097 bytes: expected a multiple of 4096 from 4 KiB to 4 EiB",
        ),
    ] {
        assert_eq!(error.to_string(), message);
    }
}

/// Any layout. Small disks are as likely as large ones.
fn any_layout() -> impl Strategy<Value = Layout> {
    let bits = SIZE_MAX.0.ilog2() - SIZE_STEP.0.ilog2();
    (12..=26u32, 1..=MEMBERS_MAX, 0..=bits, any::<u64>()).prop_map(|(unit, members, bits, any)| {
        let steps = (1 << bits) - any % (1 << bits);
        layout(1 << unit, members, steps * SIZE_STEP.0)
    })
}

/// A layout, and a range of its disk that is of `units` at most. Short ranges are as likely as long
/// ones, and one of four ends where the disk does.
fn any_range(units: u64) -> impl Strategy<Value = (Layout, u64, u64)> {
    (any_layout(), any::<u64>(), 0..=62u32, any::<u64>(), 0..4).prop_map(
        move |(layout, offset, bits, len, end)| {
            let size = layout.size().0;
            let longest = layout.unit().0.saturating_mul(units).min(size);
            let len = (len % (1 << bits)).min(longest);
            let last = size - len;
            (layout, if end == 0 { last } else { offset % (last + 1) }, len)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ranges_of_any_layout((layout, offset, len) in any_range(u64::MAX)) {
        check_range(&layout, offset, len);
    }

    #[test]
    fn runs_of_any_layout((layout, offset, len) in any_range(300)) {
        check_runs(&layout, offset, len);
    }

    /// Ranges and offsets that nobody checked.
    #[test]
    fn nothing_is_beyond_the_disk(
        layout in any_layout(), offset in any::<u64>(), len in any::<u64>(), member in any::<u16>(),
    ) {
        let size = layout.size().0;
        let on_disk = len.min(size.saturating_sub(offset));
        prop_assert!(layout.parts(offset, len).eq(layout.parts(offset, on_disk)));
        prop_assert_eq!(layout.parts(offset, len).map(|part| part.len).sum::<u64>(), on_disk);
        for member in [member, member % layout.members()] {
            if let Some(byte) = layout.disk_offset(member, offset) {
                prop_assert!(byte < size);
                prop_assert_eq!(home(&layout, byte), (member, u128::from(offset)));
            }
        }
    }

    #[test]
    fn the_least_size_of_exports_is_least(layout in any_layout()) {
        let ends = layout.parts(0, layout.size().0).map(|part| part.offset + part.len);
        let end = ends.max().unwrap();
        let least = layout.member_size().0;
        prop_assert!(end <= least && least - end < layout.unit().0);
        // Nothing of the disk is behind it, and something of it is in the last unit.
        for member in 0..layout.members() {
            prop_assert_eq!(layout.disk_offset(member, least), None);
        }
        prop_assert!(layout.disk_offset(0, least - layout.unit().0).is_some());
    }
}
