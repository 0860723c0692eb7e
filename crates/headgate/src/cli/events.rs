//! `headgate events`: who changed what, what was refused, and what the daemon did and noticed.

use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::output::{date, json};
use clap::Args;
use headgate_api::client::{Client, ClientError, Followed};
use headgate_api::events::{Event, EventPage};
use headgate_model::{Lookback, Name};
use headgate_units::Nanos;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long it is until a daemon that is gone is looked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// So often a daemon may hang up before it says a word. One that is started again does so once at
/// most; one that knows the follower's certificate no more, always.
const SILENT_MAX: u32 = 3;

/// `headgate events`
#[derive(Debug, Args)]
pub(super) struct Events {
    /// Go on with new events as they come, also when the daemon is started again
    #[arg(long, short)]
    follow: bool,
    /// Begin so long ago: 1min to 30d
    #[arg(long, value_name = "TIME", default_value = "24h")]
    since: Lookback,
    /// Begin after the event with this number, however old it is
    #[arg(long, value_name = "NUMBER", conflicts_with = "since")]
    after: Option<u64>,
    /// Only what concerns this disk
    #[arg(long, value_name = "NAME")]
    disk: Option<Name>,
    #[command(flatten)]
    pub(super) print: Print,
}

/// Where one is in the log.
struct Place {
    after: u64,
    since: u64,
}

impl Events {
    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = self.since.from(Nanos::from(now)).0 / 1_000_000_000;
        let mut place = match self.after {
            Some(after) => Place { after, since: 0 },
            None => Place { after: 0, since },
        };
        if self.follow {
            return self.go_on(&client, &mut place, out);
        }
        let mut whole = EventPage { events: Vec::new(), is_last: true, newest: 0, damaged: 0 };
        loop {
            let page: EventPage =
                client.get(&format!("{}&after={}", self.path(&place), place.after))?;
            let last = page.events.last().map(|event| event.id);
            let is_last = page.is_last;
            (whole.newest, whole.damaged) = (page.newest, whole.damaged.max(page.damaged));
            match self.print.json {
                true => whole.events.extend(page.events),
                false => {
                    page.events.iter().try_for_each(|event| writeln!(out, "{}", line(event)))?;
                }
            }
            match last {
                Some(last) if !is_last => place.after = last,
                _ => break,
            }
        }
        if whole.damaged > 0 {
            eprintln!(
                "warning: {} lines of the log are damaged: events are missing",
                whole.damaged
            );
        }
        if self.print.json {
            json(out, &whole)?;
        }
        Ok(())
    }

    fn path(&self, place: &Place) -> String {
        let disk = self.disk.as_ref().map(|disk| format!("&disk={disk}")).unwrap_or_default();
        format!("/v1/events?since={}{disk}", place.since)
    }

    /// Until the reader has enough, whatever becomes of the daemon.
    fn go_on(
        &self,
        client: &Client,
        place: &mut Place,
        out: &mut dyn Write,
    ) -> Result<(), CliError> {
        let (mut has_heard, mut told, mut silent) = (false, false, 0);
        loop {
            let mut failed = None;
            let path = self.path(place);
            let ended = client.follow(&path, place.after, |followed| {
                (has_heard, told, silent) = (true, false, 0);
                let printed = match followed {
                    Followed::Remark(remark) => {
                        if remark.contains("damaged") {
                            eprintln!("warning: {remark}: events are missing");
                        }
                        Ok(())
                    }
                    Followed::Event(event) => {
                        place.after = event.id;
                        self.print_one(&event, out)
                    }
                };
                match printed {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(e) => {
                        failed = Some(e);
                        ControlFlow::Break(())
                    }
                }
            });
            if let Some(e) = failed {
                return Err(CliError::Print(e));
            }
            match ended {
                Ok(()) => {}
                Err(ClientError::NoDaemon { source, .. })
                    if has_heard && source.kind() != io::ErrorKind::InvalidData => {}
                Err(ClientError::Broken { .. }) if has_heard && silent < SILENT_MAX => silent += 1,
                Err(e) => return Err(e.into()),
            }
            if !told {
                told = true;
                eprintln!("the daemon is gone: waiting until there is one again");
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn print_one(&self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        match self.print.json {
            true => writeln!(out, "{}", serde_json::to_string(event)?)?,
            false => writeln!(out, "{}", line(event))?,
        }
        out.flush()
    }
}

/// `2026-11-28 17:49:02 UTC  42  taken  disk set db, user 0, process 9: policy.limit: 5 -> 7`
fn line(event: &Event) -> String {
    let Event { id, at_ms, entry } = event;
    let seconds = at_ms / 1_000;
    let minute = date(seconds).replace(" UTC", &format!(":{:02} UTC", seconds % 60));
    let mut text = format!("{minute}  {id}  {}  {}", entry.result.as_str(), entry.operation);
    if let Some(object) = &entry.object {
        let _ = write!(text, " {}", object.name);
    }
    let _ = write!(text, ", {}", entry.by);
    let values = match (&entry.old, &entry.new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let one = |(name, now): (&String, &Value)| match old.get(name) {
                Some(before) => format!("{name}: {before} -> {now}"),
                None => format!("{name}: {now}"),
            };
            Some(new.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        (None, Some(Value::Object(new))) => Some(set_values(new)),
        (Some(Value::Object(old)), None) => Some(format!("was {}", set_values(old))),
        _ => entry.asked.as_ref().map(|asked| format!("asked for {asked}")),
    };
    for part in [&entry.why, &values].into_iter().flatten().filter(|part| !part.is_empty()) {
        let _ = write!(text, ": {part}");
    }
    if entry.unwritten > 0 {
        let _ = write!(text, " (and {} like it before)", entry.unwritten);
    }
    // Names and reasons come from others: none of them steers a terminal.
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// What is set, without what is not.
fn set_values(values: &serde_json::Map<String, Value>) -> String {
    let set = values.iter().filter(|(_, value)| !value.is_null());
    set.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_api::events::{Entry, Outcome, Who};
    use serde_json::json;

    fn text(entry: Entry) -> String {
        line(&Event { id: 42, at_ms: 1_789_999_262_123, entry })
    }

    #[test]
    fn a_line_says_when_who_what_and_why() {
        let by = Who::Process { user: 7, group: 7, process: Some(9) };
        let mut entry = Entry::new(by.clone(), "disk set", Outcome::Taken).of_disk("db");
        entry.old = Some(json!({"policy.limit": null}));
        entry.new = Some(json!({"policy.limit": 500}));
        assert_eq!(
            text(entry),
            "2026-09-21 14:01:02 UTC  42  taken  disk set db, user 7, process 9: \
             policy.limit: null -> 500"
        );
        let refused = Entry::new(by, "disk remove", Outcome::Refused).of_disk("db");
        let refused = Entry { unwritten: 3, ..refused.because("it is \u{1b}[2Jin use") };
        assert_eq!(
            text(refused),
            "2026-09-21 14:01:02 UTC  42  refused  disk remove db, user 7, process 9: \
             it is \u{fffd}[2Jin use (and 3 like it before)"
        );
        let gone = Entry { old: Some(json!({"size": 5, "vm": null})), ..Entry::done("x") };
        assert!(text(gone).ends_with("x, daemon: was size: 5"));
    }
}
