//! How a shard may wait, and what it has come to.

use headgate_units::Nanos;

/// How a shard waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In the kernel, until an event comes: the plain way.
    #[default]
    Sleep,
    /// It polls its completion queue for a while before it sleeps. Clients signal as ever.
    PollEvents,
    /// It polls its completion queue, and the rings or the socket of a client that has the shard to
    /// itself: such a client need not signal.
    PollClient,
    /// As [`Mode::PollClient`]. Of the answers to a client that has to be woken, half are held back
    /// until it shows itself, so that both sides always have something to do.
    HoldAnswers,
}

impl Mode {
    /// All of them, from the plain way to the busiest.
    pub const ALL: [Mode; 4] = [Mode::Sleep, Mode::PollEvents, Mode::PollClient, Mode::HoldAnswers];

    /// As in metrics and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Sleep => "sleep",
            Mode::PollEvents => "poll-events",
            Mode::PollClient => "poll-client",
            Mode::HoldAnswers => "hold-answers",
        }
    }
}

/// A longer sleep says that nobody wants anything. Shorter ones may be a scheduler's doing.
pub const AWAY_AFTER: Nanos = Nanos::from_millis(10);

/// What a shard has come to since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The time of the reading.
    pub now: Nanos,
    /// Time in sleeps of more than [`AWAY_AFTER`] each: whoever has nothing to ask for so long is
    /// away, whatever the mode.
    pub away: Nanos,
    /// Requests answered.
    pub served: u64,
    /// Processor time of the shard's thread.
    pub cpu: Nanos,
}

impl Totals {
    /// Time under load: the clock of all that is decided here, so that what is tried costs a part
    /// of the load and not of the day.
    pub fn loaded(&self) -> Nanos {
        self.now - self.away
    }
}
