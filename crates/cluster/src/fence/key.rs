use crate::identity::{HostId, Identity};
use std::fmt;

/// The first two bytes of every key of Headgate's: "HG".
const MARK: u64 = 0x4847;

/// The bit that says that its holder had a lease in etcd besides.
const LEASED: u64 = 1 << 15;

/// What else protects a reservation than itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cover {
    /// A lease in etcd: who has the lease now may take the device from whoever had it before.
    Lease,
    /// Nothing.
    Nothing,
}

/// The key that a host's daemon registers: who it is, and which start of it.
///
/// | bytes | what |
/// |---|---|
/// | 0, 1 | `HG` |
/// | 2 to 5 | the first four bytes of its [`HostId`] |
/// | 6, 7 | the highest bit: [`Cover::Lease`]; the others: how often it was started, modulo 32,768 |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceKey(u64);

impl FenceKey {
    /// The key of this start of a host's daemon.
    pub fn of(own: &Identity, cover: Cover) -> FenceKey {
        FenceKey::new(own.host, own.epoch, cover)
    }

    /// The key of a host's daemon at its start of this number.
    pub fn new(HostId(host): HostId, start: u64, cover: Cover) -> FenceKey {
        let host = u64::from(u32::from_be_bytes([host[0], host[1], host[2], host[3]]));
        let leased = if cover == Cover::Lease { LEASED } else { 0 };
        FenceKey(MARK << 48 | host << 16 | leased | (start % LEASED))
    }

    /// A key that was read from a device; `None`: it is no key of Headgate's.
    pub fn read(key: u64) -> Option<FenceKey> {
        (key >> 48 == MARK).then_some(FenceKey(key))
    }

    /// The number that the device knows.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Whether both are keys of one host.
    pub fn is_same_host(self, other: FenceKey) -> bool {
        self.0 >> 16 == other.0 >> 16
    }

    /// What else protects it.
    pub fn cover(self) -> Cover {
        if self.0 & LEASED == 0 { Cover::Nothing } else { Cover::Lease }
    }

    /// The first eight digits of its host's [`HostId`].
    pub fn host(self) -> String {
        format!("{:08x}", (self.0 >> 16) & 0xffff_ffff)
    }
}

/// A key as tools print it, such as `0x4847a1b2c3d40007`.
pub fn key_text(key: u64) -> String {
    format!("0x{key:016x}")
}

/// Prints as [`key_text`].
impl fmt::Display for FenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&key_text(self.0))
    }
}

impl fmt::Debug for FenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_host_its_start_and_its_cover() {
        let hosts = [HostId([0xa1; 16]), HostId([0xb2; 16])];
        let key = FenceKey::new(hosts[0], 7, Cover::Nothing);
        assert_eq!(
            (key.to_string().as_str(), key.host().as_str()),
            ("0x4847a1a1a1a10007", "a1a1a1a1")
        );
        assert_eq!(FenceKey::read(key.number()), Some(key));
        let later = FenceKey::new(hosts[0], 8, Cover::Lease);
        assert_eq!(later.to_string(), "0x4847a1a1a1a18008");
        assert!(key != later && key.is_same_host(later));
        assert_eq!((key.cover(), later.cover()), (Cover::Nothing, Cover::Lease));
        assert!(!key.is_same_host(FenceKey::new(hosts[1], 7, Cover::Nothing)));
        // A number that needs more than its bits changes neither cover nor host.
        let far = FenceKey::new(hosts[0], u64::MAX, Cover::Nothing);
        assert!(far.is_same_host(key) && far.cover() == Cover::Nothing);
        for foreign in [0, 7, 0x4748_0000_0000_0001, u64::MAX] {
            assert_eq!(FenceKey::read(foreign), None, "{foreign:x}");
        }
    }
}
