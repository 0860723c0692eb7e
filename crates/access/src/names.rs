use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;
use thiserror::Error;

/// A user with the groups that a process of theirs has after logging in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// By number.
    pub user: u32,
    /// By number, the user's own first.
    pub groups: Vec<u32>,
}

/// A name that stands for nobody.
#[derive(Debug, Error)]
pub enum NameError {
    /// The host does not know it.
    #[error("this host has no {kind} '{name}'")]
    Unknown {
        /// "user" or "group".
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The host's tables cannot be read.
    #[error("cannot look up the {kind} '{name}': {source}")]
    Lookup {
        /// "user" or "group".
        kind: &'static str,
        /// The name.
        name: String,
        /// The system's answer.
        source: Errno,
    },
}

/// The number that a text is, if it is one. The highest stands for nobody.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

fn found<T>(
    kind: &'static str,
    name: &str,
    answer: Result<Option<T>, Errno>,
) -> Result<T, NameError> {
    match answer {
        Ok(Some(one)) => Ok(one),
        Ok(None) => Err(NameError::Unknown { kind, name: name.to_owned() }),
        Err(source) => Err(NameError::Lookup { kind, name: name.to_owned(), source }),
    }
}

/// The number of a user, given by name or number. A number need not have a name.
///
/// # Errors
/// See [`NameError`].
pub fn user(text: &str) -> Result<u32, NameError> {
    match number(text) {
        Some(id) => Ok(id),
        None => found("user", text, User::from_name(text)).map(|user| user.uid.as_raw()),
    }
}

/// The number of a group, given by name or number. A number need not have a name.
///
/// # Errors
/// See [`NameError`].
pub fn group(text: &str) -> Result<u32, NameError> {
    match number(text) {
        Some(id) => Ok(id),
        None => found("group", text, Group::from_name(text)).map(|group| group.gid.as_raw()),
    }
}

/// The group that this process makes files with.
pub fn own_group() -> u32 {
    Gid::effective().as_raw()
}

impl Identity {
    /// A user given by name or number, with all their groups. One without a name has none.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn of(text: &str) -> Result<Identity, NameError> {
        let known = match number(text) {
            Some(id) => match User::from_uid(Uid::from_raw(id)) {
                Ok(None) => return Ok(Identity { user: id, groups: Vec::new() }),
                answer => found("user", text, answer)?,
            },
            None => found("user", text, User::from_name(text))?,
        };
        let lookup = |source| NameError::Lookup { kind: "user", name: text.to_owned(), source };
        let name = CString::new(known.name).map_err(|_| lookup(Errno::EINVAL))?;
        let groups = getgrouplist(&name, known.gid).map_err(lookup)?;
        let groups = groups.into_iter().map(Gid::as_raw).collect();
        Ok(Identity { user: known.uid.as_raw(), groups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found_and_strangers_are_not() {
        assert_eq!((user("root").unwrap(), group("root").unwrap()), (0, 0));
        assert_eq!((user("4711").unwrap(), group("4712").unwrap()), (4711, 4712));
        let error = user("no such user").unwrap_err().to_string();
        assert_eq!(error, "this host has no user 'no such user'");
        assert!(group("4294967295").is_err(), "that number is nobody's");
        assert!(Identity::of("root").unwrap().groups.contains(&0));
        assert_eq!(Identity::of("0").unwrap().user, 0);
    }
}
