//! What a gateway says of its disk at other servers, for the scheduler.

use super::NbdPort;
use headgate_engine::port::PortIo;
use headgate_nbd::server::stream::Event;
use headgate_qos::{Cost, ServedElsewhere};
use headgate_units::Bytes;

impl NbdPort {
    /// Tells the disk what a request says of other servers. A request that is refused says it, too:
    /// the next one does not say it again.
    pub(super) fn report(&mut self, io: &mut dyn PortIo, event: &Event) {
        let (Event::Command(_) | Event::Refused { .. }) = event else { return };
        let said = self.requests.report();
        let [delta, rho] = [said.delta, said.rho].map(Cost::from_millionths);
        match ServedElsewhere::new(delta, rho, Bytes(said.bytes)) {
            Ok(elsewhere) if elsewhere.is_none() => {}
            Ok(elsewhere) => io.served_elsewhere(elsewhere),
            // The protocol's side has refused it.
            Err(error) => tracing::error!(%error, "a report that was taken for one"),
        }
    }
}

#[cfg(test)]
#[path = "port_counters_tests.rs"]
mod tests;
