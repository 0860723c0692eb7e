//! What a device sustains under its layers: the rate that can be promised on it.

use crate::layer::{LayerSpec, Stall, Stragglers, Which};
use crate::{IoKind, ModelSpec, RateSpec};
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use headgate_units::{Iops, Nanos};

/// The rate that a device sustains as long as requests wait for it, and what keeps it there.
///
/// It is the least of these, for reads or for writes, whichever have less; then a stall takes its
/// part of the time:
///
/// - the rate of the device, and `depth / latency` where it has a depth;
/// - the rate of each rate layer;
/// - by Little's law, the most outstanding requests over the time that each takes: the latency of
///   the device, delays, and the time of a straggler over how many requests there are to each.
///
/// Stalls of different periods are taken to be independent of each other. Two overlap at least as
/// much as that, for each ends with its period: seen modulo the greatest common divisor of the
/// periods, both are the likelier the later it is (Chebyshev's inequality for sums).
///
/// # Errors of the estimate
/// It errs on the low side by what is under way when a stall begins, and completes in it: at most
/// one request for each that is outstanding, in each stall. It errs on the high side for service
/// times that are random or stragglers that bunch, where the rate of the device and that of
/// Little's law are near each other: there neither is reached. Layers that fail requests, and those
/// for flushes or discards only, are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sustained {
    /// Requests per second over many stalls, rounded down, and 1 at least.
    pub rate: Iops,
    /// Requests per second outside of stalls, rounded down, and 1 at least.
    pub moving: Iops,
    /// What bounds that.
    pub bound: Bound,
}

/// What bounds the rate of a device that does not stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// The model's own rate, or its depth over its latency.
    Model,
    /// A rate layer.
    RateLayer,
    /// That no more than so many requests are outstanding, each for so long.
    Outstanding(NonZeroU32, Nanos),
}

/// Why the rate is what it is.
impl fmt::Display for Sustained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Bound::Model => write!(f, "its device model serves {} IOPS", self.moving)?,
            Bound::RateLayer => write!(f, "a layer lets {} IOPS through", self.moving)?,
            Bound::Outstanding(most, time) => {
                write!(f, "{most} requests at a time, each for {time}, are {} IOPS", self.moving)?
            }
        }
        if self.rate < self.moving {
            write!(f, ", of which stalls leave {}", self.rate)?;
        }
        Ok(())
    }
}

impl ModelSpec {
    /// What a device of this model sustains under these layers with up to `outstanding` requests
    /// under way. O(layers).
    ///
    /// `None` for an array and a flash drive, whose rate depends on what they are asked, and for
    /// `null` without a layer that holds anything up.
    pub fn sustained(&self, layers: &[LayerSpec], outstanding: NonZeroU32) -> Option<Sustained> {
        match self {
            ModelSpec::Rate(spec) => {
                let below = spec.layers();
                let all: Vec<LayerSpec> = layers.iter().chain(&below).copied().collect();
                sustained(Some(spec), &all, outstanding)
            }
            ModelSpec::Null => sustained(None, layers, outstanding),
            ModelSpec::Array(_) | ModelSpec::Ssd(_) => None,
        }
    }
}

/// The most that these layers let through with up to `outstanding` requests under way, whatever is
/// below them; `None`: no bound. O(layers).
pub fn ceiling(layers: &[LayerSpec], outstanding: NonZeroU32) -> Option<Sustained> {
    sustained(None, layers, outstanding)
}

/// Rates are whole millionths of requests per second here, so that parts of them are exact.
const MICRO: u128 = 1_000_000;
const SECOND: u128 = 1_000_000_000;

fn sustained(
    device: Option<&RateSpec>,
    layers: &[LayerSpec],
    outstanding: NonZeroU32,
) -> Option<Sustained> {
    let of = |kind| moving(device, layers, outstanding, kind);
    let (moving, bound) = [of(IoKind::Read), of(IoKind::Write)]
        .into_iter()
        .flatten()
        .min_by_key(|(rate, _)| *rate)?;
    let stalls = layers.iter().filter_map(|layer| match layer {
        LayerSpec::Stall(stall) => Some(*stall),
        _ => None,
    });
    let rate = stalls.fold(moving, |rate, stall: Stall| {
        let period = u128::from(stall.period().0);
        rate * (period - u128::from(stall.time().0)) / period
    });
    Some(Sustained { rate: whole(rate), moving: whole(moving), bound })
}

/// The rate for requests of one kind outside of stalls.
fn moving(
    device: Option<&RateSpec>,
    layers: &[LayerSpec],
    outstanding: NonZeroU32,
    kind: IoKind,
) -> Option<(u128, Bound)> {
    let micro = |rate: Iops| u128::from(rate.get()) * MICRO;
    let concerns = |on: Which| on == Which::All || on == Which::Only(kind);
    let mut bounds = Vec::new();
    let mut time = 0;
    if let Some(spec) = device {
        time += u128::from(spec.latency.0);
        bounds.push((micro(spec.rate), Bound::Model));
        bounds.extend(by_depth(spec.depth, time).map(|rate| (rate, Bound::Model)));
    }
    for layer in layers {
        match *layer {
            LayerSpec::Delay { time: delay, on } if concerns(on) => time += u128::from(delay.0),
            LayerSpec::Rate { rate, on } if concerns(on) => {
                bounds.push((micro(rate), Bound::RateLayer));
            }
            LayerSpec::Stragglers(Stragglers { every, held }) => {
                time += u128::from(held.0) / u128::from(every.get());
            }
            LayerSpec::Delay { .. }
            | LayerSpec::Rate { .. }
            | LayerSpec::Error { .. }
            | LayerSpec::Stall(_)
            | LayerSpec::Trace { .. } => {}
        }
    }
    let each = Nanos(u64::try_from(time).unwrap_or(u64::MAX));
    let by_all = by_depth(outstanding, time);
    bounds.extend(by_all.map(|rate| (rate, Bound::Outstanding(outstanding, each))));
    bounds.into_iter().min_by_key(|(rate, _)| *rate)
}

/// Little's law: no more than `depth` requests complete in the time that one takes.
fn by_depth(depth: NonZeroU32, time: u128) -> Option<u128> {
    (u128::from(depth.get()) * SECOND * MICRO).checked_div(time)
}

fn whole(micro: u128) -> Iops {
    let rate = u64::try_from(micro / MICRO).unwrap_or(u64::MAX);
    Iops::new(rate.clamp(Iops::MIN.get(), Iops::MAX.get())).unwrap_or(Iops::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn layers(texts: &[&str]) -> Vec<LayerSpec> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn of(model: &str, on_it: &[&str], outstanding: u32) -> Option<Sustained> {
        let model: ModelSpec = model.parse().unwrap();
        model.sustained(&layers(on_it), NonZeroU32::new(outstanding).unwrap())
    }

    fn rate(model: &str, on_it: &[&str], outstanding: u32) -> Option<u64> {
        of(model, on_it, outstanding).map(|sustained| sustained.rate.get())
    }

    #[test]
    fn the_least_bound_holds_and_stalls_take_their_part() {
        for (model, on_it, outstanding, due) in [
            ("rate=1600", &[][..], 32, 1600),
            ("rate=1600,latency=5ms,depth=4", &[], 32, 800),
            ("rate=1600,latency=5ms,depth=32", &[], 32, 1600),
            ("rate=1600,latency=5ms", &[], 4, 800),
            ("rate=2000,stall=1s/5s", &[], 32, 1600),
            ("rate=3000,stall=1s/3s", &[], 32, 2000),
            ("rate=2000,stall=1s/5s", &["stall=1s/2s"], 32, 800),
            ("rate=2000", &["rate=700", "rate=900"], 32, 700),
            ("rate=2000", &["rate=700,on=read", "rate=600,on=write"], 32, 600),
            ("rate=2000", &["rate=700,on=flush", "rate=600,on=discard"], 32, 2000),
            ("rate=2000,latency=1ms", &["delay=9ms"], 10, 1000),
            ("rate=2000,latency=1ms", &["delay=9ms,on=write", "delay=4ms,on=read"], 10, 1000),
            ("rate=2000,latency=1ms", &["delay=9ms,on=flush"], 10, 2000),
            ("rate=2000,latency=1ms,stragglers=10:90ms", &[], 10, 1000),
            ("rate=1,stall=9s/10s", &[], 1, 1),
            ("null", &["rate=700"], 32, 700),
            ("null", &["delay=1s", "stall=1s/2s"], 32, 16),
        ] {
            assert_eq!(rate(model, on_it, outstanding), Some(due), "{model} {on_it:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        for model in ["array=10", "ssd", "null"] {
            assert_eq!(rate(model, &[], 32), None, "{model}");
        }
        assert_eq!(rate("null", &["stall=1s/2s", "error=1%", "trace=5"], 32), None);
        assert_eq!(rate("array=10", &["rate=700"], 32), None);
        let most = |texts: &[&str]| ceiling(&layers(texts), NonZeroU32::MIN).map(|s| s.rate.get());
        assert_eq!((most(&["rate=700"]), most(&["error=1%"])), (Some(700), None));
    }

    #[test]
    fn it_says_why() {
        let said = |model, on_it: &[&str]| of(model, on_it, 8).unwrap().to_string();
        assert_eq!(
            said("rate=2000,stall=1s/5s", &[]),
            "its device model serves 2000 IOPS, of which stalls leave 1600"
        );
        assert_eq!(said("rate=2000", &["rate=700"]), "a layer lets 700 IOPS through");
        assert_eq!(
            said("rate=2000,latency=1ms", &["delay=9ms"]),
            "8 requests at a time, each for 10.00 ms, are 800 IOPS"
        );
    }
}
