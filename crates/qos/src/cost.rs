use crate::config::ConfigError;
use crate::direction::Direction;
use crate::rate::Divisor;
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::num::NonZeroU64;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;
use headgate_units::{Bytes, Priority};
use thiserror::Error;

/// A request as the scheduler sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Bytes moved; 0 for flush, discard and write-zeroes. More than 4 GiB counts as 4 GiB.
    pub bytes: Bytes,
    /// First byte of the range on the disk, for [`Batch`](crate::Batch), which counts in steps of
    /// 256 bytes.
    pub position: u64,
    /// The priority that the guest's application gave, before the VM's maximum applies.
    pub priority: Option<Priority>,
    /// The kind of request: its direction, and whether it inherits a priority.
    pub kind: IoKind,
}

/// The kind of a request, for limits of one direction and for priority inheritance. Flushes and
/// journal writes are waited for by other applications than the one that sent them
/// (`docs/decisions/0012-fsync.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// A read, or a question about the disk.
    #[default]
    Read,
    /// A write, or zeroes. A later flush inherits its priority.
    Write,
    /// A write of a file system's journal, which inherits a priority.
    Journal,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

impl IoKind {
    /// Which of a disk's [limits of one direction](crate::DirectionLimits) it counts for.
    #[inline]
    pub const fn direction(self) -> Direction {
        match self {
            IoKind::Read => Direction::Read,
            IoKind::Write | IoKind::Journal | IoKind::Flush | IoKind::Discard => Direction::Write,
        }
    }
}

/// The cost of a request, in millionths of a reference IO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// One reference IO.
    pub const ONE: Cost = Cost(1_000_000);
    /// The most that one request is charged: 65,536 reference IOs.
    pub const MAX: Cost = Cost(65_536 * 1_000_000);

    /// `ios` reference IOs; saturates.
    pub const fn from_ios(ios: u64) -> Cost {
        Cost(ios.saturating_mul(Cost::ONE.0))
    }

    /// Millionths of a reference IO.
    pub const fn from_millionths(millionths: u64) -> Cost {
        Cost(millionths)
    }

    /// Millionths of a reference IO.
    pub const fn as_millionths(self) -> u64 {
        self.0
    }

    /// What is left without `other`; nothing at least.
    #[inline]
    pub(crate) const fn less(self, other: Cost) -> Cost {
        Cost(self.0.saturating_sub(other.0))
    }

    /// One of `n` parts of it, rounded down.
    #[inline]
    pub(crate) const fn part(self, n: u64) -> Cost {
        Cost(self.0 / n)
    }

    /// `n` times the cost; saturates.
    #[inline]
    pub(crate) const fn times(self, n: u64) -> Cost {
        Cost(self.0.saturating_mul(n))
    }
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost(self.0.saturating_add(other.0))
    }
}

/// Stops at nothing.
impl Sub for Cost {
    type Output = Cost;
    fn sub(self, other: Cost) -> Cost {
        Cost(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        *self = *self + other;
    }
}

/// Prints reference IOs: `1.013`.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / Cost::ONE.0, self.0 % Cost::ONE.0 / 1_000)
    }
}

/// How the size of a request becomes its [`Cost`].
///
/// Written `unit`, `affine=300K`, `chunks=32K`, `learned` or `learned=64K`, where the size is the
/// reference, 512 bytes at least. `Display` writes what parses back to the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostModel {
    /// Every request is one IO.
    Unit,
    /// `1 + size / reference`: a random IO of a spindle (paper section 3.2.2, equation 5), where
    /// `reference` is the mean mechanical delay times the peak transfer rate. 512 bytes at least.
    Affine {
        /// The size whose transfer takes as long as one seek.
        reference: Bytes,
    },
    /// `size / reference`, but one IO at least: every started chunk beyond the first is charged in
    /// proportion. 512 bytes at least.
    Chunks {
        /// The size of a chunk, 32 KiB in products that count this way.
        reference: Bytes,
    },
    /// What the device's time says it is, by read or write, random or sequential, and size, in
    /// parts of a random read of 4 KiB (`docs/decisions/0053-learned-costs.md`). Begins with
    /// [`CostModel::Affine`] of the same reference, and stays with it in all that cannot be
    /// observed. Windows, which convert latencies, have that model throughout.
    Learned {
        /// Of the model that it begins with.
        reference: Bytes,
    },
}

impl CostModel {
    /// The paper's reference: 5 ms at 60 MB/s.
    const REFERENCE: Bytes = Bytes::from_kib(300);
}

impl Default for CostModel {
    /// The paper's constants, 5 ms and 60 MB/s: `1 + size / 300 KiB`.
    fn default() -> CostModel {
        CostModel::Affine { reference: CostModel::REFERENCE }
    }
}

/// The text is no [`CostModel`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{given}' is not a cost model; write unit (every request is one IO), affine=SIZE (1 + size/SIZE, the paper's, with 300K), \
     chunks=SIZE (size/SIZE, one at least), or learned or learned=SIZE (what the device does, beginning with affine=SIZE), \
     SIZE being 512 or more"
)]
pub struct UnknownCostModel {
    /// The text.
    pub given: String,
}

impl FromStr for CostModel {
    type Err = UnknownCostModel;
    fn from_str(text: &str) -> Result<CostModel, UnknownCostModel> {
        let unknown = || UnknownCostModel { given: text.to_owned() };
        if text == "unit" {
            return Ok(CostModel::Unit);
        }
        if text == "learned" {
            return Ok(CostModel::Learned { reference: CostModel::REFERENCE });
        }
        let (kind, size) = text.split_once('=').ok_or_else(unknown)?;
        let reference: Bytes = size.parse().map_err(|_| unknown())?;
        let model = match kind {
            "affine" => CostModel::Affine { reference },
            "chunks" => CostModel::Chunks { reference },
            "learned" => CostModel::Learned { reference },
            _ => return Err(unknown()),
        };
        CostMeter::new(model).map(|_| model).map_err(|_| unknown())
    }
}

impl fmt::Display for CostModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, reference) = match self {
            CostModel::Unit => return f.write_str("unit"),
            CostModel::Affine { reference } => ("affine", reference.0),
            CostModel::Chunks { reference } => ("chunks", reference.0),
            CostModel::Learned { reference: CostModel::REFERENCE } => {
                return f.write_str("learned");
            }
            CostModel::Learned { reference } => ("learned", reference.0),
        };
        match reference % 1024 {
            0 => write!(f, "{kind}={}K", reference / 1024),
            _ => write!(f, "{kind}={reference}"),
        }
    }
}

/// A [`CostModel`] by size alone made ready: no division per request. One that is learned is the
/// model that it begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostMeter {
    base: u64,
    per: Option<Divisor>,
}

/// Bytes fit in 32 bits inside the scheduler.
pub(crate) fn clamp_bytes(bytes: Bytes) -> u32 {
    u32::try_from(bytes.0).unwrap_or(u32::MAX)
}

impl CostMeter {
    pub(crate) fn new(model: CostModel) -> Result<CostMeter, ConfigError> {
        let divisor = |reference: Bytes| match NonZeroU64::new(reference.0) {
            Some(size) if size.get() >= 512 => Ok(Some(Divisor::new(size))),
            _ => Err(ConfigError::CostReference(reference)),
        };
        Ok(match model {
            CostModel::Unit => CostMeter { base: Cost::ONE.0, per: None },
            CostModel::Affine { reference } | CostModel::Learned { reference } => {
                CostMeter { base: Cost::ONE.0, per: divisor(reference)? }
            }
            CostModel::Chunks { reference } => CostMeter { base: 0, per: divisor(reference)? },
        })
    }

    #[inline]
    pub(crate) fn cost(&self, bytes: u32) -> Cost {
        let Some(per) = &self.per else { return Cost(self.base) };
        let (size, _) = per.div_rem(u64::from(bytes) * Cost::ONE.0);
        Cost((self.base + size).clamp(Cost::ONE.0, Cost::MAX.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charged(model: CostModel, bytes: u64) -> u64 {
        CostMeter::new(model).unwrap().cost(clamp_bytes(Bytes(bytes))).as_millionths()
    }

    #[test]
    fn the_papers_charges_by_size() {
        let kib = |n: u64| n << 10;
        for (bytes, thousandths) in [
            (512, 1_001),
            (kib(4), 1_013),
            (kib(8), 1_026),
            (kib(16), 1_053),
            (kib(32), 1_106),
            (kib(64), 1_213),
            (kib(128), 1_426),
            (kib(256), 1_853),
            (kib(512), 2_706),
            (kib(1024), 4_413),
            (0, 1_000),
        ] {
            assert_eq!(charged(CostModel::default(), bytes) / 1_000, thousandths, "{bytes} bytes");
        }
    }

    #[test]
    fn chunks_charge_one_io_at_least() {
        let model = CostModel::Chunks { reference: Bytes::from_kib(32) };
        assert_eq!(charged(model, 0), 1_000_000);
        assert_eq!(charged(model, 32 << 10), 1_000_000);
        assert_eq!(charged(model, 48 << 10), 1_500_000);
    }

    #[test]
    fn no_size_is_charged_more_than_the_maximum() {
        let model = CostModel::Affine { reference: Bytes(512) };
        assert_eq!(charged(model, u64::MAX), Cost::MAX.as_millionths());
        assert!(CostMeter::new(CostModel::Affine { reference: Bytes(511) }).is_err());
    }

    #[test]
    fn the_text_of_a_model_parses_back() {
        for (text, model) in [
            ("unit", CostModel::Unit),
            ("affine=300K", CostModel::default()),
            ("chunks=32K", CostModel::Chunks { reference: Bytes::from_kib(32) }),
            ("affine=1000", CostModel::Affine { reference: Bytes(1000) }),
            ("learned", CostModel::Learned { reference: Bytes::from_kib(300) }),
            ("learned=64K", CostModel::Learned { reference: Bytes::from_kib(64) }),
        ] {
            assert_eq!(text.parse(), Ok(model));
            assert_eq!(model.to_string(), text);
        }
        assert_eq!(
            "affine=0.5M".parse(),
            Ok(CostModel::Affine { reference: Bytes::from_kib(512) })
        );
        for text in [
            "",
            "Unit",
            "affine",
            "affine=",
            "affine=0",
            "chunks=511",
            "chunks=-1",
            "size=4K",
            "unit=1",
            "learned=",
            "learned=0",
        ] {
            let error = text.parse::<CostModel>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("'{text}' is not a cost model; write unit")),
                "{error}"
            );
        }
    }

    #[test]
    fn display_shows_thousandths() {
        assert_eq!(Cost(1_013_653).to_string(), "1.013");
    }
}
