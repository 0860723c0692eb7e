//! What an export can do.

use crate::request::MAX_REQUEST;
use headgate_nbd::client::form::Form;
use headgate_nbd::client::handshake::ExportInfo;
use headgate_nbd::wire::export;
use thiserror::Error;

/// The longest payload of a request that servers take unless they say otherwise, in bytes.
const PAYLOAD_MAX: u32 = 32 << 20;

const _: () = assert!(PAYLOAD_MAX as u64 == MAX_REQUEST, "every request fits one command");

/// The smallest unit of a request that a disk of ours has, in bytes; servers that say nothing take
/// it.
const BLOCK_MIN: u32 = 512;
/// The largest, in bytes: what guests and clients know.
const BLOCK_MAX: u32 = 4096;

/// Why an export cannot be a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unusable {
    /// Disks are written.
    #[error("the export is read-only: a disk must be writable")]
    ReadOnly,
    /// The unit is too large, or none.
    #[error(
        "the server wants requests in units of {0} bytes: a power of two up to {BLOCK_MAX} was expected"
    )]
    Block(u32),
    /// Not whole blocks.
    #[error("the export has {size} bytes, which are no whole blocks of {block} bytes")]
    Size {
        /// The export's size in bytes.
        size: u64,
        /// In bytes.
        block: u32,
    },
    /// A request must hold a block at least.
    #[error("the server takes no more than {0} bytes in a request")]
    Payload(u32),
}

/// What an export can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// In bytes, a multiple of `block_size`.
    pub size: u64,
    /// Smallest unit of a request in bytes: 512 to 4096, a power of two.
    pub block_size: u32,
    /// Most bytes that a request reads or writes, a multiple of `block_size`.
    pub payload_max: u32,
    /// The unit that the server serves best, in bytes, as it says; 0: it says none.
    pub preferred: u32,
    flags: u16,
    /// It says what ranges hold.
    status: bool,
}

impl Offer {
    /// An export as its server describes it, in replies of this form.
    pub(crate) fn check(info: ExportInfo, form: Form) -> Result<Offer, Unusable> {
        if info.is_read_only() {
            return Err(Unusable::ReadOnly);
        }
        let block_size = match info.min_block {
            Some(min) if min > BLOCK_MAX || !min.is_power_of_two() => {
                return Err(Unusable::Block(min));
            }
            min => min.unwrap_or(BLOCK_MIN).max(BLOCK_MIN),
        };
        if info.size == 0 || !info.size.is_multiple_of(u64::from(block_size)) {
            return Err(Unusable::Size { size: info.size, block: block_size });
        }
        let asked = info.max_block.unwrap_or(PAYLOAD_MAX);
        let payload_max = asked.min(PAYLOAD_MAX) / block_size * block_size;
        if payload_max == 0 {
            return Err(Unusable::Payload(asked));
        }
        let preferred = info.preferred_block.unwrap_or(0);
        let status = form.allocation().is_some();
        Ok(Offer { size: info.size, block_size, payload_max, preferred, flags: info.flags, status })
    }

    /// Has the server a cache that a flush empties. Without the flag, the specification says, there
    /// is nothing to flush.
    pub(crate) fn flush(self) -> bool {
        self.flags & export::SEND_FLUSH != 0
    }

    pub(crate) fn fua(self) -> bool {
        self.flags & export::SEND_FUA != 0
    }

    pub(crate) fn trim(self) -> bool {
        self.flags & export::SEND_TRIM != 0
    }

    pub(crate) fn write_zeroes(self) -> bool {
        self.flags & export::SEND_WRITE_ZEROES != 0
    }

    /// Does a flush on one connection cover the writes of all.
    pub(crate) fn several_connections(self) -> bool {
        self.flags & export::CAN_MULTI_CONN != 0
    }

    /// Does it say what ranges hold.
    pub(crate) fn status(self) -> bool {
        self.status
    }

    /// Can it refuse zeroing that would be slow.
    pub(crate) fn fast_zero(self) -> bool {
        self.flags & export::SEND_FAST_ZERO != 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use headgate_nbd::counters::Version;

    fn check(info: ExportInfo) -> Result<Offer, Unusable> {
        Offer::check(info, Form::Simple)
    }

    pub(crate) fn info(flags: u16) -> ExportInfo {
        let (size, min_block, preferred_block, max_block) = (1 << 30, None, None, None);
        ExportInfo { size, flags, min_block, preferred_block, max_block }
    }

    #[test]
    fn a_server_that_says_nothing_gets_the_defaults() {
        let offer = Offer::check(info(1), Form::Simple).unwrap();
        assert_eq!((offer.size, offer.block_size, offer.payload_max), (1 << 30, 512, 32 << 20));
        assert!(
            !offer.flush()
                && !offer.fua()
                && !offer.trim()
                && !offer.write_zeroes()
                && !offer.fast_zero()
                && !offer.status()
        );
    }

    #[test]
    fn what_ranges_hold_is_asked_where_there_is_a_context_for_it() {
        let (none, some) = (None, Some(7));
        for (form, asked) in [
            (Form::Simple, false),
            (Form::Counted { version: Version::NEWEST, allocation: none }, false),
            (Form::Structured { allocation: none }, false),
            (Form::Counted { version: Version::NEWEST, allocation: some }, true),
            (Form::Structured { allocation: some }, true),
        ] {
            assert_eq!(Offer::check(info(1), form).unwrap().status(), asked, "{form:?}");
        }
    }

    #[test]
    fn units_are_kept_within_what_disks_know() {
        let with = |min_block, max_block| check(ExportInfo { min_block, max_block, ..info(1) });
        assert_eq!(with(Some(1), None).unwrap().block_size, 512);
        assert_eq!(with(Some(4096), Some(100_000)).unwrap().payload_max, 98_304);
        assert_eq!(with(Some(1), Some(u32::MAX)).unwrap().payload_max, 32 << 20);
        assert_eq!(with(Some(8192), None), Err(Unusable::Block(8192)));
        assert_eq!(with(Some(0), None), Err(Unusable::Block(0)));
        assert_eq!(with(Some(4096), Some(4095)), Err(Unusable::Payload(4095)));
        assert_eq!(check(info(3)), Err(Unusable::ReadOnly));
        let odd = ExportInfo { size: 1000, ..info(1) };
        assert_eq!(check(odd), Err(Unusable::Size { size: 1000, block: 512 }));
    }
}
