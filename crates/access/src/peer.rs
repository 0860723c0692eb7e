use std::fmt;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};

/// The process at the other end of a connection, as the kernel knew it when it connected: whoever
/// uses the socket now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user.
    pub user: u32,
    /// Its groups, the effective one first.
    pub groups: Vec<u32>,
    /// Its number; `None` for one of another namespace.
    pub process: Option<i32>,
}

/// Groups that a process has, at most (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

impl Peer {
    /// Who connected.
    ///
    /// # Errors
    /// When that is no unix socket, or the kernel is older than Linux 4.13.
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: `ucred` is three numbers, of which zero is one.
        let mut who: libc::ucred = unsafe { zeroed() };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the pointer is to `length` bytes that are ours.
        let done = unsafe {
            let to = (&raw mut who).cast();
            libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut length)
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut groups = vec![who.gid];
        groups.extend(further_groups(socket)?);
        Ok(Peer { user: who.uid, groups, process: (who.pid != 0).then_some(who.pid) })
    }

    /// Whether it belongs to one of these groups.
    pub fn is_in(&self, group: u32) -> bool {
        self.groups.contains(&group)
    }
}

fn further_groups(socket: i32) -> io::Result<Vec<u32>> {
    let mut room = 64;
    loop {
        let mut groups = vec![0_u32; room];
        let mut length = (room * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the pointer is to `length` bytes that are ours.
        let done = unsafe {
            let to = groups.as_mut_ptr().cast();
            libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERGROUPS, to, &raw mut length)
        };
        if done == 0 {
            groups.truncate(length as usize / size_of::<u32>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || room >= GROUPS_MAX {
            return Err(error);
        }
        room = GROUPS_MAX;
    }
}

/// Prints as `user 0, process 4711`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.user)?;
        match self.process {
            Some(process) => write!(f, ", process {process}"),
            None => write!(f, ", process unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_kernel_says_who_it_is() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
        assert_eq!(peer.process, Some(std::process::id().cast_signed()));
        assert!(peer.is_in(rustix::process::getegid().as_raw()));
        let mut all = rustix::process::getgroups().unwrap().into_iter();
        assert!(all.all(|group| peer.is_in(group.as_raw())));
        Peer::of(std::fs::File::open("/").unwrap()).unwrap_err();
    }
}
