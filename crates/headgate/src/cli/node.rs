//! `headgate node`: the NBD servers that disks lie on.

use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::output::{Align, Table, description, print_value};
use clap::Subcommand;
use headgate_api::nodes::{Node, NodeDisk};
use headgate_model::{ConnectionState, ReceivedIos};
use headgate_units::Nanos;
use std::io::Write;

/// `headgate node`
#[derive(Debug, Subcommand)]
pub(super) enum NodeCommand {
    /// List the servers: whether they answer, how fast, and what they gave
    #[command(after_help = "Example:\n  headgate node list")]
    List {
        #[command(flatten)]
        print: Print,
    },
    /// Show a server with the disks that lie on it
    #[command(after_help = "Example:\n  headgate node show nbds://10.0.0.11")]
    Show {
        /// The server's URI, as datastores name it
        #[arg(value_name = "URI")]
        server: String,
        #[command(flatten)]
        print: Print,
    },
}

impl NodeCommand {
    pub(super) fn print(&self) -> Print {
        match self {
            NodeCommand::List { print } | NodeCommand::Show { print, .. } => *print,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let nodes: Vec<Node> = daemon.client()?.get("/v1/nodes")?;
        match self {
            NodeCommand::List { print } => {
                print_value(out, print, &nodes, |nodes| table(nodes).render())
            }
            NodeCommand::Show { server, print } => {
                let node = find(&nodes, &server)?;
                print_value(out, print, node, describe)
            }
        }
    }
}

/// A server by its URI, with or without the port and the last slash.
fn find<'a>(nodes: &'a [Node], server: &str) -> Result<&'a Node, CliError> {
    let written = |node: &Node| {
        let short = node.server.trim_end_matches('/');
        [node.server.as_str(), short, short.trim_end_matches(":10809")].contains(&server)
    };
    nodes.iter().find(|node| written(node)).ok_or_else(|| {
        let known: Vec<&str> = nodes.iter().map(|node| node.server.as_str()).collect();
        CliError::Usage(format!(
            "no datastore is on server '{server}': one of {} was expected",
            if known.is_empty() { "none".into() } else { known.join(", ") }
        ))
    })
}

fn state(state: Option<ConnectionState>) -> &'static str {
    match state {
        None => "-",
        Some(ConnectionState::Connected) => "connected",
        Some(ConnectionState::Waiting) => "waiting",
        Some(ConnectionState::Failing) => "failing",
        Some(ConnectionState::Evicted) => "evicted",
    }
}

fn latency(latency: Option<u64>) -> String {
    latency.map_or_else(|| "-".into(), |latency| Nanos(latency).to_string())
}

fn window(thousandths: Option<u64>) -> String {
    thousandths.map_or_else(|| "-".into(), |window| format!("{:.1}", window as f64 / 1e3))
}

fn ios(received: Option<ReceivedIos>) -> [String; 2] {
    received.map_or_else(
        || ["-".into(), "-".into()],
        |received| [received.ios, received.by_reservation].map(|ios| ios.to_string()),
    )
}

fn table(nodes: &[Node]) -> Table {
    let mut table = Table::new(&[
        ("SERVER", Align::Left),
        ("STATE", Align::Left),
        ("DISKS", Align::Right),
        ("OUTSTANDING", Align::Right),
        ("WAITING", Align::Right),
        ("LATENCY", Align::Right),
        ("WINDOW", Align::Right),
        ("RECEIVED", Align::Right),
        ("BY RESERVATION", Align::Right),
    ]);
    for node in nodes {
        let [received, reserved] = ios(node.received);
        table.row(vec![
            node.server.clone(),
            state(node.state).into(),
            node.disks.len().to_string(),
            node.outstanding.to_string(),
            node.waiting.to_string(),
            latency(node.latency_ns),
            window(node.window_thousandths),
            received,
            reserved,
        ]);
    }
    table
}

fn describe(node: &Node) -> String {
    let stores: Vec<&str> = node.datastores.iter().map(|name| name.as_str()).collect();
    let mut text = description(&[
        ("server", Some(node.server.clone())),
        ("state", Some(state(node.state).into())),
        ("datastores", (!stores.is_empty()).then(|| stores.join(", "))),
        ("outstanding", Some(node.outstanding.to_string())),
        ("waiting", Some(node.waiting.to_string())),
        ("latency", Some(latency(node.latency_ns))),
        (
            "window",
            node.window_thousandths.map(|least| format!("{} requests", window(Some(least)))),
        ),
    ]);
    if !node.disks.is_empty() {
        text.push('\n');
        text.push_str(&disks(&node.disks).render());
    }
    text
}

fn disks(disks: &[NodeDisk]) -> Table {
    let mut table = Table::new(&[
        ("DISK", Align::Left),
        ("DATASTORE", Align::Left),
        ("EXPORT", Align::Left),
        ("MEMBER", Align::Left),
        ("STATE", Align::Left),
        ("CONNECTIONS", Align::Right),
        ("OUTSTANDING", Align::Right),
        ("LATENCY", Align::Right),
        ("WINDOW", Align::Right),
        ("RECEIVED", Align::Right),
        ("BY RESERVATION", Align::Right),
        ("ELSEWHERE", Align::Right),
        ("REASON", Align::Left),
    ]);
    for disk in disks {
        let connection = &disk.connection;
        let [received, reserved] = ios(connection.received);
        let [elsewhere, _] = ios(disk.elsewhere);
        table.row(vec![
            disk.disk.to_string(),
            disk.datastore.to_string(),
            disk.export.clone(),
            format!("{} of {}", disk.member, disk.members),
            state(Some(connection.state)).into(),
            connection.connections.to_string(),
            connection.outstanding.to_string(),
            latency(connection.latency_ns),
            window(connection.window_thousandths),
            received,
            reserved,
            elsewhere,
            connection.reason.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    table
}
