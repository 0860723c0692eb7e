//! Keys of parts: `/headgate/fleet/HOST/PART`, where HOST is 32 hexadecimal digits and PART `host`,
//! `datastores-NNN`, `disks-NNN` or `advice`.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// What all keys begin with.
pub const PREFIX: &str = "/headgate/fleet/";

/// The identity of a host: the same after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey(pub [u8; 16]);

/// Prints 32 hexadecimal digits.
impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which part of a summary. Chunks are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartKind {
    /// The host.
    Host,
    /// A chunk of its datastores.
    Datastores(u16),
    /// A chunk of its disks.
    Disks(u16),
    /// What it advises.
    Advice,
}

impl fmt::Display for PartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartKind::Host => f.write_str("host"),
            PartKind::Datastores(chunk) => write!(f, "datastores-{chunk:03}"),
            PartKind::Disks(chunk) => write!(f, "disks-{chunk:03}"),
            PartKind::Advice => f.write_str("advice"),
        }
    }
}

/// Where a part stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartKey {
    /// Whose it is.
    pub host: HostKey,
    /// Which it is.
    pub kind: PartKind,
}

impl PartKey {
    /// The key behind all chunks of this kind, for a range of them.
    pub fn end_of_kind(self) -> String {
        let kind = match self.kind {
            PartKind::Host => "host~",
            PartKind::Datastores(_) => "datastores-~",
            PartKind::Disks(_) => "disks-~",
            PartKind::Advice => "advice~",
        };
        format!("{PREFIX}{}/{kind}", self.host)
    }
}

impl fmt::Display for PartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}/{}", self.host, self.kind)
    }
}

/// A text is no key of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it has no key of a summary; expected {PREFIX}HOST/PART")]
pub struct KeyError;

fn chunk(text: &str) -> Option<u16> {
    let is_number = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

impl FromStr for PartKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PartKey, KeyError> {
        let read = || {
            let (host, part) = text.strip_prefix(PREFIX)?.split_once('/')?;
            let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            if host.len() != 32 || !host.bytes().all(is_hex) {
                return None;
            }
            let host = HostKey(u128::from_str_radix(host, 16).ok()?.to_be_bytes());
            let kind = match part {
                "host" => PartKind::Host,
                "advice" => PartKind::Advice,
                _ => match part.split_once('-')? {
                    ("datastores", number) => PartKind::Datastores(chunk(number)?),
                    ("disks", number) => PartKind::Disks(chunk(number)?),
                    _ => return None,
                },
            };
            Some(PartKey { host, kind })
        };
        read().ok_or(KeyError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn keys_are_read_as_they_are_written_and_in_no_other_way() {
        let host = HostKey([0xa5; 16]);
        for kind in
            [PartKind::Host, PartKind::Advice, PartKind::Disks(0), PartKind::Datastores(127)]
        {
            let key = PartKey { host, kind };
            assert_eq!(key.to_string().parse(), Ok(key));
            assert!(key.to_string() < key.end_of_kind());
        }
        for part in [
            "",
            "hosts",
            "disks",
            "disks-",
            "disks-1",
            "disks-0001",
            "disks-+01",
            "host/x",
            "x-000",
        ] {
            let text = format!("{PREFIX}{host}/{part}");
            assert_eq!(text.parse::<PartKey>(), Err(KeyError), "{text}");
        }
        for text in ["", "/headgate/fleet/", "/headgate/board/x/y", "/headgate/fleet/a5/host"] {
            assert_eq!(text.parse::<PartKey>(), Err(KeyError), "{text}");
        }
        let upper = format!("{PREFIX}{}/host", host.to_string().to_uppercase());
        assert_eq!(upper.parse::<PartKey>(), Err(KeyError), "two keys for one part");
    }
}
