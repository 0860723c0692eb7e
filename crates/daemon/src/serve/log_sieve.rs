//! Lines that clients cause are written at a bounded rate: whoever connects and breaks the protocol
//! in a loop must neither fill the host's disk nor hide what others' lines say.
//!
//! A line's kind is its place in the program, and its source: the disk, or the user of the API.
//! Changes over the API and what the daemon says by itself are never left out.

use super::log_rate::{LeftOut, LogRate, PERIOD, Verdict};
use headgate_units::Nanos;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// Modules whose lines clients cause.
const OF_CLIENTS: [&str; 3] =
    ["headgate_frontends", "headgate_daemon::http::rights", "headgate_daemon::http::connections"];

/// Fields that name whoever caused a line.
const SOURCES: [&str; 2] = ["disk", "user"];

/// Of which kind a line is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    place: Identifier,
    source: String,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Sieve {
    start: Instant,
    rate: Arc<Mutex<LogRate<Kind>>>,
}

impl Sieve {
    pub(super) fn new() -> Sieve {
        let rate = LogRate::new(Nanos::ZERO);
        Sieve { start: Instant::now(), rate: Arc::new(Mutex::new(rate)) }
    }

    fn rate(&self) -> MutexGuard<'_, LogRate<Kind>> {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }

    /// Says what was left out since the last time.
    pub(super) fn tell(&self) {
        let told = self.rate().left_out(self.now());
        for LeftOut { kind, lines, within, like } in told {
            let source = kind.map_or_else(|| "others".to_owned(), |kind| kind.source);
            let seconds = within.0.div_ceil(1_000_000_000).max(1);
            let lines = grouped(lines);
            tracing::warn!(source, "and {lines} more in the last {seconds} s: {like}");
        }
    }

    /// How often to tell.
    pub(super) fn period() -> std::time::Duration {
        PERIOD.into()
    }
}

/// 1234567 is `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What a line says, and of whom.
#[derive(Default)]
struct Said {
    source: String,
    text: String,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let into = match field.name() {
            "message" => &mut self.text,
            name if SOURCES.contains(&name) => &mut self.source,
            _ => return,
        };
        // A string takes it all.
        let _ = write!(into, "{value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

fn is_of_clients(metadata: &Metadata<'_>) -> bool {
    let of = |module: &&str| {
        let rest = metadata.target().strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    *metadata.level() <= Level::INFO && OF_CLIENTS.iter().any(of)
}

impl<S> Filter<S> for Sieve {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if !is_of_clients(metadata) {
            return true;
        }
        let mut said = Said::default();
        event.record(&mut said);
        let kind = Kind { place: metadata.callsite(), source: said.source };
        let now = self.now();
        self.rate().admit(kind, now, &said.text) == Verdict::Write
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use tracing_subscriber::filter::{FilterExt, Targets};
    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::prelude::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Lines;
        fn make_writer(&'a self) -> Lines {
            self.clone()
        }
    }

    /// What is logged meanwhile.
    fn logged(work: impl FnOnce(&Sieve)) -> Vec<String> {
        let (lines, sieve) = (Lines::default(), Sieve::new());
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(lines.clone());
        let filter = Targets::new().with_default(LevelFilter::INFO).and(sieve.clone());
        let logs = tracing_subscriber::registry().with(layer.with_filter(filter));
        tracing::subscriber::with_default(logs, || work(&sieve));
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn broken(disk: &str) {
        tracing::warn!(target: "headgate_frontends::vhost::server", disk, "was disconnected");
    }

    #[test]
    fn a_disks_flood_is_summed_up_and_hides_no_other_disk() {
        let lines = logged(|sieve| {
            (0..1_244).for_each(|_| broken("bad"));
            broken("good");
            sieve.tell();
            sieve.tell();
        });
        assert_eq!(lines.len(), 12, "{lines:#?}");
        assert!(lines[10].contains("disk=\"good\""), "{lines:#?}");
        let sum = "and 1,234 more in the last 1 s: was disconnected";
        assert!(lines[11].contains(sum) && lines[11].contains("source=\"bad\""), "{lines:#?}");
    }

    #[test]
    fn changes_and_the_daemons_own_lines_are_never_left_out() {
        let lines = logged(|sieve| {
            for _ in 0..100 {
                tracing::info!(target: "headgate_daemon::http::changes", by = "user 0", "disk set");
                tracing::info!(target: "headgate_frontends_of_others", "no client");
            }
            sieve.tell();
        });
        assert_eq!(lines.len(), 200);
    }

    #[test]
    fn users_of_the_api_are_told_apart() {
        let lines = logged(|_| {
            for process in 0..100 {
                for user in [7, 8] {
                    let by = format!("user {user}, process {process}");
                    tracing::warn!(target: "headgate_daemon::http::rights", by, user, "refused");
                }
            }
        });
        let of = |user: &str| lines.iter().filter(|line| line.contains(user)).count();
        assert_eq!((of("user=7"), of("user=8")), (10, 10));
    }

    #[test]
    fn numbers_are_grouped() {
        let shown = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
