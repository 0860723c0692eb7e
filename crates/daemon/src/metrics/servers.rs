//! The NBD servers that disks lie on, each as the disk has to do with it.

use super::{Labels, Scrape, Writer};
use headgate_model::{ConnectionState, ServerConnection};
use std::fmt;

impl Scrape {
    pub(super) fn encode_servers(&self, out: &mut Writer<'_>) -> fmt::Result {
        let each = |read: &dyn Fn(&ServerConnection) -> Option<f64>| -> Vec<(Labels, f64)> {
            let mut all = Vec::new();
            for disk in &self.disks {
                let servers = disk.connection.iter().flat_map(|connection| &connection.servers);
                for server in servers {
                    let Some(value) = read(server) else { continue };
                    let labels = vec![
                        ("datastore", disk.datastore.to_string()),
                        ("disk", disk.name.to_string()),
                        ("server", server.server.clone()),
                    ];
                    all.push((labels, value));
                }
            }
            all
        };
        let connected = |server: &ServerConnection| match server.state {
            ConnectionState::Connected => Some(1.0),
            ConnectionState::Waiting | ConnectionState::Failing | ConnectionState::Evicted => {
                Some(0.0)
            }
        };
        let help = "Of a disk and one of its servers: 1 when there is a connection";
        out.gauges("disk_server_connected", help, &each(&connected))?;
        let help = "Connections that stand between a disk and one of its servers";
        out.gauges("disk_server_connections", help, &each(&|s| Some(s.connections as f64)))?;
        let help = "Requests that the server owes an answer";
        out.gauges("disk_server_outstanding", help, &each(&|s| Some(s.outstanding as f64)))?;
        let help = "Requests that wait to be sent to the server";
        out.gauges("disk_server_waiting", help, &each(&|s| Some(s.waiting as f64)))?;
        let latency = |s: &ServerConnection| Some(s.latency_ns? as f64 / 1e9);
        let help = "How long the server's answers took of late, a mean over some 64 of them";
        out.gauges("disk_server_latency_seconds", help, &each(&latency))?;
        let window = |s: &ServerConnection| Some(s.window_thousandths? as f64 / 1e3);
        let help = "Requests that may be outstanding at the storage behind the server's export, \
                    those of others too, as the server says";
        out.gauges("disk_server_window_requests", help, &each(&window))?;
        let help = "Normalised IOs that the disk has received at a server that counts them";
        let received = |s: &ServerConnection| Some(s.received?.ios as f64);
        out.counters("disk_server_received", help, &each(&received))?;
        let help = "Those of them that it received by its reservation";
        let reserved = |s: &ServerConnection| Some(s.received?.by_reservation as f64);
        out.counters("disk_server_received_by_reservation", help, &each(&reserved))
    }
}
