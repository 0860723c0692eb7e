//! Whatever is sent, in whatever pieces and order it is served: each request is answered once, and
//! truly.

use super::*;
use proptest::prelude::*;

fn any_request() -> impl Strategy<Value = (u16, u64, u32)> {
    let len = prop_oneof![
        4 => Just(512u32), 4 => Just(4096), 2 => Just(33 << 10), 1 => Just(128 << 10), 1 => (0..20u32).prop_map(|blocks| blocks * 512)
    ];
    let block = prop_oneof![9 => 0..40u64, 1 => 2040..2060u64];
    (prop_oneof![0..2u16, 3..9u16], block.prop_map(|block| block * 512), len)
}

/// What the request at `index` of a script writes.
fn payload(index: usize, len: u32) -> Vec<u8> {
    (0..len).map(|byte| (byte % 255) as u8 ^ index as u8).collect()
}

/// The disk serves a request. What a write leaves must be what a client wrote; what a read finds is
/// kept.
fn serve(
    harness: &mut Harness,
    index: usize,
    script: &[(u16, u64, u32)],
    reads: &mut Vec<(u64, u32, Vec<u8>)>,
) {
    let request = harness.complete(index, Outcome::Served);
    let (start, len) = (request.offset as usize, request.len as u32);
    let held = &harness.shard.content[start..start + request.len as usize];
    match request.op {
        Op::Read => reads.push((request.offset, len, held.to_vec())),
        Op::Write(_) => {
            let mut sent = script
                .iter()
                .enumerate()
                .filter(|(_, s)| **s == (command::WRITE, request.offset, len));
            assert!(
                sent.any(|(i, _)| held == payload(i, len)),
                "a write of bytes that nobody sent"
            );
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Spliced answers and others keep their places and their bytes, whatever the order of the disk
    /// and of the client's reading.
    #[test]
    fn lent_answers_are_true(
        script in prop::collection::vec((0..1000u64, 1..400u32), 1..40),
        depth in 1..12usize,
        steps in prop::collection::vec((0..3u8, 0..64usize), 1..60),
    ) {
        let mut harness = splicing(depth);
        let mut reads = HashMap::new();
        let mut stream = Vec::new();
        for (i, &(block, blocks)) in script.iter().enumerate() {
            stream.extend(request(command::READ, i as u64, block * 512, blocks * 512));
            reads.insert(i as u64, (block as usize * 512, blocks as usize * 512));
        }
        let mut sent = 0;
        for &(step, size) in steps.iter().chain(&[(0, 0), (1, 0), (2, 0)]).cycle().take(20_000) {
            match step {
                0 => sent += harness.send_once(&stream[sent..]),
                1 if !harness.shard.queue.is_empty() => {
                    harness.complete(size % harness.shard.queue.len(), Outcome::Served);
                }
                _ => while harness.read() {},
            }
        }
        prop_assert_eq!((sent, harness.shard.closed), (stream.len(), false));
        let answers = structured(&harness);
        prop_assert_eq!(answers.len(), script.len());
        for (cookie, answer) in answers {
            let (start, len) = reads[&cookie];
            prop_assert!(answer == Answer::Data(harness.shard.content[start..start + len].to_vec()), "{cookie}");
        }
    }

    /// Whatever the cuts in the stream, the depth of the disk, the order of its answers and the
    /// client's reading: every request is answered exactly once, with what the disk held when it
    /// served it.
    #[test]
    fn every_request_is_answered_once_and_truly(
        script in prop::collection::vec(any_request(), 1..30),
        session in prop_oneof![Just(STRUCTURED), Just(SIMPLE)],
        depth in 1..12usize,
        steps in prop::collection::vec((0..4u8, 1..60_000usize), 1..60),
    ) {
        let mut stream = Vec::new();
        let mut reads = HashMap::new();
        for (i, &(kind, offset, len)) in script.iter().enumerate() {
            let cookie = i as u64;
            match kind {
                command::WRITE => {
                    stream.extend(write(cookie, offset, &payload(i, len)));
                }
                command::FLUSH => stream.extend(request(kind, cookie, 0, 0)),
                _ => stream.extend(request(kind, cookie, offset, len)),
            }
            if kind == command::READ {
                reads.insert(cookie, len);
            }
        }
        let mut harness = Harness::new(session, DISK, depth, &[]);
        let mut sent = 0;
        let mut served_reads: Vec<(u64, u32, Vec<u8>)> = Vec::new();
        // Every round sends something and serves something, so that the run ends.
        let mut steps = steps.iter().chain(&[(0, 60_000), (1, 0)]).cycle();
        let mut rounds = 0;
        loop {
            rounds += 1;
            prop_assert!(rounds < 100_000, "the port stands still");
            let &(step, size) = steps.next().unwrap();
            match step {
                0 => sent += harness.send_once(&stream[sent..(sent + size).min(stream.len())]),
                1 if !harness.shard.queue.is_empty() => {
                    let index = size % harness.shard.queue.len();
                    serve(&mut harness, index, &script, &mut served_reads);
                }
                2 => {
                    harness.read();
                }
                3 => harness.set_depth(size % 12),
                _ => {}
            }
            let idle = harness.shard.queue.is_empty() && !harness.read();
            if sent == stream.len() && idle {
                break;
            }
            if idle {
                sent += harness.send_once(&stream[sent..]);
            } else if !harness.shard.queue.is_empty() && sent == stream.len() && step != 1 {
                serve(&mut harness, 0, &script, &mut served_reads);
            }
        }
        prop_assert!(!harness.shard.closed);
        let mut answers = answers(&harness.output, &reads);
        answers.sort_by_key(|(cookie, _)| *cookie);
        prop_assert_eq!(answers.len(), script.len());
        for (i, (&(kind, offset, len), (cookie, answer))) in script.iter().zip(&answers).enumerate() {
            prop_assert_eq!(*cookie, i as u64);
            let fits = len > 0;
            let inside = offset + u64::from(len) <= DISK as u64;
            let known = kind < 7 || (kind == 7 && session.contexts == Contexts::BASE_ALLOCATION);
            match answer {
                _ if kind == command::FLUSH => prop_assert_eq!(answer, &Answer::Done),
                _ if !known || !fits => prop_assert_eq!(answer, &Answer::Error(22)),
                _ if !inside => {
                    let code = if matches!(kind, 1 | 6) { 28 } else { 22 };
                    prop_assert_eq!(answer, &Answer::Error(code));
                }
                Answer::Data(data) => {
                    prop_assert_eq!(kind, command::READ);
                    let served = served_reads.iter().position(|r| r.0 == offset && r.1 == len && &r.2 == data);
                    prop_assert!(served.is_some(), "read {i} got bytes that the disk never held");
                    served_reads.swap_remove(served.unwrap());
                }
                Answer::Status(extents) => {
                    prop_assert_eq!(kind, command::BLOCK_STATUS);
                    prop_assert_eq!(extents.iter().map(|e| e.0).sum::<u32>(), len);
                }
                Answer::Done => prop_assert!(matches!(kind, 1 | 4 | 5 | 6)),
                Answer::Error(code) => prop_assert!(false, "request {i}: error {code}"),
            }
        }
    }
}
