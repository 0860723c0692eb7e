use headgate_units::{Bytes, Nanos};
use thiserror::Error;

/// How the array spreads data over its spindles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raid {
    /// Striped, no redundancy.
    Raid0,
    /// Striped with one rotating parity unit in each row (left-symmetric). Small writes read and
    /// write twice.
    Raid5,
}

/// What the spindles are. Figures are typical of the class, not of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskKind {
    /// Fibre Channel, 15,000 rpm: seek 0.3 to 6.4 ms, 3.6 ms on average; rotation 4 ms; 100 MB/s.
    Fc15k,
    /// SATA, 7,200 rpm: seek 0.8 to 15.2 ms, 8.5 ms on average; rotation 8.3 ms; 70 MB/s.
    Sata7k,
}

/// What becomes of the write-back cache when the power fails, which decides what a flush has to
/// wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CachePower {
    /// It survives: a flush is answered at once.
    Battery,
    /// It is lost: a flush waits until all that was written before it is on the disks.
    Volatile,
}

/// What a disk does so that nobody waits for ever while it serves what lies near its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ageing {
    /// The oldest piece is passed over 64 times in a row, then it is served. It bounds how long one
    /// piece waits and not what it costs to lie far from the others, so that clients with many
    /// pieces near each other take what is due to those with few.
    Passes,
    /// Aged shortest positioning time first: a piece that has waited longer than another by this
    /// time goes first wherever it lies, and by a part of it as far as the other is nearer by less
    /// than that part of the longest positioning (ASPTF of Worthington, Ganger, Patt, SIGMETRICS
    /// 1994, and ASATF of Jacobson and Wilkes, HPL-CSL-91-7, with their weight W being the longest
    /// positioning over this time). 100 us to 100 s.
    Time(Nanos),
}

/// A spindle array, as configured. Always valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    pub(crate) spindles: u32,
    pub(crate) raid: Raid,
    pub(crate) disk: DiskKind,
    pub(crate) unit: Bytes,
    pub(crate) cache: Bytes,
    pub(crate) power: CachePower,
    pub(crate) readahead: Bytes,
    pub(crate) elevator: u32,
    pub(crate) ageing: Ageing,
    pub(crate) slowdown: u32,
    pub(crate) seed: u64,
}

/// A setting that an array cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArraySpecError {
    /// Too few or too many spindles.
    #[error(
        "an array has {min} to {max} spindles at this RAID level, not {given}; give a number in that range"
    )]
    Spindles {
        /// The least.
        min: u32,
        /// The most.
        max: u32,
        /// As given.
        given: u32,
    },
    /// Stripe unit out of range.
    #[error(
        "a stripe unit is 4 KiB to 16 MiB and a multiple of 512 bytes, not {0}; give such a size"
    )]
    Unit(Bytes),
    /// Cache out of range.
    #[error("a write-back cache is 0 (none) to 64 GiB, not {0}; give a size in that range")]
    Cache(Bytes),
    /// Read-ahead out of range.
    #[error(
        "a read-ahead is 0 (none) to 64 MiB for each stream, not {0}; give a size in that range"
    )]
    ReadAhead(Bytes),
    /// Elevator out of range.
    #[error(
        "an elevator chooses among 1 (first come, first served) to 256 requests, not {0}; give a number in that range"
    )]
    Elevator(u32),
    /// Ageing out of range.
    #[error("the ageing of an array is 100us to 100s, or passes, not {0}; give such a time")]
    Ageing(Nanos),
    /// Slowdown out of range.
    #[error("an array moves 1 to 64 times as slowly as its disks, not {0}; give such a number")]
    Slowdown(u32),
}

impl ArraySpec {
    /// The largest array.
    pub const MAX_SPINDLES: u32 = 256;
    pub(crate) const MAX_CACHE: Bytes = Bytes::from_gib(64);
    pub(crate) const MAX_READAHEAD: Bytes = Bytes::from_mib(64);
    pub(crate) const MAX_ELEVATOR: u32 = 256;
    pub(crate) const MAX_SLOWDOWN: u32 = 64;
    pub(crate) const AGEING: Ageing = Ageing::Time(Nanos::from_millis(300));

    /// An array of [`DiskKind::Fc15k`] disks, stripe unit 64 KiB, cache 256 MiB with a battery, no
    /// read-ahead, elevators that choose among 32 requests, seed 1.
    ///
    /// # Errors
    /// [`ArraySpecError::Spindles`] unless there are 1 to 256 spindles, with RAID-5 at least 3.
    pub fn new(spindles: u32, raid: Raid) -> Result<ArraySpec, ArraySpecError> {
        let min = match raid {
            Raid::Raid0 => 1,
            Raid::Raid5 => 3,
        };
        let max = ArraySpec::MAX_SPINDLES;
        if !(min..=max).contains(&spindles) {
            return Err(ArraySpecError::Spindles { min, max, given: spindles });
        }
        Ok(ArraySpec {
            spindles,
            raid,
            disk: DiskKind::Fc15k,
            unit: Bytes::from_kib(64),
            cache: Bytes::from_mib(256),
            power: CachePower::Battery,
            readahead: Bytes(0),
            elevator: 32,
            ageing: ArraySpec::AGEING,
            slowdown: 1,
            seed: 1,
        })
    }

    /// The same with other disks.
    pub fn with_disk(self, disk: DiskKind) -> ArraySpec {
        ArraySpec { disk, ..self }
    }

    /// The same with other rotation phases and head positions at the start: the only thing here
    /// that is random.
    pub fn with_seed(self, seed: u64) -> ArraySpec {
        ArraySpec { seed, ..self }
    }

    /// The same with another stripe unit: what lies on one spindle before the next one's turn.
    ///
    /// # Errors
    /// [`ArraySpecError::Unit`] unless it is 4 KiB to 16 MiB and a multiple of 512 bytes.
    pub fn with_unit(self, unit: Bytes) -> Result<ArraySpec, ArraySpecError> {
        let fits = (Bytes::from_kib(4)..=Bytes::from_mib(16)).contains(&unit)
            && unit.0.is_multiple_of(512);
        if fits { Ok(ArraySpec { unit, ..self }) } else { Err(ArraySpecError::Unit(unit)) }
    }

    /// The same with another write-back cache; 0 is none.
    ///
    /// # Errors
    /// [`ArraySpecError::Cache`] when it is larger than 64 GiB.
    pub fn with_cache(self, cache: Bytes, power: CachePower) -> Result<ArraySpec, ArraySpecError> {
        if cache > ArraySpec::MAX_CACHE {
            return Err(ArraySpecError::Cache(cache));
        }
        Ok(ArraySpec { cache, power, ..self })
    }

    /// The same with so many bytes read ahead of each sequential stream; 0 is none. It takes
    /// nothing from the write-back cache. The model's own memory is some tens of bytes for each
    /// stripe unit, for at most 16 streams.
    ///
    /// # Errors
    /// [`ArraySpecError::ReadAhead`] when it is larger than 64 MiB.
    pub fn with_readahead(self, readahead: Bytes) -> Result<ArraySpec, ArraySpecError> {
        if readahead > ArraySpec::MAX_READAHEAD {
            return Err(ArraySpecError::ReadAhead(readahead));
        }
        Ok(ArraySpec { readahead, ..self })
    }

    /// The same with spindles that choose their next piece of work among so many, the oldest: what
    /// a disk's command queue holds. 1 is first come, first served; 32 is that of SATA's native
    /// command queuing.
    ///
    /// # Errors
    /// [`ArraySpecError::Elevator`] unless it is 1 to 256.
    pub fn with_elevator(self, elevator: u32) -> Result<ArraySpec, ArraySpecError> {
        let fits = (1..=ArraySpec::MAX_ELEVATOR).contains(&elevator);
        if fits {
            Ok(ArraySpec { elevator, ..self })
        } else {
            Err(ArraySpecError::Elevator(elevator))
        }
    }

    /// The same with spindles that keep pieces from waiting for ever in this way.
    ///
    /// # Errors
    /// [`ArraySpecError::Ageing`] when it is a time below 100 us or above 100 s.
    pub fn with_ageing(self, ageing: Ageing) -> Result<ArraySpec, ArraySpecError> {
        match ageing {
            Ageing::Time(time)
                if !(Nanos::from_micros(100)..=Nanos::from_secs(100)).contains(&time) =>
            {
                Err(ArraySpecError::Ageing(time))
            }
            _ => Ok(ArraySpec { ageing, ..self }),
        }
    }

    /// The same in slow motion: all that it does takes so many times as long, controller, link and
    /// cache included. For machines that cannot keep up with many spindles.
    ///
    /// # Errors
    /// [`ArraySpecError::Slowdown`] unless it is 1 to 64.
    pub fn with_slowdown(self, slowdown: u32) -> Result<ArraySpec, ArraySpecError> {
        let fits = (1..=ArraySpec::MAX_SLOWDOWN).contains(&slowdown);
        if fits {
            Ok(ArraySpec { slowdown, ..self })
        } else {
            Err(ArraySpecError::Slowdown(slowdown))
        }
    }
}
