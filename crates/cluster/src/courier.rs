use crate::board::{Board, View};
use headgate_qos::window::{HostReport, Peer};
use headgate_units::Nanos;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A board on a thread of its own: reports go there, news come back, and nobody waits.
///
/// Storage that hangs takes the thread with it, not its owner: the news just grow old.
pub struct Courier {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    report: Option<HostReport>,
    /// The board is to be read, in periods of so long.
    read: Option<Nanos>,
    /// How often that was asked for.
    asked: u64,
    /// How many of those have their answer.
    answered: u64,
    last: Option<(View, Nanos)>,
    error: Option<String>,
    exchanges: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Running,
    Asked,
    Done,
}

/// What is known of the other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// What stood on the board when it was last read, ages as of now.
    pub view: View,
    /// What the window controller is to be told: `None` that the board cannot be read.
    pub peers: Option<Vec<Peer>>,
    /// What went wrong at the last try, if anything.
    pub error: Option<String>,
    /// How often the board was written and read so far.
    pub exchanges: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, board: &mut dyn Board, clock: impl Fn() -> Nanos, answered: impl Fn()) {
        let mut state = self.lock();
        while state.end == End::Running {
            let (report, read) = (state.report.take(), state.read.take());
            if report.is_none() && read.is_none() {
                state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let asked = state.asked;
            drop(state);
            let now = clock();
            // Who writes reads as well.
            let outcome = match (&report, read) {
                (Some(report), _) => board.exchange(now, report),
                (None, period) => board.read(now, period.unwrap_or_default()),
            };
            state = self.lock();
            match outcome {
                Ok(view) => {
                    state.last = Some((view, now));
                    state.error = None;
                    state.exchanges += u64::from(report.is_some());
                }
                Err(e) => state.error = Some(e.to_string()),
            }
            state.answered = asked;
            drop(state);
            answered();
            state = self.lock();
        }
        drop(state);
        // The others notice without it, a little later.
        let _ = board.leave();
        self.lock().end = End::Done;
        self.woken.notify_all();
    }
}

impl Courier {
    /// Starts the thread. `clock` is the monotonic clock that `now` is read from elsewhere;
    /// `answered` is called on the thread when the board has answered or failed.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        name: &str,
        mut board: impl Board + 'static,
        clock: impl Fn() -> Nanos + Send + 'static,
        answered: impl Fn() + Send + 'static,
    ) -> io::Result<Courier> {
        let shared = Arc::new(Shared { state: Mutex::default(), woken: Condvar::new() });
        let its = Arc::clone(&shared);
        thread::Builder::new()
            .name(format!("board {name}"))
            .spawn(move || its.work(&mut board, clock, answered))?;
        Ok(Courier { shared })
    }

    /// Has this told to the others as soon as may be; a report that still waits is replaced by it.
    /// Never blocks on the board.
    pub fn post(&self, report: HostReport) {
        self.shared.lock().report = Some(report);
        self.shared.woken.notify_all();
    }

    /// Has the board read as soon as may be, in periods of `period`. Never blocks on the board.
    pub fn refresh(&self, period: Nanos) {
        let mut state = self.shared.lock();
        state.read = Some(period);
        state.asked += 1;
        drop(state);
        self.shared.woken.notify_all();
    }

    /// Whether the board was read, or could not be, since the last [`refresh`](Courier::refresh).
    pub fn is_refreshed(&self) -> bool {
        let state = self.shared.lock();
        state.answered == state.asked
    }

    /// What is known of the others at `now`. What was read more than two periods ago is not; a
    /// board that was read for less than two is not known whole. Never blocks on the board.
    pub fn news(&self, now: Nanos, period: Nanos) -> News {
        let state = self.shared.lock();
        let (mut view, at) = state.last.clone().unwrap_or_default();
        let passed = now.since(at);
        for peer in &mut view.peers {
            peer.age += passed;
        }
        let recent = state.last.is_some() && passed.0 <= period.0.saturating_mul(2);
        let peers = view.peers().filter(|_| recent);
        News { view, peers, error: state.error.clone(), exchanges: state.exchanges }
    }

    /// Takes the own report off the board, waiting at most so long for it.
    pub fn stop(self, patience: Duration) {
        let mut state = self.shared.lock();
        state.end = End::Asked;
        self.shared.woken.notify_all();
        let done = |state: &mut State| state.end != End::Done;
        drop(self.shared.woken.wait_timeout_while(state, patience, done));
    }
}

/// The thread ends by itself then.
impl Drop for Courier {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.end == End::Running {
            state.end = End::Asked;
        }
        self.shared.woken.notify_all();
    }
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier").field("exchanges", &self.shared.lock().exchanges).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::BoardError;
    use crate::record::tests::{record, report};
    use crate::sightings::PeerHost;
    use headgate_qos::window::Rank;
    use std::sync::mpsc;

    /// Waits for the test before every answer.
    struct Script {
        answers: mpsc::Receiver<Result<View, &'static str>>,
        left: mpsc::Sender<()>,
    }

    impl Board for Script {
        fn exchange(&mut self, _: Nanos, _: &HostReport) -> Result<View, BoardError> {
            let failed = |source| BoardError::Io { doing: "read", path: "board".into(), source };
            self.answers.recv().expect("the test answers").map_err(|e| failed(io::Error::other(e)))
        }

        fn read(&mut self, now: Nanos, _: Nanos) -> Result<View, BoardError> {
            self.exchange(now, &report())
        }

        fn leave(&mut self) -> Result<(), BoardError> {
            self.left.send(()).expect("the test listens");
            Ok(())
        }
    }

    fn wait(courier: &Courier, what: impl Fn(&News) -> bool) -> News {
        loop {
            let news = courier.news(Nanos::from_secs(10), Nanos::from_secs(4));
            if what(&news) {
                return news;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn news_grow_old_while_the_board_hangs_and_come_back() {
        let (answer, answers) = mpsc::channel();
        let (left, was_left) = mpsc::channel();
        let courier =
            Courier::start("test", Script { answers, left }, || Nanos::from_secs(10), || {})
                .unwrap();
        let period = Nanos::from_secs(4);
        assert_eq!(courier.news(Nanos::from_secs(10), period).peers, None);

        let peers =
            vec![PeerHost { record: record(2, 1, 7), age: Nanos::from_secs(1), rank: Rank::After }];
        let view = View { peers, settled: true, ..View::default() };
        courier.post(report());
        answer.send(Ok(view.clone())).unwrap();
        let news = wait(&courier, |news| news.exchanges == 1);
        assert_eq!(news.peers.unwrap()[0].age, Nanos::from_secs(1));

        // It hangs: nothing comes. Nobody waits for it.
        courier.post(report());
        let news = courier.news(Nanos::from_secs(18), period);
        assert_eq!(news.peers.unwrap()[0].age, Nanos::from_secs(9));
        let news = courier.news(Nanos::from_secs(19), period);
        assert_eq!((news.peers, news.view.peers.len()), (None, 1));

        answer.send(Err("gone")).unwrap();
        let news = wait(&courier, |news| news.error.is_some());
        assert!(news.error.unwrap().contains("cannot read the board board: gone"));
        courier.post(report());
        answer.send(Ok(view)).unwrap();
        assert_eq!(wait(&courier, |news| news.exchanges == 2).error, None);

        // A reading brings news and writes nothing.
        let peers = vec![PeerHost { record: record(3, 1, 1), age: Nanos::ZERO, rank: Rank::After }];
        courier.refresh(period);
        assert!(!courier.is_refreshed());
        answer.send(Ok(View { peers, settled: true, ..View::default() })).unwrap();
        let news = wait(&courier, |news| news.view.peers[0].record.host != record(2, 1, 7).host);
        assert_eq!((news.exchanges, news.error), (2, None));
        wait(&courier, |_| courier.is_refreshed());
        // So does one that fails, in that nobody waits for it any more.
        courier.refresh(period);
        answer.send(Err("gone again")).unwrap();
        wait(&courier, |_| courier.is_refreshed());
        courier.stop(Duration::from_secs(10));
        was_left.recv().unwrap();
    }
}
