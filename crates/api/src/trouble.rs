//! Wire types of storage trouble: what disks hold, and the last error of their storage.

use headgate_model::{ErrorSample, TroubleSample};
use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a disk does about its storage's trouble now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TroubleState {
    /// It holds its requests, and tries one of them now and then.
    Held,
    /// Requests failed within the last 10 s, and its clients were told.
    Failing,
}

impl TroubleState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            TroubleState::Held => "held",
            TroubleState::Failing => "failing",
        }
    }
}

/// The trouble of a disk's storage, while it lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trouble {
    /// What the disk does about it.
    pub state: TroubleState,
    /// What the storage says.
    pub error: String,
    /// When it began to hold, in seconds since 1970, or when the last error was.
    pub since: u64,
    /// Requests that it holds.
    #[serde(default)]
    pub requests: usize,
    /// How often one of them was tried in vain.
    #[serde(default)]
    pub tries: u64,
}

/// An error of a disk's storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LastError {
    /// When, in seconds since 1970.
    pub at: u64,
    /// `read`, `write`, `flush` or `other`. Discards and write-zeroes are writes.
    pub op: String,
    /// What the storage says.
    pub error: String,
    /// Where the request began.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub offset: Bytes,
    /// Its length.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub length: Bytes,
}

/// One instant on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// On `CLOCK_MONOTONIC`.
    pub monotonic: Nanos,
    /// Seconds since 1970.
    pub wall: u64,
}

impl Moment {
    /// When something was, in seconds since 1970.
    fn wall_of(self, monotonic: Nanos) -> u64 {
        self.wall.saturating_sub(self.monotonic.since(monotonic).0 / 1_000_000_000)
    }
}

impl Trouble {
    /// What a disk does about it; `None`: there is none.
    pub fn of(sample: &TroubleSample, now: Moment) -> Option<Trouble> {
        if let Some(hold) = &sample.hold {
            return Some(Trouble {
                state: TroubleState::Held,
                error: hold.error.clone(),
                since: now.wall_of(hold.since),
                requests: hold.requests,
                tries: hold.tries,
            });
        }
        let last = sample.failing(now.monotonic)?;
        Some(Trouble {
            state: TroubleState::Failing,
            error: format!("{} failed: {}", last.op.as_str(), last.error),
            since: now.wall_of(last.at),
            requests: 0,
            tries: 0,
        })
    }
}

impl LastError {
    /// The same on the wire.
    pub fn of(sample: &ErrorSample, now: Moment) -> LastError {
        LastError {
            at: now.wall_of(sample.at),
            op: sample.op.as_str().into(),
            error: sample.error.clone(),
            offset: sample.offset,
            length: sample.len,
        }
    }
}

/// Prints a clause: `no space left on the storage under the disk; 17 requests are held, tried 3
/// times in vain`.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        match self.state {
            TroubleState::Failing => Ok(()),
            TroubleState::Held => {
                match self.requests {
                    1 => f.write_str("; 1 request is held, ")?,
                    n => write!(f, "; {n} requests are held, ")?,
                }
                match self.tries {
                    0 => f.write_str("not tried again yet"),
                    1 => f.write_str("tried once in vain"),
                    n => write!(f, "tried {n} times in vain"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_model::HoldSample;
    use headgate_stats::{ErrorKind, ErrorOp};

    #[test]
    fn trouble_is_told_while_it_lasts() {
        let now = |seconds| Moment { monotonic: Nanos::from_secs(seconds), wall: 1_000 + seconds };
        let mut sample = TroubleSample::default();
        assert_eq!(Trouble::of(&sample, now(1)), None);
        sample.last = Some(ErrorSample {
            at: Nanos::from_secs(5),
            op: ErrorOp::Write,
            kind: ErrorKind::Io,
            error: "EIO".into(),
            offset: Bytes(4096),
            len: Bytes(512),
        });
        assert_eq!(Trouble::of(&sample, now(6)), None, "it is held, or was");
        sample.reported = Some(Nanos::from_secs(5));
        let failing = Trouble::of(&sample, now(14)).unwrap();
        assert_eq!((failing.state, failing.since), (TroubleState::Failing, 1_005));
        assert_eq!(failing.to_string(), "write failed: EIO");
        assert_eq!(Trouble::of(&sample, now(15)), None, "it went by");
        let (since, error) = (Nanos::from_secs(6), "full".into());
        sample.hold = Some(HoldSample { since, error, requests: 3, tries: 2 });
        let held = Trouble::of(&sample, now(100)).unwrap();
        assert_eq!((held.state, held.since), (TroubleState::Held, 1_006));
        assert_eq!(held.to_string(), "full; 3 requests are held, tried 2 times in vain");
        let one = |tries| Trouble { requests: 1, tries, ..held.clone() }.to_string();
        assert_eq!(one(0), "full; 1 request is held, not tried again yet");
        assert_eq!(one(1), "full; 1 request is held, tried once in vain");
    }
}
