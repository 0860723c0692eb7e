//! Words of what a disk is on and who has it.

use super::{incomplete, migrate, trouble};
use headgate_api::leases::{Lease, LeasePlace};
use headgate_api::types::{self, ServiceState};
use headgate_model::{
    BlockSizes, Connection, ConnectionState, FieldSource, PolicyAnswer, PolicySource, ReceivedIos,
    ServerConnection,
};
use headgate_units::Bytes;

pub(super) fn block_sizes(sizes: &BlockSizes) -> String {
    let BlockSizes { logical, physical, alignment_offset, minimum_io, optimal_io } = sizes;
    let mut text = format!("{logical} logical, {physical} physical");
    let further = [
        ("the first at", *alignment_offset, Bytes(0)),
        ("requests of", *minimum_io, *physical),
        ("long ones of", *optimal_io, Bytes(0)),
    ];
    for (what, size, usual) in further {
        if size != usual {
            text.push_str(&format!(", {what} {size}"));
        }
    }
    text
}

fn connection_state(state: ConnectionState, reason: Option<&str>) -> String {
    match (state, reason) {
        (ConnectionState::Connected, _) => "connected".to_owned(),
        (ConnectionState::Waiting, None) => "none yet, requests wait".into(),
        (ConnectionState::Waiting, Some(reason)) => format!("none, requests wait: {reason}"),
        (ConnectionState::Failing, reason) => {
            format!("none, requests fail: {}", reason.unwrap_or("no answer"))
        }
        (ConnectionState::Evicted, reason) => {
            format!("evicted, requests fail: {}", reason.unwrap_or("another host has the disk"))
        }
    }
}

/// A line for each server of a striped disk, with its URI; nothing for other disks.
pub(super) fn servers(connection: &Connection) -> Vec<(&str, String)> {
    if connection.servers.len() < 2 {
        return Vec::new();
    }
    let line = |server: &ServerConnection| {
        let mut text = connection_state(server.state, server.reason.as_deref());
        if server.outstanding > 0 {
            text.push_str(&format!(", {} outstanding", server.outstanding));
        }
        if server.waiting > 0 {
            text.push_str(&format!(", {} waiting", server.waiting));
        }
        if let Some(ReceivedIos { ios, by_reservation }) = server.received {
            text.push_str(&format!(", received {ios} IOs, {by_reservation} by reservation"));
        } else if server.state == ConnectionState::Connected {
            text.push_str(", does not count what it gives");
        }
        match &server.policy {
            None | Some(PolicyAnswer::Taken | PolicyAnswer::Unknown) => {}
            Some(PolicyAnswer::Refused(why)) => {
                text.push_str(&format!("; does not take the policy: {why}"));
            }
        }
        text
    };
    connection.servers.iter().map(|server| (server.server.as_str(), line(server))).collect()
}

pub(super) fn describe_connection(connection: &Connection) -> String {
    let mut text = connection_state(connection.state, connection.reason.as_deref());
    if connection.reconnects > 0 {
        text.push_str(&format!("; {} reconnects", connection.reconnects));
    }
    if connection.losses > 0 {
        text.push_str(&format!(", {} with writes that may be lost", connection.losses));
    }
    text
}

/// Where the fields of a disk's policy come from, of a disk that has a class.
pub(super) fn whence(disk: &types::Disk) -> Option<String> {
    disk.class.as_ref()?;
    let of = |wanted: FieldSource, words: &str| {
        let sources = disk.policy_sources.iter();
        let fields = sources.filter(|(_, source)| **source == wanted);
        let names: Vec<&str> = fields.map(|(field, _)| field.as_str()).collect();
        (!names.is_empty()).then(|| format!("{words}: {}", names.join(", ")))
    };
    let parts = [
        of(FieldSource::Disk, "the disk itself"),
        of(FieldSource::Class, "its class"),
        of(FieldSource::Size, "its class by its size"),
        of(FieldSource::Gateway, "a gateway"),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    Some(if known.is_empty() { "the default".into() } else { known.join("; ") })
}

pub(super) fn set_by(by: &PolicySource) -> String {
    let PolicySource { peer, servers, epoch, .. } = by;
    format!("gateway '{peer}', for {servers} servers together (epoch {epoch})")
}

pub(super) fn lease(lease: &Lease) -> String {
    let place = match lease.place {
        LeasePlace::Etcd => "in etcd",
        LeasePlace::Labels => "on the labels of its exports",
        LeasePlace::File => "by its file",
    };
    match (lease.number, &lease.holder) {
        (Some(number), _) => format!("held here {place}, as holder number {number}"),
        (None, Some(holder)) => {
            format!("not held: with host '{}' (headgate process {})", holder.name, holder.pid)
        }
        (None, None) => "not held".into(),
    }
}

pub(super) fn exports(disk: &types::Disk) -> Option<String> {
    let each = disk.exports.iter().map(|e| format!("{} (priority {})", e.name, e.priority));
    (!disk.exports.is_empty()).then(|| each.collect::<Vec<_>>().join(", "))
}

fn connection(disk: &types::Disk) -> Option<ConnectionState> {
    disk.connection.as_ref().map(|connection| connection.state)
}

/// The state of a disk in a word, or two.
pub(super) fn state(disk: &types::Disk) -> String {
    if let (Some(filling), ServiceState::Starting | ServiceState::Serving) =
        (&disk.filling, disk.state)
    {
        return incomplete::state(filling);
    }
    match disk.state {
        other @ (ServiceState::Starting
        | ServiceState::Hung
        | ServiceState::Failed
        | ServiceState::Evicted) => other.as_str().into(),
        ServiceState::Serving if trouble::is_held(disk) => "held".into(),
        ServiceState::Serving if connection(disk) == Some(ConnectionState::Waiting) => {
            "waiting".into()
        }
        ServiceState::Serving if connection(disk) == Some(ConnectionState::Failing) => {
            "failing".into()
        }
        ServiceState::Serving if connection(disk) == Some(ConnectionState::Evicted) => {
            "evicted".into()
        }
        ServiceState::Serving if disk.trouble.is_some() => "failing".into(),
        ServiceState::Serving if disk.overbooked && disk.policy.reservation.is_some() => {
            "overbooked".into()
        }
        ServiceState::Serving if migrate::is_moving(disk) => "moving".into(),
        ServiceState::Serving => "serving".into(),
    }
}
