//! What a lost server may have lost.
//!
//! A write that was acknowledged without FUA is in the server's cache until a flush. If the
//! connection is lost in between, the server may have died and the write with it; nobody can tell.
//! So a flush that covers such a write must fail: success would promise what nobody keeps. As a
//! SCSI device reports its reset once to each initiator, each client hears of each loss once
//! (SPC-4, unit attention): the first flush that it *sends after the loss* covers every write that
//! was acknowledged before, and fails. Flushes that were under way fail too, but do not count as
//! told: a write may have been acknowledged behind them.

use headgate_units::Nanos;

/// One connection's account of acknowledged and flushed writes.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Writes acknowledged on this connection that only a flush makes durable.
    acknowledged: u64,
    /// Of those, how many a completed flush covers.
    flushed: u64,
    /// Whether a flush has succeeded since the link was made.
    asked: Asked,
}

/// Whether a server was ever asked to flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    /// It may have writes of a predecessor of this process in its cache.
    #[default]
    Never,
    Once,
}

/// What a flush covers: what was acknowledged when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered(u64);

/// Whether a connection took writes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Everything acknowledged is durable.
    Nothing,
    /// Some may be lost.
    Perhaps,
}

impl Account {
    /// A write was acknowledged that only a flush makes durable.
    pub(crate) fn on_acknowledged(&mut self) {
        self.acknowledged += 1;
    }

    /// A flush is sent.
    pub(crate) fn cover(&self) -> Covered {
        Covered(self.acknowledged)
    }

    /// A flush has succeeded, on the connection that it was sent on.
    pub(crate) fn on_flushed(&mut self, covered: Covered) {
        self.flushed = self.flushed.max(covered.0);
        self.asked = Asked::Once;
    }

    /// Whether a flush has anything to make durable there.
    pub(crate) fn owes_flush(&self) -> bool {
        self.asked == Asked::Never || self.acknowledged > self.flushed
    }

    /// The connection is lost.
    pub(crate) fn on_lost(&mut self) -> Lost {
        let lost = if self.acknowledged > self.flushed { Lost::Perhaps } else { Lost::Nothing };
        (self.acknowledged, self.flushed) = (0, 0);
        lost
    }
}

/// One disk's losses, at all of its servers, and who was told of them.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Connections that were lost with writes that no flush covered.
    count: u64,
    /// When the last of them was lost.
    at: Nanos,
    /// A client went away without having been told.
    untold: bool,
}

/// How many of the losses a client has been told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossEpoch(u64);

/// Whether a flush may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushDecision {
    /// It may.
    Send,
    /// It fails: it covers writes that may be lost.
    Fail,
}

impl Losses {
    /// A connection was lost with writes that no flush covered.
    pub(crate) fn on_loss(&mut self, now: Nanos) {
        self.count += 1;
        self.at = now;
    }

    /// A client comes. It answers for one that left untold: that may have been the same machine.
    pub(crate) fn on_client(&mut self) -> LossEpoch {
        let epoch = if self.untold { self.count - 1 } else { self.count };
        self.untold = false;
        LossEpoch(epoch)
    }

    /// A client has gone.
    pub(crate) fn on_client_gone(&mut self, epoch: LossEpoch) {
        if epoch.0 < self.count {
            self.untold = true;
        }
    }

    /// A client's flush that arrived at this time.
    pub(crate) fn judge(&self, arrived: Nanos, epoch: &mut LossEpoch) -> FlushDecision {
        if epoch.0 >= self.count {
            return FlushDecision::Send;
        }
        if arrived > self.at {
            epoch.0 = self.count;
        }
        FlushDecision::Fail
    }

    /// Connections that were lost with writes that no flush covered.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Nanos = Nanos(5);
    const LOST: Nanos = Nanos(10);
    const AFTER: Nanos = Nanos(11);

    /// A loss, and a client that came before.
    fn after_a_loss() -> (Losses, LossEpoch) {
        let mut losses = Losses::default();
        let epoch = losses.on_client();
        losses.on_loss(LOST);
        (losses, epoch)
    }

    #[test]
    fn flushed_writes_are_not_lost() {
        let mut account = Account::default();
        assert_eq!(account.on_lost(), Lost::Nothing);
        account.on_acknowledged();
        let covered = account.cover();
        account.on_flushed(covered);
        assert_eq!(account.on_lost(), Lost::Nothing);
        account.on_acknowledged();
        assert_eq!(account.on_lost(), Lost::Perhaps);
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_was_sent() {
        let mut account = Account::default();
        account.on_acknowledged();
        let covered = account.cover();
        account.on_acknowledged();
        account.on_flushed(covered);
        assert!(account.owes_flush());
        assert_eq!(account.on_lost(), Lost::Perhaps);
    }

    #[test]
    fn a_server_is_asked_once_for_what_a_predecessor_has_written_and_then_for_ours() {
        let mut account = Account::default();
        assert!(account.owes_flush());
        let covered = account.cover();
        account.on_flushed(covered);
        assert!(!account.owes_flush());
        account.on_acknowledged();
        assert!(account.owes_flush());
        assert_eq!(account.on_lost(), Lost::Perhaps);
        assert!(!account.owes_flush(), "what is lost is told of by the losses");
    }

    #[test]
    fn each_client_hears_of_a_loss_once() {
        let (mut losses, mut first) = after_a_loss();
        let mut second = LossEpoch(0);
        assert_eq!(losses.judge(AFTER, &mut first), FlushDecision::Fail);
        assert_eq!(losses.judge(AFTER, &mut first), FlushDecision::Send);
        assert_eq!(losses.judge(AFTER, &mut second), FlushDecision::Fail);
        assert_eq!(losses.judge(AFTER, &mut second), FlushDecision::Send);
        losses.on_loss(Nanos(20));
        assert_eq!(losses.judge(Nanos(21), &mut first), FlushDecision::Fail);
        assert_eq!(losses.judge(Nanos(21), &mut first), FlushDecision::Send);
    }

    #[test]
    fn a_flush_from_before_the_loss_fails_and_tells_nothing() {
        let (losses, mut epoch) = after_a_loss();
        assert_eq!(losses.judge(BEFORE, &mut epoch), FlushDecision::Fail);
        assert_eq!(losses.judge(LOST, &mut epoch), FlushDecision::Fail);
        assert_eq!(losses.judge(AFTER, &mut epoch), FlushDecision::Fail);
        assert_eq!(losses.judge(AFTER, &mut epoch), FlushDecision::Send);
    }

    #[test]
    fn a_client_that_comes_back_hears_what_it_missed() {
        let (mut losses, epoch) = after_a_loss();
        losses.on_client_gone(epoch);
        let mut back = losses.on_client();
        let mut other = losses.on_client();
        assert_eq!(losses.judge(AFTER, &mut other), FlushDecision::Send);
        assert_eq!(losses.judge(AFTER, &mut back), FlushDecision::Fail);
        losses.on_client_gone(back);
        let mut again = losses.on_client();
        assert_eq!(losses.judge(AFTER, &mut again), FlushDecision::Send, "told already");
    }
}
