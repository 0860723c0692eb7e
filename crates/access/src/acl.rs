//! Access control lists as the kernel keeps them: the extended attribute
//! `system.posix_acl_access`, and what it decides.

/// The attribute.
pub(crate) const NAME: &str = "system.posix_acl_access";

/// The format that the kernel has had since it has lists.
const VERSION: u32 = 2;

/// What stands where an entry names nobody.
const NOBODY: u32 = u32::MAX;

/// To list a directory, or to read.
pub(crate) const READ: u16 = 4;
/// To connect to a socket.
pub(crate) const WRITE: u16 = 2;
/// To go through a directory.
pub(crate) const SEARCH: u16 = 1;

/// Whom an entry is about. In the order in which the kernel wants entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    /// The most that any but the owner and the others get.
    Mask,
    Other,
}

impl Who {
    fn tag(self) -> (u16, u32) {
        match self {
            Who::Owner => (0x01, NOBODY),
            Who::User(id) => (0x02, id),
            Who::OwningGroup => (0x04, NOBODY),
            Who::Group(id) => (0x08, id),
            Who::Mask => (0x10, NOBODY),
            Who::Other => (0x20, NOBODY),
        }
    }

    fn of(tag: u16, id: u32) -> Option<Who> {
        Some(match tag {
            0x01 => Who::Owner,
            0x02 => Who::User(id),
            0x04 => Who::OwningGroup,
            0x08 => Who::Group(id),
            0x10 => Who::Mask,
            0x20 => Who::Other,
            _ => return None,
        })
    }
}

/// A list: who has which of [`READ`], [`WRITE`] and [`SEARCH`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<(Who, u16)>);

impl Acl {
    /// Sorts the entries. One without a mask names no further users and groups.
    pub(crate) fn new(mut entries: Vec<(Who, u16)>) -> Acl {
        entries.sort_unstable();
        Acl(entries)
    }

    /// What a file without a list of its own has.
    pub(crate) fn of_mode(mode: u32) -> Acl {
        // Three bits each.
        let class = |shift: u32| ((mode >> shift) & 7) as u16;
        Acl(vec![(Who::Owner, class(6)), (Who::OwningGroup, class(3)), (Who::Other, class(0))])
    }

    /// The attribute's value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (who, rights) in &self.0 {
            let (tag, id) = who.tag();
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&rights.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Reads the attribute's value; `None` for what is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Acl> {
        let (version, entries) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != VERSION || !entries.len().is_multiple_of(8) {
            return None;
        }
        let entry = |bytes: &[u8]| {
            let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            Some((Who::of(number(0), id)?, number(2)))
        };
        entries.chunks_exact(8).map(entry).collect::<Option<Vec<_>>>().map(Acl::new)
    }

    /// Whether one who is this user, and in these groups, has `needed` of a file with this owner
    /// and group: the kernel's own rule (`acl(5)`), without its exceptions for the privileged.
    pub(crate) fn allows(
        &self,
        needed: u16,
        (owner, owning_group): (u32, u32),
        (user, groups): (u32, &[u32]),
    ) -> bool {
        let find = |who: Who| self.0.iter().find(|(one, _)| *one == who).map(|(_, r)| *r);
        let has = |rights: u16| rights & needed == needed;
        let mask = find(Who::Mask).unwrap_or(7);
        if user == owner {
            return find(Who::Owner).is_some_and(has);
        }
        if let Some(rights) = find(Who::User(user)) {
            return has(rights & mask);
        }
        let of_group = |(who, rights): &(Who, u16)| {
            let id = match who {
                Who::OwningGroup => owning_group,
                Who::Group(id) => *id,
                Who::Owner | Who::User(_) | Who::Mask | Who::Other => return None,
            };
            groups.contains(&id).then_some(*rights)
        };
        let mut matching = self.0.iter().filter_map(of_group).peekable();
        if matching.peek().is_some() {
            return matching.any(|rights| has(rights & mask));
        }
        find(Who::Other).is_some_and(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_those_of_the_kernel() {
        let acl = Acl::new(vec![(Who::Other, 0), (Who::User(65534), 6), (Who::Owner, 6)]);
        let bytes = acl.encode();
        assert_eq!(bytes.len(), 4 + 3 * 8);
        assert_eq!(bytes[..12], [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!(bytes[12..20], [2, 0, 6, 0, 254, 255, 0, 0]);
        assert_eq!(Acl::decode(&bytes), Some(acl));
    }

    #[test]
    fn the_first_class_that_one_is_in_decides() {
        let listed = Acl::new(vec![
            (Who::Owner, 6),
            (Who::User(7), 2),
            (Who::OwningGroup, 0),
            (Who::Group(20), 6),
            (Who::Mask, 2),
            (Who::Other, 6),
        ]);
        let may = |needed, user, groups: &[u32]| listed.allows(needed, (1, 10), (user, groups));
        assert!(may(READ | WRITE, 1, &[]));
        assert!(may(WRITE, 7, &[]));
        assert!(may(WRITE, 8, &[20]) && !may(READ, 8, &[20]), "the mask");
        assert!(may(WRITE, 8, &[10, 20]), "one of two groups is enough");
        assert!(!may(WRITE, 8, &[10]), "who is in the group is not one of the others");
        assert!(may(WRITE, 8, &[30]));
        let plain = Acl::of_mode(0o100_604);
        assert!(!plain.allows(READ, (1, 10), (2, &[10])) && plain.allows(READ, (1, 10), (2, &[])));
    }

    proptest! {
        #[test]
        fn no_bytes_are_taken_amiss(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(acl) = Acl::decode(&bytes) {
                prop_assert_eq!(Acl::decode(&acl.encode()), Some(acl));
            }
        }
    }
}
