//! Ports as their frontends' control threads know them.

use crate::port::{Detach, PortCommand};
use crate::shard::place::{Errand, PortPlace};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// The port has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the client's connection to the disk has ended")]
pub struct PortGone;

/// A port as its frontend's control thread knows it, whichever shard it is on. Clones name the same
/// port.
#[derive(Clone, Debug)]
pub struct PortRef(pub(crate) Arc<PortPlace>);

impl PortRef {
    /// Sends a message to the port; it arrives unless the port ends first. Messages arrive in the
    /// order in which they are sent.
    ///
    /// # Errors
    /// [`PortGone`].
    pub fn command(&self, command: PortCommand) -> Result<(), PortGone> {
        if self.is_gone() {
            return Err(PortGone);
        }
        self.0.send(Errand::Command(command)).map_err(|_| PortGone)
    }

    /// Asks the port to end. Returns at once; [`PortRef::wait_gone`] waits.
    pub fn detach(&self, how: Detach) {
        // An engine that is gone has no ports.
        let _ = self.0.send(Errand::Detach(how));
    }

    /// Has the port ended, with nothing of it left at the backend or in the kernel.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    /// Waits for the port's end; `false` when it did not come in time.
    pub fn wait_gone(&self, patience: Duration) -> bool {
        self.0.wait_gone(patience)
    }
}
