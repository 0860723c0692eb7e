//! Sending a message with a plain system call, before the ring is asked.

use super::buffers::remaining;
use std::os::fd::RawFd;

/// The part of a message that a socket did not take at once.
pub(crate) struct Unsent {
    pub fd: RawFd,
    /// The operation that sends it.
    pub key: u32,
    /// Bytes that were taken.
    pub sent: i32,
    vectors: Vec<libc::iovec>,
    pub message: libc::msghdr,
}

/// The outcome of sending a message with a plain system call.
pub(crate) enum Sent {
    /// The socket took all of it: the number of bytes.
    All(i32),
    /// The socket took some of it.
    Part(Box<Unsent>),
    /// The socket took none; the ring has to try.
    Nothing,
}

/// Sends what the socket takes without waiting.
///
/// # Safety
/// `msg` and all it points to are valid.
pub(crate) unsafe fn send_now(fd: RawFd, msg: *const libc::msghdr, key: u32) -> Sent {
    let flags = libc::c_long::from(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // By number: the C library's function is a cancellation point, which costs.
    // SAFETY: the caller's promise.
    let (sent, message) =
        unsafe { (libc::syscall(libc::SYS_sendmsg, libc::c_long::from(fd), msg, flags), *msg) };
    let Ok(sent @ 1..) = i32::try_from(sent) else { return Sent::Nothing };
    // SAFETY: the message names its vectors.
    let all = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
    if all.iter().map(|v| v.iov_len).sum::<usize>() == sent as usize {
        return Sent::All(sent);
    }
    let mut rest = Box::new(Unsent { fd, key, sent, vectors: Vec::new(), message });
    remaining(all, sent as u64, u64::MAX, &mut rest.vectors);
    rest.message.msg_iov = rest.vectors.as_mut_ptr();
    rest.message.msg_iovlen = rest.vectors.len();
    Sent::Part(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// A message of two parts.
    fn message(parts: &[&[u8]]) -> (Vec<libc::iovec>, libc::msghdr) {
        let vector =
            |p: &&[u8]| libc::iovec { iov_base: p.as_ptr().cast_mut().cast(), iov_len: p.len() };
        let mut vectors: Vec<libc::iovec> = parts.iter().map(vector).collect();
        // SAFETY: a `msghdr` is numbers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = vectors.len();
        (vectors, message)
    }

    #[test]
    fn a_short_message_goes_out_whole() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_vectors, message) = message(&[b"head", b"data"]);
        // SAFETY: the message names live memory.
        let sent = unsafe { send_now(ours.as_raw_fd(), &raw const message, 1) };
        assert!(matches!(sent, Sent::All(8)));
        let mut got = [0; 8];
        theirs.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"headdata");
    }

    #[test]
    fn what_the_socket_does_not_take_is_left_byte_by_byte() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let data: Vec<u8> = (0..4 << 20).map(|n: u32| (n % 251) as u8).collect();
        let (_vectors, message) = message(&[b"head", &data]);
        // SAFETY: as above.
        let Sent::Part(rest) = (unsafe { send_now(ours.as_raw_fd(), &raw const message, 1) })
        else {
            panic!("4 MiB do not fit into a socket")
        };
        let left: usize = rest.vectors.iter().map(|v| v.iov_len).sum();
        assert_eq!(left + rest.sent as usize, data.len() + 4);
        // SAFETY: the vectors name what is left of `data`.
        let tail =
            unsafe { std::slice::from_raw_parts(rest.vectors[0].iov_base.cast::<u8>(), left) };
        let mut whole = vec![0; rest.sent as usize];
        theirs.read_exact(&mut whole).unwrap();
        whole.extend_from_slice(tail);
        assert_eq!(whole[..4], *b"head");
        assert!(whole[4..] == data[..]);
        // A full socket takes nothing, and a closed one is the ring's to report.
        let send = || {
            // SAFETY: as above.
            unsafe { send_now(ours.as_raw_fd(), &raw const message, 1) }
        };
        while let Sent::Part(_) | Sent::All(_) = send() {}
        drop(theirs);
        assert!(matches!(send(), Sent::Nothing));
    }
}
