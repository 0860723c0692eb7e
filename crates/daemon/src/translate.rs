//! What the engine tells, in the words of the model, and what the model sets, in the engine's.

use headgate_engine::pulse::Stall;
use headgate_engine::request as engine;
use headgate_engine::snapshot::{self, RemoteState};
use headgate_engine::{EngineError, HoldReads, HoldWrites, Priorities, ResizeError, TroublePolicy};
use headgate_model::{
    BlockSizes, ConnectionState, DiskTold, Ended, ErrorSample, FlashSample, HoldSample, Name,
    NarrowedSample, NeighbourWait, NotResized, Noted, PlaneError, Policy, PriorityRecord,
    PriorityScope, ReadErrors, Sender, Settled, StreamSample, TroubleSample, Waits, WriteErrors,
    Writes,
};
use headgate_model::{ReceivedIos, ServerConnection, ShardWaits};
use headgate_nbd::counters::Counting;
use headgate_qos::window::DiskTotals;
use headgate_qos::{Cost, PriorityPolicy};
use headgate_stats::ErrorKind;
use headgate_units::Bytes;

/// A virtual machine's priorities as the engine takes them.
pub(super) fn engine_priorities(record: &PriorityRecord) -> Priorities {
    let scope = match record.scope {
        PriorityScope::Within => headgate_qos::PriorityScope::WithinVm,
        PriorityScope::Across => headgate_qos::PriorityScope::AcrossVms,
    };
    Priorities {
        policy: PriorityPolicy { max: record.max, default: record.default, scope },
        map: record.map,
    }
}

fn priority_record(in_force: &Priorities) -> PriorityRecord {
    let scope = match in_force.policy.scope {
        headgate_qos::PriorityScope::WithinVm => PriorityScope::Within,
        headgate_qos::PriorityScope::AcrossVms => PriorityScope::Across,
    };
    let PriorityPolicy { max, default, .. } = in_force.policy;
    PriorityRecord { max, default, scope, map: in_force.map }
}

fn stream(stream: &snapshot::StreamSnapshot) -> StreamSample {
    let &snapshot::StreamSnapshot { priority, ios, cost } = stream;
    StreamSample { priority, ios, cost }
}

fn connection(remote: snapshot::RemoteSnapshot) -> headgate_model::Connection {
    let snapshot::RemoteSnapshot { state, reason, reconnects, losses, servers } = remote;
    let servers = servers.into_iter().map(server).collect();
    headgate_model::Connection { state: of_state(state), reason, reconnects, losses, servers }
}

fn server(server: snapshot::ServerSnapshot) -> ServerConnection {
    let whole = |millionths: u64| millionths / 1_000_000;
    let received = match server.counting {
        Counting::Agreed(_) => Some(ReceivedIos {
            ios: whole(server.received.all),
            by_reservation: whole(server.received.by_reservation),
        }),
        Counting::None => None,
    };
    ServerConnection {
        server: server.server,
        state: of_state(server.state),
        reason: server.reason,
        reconnects: server.reconnects,
        connections: server.connections,
        outstanding: server.outstanding,
        waiting: server.waiting,
        latency_ns: server.latency.map(|latency| latency.0),
        window_thousandths: server.window.map(|window| window.0 / 1_000),
        received,
        policy: None,
    }
}

fn of_state(state: RemoteState) -> ConnectionState {
    match state {
        RemoteState::Connected => ConnectionState::Connected,
        RemoteState::Waiting => ConnectionState::Waiting,
        RemoteState::Failing => ConnectionState::Failing,
        RemoteState::Evicted => ConnectionState::Evicted,
    }
}

pub(super) fn usage(disk: &snapshot::DiskUsage) -> DiskTotals<usize> {
    let &snapshot::DiskUsage { key, policy, at, outstanding_time, ios, bytes } = disk;
    DiskTotals { key, policy, at, outstanding_time, ios, bytes }
}

pub(super) fn narrowed(narrowed: snapshot::NarrowedWindow) -> Option<NarrowedSample> {
    let iops = |rate: Cost| rate.as_millionths() / 1_000_000;
    Some(NarrowedSample {
        disk: narrowed.disk.parse().ok()?,
        promise: narrowed.promise,
        before: iops(narrowed.before),
        now: iops(narrowed.now),
    })
}

/// What a policy says of errors, as the engine takes it.
pub(super) fn trouble_policy(policy: &Policy) -> TroublePolicy {
    TroublePolicy {
        writes: match policy.werror {
            WriteErrors::Report => HoldWrites::Never,
            WriteErrors::Enospc => HoldWrites::NoSpace,
            WriteErrors::Stop => HoldWrites::Always,
        },
        reads: match policy.rerror {
            ReadErrors::Report => HoldReads::Never,
            ReadErrors::Stop => HoldReads::Always,
        },
    }
}

fn policy(disk: &snapshot::DiskSnapshot) -> Policy {
    let werror = match disk.trouble.policy.writes {
        HoldWrites::Never => WriteErrors::Report,
        HoldWrites::NoSpace => WriteErrors::Enospc,
        HoldWrites::Always => WriteErrors::Stop,
    };
    let rerror = match disk.trouble.policy.reads {
        HoldReads::Never => ReadErrors::Report,
        HoldReads::Always => ReadErrors::Stop,
    };
    Policy { werror, rerror, ..Policy::from(disk.policy) }
}

fn trouble(trouble: &snapshot::TroubleSnapshot) -> TroubleSample {
    let error = |last: snapshot::LastError| ErrorSample {
        at: last.at,
        op: last.op,
        kind: last.error.kind().unwrap_or(ErrorKind::Other),
        error: last.error.to_string(),
        offset: last.offset,
        len: last.len,
    };
    let hold = |hold: snapshot::HoldSnapshot| HoldSample {
        since: hold.since,
        error: hold.error.to_string(),
        requests: hold.requests,
        tries: hold.tries,
    };
    TroubleSample {
        counts: trouble.counts,
        last: trouble.last.map(error),
        reported: trouble.reported,
        hold: trouble.hold.map(hold),
        holds: trouble.holds,
    }
}

fn block_sizes(disk: &snapshot::DiskSnapshot) -> BlockSizes {
    let [logical, physical, alignment_offset, minimum_io, optimal_io] = [
        disk.block_size,
        disk.topology.physical_block,
        disk.topology.alignment_offset,
        disk.topology.min_io,
        disk.topology.opt_io,
    ]
    .map(|size| Bytes(u64::from(size)));
    BlockSizes { logical, physical, alignment_offset, minimum_io, optimal_io }
}

/// What a disk's requests waited for. Disks of the daemon's own are nobody's neighbours by name.
fn disk_waits(disk: &snapshot::DiskSnapshot) -> Waits {
    let named = disk.neighbours.iter().filter_map(|one| {
        let sender = match one.sender {
            snapshot::Sender::Clients => Sender::Clients,
            snapshot::Sender::Copy => Sender::Copy,
        };
        let (entered, waited) = (one.entered, one.waited);
        Some(NeighbourWait { disk: one.name.parse().ok()?, sender, entered, waited })
    });
    let times = disk.waits.clone().unwrap_or_default();
    Waits {
        device: times.device,
        limit: times.limit,
        own: times.own,
        window: times.window,
        neighbours: times.neighbours,
        held: disk.stats.held_time,
        named: named.collect(),
    }
}

pub(super) fn disk_told(disk: &snapshot::DiskSnapshot, name: Name) -> DiskTold {
    let flash = |flash: snapshot::FlashSnapshot| FlashSample {
        counters: flash.counters,
        standing: flash.standing,
    };
    DiskTold {
        waits: disk_waits(disk),
        name,
        policy: policy(disk),
        priorities: priority_record(&disk.priorities),
        block_sizes: Some(block_sizes(disk)),
        streams: disk.streams.iter().map(stream).collect(),
        in_flight: disk.in_flight,
        queued: disk.queued,
        needed_depth: disk.needed_depth,
        latency: disk.latency,
        clients: disk.ports,
        remote: disk.remote.clone().map(connection),
        counted: disk.stats.clone(),
        trouble: trouble(&disk.trouble),
        flash: disk.flash.map(flash),
    }
}

/// How a shard waits for work.
pub(crate) fn waits(waits: headgate_engine::ShardWaits) -> ShardWaits {
    ShardWaits {
        shard: waits.shard,
        incumbent: waits.incumbent.name(),
        trials: waits.trials,
        changes: waits.changes,
        served: waits.served,
        cpu: waits.cpu,
        spent: waits.spent.map(|(mode, time)| (mode.name(), time)).into(),
    }
}

pub(super) fn stall(stall: &Stall, stores: &[(Name, usize)]) -> headgate_model::Stall {
    let on = |(name, shard): &(Name, usize)| (*shard == stall.shard).then(|| name.clone());
    headgate_model::Stall {
        shard: stall.shard,
        waited: stall.waited,
        thread: stall.thread,
        datastores: stores.iter().filter_map(on).collect(),
        reason: stall.to_string(),
    }
}

/// Why a disk did not get another size.
pub(crate) fn not_resized(error: EngineError) -> NotResized {
    match error {
        EngineError::Resize(ResizeError::Clients { ports }) => NotResized::Clients(ports),
        EngineError::Resize(ResizeError::Data { at, .. }) => NotResized::Data(at),
        EngineError::Place(error) => NotResized::NoRoom(error.to_string()),
        other => NotResized::Failed(PlaneError::new(other)),
    }
}

/// Disks of the daemon's own have names that no operator can give, and are left out.
pub(crate) fn ended(ended: headgate_engine::Ended) -> Ended {
    let settled = |one: headgate_engine::Settled| {
        let noted = Noted { changes: one.changes, stamp: one.stamp };
        Some(Settled { disk: one.name.parse().ok()?, noted })
    };
    Ended {
        left: ended.left.iter().filter_map(|name| name.parse().ok()).collect(),
        settled: ended.settled.into_iter().filter_map(settled).collect(),
    }
}

pub(crate) fn writes(writes: Writes) -> engine::Writes {
    match writes {
        Writes::Allowed => engine::Writes::Allowed,
        Writes::Refused => engine::Writes::Refused,
    }
}
