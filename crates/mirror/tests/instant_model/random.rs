//! Larger disks, more requests, more troubles: at random, with what fails made small.

use crate::cases::{limits, requests};
use crate::defect::Defect;
use crate::machine::Machine;
use crate::search::System;
use crate::simple::Simple;
use crate::storage::{Discards, How, Init};
use crate::world::{Budget, Case, Effects, Event, Looks, Nonsense, World, data};
use headgate_mirror::instant::{Keeps, Limits, PointInTime};
use headgate_mirror::{Request, TargetContent};
use headgate_units::Bytes;
use proptest::prelude::*;

const BLOCKS: usize = 10;

fn inits() -> impl Strategy<Value = [Init; BLOCKS]> {
    let one =
        prop_oneof![3 => Just(None), 2 => Just(Some(Init::Hole)), 1 => Just(Some(Init::Zeroes))];
    prop::collection::vec(one, BLOCKS)
        .prop_map(|kinds| std::array::from_fn(|at| kinds[at].unwrap_or_else(|| data(at as u8))))
}

fn limit() -> impl Strategy<Value = Limits> {
    let chunk = prop_oneof![Just(1_u64), Just(2), Just(4)];
    (chunk, 1..3_u64, 1..5_u32, 1..4_u32, 1..4_u64, 0..8_u64, 0..6_u64).prop_map(
        |(chunk, bitmap, steps, ahead, step, more, room)| Limits {
            ahead: ahead.min(steps),
            step: Bytes(step * chunk),
            look: Bytes(step * chunk + more),
            bitmap: Bytes(bitmap),
            // With a small bitmap, chunks are larger than they need be.
            ..limits(chunk, steps, chunk.max(3 - bitmap) + room)
        },
    )
}

fn cases() -> impl Strategy<Value = Case<BLOCKS>> {
    let discards = || prop_oneof![Just(Discards::Zero), Just(Discards::Keep)];
    let target = prop_oneof![Just(TargetContent::Zeroes), Just(TargetContent::Unknown)];
    let keeps = prop_oneof![
        Just((Keeps::Buffers, 0)),
        (0..4_u8).prop_map(|refusals| (Keeps::Target, refusals))
    ];
    // A read may see what is not completed, and a flush need not keep that: `guest` does not know.
    let effects = Just(Effects::WhenReported);
    let looks = prop_oneof![Just(Looks::Always), Just(Looks::Never)];
    let asked = requests(BLOCKS as u64, "rwfdzZs");
    let old = prop::collection::vec(prop::sample::select(asked), 0..3);
    let around = (target, keeps, effects, looks, old);
    (inits(), around, (discards(), discards()), limit(), 0..4_u8, 0..3_u8).prop_map(
        |(source, (target, keeps, effects, looks, old), discards, limits, failures, ends)| Case {
            name: "at random",
            source,
            target,
            keeps: keeps.0,
            discards,
            limits: Limits { requests: 4 - old.len(), ..limits },
            old,
            requests: requests(BLOCKS as u64, "rwfdzZsss"),
            budget: Budget { requests: 16, failures, ends: ends / 2, refusals: keeps.1 },
            effects,
            looks,
            nonsense: Nonsense::Tried,
            defect: Defect::None,
        },
    )
}

fn is_trouble(event: &Event) -> bool {
    match event {
        Event::Effect(_, _, how) => *how != How::Done,
        Event::Cancel | Event::LoseTarget | Event::Refuse(_) | Event::Part(..) => true,
        _ => false,
    }
}

/// Requests half of the time, troubles seldom; of requests the large ones seldom.
fn pick<M: Machine>(world: &World<M, BLOCKS>, case: &Case<BLOCKS>, choice: u32) -> Event {
    let (kind, which) = (choice % 16, choice as usize / 16);
    let events = world.events(case);
    let small = |request: &Request| request.extent().is_none_or(|e| e.len() <= Bytes(3));
    let wanted = |event: &&Event| match kind {
        0..2 => matches!(event, Event::Request(_)),
        2..6 => matches!(event, Event::Request(request) if small(request)),
        6 => is_trouble(event),
        7..9 => **event == Event::Copy,
        _ => !is_trouble(event) && !matches!(event, Event::Request(_)),
    };
    let some: Vec<&Event> = events.iter().filter(wanted).collect();
    match some.get(which % some.len().max(1)) {
        Some(event) => **event,
        None => events[which % events.len()],
    }
}

/// Plays the choices, then lets everything come to its end.
fn play<M: Machine>(case: &Case<BLOCKS>, choices: &[u32]) -> Result<(), String> {
    let mut world = World::<M, BLOCKS>::begin(case)?;
    let mut events = Vec::new();
    let mut choices = choices.iter();
    loop {
        let event = match choices.next() {
            Some(choice) => Some(pick(&world, case, *choice)),
            None => world.fair(),
        };
        let Some(event) = event else { break };
        events.push(event);
        let next = world.step(case, event);
        let next = next.and_then(|next| next.check_always(case).map(|()| next));
        world = next.map_err(|broken| World::<M, BLOCKS>::story(case, &events) + &broken)?;
        if events.len() > 1000 {
            return Err(World::<M, BLOCKS>::story(case, &events[..200]) + "no end");
        }
    }
    world.check_end().map_err(|broken| World::<M, BLOCKS>::story(case, &events) + &broken)
}

fn check<M: Machine>(case: &Case<BLOCKS>, choices: &[u32]) -> Result<(), TestCaseError> {
    play::<M>(case, choices).map_err(TestCaseError::fail)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn larger_disks_are_copied(
        case in cases(),
        choices in prop::collection::vec(0..1_000_000_u32, 0..150),
    ) {
        check::<PointInTime>(&case, &choices)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_simple_machine_copies_larger_disks(
        case in cases(),
        choices in prop::collection::vec(0..1_000_000_u32, 0..150),
    ) {
        check::<Simple>(&case, &choices)?;
    }
}
