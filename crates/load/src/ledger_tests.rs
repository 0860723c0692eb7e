use super::*;
use crate::link::Durability::{AtFlush, Fua};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn ledger(blocks: u64) -> Ledger {
    Ledger::new(4096, 0..blocks * 4096).unwrap()
}

fn write(ledger: &mut Ledger, block: u64) {
    assert!(ledger.begin_write(block..block + 1, Fill::Pattern));
    ledger.on_written(block..block + 1, AtFlush);
}

fn flush(ledger: &mut Ledger) {
    let ticket = ledger.begin_flush();
    ledger.on_flushed(ticket);
}

fn whole(n: u32) -> Content {
    Content::Whole(Generation(n))
}

fn kind_of(ledger: &mut Ledger, found: Content) -> Option<FaultKind> {
    ledger.judge(Block(0), found).err().map(|fault| fault.kind)
}

#[test]
fn a_flushed_write_may_never_be_lost() {
    let mut l = ledger(4);
    write(&mut l, 0);
    flush(&mut l);
    write(&mut l, 0);
    l.on_crash();
    assert_eq!(kind_of(&mut l, Content::Zeroes), Some(FaultKind::Lost));
    assert_eq!(kind_of(&mut l, Content::Foreign), Some(FaultKind::Lost));
    assert_eq!(kind_of(&mut l, whole(0)), Some(FaultKind::Lost));
    assert_eq!(kind_of(&mut l, whole(3)), Some(FaultKind::NeverSent));
    assert_eq!(kind_of(&mut l, whole(1)), None, "flushed");
    assert_eq!(kind_of(&mut l, whole(2)), None, "acknowledged, and perhaps kept");
    assert_eq!(
        kind_of(&mut l, whole(1)),
        Some(FaultKind::Stale),
        "what was read once is not taken back by a living server"
    );
}

#[test]
fn a_living_server_keeps_what_it_acknowledged() {
    let mut l = ledger(4);
    write(&mut l, 0);
    write(&mut l, 0);
    assert_eq!(kind_of(&mut l, whole(1)), Some(FaultKind::Stale));
    assert_eq!(kind_of(&mut l, Content::Zeroes), Some(FaultKind::Stale));
    assert_eq!(kind_of(&mut l, whole(2)), None);
    l.on_crash();
    assert_eq!(kind_of(&mut l, Content::Zeroes), None, "nothing was flushed");
}

#[test]
fn a_flush_covers_what_was_acknowledged_before_it_was_sent() {
    let mut l = ledger(4);
    write(&mut l, 0);
    let ticket = l.begin_flush();
    write(&mut l, 0);
    l.on_flushed(ticket);
    l.on_crash();
    assert_eq!(kind_of(&mut l, Content::Zeroes), Some(FaultKind::Lost));
    assert_eq!(kind_of(&mut l, whole(1)), None, "the second write came after the flush");
}

#[test]
fn a_flush_that_was_not_acknowledged_covers_nothing() {
    let mut l = ledger(4);
    write(&mut l, 0);
    let ticket = l.begin_flush();
    l.on_crash();
    assert_eq!(kind_of(&mut l, Content::Zeroes), None);
    write(&mut l, 1);
    l.on_flushed(ticket);
    assert_eq!(l.expected(Block(1)).durable, Generation(0));
}

#[test]
fn forced_writes_are_durable_at_once() {
    let mut l = ledger(4);
    assert!(l.begin_write(0..2, Fill::Pattern));
    l.on_written(0..2, Fua);
    l.on_crash();
    assert_eq!(kind_of(&mut l, Content::Zeroes), Some(FaultKind::Lost));
}

#[test]
fn a_write_in_flight_may_appear_or_not_until_a_newer_one_is_acknowledged() {
    let mut l = ledger(4);
    write(&mut l, 0);
    flush(&mut l);
    assert!(l.begin_write(0..1, Fill::Pattern));
    l.on_write_unknown(0..1);
    l.on_crash();
    assert_eq!(kind_of(&mut l, whole(1)), None);
    assert_eq!(kind_of(&mut l, whole(2)), None, "it may still arrive");
    write(&mut l, 0);
    assert_eq!(kind_of(&mut l, whole(2)), Some(FaultKind::Stale), "now it may not");
    assert_eq!(kind_of(&mut l, whole(3)), None);
}

#[test]
fn torn_misplaced_and_damaged_blocks_are_never_legal() {
    let mut l = ledger(4);
    let (first, then) = (Generation(1), Generation(2));
    assert_eq!(kind_of(&mut l, Content::Torn { first, then, at: 512 }), Some(FaultKind::Torn));
    assert_eq!(kind_of(&mut l, Content::Broken { first, at: 9 }), Some(FaultKind::Damaged));
    let misplaced = Content::Misplaced { belongs: 4096, generation: first, at: 0 };
    assert_eq!(
        kind_of(&mut l, misplaced),
        Some(FaultKind::Misplaced),
        "not even where nothing was written"
    );
    assert_eq!(kind_of(&mut l, Content::Foreign), None);
}

#[test]
fn zeroes_written_on_purpose_are_a_generation() {
    let mut l = ledger(4);
    write(&mut l, 0);
    assert!(l.begin_write(0..1, Fill::Zeroes));
    l.on_written(0..1, AtFlush);
    assert_eq!(kind_of(&mut l, Content::Zeroes), None);
    assert_eq!(kind_of(&mut l, whole(1)), Some(FaultKind::Stale));
    assert_eq!(kind_of(&mut l, whole(2)), Some(FaultKind::Stale), "generation 2 has no pattern");
    flush(&mut l);
    write(&mut l, 0);
    assert_eq!(
        kind_of(&mut l, Content::Zeroes),
        Some(FaultKind::Stale),
        "and no legal one once it was overwritten"
    );
}

#[test]
fn blocks_in_use_are_not_given_away() {
    let mut l = ledger(8);
    assert!(l.begin_write(0..2, Fill::Pattern));
    assert!(!l.begin_read(1..3) && !l.begin_write(1..2, Fill::Pattern));
    assert!(l.begin_read(2..4) && l.begin_read(3..5));
    assert!(!l.begin_write(3..4, Fill::Pattern));
    l.end_read(2..4);
    assert!(!l.begin_write(3..4, Fill::Pattern));
    l.end_read(3..5);
    assert!(l.begin_write(3..4, Fill::Pattern));
    assert_eq!(l.issued(Block(3)), Generation(1));
}

#[test]
fn only_whole_blocks_inside_the_span_are_judged() {
    let l = Ledger::new(4096, 1000..40_960).unwrap();
    assert_eq!(l.blocks_of(4096, 8192), Some(1..3));
    for (offset, len) in [(0, 4096), (4096, 100), (4097, 4096), (36_864, 8192), (4096, 0)] {
        assert_eq!(l.blocks_of(offset, len), None, "{offset}+{len}");
    }
    assert!(Ledger::new(4096, 1..4097).is_err());
    assert!(Ledger::new(512, 0..u64::MAX).is_err());
}

/// A disk whose crashes keep any legal state, written from the rules and not from the ledger's
/// counters.
#[derive(Clone, Debug)]
enum Step {
    Write(u64),
    Fua(u64),
    Lose(u64),
    Flush,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..3).prop_map(Step::Write),
        1 => (0u64..3).prop_map(Step::Fua),
        1 => (0u64..3).prop_map(Step::Lose),
        2 => Just(Step::Flush),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    /// For each block the oracle keeps the set of generations that an honest disk could hold; the
    /// ledger accepts exactly those.
    #[test]
    fn accepts_what_an_honest_disk_may_hold_and_nothing_else(steps in proptest::collection::vec(step(), 1..60)) {
        let mut l = ledger(3);
        let mut oracle: Vec<BTreeSet<u32>> = vec![BTreeSet::from([0]); 3];
        let mut kept: Vec<BTreeSet<u32>> = oracle.clone();
        let mut next = [0u32; 3];
        for step in steps {
            match step {
                Step::Write(b) | Step::Fua(b) => {
                    let i = b as usize;
                    next[i] += 1;
                    prop_assert!(l.begin_write(b..b + 1, Fill::Pattern));
                    let fua = matches!(step, Step::Fua(_));
                    l.on_written(b..b + 1, if fua { Fua } else { AtFlush });
                    oracle[i] = BTreeSet::from([next[i]]);
                    if fua { kept[i] = BTreeSet::from([next[i]]) } else { kept[i].insert(next[i]); }
                }
                Step::Lose(b) => {
                    let i = b as usize;
                    next[i] += 1;
                    prop_assert!(l.begin_write(b..b + 1, Fill::Pattern));
                    l.on_write_unknown(b..b + 1);
                    oracle[i].insert(next[i]);
                    kept[i].insert(next[i]);
                }
                Step::Flush => {
                    flush(&mut l);
                    // What was acknowledged last, and what is still in flight behind it.
                    let newest: Vec<u32> = oracle.iter().map(|s| *s.first().unwrap()).collect();
                    for (kept, newest) in kept.iter_mut().zip(newest) {
                        kept.retain(|g| *g >= newest);
                    }
                }
                Step::Crash => {
                    l.on_crash();
                    oracle = kept.clone();
                }
            }
            for block in 0..3u64 {
                for g in 0..=next[block as usize] + 1 {
                    let legal = oracle[block as usize].contains(&g);
                    // Judged on a copy: what is read becomes visible.
                    let judged = l.clone().judge(Block(block), whole(g)).is_ok();
                    prop_assert_eq!(judged, legal, "block {} generation {} of {:?}", block, g, oracle);
                }
            }
        }
    }
}
