//! `headgate datastore maintenance`: has a datastore emptied.

use super::common::Print;
use super::error::CliError;
use super::output::print_value;
use super::values::{self, Word};
use clap::Args;
use headgate_api::client::Client;
use headgate_api::maintenance::{Maintenance, MaintenanceSet, MaintenanceState, MaintenanceWish};
use headgate_daemon::serve::signals::Signals;
use headgate_model::Name;
use hyper::Method;
use std::io::Write;
use std::time::Duration;

/// How often one looks how far it is.
const WATCH: Duration = Duration::from_millis(500);

const WISHES: &[Word<MaintenanceWish>] = &[
    Word("on", MaintenanceWish::On, "It takes no disks, and those on it are moved away"),
    Word("off", MaintenanceWish::Off, "It takes disks; what is under way goes on"),
];

/// Arguments of `datastore maintenance`.
#[derive(Debug, Args)]
pub(super) struct MaintenanceArgs {
    /// Name of the datastore
    name: Name,
    /// Whether; without it, how far it is
    #[arg(value_parser = values::one_of(WISHES))]
    state: Option<MaintenanceWish>,
    /// Wait until it is empty, or what is left on it cannot move, which is a failure
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    pub(super) print: Print,
}

impl MaintenanceArgs {
    pub(super) fn run(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        let MaintenanceArgs { name, state: wish, wait, print } = self;
        let path = format!("/v1/datastores/{name}/maintenance");
        let mut now: Maintenance = match wish {
            Some(state) => client.send(Method::PUT, &path, &MaintenanceSet { state })?,
            None => client.get(&path)?,
        };
        if !wait || wish == Some(MaintenanceWish::Off) {
            return print_value(out, print, &now, render);
        }
        let signals = Signals::catch().map_err(CliError::Print)?;
        while now.state == MaintenanceState::Emptying {
            if signals.wait_for(WATCH).is_some() {
                return Err(CliError::Stopped(format!(
                    "datastore '{name}' is emptied without this command: 'headgate datastore \
                     maintenance {name}' says how far it is, and 'off' ends it"
                )));
            }
            now = client.get(&path)?;
        }
        if now.state == MaintenanceState::Empty {
            return print_value(out, print, &now, render);
        }
        Err(CliError::Stopped(render(&now).trim_end().to_owned()))
    }
}

/// How far it is.
fn render(now: &Maintenance) -> String {
    let (name, disks) = (&now.datastore, now.disks);
    let left = if disks == 1 { "1 disk is".to_owned() } else { format!("{disks} disks are") };
    let mut text = match now.state {
        MaintenanceState::Off => format!("datastore '{name}' is not in maintenance\n"),
        MaintenanceState::Advised => format!(
            "datastore '{name}' is in maintenance, {left} on it, and nobody moves them: 'headgate \
             datastore maintenance {name} on' does\n"
        ),
        MaintenanceState::Emptying => format!("datastore '{name}' is emptied, {left} on it\n"),
        MaintenanceState::Stuck => format!(
            "datastore '{name}' is in maintenance, {left} on it that cannot move now; they are \
             tried again\n"
        ),
        MaintenanceState::Empty => format!("datastore '{name}' is in maintenance, and empty\n"),
    };
    for one in &now.moving {
        text.push_str(&format!("  {}: moves to '{}'\n", one.disk, one.to));
    }
    for one in &now.waiting {
        text.push_str(&format!("  {}: will move to '{}'\n", one.disk, one.to));
    }
    for one in &now.stuck {
        text.push_str(&format!("  {}: cannot move: {}\n", one.name, one.reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_happen_is_told_disk_by_disk() {
        let now: Maintenance = serde_json::from_value(serde_json::json!({
            "datastore": "old", "state": "emptying", "disks": 3,
            "moving": [{"disk": "a", "to": "new"}], "waiting": [{"disk": "b", "to": "new"}],
            "stuck": [{"name": "c", "reason": "it is pinned"}]
        }))
        .unwrap();
        assert_eq!(
            render(&now),
            "datastore 'old' is emptied, 3 disks are on it\n  a: moves to 'new'\n  \
             b: will move to 'new'\n  c: cannot move: it is pinned\n"
        );
    }
}
