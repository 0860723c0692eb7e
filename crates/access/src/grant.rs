use crate::Peer;
use crate::acl::{self, Acl, Who};
use rustix::fs::{Mode, XattrFlags, chmod, fchmod, lsetxattr, stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// As many connections wait to be accepted as the system allows.
const BACKLOG: i32 = -1;

/// Who may connect, besides root and the user that serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// By number.
    pub users: BTreeSet<u32>,
    /// By number.
    pub groups: BTreeSet<u32>,
}

/// What access is granted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A socket: to connect.
    Socket,
    /// A directory: to list it and to go through it.
    Directory,
}

impl Access {
    /// Members of these groups may connect.
    pub fn of_groups(groups: impl IntoIterator<Item = u32>) -> Access {
        Access { users: BTreeSet::new(), groups: groups.into_iter().collect() }
    }

    /// Whether the kernel lets this peer in where this is granted by the user that serves: what
    /// [`grant`] writes, applied to who is connected already.
    pub fn admits(&self, peer: &Peer) -> bool {
        let serving = rustix::process::geteuid().as_raw();
        peer.user == 0 || peer.user == serving || self.names(peer)
    }

    /// Whether this peer is one of those that are named.
    pub fn names(&self, peer: &Peer) -> bool {
        self.users.contains(&peer.user) || self.groups.iter().any(|group| peer.is_in(*group))
    }

    /// The list of a file that belongs to this group.
    fn list(&self, kind: Kind, owning_group: u32) -> Acl {
        let (own, others) = match kind {
            Kind::Socket => (acl::READ | acl::WRITE, acl::READ | acl::WRITE),
            Kind::Directory => (acl::READ | acl::WRITE | acl::SEARCH, acl::READ | acl::SEARCH),
        };
        let of_owning_group = if self.groups.contains(&owning_group) { others } else { 0 };
        let mut entries =
            vec![(Who::Owner, own), (Who::OwningGroup, of_owning_group), (Who::Other, 0)];
        if self.needs_list(owning_group) {
            let groups = self.groups.iter().filter(|group| **group != owning_group);
            entries.extend(groups.map(|group| (Who::Group(*group), others)));
            entries.extend(self.users.iter().map(|user| (Who::User(*user), others)));
            entries.push((Who::Mask, others));
        }
        Acl::new(entries)
    }

    fn needs_list(&self, owning_group: u32) -> bool {
        !self.users.is_empty() || self.groups.iter().any(|group| *group != owning_group)
    }
}

/// Lets in those that `access` names, and nobody else but root and the owner, in one step.
///
/// Users, and groups other than the file's own, are entries of an access control list: to name them
/// there the owner needs no privilege, and need not be a member.
///
/// # Errors
/// When the caller is not the owner, or the file system has no such lists and one is needed.
pub fn grant(path: &Path, access: &Access, kind: Kind) -> io::Result<()> {
    let owning_group = stat(path)?.st_gid;
    // With a list that a mode can say, the kernel sets the mode and keeps no list.
    let list = access.list(kind, owning_group).encode();
    match lsetxattr(path, acl::NAME, &list, XattrFlags::empty()) {
        Ok(()) => Ok(()),
        Err(Errno::NOTSUP) if !access.needs_list(owning_group) => {
            let mode = match (kind, access.groups.contains(&owning_group)) {
                (Kind::Socket, true) => 0o660,
                (Kind::Socket, false) => 0o600,
                (Kind::Directory, true) => 0o750,
                (Kind::Directory, false) => 0o700,
            };
            Ok(chmod(path, Mode::from_raw_mode(mode))?)
        }
        Err(Errno::NOTSUP) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system has no access control lists, by which other users and groups are \
             let in",
        )),
        Err(e) => Err(e.into()),
    }
}

/// Listens at `path`, where nothing is. Nobody that `access` does not name can connect at any
/// moment, whatever the umask and the directory's own rules: the file is made with no rights but
/// the owner's, and connections are refused until it has those that it is to have.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] when something has that name; and those of [`grant`].
pub fn listen(path: &Path, access: &Access) -> io::Result<UnixListener> {
    let socket = bound(path)?;
    let begun =
        grant(path, access, Kind::Socket).and_then(|()| Ok(rustix::net::listen(&socket, BACKLOG)?));
    if let Err(e) = begun {
        // That it could not be made is the error to tell.
        let _ = std::fs::remove_file(path);
        return Err(e);
    }
    Ok(UnixListener::from(socket))
}

/// A socket with a name, which only its owner could connect to, and which nobody listens at yet.
fn bound(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file gets the mode that the socket has, less the umask.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, obstacle};
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn may(path: &Path, user: u32, group: u32) -> bool {
        obstacle(path, &Identity { user, groups: vec![group] }).unwrap().is_none()
    }

    /// A directory that everybody can go through, as the way to it must be open too.
    fn open_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        dir
    }

    #[test]
    fn a_socket_lets_in_whom_it_names_and_nobody_else() {
        let dir = open_dir();
        let path = dir.path().join("s");
        let access = Access { users: [4711].into(), groups: [4712, 4713].into() };
        let _listener = listen(&path, &access).unwrap();
        assert!(may(&path, 4711, 1) && may(&path, 5, 4712) && may(&path, 5, 4713));
        assert!(!may(&path, 5, 1) && !may(&path, 4712, 1), "a group's number is no user's");
        grant(&path, &Access::of_groups([4713]), Kind::Socket).unwrap();
        assert!(!may(&path, 4711, 1) && !may(&path, 5, 4712) && may(&path, 5, 4713));
        grant(&path, &Access::default(), Kind::Socket).unwrap();
        assert!(!may(&path, 5, 4713));
        assert_eq!(mode(&path), 0o600);
        UnixStream::connect(&path).unwrap();
    }

    proptest! {
        /// The list, as the kernel goes through it, is the oracle.
        #[test]
        fn who_is_let_in_is_who_is_admitted(
            users in prop::collection::btree_set(4700_u32..4704, 0..3),
            groups in prop::collection::btree_set(4800_u32..4804, 0..3),
            user in 4700_u32..4704,
            own in prop::collection::vec(4800_u32..4804, 1..3),
            owning_group in 4800_u32..4804,
        ) {
            let access = Access { users, groups };
            let owner = rustix::process::geteuid().as_raw();
            let list = access.list(Kind::Socket, owning_group);
            let allowed = list.allows(acl::WRITE, (owner, owning_group), (user, &own));
            let peer = Peer { user, groups: own, process: None };
            prop_assert_eq!(access.admits(&peer), allowed);
        }
    }

    #[test]
    fn root_and_the_serving_user_are_always_admitted() {
        let peer = |user| Peer { user, groups: vec![4711], process: None };
        let serving = rustix::process::geteuid().as_raw();
        assert!(Access::default().admits(&peer(0)) && Access::default().admits(&peer(serving)));
        assert!(!Access::default().admits(&peer(4711)), "a group's number is no user's");
    }

    #[test]
    fn what_a_mode_can_say_needs_no_list() {
        let dir = open_dir();
        let path = dir.path().join("s");
        let own = fs::metadata(dir.path()).map(|meta| std::os::unix::fs::MetadataExt::gid(&meta));
        let access = Access::of_groups([own.unwrap()]);
        let _listener = listen(&path, &access).unwrap();
        assert_eq!(mode(&path), 0o660);
        grant(dir.path(), &access, Kind::Directory).unwrap();
        assert_eq!(mode(dir.path()), 0o750);
        assert!(access.list(Kind::Socket, 1).encode().len() > 4 + 3 * 8);
    }

    #[test]
    fn rules_of_the_directory_let_nobody_in() {
        let dir = open_dir();
        // What is made here would be for user 4711, and for everybody.
        let inherited = Acl::new(vec![
            (Who::Owner, 7),
            (Who::User(4711), 7),
            (Who::OwningGroup, 7),
            (Who::Mask, 7),
            (Who::Other, 7),
        ]);
        let name = "system.posix_acl_default";
        lsetxattr(dir.path(), name, &inherited.encode(), XattrFlags::empty()).unwrap();
        let path = dir.path().join("s");
        // Before it has the rights that it is to have.
        let _socket = bound(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(!may(&path, 4711, 1));
        UnixStream::connect(&path).unwrap_err();
    }

    #[test]
    fn a_name_that_is_taken_stays_as_it_is() {
        let dir = open_dir();
        let path = dir.path().join("s");
        fs::write(&path, "mine").unwrap();
        let error = listen(&path, &Access::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }
}
