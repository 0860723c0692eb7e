//! A whole run: connects to every target, starts a thread for each, shows progress, gathers the report.

use crate::args::{LoadArgs, Plan, ReplayArgs};
use crate::demand::Demand;
use crate::journal::{JournalError, Scope};
use crate::link::{Access, DiskInfo, Link, LinkError, Op, Shape};
use crate::nbd::NbdLink;
use crate::replay::{Changes, Fit, Player, Recording};
use crate::report::{Report, TargetReport};
use crate::target::{NbdTarget, Target};
use crate::verify::Verifier;
use crate::vhost::{Indirect, VhostLink};
use crate::worker::{Batch, Job, Limits, Waiting, Worker};
use crate::workload::{Span, Workload, mix};
use headgate_units::Nanos;
use headgate_vring::blk::feature;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use thiserror::Error;

/// How often the main thread looks around.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// From the last connection to the first request.
const HEAD_START: Nanos = Nanos::from_millis(5);
/// Reads of a check are this long, or as long as the largest request.
const CHECK_LEN: u32 = 256 << 10;

/// Why there is no report.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The arguments make no sense.
    #[error("{0}")]
    Usage(String),
    /// A target cannot be loaded.
    #[error("{target}: {what}")]
    Target {
        /// Which.
        target: String,
        /// Why.
        what: String,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl LoadError {
    fn of(target: &Target, what: &str) -> LoadError {
        LoadError::Target { target: target.to_string(), what: what.to_owned() }
    }

    /// The exit code that belongs to it.
    pub fn exit_code(&self) -> u8 {
        match self {
            LoadError::Usage(_) => 2,
            LoadError::Target { .. } | LoadError::Journal(_) => 1,
        }
    }
}

/// What ended the load of one target early.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the recording: {0}")]
    Recording(String),
    #[error("the server neither answers nor hangs up: {op:?} is outstanding for {waited}")]
    Hung { op: Op, waited: Nanos },
}

/// Watches and ends a run from another thread.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    interrupted: Arc<AtomicBool>,
    ios: AtomicU64,
    bytes: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) ended: AtomicU64,
}

impl Control {
    /// Ends the load; a verified one still reads everything back.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the run as fast as possible, with a report of what there is.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// Requests completed so far.
    pub fn ios(&self) -> u64 {
        self.ios.load(Ordering::Relaxed)
    }

    /// Flushes completed so far.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Requests failed so far.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Deaths of servers survived so far.
    pub fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_interrupted()
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, batch: &Batch) {
        self.ios.fetch_add(batch.ios, Ordering::Relaxed);
        self.bytes.fetch_add(batch.bytes, Ordering::Relaxed);
        if batch.flushes > 0 {
            self.flushes.fetch_add(batch.flushes, Ordering::Relaxed);
        }
        if batch.errors > 0 {
            self.errors.fetch_add(batch.errors, Ordering::Relaxed);
        }
    }
}

/// A number that differs from run to run.
pub(crate) fn unrepeatable() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    mix(now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40)
}

/// Does what the command line says, with Ctrl-C ending the load and a progress line on a terminal.
///
/// # Errors
/// Nothing could be loaded. What goes wrong later is in the report.
pub fn run(args: &LoadArgs) -> Result<Report, LoadError> {
    let control = Control::default();
    heed_signals(&control)?;
    run_with(args, &control)
}

fn heed_signals(control: &Control) -> Result<(), LoadError> {
    let interrupted = Arc::clone(&control.interrupted);
    // The second Ctrl-C ends the process: the first may not have been heard.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let registered =
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupted))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)));
        registered.map_err(|e| LoadError::Usage(format!("signals cannot be handled: {e}")))?;
    }
    Ok(())
}

/// Replays a recording, with Ctrl-C ending it and a progress line on a terminal.
///
/// # Errors
/// Nothing could be replayed. What goes wrong later is in the report.
pub fn replay(args: &ReplayArgs, recording: Recording) -> Result<Report, LoadError> {
    let control = Control::default();
    heed_signals(&control)?;
    replay_with(args, recording, &control)
}

/// The same for callers that end and watch the replay themselves.
///
/// # Errors
/// As [`replay`].
pub fn replay_with(args: &ReplayArgs, recording: Recording, control: &Control) -> Result<Report, LoadError> {
    let load = args.load()?;
    let plan = Plan::new(&load)?;
    let changes = if args.reads_only { Changes::LeftOut } else { Changes::Replayed };
    let mut recording = Some(recording);
    load_all(&load, &plan, control, &mut |_, target, disk| {
        let failed = |what: &str| LoadError::of(target, what);
        let fit = Fit { size: disk.size, max_len: plan.max_len, speed_percent: args.speed, changes };
        let recording = recording.take().ok_or_else(|| failed("a recording is replayed on one disk"))?;
        if disk.size < 512 {
            return Err(failed("the disk is smaller than a sector"));
        }
        Ok(Prepared { demand: Demand::Recorded(Box::new(Player::new(recording, fit))), verifier: None })
    })
}

/// The same for callers that end and watch the run themselves.
///
/// # Errors
/// As [`run`].
pub fn run_with(args: &LoadArgs, control: &Control) -> Result<Report, LoadError> {
    if !args.hostile.is_empty() {
        return crate::hostile::run(args, control);
    }
    let plan = Plan::new(args)?;
    load_all(args, &plan, control, &mut |i, target, disk| {
        let failed = |what: String| LoadError::of(target, &what);
        let span = plan.span(args, disk.size).map_err(failed)?;
        let workload = Workload::new(plan.mix.clone(), span, mix(plan.seed ^ i as u64)).map_err(failed)?;
        let verifier = verifier(args, &plan, span)?;
        Ok(Prepared { demand: Demand::drawn(workload, plan.arrivals), verifier })
    })
}

/// What a worker needs besides its links.
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
        let targets = threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
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
        max_len: if plan.verify_block.is_some() { plan.max_len.max(CHECK_LEN) } else { plan.max_len },
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
            needs.push((export::CAN_MULTI_CONN, "connections that see each other's flushes (multi-conn)"));
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
        return Err(LinkError::Unsupported("--fua-percent: virtio-blk has no FUA, use --flush-every".into()));
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

/// Prints progress until the threads are done; answers the CPU time that the servers took while requests counted.
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
