//! Who may connect to the daemon's sockets: from the command line, or the configuration.

use super::Config;
use crate::http::ApiGroups;
use headgate_access::{Access, NameError};

/// The arguments of `headgate serve` for it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct GroupArgs {
    /// Group whose members may do everything over the API, and reach every disk over 'nbd.sock'
    /// [default: that of the daemon]
    #[arg(long, value_name = "GROUP")]
    api_group: Option<String>,
    /// Group whose members may read over the API: all but traces [default: none]
    #[arg(long, value_name = "GROUP")]
    api_read_group: Option<String>,
    /// Group whose members may use the API for the disks of machines that are theirs: those with
    /// their user or group in 'vm set --socket-user' or '--socket-group' [default: none]
    #[arg(long, value_name = "GROUP")]
    api_tenant_group: Option<String>,
    /// Group whose members may connect to the sockets of disks, such as the group of QEMU's
    /// processes; 'vm set --socket-user' and '--socket-group' name others for one machine
    /// [default: that of the daemon]
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
}

/// Who may connect to what.
pub(super) struct Groups {
    pub(super) api: ApiGroups,
    /// To the sockets of disks.
    pub(super) disks: Access,
}

impl GroupArgs {
    /// The groups by their numbers.
    pub(super) fn resolve(&self, config: &Config) -> Result<Groups, NameError> {
        let number = |argument: &Option<String>, key: &Option<String>| {
            let name = argument.as_deref().or(key.as_deref());
            name.map(headgate_access::group).transpose()
        };
        let own = headgate_access::own_group();
        Ok(Groups {
            api: ApiGroups {
                change: number(&self.api_group, &config.api_group)?.unwrap_or(own),
                read: number(&self.api_read_group, &config.api_read_group)?,
                tenants: number(&self.api_tenant_group, &config.api_tenant_group)?,
            },
            disks: Access::of_groups([
                number(&self.socket_group, &config.socket_group)?.unwrap_or(own)
            ]),
        })
    }
}
