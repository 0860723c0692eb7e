use std::io;
use std::process;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// SIGTERM and SIGINT, as they come.
pub(crate) struct Signals {
    signals: Receiver<&'static str>,
}

impl Signals {
    /// From now on the signals do not end the process.
    pub(crate) fn catch() -> io::Result<Signals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut term, mut int) = {
            let _in_runtime = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let (send, signals) = channel();
        std::thread::Builder::new().name("headgate-signal".into()).spawn(move || {
            runtime.block_on(async {
                loop {
                    let name = tokio::select! {
                        _ = term.recv() => "SIGTERM",
                        _ = int.recv() => "SIGINT",
                    };
                    if send.send(name).is_err() {
                        return;
                    }
                }
            });
        })?;
        Ok(Signals { signals })
    }

    /// Waits for the first.
    pub(crate) fn wait(&self) -> &'static str {
        // The sending thread ends only with the receiver.
        self.signals.recv().unwrap_or("the end of the signal thread")
    }

    /// Waits for the first, but not longer than this.
    pub(crate) fn wait_for(&self, time: Duration) -> Option<&'static str> {
        self.signals.recv_timeout(time).ok()
    }

    /// From now on a signal ends the process at once.
    pub(super) fn end_at_next(self) {
        std::thread::spawn(move || {
            if self.signals.recv().is_ok() {
                process::exit(1);
            }
        });
    }
}
