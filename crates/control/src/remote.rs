//! Disks that are exports of NBD servers.

use super::server_policy::server_policy;
use super::{Control, ControlError, Model, crash, stripes};
use crate::leases::Leases;
use headgate_api::types::DiskCreate;
use headgate_model::Name;
use headgate_model::PlaneError;
use headgate_model::RemoteDisk;
use headgate_model::Session;
use headgate_model::StripedDisk;
use headgate_model::{Backend, DiskRecord, RemoteRecord};
use headgate_nbd::client::connections::Connections;
use headgate_nbd::uri::{Address, Security, Tls, Uri, UriError};
use headgate_stripe::{Label, Layout};
use headgate_units::Bytes;

/// The form of a server's URI.
const EXPECTED: &str = "nbd+unix:///?socket=/PATH, nbd://HOST[:PORT] or nbds://HOST[:PORT] (TLS): \
                        a server; its exports are named by 'disk create --export'";

/// The longest export name of the protocol, in bytes.
const EXPORT_MAX: usize = 4096;

/// An export that a new disk will be.
#[derive(Debug)]
pub(super) struct Found {
    pub record: RemoteRecord,
    /// The servers that were dialled.
    pub servers: Vec<String>,
    pub size: Bytes,
    /// The session that the probe of the only server established.
    pub session: Option<Session>,
    /// Exports that are to be labelled before the disk is opened.
    pub to_label: Vec<(Uri, Label)>,
}

/// Reads the URI of a server, and writes it in one way.
pub(super) fn server(text: &str) -> Result<String, ControlError> {
    let uri: Uri =
        text.parse().map_err(|e: UriError| ControlError::invalid(e.to_string(), EXPECTED))?;
    if !uri.export.is_empty() {
        let error = format!("'{text}' names an export, and a datastore is a server");
        return Err(ControlError::invalid(error, EXPECTED));
    }
    match &uri.address {
        Address::Unix(socket) if !socket.starts_with('/') => {
            let error = format!("the socket's path '{socket}' is not absolute");
            return Err(ControlError::invalid(error, EXPECTED));
        }
        Address::Tcp { security: Security::Tls(Tls { certificates: Some(_), .. }), .. } => {
            let error = format!("'{text}' names certificates, and the daemon has its own");
            return Err(ControlError::invalid(error, "no tls-certificates: see 'serve --nbd-tls'"));
        }
        _ => {}
    }
    Ok(uri.to_string())
}

/// Where an export is.
pub(super) fn uri(server: &str, export: &str) -> Result<Uri, ControlError> {
    let uri: Uri =
        server.parse().map_err(|e: UriError| ControlError::invalid(e.to_string(), EXPECTED))?;
    Ok(Uri { export: export.to_owned(), ..uri })
}

/// Checks what an export may be called.
pub(super) fn check_export_name(export: &str) -> Result<(), ControlError> {
    if export.len() > EXPORT_MAX || export.contains('\0') {
        let expected = format!("up to {EXPORT_MAX} bytes without NUL");
        return Err(ControlError::invalid("the export's name is too long or has a NUL", expected));
    }
    Ok(())
}

/// Reads how many connections a disk has to each of its servers.
pub(super) fn connections(number: u8) -> Result<Connections, ControlError> {
    Connections::new(number).map_err(|e| {
        ControlError::invalid(e.to_string(), "as many as processors of the server share the work")
    })
}

/// Only disks on NBD servers have connections.
pub(super) fn no_connections() -> ControlError {
    ControlError::invalid(
        "only disks of a datastore that was added with --nbd or --stripe have connections to a \
         server",
        "no number of connections for this datastore, or one that was added with --nbd or --stripe",
    )
}

/// The datastore with so many connections from each disk to each server.
pub(super) fn with_connections(backend: Backend, number: u8) -> Result<Backend, ControlError> {
    let connections = connections(number)?;
    match backend {
        Backend::Nbd { server, .. } => Ok(Backend::Nbd { server, connections }),
        Backend::Stripe { servers, unit, .. } => Ok(Backend::Stripe { servers, unit, connections }),
        Backend::Dir { .. }
        | Backend::Block { .. }
        | Backend::Emulated { .. }
        | Backend::Memory { .. } => Err(no_connections()),
    }
}

/// The NBD servers of a datastore, in the order of new disks' members.
pub(super) fn servers_of(backend: &Backend) -> &[String] {
    match backend {
        Backend::Nbd { server, .. } => std::slice::from_ref(server),
        Backend::Stripe { servers, .. } => servers,
        Backend::Dir { .. }
        | Backend::Block { .. }
        | Backend::Emulated { .. }
        | Backend::Memory { .. } => &[],
    }
}

/// The servers of the exports that a disk is. A striped one keeps those that it was made on.
pub(super) fn servers<'a>(remote: &'a RemoteRecord, backend: Option<&'a Backend>) -> &'a [String] {
    match (&remote.stripe, backend) {
        (Some(stripe), _) => &stripe.servers,
        (None, Some(backend)) => servers_of(backend),
        (None, None) => &[],
    }
}

/// The parameters of a remote disk for the data plane.
pub(super) fn disk(
    record: &DiskRecord,
    backend: &Backend,
    session: Option<Session>,
    leases: &Leases,
) -> Result<Option<RemoteDisk>, ControlError> {
    let (Backend::Nbd { connections, .. } | Backend::Stripe { connections, .. }) = backend else {
        return Ok(None);
    };
    let remote = record
        .remote
        .as_ref()
        .ok_or_else(|| PlaneError::new("the catalog names no export for it"))?;
    let servers = servers(remote, Some(backend));
    let uris = servers.iter().map(|server| uri(server, &remote.export));
    let uris: Vec<Uri> = uris.collect::<Result<_, _>>()?;
    let stripe = remote.stripe.as_ref().map(|stripe| {
        let layout = Layout::new(stripe.unit, uris.len() as u16, record.size);
        let layout = layout.map_err(PlaneError::new)?;
        let lease = leases.on_labels(stripe.lease);
        let policy =
            server_policy(record).ok_or_else(|| PlaneError::new("its policy cannot be told"))?;
        Ok::<_, PlaneError>(StripedDisk { id: stripe.id, layout, lease, policy })
    });
    let stripe = stripe.transpose()?;
    let (block_size, connections) = (remote.block_size, *connections);
    Ok(Some(RemoteDisk { uris, block_size, stripe, session, connections }))
}

impl Control {
    /// Looks at the export that a new disk shall be; `None` when its datastore is no server. Waits
    /// for the server, up to a deadline.
    pub(super) fn find_export(
        &self,
        datastore: &Name,
        request: &DiskCreate,
    ) -> Result<Option<Found>, ControlError> {
        let entry = self.model().datastore(datastore)?.clone();
        let server = match (&entry.record.backend, &request.export) {
            (Backend::Nbd { server, .. }, _) => server,
            (Backend::Stripe { servers, unit, .. }, _) => {
                return self.find_stripe(servers, *unit, request).map(Some);
            }
            (_, None) => return Ok(None),
            (_, Some(_)) => {
                return Err(ControlError::invalid(
                    format!(
                        "datastore '{datastore}' is no NBD server: its disks have no exports there"
                    ),
                    "no --export, or a datastore that was added with --nbd or --stripe",
                ));
            }
        };
        let Some(export) = &request.export else {
            return Err(ControlError::invalid(
                format!("datastore '{datastore}' is an NBD server, and no export of it is named"),
                "the export's name at the server: --export NAME ('' is its default export)",
            ));
        };
        check_export_name(export)?;
        self.check_export_free(&self.model(), server, export)?;
        let probe = self.plane.connect(&uri(server, export)?)?;
        if let Some(asked) = request.size.filter(|asked| *asked != probe.size) {
            return Err(ControlError::invalid(
                format!(
                    "a size of {} bytes differs from that of export '{export}', {} bytes",
                    asked.0, probe.size.0
                ),
                format!("no size, or {} bytes", probe.size.0),
            ));
        }
        let record =
            RemoteRecord { export: export.clone(), block_size: probe.block_size, stripe: None };
        Ok(Some(Found {
            record,
            servers: vec![server.clone()],
            size: probe.size,
            session: probe.session,
            to_label: Vec::new(),
        }))
    }

    /// Whether an export is still what it was when its server was dialled, without the catalog.
    pub(super) fn check_found(
        &self,
        model: &Model,
        request: &DiskCreate,
        found: &Found,
    ) -> Result<(), ControlError> {
        if let Some(name) = &request.datastore {
            let datastore = model.datastore(name)?;
            if *servers_of(&datastore.record.backend) != found.servers {
                return Err(ControlError::Busy {
                    error: format!("datastore '{name}' was replaced while its server was dialled"),
                    hint: "look at 'headgate datastore list' and try again".into(),
                });
            }
        }
        if let Some(stripe) = &found.record.stripe {
            stripes::check_stripe_free(model, stripe.id)?;
        }
        let free = |server: &String| self.check_export_free(model, server, &found.record.export);
        found.servers.iter().try_for_each(free)
    }

    /// Labels the exports that are to be members of a new disk, and answers with the session that
    /// there is. Waits for the servers.
    pub(super) fn label_found(&self, found: &mut Found) -> Result<Option<Session>, ControlError> {
        for (uri, label) in found.to_label.drain(..) {
            self.plane.label_member(&uri, &label)?;
            crash::point("member labelled");
        }
        Ok(found.session.take())
    }

    /// Two disks on one export would each write what the other has.
    pub(super) fn check_export_free(
        &self,
        model: &Model,
        server: &str,
        export: &str,
    ) -> Result<(), ControlError> {
        let is_it = |disk: &DiskRecord| {
            disk.remote.as_ref().is_some_and(|remote| {
                let backend = model.datastores.get(&disk.datastore).map(|d| &d.record.backend);
                remote.export == export && servers(remote, backend).iter().any(|s| s == server)
            })
        };
        let taken = model.disks.values().find(|d| is_it(&d.record));
        model.check_export_not_moved_to(server, export)?;
        match taken {
            None => Ok(()),
            Some(disk) => Err(ControlError::Busy {
                error: format!(
                    "export '{export}' of that server is disk '{}' already",
                    disk.record.name
                ),
                hint: "name another export, or remove that disk first (the server keeps its data)"
                    .into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::testing::Bench;
    use serde_json::{Value, json};

    #[test]
    fn connections_are_of_datastores_on_servers_and_one_to_sixteen() {
        let bench = Bench::new();
        let add = |name: &str, backend: Value| {
            let request = json!({"name": name, "backend": backend});
            bench.control.add_datastore(serde_json::from_value(request).unwrap())
        };
        let shown = |name: &str| {
            let record = bench.control.datastore_record(&name.parse().unwrap()).unwrap();
            match record.backend {
                Backend::Nbd { connections, .. } | Backend::Stripe { connections, .. } => {
                    Some(connections.get())
                }
                _ => None,
            }
        };
        add("one", json!({"nbd": "nbd://a"})).unwrap();
        add("far", json!({"nbd": "nbd://b", "connections": 16})).unwrap();
        add("wide", json!({"stripe": ["nbd://c", "nbd://d"], "connections": 3})).unwrap();
        assert_eq!([shown("one"), shown("far"), shown("wide")], [Some(1), Some(16), Some(3)]);
        for wrong in [
            json!({"memory": 1 << 20, "connections": 2}),
            json!({"nbd": "nbd://e", "connections": 0}),
            json!({"nbd": "nbd://e", "connections": 17}),
        ] {
            let refused = add("wrong", wrong).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        }
        let set = |name: &str, number: u8| {
            let patch = serde_json::from_value(json!({"connections": number})).unwrap();
            bench.control.set_datastore(&name.parse().unwrap(), patch)
        };
        set("far", 2).unwrap();
        set("wide", 4).unwrap();
        assert_eq!([shown("far"), shown("wide")], [Some(2), Some(4)]);
        assert!(set("default", 2).is_err() && set("far", 17).is_err());
    }

    #[test]
    fn a_server_is_named_without_an_export() {
        for (text, kept) in [
            ("nbd+unix:///?socket=/run/a.sock", "nbd+unix:///?socket=/run/a.sock"),
            ("nbd://10.0.0.1", "nbd://10.0.0.1:10809/"),
            ("nbd://[::1]:99/", "nbd://[::1]:99/"),
            ("nbds://h", "nbds://h:10809/"),
            ("nbds://10.0.0.1?tls-hostname=h", "nbds://10.0.0.1:10809/?tls-hostname=h"),
        ] {
            assert_eq!(server(text).unwrap(), kept);
        }
        for bad in [
            "/run/a.sock",
            "nbd://host/disk",
            "nbd+unix:///d?socket=/a",
            "nbd+unix:///?socket=a",
            "nbds+unix:///?socket=/a",
            "nbd://h/?tls-hostname=h",
            "",
        ] {
            let error = server(bad).unwrap_err();
            assert!(
                error.expected().unwrap().contains("nbd+unix:///?socket=/PATH"),
                "{bad}: {error}"
            );
        }
        let error = server("nbds://h/?tls-certificates=/etc/tls").unwrap_err();
        assert!(error.to_string().contains("the daemon has its own"), "{error}");
    }
}
