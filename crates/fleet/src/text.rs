//! Texts of summaries: what may be in them, and how long they are.

use alloc::string::String;

/// The longest name of a disk, a datastore or a machine, in bytes.
pub const NAME_MAX: usize = 64;

/// The longest name of a host, in bytes.
pub const HOST_NAME_MAX: usize = 64;

/// The longest remark, such as a reason or an address, in bytes.
pub const NOTE_MAX: usize = 160;

/// Whether it can be the name of a disk, a datastore or a machine.
pub(crate) fn is_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    text.len() <= NAME_MAX
        && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && text.bytes().all(legal)
}

/// Whether it can be printed.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.chars().any(is_unfit)
}

/// Control characters, and those that turn the direction of what follows.
fn is_unfit(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// As much of a text as fits into `most` bytes, with a blank for what cannot be printed.
pub fn clipped(text: &str, most: usize) -> String {
    let mut short = String::new();
    for c in text.chars().map(|c| if is_unfit(c) { ' ' } else { c }) {
        if short.len() + c.len_utf8() > most {
            break;
        }
        short.push(c);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_clipped_fits_and_can_be_printed() {
        assert_eq!(clipped("a\u{1b}[2Jb", 99), "a [2Jb");
        assert_eq!(clipped("ééé", 5), "éé");
        assert_eq!(clipped("a\u{202e}b", 9), "a b");
        assert!(is_plain(&clipped("a\u{202e}\n", 9)));
    }

    #[test]
    fn names_are_those_of_the_catalog() {
        for good in ["a", "0", "db-0.x_y", &"a".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-a", ".a", "a b", "a/b", "é", &"a".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
