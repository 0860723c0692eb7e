//! What members say of a range, joined, against the definition: byte by byte.

use headgate_stripe::*;
use headgate_units::Bytes;
use proptest::prelude::*;

const UNIT: u64 = 4096;

/// What is said of each byte of the range, from its beginning on, by the definition: byte `o` of
/// the disk is in unit `o / unit`, which is on member `(o / unit) % members`, and the bytes of a
/// member come in the order of the disk.
fn by_definition(layout: &Layout, offset: u64, len: u64, said: &[Vec<Stretch<u8>>]) -> Vec<u8> {
    let of_members: Vec<Vec<u8>> = said
        .iter()
        .map(|said| {
            said.iter().flat_map(|said| std::iter::repeat_n(said.kind, said.len as usize)).collect()
        })
        .collect();
    let mut told = vec![0; said.len()];
    let mut kinds = Vec::new();
    for byte in offset..offset.saturating_add(len).min(layout.size().0) {
        let member = (byte / layout.unit().0 % u64::from(layout.members())) as usize;
        let Some(kind) = of_members[member].get(told[member]) else { break };
        told[member] += 1;
        kinds.push(*kind);
    }
    kinds
}

fn joined(layout: &Layout, offset: u64, len: u64, said: &[Vec<Stretch<u8>>]) -> Vec<Stretch<u8>> {
    let mut said: Vec<_> = said.iter().map(|said| said.iter().copied()).collect();
    layout.join(offset, len, |member| said[usize::from(member)].next()).collect()
}

fn check(layout: &Layout, offset: u64, len: u64, said: &[Vec<Stretch<u8>>]) {
    let found = joined(layout, offset, len, said);
    assert!(found.iter().all(|stretch| stretch.len > 0), "{found:?}");
    assert!(found.windows(2).all(|pair| pair[0].kind != pair[1].kind), "{found:?}");
    let bytes: Vec<u8> = found
        .iter()
        .flat_map(|found| std::iter::repeat_n(found.kind, found.len as usize))
        .collect();
    // Not by `assert_eq`: thousands of bytes say nothing to a reader.
    assert!(bytes == by_definition(layout, offset, len, said), "{layout}: {offset}+{len} {said:?}");
}

fn any_layout() -> impl Strategy<Value = Layout> {
    (0..2u32, 1..6u16, 1..24u64).prop_map(|(unit, members, blocks)| {
        Layout::new(Bytes(UNIT << unit), members, Bytes(blocks * UNIT)).unwrap()
    })
}

/// Stretches of blocks, of bytes, and of none.
fn any_said() -> impl Strategy<Value = Vec<Stretch<u8>>> {
    let len = prop_oneof![4 => (1..6u64).prop_map(|blocks| blocks * UNIT), 2 => 0..9000u64];
    prop::collection::vec((len, 0..3u8), 0..12)
        .prop_map(|said| said.into_iter().map(|(len, kind)| Stretch { len, kind }).collect())
}

proptest! {
    #[test]
    fn each_byte_is_what_its_member_says(
        layout in any_layout(),
        said in prop::collection::vec(any_said(), 5),
        ends in (0..25 * UNIT, 0..25 * UNIT),
        whole in any::<bool>(),
    ) {
        let (offset, len) = if whole { (0, layout.size().0) } else { ends };
        check(&layout, offset, len, &said);
    }

    /// Who asks for blocks gets an answer that does not depend on where a member cuts its own.
    #[test]
    fn cuts_in_a_members_answer_change_nothing(layout in any_layout(), said in any_said()) {
        let size = layout.size().0;
        let all = vec![said.clone(); 5];
        let cut: Vec<Stretch<u8>> = said
            .iter()
            .flat_map(|Stretch { len, kind }| [len / 3, len - len / 3].map(|len| Stretch { len, kind: *kind }))
            .collect();
        prop_assert_eq!(joined(&layout, 0, size, &all), joined(&layout, 0, size, &vec![cut; 5]));
    }
}

#[test]
fn a_range_of_one_kind_is_one_stretch_and_nothing_is_nothing() {
    let layout = Layout::new(Bytes::from_kib(64), 64, Bytes::from_gib(1)).unwrap();
    let hole = vec![vec![Stretch { len: u64::MAX, kind: 7 }]; 64];
    let all = Stretch { len: 1 << 30, kind: 7 };
    assert_eq!(joined(&layout, 0, u64::MAX, &hole), [all]);
    assert_eq!(joined(&layout, 5, 0, &hole), []);
    assert_eq!(joined(&layout, 1 << 30, 4096, &hole), []);
    let silent = vec![vec![]; 64];
    assert_eq!(joined(&layout, 0, 4096, &silent), []);
}

/// An answer that ends early ends what is known, also where others say more.
#[test]
fn nothing_is_told_behind_the_first_byte_that_nobody_speaks_of() {
    let layout = Layout::new(Bytes(UNIT), 2, Bytes(8 * UNIT)).unwrap();
    let said =
        [vec![Stretch { len: UNIT + 512, kind: 1 }], vec![Stretch { len: 4 * UNIT, kind: 1 }]];
    let told = [Stretch { len: 2 * UNIT + 512, kind: 1 }];
    assert_eq!(joined(&layout, 0, 8 * UNIT, &said), told);
    let mut members = said.iter().map(|said| said.iter().copied()).collect::<Vec<_>>();
    let mut join = layout.join(0, 8 * UNIT, |member| members[usize::from(member)].next());
    assert_eq!((join.next(), join.next(), join.next()), (Some(told[0]), None, None));
}
