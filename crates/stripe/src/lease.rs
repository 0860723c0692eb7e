use core::fmt;

/// The longest name of a host, in bytes.
pub const HOST_NAME_MAX: usize = 64;

/// Who may serve a disk: one host at a time.
///
/// Leases are compared by [`number`](Lease::number) and [`host`](Lease::host); the name is for
/// people.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Lease {
    /// Counts holders, from 1: a later one has a greater number. 0: nobody ever held the disk.
    pub number: u64,
    /// The holder's number of 128 bits, the same after a restart. Zeroes: nobody holds it.
    pub host: [u8; 16],
    /// What people call the holder.
    pub name: HostName,
}

impl Lease {
    /// That of a disk that nobody has held.
    pub const NONE: Lease = Lease { number: 0, host: [0; 16], name: HostName([0; HOST_NAME_MAX]) };

    /// Whether somebody holds the disk.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.host != [0; 16]
    }

    /// The same lease, given back: nobody holds the disk, and the next holder has a greater number.
    #[must_use]
    pub fn given_back(&self) -> Lease {
        Lease { number: self.number, ..Lease::NONE }
    }
}

impl PartialEq for Lease {
    fn eq(&self, other: &Lease) -> bool {
        (self.number, self.host) == (other.number, other.host)
    }
}

/// Says who holds the disk.
impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_held() {
            write!(f, "host '{}' (lease {})", self.name, self.number)
        } else {
            write!(f, "nobody (lease {})", self.number)
        }
    }
}

/// A host's name: up to [`HOST_NAME_MAX`] bytes, without control characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HostName([u8; HOST_NAME_MAX]);

impl HostName {
    /// As much of a name as there is room for, without control characters.
    #[must_use]
    pub fn new(name: &str) -> HostName {
        let mut bytes = [0; HOST_NAME_MAX];
        let mut at = 0;
        for c in name.chars().filter(|c| !c.is_control()) {
            let Some(room) = bytes.get_mut(at..at + c.len_utf8()) else { break };
            c.encode_utf8(room);
            at += c.len_utf8();
        }
        HostName(bytes)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(HOST_NAME_MAX);
        // It was made of a text.
        core::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }

    /// The name, and zeroes behind it.
    pub(crate) fn bytes(&self) -> &[u8; HOST_NAME_MAX] {
        &self.0
    }

    /// A name as it is written: `None` for what [`HostName::new`] does not make.
    pub(crate) fn from_bytes(bytes: &[u8; HOST_NAME_MAX]) -> Option<HostName> {
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(HOST_NAME_MAX);
        let name = HostName::new(core::str::from_utf8(&bytes[..len]).ok()?);
        (name.0 == *bytes).then_some(name)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
