//! Persistent reservations of block devices, as the command line has them.

use super::values::Word;
use headgate_api::leases::PersistentReservation;
use headgate_model::PersistentReservations;

pub(super) const MODES: &[Word<PersistentReservations>] = &[
    Word("auto", PersistentReservations::Auto, "Where the device has them; else the log says so"),
    Word("require", PersistentReservations::Require, "No disk is served on a device without them"),
    Word("off", PersistentReservations::Off, "Never, whoever has it reserved"),
];

/// Whether a device is reserved for this host.
pub(super) fn line(of: &PersistentReservation) -> String {
    let PersistentReservation { mode, state, key, reason } = of;
    let key = key.as_ref().map(|key| format!(", key {key}")).unwrap_or_default();
    let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let mode = match mode {
        PersistentReservations::Off => String::new(),
        mode => format!(" ({})", mode.as_str()),
    };
    format!("{}{mode}{key}{reason}", state.as_str())
}
