use crate::options::{
    ModelSpecError, Options, by_name, name_of, parse_latency, write_latency, write_size,
};
use crate::rate_spec::RateSpec;
use crate::{
    Ageing, ArraySpec, CachePower, DeviceModel, DiskKind, Null, Raid, SpindleArray, Ssd, SsdSpec,
    ssd,
};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;
use headgate_units::Bytes;

/// A device model as the command line and the catalogue write it.
///
/// - `rate=1600[,latency=5ms][,depth=32][,service=constant|exponential|pareto][,seed=1]
///   [,stragglers=16:300ms][,stall=1s/5s]`: a [`FixedRate`](crate::FixedRate). Latency is 0 to
///   100 s with a unit (`ns`, `us`, `ms`, `s`), 100 us unless given; depth is 1 to 65,536, 1,024
///   unless given; [`service`](crate::ServiceTime) is `constant` unless given, and only the others
///   have a seed; stragglers and stall put those [layers](crate::layer) on the device, none unless
///   given.
/// - `array=10[,raid=0|5][,disk=fc15k|sata7k][,unit=64K][,cache=256M][,power=battery|volatile]
///   [,readahead=0][,elevator=32][,ageing=300ms|passes][,slowdown=1][,seed=1]`: a
///   [`SpindleArray`]; what is not given is as in [`ArraySpec::new`], RAID-0.
/// - `ssd[=2G][,op=15%][,isolation=none|static|dynamic][,aged=yes|full|no][,rated=1000]
///   [,hysteresis=1%][,victims=greedy|cost-benefit|fifo][,buffer=0][,background=yes|no]
///   [,copyback=yes|no][,dies=8][,channels=8][,planes=8][,block=64]
///   [,page=4K][,read=25us][,program=200us][,erase=1500us][,transfer=102400ns][,seed=1]`: an
///   [`Ssd`]. `rated` is what dynamic isolation divides by shares, in page writes per second;
///   `hysteresis` how far from its target a disk's utilisation may be.
/// - `null`: a [`Null`].
///
/// `Display` writes every option and parses back to the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelSpec {
    /// A [`FixedRate`](crate::FixedRate).
    Rate(RateSpec),
    /// A [`SpindleArray`].
    Array(ArraySpec),
    /// An [`Ssd`].
    Ssd(SsdSpec),
    /// A [`Null`].
    Null,
}

/// Does a larger request take a device longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeCost {
    /// No: every request takes the same.
    Nothing,
    /// Yes.
    Time,
}

impl ModelSpec {
    /// What the size of a request costs this device.
    pub fn size_cost(&self) -> SizeCost {
        match self {
            ModelSpec::Rate(_) | ModelSpec::Null => SizeCost::Nothing,
            ModelSpec::Array(_) | ModelSpec::Ssd(_) => SizeCost::Time,
        }
    }

    /// The capacity that the text says; `None` for a device that is as large as its driver wants.
    pub fn capacity(&self) -> Option<Bytes> {
        match self {
            ModelSpec::Ssd(spec) => Some(spec.size()),
            ModelSpec::Rate(_) | ModelSpec::Array(_) | ModelSpec::Null => None,
        }
    }

    /// A device with nothing in it, of `capacity` bytes, which only an array looks at (see
    /// [`SpindleArray::new`]).
    pub fn build(&self, capacity: Bytes) -> Box<dyn DeviceModel + Send> {
        match self {
            ModelSpec::Rate(spec) => spec.build(),
            ModelSpec::Array(spec) => Box::new(SpindleArray::new(spec, capacity)),
            ModelSpec::Ssd(spec) => Box::new(Ssd::new(spec)),
            ModelSpec::Null => Box::new(Null::new()),
        }
    }
}

impl FromStr for ModelSpec {
    type Err = ModelSpecError;

    fn from_str(text: &str) -> Result<ModelSpec, ModelSpecError> {
        let unknown = || ModelSpecError::UnknownModel { given: text.to_owned() };
        let (head, rest) =
            text.split_once(',').map_or((text, None), |(head, rest)| (head, Some(rest)));
        match head.split_once('=') {
            Some(("rate", rate)) => Ok(ModelSpec::Rate(RateSpec::parse(rate, rest)?)),
            Some(("array", spindles)) => {
                let known = "raid, disk, unit, cache, power, readahead, elevator, ageing, slowdown and seed";
                parse_array(spindles, Options::split("array", known, rest)?)
            }
            Some(("ssd", size)) => Ok(ModelSpec::Ssd(ssd::text::parse(
                Some(size),
                Options::split("ssd", ssd::text::KNOWN, rest)?,
            )?)),
            None if head == "ssd" => Ok(ModelSpec::Ssd(ssd::text::parse(
                None,
                Options::split("ssd", ssd::text::KNOWN, rest)?,
            )?)),
            None if head == "null" => {
                Options::split("null", "no options", rest)?.finish()?;
                Ok(ModelSpec::Null)
            }
            _ => Err(unknown()),
        }
    }
}

fn parse_array(spindles: &str, mut options: Options) -> Result<ModelSpec, ModelSpecError> {
    let spindles = spindles.parse().map_err(|_| ModelSpecError::BadValue {
        option: "array",
        given: spindles.to_owned(),
        expected: "the number of spindles, 1 to 256".to_owned(),
    })?;
    let size = |text: &str| text.parse::<Bytes>().ok();
    let raid = options.take("raid", |text| by_name(&RAIDS, text), "0 or 5")?;
    let mut spec = ArraySpec::new(spindles, raid.unwrap_or(Raid::Raid0))?;
    if let Some(disk) = options.take("disk", |text| by_name(&DISKS, text), "fc15k or sata7k")? {
        spec = spec.with_disk(disk);
    }
    if let Some(unit) = options.take("unit", size, "a size such as 64K")? {
        spec = spec.with_unit(unit)?;
    }
    let cache = options.take("cache", size, "a size such as 256M, or 0 for none")?;
    let power = options.take("power", |text| by_name(&POWERS, text), "battery or volatile")?;
    spec = spec.clone().with_cache(cache.unwrap_or(spec.cache), power.unwrap_or(spec.power))?;
    if let Some(readahead) = options.take("readahead", size, "a size such as 1M, or 0 for none")? {
        spec = spec.with_readahead(readahead)?;
    }
    if let Some(elevator) =
        options.take("elevator", |text| text.parse().ok(), "a whole number from 1 to 256")?
    {
        spec = spec.with_elevator(elevator)?;
    }
    if let Some(ageing) = options.take("ageing", ageing_of, "a time such as 300ms, or passes")? {
        spec = spec.with_ageing(ageing)?;
    }
    if let Some(slowdown) =
        options.take("slowdown", |text| text.parse().ok(), "a whole number from 1 to 64")?
    {
        spec = spec.with_slowdown(slowdown)?;
    }
    if let Some(seed) = options.take(
        "seed",
        |text| text.parse().ok(),
        "a whole number from 0 to 18446744073709551615",
    )? {
        spec = spec.with_seed(seed);
    }
    options.finish()?;
    Ok(ModelSpec::Array(spec))
}

fn ageing_of(text: &str) -> Option<Ageing> {
    if text == PASSES { Some(Ageing::Passes) } else { parse_latency(text).map(Ageing::Time) }
}

fn write_ageing(f: &mut fmt::Formatter<'_>, ageing: Ageing) -> fmt::Result {
    match ageing {
        Ageing::Passes => write!(f, ",ageing={PASSES}"),
        Ageing::Time(time) => {
            f.write_str(",ageing=")?;
            write_latency(f, time)
        }
    }
}

const PASSES: &str = "passes";
const RAIDS: [(&str, Raid); 2] = [("0", Raid::Raid0), ("5", Raid::Raid5)];
const DISKS: [(&str, DiskKind); 2] = [("fc15k", DiskKind::Fc15k), ("sata7k", DiskKind::Sata7k)];
const POWERS: [(&str, CachePower); 2] =
    [("battery", CachePower::Battery), ("volatile", CachePower::Volatile)];

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelSpec::Rate(spec) => spec.fmt(f),
            ModelSpec::Array(spec) => {
                let (raid, disk) = (name_of(&RAIDS, &spec.raid), name_of(&DISKS, &spec.disk));
                write!(f, "array={},raid={raid},disk={disk},unit=", spec.spindles)?;
                write_size(f, spec.unit)?;
                f.write_str(",cache=")?;
                write_size(f, spec.cache)?;
                write!(f, ",power={},readahead=", name_of(&POWERS, &spec.power))?;
                write_size(f, spec.readahead)?;
                write!(f, ",elevator={}", spec.elevator)?;
                write_ageing(f, spec.ageing)?;
                if spec.slowdown > 1 {
                    write!(f, ",slowdown={}", spec.slowdown)?;
                }
                write!(f, ",seed={}", spec.seed)
            }
            ModelSpec::Ssd(spec) => ssd::text::write(f, spec),
            ModelSpec::Null => f.write_str("null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZeroU32;
    use headgate_units::{Iops, Nanos};

    fn error_of(text: &str) -> String {
        text.parse::<ModelSpec>().unwrap_err().to_string()
    }

    #[test]
    fn options_may_be_left_out_and_come_in_any_order() {
        let full = ModelSpec::Rate(RateSpec {
            latency: Nanos::from_millis(5),
            depth: NonZeroU32::new(32).unwrap(),
            ..RateSpec::new(Iops::new(1600).unwrap())
        });
        assert_eq!("rate=1600,latency=5ms,depth=32".parse(), Ok(full.clone()));
        assert_eq!("rate=1600,depth=32,latency=5000us".parse(), Ok(full));
        assert_eq!(
            "rate=7".parse::<ModelSpec>().unwrap().to_string(),
            "rate=7,latency=100us,depth=1024"
        );
        assert_eq!(
            "array=10,seed=7,raid=5".parse::<ModelSpec>().unwrap().to_string(),
            "array=10,raid=5,disk=fc15k,unit=64K,cache=256M,power=battery,readahead=0,elevator=32,ageing=300ms,seed=7"
        );
        assert_eq!("null".parse(), Ok(ModelSpec::Null));
    }

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in [
            "rate=1",
            "rate=1000000000,latency=0s",
            "rate=5,latency=1234567ns,depth=65536",
            "rate=5,stragglers=16:300ms",
            "array=1",
            "array=256,raid=5,disk=sata7k,unit=4608,cache=0,power=volatile,readahead=64M,seed=18446744073709551615",
            "array=3,unit=16M,cache=1.5G,readahead=100,elevator=1",
            "array=3,elevator=256,slowdown=64",
            "array=3,ageing=passes",
            "array=3,ageing=1500us",
            "ssd",
            "ssd=1.5G,op=7.25%,isolation=dynamic,rated=2500,targets=published,hysteresis=0.2%,victims=cost-benefit,buffer=3M,aged=full",
            "ssd=4M,op=50%,dies=2,planes=1,channels=1,block=32,page=8K,read=0s,erase=1ns,background=no,copyback=no,aged=yes,seed=9",
            "null",
        ] {
            let spec: ModelSpec = text.parse().unwrap();
            assert_eq!(spec.to_string().parse(), Ok(spec), "{text}");
        }
    }

    #[test]
    fn errors_say_what_was_wrong_and_what_would_fit() {
        assert_eq!(
            error_of("ratte=5"),
            "'ratte=5' is not a device model; write rate=IOPS[,latency=TIME][,depth=N][,service=constant|exponential|pareto][,seed=N][,stragglers=N:TIME][,stall=TIME/PERIOD], \
             array=SPINDLES[,raid=0|5][,disk=fc15k|sata7k][,unit=SIZE][,cache=SIZE][,power=battery|volatile][,readahead=SIZE][,elevator=N][,ageing=TIME|passes][,slowdown=N][,seed=N], \
             ssd[=SIZE][,op=PERCENT][,isolation=none|static|dynamic][,aged=yes|full|no] and more, or null"
        );
        assert_eq!(
            error_of("array=2,raid=5"),
            "an array has 3 to 256 spindles at this RAID level, not 2; give a number in that range"
        );
        assert_eq!(
            error_of("array=4,raid=6"),
            "raid='6' does not fit the device model; raid is 0 or 5"
        );
        assert_eq!(
            error_of("array=4,cache=65G"),
            "a write-back cache is 0 (none) to 64 GiB, not 65 GiB; give a size in that range"
        );
        assert_eq!(
            error_of("array=4,readahead=65M"),
            "a read-ahead is 0 (none) to 64 MiB for each stream, not 65 MiB; give a size in that range"
        );
        assert_eq!(
            error_of("array=4,elevator=0"),
            "an elevator chooses among 1 (first come, first served) to 256 requests, not 0; give a number in that range"
        );
        assert_eq!(
            error_of("array=4,elevator=some"),
            "elevator='some' does not fit the device model; elevator is a whole number from 1 to 256"
        );
        assert_eq!(
            error_of("array=4,ageing=99us"),
            "the ageing of an array is 100us to 100s, or passes, not 99.00 us; give such a time"
        );
        assert_eq!(
            error_of("array=4,ageing=64"),
            "ageing='64' does not fit the device model; ageing is a time such as 300ms, or passes"
        );
        assert_eq!(
            error_of("rate=0"),
            "rate='0' does not fit the device model; rate is a whole number of requests per second from 1 to 1000000000"
        );
        assert_eq!(
            error_of("rate=5,speed=3"),
            "a device model 'rate' has no option 'speed'; it takes latency, depth, service, seed, stragglers and stall"
        );
        assert_eq!(
            error_of("rate=5,depth=3,depth=4"),
            "option 'depth' of the device model is given twice; give it once"
        );
        assert_eq!(
            error_of("ssd=1G,isolation=some"),
            "isolation='some' does not fit the device model; isolation is none, static or dynamic"
        );
        assert_eq!(
            error_of("ssd=1G,op=15"),
            "op='15' does not fit the device model; op is a percentage of the size, such as 15%"
        );
        assert_eq!(
            error_of("ssd=1M"),
            "an ssd has 4 MiB to 64 GiB, not 1 MiB; give a size in that range"
        );
        assert_eq!(
            error_of("ssd=16M,op=1%"),
            "64 blocks hold no more than the 16 MiB of the ssd and the least over-provisioning space; give more op, a larger size, \
             or fewer dies or planes"
        );
        for text in [
            "",
            "null=3",
            "null,depth=3",
            "rate",
            "rate=",
            "rate=5,",
            "rate=5,latency",
            "rate=5,latency=5",
        ] {
            assert!(text.parse::<ModelSpec>().is_err(), "{text}");
        }
        for text in [
            "rate=5,stragglers=0:1s",
            "rate=5,stragglers=3",
            "rate=5,latency=-5ms",
            "rate=5,latency=101s",
            "rate=5,depth=0",
            "rate=5,depth=65537",
        ] {
            assert!(
                matches!(text.parse::<ModelSpec>(), Err(ModelSpecError::BadValue { .. })),
                "{text}"
            );
        }
    }
}
