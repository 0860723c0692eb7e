//! Polling: a shard that is busy-polling for one port reads that port's memory and sockets itself.
//!
//! An event costs its sender one system call and the shard another. A shard that is awake anyway
//! reads the port's memory ([`Port::poll`]) and tries its receives and sends with plain system
//! calls. The answer is out before a client with one request has gone to sleep. With several ports
//! polling does not pay: it finds requests one by one, and the ring takes many operations at once.
//!
//! Events are always a fallback: before the shard sleeps, and as soon as another port has work,
//! [`Shard::disarm_poll`] asks for them again.

use super::Shard;
use super::core::Core;
use super::polled::{POLL_FIRST, Receive};
use crate::clock;
use crate::kernel::ring::{Owner, Wait};
use crate::port::PollResult;
use headgate_polling::Mode;
use headgate_units::Nanos;
use io_uring::{opcode, types};

/// Polls between two readings of the clock, which costs more than a poll. Eight polls of memory
/// take well under a microsecond.
const POLLS_PER_CLOCK: usize = 8;

impl Core {
    /// Whether the shard polls a client now: it is awake, and one port has it to itself.
    pub(crate) fn is_polling(&self) -> bool {
        matches!(self.mode, Mode::PollClient | Mode::HoldAnswers) && self.sole_client.is_sole()
    }

    /// Gives the receives to the ring.
    fn hand_over_receives(&mut self) {
        while let Some(Receive { port, key, fd, buf, len }) = self.polled.pop_receive() {
            let entry = opcode::Recv::new(types::Fd(fd), buf, len).ioprio(POLL_FIRST).build();
            // SAFETY: as in `try_receives`.
            unsafe { self.ctx.ring.push(entry, Owner::Port { port, key }) };
        }
    }
}

impl Shard {
    /// Whether the ring or a polled port has something to do.
    fn has_event(&mut self) -> bool {
        let Shard { core, ports, .. } = self;
        core.ctx.ring.has_events()
            || core.polled.try_receives()
            || core.polled.ports().any(|port| {
                ports
                    .get(port as usize)
                    .and_then(Option::as_ref)
                    .is_some_and(|found| found.port.poll() == PollResult::Ready)
            })
    }

    /// Polls until there is something to do, or until `deadline` on the shard's clock.
    pub(crate) fn busy_poll(&mut self, deadline: Nanos) -> Wait {
        loop {
            for _ in 0..POLLS_PER_CLOCK {
                if self.has_event() {
                    return Wait::Over;
                }
                std::hint::spin_loop();
            }
            if clock::now() >= deadline {
                return Wait::GoesOn;
            }
        }
    }

    /// Calls the polled ports that have something to do. Once per turn, at its beginning.
    pub(crate) fn poll_ports(&mut self) {
        if !self.core.is_polling() {
            return self.disarm_poll();
        }
        let count = self.core.polled.ports().len();
        for at in 0..count {
            let Some(port) = self.core.polled.ports().nth(at) else { return };
            let Some(found) = self.ports.get(port as usize).and_then(Option::as_ref) else {
                continue;
            };
            if found.port.poll() == PollResult::Ready {
                self.with_port(port, |p, io| p.on_poll(io));
            }
        }
    }

    /// Stops polling: asks for events again, and calls ports for which something came meanwhile.
    pub(crate) fn disarm_poll(&mut self) {
        self.core.hand_over_receives();
        for port in self.core.polled.take_ports() {
            let Some(found) = self.ports.get_mut(port as usize).and_then(Option::as_mut) else {
                continue;
            };
            if found.port.disarm_poll() == PollResult::Ready {
                self.with_port(port, |p, io| p.on_poll(io));
            }
        }
    }
}
