//! Larger disks, more requests, more troubles: at random, with what fails made small.

use crate::cases::{limits, requests};
use crate::search::System;
use crate::storage::{Discards, How, Init};
use crate::world::{Budget, Case, Effects, Event, World, data};
use headgate_mirror::{TargetContent, Word};
use proptest::prelude::*;

const BLOCKS: usize = 10;

fn inits() -> impl Strategy<Value = [Init; BLOCKS]> {
    let one =
        prop_oneof![3 => Just(None), 2 => Just(Some(Init::Hole)), 1 => Just(Some(Init::Zeroes))];
    prop::collection::vec(one, BLOCKS)
        .prop_map(|kinds| std::array::from_fn(|at| kinds[at].unwrap_or_else(|| data(at as u8))))
}

fn cases() -> impl Strategy<Value = Case<BLOCKS>> {
    let discards = || prop_oneof![Just(Discards::Zero), Just(Discards::Keep)];
    let target = prop_oneof![Just(TargetContent::Zeroes), Just(TargetContent::Unknown)];
    let effects = prop_oneof![Just(Effects::WhenReported), Just(Effects::Before)];
    let sizes = (1..4_u32, 1..4_u64, 0..8_u64);
    (inits(), target, (discards(), discards()), effects, sizes, 0..4_u8, 0..3_u8).prop_map(
        |(source, target, discards, effects, (steps, step, more), failures, ends)| Case {
            name: "at random",
            source,
            target,
            discards,
            limits: limits(steps, step, step + more),
            requests: requests(BLOCKS as u64, "rwfdzZsss"),
            budget: Budget { requests: 18, failures, records: 2, pauses: 2, ends: ends / 2 },
            effects,
        },
    )
}

fn is_trouble(event: &Event) -> bool {
    match event {
        Event::Effect(_, _, how) => *how != How::Done,
        Event::RecordWord(word) => *word != Word::Made,
        Event::Cancel | Event::LoseTarget | Event::Pause => true,
        _ => false,
    }
}

/// One of what may happen: requests half of the time, troubles seldom.
fn pick(world: &World<BLOCKS>, case: &Case<BLOCKS>, choice: u32) -> Event {
    let (kind, which) = (choice % 16, choice as usize / 16);
    let events = world.events(case);
    let wanted = |event: &&Event| match kind {
        0..6 => matches!(event, Event::Request(_)),
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
fn play(case: &Case<BLOCKS>, choices: &[u32]) -> Result<(), String> {
    let mut world = World::<BLOCKS>::new(case)?;
    let mut story = Vec::new();
    let mut choices = choices.iter();
    let mut left = 1000;
    loop {
        let event = match choices.next() {
            Some(choice) => Some(pick(&world, case, *choice)),
            None => world.fair(),
        };
        let Some(event) = event else { break };
        story.push(event);
        let next = world.step(case, event).and_then(|next| next.check_always(case).map(|()| next));
        world = next.map_err(|broken| format!("{story:#?}: {broken}"))?;
        left -= 1;
        if left == 0 {
            return Err(format!("{story:#?}: no end"));
        }
    }
    world.check_end().map_err(|broken| format!("{story:#?}: {broken}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn larger_disks_are_one_disk(
        case in cases(),
        choices in prop::collection::vec(0..1_000_000_u32, 0..150),
    ) {
        if let Err(broken) = play(&case, &choices) {
            prop_assert!(false, "{case:#?}\n{broken}");
        }
    }
}
