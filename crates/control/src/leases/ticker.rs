use super::bell::{Bell, Next, Since, time_left};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread that does something again and again until dropped.
pub struct Ticker {
    bell: Bell,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Begins at once; `tick` says after how long it is to be called again.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(
        name: &str,
        mut tick: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Ticker> {
        // Nobody rings.
        Ticker::start_with(name, &Bell::default(), Duration::ZERO, move || Next::After(tick()))
    }

    /// The same of what need not look while nothing changes: `tick` is also called when the bell
    /// was rung since it began, but not within `pause` from then.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start_with(
        name: &str,
        bell: &Bell,
        pause: Duration,
        mut tick: impl FnMut() -> Next + Send + 'static,
    ) -> io::Result<Ticker> {
        let stop = Arc::new(AtomicBool::new(false));
        let (heard, stopped) = (bell.clone(), stop.clone());
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            // What changes during a turn may be too late for it.
            let mut rung = heard.rung();
            loop {
                let began = Instant::now();
                let next = tick();
                let ended = Instant::now();
                let left = |heard| {
                    let since = Since { began: began.elapsed(), ended: ended.elapsed() };
                    time_left(next, heard, since, pause)
                };
                match heard.wait(rung, left, || stopped.load(Ordering::Relaxed)) {
                    Some(now) => rung = now,
                    None => return,
                }
            }
        })?;
        Ok(Ticker { bell: bell.clone(), stop, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.bell.end(|| self.stop.store(true, Ordering::Relaxed));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread that looks after leases panicked");
        }
    }
}
