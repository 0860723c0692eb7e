//! Requests' buffers as vectors of pieces, for all backends.

/// Zeroes for ranges that must be written by hand; never written to.
#[repr(align(4096))]
pub(crate) struct Zeroes(pub [u8; ZEROES]);
pub(crate) const ZEROES: usize = 256 << 10;
pub(crate) static ZERO_BLOCK: Zeroes = Zeroes([0; ZEROES]);

/// Fills `rest` with what remains of `buffers` after `skip` bytes, at most `max` bytes and
/// `IOV_MAX` pieces; returns its length in bytes.
pub(crate) fn remaining(
    buffers: &[libc::iovec],
    skip: u64,
    max: u64,
    rest: &mut Vec<libc::iovec>,
) -> u64 {
    rest.clear();
    let (mut skip, mut len) = (skip, 0);
    for buffer in buffers {
        let size = buffer.iov_len as u64;
        if skip >= size {
            skip -= size;
            continue;
        }
        let take = (size - skip).min(max - len);
        if take == 0 || rest.len() == libc::UIO_MAXIOV as usize {
            break;
        }
        rest.push(libc::iovec {
            iov_base: buffer.iov_base.cast::<u8>().wrapping_add(skip as usize).cast(),
            iov_len: take as usize,
        });
        skip = 0;
        len += take;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iovec(bytes: &mut [u8]) -> libc::iovec {
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn remaining_skips_and_cuts() {
        let mut memory = [0u8; 30];
        let (a, b) = memory.split_at_mut(10);
        let buffers = [iovec(a), iovec(b)];
        let mut rest = Vec::new();
        let lens = |rest: &[libc::iovec]| rest.iter().map(|v| v.iov_len).collect::<Vec<_>>();
        assert_eq!(remaining(&buffers, 0, 30, &mut rest), 30);
        assert_eq!(lens(&rest), [10, 20]);
        assert_eq!(remaining(&buffers, 4, 8, &mut rest), 8);
        assert_eq!(lens(&rest), [6, 2]);
        assert_eq!(remaining(&buffers, 10, 30, &mut rest), 20);
        assert_eq!(lens(&rest), [20]);
        assert_eq!(remaining(&buffers, 30, 30, &mut rest), 0);
    }
}
