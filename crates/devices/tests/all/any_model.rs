//! What every model promises to its driver.

use headgate_devices::{DeviceIo, DeviceModel, IoKind, ModelSpec};
use headgate_units::{Bytes, Nanos};
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Step {
    Submit(IoKind, u64, u64),
    /// To the next event, late by so much.
    Poll(u64),
    /// The clock jumps, or steps back.
    Forward(u64),
    Back(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(vec![
        IoKind::Read,
        IoKind::Write,
        IoKind::Write,
        IoKind::Flush,
        IoKind::Discard,
    ]);
    let bytes = prop_oneof![
        4 => (0..64u64).prop_map(|n| n * 4_096),
        1 => 0..100_000_000u64,
        1 => Just(u64::MAX),
    ];
    let offset = prop_oneof![4 => (0..2_000u64).prop_map(|n| n * 4_096), 1 => any::<u64>()];
    prop_oneof![
        8 => (kind, offset, bytes).prop_map(|(kind, offset, bytes)| Step::Submit(kind, offset, bytes)),
        4 => prop_oneof![Just(0), 0..50_000_000u64].prop_map(Step::Poll),
        1 => (0..5_000_000_000u64).prop_map(Step::Forward),
        1 => (0..1_000_000u64).prop_map(Step::Back),
    ]
}

fn model() -> impl Strategy<Value = (ModelSpec, Nanos)> {
    let with_minimum = |text: &str, minimum| (text.parse::<ModelSpec>().unwrap(), minimum);
    prop::sample::select(vec![
        with_minimum("null", Nanos::ZERO),
        with_minimum("rate=2000,latency=300us,depth=4", Nanos::from_micros(300)),
        with_minimum("rate=7,latency=0s", Nanos::ZERO),
        with_minimum("array=4,cache=1M", Nanos::from_micros(500)),
        with_minimum("array=4,raid=5,cache=0,disk=sata7k", Nanos::from_micros(500)),
        with_minimum("array=5,raid=5,cache=2M,power=volatile,unit=4K", Nanos::from_micros(500)),
        with_minimum("array=3,raid=5,cache=3K,power=volatile", Nanos::from_micros(500)),
        with_minimum("array=4,cache=64K,readahead=300K", Nanos::from_micros(500)),
        with_minimum("array=3,raid=5,unit=4K,power=volatile,readahead=1M", Nanos::from_micros(500)),
        with_minimum("ssd=4M,dies=2,planes=2,block=16", Nanos::from_micros(10)),
        with_minimum(
            "ssd=4M,dies=2,planes=2,block=16,buffer=64K,isolation=static,aged=full",
            Nanos::from_micros(10),
        ),
        with_minimum(
            "ssd=4M,dies=1,planes=2,block=16,isolation=dynamic,copyback=no,aged=yes",
            Nanos::from_micros(10),
        ),
    ])
}

/// Polls until there is nothing more by `now`. Returned ids must be outstanding and old enough.
fn drain(
    device: &mut impl DeviceModel,
    now: Nanos,
    minimum: Nanos,
    outstanding: &mut HashMap<u64, Nanos>,
) -> Result<(), TestCaseError> {
    while let Some(id) = device.poll(now) {
        let submitted = outstanding.remove(&id);
        prop_assert!(
            submitted.is_some_and(|at| now >= at + minimum),
            "request {id}, submitted {submitted:?}"
        );
    }
    prop_assert_eq!(device.in_flight(), outstanding.len());
    prop_assert!(device.next_event().is_none_or(|next| next > now));
    prop_assert!(outstanding.is_empty() || device.next_event().is_some());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_request_completes_once_and_not_too_soon_and_never_without_notice(
        (spec, minimum) in model(),
        capacity in prop::sample::select(vec![0, 1, 4_096, 10 << 20, 100 << 30, u64::MAX]),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut device = spec.build(Bytes(capacity));
        let mut outstanding = HashMap::new();
        let mut now = Nanos::from_secs(50);
        // The latest instant that the device was shown: to it, an earlier one is the same.
        let mut shown = now;
        device.poll(now);
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Submit(kind, offset, bytes) => {
                    device.submit(now, id as u64, DeviceIo { kind, offset, bytes: Bytes(bytes) });
                    shown = shown.max(now);
                    outstanding.insert(id as u64, shown);
                }
                Step::Poll(late) => {
                    now = device.next_event().map_or(now, |next| now.max(next)) + Nanos(late);
                    shown = shown.max(now);
                    drain(&mut device, shown, minimum, &mut outstanding)?;
                }
                Step::Forward(by) => now += Nanos(by),
                Step::Back(by) => now = now - Nanos(by),
            }
        }
        while !outstanding.is_empty() {
            drain(&mut device, shown, minimum, &mut outstanding)?;
            shown = device.next_event().map_or(shown, |next| shown.max(next));
        }
        prop_assert_eq!(device.in_flight(), 0);
    }
}
