//! Advice that is carried out, with a data path that says what the test has it say.

use super::state::{Advised, Run, request};
use super::testing::{bench, finish, name, on, spacious};
use crate::testing::Bench;
use crate::{Control, ErrorKind};
use headgate_api::balance::{
    AutomaticPatch, BalanceBy, BalanceCreate, BalanceMove, BalanceMoveState, BalanceRun,
};
use headgate_api::health::HealthStatus;
use headgate_api::placement::{MoveFinding, MoveReview};
use headgate_api::types::{Force, ImageFate};
use headgate_history::wall_clock;
use headgate_mirror::{Outcome, Reason};
use headgate_model::{Lookback, MovePace};
use headgate_placement::{Automatic, Hours, Leg, Mode, MoveLimits, Rules};
use headgate_units::{Bytes, Nanos};
use serde_json::{Value, json};
use std::num::NonZeroU32;

fn limits(at_once: u32, per_datastore: u32) -> MoveLimits {
    let number = |n| NonZeroU32::new(n).unwrap();
    MoveLimits { at_once: number(at_once), per_datastore: number(per_datastore) }
}

fn advised(disk: &str, from: &str, to: &str, decision: usize) -> Advised {
    let leg = Leg { disk: disk.into(), from: from.into(), to: to.into(), decision };
    let told = BalanceMove {
        disk: name(disk),
        from: name(from),
        to: name(to),
        size: Bytes(8192),
        advice: "to balance load".into(),
        state: BalanceMoveState::Waiting,
        reason: None,
    };
    Advised { leg, told }
}

fn start(bench: &Bench, by: BalanceBy, legs: Vec<Advised>, limits: MoveLimits) {
    let pace = MovePace::default();
    bench.control.start_run(by, legs, limits, Hours::ALWAYS, pace).unwrap();
}

fn run(control: &Control) -> BalanceRun {
    control.balancer().run.as_ref().map(Run::view).unwrap()
}

fn states(control: &Control) -> Vec<&'static str> {
    run(control).moves.iter().map(|one| one.state.as_str()).collect()
}

fn reason(control: &Control, at: usize) -> String {
    run(control).moves[at].reason.clone().unwrap_or_default()
}

#[test]
fn moves_are_made_one_after_the_other_and_what_they_did_is_told() {
    let bench = bench(&["a", "b", "c"]);
    let control = &bench.control;
    let legs = vec![
        advised("a", "old", "new", 0),
        advised("b", "old", "other", 1),
        advised("c", "old", "new", 2),
    ];
    start(&bench, BalanceBy::Operator, legs, limits(1, 1));
    control.carry_on();
    assert_eq!(states(control), ["moving", "waiting", "waiting"]);
    control.carry_on();
    assert_eq!(states(control), ["moving", "waiting", "waiting"], "one at once");
    finish(&bench, "a", Outcome::Switched);
    control.carry_on();
    assert_eq!(states(control), ["moved", "moving", "waiting"]);
    finish(&bench, "b", Outcome::Failed(Reason::TargetFailed));
    control.carry_on();
    assert_eq!(states(control), ["moved", "failed", "moving"]);
    assert!(reason(control, 1).contains("target failed"), "{}", reason(control, 1));
    finish(&bench, "c", Outcome::Switched);
    assert_eq!(run(control).ended, None);
    control.carry_on();
    assert!(run(control).ended.is_some());
    assert_eq!(["a", "b", "c"].map(|disk| on(&bench, disk)), ["new", "old", "new"]);
    // What has moved so is known as a move by hand is: for rules, and to be judged.
    control.samples().flush();
    let report = control.advice(Lookback::default()).unwrap();
    let known = report.pools.iter().flat_map(|pool| &pool.pool.history);
    let mut disks: Vec<&str> = known.map(|past| past.disk.as_str()).collect();
    disks.dedup();
    assert_eq!(disks, ["a", "c"]);
}

#[test]
fn a_move_that_does_not_stand_any_more_is_passed_over_with_its_reason() {
    let bench = bench(&["a", "b", "c", "d", "e"]);
    let control = &bench.control;
    let legs = vec![
        advised("a", "old", "new", 0),
        advised("b", "old", "new", 1),
        advised("c", "old", "new", 2),
        advised("d", "old", "gone", 3),
        advised("e", "old", "new", 4),
    ];
    start(&bench, BalanceBy::Operator, legs, limits(1, 1));
    control.remove_disk(&name("a"), Force::No, ImageFate::Purge).unwrap();
    let patch = serde_json::from_value(json!({"placement": {"mobility": "pinned"}})).unwrap();
    control.set_disk(&name("b"), patch).unwrap();
    // What only a move by hand would find out.
    let full = json!({"reservation": 5_000, "force": "yes"});
    control.set_disk(&name("c"), serde_json::from_value(full).unwrap()).unwrap();
    let small = serde_json::from_value(json!({"capacity": 100})).unwrap();
    control.set_datastore(&name("new"), small).unwrap();
    control.carry_on();
    assert_eq!(states(control), ["skipped", "skipped", "skipped", "skipped", "moving"]);
    for (at, words) in ["is gone", "is pinned", "5000", "is not there"].iter().enumerate() {
        assert!(reason(control, at).contains(words), "{at}: {}", reason(control, at));
    }
}

#[test]
fn rules_that_changed_meanwhile_hold_for_what_was_decided_together() {
    let bench = bench(&["a", "b"]);
    let control = &bench.control;
    let legs = || vec![advised("a", "old", "new", 0), advised("b", "old", "new", 0)];
    start(&bench, BalanceBy::Operator, legs(), limits(1, 1));
    let group = json!([{"name": "pair", "disks": ["a", "b"]}]);
    let mut rules = serde_json::to_value(spacious()).unwrap();
    rules["anti-affinity"] = group;
    control.set_rules(serde_json::from_value(rules).unwrap()).unwrap();
    control.carry_on();
    // Alone the first could go. Then the second could not follow.
    assert_eq!(states(control), ["skipped", "skipped"]);
    assert!(reason(control, 0).contains("rule 'pair' keeps them apart"), "{}", reason(control, 0));
    assert!(reason(control, 1).contains("disk 'a'"), "{}", reason(control, 1));
    assert!(run(control).ended.is_some() && control.moves().is_empty());
}

#[test]
fn a_stop_leaves_the_move_under_way_going_and_begins_no_other() {
    let bench = bench(&["a", "b"]);
    let control = &bench.control;
    assert_eq!(control.stop_balance().unwrap_err().kind(), ErrorKind::Conflict);
    let legs = vec![advised("a", "old", "new", 0), advised("b", "old", "other", 1)];
    start(&bench, BalanceBy::Operator, legs, limits(1, 1));
    control.carry_on();
    let again = control.begin_balance(Lookback::default(), &BalanceCreate::default());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
    control.stop_balance().unwrap();
    assert_eq!(states(control), ["moving", "skipped"]);
    assert_eq!(run(control).ended, None, "a disk moves still");
    finish(&bench, "a", Outcome::Switched);
    control.carry_on();
    assert_eq!(states(control), ["moved", "skipped"]);
    assert!(run(control).ended.is_some());
    assert_eq!([on(&bench, "a"), on(&bench, "b")], ["new", "old"]);
    // What is shown then is what would be done now.
    let shown = control.balance(Lookback::default()).unwrap();
    assert!(shown.plan.is_some() && shown.run.is_some());
}

#[test]
fn a_move_by_hand_counts_among_those_at_once() {
    let bench = bench(&["a", "b"]);
    let control = &bench.control;
    let by_hand = request(name("other"), MovePace::default());
    control.migrate_disk(&name("b"), by_hand).unwrap();
    start(&bench, BalanceBy::Operator, vec![advised("a", "old", "new", 0)], limits(2, 1));
    control.carry_on();
    assert_eq!(states(control), ["waiting"], "'old' gives a disk away already");
    finish(&bench, "b", Outcome::Switched);
    control.carry_on();
    assert_eq!(states(control), ["moving"]);
}

fn set(control: &Control, patch: Value) -> Automatic {
    control.set_automatic(&serde_json::from_value::<AutomaticPatch>(patch).unwrap()).unwrap()
}

/// Advice that has a move's prediction prove wrong that was made at this instant.
fn harmful(control: &Control, at: Nanos) -> headgate_api::placement::AdviceReport {
    let mut report = control.advice(Lookback::default()).unwrap();
    report.reviews = vec![MoveReview {
        disk: "a".into(),
        from: "new".into(),
        to: "old".into(),
        at: at.0 / 1_000_000_000,
        finding: MoveFinding::Worse { before: 5_000_000, after: 8_000_000, barred: None },
    }];
    report
}

#[test]
fn rules_carry_out_what_is_advised_and_ask_where_they_are_to_ask() {
    let bench = bench(&["a"]);
    let control = &bench.control;
    // A move that did harm before is advised to be taken back.
    let report = harmful(control, Nanos(1));
    let ask = set(control, json!({"mode": "ask"}));
    control.act_on(&ask, &report);
    assert!(control.balancer().run.is_none(), "it did not ask");
    let warnings = control.health().warnings;
    assert!(warnings.iter().any(|w| w.contains("1 advised move waits")), "{warnings:?}");
    assert_eq!(control.health().status, HealthStatus::Ok);

    let on = set(control, json!({"mode": "on"}));
    assert!(control.automatic_warnings().is_empty());
    control.act_on(&on, &report);
    control.carry_on();
    assert_eq!((run(control).by, states(control)), (BalanceBy::Automatic, vec!["moving"]));
    control.act_on(&on, &report);
    finish(&bench, "a", Outcome::Failed(Reason::TargetFailed));
    control.carry_on();
    assert!(run(control).ended.is_some());
    // A move that came to nothing is not tried again at once.
    control.act_on(&on, &report);
    assert_eq!(states(control), ["failed"]);
}

#[test]
fn rules_that_are_switched_off_begin_no_further_move() {
    let bench = bench(&["a", "b"]);
    let control = &bench.control;
    set(control, json!({"mode": "on"}));
    let legs = vec![advised("a", "old", "new", 0), advised("b", "old", "other", 1)];
    start(&bench, BalanceBy::Automatic, legs, limits(1, 1));
    control.carry_on();
    set(control, json!({"mode": "off"}));
    control.carry_on();
    assert_eq!(states(control), ["moving", "skipped"]);
}

#[test]
fn a_wrong_prediction_stops_the_rules_for_good_until_they_are_switched_on_again() {
    let bench = bench(&["a"]);
    let on = set(&bench.control, json!({"mode": "on", "hours": "always"}));
    let later = Nanos(wall_clock().0 + 60_000_000_000);
    let report = harmful(&bench.control, later);
    bench.control.act_on(&on, &report);
    assert!(bench.control.balancer().run.is_none(), "it went on");
    let stopped = bench.control.rules().automatic;
    assert!(stopped.stopped.as_ref().unwrap().why.contains("proved wrong"), "{stopped:?}");
    let warnings = bench.control.health().warnings;
    assert!(warnings.iter().any(|w| w.contains("automatic moves have stopped")), "{warnings:?}");

    // Neither a restart forgives it, nor rules that are set as they were.
    let bench = bench.restart();
    let control = &bench.control;
    assert_eq!(control.rules().automatic, stopped);
    let same = Automatic { mode: Mode::On, ..Automatic::default() };
    control.set_rules(Rules { automatic: same, ..spacious() }).unwrap();
    assert!(control.rules().automatic.stopped.is_some());
    set(control, json!({"at_once": 2}));
    assert!(control.rules().automatic.stopped.is_some());
    assert_eq!(set(control, json!({"mode": "on"})).stopped, None);
}

#[test]
fn what_would_be_done_says_why_a_move_would_be_refused() {
    let bench = bench(&["a"]);
    let control = &bench.control;
    let report = harmful(control, Nanos(1));
    assert_eq!(control.balance_plan(&report).moves[0].state, BalanceMoveState::Waiting);
    let emptied = json!({"placement": {"state": "closed"}});
    control.set_datastore(&name("new"), serde_json::from_value(emptied).unwrap()).unwrap();
    let refused = control.balance_plan(&report).moves.remove(0);
    assert_eq!(refused.state, BalanceMoveState::Skipped);
    assert!(refused.reason.unwrap().contains("closed to new disks"));
}
