use std::io;
use std::process;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
}

impl EndSignal {
    /// The exit status that a shell reports for a process killed by it: 128 plus its number.
    pub fn exit_code(self) -> u8 {
        match self {
            EndSignal::Terminate => 128 + 15,
            EndSignal::Interrupt => 128 + 2,
        }
    }

    fn name(self) -> &'static str {
        match self {
            EndSignal::Terminate => "SIGTERM",
            EndSignal::Interrupt => "SIGINT",
        }
    }
}

/// SIGTERM and SIGINT, as they come.
pub struct Signals {
    signals: Receiver<EndSignal>,
}

impl Signals {
    /// From now on the signals do not end the process.
    pub fn catch() -> io::Result<Signals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut term, mut int) = {
            let _in_runtime = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let (send, signals) = channel();
        std::thread::Builder::new().name("headgate-signal".into()).spawn(move || {
            runtime.block_on(async {
                loop {
                    let signal = tokio::select! {
                        _ = term.recv() => EndSignal::Terminate,
                        _ = int.recv() => EndSignal::Interrupt,
                    };
                    if send.send(signal).is_err() {
                        return;
                    }
                }
            });
        })?;
        Ok(Signals { signals })
    }

    /// Waits for the first.
    pub fn wait(&self) -> &'static str {
        // The sending thread ends only with the receiver.
        self.signals.recv().map_or("the end of the signal thread", EndSignal::name)
    }

    /// Waits for the first, but not longer than this.
    pub fn wait_for(&self, time: Duration) -> Option<EndSignal> {
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
