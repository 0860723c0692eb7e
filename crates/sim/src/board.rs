//! The simulated congestion board: hosts' reports about a datastore, readable after a delay.

use headgate_qos::window::{HostReport, Posted};
use headgate_units::Nanos;
use std::collections::VecDeque;

/// What all hosts of a datastore wrote, with the time that it takes until others can read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    delay: Nanos,
    /// The reports of each host, oldest first. Reports that no host can read any more are dropped.
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

    /// The latest readable reports of all hosts but this one.
    pub(crate) fn posted_by_others(
        &self,
        now: Nanos,
        own: usize,
    ) -> impl Iterator<Item = Posted<usize, HostReport>> {
        let others = (0..self.written.len()).filter(move |host| *host != own);
        others.filter_map(move |host| {
            let post = self.read(now, host)?;
            Some(Posted { host, sequence: post.number, report: post.report })
        })
    }

    /// The latest readable report of a host.
    fn read(&self, now: Nanos, host: usize) -> Option<Post> {
        let arrived = |post: &&Post| now.since(post.at) >= self.delay;
        self.written[host].iter().rev().find(arrived).copied()
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
            work: ios * 1_000_000,
            window: Slots::whole(8),
            bound: Bound::Free,
            shares: ActiveShares::from_millionths(1_000_000),
            threshold: Nanos::from_millis(25),
            period: PERIOD,
            follows: None,
        }
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
