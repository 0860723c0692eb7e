//! The NBD servers that disks lie on.

use super::remote;
use super::{Control, ControlError};
use headgate_api::nodes::{Node, NodeDisk};
use headgate_model::{ConnectionState, ReceivedIos, ServerConnection};
use std::collections::BTreeMap;

impl Control {
    /// All servers that datastores name or disks lie on, by their URIs.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn nodes(&self) -> Result<Vec<Node>, ControlError> {
        let sample = self.sample()?;
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        let model = self.model();
        for (name, store) in &model.datastores {
            for server in remote::servers_of(&store.record.backend) {
                node(&mut nodes, server).datastores.push(name.clone());
            }
        }
        let live: BTreeMap<_, _> = sample
            .iter()
            .flat_map(|store| &store.disks)
            .filter_map(|disk| Some((&disk.name, disk.remote.as_ref()?)))
            .collect();
        for (name, disk) in &model.disks {
            let Some(record) = &disk.record.remote else { continue };
            let datastore = &disk.record.datastore;
            let backend = model.datastores.get(datastore).map(|store| &store.record.backend);
            // By the catalog, which knows them also while the disk is not in service.
            let servers = remote::servers(record, backend);
            let Some(connection) = live.get(name) else { continue };
            for ((member, server), one) in (0..).zip(servers).zip(&connection.servers) {
                let elsewhere = others(&connection.servers, member);
                node(&mut nodes, server).disks.push(NodeDisk {
                    disk: name.clone(),
                    datastore: datastore.clone(),
                    export: record.export.clone(),
                    member,
                    members: servers.len(),
                    connection: one.clone(),
                    elsewhere,
                });
            }
        }
        drop(model);
        Ok(nodes.into_values().map(summed).collect())
    }
}

fn node<'a>(nodes: &'a mut BTreeMap<String, Node>, server: &str) -> &'a mut Node {
    nodes.entry(server.to_owned()).or_insert_with(|| Node {
        server: server.to_owned(),
        state: None,
        datastores: Vec::new(),
        outstanding: 0,
        waiting: 0,
        latency_ns: None,
        window_thousandths: None,
        received: None,
        disks: Vec::new(),
    })
}

fn plus(sum: Option<ReceivedIos>, one: Option<ReceivedIos>) -> Option<ReceivedIos> {
    match (sum, one) {
        (Some(a), Some(b)) => Some(ReceivedIos {
            ios: a.ios.saturating_add(b.ios),
            by_reservation: a.by_reservation.saturating_add(b.by_reservation),
        }),
        (known, None) | (None, known) => known,
    }
}

/// What the servers but one have given.
fn others(servers: &[ServerConnection], member: usize) -> Option<ReceivedIos> {
    let others = servers.iter().enumerate().filter(|(other, _)| *other != member);
    others.fold(None, |sum, (_, server)| plus(sum, server.received))
}

/// How bad it is.
fn badness(state: ConnectionState) -> u8 {
    match state {
        ConnectionState::Connected => 0,
        ConnectionState::Waiting => 1,
        ConnectionState::Failing => 2,
        ConnectionState::Evicted => 3,
    }
}

fn summed(mut node: Node) -> Node {
    for disk in &node.disks {
        let ServerConnection { state, outstanding, waiting, latency_ns, received, .. } =
            &disk.connection;
        let windows = [node.window_thousandths, disk.connection.window_thousandths];
        node.window_thousandths = windows.into_iter().flatten().min();
        let worst = node.state.filter(|worst| badness(*worst) >= badness(*state));
        node.state = worst.or(Some(*state));
        node.outstanding += outstanding;
        node.waiting += waiting;
        node.latency_ns = node.latency_ns.max(*latency_ns);
        node.received = plus(node.received, *received);
    }
    node
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use headgate_model::{Connection, ConnectionState, ReceivedIos, ServerConnection};
    use serde_json::{Value, json};

    fn server(host: &str, state: ConnectionState, ios: Option<u64>) -> ServerConnection {
        ServerConnection {
            server: format!("nbd://{host}:10809/"),
            state,
            reason: None,
            reconnects: 0,
            connections: 1,
            outstanding: 2,
            waiting: 1,
            latency_ns: ios,
            window_thousandths: ios.map(|ios| 40_000 - ios),
            policy: None,
            received: ios.map(|ios| ReceivedIos { ios, by_reservation: ios / 2 }),
        }
    }

    #[test]
    fn a_node_has_all_of_its_datastores_and_disks_and_the_worst_of_their_states() {
        let bench = Bench::new();
        let add = |name: &str, backend: Value| {
            let request = json!({"name": name, "backend": backend});
            bench.control.add_datastore(serde_json::from_value(request).unwrap()).unwrap();
        };
        add("wide", json!({"stripe": ["nbd://a", "nbd://b"]}));
        add("one", json!({"nbd": "nbd://b"}));
        add("idle", json!({"nbd": "nbd://c"}));
        for (name, store, export) in [("w", "wide", "x"), ("s", "one", "y")] {
            let request = json!({"name": name, "datastore": store, "export": export});
            bench.control.create_disk(serde_json::from_value(request).unwrap()).unwrap();
        }
        let (on, off) = (ConnectionState::Connected, ConnectionState::Waiting);
        let connection = |servers: Vec<ServerConnection>| Connection {
            state: on,
            reason: None,
            reconnects: 0,
            losses: 0,
            servers,
        };
        bench.plane.put_connection(
            "w",
            connection(vec![server("a", on, Some(10)), server("b", on, Some(30))]),
        );
        bench.plane.put_connection("s", connection(vec![server("b", off, None)]));
        let nodes = bench.control.nodes().unwrap();
        let said: Vec<_> = nodes
            .iter()
            .map(|node| (node.server.as_str(), node.state, node.disks.len(), node.outstanding))
            .collect();
        assert_eq!(
            said,
            [
                ("nbd://a:10809/", Some(on), 1, 2),
                ("nbd://b:10809/", Some(off), 2, 4),
                ("nbd://c:10809/", None, 0, 0)
            ]
        );
        let b = &nodes[1];
        assert_eq!((b.latency_ns, b.waiting), (Some(30), 2));
        let windows: Vec<_> = nodes.iter().map(|node| node.window_thousandths).collect();
        assert_eq!(windows, [Some(39_990), Some(39_970), None]);
        assert_eq!(b.received, Some(ReceivedIos { ios: 30, by_reservation: 15 }));
        let stores: Vec<&str> = b.datastores.iter().map(|name| name.as_str()).collect();
        assert_eq!(stores, ["one", "wide"]);
        let wide = b.disks.iter().find(|disk| disk.disk.as_str() == "w").unwrap();
        assert_eq!((wide.member, wide.members, wide.export.as_str()), (1, 2, "x"));
        assert_eq!(wide.elsewhere, Some(ReceivedIos { ios: 10, by_reservation: 5 }));
        let single = b.disks.iter().find(|disk| disk.disk.as_str() == "s").unwrap();
        assert_eq!((single.members, single.elsewhere), (1, None));
    }
}
