use super::*;
use proptest::prelude::*;

const DATA: ExtentKind = ExtentKind::Data;
const HOLE: ExtentKind = ExtentKind::Hole;
const MANY: ExtentCount = ExtentCount::Many;

fn status(len: u32, extents: &[(u64, ExtentKind)], most: ExtentCount) -> Vec<(u32, u32)> {
    let extents = extents.iter().map(|&(len, kind)| Extent { len, kind });
    let mut out = vec![0xaa; 3];
    let one = Contexts::BASE_ALLOCATION;
    let request = StatusRequest { cookie: 7, contexts: one, len, extents: most };
    block_status(&mut out, request, ContextId::BASE_ALLOCATION, extents);
    let out = &out[3..];
    assert_eq!(out[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5]);
    assert_eq!(u32::from_be_bytes(out[16..20].try_into().unwrap()) as usize, out.len() - 20);
    assert_eq!(out[20..24], 1u32.to_be_bytes());
    let word = |b: &[u8]| u32::from_be_bytes(b.try_into().unwrap());
    out[24..].chunks(8).map(|d| (word(&d[..4]), word(&d[4..]))).collect()
}

#[test]
fn simple_answers_are_sixteen_bytes() {
    let mut out = Vec::new();
    done(&mut out, 0x1122_3344_5566_7788);
    let expected =
        [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    assert_eq!(out, expected);
    out.clear();
    error(&mut out, Replies::Simple, 1, NbdError::NoSpace);
    assert_eq!(out[4..8], 28u32.to_be_bytes());
    assert_eq!(out.len(), 16);
}

#[test]
fn a_structured_read_names_its_offset_and_length() {
    let mut out = Vec::new();
    data(&mut out, Replies::Structured, 9, 0x1000, 4096);
    assert_eq!(out.len(), 28);
    assert_eq!(out[4..8], [0, 1, 0, 1]);
    assert_eq!(out[16..20], (4096u32 + 8).to_be_bytes());
    assert_eq!(out[20..28], 0x1000u64.to_be_bytes());
}

#[test]
fn a_structured_error_explains_itself() {
    let all = [
        NbdError::Io,
        NbdError::Invalid,
        NbdError::NoSpace,
        NbdError::Overflow,
        NbdError::NotSupported,
    ];
    for what in all {
        let mut out = Vec::new();
        error(&mut out, Replies::Structured, 9, what);
        let message = usize::from(u16::from_be_bytes([out[24], out[25]]));
        assert_eq!(out.len(), 26 + message);
        assert_eq!(&out[26..], what.message().as_bytes());
        assert!(out.len() <= MAX_REPLY);
    }
}

#[test]
fn block_status_merges_neighbours_and_stays_in_range() {
    assert_eq!(status(100, &[(40, DATA), (20, DATA), (80, HOLE)], MANY), [(60, 0), (40, 3)]);
    assert_eq!(status(100, &[(40, HOLE), (60, DATA)], ExtentCount::One), [(40, 3)]);
    assert_eq!(status(u32::MAX, &[(1 << 40, HOLE)], MANY), [(u32::MAX, 3)]);
    assert_eq!(status(100, &[(30, HOLE)], MANY), [(30, 3)]);
}

#[test]
fn block_status_without_knowledge_is_data() {
    assert_eq!(status(100, &[], MANY), [(100, 0)]);
    assert_eq!(status(100, &[(0, HOLE)], MANY), [(100, 0)]);
}

#[test]
fn block_status_is_bounded() {
    let many: Vec<_> = (0..5000).map(|i| (1, if i % 2 == 0 { DATA } else { HOLE })).collect();
    assert_eq!(status(5000, &many, MANY).len(), MAX_EXTENTS);
}

/// A chunk of a reply: flags, context, and extents by length and state.
type Chunk = (u16, u32, Vec<(u32, u32)>);

/// Takes a reply apart, by the layout in the specification.
fn chunks(mut bytes: &[u8]) -> Vec<Chunk> {
    fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
        let (taken, rest) = bytes.split_first_chunk().expect("the reply is whole");
        *bytes = rest;
        *taken
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(u32::from_be_bytes(take(&mut bytes)), 0x668e_33ef);
        let flags = u16::from_be_bytes(take(&mut bytes));
        assert_eq!(u16::from_be_bytes(take(&mut bytes)), 5);
        assert_eq!(u64::from_be_bytes(take(&mut bytes)), 0xabcd);
        let payload = u32::from_be_bytes(take(&mut bytes));
        let context = u32::from_be_bytes(take(&mut bytes));
        assert!(payload >= 12 && (payload - 4).is_multiple_of(8), "{payload}");
        let extents = (0..(payload - 4) / 8)
            .map(|_| (u32::from_be_bytes(take(&mut bytes)), u32::from_be_bytes(take(&mut bytes))))
            .collect();
        all.push((flags, context, extents));
    }
    all
}

/// Blocks of one context: their states, a byte each.
fn blocks() -> impl Strategy<Value = Vec<bool>> {
    let runs = prop::collection::vec(
        (any::<bool>(), prop_oneof![4 => 1..4usize, 1 => 1..90usize]),
        0..900,
    );
    runs.prop_map(|runs| {
        runs.into_iter().flat_map(|(is, len)| std::iter::repeat_n(is, len)).collect()
    })
}

/// Blocks as extents, cut anywhere.
fn extents<S: State>(blocks: &[bool], cuts: &[usize], kinds: [S; 2]) -> Vec<Extent<S>> {
    let (mut all, mut cuts) = (Vec::new(), cuts.iter().cycle());
    let mut rest = blocks;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take_while(|is| **is == first).count();
        let len = run.min(*cuts.next().unwrap());
        all.push(Extent { len: len as u64, kind: kinds[usize::from(first)] });
        rest = &rest[len..];
    }
    all
}

proptest! {
    /// Whatever the contexts say: each has its chunk, in order, with what it says and nothing else.
    #[test]
    fn a_reply_has_a_chunk_for_each_context_that_says_what_is_so(
        allocation in prop::option::of(blocks()),
        bitmaps in prop::collection::btree_map(0..62usize, blocks(), 0..5),
        cuts in prop::collection::vec(0..5usize, 1..5).prop_map(|mut cuts| {
            cuts.push(3);
            cuts
        }),
        len in prop_oneof![1..40u32, 1..3000u32],
        one in any::<bool>(),
    ) {
        prop_assume!(allocation.is_some() || !bitmaps.is_empty());
        let mut contexts = Contexts::NONE;
        if allocation.is_some() {
            contexts = contexts.with(ContextId::BASE_ALLOCATION);
        }
        for &index in bitmaps.keys() {
            contexts = contexts.with(ContextId::of_bitmap(index).unwrap());
        }
        let most = if one { ExtentCount::One } else { ExtentCount::Many };
        let request = StatusRequest { cookie: 0xabcd, contexts, len, extents: most };
        let mut out = Vec::new();
        for id in contexts.ids() {
            match id.bitmap() {
                None => {
                    let extents = extents(allocation.as_ref().unwrap(), &cuts, [DATA, HOLE]);
                    block_status(&mut out, request, id, extents);
                }
                Some(index) => {
                    let kinds = [Change::Clean, Change::Dirty];
                    block_status(&mut out, request, id, extents(&bitmaps[&index], &cuts, kinds));
                }
            }
        }
        // Number, states of blocks, the number of the state, and what is said without knowledge.
        let first = allocation.iter().map(|blocks| (1, blocks, 3, 0));
        let next = bitmaps.iter().map(|(index, blocks)| (2 + *index as u32, blocks, 1, 1));
        let expected: Vec<_> = first.chain(next).collect();
        let chunks = chunks(&out);
        prop_assert_eq!(chunks.len(), expected.len());
        let mut count = 0;
        for (at, ((flags, context, said), (id, blocks, state, unknown))) in
            chunks.iter().zip(&expected).enumerate()
        {
            prop_assert_eq!(*flags, u16::from(at + 1 == expected.len()), "only the last is done");
            prop_assert_eq!(context, id);
            prop_assert!(!said.is_empty() && said.iter().all(|(len, _)| *len > 0));
            prop_assert!(said.windows(2).all(|pair| pair[0].1 != pair[1].1), "neighbours differ");
            prop_assert!(!one || said.len() == 1);
            count += said.len();
            let said_blocks: Vec<u32> =
                said.iter().flat_map(|(len, is)| std::iter::repeat_n(*is, *len as usize)).collect();
            prop_assert!(said_blocks.len() <= len as usize);
            if blocks.is_empty() {
                prop_assert_eq!(said_blocks, vec![*unknown; len as usize]);
                continue;
            }
            let known: Vec<u32> =
                blocks.iter().take(len as usize).map(|is| if *is { *state } else { 0 }).collect();
            prop_assert_eq!(&said_blocks, &known[..said_blocks.len()]);
            // It ends early only where it must, and then at the end of a run.
            if said_blocks.len() < known.len() {
                let end = said_blocks.len();
                prop_assert!(known[end] != known[end - 1], "a run is cut");
                prop_assert!(one || said.len() == 512 / expected.len());
            }
        }
        prop_assert!(count <= 512);
    }
}
