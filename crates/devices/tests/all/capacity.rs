//! What is said of a device's capacity is what it serves in virtual time.

use crate::common::{ClosedLoop, READ_4K};
use headgate_devices::{DeviceIo, IoKind, LayerSpec, Layered, ModelSpec, Stall};
use headgate_units::{Bytes, Nanos};
use proptest::prelude::*;
use std::num::NonZeroU32;

/// Nothing is counted before.
const WARM_UP: Nanos = Nanos::from_secs(20);
/// A whole number of periods of every stall here.
const LENGTH: u64 = 100;

/// Requests of one kind per second that a full queue of so many is served.
fn served(model: &ModelSpec, layers: &[LayerSpec], outstanding: u32, kind: IoKind) -> f64 {
    let device = Layered::new(layers, model.build(Bytes::from_gib(1)));
    let io = DeviceIo { kind, ..READ_4K };
    let mut clients = ClosedLoop::with_io(device, Nanos::ZERO, outstanding as usize, move |_| io);
    clients.run_until(WARM_UP);
    let before = clients.completed;
    clients.run_until(WARM_UP + Nanos::from_secs(LENGTH));
    (clients.completed - before) as f64 / LENGTH as f64
}

/// The least of what reads and writes get.
fn least_served(model: &ModelSpec, layers: &[LayerSpec], outstanding: u32) -> f64 {
    let of = |kind| served(model, layers, outstanding, kind);
    of(IoKind::Read).min(of(IoKind::Write))
}

fn said(model: &ModelSpec, layers: &[LayerSpec], outstanding: u32) -> (f64, f64) {
    let outstanding = NonZeroU32::new(outstanding).unwrap();
    let sustained = model.sustained(layers, outstanding).expect("a rate");
    (sustained.rate.get() as f64, sustained.moving.get() as f64)
}

fn stalls(model: &ModelSpec, layers: &[LayerSpec]) -> Vec<Stall> {
    let of_layers = layers.iter().filter_map(|layer| match layer {
        LayerSpec::Stall(stall) => Some(*stall),
        _ => None,
    });
    let of_model = match model {
        ModelSpec::Rate(spec) => spec.stall,
        _ => None,
    };
    of_layers.chain(of_model).collect()
}

/// The part of the time in which nothing stands still: looked at every millisecond, of which all
/// times here are multiples.
fn moving_part(stalls: &[Stall]) -> f64 {
    let is_still =
        |ms: &u64| stalls.iter().any(|s| s.end(Nanos::from_millis(*ms)) > Nanos::from_millis(*ms));
    let instants = LENGTH * 1000;
    1.0 - (0..instants).filter(is_still).count() as f64 / instants as f64
}

fn stall() -> impl Strategy<Value = String> {
    let periods = prop::sample::select(vec![500u64, 1_000, 2_000, 5_000]);
    (periods, 1..10u64)
        .prop_map(|(period, tenths)| format!("stall={}ms/{period}ms", period / 10 * tenths))
}

fn layer() -> impl Strategy<Value = String> {
    let on = || prop::sample::select(vec!["all", "all", "read", "write", "flush", "discard"]);
    prop_oneof![
        (20..3_000u64, on()).prop_map(|(rate, on)| format!("rate={rate},on={on}")),
        (1..100u64, on()).prop_map(|(ms, on)| format!("delay={ms}ms,on={on}")),
        Just("trace=5".to_owned()),
    ]
}

fn model() -> impl Strategy<Value = String> {
    let rate = (20..3_000u64, 0..50u64, 1..64u32)
        .prop_map(|(rate, ms, depth)| format!("rate={rate},latency={ms}ms,depth={depth}"));
    (rate, prop::option::of(stall())).prop_map(|(rate, stall)| match stall {
        Some(stall) => format!("{rate},{stall}"),
        None => rate,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Not less than what is said, but for rounding; and not more than the rate outside of stalls
    /// gives in the time that they leave, what is under way when each begins, and one more when it
    /// ends, for which the rate has not to be waited.
    #[test]
    fn a_device_sustains_what_is_said(
        model in model(),
        layers in prop::collection::vec(layer(), 0..3),
        stall in prop::option::of(stall()),
        place in any::<prop::sample::Index>(),
        outstanding in 1..64u32,
    ) {
        let mut layers = layers;
        layers.extend(stall);
        if !layers.is_empty() {
            let (at, last) = (place.index(layers.len()), layers.len() - 1);
            layers.swap(at, last);
        }
        let model: ModelSpec = model.parse().unwrap();
        let layers: Vec<LayerSpec> = layers.iter().map(|text| text.parse().unwrap()).collect();
        let got = least_served(&model, &layers, outstanding);
        let (rate, moving) = said(&model, &layers, outstanding);
        let stalls = stalls(&model, &layers);
        let part = moving_part(&stalls);
        let begins: f64 = stalls.iter().map(|stall| 1e9 / stall.period().0 as f64).sum();
        let rounding = f64::from(outstanding) / LENGTH as f64;
        // The least that can be said is 1.
        let holds = rate == 1.0 || got >= rate * 0.999 - rounding;
        prop_assert!(holds, "{got} of {rate} said");
        // What is said is a whole number.
        let most = (moving + 1.0) * part + f64::from(outstanding + 1) * begins + rounding;
        prop_assert!(got <= most * 1.001, "{got}, where {most} is the most of {rate} said");
    }
}

/// Not near the latency's own bound, where random times cost something.
#[test]
fn random_service_sustains_its_rate() {
    for (text, due) in [
        ("rate=2000,service=exponential", 2000.0),
        ("rate=2000,service=pareto,stall=1s/5s", 1600.0),
    ] {
        let model: ModelSpec = text.parse().unwrap();
        let (got, (rate, _)) = (least_served(&model, &[], 32), said(&model, &[], 32));
        assert_eq!(rate, due, "{text}");
        assert!(got > rate * 0.98 && got < rate * 1.03, "{text}: {got} of {rate}");
    }
}

/// Held requests are missing from the queue.
#[test]
fn stragglers_take_places_in_the_queue() {
    for (text, outstanding) in [
        ("rate=2000,latency=1ms,stragglers=16:300ms", 4),
        ("rate=2000,latency=1ms,stragglers=16:300ms", 32),
        ("rate=500,latency=1ms,stragglers=16:300ms", 64),
        ("rate=2000,stragglers=100:1s", 8),
    ] {
        let model: ModelSpec = text.parse().unwrap();
        let got = least_served(&model, &[], outstanding);
        let (rate, _) = said(&model, &[], outstanding);
        assert!(got > rate * 0.9 && got < rate * 1.01, "{text}: {got} of {rate}");
    }
}
