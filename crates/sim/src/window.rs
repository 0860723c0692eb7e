use headgate_units::{Bytes, Nanos};

/// How many requests of one host may be outstanding at one datastore.
///
/// The simulator asks for [`size`](IssueWindow::size) before every dispatch and tells of every completion. A window that
/// follows the latency which it sees, as PARDA's does, changes its size there, or at the times that it asks for.
pub trait IssueWindow: Send {
    /// Requests that may be outstanding now. Those that are stay when it shrinks.
    fn size(&self) -> u32;

    /// A request completed. `latency` is from its dispatch to its completion as the host saw them; `in_flight` counts
    /// those left.
    fn on_complete(&mut self, now: Nanos, latency: Nanos, bytes: Bytes, in_flight: u32) {
        let _ = (now, latency, bytes, in_flight);
    }

    /// When [`on_timer`](IssueWindow::on_timer) is to be called; asked once at the start and after each call.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// The time asked for has come.
    fn on_timer(&mut self, now: Nanos) {
        let _ = now;
    }
}

/// A window that stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow(pub u32);

impl IssueWindow for FixedWindow {
    fn size(&self) -> u32 {
        self.0
    }
}
