//! An event's line: the checksum of what follows, a space, and the event as JSON.

use crate::Event;
use thiserror::Error;

/// Digits of a checksum.
const DIGITS: usize = 8;

/// Why a line cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// It does not end, or not as it began.
    #[error("it was torn, or changed later: its checksum is another")]
    Torn,
    /// It is whole, and no event that this program knows.
    #[error("it is no event: {0}")]
    Strange(String),
}

/// The line, with its end.
///
/// # Errors
/// When the event is no JSON, which no event is.
pub fn encode(event: &Event) -> serde_json::Result<Vec<u8>> {
    let json = serde_json::to_vec(event)?;
    let mut line = format!("{:08x} ", crc32fast::hash(&json)).into_bytes();
    line.extend_from_slice(&json);
    line.push(b'\n');
    Ok(line)
}

/// Reads a line, without its end.
///
/// # Errors
/// See [`Damage`].
pub fn decode(line: &[u8]) -> Result<Event, Damage> {
    let (sum, rest) = line.split_at_checked(DIGITS).ok_or(Damage::Torn)?;
    let json = rest.strip_prefix(b" ").ok_or(Damage::Torn)?;
    let sum = std::str::from_utf8(sum).ok().and_then(|sum| u32::from_str_radix(sum, 16).ok());
    if sum != Some(crc32fast::hash(json)) {
        return Err(Damage::Torn);
    }
    serde_json::from_slice(json).map_err(|e| Damage::Strange(e.to_string()))
}

/// Reads all lines of a file. What is behind the last end of a line was torn.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<Event, Damage>> {
    let mut parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let torn = parts.pop().is_some_and(|rest| !rest.is_empty());
    let whole = parts.into_iter().filter(|line| !line.is_empty()).map(decode);
    whole.chain(torn.then_some(Err(Damage::Torn)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Who};
    use proptest::prelude::*;

    fn event(id: u64) -> Event {
        let entry = Entry::done("disk set").of_disk("db").because("line\nbreak \u{e9}");
        Event { id, at_ms: 1_790_000_000_123, entry }
    }

    fn file(count: u64) -> Vec<u8> {
        (1..=count).flat_map(|id| encode(&event(id)).unwrap()).collect()
    }

    #[test]
    fn a_file_that_is_cut_anywhere_keeps_all_whole_lines() {
        let bytes = file(3);
        let ends: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let read: Vec<_> = lines(&bytes[..cut]).collect();
            let good: Vec<u64> = read.iter().flatten().map(|event| event.id).collect();
            assert_eq!(good, (1..=whole as u64).collect::<Vec<_>>(), "cut at {cut}");
            let is_torn = cut > 0 && !ends.contains(&cut);
            assert_eq!(read.len() - good.len(), usize::from(is_torn), "cut at {cut}");
        }
    }

    #[test]
    fn a_torn_line_does_not_spoil_the_next() {
        let mut bytes = file(2);
        bytes.truncate(bytes.len() - 7);
        bytes.push(b'\n');
        bytes.extend(encode(&event(9)).unwrap());
        let read: Vec<_> = lines(&bytes).map(|line| line.map(|event| event.id)).collect();
        assert_eq!(read, [Ok(1), Err(Damage::Torn), Ok(9)]);
    }

    #[test]
    fn a_whole_line_that_is_no_event_says_what_it_lacks() {
        let json = b"{\"id\":1}";
        let mut line = format!("{:08x} ", crc32fast::hash(json)).into_bytes();
        line.extend_from_slice(json);
        let Err(Damage::Strange(why)) = decode(&line) else { panic!("it is one") };
        assert!(why.contains("at_ms"), "{why}");
    }

    #[test]
    fn everybody_who_can_do_something_is_read_as_written() {
        let address = || "10.0.0.7:1".to_owned();
        for by in [
            Who::Daemon,
            Who::Process { user: 1, group: 2, process: Some(3) },
            Who::Process { user: 1, group: 2, process: None },
            Who::Certificate { name: "a".into(), address: address() },
            Who::Token { name: "b".into(), address: address() },
            Who::Unknown { address: None },
        ] {
            let mut event = event(1);
            event.entry.by = by;
            let line = encode(&event).unwrap();
            assert_eq!(decode(line.trim_ascii_end()), Ok(event));
        }
    }

    proptest! {
        /// Every byte that is another one is noticed.
        #[test]
        fn a_changed_byte_is_damage(at in 0_usize..400, to: u8) {
            let mut line = encode(&event(5)).unwrap();
            line.pop();
            let at = at % line.len();
            prop_assume!(!line[at].eq_ignore_ascii_case(&to));
            line[at] = to;
            prop_assert!(decode(&line).is_err());
        }
    }
}
