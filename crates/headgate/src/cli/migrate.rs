//! Live moves of disks.

use super::common::Print;
use super::dry_run::DryRunArg;
use super::error::CliError;
use super::output::{Align, Table, date, or_dash, print_value, warnings};
use super::values::{OrNone, force};
use clap::Args;
use headgate_api::client::Client;
use headgate_api::moves::{DiskMigrate, Move, MoveOutcome, MovePatch, MoveState, MoveWish};
use headgate_api::types::{Changed, Disk};
use headgate_daemon::serve::signals::Signals;
use headgate_model::Name;
use headgate_units::{Bytes, BytesPerSec, Iops, Shares};
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::time::Duration;

/// How often one looks how far a move is.
const WATCH: Duration = Duration::from_millis(500);

/// Arguments of `disk migrate`.
#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// Name of the disk
    name: Name,
    /// Datastore that it goes to. For a striped disk also its own, when that has a server more: the
    /// disk then lies on all servers, on exports of another name
    #[arg(long, value_name = "DATASTORE", conflicts_with_all = ["pause", "resume", "cancel"])]
    to: Option<Name>,
    /// Export of the NBD server that the disk becomes; what it holds is overwritten
    #[arg(long, value_name = "NAME", requires = "to")]
    export: Option<String>,
    /// Weight of the copy against the disks of both datastores, 1 to 1000000 [default: 100]
    #[arg(long, value_name = "N")]
    move_shares: Option<Shares>,
    /// Maximum of the copy in IOs per second, or 'none'
    #[arg(long, value_name = "IOPS")]
    move_limit: Option<OrNone<Iops>>,
    /// Maximum bandwidth of the copy in bytes per second, such as 50M, or 'none'
    #[arg(long, value_name = "BYTES")]
    move_bandwidth: Option<OrNone<BytesPerSec>>,
    /// With --to: overbook the datastore if need be, and overwrite a block device that holds
    /// something. With --cancel: forget a copy that cannot be removed, and leave it there
    #[arg(long)]
    force: bool,
    /// Do not wait for the end
    #[arg(long, requires = "to")]
    detach: bool,
    #[command(flatten)]
    dry_run: DryRunArg,
    /// Have the copy rest
    #[arg(long, conflicts_with_all = ["resume", "cancel"])]
    pause: bool,
    /// Have a copy that rests go on
    #[arg(long, conflicts_with = "cancel")]
    resume: bool,
    /// End the move: the disk stays where it is
    #[arg(long, conflicts_with_all = ["move_shares", "move_limit", "move_bandwidth"])]
    cancel: bool,
    #[command(flatten)]
    pub(super) print: Print,
}

impl Migrate {
    fn patch(&self) -> MovePatch {
        let state = match (self.pause, self.resume) {
            (true, _) => Some(MoveWish::Paused),
            (_, true) => Some(MoveWish::Copying),
            _ => None,
        };
        MovePatch {
            state,
            shares: self.move_shares,
            limit: OrNone::change(self.move_limit),
            limit_bandwidth: OrNone::change(self.move_bandwidth),
        }
    }

    fn request(&self, to: Name) -> DiskMigrate {
        DiskMigrate {
            to,
            export: self.export.clone(),
            shares: self.move_shares,
            limit: OrNone::change(self.move_limit).apply(None),
            limit_bandwidth: OrNone::change(self.move_bandwidth).apply(None),
            force: force(self.force),
        }
    }

    pub(super) fn run(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        let (name, path) = (&self.name, format!("/v1/moves/{}", self.name));
        if let Some(to) = self.to.clone() {
            return self.begin(client, to, out);
        }
        if self.cancel && !self.dry_run.is_wanted() {
            let force = if self.force { "yes" } else { "no" };
            let signals = Signals::catch().map_err(CliError::Print)?;
            client.delete(&format!("{path}?force={force}"))?;
            if !self.force {
                // Until the copy is gone the disk cannot be moved again.
                watch(client, client.get(&path)?, &signals)?;
            }
            return Ok(writeln!(out, "the move of disk '{name}' is ended")?);
        }
        let patch = self.patch();
        if self.dry_run.is_wanted() {
            return Err(CliError::Usage("--dry-run is for --to".into()));
        }
        if patch == MovePatch::default() {
            return Err(CliError::Usage(
                "give --to DATASTORE to move the disk; of a move under way one of --pause, \
                 --resume, --cancel, --move-shares, --move-limit, --move-bandwidth"
                    .into(),
            ));
        }
        let now: Move = client.send(Method::PATCH, &path, &patch)?;
        print_value(out, self.print, &now, |now| format!("{}\n", words(now)))
    }

    fn begin(&self, client: &Client, to: Name, out: &mut dyn Write) -> Result<(), CliError> {
        let path = format!("/v1/disks/{}/migrate", self.name);
        // Caught before it begins: what ends this command must not look like the move's end.
        let signals = Signals::catch().map_err(CliError::Print)?;
        let (of, request) = ((Method::POST, path.as_str()), self.request(to));
        let begun = self.dry_run.send(client, of, &request, self.print, out)?;
        let Some::<Changed<Move>>(begun) = begun else { return Ok(()) };
        warnings(&begun.warnings);
        let end = match self.detach {
            true => begun.now,
            false => watch(client, begun.now, &signals)?,
        };
        if let Some(failed) = failure(&end) {
            return Err(CliError::Stopped(failed));
        }
        print_value(out, self.print, &end, |end| match end.outcome {
            Some(MoveOutcome::Switched) => {
                format!("disk '{}' is on datastore '{}'\n", end.disk, end.to)
            }
            _ => format!(
                "disk '{0}' is being moved to datastore '{1}': 'headgate disk moves' says how far \
                 it is\n",
                end.disk, end.to
            ),
        })
    }
}

/// Looks until the move is over, with a bar where somebody sees it.
fn watch(client: &Client, mut now: Move, signals: &Signals) -> Result<Move, CliError> {
    let (disk, path) = (now.disk.clone(), format!("/v1/moves/{}", now.disk));
    let bar = ProgressBar::new(now.size.0.max(1));
    // The template is a constant, and its mistakes would show in every run.
    if let Ok(style) = ProgressStyle::with_template("{msg:>44} {wide_bar} {percent:>3} % {elapsed}")
    {
        bar.set_style(style);
    }
    while now.state != MoveState::Ended {
        bar.set_message(progress(&now));
        bar.set_position(now.copied.0);
        if signals.wait_for(WATCH).is_some() {
            bar.finish_and_clear();
            return Err(CliError::Stopped(format!(
                "the move of disk '{disk}' goes on without this command: 'headgate disk moves' \
                 says how far it is, 'headgate disk migrate {disk} --cancel' ends it"
            )));
        }
        now = client.get(&path)?;
    }
    bar.finish_and_clear();
    Ok(now)
}

/// How one ended that did not end with the switch.
fn failure(end: &Move) -> Option<String> {
    let how = match end.outcome? {
        MoveOutcome::Switched => return None,
        MoveOutcome::Failed => "has failed",
        MoveOutcome::Cancelled => "was cancelled",
        MoveOutcome::Interrupted => "was interrupted",
    };
    let why = end.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!(
        "the move of disk '{}' {how}, and the disk is on datastore '{}' as before{why}",
        end.disk, end.from
    ))
}

/// A span of seconds, as people say it.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// How far a move is.
pub(super) fn progress(now: &Move) -> String {
    let mut text = format!("{} {} of {}", now.state.as_str(), now.copied, now.size);
    if let Some(rate) = now.rate {
        text.push_str(&format!(", {}/s", Bytes(rate)));
    }
    if let Some(left) = now.seconds_left {
        text.push_str(&format!(", {} left", span(left)));
    }
    text
}

/// Whether a disk has two copies.
pub(super) fn is_moving(disk: &Disk) -> bool {
    disk.moving.as_ref().is_some_and(|one| one.state != MoveState::Ended)
}

/// A move in a line.
pub(super) fn words(one: &Move) -> String {
    let (from, to) = (&one.from, &one.to);
    let why = one.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    match (one.state, one.outcome) {
        (MoveState::Ended, Some(outcome)) => {
            let when = one.ended.map(date).unwrap_or_default();
            format!("from '{from}' to '{to}' {} on {when}{why}", outcome.as_str())
        }
        (MoveState::Cleaning, Some(outcome)) => {
            let outcome = outcome.as_str();
            format!("from '{from}' to '{to}' {outcome}, its other copy is to be removed{why}")
        }
        _ => format!("from '{from}' to '{to}', {}{why}", progress(one)),
    }
}

/// All moves.
pub(super) fn list(client: &Client, print: Print, out: &mut dyn Write) -> Result<(), CliError> {
    let moves: Vec<Move> = client.get("/v1/moves")?;
    print_value(out, print, &moves, |moves| table(moves))
}

fn table(moves: &[Move]) -> String {
    let mut table = Table::new(&[
        ("DISK", Align::Left),
        ("STATE", Align::Left),
        ("FROM", Align::Left),
        ("TO", Align::Left),
        ("COPIED", Align::Right),
        ("SIZE", Align::Right),
        ("RATE", Align::Right),
        ("LEFT", Align::Right),
        ("BEGAN", Align::Left),
    ]);
    for one in moves {
        let ended = one.outcome.filter(|_| one.state == MoveState::Ended);
        table.row(vec![
            one.disk.to_string(),
            ended.map_or(one.state.as_str(), MoveOutcome::as_str).to_owned(),
            one.from.to_string(),
            one.to.to_string(),
            one.copied.to_string(),
            one.size.to_string(),
            or_dash(one.rate.map(|rate| format!("{}/s", Bytes(rate)))),
            or_dash(one.seconds_left.map(span)),
            date(one.began),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(changes: serde_json::Value) -> Move {
        let mut all = serde_json::json!({
            "disk": "db0", "from": "slow", "to": "fast", "state": "copying", "copied": 1_073_741_824,
            "size": 10_737_418_240_u64, "rate": 52_428_800, "seconds_left": 184, "shares": 100,
            "limit": null, "limit_bandwidth": null, "began": 1_764_064_800, "ended": null,
            "outcome": null, "reason": null
        });
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_move_is_told_with_its_rate_and_how_long_the_rest_takes() {
        let going = one(serde_json::json!({}));
        assert_eq!(
            words(&going),
            "from 'slow' to 'fast', copying 1 GiB of 10 GiB, 50 MiB/s, 4 min left"
        );
        assert_eq!(failure(&going), None);
        let text = table(&[going]);
        assert!(
            text.contains("db0   copying  slow  fast   1 GiB  10 GiB  50 MiB/s  4 min"),
            "{text}"
        );
        assert_eq!([59, 60, 61, 7_261].map(span), ["59 s", "1 min", "2 min", "2 h 1 min"]);
    }

    #[test]
    fn one_that_did_not_switch_is_a_failure_with_its_reason() {
        let failed = one(serde_json::json!({
            "state": "ended", "outcome": "failed", "reason": "the target failed a request",
            "rate": null, "seconds_left": null, "ended": 1_764_064_900
        }));
        let text = failure(&failed).unwrap();
        assert!(
            text.contains("has failed, and the disk is on datastore 'slow' as before"),
            "{text}"
        );
        assert!(text.ends_with(": the target failed a request"), "{text}");
        assert!(words(&failed).contains("failed on 2025-"), "{}", words(&failed));
        let done = one(serde_json::json!({"state": "ended", "outcome": "switched"}));
        assert_eq!(failure(&done), None);
    }
}
