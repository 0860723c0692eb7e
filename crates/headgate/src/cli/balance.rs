//! `headgate balance`: what advice would do now, and doing it.

use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::migrate::progress;
use super::output::{Align, Table, date, or_dash, print_value};
use clap::Args;
use headgate_api::balance::{
    Balance as View, BalanceCreate, BalanceMove, BalanceMoveState, BalancePlan, BalanceRun,
};
use headgate_api::client::Client;
use headgate_api::moves::Move;
use headgate_daemon::serve::signals::Signals;
use headgate_model::Lookback;
use headgate_placement::{Automatic, Mode};
use headgate_units::{BytesPerSec, Iops, Shares};
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::num::NonZeroU32;
use std::time::Duration;

/// How often one looks how far it is.
const WATCH: Duration = Duration::from_millis(500);

const PATH: &str = "/v1/balance";

/// Arguments of `headgate balance`.
#[derive(Debug, Args)]
pub(super) struct Balance {
    /// Carry out what is advised, and wait for its end. Ctrl-C begins no further move
    #[arg(long, conflicts_with = "stop")]
    apply: bool,
    /// Begin no further move; those under way go on
    #[arg(long)]
    stop: bool,
    /// Span of history to use, 1min to 30d, such as 90min, 24h or 7d
    #[arg(long, value_name = "TIME", default_value_t, conflicts_with = "stop")]
    window: Lookback,
    /// Most disks that move at once, those that others move included; the rules say how many of
    /// one datastore [default: 1]
    #[arg(long, value_name = "N", requires = "apply")]
    at_once: Option<NonZeroU32>,
    /// Weight of each copy against the disks of both datastores, 1 to 1000000 [default: 100]
    #[arg(long, value_name = "N", requires = "apply")]
    move_shares: Option<Shares>,
    /// Maximum of each copy in IOs per second
    #[arg(long, value_name = "IOPS", requires = "apply")]
    move_limit: Option<Iops>,
    /// Maximum bandwidth of each copy in bytes per second, such as 50M
    #[arg(long, value_name = "BYTES", requires = "apply")]
    move_bandwidth: Option<BytesPerSec>,
    /// Do not wait for the end
    #[arg(long, requires = "apply")]
    detach: bool,
    #[command(flatten)]
    pub(super) print: Print,
}

impl Balance {
    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        let path = format!("{PATH}?window={}", self.window);
        if self.stop {
            client.delete(PATH)?;
            return Ok(writeln!(out, "no further move begins")?);
        }
        if !self.apply {
            let view: View = client.get(&path)?;
            return print_value(out, self.print, &view, render);
        }
        // Caught before it begins: what ends this command must not leave the rest going unsaid.
        let signals = Signals::catch().map_err(CliError::Print)?;
        let begun: View = client.send(Method::POST, &path, &self.request())?;
        // With a plan nothing has begun: what was carried out before is told, and judged no more.
        if self.detach || begun.plan.is_some() {
            return print_value(out, self.print, &begun, render);
        }
        let end = watch(&client, begun, &signals)?;
        print_value(out, self.print, &end, render)?;
        match end.run.as_ref().and_then(failure) {
            Some(failed) => Err(CliError::Stopped(failed)),
            None => Ok(()),
        }
    }

    fn request(&self) -> BalanceCreate {
        BalanceCreate {
            at_once: self.at_once,
            shares: self.move_shares,
            limit: self.move_limit,
            limit_bandwidth: self.move_bandwidth,
        }
    }
}

fn of_state(run: &BalanceRun, state: BalanceMoveState) -> impl Iterator<Item = &BalanceMove> {
    run.moves.iter().filter(move |one| one.state == state)
}

fn over(run: &BalanceRun) -> usize {
    let goes_on = |one: &&BalanceMove| {
        matches!(one.state, BalanceMoveState::Waiting | BalanceMoveState::Moving)
    };
    run.moves.len() - run.moves.iter().filter(goes_on).count()
}

/// Looks until the last move is over, with a bar where somebody sees it.
fn watch(client: &Client, mut now: View, signals: &Signals) -> Result<View, CliError> {
    let bar = ProgressBar::new(1);
    // The template is a constant, and its mistakes would show in every run.
    if let Ok(style) = ProgressStyle::with_template("{msg:>60} {wide_bar} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    while let Some(run) = now.run.as_ref().filter(|run| run.ended.is_none()) {
        bar.set_length(run.moves.len() as u64);
        bar.set_position(over(run) as u64);
        let moving: Vec<&BalanceMove> = of_state(run, BalanceMoveState::Moving).collect();
        if let Some(first) = moving.first() {
            // It may be over by now, and another disk's turn.
            let how: Option<Move> = client.get(&format!("/v1/moves/{}", first.disk)).ok();
            let how = how.map_or_else(String::new, |how| progress(&how));
            bar.set_message(format!("{}: {how}", first.disk));
        }
        if signals.wait_for(WATCH).is_some() {
            bar.finish_and_clear();
            // That it has ended just now is no mistake.
            let _ = client.delete(PATH);
            // A move may have begun since it was looked at last.
            let run = client.get::<View>(PATH)?.run;
            let moving = run.iter().flat_map(|run| of_state(run, BalanceMoveState::Moving));
            return Err(CliError::Stopped(left(&moving.collect::<Vec<_>>())));
        }
        now = client.get(PATH)?;
    }
    bar.finish_and_clear();
    Ok(now)
}

/// What goes on when the command ends before its time.
fn left(moving: &[&BalanceMove]) -> String {
    let disks: Vec<String> = moving.iter().map(|one| format!("'{}'", one.disk)).collect();
    match disks.is_empty() {
        true => "no further move begins".into(),
        false => format!(
            "the move of disk {} goes on without this command, and no further one begins: 'headgate \
             disk moves' says how far it is",
            disks.join(", ")
        ),
    }
}

/// What failed.
fn failure(run: &BalanceRun) -> Option<String> {
    let failed: Vec<String> =
        of_state(run, BalanceMoveState::Failed).map(|one| format!("'{}'", one.disk)).collect();
    (!failed.is_empty()).then(|| {
        format!("not all moves were made: those of disk {} failed, see above", failed.join(", "))
    })
}

fn render(view: &View) -> String {
    let mut text = String::new();
    if let Some(run) = &view.run {
        text.push_str(&render_run(run));
    }
    if let Some(plan) = &view.plan {
        if view.run.is_some() {
            text.push('\n');
        }
        text.push_str(&render_plan(plan));
    }
    text.push_str(&format!("\nautomatic moves: {}\n", automatic(&view.automatic)));
    text
}

fn render_run(run: &BalanceRun) -> String {
    let (by, began, all) = (run.by.as_str(), date(run.began), run.moves.len());
    let how = match run.ended {
        None => format!("goes on, {} of {all} moves are over", over(run)),
        Some(ended) => {
            let moved = of_state(run, BalanceMoveState::Moved).count();
            format!("ended {}, {moved} of {all} disks have moved", date(ended))
        }
    };
    let mut table = Table::new(&[
        ("DISK", Align::Left),
        ("STATE", Align::Left),
        ("FROM", Align::Left),
        ("TO", Align::Left),
        ("SIZE", Align::Right),
        ("REASON", Align::Left),
    ]);
    for one in &run.moves {
        table.row(vec![
            one.disk.to_string(),
            one.state.as_str().into(),
            one.from.to_string(),
            one.to.to_string(),
            one.size.to_string(),
            or_dash(one.reason.clone()),
        ]);
    }
    format!("advice carried out since {began} (by {by}) {how}\n\n{}", table.render())
}

fn render_plan(plan: &BalancePlan) -> String {
    let mut text = match plan.moves.len() {
        0 => "no disk would move now\n".to_owned(),
        1 => "1 disk would move now; 'headgate balance --apply' moves it\n".to_owned(),
        n => format!("{n} disks would move now; 'headgate balance --apply' moves them\n"),
    };
    if !plan.moves.is_empty() {
        text.push_str("\nmoves\n");
    }
    for one in &plan.moves {
        let not = one.reason.as_ref().map(|why| format!("; but not now: {why}"));
        text.push_str(&format!("  {} ({}){}\n", one.advice, one.size, not.unwrap_or_default()));
    }
    if !plan.stays.is_empty() {
        text.push_str("\nstays\n");
    }
    plan.stays.iter().for_each(|stay| {
        text.push_str(&format!("  {}: {}\n", stay.name, stay.reason));
    });
    text
}

/// Moves without an operator, in words.
pub(super) fn automatic(automatic: &Automatic) -> String {
    let Automatic { mode, hours, at_once, per_datastore, stopped, .. } = automatic;
    if *mode == Mode::Off {
        return "off".into();
    }
    let word = if *mode == Mode::Ask { "ask" } else { "on" };
    let stopped = stopped.as_ref().map(|stopped| {
        let when = date(stopped.at.0 / 1_000_000_000);
        format!("; stopped {when}: {}; 'headgate rules --automatic on' goes on", stopped.why)
    });
    let hours = match hours.to_string().as_str() {
        "always" => "at any time".to_owned(),
        span => format!("{span} UTC"),
    };
    let stopped = stopped.unwrap_or_default();
    format!("{word}, {hours}, {at_once} at once, {per_datastore} of a datastore{stopped}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::Stopped;
    use headgate_units::Nanos;

    fn view(run: serde_json::Value) -> View {
        let automatic = serde_json::to_value(Automatic::default()).unwrap();
        serde_json::from_value(serde_json::json!({"run": run, "automatic": automatic})).unwrap()
    }

    fn moved(disk: &str, state: &str, reason: Option<&str>) -> serde_json::Value {
        serde_json::json!({"disk": disk, "from": "slow", "to": "fast", "size": 1_073_741_824,
            "advice": "to balance load", "state": state, "reason": reason})
    }

    #[test]
    fn what_goes_on_and_what_came_of_it_is_told_with_reasons() {
        let moves = serde_json::json!([
            moved("a", "moved", None),
            moved("b", "failed", Some("the target failed")),
            moved("c", "skipped", Some("'c' is pinned")),
            moved("d", "moving", None)
        ]);
        let going = view(serde_json::json!({"by": "operator", "began": 1, "moves": moves}));
        let text = render(&going);
        assert!(text.contains("goes on, 3 of 4 moves are over"), "{text}");
        assert!(text.contains("b     failed   slow  fast  1 GiB  the target failed"), "{text}");
        let run = going.run.unwrap();
        assert!(failure(&run).unwrap().contains("disk 'b' failed"));
        let moving: Vec<&BalanceMove> = of_state(&run, BalanceMoveState::Moving).collect();
        let said = left(&moving);
        assert!(said.contains("'d' goes on") && said.contains("no further one begins"), "{said}");
        assert_eq!(left(&[]), "no further move begins");
    }

    #[test]
    fn automatic_moves_are_told_with_their_hours_and_what_stopped_them() {
        assert_eq!(automatic(&Automatic::default()), "off");
        let hours = "22:00-06:00".parse().unwrap();
        let mut on = Automatic { mode: Mode::On, hours, ..Automatic::default() };
        assert_eq!(automatic(&on), "on, 22:00-06:00 UTC, 1 at once, 1 of a datastore");
        let at = Nanos::from_secs(1_764_064_800);
        on.stopped = Some(Stopped { at, why: "it was worse".into() });
        let text = automatic(&on);
        assert!(text.contains("stopped 2025-11-25") && text.contains("it was worse"), "{text}");
    }
}
