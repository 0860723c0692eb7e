//! What hosts tell each other of a datastore, as they come to know it.

use headgate_qos::window::{HostReport, Peer};
use headgate_units::Nanos;
use std::collections::VecDeque;

/// What all hosts of a datastore wrote, with the time that it takes until others can read it.
#[derive(Debug, Default)]
pub(crate) struct Board {
    delay: Nanos,
    /// For each host what it wrote, oldest first; what nobody can read any more is gone.
    written: Vec<VecDeque<Post>>,
}

#[derive(Clone, Copy, Debug)]
struct Post {
    at: Nanos,
    number: u64,
    report: HostReport,
}

impl Board {
    pub(crate) fn new(delay: Nanos) -> Board {
        Board { delay, written: Vec::new() }
    }

    /// A host more; its number.
    pub(crate) fn join(&mut self) -> usize {
        self.written.push(VecDeque::new());
        self.written.len() - 1
    }

    /// A host writes, in the place of what it wrote before.
    pub(crate) fn write(&mut self, now: Nanos, host: usize, report: HostReport) {
        let readable = now.since(self.delay);
        let posts = &mut self.written[host];
        let number = posts.back().map_or(1, |last| last.number + 1);
        posts.push_back(Post { at: now, number, report });
        while posts.get(1).is_some_and(|next| next.at <= readable) {
            posts.pop_front();
        }
    }

    /// What can be read of a host.
    fn read(&self, now: Nanos, host: usize) -> Option<Post> {
        let arrived = |post: &&Post| now.since(post.at) >= self.delay;
        self.written[host].iter().rev().find(arrived).copied()
    }
}

/// What one host has seen of the others, by its own clock: the daemon's rules.
///
/// A record counts from when it was first seen to change. A change is dated between the reading that shows it and the one before. Only
/// after two periods of reading has every living host been seen to change, and the view is whole.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    /// The first and the last reading.
    read: Option<(Nanos, Nanos)>,
    /// For each host the number of what was seen last, when that changed, and what it says.
    seen: Vec<Option<(u64, Option<Nanos>, HostReport)>>,
}

impl Sightings {
    /// Reads the board. `None` while the view is not whole.
    pub(crate) fn look(&mut self, board: &Board, now: Nanos, own: usize, period: Nanos) -> Option<Vec<Peer>> {
        let (first, last) = self.read.unwrap_or((now, now));
        let between = last + Nanos(now.since(last).0 / 2);
        self.read = Some((first, now));
        self.seen.resize(board.written.len(), None);
        for (host, seen) in self.seen.iter_mut().enumerate().filter(|(host, _)| *host != own) {
            let Some(post) = board.read(now, host) else { continue };
            match seen {
                Some((number, ..)) if *number == post.number => {}
                Some(_) => *seen = Some((post.number, Some(between), post.report)),
                None => *seen = Some((post.number, None, post.report)),
            }
        }
        let whole = now.since(first) >= Nanos(period.0.saturating_mul(2));
        whole.then(|| {
            let peer = |&(_, changed, report): &(u64, Option<Nanos>, HostReport)| {
                Some(Peer { report, age: now.since(changed?) })
            };
            self.seen.iter().flatten().filter_map(peer).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_qos::window::{ActiveShares, Bound, Slots};

    const PERIOD: Nanos = Nanos::from_secs(2);

    fn report(ios: u64) -> HostReport {
        HostReport {
            latency: Nanos::from_millis(20),
            ios,
            window: Slots::whole(8),
            bound: Bound::Free,
            shares: ActiveShares::from_millionths(1_000_000),
            threshold: Nanos::from_millis(25),
            period: PERIOD,
        }
    }

    #[test]
    fn a_host_counts_once_it_was_seen_to_change_and_is_as_old_as_the_change() {
        let mut board = Board::new(Nanos::ZERO);
        let (own, other) = (board.join(), board.join());
        let mut eyes = Sightings::default();
        let s = Nanos::from_secs;
        board.write(s(1), other, report(1));
        assert_eq!(eyes.look(&board, s(2), own, PERIOD), None, "not whole yet");
        board.write(s(3), other, report(2));
        assert_eq!(eyes.look(&board, s(4), own, PERIOD), None);
        let peers = eyes.look(&board, s(6), own, PERIOD).unwrap();
        assert_eq!(peers, [Peer { report: report(2), age: s(3) }], "seen at 4 s, dated between 2 and 4 s");
    }

    #[test]
    fn what_is_on_its_way_cannot_be_read() {
        let mut board = Board::new(Nanos::from_secs(3));
        let host = board.join();
        let s = Nanos::from_secs;
        for second in 1..=9 {
            board.write(s(second), host, report(second));
        }
        let read = |at| board.read(s(at), host).map(|post| post.report.ios);
        assert_eq!([read(9), read(10), read(12), read(99)], [Some(6), Some(7), Some(9), Some(9)]);
        assert_eq!(board.written[host].len(), 4, "what is older than can be read is forgotten");
    }
}
