use super::super::super::harness::{Harness, Outcome};
use super::super::tests::{
    Answer, DISK, SIMPLE, STRUCTURED, answers, request, splicing, structured, with_flags, write,
};
use super::*;
use headgate_nbd::wire::{command, command_flag};
use proptest::prelude::*;
use std::collections::HashMap;

fn fill(harness: &mut Harness) {
    let bytes = harness.shard.content.iter_mut().enumerate();
    bytes.for_each(|(at, byte)| *byte = (at % 251) as u8);
}

/// All that the disk was asked for, while everything is served in its order.
fn settle(harness: &mut Harness) -> Vec<(Op, u64, u64)> {
    let mut asked = Vec::new();
    loop {
        if !harness.shard.queue.is_empty() {
            let request = harness.complete(0, Outcome::Served);
            asked.push((request.op, request.offset, request.len));
        } else if !harness.grant_block() && !harness.read() {
            return asked;
        }
    }
}

#[test]
fn a_read_of_any_bytes_gets_them() {
    for session in [STRUCTURED, SIMPLE] {
        for (offset, len) in [(0, 1), (511, 2), (100, 300), (1, 70_000), (700, 2048), (512, 513)] {
            let mut harness = Harness::new(session, DISK, 8, &[]);
            fill(&mut harness);
            harness.send(&request(command::READ, 1, offset, len));
            settle(&mut harness);
            let expected = harness.shard.content[offset as usize..][..len as usize].to_vec();
            let got = answers(&harness.output, &HashMap::from([(1, len)]));
            assert_eq!(got, [(1, Answer::Data(expected))], "{offset}+{len}");
        }
    }
}

/// The long answer is spliced in the turn in which it ends, and nothing else happens after that.
#[test]
fn one_behind_a_long_read_of_an_image_in_memory_does_not_wait_for_more() {
    for (kind, len) in [(command::READ, 100), (command::WRITE_ZEROES, 700)] {
        let mut harness = Harness::splicing(SIMPLE, DISK, 8);
        let long = request(command::READ, 1, 0, 64 << 10);
        harness.send(&[long, request(kind, 2, 1, len)].concat());
        settle(&mut harness);
        let data = if kind == command::READ { vec![(2, len)] } else { vec![] };
        let lengths = data.into_iter().chain([(1, 64 << 10)]).collect();
        let got: Vec<u64> =
            answers(&harness.output, &lengths).into_iter().map(|(cookie, _)| cookie).collect();
        assert_eq!(got, [1, 2]);
    }
}

#[test]
fn a_write_of_a_few_bytes_reads_its_block_changes_it_and_writes_it_back() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    fill(&mut harness);
    let mut expected = harness.shard.content.clone();
    expected[1000..1024 + 1024 + 3].fill(0xee);
    let flags = command_flag::FUA;
    let data = vec![0xee; 1024 + 27];
    harness.send(&[with_flags(flags, command::WRITE, 1, 1000, data.len() as u32), data].concat());
    let fua = Op::Write(Durability::Fua);
    assert_eq!(
        settle(&mut harness),
        [
            (Op::Read, 512, 512),
            (fua, 512, 512),
            (fua, 1024, 1024),
            (Op::Read, 2048, 512),
            (fua, 2048, 512),
        ]
    );
    assert!(harness.shard.content == expected);
    assert_eq!(structured(&harness), [(1, Answer::Done)]);
    assert_eq!(harness.shard.block, None, "the block is given back");
}

#[test]
fn an_image_in_memory_takes_the_bytes_as_they_are() {
    let mut harness = splicing(8);
    fill(&mut harness);
    let mut expected = harness.shard.content.clone();
    expected[1000..1010].fill(0xee);
    expected[5000..5001].fill(0);
    let zeroes = request(command::WRITE_ZEROES, 2, 5000, 1);
    harness.send(&[write(1, 1000, &[0xee; 10]), zeroes].concat());
    assert_eq!(settle(&mut harness), [(Op::PlacedWrite, 512, 512), (Op::PlacedWrite, 4608, 512)]);
    assert!(harness.shard.content == expected);
    assert_eq!(structured(&harness), [(1, Answer::Done), (2, Answer::Done)]);
}

#[test]
fn a_discard_keeps_what_is_no_whole_block_and_a_status_tells_of_what_was_asked() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    let trim = [request(command::TRIM, 1, 100, 1300), request(command::TRIM, 2, 100, 300)].concat();
    harness.send(&trim);
    assert_eq!(settle(&mut harness), [(Op::Discard, 512, 512)]);
    harness.send(&request(command::BLOCK_STATUS, 3, 700, 1000));
    assert_eq!(settle(&mut harness), [(Op::BlockStatus, 512, 1536)]);
    harness.send(&request(command::CACHE, 4, 511, 2));
    assert_eq!(settle(&mut harness), [(Op::Cache, 0, 1024)]);
    let fast = command_flag::FAST_ZERO;
    harness.send(&with_flags(fast, command::WRITE_ZEROES, 5, 1, 1));
    assert_eq!(settle(&mut harness), []);
    let all = structured(&harness);
    let lens = |answer: &Answer| match answer {
        Answer::Status(extents) => extents.iter().map(|extent| extent.0).sum(),
        other => panic!("{other:?}"),
    };
    let mut all = all.into_iter();
    assert_eq!(all.next(), Some((2, Answer::Done)), "nothing had to be done");
    assert_eq!(all.next(), Some((1, Answer::Done)));
    assert_eq!(all.next().map(|(_, status)| lens(&status)), Some(1000u32));
    assert_eq!(all.next(), Some((4, Answer::Done)));
    assert_eq!(all.next(), Some((5, Answer::Error(95))));
}

#[test]
fn a_disk_that_fails_in_between_is_answered_for_and_the_block_is_given_back() {
    for fails in 0..2 {
        let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
        harness.send(&write(1, 10, &[1; 5]));
        assert!(harness.grant_block());
        for _ in 0..fails {
            harness.complete(0, Outcome::Served);
        }
        harness.complete(0, Outcome::Failed(IoError::Backend(5)));
        assert_eq!(harness.shard.block, None);
        harness.send(&request(command::READ, 2, 0, 512));
        settle(&mut harness);
        let expected = [(1, Answer::Error(5)), (2, Answer::Data(vec![0; 512]))];
        assert_eq!(structured(&harness), expected);
    }
}

#[test]
fn it_is_served_after_what_was_sent_before_and_before_what_was_sent_after() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    let stream =
        [write(1, 0, &[1; 512]), write(2, 510, &[2; 4]), write(3, 512, &[3; 512])].concat();
    harness.send(&stream);
    assert_eq!(harness.shard.queue.len(), 1, "the first alone");
    assert!(!harness.grant_block(), "it asks for nothing before");
    settle(&mut harness);
    assert_eq!(harness.shard.content[508..516], [1, 1, 2, 2, 3, 3, 3, 3]);
}

#[derive(Clone, Debug)]
struct Sent {
    kind: u16,
    offset: u64,
    len: u32,
    fua: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let len = prop_oneof![6 => 1..2_000u32, 2 => Just(512u32), 1 => 60_000..70_000u32];
    let kind = prop_oneof![3 => Just(command::WRITE), 2 => Just(command::READ), 1 => Just(command::WRITE_ZEROES)];
    (kind, 0..4_000u64, len, any::<bool>()).prop_map(|(kind, offset, len, fua)| Sent {
        kind,
        offset,
        len,
        fua,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the client sends in whatever cuts, and whatever others write meanwhile to bytes
    /// that are not this client's: both are there, and every read gets what there is.
    #[test]
    fn bytes_of_others_in_the_same_block_are_kept(
        script in prop::collection::vec(sent(), 1..12),
        steps in prop::collection::vec((0..4u8, any::<u16>()), 1..80),
        in_memory in any::<bool>(),
        depth in 1..4usize,
    ) {
        let mut harness =
            if in_memory { splicing(depth) } else { Harness::new(STRUCTURED, DISK, depth, &[]) };
        let mut model = harness.shard.content.clone();
        // Every round sends, serves and grants something, so that the run ends.
        let mut steps = steps.iter().chain(&[(0, 800), (1, 0), (2, 0)]).cycle();
        for (i, one) in script.iter().enumerate() {
            let Sent { kind, offset, len, fua } = *one;
            let range = offset as usize..offset as usize + len as usize;
            let data: Vec<u8> = (0..len).map(|byte| (byte % 255) as u8 ^ i as u8).collect();
            let flags = if fua { command_flag::FUA } else { 0 };
            let mut stream = with_flags(flags, kind, i as u64, offset, len);
            if kind == command::WRITE {
                stream.extend(&data);
                model[range.clone()].copy_from_slice(&data);
            } else if kind == command::WRITE_ZEROES {
                model[range.clone()].fill(0);
            }
            let (mut done, mut idle) = (0, 0);
            while idle < 3 {
                let &(step, value) = steps.next().unwrap();
                let moved = match step {
                    0 => {
                        let end = stream.len().min(done + 1 + usize::from(value) % 900);
                        let took = harness.send_once(&stream[done..end]);
                        done += took;
                        took > 0
                    }
                    1 if !harness.shard.queue.is_empty() => {
                        harness.complete(usize::from(value) % harness.shard.queue.len(), Outcome::Served);
                        true
                    }
                    2 => harness.grant_block(),
                    _ => {
                        // Another client writes a byte: not into a block that is the port's, and
                        // not where a request for whole blocks is under way.
                        let at = usize::from(value) % 80_000;
                        let block = at as u64 / 512 * 512;
                        let own = harness.shard.block == Some(block);
                        let busy = harness.shard.queue.iter().any(|queued| {
                            let (start, len) = (queued.request.offset, queued.request.len);
                            !matches!(queued.request.op, Op::Read) && start <= at as u64 && (at as u64) < start + len
                        });
                        if !range.contains(&at) && !own && !busy {
                            harness.shard.content[at] = value as u8;
                            model[at] = value as u8;
                        }
                        false
                    }
                };
                let more = harness.read();
                let stuck = !moved && !more;
                let quiet = done == stream.len() && harness.shard.queue.is_empty();
                idle = if stuck && quiet && !harness.grant_block() { idle + 1 } else { 0 };
            }
            prop_assert!(!harness.shard.closed && harness.shard.block.is_none());
            let got = structured(&harness);
            prop_assert_eq!(got.len(), i + 1);
            let expected = match kind {
                command::READ => Answer::Data(model[range].to_vec()),
                _ => Answer::Done,
            };
            prop_assert_eq!(&got[i].1, &expected, "request {}: {:?}", i, one);
            prop_assert!(harness.shard.content == model, "request {i}: {one:?}");
        }
    }
}
