//! Values as scenario files write them. Each type reads itself, says what is wrong where it cannot,
//! and describes itself for the JSON schema.

use headgate_devices::{ModelSpec, ModelSpecError};
use headgate_placement::Permille;
use headgate_qos::window::{Fraction, Slots};
use headgate_qos::{CostModel, Narrow, UnknownCostModel, UnknownNarrow};
use headgate_units::{
    Bytes, BytesPerSec, Iops, LatencyTarget, LatencyTargetError, Priority, Shares,
};
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::ops::{Deref, Range};

/// A mistake in a scenario file: the bytes that are wrong, and a message with what was expected.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(span: &Range<usize>, message: impl fmt::Display) -> Fault {
        Fault { span: span.clone(), message: message.to_string() }
    }
}

/// A value with its position in the file.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

impl<T> At<T> {
    /// A mistake at this value.
    pub(crate) fn fault(&self, message: impl fmt::Display) -> Fault {
        Fault::new(&self.span, message)
    }

    /// # Errors
    /// A mistake at this value unless the condition holds.
    pub(crate) fn check(&self, holds: bool, message: impl fmt::Display) -> Result<(), Fault> {
        if holds { Ok(()) } else { Err(self.fault(message)) }
    }
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<At<T>, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(deserializer)?;
        Ok(At { span: spanned.span(), value: spanned.into_inner() })
    }
}

#[cfg(feature = "schema")]
impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// The JSON schema of a value.
macro_rules! schema {
    ($name:ty, $schema:tt) => {
        #[cfg(feature = "schema")]
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

/// A type that reads itself from a plain value: what is expected, the schema, and what each kind of
/// value means.
macro_rules! value {
    ($name:ident, $expected:expr, $schema:tt, $($raw:pat $(if $fits:expr)? => $read:expr),+ $(,)?) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let read: Result<$name, String> = match Raw::deserialize(deserializer)? {
                    $($raw $(if $fits)? => $read,)+
                    other => Err(other.is_not($expected)),
                };
                read.map_err(D::Error::custom)
            }
        }
        schema!($name, $schema);
    };
}

mod lists;
mod raw;
mod time;

pub(crate) use lists::{Names, Seeds, Sizes};
use raw::Raw;
pub(crate) use time::{Start, Stretch, Time};

/// A device model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device(pub(crate) ModelSpec);

value!(Device, "a device model such as 'rate=1600,latency=5ms' or 'array=10,raid=5'", {
    "type": "string",
    "description": "A device model: rate=1600,latency=5ms,depth=1024; array=10,raid=5,disk=fc15k,cache=256M; null",
}, Raw::Text(text) => text.parse().map(Device).map_err(|e: ModelSpecError| e.to_string()));

/// A cost model: how the size of a request is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge(pub(crate) CostModel);

value!(Charge, "a cost model such as 'unit', 'affine=300K', 'chunks=32K' or 'learned'", {
    "type": "string",
    "pattern": "^(unit|learned|(affine|chunks|learned)=[0-9.]+[KMGkmg]?(iB|B)?)$",
    "description": "unit: one IO per request; affine=300K: 1 + size/300K; chunks=32K: size/32K, 1 at least; learned: what the device does",
}, Raw::Text(text) => text.parse().map(Charge).map_err(|e: UnknownCostModel| e.to_string()));

/// When a window is narrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Narrowed(pub(crate) Narrow);

value!(Narrowed, "'reservations' or 'never'", {
    "enum": ["reservations", "never"],
    "description": "when the window is narrowed",
}, Raw::Text(text) => text.parse().map(Narrowed).map_err(|e: UnknownNarrow| e.to_string()));

/// Skew of random requests: this percentage of them goes to this percentage of the extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hot {
    pub(crate) requests: u8,
    pub(crate) part: u8,
}

impl Hot {
    fn parse(text: &str) -> Result<Hot, String> {
        let percent = |text: &str| {
            text.strip_suffix('%')?.parse().ok().filter(|part| (1..100).contains(part))
        };
        let parts = text.split_once(" in ");
        let parts = parts.and_then(|(requests, part)| percent(requests).zip(percent(part)));
        parts.map(|(requests, part)| Hot { requests, part }).ok_or_else(|| {
            format!("'{text}' is not a hot part; write whole percentages of 1% to 99%, such as '80% in 20%'")
        })
    }
}

value!(Hot, "a hot part such as '80% in 20%'", {
    "type": "string",
    "pattern": "^[0-9]{1,2}% in [0-9]{1,2}%$",
    "description": "Which part of the requests goes to which part of the extent: 80% in 20%",
}, Raw::Text(text) => Hot::parse(&text));

/// A rate, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaybeIops(pub(crate) Option<Iops>);

value!(MaybeIops, "a rate in IOPS, a whole number from 1 to 1000000000, or 'none'", {
    "description": "A rate in normalised IOs per second, or none",
    "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 1_000_000_000 }, { "const": "none" }],
},
    Raw::Whole(iops) => match u64::try_from(iops).ok().and_then(|iops| Iops::new(iops).ok()) {
        Some(iops) => Ok(MaybeIops(Some(iops))),
        None => Err("a rate is 1 to 1000000000 IOPS; write such a number, or 'none'".to_owned()),
    },
    Raw::Text(text) => match text.as_str() {
        "none" => Ok(MaybeIops(None)),
        _ => Err(format!("'{text}' is not a rate; write a number of IOPS, or 'none'")),
    },
);

/// A bandwidth, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaybeBandwidth(pub(crate) Option<BytesPerSec>);

value!(MaybeBandwidth, "a bandwidth such as '50M' per second, or 'none'", {
    "type": "string", "description": "Bytes per second: 50M, 1.5G; or none",
}, Raw::Text(text) => match text.as_str() {
    "none" => Ok(MaybeBandwidth(None)),
    _ => text.parse().map(|bandwidth| MaybeBandwidth(Some(bandwidth))).map_err(|_| format!(
        "'{text}' is not a bandwidth; write bytes per second such as '50M' or '1.5G', or 'none'"
    )),
});

/// A latency target, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaybeLatency(pub(crate) Option<LatencyTarget>);

value!(MaybeLatency, "a latency target such as 'p99=5ms', or 'none'", {
    "type": "string",
    "description": "So many per cent of the reads and writes are to take no longer: p99=5ms; or none",
}, Raw::Text(text) => match text.as_str() {
    "none" => Ok(MaybeLatency(None)),
    _ => text.parse().map(|target| MaybeLatency(Some(target))).map_err(|e: LatencyTargetError| {
        format!("{e}; or 'none'")
    }),
});

/// The size of a window: a number of requests that need not be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowSize(pub(crate) Slots);

fn window_size(number: f64) -> Result<WindowSize, String> {
    if (0.01..=65_536.0).contains(&number) {
        return Ok(WindowSize(Slots::from_millionths((number * 1e6).round() as u64)));
    }
    Err(format!("{number} is not a window; write 0.01 to 65536 requests"))
}

value!(WindowSize, "a number of requests from 0.01 to 65536, such as 2.5", {
    "type": "number",
    "minimum": 0.01,
    "maximum": 65_536,
    "description": "A number of requests, which need not be whole",
}, Raw::Whole(number) => window_size(number as f64), Raw::Float(number) => window_size(number));

/// A quantity in the unit of what it is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Quantity {
    Number(f64),
    Text(String),
}

value!(Quantity, "a number, a time such as '30ms', or a bandwidth such as '50M'", {
    "type": ["number", "string"],
    "description": "A number; a time such as 30ms for latencies; bytes per second such as 50M for bandwidths",
},
    Raw::Whole(number) => Ok(Quantity::Number(number as f64)),
    Raw::Float(number) if number.is_finite() => Ok(Quantity::Number(number)),
    Raw::Float(number) => Err(format!("{number} is not a quantity; write a finite number")),
    Raw::Text(text) => Ok(Quantity::Text(text)),
);

/// A percentage, 0 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Percent(pub(crate) f64);

impl Percent {
    fn parse(text: &str) -> Result<Percent, String> {
        let number =
            text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        match number {
            Some(percent) if percent.is_finite() && percent >= 0.0 => Ok(Percent(percent)),
            _ => Err(format!("'{text}' is not a percentage; write it with its sign, such as '5%'")),
        }
    }
}

value!(Percent, "a percentage such as '5%'", {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9]+)? ?%$",
    "description": "A percentage with its sign: 5%",
}, Raw::Text(text) => Percent::parse(&text));

/// A whole percentage within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholePercent<const LEAST: u8, const MOST: u8>(pub(crate) u8);

/// A percentage of requests or of blocks.
pub(crate) type Part = WholePercent<0, 100>;

impl<'de, const LEAST: u8, const MOST: u8> Deserialize<'de> for WholePercent<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Percent(percent) = Percent::deserialize(deserializer)?;
        if percent.fract() == 0.0 && (f64::from(LEAST)..=f64::from(MOST)).contains(&percent) {
            return Ok(WholePercent(percent as u8));
        }
        Err(D::Error::custom(format!(
            "{percent}% does not fit here; write a whole percentage from {LEAST}% to {MOST}%"
        )))
    }
}

/// Percentages within bounds: the type, its content, how it is made, and what is said where it
/// does not fit.
macro_rules! percents {
    ($($(#[$doc:meta])* $name:ident($of:ty) = $make:expr, $message:literal;)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq)]
            pub(crate) struct $name(pub(crate) $of);

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                    let make: fn(f64) -> Option<$of> = $make;
                    let percent = Percent::deserialize(deserializer)?.0;
                    make(percent).map($name).ok_or_else(|| D::Error::custom($message))
                }
            }
        )+
    };
}

percents! {
    /// A part of something, up to ten times it.
    Portion(Permille) = |p| (p <= 1_000.0).then(|| Permille((p * 10.0).round() as u32)),
        "a part is 1000% at most; write such a percentage";
    /// A part of a whole, for the control of windows.
    Share(Fraction) = |p| {
        let millionths = (p * 10_000.0).round();
        (millionths <= 1e6).then(|| Fraction::from_millionths(millionths as u32).ok()).flatten()
    }, "a part of a whole is 100% at most; write such a percentage";
    /// A part of the seeds, in thousandths.
    OfSeeds(u32) = |p| {
        let permille = p * 10.0;
        (permille.fract() == 0.0 && permille <= 1_000.0).then_some(permille as u32)
    }, "seeds are counted in tenths of a per cent, up to 100%; write such a part";
    /// The speed of a replay, in per cent.
    Speed(u32) = |p| (p.fract() == 0.0 && (1.0..=100_000.0).contains(&p)).then_some(p as u32),
        "a speed is 1% to 100000%, whole; write such a percentage";
    /// The allocated part of a disk, in per cent.
    Allocated(f64) = |p| (p <= 100.0).then_some(p),
        "a disk is 100% allocated at most; write such a percentage";
    /// A relative distance, as a fraction of 1.
    Nearness(f64) = |p| (p > 0.0 && p <= 100.0).then_some(p / 100.0),
        "how near is above 0% and 100% at most; write such a percentage";
}

/// Types that are percentages to the schema.
macro_rules! like_percent {
    ($([$($generics:tt)*] $name:ty),+ $(,)?) => {
        $(
            #[cfg(feature = "schema")]
            #[cfg(feature = "schema")]
            impl<$($generics)*> JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    Percent::schema_name()
                }
                fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                    Percent::json_schema(generator)
                }
            }
        )+
    };
}

like_percent!(
    [const LEAST: u8, const MOST: u8] WholePercent<LEAST, MOST>,
    [] Portion, [] Share, [] OfSeeds, [] Speed, [] Allocated, [] Nearness,
);

/// Whole numbers within bounds: the type, its content, what it is called, and the bounds.
macro_rules! numbers {
    ($($name:ident($of:ty) = $make:expr, $what:literal, $least:literal, $most:literal;)+) => {
        $(
            #[doc = concat!("This is ", $what, ", ", $least, " to ", $most, ".")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(crate) struct $name(pub(crate) $of);

            value!(
                $name,
                concat!($what, ", a whole number from ", $least, " to ", $most),
                { "type": "integer", "minimum": $least, "maximum": $most, "description": $what },
                Raw::Whole(number) => {
                    let make: fn(u64) -> Option<$of> = $make;
                    let fits = u64::try_from(number).ok().filter(|n| ($least..=$most).contains(n));
                    fits.and_then(make).map($name).ok_or_else(|| format!(
                        "{number} is not {}; write a whole number from {} to {}",
                        $what, $least, $most
                    ))
                }
            );
        )+
    };
}

/// Numbers that have no other bounds than those of the list below.
fn small(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

numbers! {
    Rate(Iops) = |n| Iops::new(n).ok(), "a rate in IOPS", 1, 1_000_000_000;
    Weight(Shares) = |n| Shares::new(n).ok(), "a number of shares", 1, 1_000_000;
    Rank(Priority) = |n| Priority::new(n).ok(), "a priority", 1, 254;
    SeedCount(u32) = small, "a number of seeds", 1, 10_000;
    Count(u32) = small, "a count", 1, 50_000;
    QueueDepth(u32) = small, "a queue depth", 1, 65_536;
    IoSchedulerDepth(u32) = small, "a queue depth behind an IO scheduler", 1, 1_024;
    Outstanding(u32) = small, "a number of outstanding requests", 1, 65_536;
    BurstLength(u32) = small, "a number of requests in a burst", 1, 65_536;
    Terminals(u32) = small, "a number of terminals", 1, 10_000;
    Processors(u32) = small, "a number of processors", 1, 10_000;
    Steps(u32) = small, "a number of requests of a transaction", 0, 1_000;
    Pieces(u32) = small, "a number of pieces", 1, 64;
    Copies(u32) = small, "a number of copies", 1, 1_000;
    SharesPerSlot(u32) = small, "a number of shares for a slot", 1, 4_294_967_295_u64;
}

fn parse_size(text: &str) -> Result<Bytes, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is not a size; write one such as '4096', '16K', '10G' or '1.5T'")
    })
}

fn size_of(bytes: i64) -> Result<Bytes, String> {
    u64::try_from(bytes)
        .map(Bytes)
        .map_err(|_| format!("a size cannot be {bytes}; write 0 or more bytes"))
}

/// Sizes within bounds: the type, the bounds in bytes, and what is said outside of them.
macro_rules! sizes {
    ($($(#[$doc:meta])* $name:ident = $least:expr, $most:expr, $message:expr;)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(crate) struct $name(pub(crate) Bytes);

            impl $name {
                fn new(size: Bytes) -> Result<$name, String> {
                    let bounds: std::ops::RangeInclusive<u64> = $least..=$most;
                    let message: fn(Bytes) -> String = $message;
                    if bounds.contains(&size.0) { Ok($name(size)) } else { Err(message(size)) }
                }
            }

            value!($name, "a size such as '16K', '10G' or a number of bytes", {
                "type": ["string", "integer"],
                "minimum": $least,
                "pattern": "^[0-9]+(\\.[0-9]+)?[KMGTPkmgtp]?(iB|B)?$",
                "description": "A size: 4096, 16K, 10G (K, M, G, T are powers of 1,024)",
            },
                Raw::Text(text) => parse_size(&text).and_then($name::new),
                Raw::Whole(bytes) => size_of(bytes).and_then($name::new),
            );
        )+
    };
}

sizes! {
    /// Any number of bytes.
    Size = 0, u64::MAX, |_| String::new();
    /// The capacity of a device.
    Capacity = 1, u64::MAX, |_| "a capacity is 1 byte or more; write such a size".to_owned();
    /// The size of a disk.
    DiskSize = 4_096, 1 << 60, |_| "a disk is 4K to 1024P in size; write such a size".to_owned();
    /// The size of a stripe.
    Stripe = 4_096, u64::MAX, |_| "a stripe is 4K or more; write such a size".to_owned();
    /// The size of a piece of a copy.
    Piece = 4_096, 8 << 20, |_| "a piece is 4K to 8M; write such a size".to_owned();
    /// The size of a request.
    RequestSize = 512, 64 << 20,
        |size| format!("a request is 512 bytes to 64 MiB, not {size}; write such a size");
}
