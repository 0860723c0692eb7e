use crate::Identity;
use crate::acl::{self, Acl};
use rustix::fs::{Stat, lgetxattr, stat};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The longest list that is read: some 500 entries.
const LIST_MAX: usize = 4_096;

/// What on the way to a socket keeps a user from connecting to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The directory, or the socket itself.
    pub path: PathBuf,
    /// What the user may not.
    pub action: &'static str,
    /// Its owner, by number.
    pub owner: u32,
    /// Its group, by number.
    pub group: u32,
    /// Its permissions, nine bits.
    pub mode: u32,
}

/// Prints as `may not connect to /s (owner 0, group 0, mode 0600)`.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Obstacle { path, action, owner, group, mode } = self;
        let path = path.display();
        write!(f, "may not {action} {path} (owner {owner}, group {group}, mode {mode:04o})")
    }
}

/// The first obstacle between a user and a socket; `None`: file permissions let them connect. What
/// else may keep them out (SELinux, AppArmor, a mount namespace) is not looked at.
///
/// # Errors
/// When the path leads nowhere, or the caller cannot look at it.
pub fn obstacle(socket: &Path, who: &Identity) -> io::Result<Option<Obstacle>> {
    if who.user == 0 {
        return Ok(None);
    }
    let real = socket.canonicalize()?;
    let mut way: Vec<&Path> = real.ancestors().collect();
    way.reverse();
    let last = way.len() - 1;
    for (at, path) in way.into_iter().enumerate() {
        let (needed, action) = match at == last {
            true => (acl::WRITE, "connect to"),
            false => (acl::SEARCH, "go through"),
        };
        let found = stat(path)?;
        let list = list_of(path, &found)?;
        let (owner, group) = (found.st_uid, found.st_gid);
        if !list.allows(needed, (owner, group), (who.user, &who.groups)) {
            let (path, mode) = (path.to_owned(), found.st_mode & 0o777);
            return Ok(Some(Obstacle { path, action, owner, group, mode }));
        }
    }
    Ok(None)
}

fn list_of(path: &Path, found: &Stat) -> io::Result<Acl> {
    let mut bytes = [0; LIST_MAX];
    match lgetxattr(path, acl::NAME, &mut bytes[..]) {
        Ok(length) => Acl::decode(&bytes[..length])
            .ok_or_else(|| io::Error::other("its access control list is none")),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(Acl::of_mode(found.st_mode)),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_obstacle_is_named() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let socket = inner.join("s");
        fs::write(&socket, "").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let who = Identity { user: 4711, groups: vec![4712] };
        let first = || obstacle(&socket, &who).unwrap().map(|o| (o.path, o.action));
        set(dir.path(), 0o711);
        set(&inner, 0o700);
        set(&socket, 0o600);
        assert_eq!(first(), Some((inner.clone(), "go through")));
        set(&inner, 0o711);
        assert_eq!(first(), Some((socket.clone(), "connect to")));
        set(&socket, 0o602);
        assert_eq!(first(), None);
        let root = Identity { user: 0, groups: Vec::new() };
        set(&inner, 0o700);
        assert_eq!(obstacle(&socket, &root).unwrap(), None);
        obstacle(&dir.path().join("none"), &who).unwrap_err();
    }
}
