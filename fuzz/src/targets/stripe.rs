//! The label of an export, which anybody may have written, and ranges of the disk that it
//! describes: none panics, what is accepted is what is written again, and whatever the layout, the
//! parts of a range are that range: each byte once, where the definition has it.
//!
//! The first byte of the input says what the label is made of: the bytes that follow as they are,
//! or a good label with bytes changed and a checksum that fits. The rest are ranges.

use headgate_stripe::{
    DATA_AT, HostName, LABEL_LEN, Label, Layout, Lease, Part, Run, SIZE_STEP, Stage, StripeId,
};
use headgate_units::Bytes;

/// What a label says, behind its magic.
const FIELDS: std::ops::Range<usize> = 16..145;
const LEASE: usize = 56;
const HOST: usize = 64;
const NAME: usize = 80;
const STAGE: usize = 144;
const UNIT: usize = 40;
const SIZE: usize = 48;
/// An offset and a length.
const RANGE: usize = 16;
/// So many runs of a range are looked at.
const RUNS: usize = 200;

fn good() -> Label {
    let layout = Layout::new(Bytes::from_kib(64), 3, Bytes::from_gib(10)).expect("a layout");
    let lease = Lease { number: 5, host: [3; 16], name: HostName::new("gw") };
    Label { id: StripeId([7; 16]), index: 0, layout, lease, stage: Stage::Made }
}

fn long(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// What a byte does to the checksum of the label's format, a bit at a time.
const fn divided(byte: usize) -> u32 {
    let (mut sum, mut bit) = (byte as u32, 0);
    while bit < 8 {
        sum = (sum >> 1) ^ ((sum & 1) * 0x82F6_3B78);
        bit += 1;
    }
    sum
}

/// [`divided`] of each byte: a label has four thousand, and is summed twice for each input.
const DIVIDED: [u32; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        table[byte] = divided(byte);
        byte += 1;
    }
    table
};

fn crc32c(bytes: &[u8]) -> u32 {
    let add = |sum: u32, byte: &u8| DIVIDED[usize::from(sum as u8 ^ byte)] ^ (sum >> 8);
    !bytes.iter().fold(u32::MAX, add)
}

fn seal(label: &mut [u8; LABEL_LEN]) {
    let sum = crc32c(&label[..LABEL_LEN - 4]);
    label[LABEL_LEN - 4..].copy_from_slice(&sum.to_be_bytes());
}

/// What the input makes a label of, and what is left of it.
fn label(input: &[u8]) -> ([u8; LABEL_LEN], &[u8]) {
    let (how, input) = input.split_first().map_or((0, input), |(how, rest)| (*how, rest));
    let mut bytes = good().to_bytes();
    let whole = how % 4 == 0;
    let (new, rest) = input.split_at(input.len().min(if whole { LABEL_LEN } else { FIELDS.len() }));
    if whole {
        bytes.fill(0);
        bytes[..new.len()].copy_from_slice(new);
        return (bytes, rest);
    }
    bytes[FIELDS].iter_mut().zip(new).for_each(|(byte, new)| *byte ^= new);
    if how % 4 > 1 && new.len() == FIELDS.len() {
        // Values that a layout may have: nearly none of all numbers are.
        let [unit, size] = [UNIT, SIZE].map(|at| long(&new[at - FIELDS.start..]));
        let size = (size % (1 << 50)) >> (how % 51);
        bytes[UNIT..SIZE].copy_from_slice(&(1u64 << (12 + unit % 15)).to_be_bytes());
        bytes[SIZE..LEASE].copy_from_slice(&((size + 1) * SIZE_STEP.0).to_be_bytes());
        // A lease of a host, of nobody, or one that cannot be.
        match how % 8 {
            2 => {}
            3 => bytes[LEASE..STAGE].fill(0),
            6 => bytes[HOST..STAGE].fill(0),
            _ => {
                let name = good().to_bytes();
                bytes[NAME..STAGE].copy_from_slice(&name[NAME..STAGE]);
            }
        }
        // The version is ours, and the index is often as many as there are members.
        let stage = how / 8 % 2;
        bytes[FIELDS.start..20].copy_from_slice(&[0, 0, 0, 2 + stage]);
        bytes[STAGE] = stage;
        (bytes[36], bytes[38], bytes[39]) = (0, 0, bytes[39] % 64 + 1);
        bytes[37] = bytes[37].min(bytes[39] - how % 2);
    }
    if how >= 0xC0 {
        // Something where nothing belongs.
        bytes[FIELDS.end + usize::from(how & 0x3C) * 63] = 1;
    }
    seal(&mut bytes);
    (bytes, rest)
}

/// Whether bytes are a label, by the definition.
fn is_label(bytes: &[u8; LABEL_LEN]) -> bool {
    let number = |at: usize, len: usize| long(&bytes[at..at + len]);
    let (index, members) = (number(36, 2), number(38, 2));
    let (unit, size) = (number(UNIT, 8), number(SIZE, 8));
    bytes.starts_with(b"HEADGATE STRIPE\n")
        && number(LABEL_LEN - 4, 4) == u64::from(crc32c(&bytes[..LABEL_LEN - 4]))
        && is_lease(bytes)
        && match number(16, 4) {
            2 => bytes[STAGE] == 0,
            3 => bytes[STAGE] == 1 && bytes[HOST..NAME].iter().any(|byte| *byte != 0),
            _ => false,
        }
        && bytes[FIELDS.end..LABEL_LEN - 4].iter().all(|byte| *byte == 0)
        && (12..=26).any(|power| unit == 1 << power)
        && (1..=64).contains(&members)
        && index < members
        && (1..=1 << 62).contains(&size)
        && size.is_multiple_of(4096)
}

/// Whether a label's lease may be, by the definition.
fn is_lease(bytes: &[u8; LABEL_LEN]) -> bool {
    let (host, name) = (&bytes[HOST..NAME], &bytes[NAME..STAGE]);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let is_name = std::str::from_utf8(&name[..end])
        .is_ok_and(|text| !text.chars().any(char::is_control))
        && name[end..].iter().all(|byte| *byte == 0);
    match host.iter().any(|byte| *byte != 0) {
        true => is_name && long(&bytes[LEASE..]) > 0,
        false => end == 0 && is_name,
    }
}

/// Where a byte of the disk lies, by the definition.
fn home(layout: &Layout, byte: u64) -> (u16, u64) {
    let strip = byte / layout.unit().0;
    let (row, member) = (strip / u64::from(layout.members()), strip % u64::from(layout.members()));
    (member as u16, (1 << 20) + row * layout.unit().0 + byte % layout.unit().0)
}

/// Where the disk ends in its exports.
fn check_end(layout: &Layout) {
    let size = layout.size().0;
    let end = layout.parts(0, size).map(|part| part.offset + part.len).max().unwrap_or(0);
    let spare = layout.member_size().0.checked_sub(end).expect("exports hold the disk");
    assert!(spare < layout.unit().0, "{layout}: {spare} bytes without use");
    let (member, at) = home(layout, size);
    assert_eq!(layout.disk_offset(member, at), None, "{layout}");
}

/// A range that may reach beyond the disk.
fn check_range(layout: &Layout, offset: u64, len: u64) {
    let parts: Vec<Part> = layout.parts(offset, len).collect();
    let len = len.min(layout.size().0.saturating_sub(offset));
    assert_eq!(parts.iter().map(|part| part.len).sum::<u64>(), len, "{layout}: {parts:?}");
    assert!(parts.is_sorted_by(|a, b| a.member < b.member), "{layout}: {parts:?}");
    for &Part { member, offset: begin, len: bytes } in &parts {
        assert!(bytes > 0 && member < layout.members() && begin >= DATA_AT.0, "{parts:?}");
        assert!(begin + bytes <= layout.member_size().0, "{layout}: {parts:?}");
        let is_of_range =
            |at| layout.disk_offset(member, at).is_some_and(|at| at >= offset && at - offset < len);
        assert!(is_of_range(begin) && is_of_range(begin + bytes - 1), "{layout}: {parts:?}");
        assert!(!is_of_range(begin - 1) && !is_of_range(begin + bytes), "{layout}: {parts:?}");
    }
    let mut left = parts.clone();
    let mut at = 0;
    for run in layout.runs(offset, len).take(RUNS) {
        assert_eq!(run.at, at, "{layout}: {run:?}");
        let (first, last) = (offset + at, offset + at + run.len - 1);
        assert_eq!(first / layout.unit().0, last / layout.unit().0, "{layout}: {run:?}");
        take(&mut left, run, home(layout, first));
        at += run.len;
    }
    if layout.runs(offset, len).nth(RUNS).is_none() {
        assert_eq!(at, len, "{layout}");
        assert!(left.iter().all(|part| part.len == 0), "{layout}: {left:?}");
    }
}

/// Takes a run from where its member's part begins.
fn take(parts: &mut [Part], run: Run, home: (u16, u64)) {
    let part = parts.iter_mut().find(|part| part.member == run.member).expect("a part of it");
    assert_eq!((part.member, part.offset), home, "{run:?}");
    part.offset += run.len;
    part.len = part.len.checked_sub(run.len).expect("a run is of its part");
}

/// A label as it is, sealed ones with one byte changed, and ranges of some layouts.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut whole = vec![0];
    whole.extend(good().to_bytes());
    let ranges = |how: u8, by: u8| {
        let mut input = vec![how];
        input.extend([by; FIELDS.end - FIELDS.start]);
        input.extend((0..64).map(|at| if at % 8 < 4 { 0 } else { by.wrapping_mul(at) }));
        input
    };
    whole.extend([0; RANGE]);
    let laid_out = (0..=255).step_by(5).map(|by| ranges(by & 0x7E | 2, by));
    let changed = |at: usize| {
        [1, 3, 0x80].map(|by| {
            let mut input = ranges(1, 0);
            input[1 + at] = by;
            input
        })
    };
    let changed = (0..FIELDS.len()).flat_map(changed);
    [whole, ranges(1, 0), ranges(0xC1, 0)].into_iter().chain(changed).chain(laid_out).collect()
}

pub(super) fn run(input: &[u8]) {
    let (bytes, ranges) = label(input);
    let read = Label::from_bytes(&bytes);
    assert_eq!(read.is_ok(), is_label(&bytes), "{read:?}");
    let label = match read {
        Ok(label) => label,
        Err(error) => return assert!(error.to_string().len() > 20, "{error}"),
    };
    assert_eq!(label.to_bytes(), bytes, "read as something else: {label:?}");
    assert_eq!(label.id.to_string().parse(), Ok(label.id));
    assert!(label.index < label.layout.members(), "{label:?}");
    assert_eq!(label.check(&label), Ok(()));
    let is_good = label == good();
    assert_eq!(label.check(&good()).is_ok(), is_good, "{label:?}");
    assert_eq!(good().check(&label).is_ok(), is_good, "{label:?}");
    let layout = label.layout;
    let size = layout.size().0;
    check_end(&layout);
    for range in ranges.chunks_exact(RANGE).take(64) {
        let (offset, len) = (long(range), long(&range[8..]));
        check_range(&layout, offset, len);
        check_range(&layout, offset % size, len >> (offset % 64));
        for member in [label.index, offset as u16] {
            if let Some(byte) = layout.disk_offset(member, len) {
                assert!(byte < size, "{layout}: {byte}");
                assert_eq!(home(&layout, byte), (member, len), "{layout}");
            }
        }
    }
}
