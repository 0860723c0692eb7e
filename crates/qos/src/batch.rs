//! Locality batching (mClock, section 3.2.3).

use core::fmt;
use core::str::FromStr;
use headgate_units::Bytes;
use thiserror::Error;

/// Near requests of one disk go back to back, whoever is next meanwhile, so that storage that seeks
/// seeks less. Each is charged as if it had gone by itself: what a disk gets over a second is as
/// without batches. The price is delay, for reservations too: with N disks that batch a request
/// waits for up to `N * requests` others (mClock, section 3.2.3).
///
/// As text: `REQUESTS[,span=SIZE]`, such as `8,span=4M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Most requests of one disk back to back, 2 to 8.
    pub requests: u8,
    /// They all start within this distance of the first, 4 KiB to 1 GiB.
    pub span: Bytes,
}

impl Batch {
    /// The distance unless another is given, the paper's example.
    pub const SPAN: Bytes = Bytes::from_mib(4);
    const REQUESTS: core::ops::RangeInclusive<u8> = 2..=8;
    const SPANS: core::ops::RangeInclusive<u64> = 4096..=1 << 30;

    /// Is it in range.
    ///
    /// # Errors
    /// [`WrongBatch`] says what is not.
    pub fn validate(self) -> Result<Batch, WrongBatch> {
        if !Batch::REQUESTS.contains(&self.requests) {
            return Err(WrongBatch::Requests(self.requests));
        }
        if !Batch::SPANS.contains(&self.span.0) {
            return Err(WrongBatch::Span(self.span));
        }
        Ok(self)
    }
}

impl Default for Batch {
    /// 8 requests within 4 MiB, the paper's values.
    fn default() -> Batch {
        Batch { requests: *Batch::REQUESTS.end(), span: Batch::SPAN }
    }
}

/// No batch that there is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WrongBatch {
    /// Too long, or no batch.
    #[error("a batch must be 2 to 8 requests, not {0}")]
    Requests(u8),
    /// Too near or too far.
    #[error("requests of a batch must start within 4 KiB to 1 GiB of each other, not {0}")]
    Span(Bytes),
    /// Not a batch.
    #[error(
        "'{0}' is no batch: give 2 to 8 requests, and how near they must be, such as 8,span=4M"
    )]
    Text(alloc::string::String),
}

impl FromStr for Batch {
    type Err = WrongBatch;

    fn from_str(text: &str) -> Result<Batch, WrongBatch> {
        let wrong = || WrongBatch::Text(text.into());
        let (requests, span) = match text.split_once(',') {
            None => (text, Batch::SPAN),
            Some((requests, rest)) => {
                let size = rest.strip_prefix("span=").ok_or_else(wrong)?;
                (requests, size.parse().map_err(|_| wrong())?)
            }
        };
        Batch { requests: requests.parse().map_err(|_| wrong())?, span }.validate()
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Batch { requests, span: Bytes(span) } = self;
        match (span % (1 << 20), span % (1 << 10)) {
            (0, _) => write!(f, "{requests},span={}M", span >> 20),
            (_, 0) => write!(f, "{requests},span={}K", span >> 10),
            _ => write!(f, "{requests},span={span}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn what_is_out_of_range_says_what_is_in_it() {
        for text in ["", "many", "8,4M", "8,span=", "8,span=4M,", "-3", "2.5", "none"] {
            assert_eq!(text.parse::<Batch>(), Err(WrongBatch::Text(text.into())), "{text}");
        }
        assert_eq!("1".parse::<Batch>(), Err(WrongBatch::Requests(1)));
        assert_eq!("9,span=4M".parse::<Batch>(), Err(WrongBatch::Requests(9)));
        assert_eq!("4,span=4095".parse::<Batch>(), Err(WrongBatch::Span(Bytes(4095))));
        assert_eq!("4,span=2G".parse::<Batch>(), Err(WrongBatch::Span(Bytes(2 << 30))));
        assert_eq!("8".parse::<Batch>(), Ok(Batch::default()));
    }

    proptest! {
        #[test]
        fn its_text_is_read_as_it_is(requests in 2u8..=8, span in 4096u64..=1 << 30) {
            for span in [span, span & !1023, (span | 1 << 20) & !((1 << 20) - 1)] {
                let Ok(batch) = (Batch { requests, span: Bytes(span) }).validate() else { continue };
                prop_assert_eq!(batch.to_string().parse::<Batch>(), Ok(batch));
            }
        }
    }
}
