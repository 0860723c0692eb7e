//! The values of a scenario file: how they are written, and what is said when they are not.

use headgate_devices::ModelSpec;
use headgate_qos::window::Slots;
use headgate_qos::{CostModel, UnknownCostModel};
use headgate_units::{Bytes, BytesPerSec, Iops, Nanos, Priority, Shares};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// A value and where in the file it stands.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<At<T>, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(deserializer)?;
        Ok(At { span: spanned.span(), value: spanned.into_inner() })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A type that is written as text (or as a number), with how to say so.
macro_rules! written {
    ($name:ident, $schema:tt) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

/// Text only.
macro_rules! text {
    ($name:ident, $expecting:literal, $parse:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        let parse: fn(&str) -> Result<$name, String> = $parse;
                        parse(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}

/// A time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Nanos);

const TIMES: &str = "a time with a unit (ns, us, ms, s, m, h, d), such as '250ms' or '1.5s'";

impl Time {
    pub(crate) fn parse(text: &str) -> Result<Time, String> {
        let wrong = || format!("'{text}' is not {TIMES}; write such a time");
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit: u64 = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(wrong()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if fraction.is_empty() || fraction.len() > 9 {
            return Err(wrong());
        }
        let scale = 10u128.pow(fraction.len() as u32);
        let whole: u128 = whole.parse().map_err(|_| wrong())?;
        let fraction: u128 = fraction.parse().map_err(|_| wrong())?;
        let nanos = whole.checked_mul(scale).and_then(|w| (w + fraction).checked_mul(u128::from(unit)));
        let nanos = nanos.and_then(|n| u64::try_from(n / scale).ok()).ok_or_else(wrong)?;
        Ok(Time(Nanos(nanos)))
    }
}

text!(Time, "a time with a unit (ns, us, ms, s, m, h, d), such as '250ms' or '1.5s'", Time::parse);
written!(Time, {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9]{1,9})?(ns|us|ms|s|m|h|d)$",
    "description": "A time with a unit: 250ms, 1.5s, 2h",
});

/// From one time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
}

impl Stretch {
    fn parse(text: &str) -> Result<Stretch, String> {
        let (from, to) = text
            .split_once("..")
            .ok_or_else(|| format!("'{text}' is not a stretch of time; write one as '60s..120s'"))?;
        let (from, to) = (Time::parse(from)?.0, Time::parse(to)?.0);
        if from >= to {
            return Err(format!("the stretch '{text}' has no length; write the earlier time first"));
        }
        Ok(Stretch { from, to })
    }
}

text!(Stretch, "a stretch of time such as '60s..120s'", Stretch::parse);
written!(Stretch, {
    "type": "string",
    "pattern": r"^[0-9.]+(ns|us|ms|s|m|h|d)\.\.[0-9.]+(ns|us|ms|s|m|h|d)$",
    "description": "A stretch of time, its end excluded: 60s..120s",
});

/// A device model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device(pub(crate) ModelSpec);

text!(Device, "a device model such as 'rate=1600,latency=5ms' or 'array=10,raid=5'", |text| {
    text.parse().map(Device).map_err(|e: headgate_devices::ModelSpecError| e.to_string())
});
written!(Device, {
    "type": "string",
    "description": "A device model: rate=1600,latency=5ms,depth=1024; array=10,raid=5,disk=fc15k,cache=256M; null",
});

/// How sizes are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge(pub(crate) CostModel);

impl Charge {
    fn parse(text: &str) -> Result<Charge, String> {
        text.parse().map(Charge).map_err(|error: UnknownCostModel| error.to_string())
    }
}

text!(Charge, "a cost model such as 'unit', 'affine=300K' or 'chunks=32K'", Charge::parse);
written!(Charge, {
    "type": "string",
    "pattern": "^(unit|(affine|chunks)=[0-9.]+[KMGkmg]?(iB|B)?)$",
    "description": "unit: one IO per request; affine=300K: 1 + size/300K; chunks=32K: size/32K, 1 at least",
});

/// A percentage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Percent(pub(crate) f64);

impl Percent {
    fn parse(text: &str) -> Result<Percent, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        match number {
            Some(percent) if percent.is_finite() && percent >= 0.0 => Ok(Percent(percent)),
            _ => Err(format!("'{text}' is not a percentage; write it with its sign, such as '5%'")),
        }
    }
}

text!(Percent, "a percentage such as '5%'", Percent::parse);
written!(Percent, {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9]+)? ?%$",
    "description": "A percentage with its sign: 5%",
});

/// Which part of the requests goes to which part of what is used, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hot {
    pub(crate) requests: u8,
    pub(crate) part: u8,
}

impl Hot {
    fn parse(text: &str) -> Result<Hot, String> {
        let percent =
            |text: &str| text.strip_suffix('%')?.parse().ok().filter(|part| (1..100).contains(part));
        let parts = text.split_once(" in ").and_then(|(requests, part)| percent(requests).zip(percent(part)));
        match parts {
            Some((requests, part)) => Ok(Hot { requests, part }),
            None => Err(format!(
                "'{text}' is not a hot part; write whole percentages of 1% to 99%, such as '80% in 20%'"
            )),
        }
    }
}

text!(Hot, "a hot part such as '80% in 20%'", Hot::parse);
written!(Hot, {
    "type": "string",
    "pattern": "^[0-9]{1,2}% in [0-9]{1,2}%$",
    "description": "Which part of the requests goes to which part of the place: 80% in 20%",
});

/// A size: text with a unit, or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) Bytes);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct Sizes;
        impl Visitor<'_> for Sizes {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as '16K', '10G' or a number of bytes")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                parse_size(text).map_err(E::custom)
            }
            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(|bytes| Size(Bytes(bytes)))
                    .map_err(|_| E::custom(format!("a size cannot be {bytes}; write 0 or more bytes")))
            }
        }
        deserializer.deserialize_any(Sizes)
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    text.parse()
        .map(Size)
        .map_err(|_| format!("'{text}' is not a size; write one such as '4096', '16K', '10G' or '1.5T'"))
}

written!(Size, {
    "type": ["string", "integer"],
    "minimum": 0,
    "pattern": "^[0-9]+(\\.[0-9]+)?[KMGTPkmgtp]?(iB|B)?$",
    "description": "A size: 4096, 16K, 10G (K, M, G, T are powers of 1,024)",
});

/// Sizes of requests: one, or several with how often each comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<(Bytes, u32)>);

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sizes, D::Error> {
        struct Mix;
        impl<'de> Visitor<'de> for Mix {
            type Value = Sizes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a size such as '16K', or sizes with how often each comes, such as { 4K = 3, 64K = 1 }",
                )
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Sizes, E> {
                parse_size(text).map(|size| Sizes(vec![(size.0, 1)])).map_err(E::custom)
            }
            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Sizes, E> {
                u64::try_from(bytes)
                    .map(|bytes| Sizes(vec![(Bytes(bytes), 1)]))
                    .map_err(|_| E::custom(format!("a size cannot be {bytes}; write 512 or more bytes")))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sizes, A::Error> {
                let mut sizes = Vec::new();
                while let Some((size, weight)) = map.next_entry::<String, u32>()? {
                    let size = parse_size(&size).map_err(A::Error::custom)?;
                    if weight > 0 {
                        sizes.push((size.0, weight));
                    }
                }
                if sizes.is_empty() {
                    return Err(A::Error::custom(
                        "a mix of sizes needs one that comes; give one a number above 0",
                    ));
                }
                Ok(Sizes(sizes))
            }
        }
        deserializer.deserialize_any(Mix)
    }
}

written!(Sizes, {
    "description": "A size, or sizes with how often each comes relative to the others: { 4K = 3, 64K = 1 }",
    "type": ["string", "integer", "object"],
    "additionalProperties": { "type": "integer", "minimum": 0 },
});

/// A name, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Names, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Names;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, or a list of names such as ['VM1', 'VM2']")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Names, E> {
                Ok(Names(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = seq.next_element()? {
                    names.push(name);
                }
                if names.is_empty() {
                    return Err(A::Error::custom("a list of names is empty; name one"));
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

written!(Names, {
    "description": "A name, or a list of names",
    "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" }, "minItems": 1 }],
});

/// Seeds, or how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeds(pub(crate) Vec<u64>);

impl<'de> Deserialize<'de> for Seeds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seeds, D::Error> {
        struct ListOrCount;
        impl<'de> Visitor<'de> for ListOrCount {
            type Value = Seeds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seeds such as [1, 2, 3], or how many from 1 on, up to 10000")
            }
            fn visit_i64<E: Error>(self, many: i64) -> Result<Seeds, E> {
                match u64::try_from(many) {
                    Ok(many @ 1..=10_000) => Ok(Seeds((1..=many).collect())),
                    _ => Err(E::custom(format!("{many} is no number of seeds; write 1 to 10000"))),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Seeds, A::Error> {
                let mut seeds = Vec::new();
                while let Some(seed) = seq.next_element()? {
                    seeds.push(seed);
                }
                Ok(Seeds(seeds))
            }
        }
        deserializer.deserialize_any(ListOrCount)
    }
}

written!(Seeds, {
    "description": "Seeds, or how many from 1 on",
    "anyOf": [
        { "type": "integer", "minimum": 1, "maximum": 10_000 },
        { "type": "array", "items": { "type": "integer", "minimum": 0 } },
    ],
});

/// A whole number in a range.
macro_rules! number {
    ($name:ident, $of:ty, $what:literal, $max:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) $of);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                struct Number;
                impl Visitor<'_> for Number {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "{}, a whole number from 1 to {}", $what, $max)
                    }
                    fn visit_i64<E: Error>(self, number: i64) -> Result<$name, E> {
                        let fits = u64::try_from(number).ok().and_then(|number| <$of>::new(number).ok());
                        fits.map($name).ok_or_else(|| {
                            E::custom(format!("{number} is not {}; write a whole number from 1 to {}", $what, $max))
                        })
                    }
                }
                deserializer.deserialize_any(Number)
            }
        }

        written!($name, { "type": "integer", "minimum": 1, "maximum": $max, "description": $doc });
    };
}

number!(Rate, Iops, "a rate in IOPS", 1_000_000_000, "A rate in IOs per second.");
number!(Weight, Shares, "a number of shares", 1_000_000, "A weight relative to others.");
number!(Rank, Priority, "a priority", 254, "An application's priority: more is more service.");

/// A time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start(pub(crate) Option<Nanos>);

text!(Start, "a time such as '60s', or 'never'", |text| match text {
    "never" => Ok(Start(None)),
    _ => Time::parse(text).map(|time| Start(Some(time.0))),
});
written!(Start, { "type": "string", "description": "A time such as 60s, or never" });

/// A rate, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaybeIops(pub(crate) Option<Iops>);

impl<'de> Deserialize<'de> for MaybeIops {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MaybeIops, D::Error> {
        struct Rate;
        impl Visitor<'_> for Rate {
            type Value = MaybeIops;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate in IOPS, a whole number from 1 to 1000000000, or 'none'")
            }
            fn visit_i64<E: Error>(self, iops: i64) -> Result<MaybeIops, E> {
                let iops = u64::try_from(iops).ok().and_then(|iops| Iops::new(iops).ok());
                iops.map(|iops| MaybeIops(Some(iops))).ok_or_else(|| {
                    E::custom("a rate is 1 to 1000000000 IOPS; write such a number, or 'none' for no promise")
                })
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<MaybeIops, E> {
                match text {
                    "none" => Ok(MaybeIops(None)),
                    _ => Err(E::custom(format!("'{text}' is not a rate; write a number of IOPS, or 'none'"))),
                }
            }
        }
        deserializer.deserialize_any(Rate)
    }
}

written!(MaybeIops, {
    "description": "A rate in normalised IOs per second, or none",
    "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 1_000_000_000 }, { "const": "none" }],
});

/// A bandwidth, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaybeBandwidth(pub(crate) Option<BytesPerSec>);

text!(MaybeBandwidth, "a bandwidth such as '50M' per second, or 'none'", |text| match text {
    "none" => Ok(MaybeBandwidth(None)),
    _ => text.parse().map(|bandwidth| MaybeBandwidth(Some(bandwidth))).map_err(|_| format!(
        "'{text}' is not a bandwidth; write bytes per second such as '50M' or '1.5G', or 'none'"
    )),
});
written!(MaybeBandwidth, {
    "type": "string",
    "description": "Bytes per second: 50M, 1.5G; or none",
});

/// A number of requests, which need not be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotsFile(pub(crate) Slots);

impl<'de> Deserialize<'de> for SlotsFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SlotsFile, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = SlotsFile;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of requests from 0.01 to 65536, such as 2.5")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<SlotsFile, E> {
                self.visit_f64(number as f64)
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<SlotsFile, E> {
                if (0.01..=65_536.0).contains(&number) {
                    return Ok(SlotsFile(Slots::from_millionths((number * 1e6).round() as u64)));
                }
                Err(E::custom(format!("{number} is not a window; write 0.01 to 65536 requests")))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

written!(SlotsFile, {
    "type": "number",
    "minimum": 0.01,
    "maximum": 65_536,
    "description": "A number of requests, which need not be whole",
});

/// A number in the unit of what it is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Quantity {
    Number(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a time such as '30ms', or a bandwidth such as '50M'")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity::Number(number as f64))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
                if number.is_finite() {
                    Ok(Quantity::Number(number))
                } else {
                    Err(E::custom(format!("{number} is not a quantity; write a finite number")))
                }
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

written!(Quantity, {
    "type": ["number", "string"],
    "description": "A number; a time such as 30ms for latencies; bytes per second such as 50M for bandwidths",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        for (text, nanos) in
            [("250ms", 250_000_000), ("1.5s", 1_500_000_000), ("0.000000001s", 1), ("2h", 7_200_000_000_000)]
        {
            assert_eq!(Time::parse(text), Ok(Time(Nanos(nanos))), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1e3s", "1.s", "99999999999d", "1 s"] {
            assert!(Time::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn stretches_go_forward() {
        assert_eq!(
            Stretch::parse("1s..2s"),
            Ok(Stretch { from: Nanos::from_secs(1), to: Nanos::from_secs(2) })
        );
        assert!(Stretch::parse("2s..2s").is_err());
        assert!(Stretch::parse("2s").is_err());
    }
}
