//! A whole run: connects to every target, starts a thread for each, shows progress, gathers the
//! report.

use crate::args::{LoadArgs, Plan, ReplayArgs};
use crate::control::Control;
use crate::demand::Demand;
use crate::error::LoadError;
use crate::journal::Scope;
use crate::link::{Access, DiskInfo, Link, LinkError, Shape};
use crate::nbd::NbdLink;
use crate::replay::{Changes, Fit, Player, Recording};
use crate::report::{Report, TargetReport};
use crate::target::{NbdTarget, Target};
use crate::verify::Verifier;
use crate::vhost::{Indirect, VhostLink};
use crate::worker::{Job, Limits, Waiting, Worker};
use crate::workload::{Span, Workload, mix};
use headgate_units::Nanos;
use headgate_vring::blk::feature;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// Period of the main thread's checks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// From the last connection to the first request.
const HEAD_START: Nanos = Nanos::from_millis(5);
/// Reads of a check are this long, or as long as the largest request.
const CHECK_LEN: u32 = 256 << 10;

/// A number that differs from run to run.
pub(crate) fn unrepeatable() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    mix(now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40)
}

/// Replays a recording; the caller ends and watches it through `control`.
///
/// # Errors
/// Nothing could be replayed. Later failures are in the report.
pub fn replay_with(
    args: &ReplayArgs,
    recording: Recording,
    control: &Control,
) -> Result<Report, LoadError> {
    let load = args.load()?;
    let plan = Plan::new(&load)?;
    let changes = if args.reads_only { Changes::LeftOut } else { Changes::Replayed };
    let mut recording = Some(recording);
    load_all(&load, &plan, control, &mut |_, target, disk| {
        let failed = |what: &str| LoadError::of(target, what);
        let fit =
            Fit { size: disk.size, max_len: plan.max_len, speed_percent: args.speed, changes };
        let recording =
            recording.take().ok_or_else(|| failed("a recording is replayed on one disk"))?;
        if disk.size < 512 {
            return Err(failed("the disk is smaller than a sector"));
        }
        Ok(Prepared {
            demand: Demand::Recorded(Box::new(Player::new(recording, fit))),
            verifier: None,
        })
    })
}

/// Loads all targets of the command line, and reports.
///
/// # Errors
/// No target could be loaded. Later failures are in the report.
pub(crate) fn load_targets(args: &LoadArgs, control: &Control) -> Result<Report, LoadError> {
    let plan = Plan::new(args)?;
    load_all(args, &plan, control, &mut |i, target, disk| {
        let failed = |what: String| LoadError::of(target, &what);
        let span = plan.span(args, disk.size).map_err(failed)?;
        let workload =
            Workload::new(plan.mix.clone(), span, mix(plan.seed ^ i as u64)).map_err(failed)?;
        let verifier = verifier(args, &plan, span)?;
        Ok(Prepared { demand: Demand::drawn(workload, plan.arrivals), verifier })
    })
}

/// The input of a worker besides its links.
struct Prepared {
    demand: Demand,
    verifier: Option<Verifier>,
}

/// Connects to all targets, asks for what each is to do, and loads them.
fn load_all(
    args: &LoadArgs,
    plan: &Plan,
    control: &Control,
    prepare: &mut dyn FnMut(usize, &Target, DiskInfo) -> Result<Prepared, LoadError>,
) -> Result<Report, LoadError> {
    let clock = Instant::now();
    let mut prepared = Vec::new();
    for (i, target) in args.targets.iter().enumerate() {
        let failed = |what: &str| LoadError::of(target, what);
        let (links, info) = connect(target, args, plan, i).map_err(|e| failed(&e.to_string()))?;
        let writes = plan.mix.read_percent < 100 || plan.mix.flush_every > 0;
        if writes && info.access == Access::ReadOnly {
            return Err(failed(
                "the disk is read-only: only reads can be had, with --read-percent 100 or --reads-only",
            ));
        }
        let what = prepare(i, target, info)?;
        prepared.push((target, links, what, info));
    }
    let start = Nanos::from(clock.elapsed()) + HEAD_START;
    let from = start + args.warmup.0;
    let limits = Limits {
        start,
        warmup: args.warmup.0,
        seconds: plan.seconds,
        ios: plan.ios,
        patience: args.timeout.0,
        reconnect: args.reconnect.0,
        waiting: if args.spin { Waiting::Spin } else { Waiting::Sleep },
        check_len: plan.max_len.max(CHECK_LEN),
    };
    let targets = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (target, links, Prepared { demand, verifier }, info) in prepared {
            let job = Job { demand, verifier, limits, streams: plan.streams.clone() };
            let load = move || {
                let mut worker = Worker::new(links, job, control, clock);
                let outcome = worker.run();
                TargetReport::new(target, info, &worker, outcome.err())
            };
            threads.push(scope.spawn(load));
        }
        let servers = watch(args, control, clock, from, &threads);
        let targets =
            threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        (targets.collect::<Vec<_>>(), servers)
    });
    Ok(Report::new(targets.0, targets.1, plan.seed, control.is_interrupted()))
}

fn verifier(args: &LoadArgs, plan: &Plan, span: Span) -> Result<Option<Verifier>, LoadError> {
    let Some(block_size) = plan.verify_block else { return Ok(None) };
    let scope = Scope { identity: unrepeatable(), block_size, first: span.first, end: span.end };
    Ok(Some(Verifier::new(scope, args.journal.as_deref())?))
}

type Links = Vec<(Box<dyn Link>, usize)>;

fn connect(
    target: &Target,
    args: &LoadArgs,
    plan: &Plan,
    index: usize,
) -> Result<(Links, DiskInfo), LinkError> {
    let shape = Shape {
        depth: args.depth as usize,
        max_len: if plan.verify_block.is_some() {
            plan.max_len.max(CHECK_LEN)
        } else {
            plan.max_len
        },
        data: plan.data(),
        seed: mix(plan.seed ^ (index as u64) << 32),
    };
    match target {
        Target::Nbd(nbd) => connect_nbd(nbd, args, plan, shape),
        Target::VhostUserBlk(path) => connect_vhost(path, args, plan, shape),
    }
}

fn connect_nbd(
    target: &NbdTarget,
    args: &LoadArgs,
    plan: &Plan,
    shape: Shape,
) -> Result<(Links, DiskInfo), LinkError> {
    use headgate_nbd::wire::export;
    let mut links: Links = Vec::new();
    let mut disk = DiskInfo { size: 0, access: Access::ReadWrite };
    for _ in 0..args.connections {
        let link = NbdLink::connect(target, plan.reach, plan.style, shape)?;
        let info = link.info();
        let mut needs = Vec::new();
        if plan.mix.flush_every > 0 {
            needs.push((export::SEND_FLUSH, "flush"));
        }
        if plan.mix.fua_percent > 0 {
            needs.push((export::SEND_FUA, "FUA"));
        }
        if plan.mix.zero_percent > 0 {
            needs.push((export::SEND_WRITE_ZEROES, "write-zeroes"));
        }
        if args.connections > 1 && args.verify {
            needs.push((
                export::CAN_MULTI_CONN,
                "connections that see each other's flushes (multi-conn)",
            ));
        }
        if let Some(missing) = info.missing(&needs) {
            return Err(LinkError::Unsupported(format!("the export does not offer {missing}")));
        }
        disk.size = info.size;
        if info.is_read_only() {
            disk.access = Access::ReadOnly;
        }
        links.push((Box::new(link), shape.depth));
    }
    Ok((links, disk))
}

fn connect_vhost(
    path: &Path,
    args: &LoadArgs,
    plan: &Plan,
    shape: Shape,
) -> Result<(Links, DiskInfo), LinkError> {
    if plan.mix.fua_percent > 0 {
        return Err(LinkError::Unsupported(
            "--fua-percent: virtio-blk has no FUA, use --flush-every".into(),
        ));
    }
    let indirect = if args.direct_descriptors { Indirect::Unwanted } else { Indirect::Wanted };
    let link = VhostLink::connect(path, args.queues as usize, shape, indirect)?;
    let mut needs = Vec::new();
    if plan.mix.flush_every > 0 {
        needs.push((feature::FLUSH, "flush"));
    }
    if plan.mix.zero_percent > 0 {
        needs.push((feature::WRITE_ZEROES, "write-zeroes"));
    }
    if let Some(missing) = link.missing(&needs) {
        return Err(LinkError::Unsupported(format!("the device does not offer {missing}")));
    }
    let (disk, slots) = (link.disk(), link.slots());
    Ok((vec![(Box::new(link) as Box<dyn Link>, slots)], disk))
}

/// Prints progress until the threads are done; answers the CPU time that the servers took while
/// requests counted.
fn watch<T>(
    args: &LoadArgs,
    control: &Control,
    clock: Instant,
    from: Nanos,
    threads: &[std::thread::ScopedJoinHandle<'_, T>],
) -> Option<Duration> {
    let show = !args.json && std::io::stderr().is_terminal();
    let cpu = || crate::cpu::of_processes(&args.server_pid);
    let (mut before, mut after) = (None, None);
    let mut shown = (0, 0u64, 0u64);
    while !threads.iter().all(|t| t.is_finished()) {
        std::thread::sleep(LOOK_EVERY);
        let now = Nanos::from(clock.elapsed());
        if before.is_none() && now >= from {
            before = cpu();
        }
        if after.is_none() && control.ended.load(Ordering::Relaxed) > 0 {
            after = cpu();
        }
        let second = now.since(from).0 / 1_000_000_000;
        if show && second > shown.0 {
            let (ios, bytes) = (control.ios(), control.bytes.load(Ordering::Relaxed));
            eprint!(
                "\r\x1b[K{second} s: {} IOPS, {} MiB/s, {} errors",
                (ios - shown.1) / (second - shown.0),
                ((bytes - shown.2) / (second - shown.0)) >> 20,
                control.errors()
            );
            shown = (second, ios, bytes);
        }
    }
    if show && shown.0 > 0 {
        eprintln!("\r\x1b[K");
    }
    Some(after?.saturating_sub(before?))
}
