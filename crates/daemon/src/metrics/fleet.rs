//! Metrics of the view of all hosts: how good it is here, and what it says of hosts.

use super::{Labels, Scrape, Writer};
use headgate_api::fleet::{HostState, ViewSource};
use std::fmt;

const STATES: [HostState; 4] =
    [HostState::Running, HostState::Stopped, HostState::Silent, HostState::Unknown];

impl Scrape {
    pub(super) fn encode_fleet(&self, out: &mut Writer<'_>) -> fmt::Result {
        let (view, hosts) = (&self.hosts.view, &self.hosts.hosts);
        let of = |state: HostState| {
            let labels: Labels = vec![("state", state.as_str().to_owned())];
            (labels, hosts.iter().filter(|host| host.state == state).count() as f64)
        };
        let help =
            "Hosts that meet in this daemon's etcd, itself among them, by what is known of them";
        out.gauges("fleet_hosts", help, &STATES.map(of))?;
        if view.source == ViewSource::Alone {
            return Ok(());
        }
        let is_kept = if view.error.is_none() { 1.0 } else { 0.0 };
        let help =
            "1 while this host tells others of itself and hears them; 0 while etcd does not let it";
        out.gauges("fleet_view_up", help, &[(Vec::new(), is_kept)])?;
        let help = "How long ago other hosts, or etcd, were heard";
        let age: Vec<(Labels, f64)> =
            view.age_seconds.map(|age| (Vec::new(), age)).into_iter().collect();
        out.gauges("fleet_view_age_seconds", help, &age)?;
        let is_double = hosts.iter().any(|host| host.duplicate.is_some());
        let help = "1 while another living daemon tells others things in the name of this host";
        let value = if is_double { 1.0 } else { 0.0 };
        out.gauges("fleet_duplicate_identity", help, &[(Vec::new(), value)])
    }
}
