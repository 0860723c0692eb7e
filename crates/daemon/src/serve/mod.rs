//! The daemon as a process: configuration, logs, signals, start and end.

mod api_tcp;
mod catalog;
mod config;
mod confinement;
mod descriptors;
mod etcd;
mod events;
mod fleet;
mod groups;
mod keep;
mod limits;
mod lock;
mod log;
mod log_rate;
mod log_sieve;
mod notify;
mod shards;
/// SIGTERM and SIGINT.
pub mod signals;
mod watchdog;

pub use config::{Config, ConfigError, GuestMemory, WaitingRule};
pub use confinement::{ConfinementError, LandlockMode};
pub use fleet::FleetMode;
pub use keep::KeepRemoved;
pub use log::LogFormat;

use self::api_tcp::Configured;
use crate::announced::Taker;
use crate::calibrate::Calibrator;
use crate::demo::Demo;
use crate::engine_plane::EnginePlane;
use crate::fleet::{Fleet, FleetError};
use crate::http::{
    ApiGroups, ApiServer, App, MetricsServer, MetricsServerError, ServeError, TcpApiError,
    TcpApiServer, WhatIfs,
};
use crate::observe::Observer;
use headgate_access::{Access, NameError};
use headgate_catalog::CatalogError;
use headgate_cluster::{Identity, IdentityError, Origin, Servers, ServersError};
use headgate_control::event_log::{EventLog, EventLogError};
use headgate_control::leases::{Keeper, KeeperError, LOOK, Leases, Next, TERMS, Ticker};
use headgate_control::mend::MendError;
use headgate_control::volumes;
use headgate_control::windows::{Myself, Windows};
use headgate_control::{
    CARRY, Control, ControlError, Options, Parts, Roots, StateDir, StateDirError,
};
use headgate_events::Entry;
use headgate_frontends::nbd::server::ServerConfig;
use headgate_history::{Samples, SamplesError};
use headgate_model::PlaneError;
use headgate_nbd_io::ClientTls;
use headgate_tls::{ClientCredentials, CredentialsError, ServerCredentials};
use rustix::fs::Mode;
use serde_json::json;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tracing::{info, warn};

/// Length in seconds of the intervals that placement learns from.
const SAMPLE_SECONDS: u8 = 5;

/// Arguments of `headgate serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Configuration file in TOML [default: none; built-in defaults apply]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Add an emulated array with three disks under built-in load, to watch with 'headgate top';
    /// needs an empty state directory
    #[arg(long)]
    demo: bool,
    /// Serve NBD over TCP, too; without --nbd-tls anyone who reaches the address can use every disk
    #[arg(long, value_name = "ADDRESS:PORT")]
    nbd_listen: Option<SocketAddr>,
    /// Certificates for NBD over TLS. With --nbd-listen NBD is served there over TLS only, to those
    /// with a certificate of the authority in this directory: ca-cert.pem, server-cert.pem,
    /// server-key.pem, and, if they are there, ca-crl.pem (what was revoked) and allow.toml (who
    /// may open which disks). Servers of datastores at nbds:// are shown client-cert.pem, with
    /// client-key.pem
    #[arg(long, value_name = "DIR")]
    nbd_tls: Option<PathBuf>,
    #[command(flatten)]
    api_tcp: api_tcp::ApiTcpArgs,
    #[command(flatten)]
    groups: groups::GroupArgs,
    /// Directory that datastores may be in, besides the state directory; may be repeated. Once this
    /// or --allow-block is given, nothing else is allowed [default: all that the daemon can open]
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Block device that may be a datastore, or a directory of such devices, as /dev/disk/by-id;
    /// may be repeated
    #[arg(long, value_name = "PATH")]
    allow_block: Vec<PathBuf>,
    /// Whether the kernel is to let the daemon open nothing but its state directory, what
    /// --allow-dir and --allow-block name, and what it needs of the system [default: auto]
    #[arg(long, value_enum, value_name = "WHETHER")]
    landlock: Option<LandlockMode>,
    #[command(flatten)]
    nbd: limits::NbdArgs,
    /// Serve metrics and health for Prometheus over TCP, too; anyone who reaches the address can
    /// read them, and change nothing
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
    #[command(flatten)]
    events: events::EventArgs,
    #[command(flatten)]
    etcd: etcd::EtcdArgs,
    #[command(flatten)]
    fleet: fleet::FleetArgs,
    /// Which files front-ends may bring as guest memory [default: memory-files]
    #[arg(long, value_enum, value_name = "WHICH")]
    guest_memory: Option<GuestMemory>,
    /// How IO threads wait for work [default: adaptive]
    #[arg(long, value_enum, value_name = "HOW")]
    waiting: Option<WaitingRule>,
    /// How long the content of removed disks is kept, such as 12h or 7d; 0 keeps nothing [default:
    /// 1d]
    #[arg(long, value_name = "TIME")]
    keep_removed_for: Option<KeepRemoved>,
    /// Format of the log on standard error; RUST_LOG sets its level [default: text]
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
}

/// Why the daemon cannot serve.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The certificates cannot be used.
    #[error("the directory of --nbd-tls cannot be used: {0}")]
    Certificates(#[from] CredentialsError),
    /// The daemon is not confined as it has to be.
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
    /// A group that is to have access does not exist.
    #[error("who may connect is not known: {0}")]
    Groups(#[from] NameError),
    /// The state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The host has no identity.
    #[error("this host has no identity: {0}")]
    Identity(#[from] IdentityError),
    /// The demonstration needs an empty state directory.
    #[error("the state directory {} is in use: the demonstration adds its own datastore and disks to a new one only", .0.display())]
    NotFresh(PathBuf),
    /// The catalog cannot be used.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The catalog is damaged or missing.
    #[error(transparent)]
    Mend(#[from] MendError),
    /// Engine or NBD server cannot start.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// The catalog's disks cannot be served.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The API cannot be served.
    #[error(transparent)]
    Api(#[from] ServeError),
    /// The API cannot be served over TCP.
    #[error(transparent)]
    ApiTcp(#[from] TcpApiError),
    /// Metrics cannot be served over TCP.
    #[error(transparent)]
    Metrics(#[from] MetricsServerError),
    /// etcd cannot be reached as it was said.
    #[error(transparent)]
    Etcd(#[from] ServersError),
    /// Leases in etcd cannot be kept.
    #[error(transparent)]
    Leases(#[from] KeeperError),
    /// There is no view of all hosts.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The history cannot be opened.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The log of events cannot be read.
    #[error("there is no log of events: {0}")]
    Events(#[from] EventLogError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] io::Error),
}

impl DaemonError {
    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            DaemonError::StateDir(StateDirError::Locked { .. }) => {
                Some("use the daemon that runs, stop it, or give another --state-dir".into())
            }
            DaemonError::StateDir(StateDirError::TooLong { .. }) => {
                Some("choose a shorter --state-dir".into())
            }
            DaemonError::Confinement(ConfinementError::Required(_)) => Some(
                "give --allow-dir or --allow-block, use a kernel with Landlock, or --landlock auto"
                    .into(),
            ),
            DaemonError::NotFresh(_) => Some(
                "give --state-dir with a directory that is empty or does not exist, or serve without --demo"
                    .into(),
            ),
            DaemonError::Certificates(e) => e.hint().map(Into::into),
            DaemonError::Etcd(e) => e.hint().map(Into::into),
            DaemonError::ApiTcp(e) => e.hint(),
            DaemonError::Metrics(_) => {
                Some("give an address of this machine and a free port to --metrics-listen".into())
            }
            DaemonError::Control(e) => e.hint(),
            DaemonError::Mend(e) => e.hint(),
            _ => None,
        }
    }
}

/// Serves until SIGTERM or SIGINT. A second signal ends the process at once.
///
/// # Errors
/// When the daemon cannot start. A disk that cannot be opened is no reason.
pub fn serve(dir: &StateDir, args: &ServeArgs) -> Result<(), DaemonError> {
    let config = Config::read(args.config.as_deref())?;
    let roots = roots(args, &config)?;
    // Before there is any other thread, for it would not be confined.
    let etcd = args.etcd.servers(&config)?;
    let confinement = confine(dir, args, &config, &roots, etcd.as_ref())?;
    let _logs = log::start(args.log_format.or(config.log_format)).map_err(DaemonError::Thread)?;
    confinement.tell();
    etcd.iter().for_each(Servers::warn_of_risks);
    let groups = args.groups.resolve(&config)?;
    let lock = lock::lock(dir)?;
    if args.demo && !dir.is_fresh() {
        return Err(DaemonError::NotFresh(dir.root().to_owned()));
    }
    let descriptors = descriptors::Descriptors::raise();
    let identity = identify(dir)?;
    let signals = signals::Signals::catch().map_err(DaemonError::Signals)?;
    let plane = start_plane(args, &config)?;
    let options = options(args, &config, groups.disks, roots);
    let nbd = nbd_config(dir, args, &config, Access::of_groups([groups.api.change]));
    let nbd = ServerConfig { descriptors: descriptors.for_clients(), ..nbd };
    let catalog = catalog::open(dir, &identity, &options.roots)?;
    let copier = catalog::Copier::new(dir, catalog.changes());
    let records = catalog.records();
    let leases = leases(etcd.as_ref(), &identity)?;
    let myself = fleet::myself(identity.clone(), &args.api_tcp, configured(&config))?;
    let windows = windows(&plane, &identity, etcd.as_ref())?;
    let samples = Arc::new(samples(dir, &config)?);
    let parts = Parts {
        plane: plane.clone(),
        windows,
        leases,
        samples: samples.clone(),
        catalog: Box::new(catalog),
        records: Some(records.clone()),
        events: EventLog::open(&dir.events(), args.events.size(config.events_size))?,
    };
    let control = Control::start(dir.clone(), identity, options, parts)?;
    let leases = LeaseThreads::start(&control).map_err(DaemonError::Thread)?;
    let watchers = watchers(&control).map_err(DaemonError::Thread)?;
    let copies = copier.start().map_err(DaemonError::Thread)?;
    let (purger, balancer) = keepers(&control).map_err(DaemonError::Thread)?;
    descriptors.check(control.disks()?.len());
    plane.listen(nbd, Some(Taker::shared(&control)))?;
    let observer = Arc::new(Observer::start(control.clone()).map_err(DaemonError::Thread)?);
    let calibrator = Arc::new(Calibrator::new(control.clone(), plane.clone()));
    let fleet = args.fleet.start(config.fleet, (&control, &observer), myself, etcd.as_ref())?;
    let app = App {
        fleet: fleet.clone(),
        calibrator: calibrator.clone(),
        control: control.clone(),
        observer: observer.clone(),
        nbd_tcp: plane.nbd_tcp(),
        confinement: Arc::new(confinement.to_api()),
        what_ifs: WhatIfs::default(),
    };
    let servers = HttpServers::start(dir, args, &config, (&groups.api, &app))?;
    let demo = args.demo.then(|| Demo::start(control.clone(), plane.clone())).transpose()?;
    tell_begin(dir, &control);
    let signal = signals.wait();
    info!(signal, "stopping: a second signal ends the daemon at once");
    notify::tell("STOPPING=1");
    signals.end_at_next();
    drop(demo);
    calibrator.cancel_all();
    servers.stop(&fleet);
    drop((observer, watchers));
    samples.flush();
    drop((leases.resume, purger));
    tell_end(control.shutdown());
    tell_last(&control, signal);
    records.settle();
    copies.finish();
    drop((leases.looks, leases.terms));
    // A successor may begin. What is left in memory ends with the process: closing a file may wait
    // for its file system.
    std::mem::forget((control, plane, samples, app, balancer));
    drop(lock);
    Ok(())
}

/// What serves HTTP.
struct HttpServers {
    api: ApiServer,
    tcp: Option<TcpApiServer>,
    metrics: Option<MetricsServer>,
}

impl HttpServers {
    fn start(
        dir: &StateDir,
        args: &ServeArgs,
        config: &Config,
        (groups, app): (&ApiGroups, &App),
    ) -> Result<HttpServers, DaemonError> {
        let metrics = args.metrics_listen.or(config.metrics_listen);
        let metrics = metrics.map(|at| MetricsServer::start(at, app.clone())).transpose()?;
        let tcp = args.api_tcp.entrance(configured(config))?;
        let tcp =
            tcp.map(|(at, shown)| TcpApiServer::start(at, &shown, app.clone())).transpose()?;
        let api = ApiServer::start(&dir.api_socket(), groups, app.clone())?;
        Ok(HttpServers { api, tcp, metrics })
    }

    /// Answers what is under way, and ends, the view of all hosts too.
    fn stop(self, fleet: &Fleet) {
        drop(self.tcp);
        self.api.stop();
        drop(self.metrics);
        fleet.stop();
    }
}

/// What the configuration says of the API over TCP.
fn configured(config: &Config) -> Configured<'_> {
    Configured {
        listen: config.api_listen,
        tls: config.api_tls.as_deref(),
        tokens: config.api_tokens.as_deref(),
    }
}

fn tell_begin(dir: &StateDir, control: &Control) {
    let (version, process) = (env!("CARGO_PKG_VERSION"), std::process::id());
    info!(state_dir = %dir.root().display(), version, "serving");
    let begun = Entry::done("daemon start");
    control.note(begun.with_new(json!({"version": version, "process": process})));
    notify::tell("READY=1");
}

/// The last event of a daemon.
fn tell_last(control: &Control, signal: impl Display) {
    control.note(Entry::done("daemon stop").because(format!("signal {signal}")));
    control.events().close();
}

/// What is kept of each disk's load.
fn samples(dir: &StateDir, config: &Config) -> Result<Samples, SamplesError> {
    let period = Duration::from_secs(u64::from(config.sample_seconds.unwrap_or(SAMPLE_SECONDS)));
    Samples::open(&dir.samples(), period)
}

/// The windows that follow the storage's latency.
fn windows(
    plane: &Arc<EnginePlane>,
    identity: &Identity,
    etcd: Option<&Servers>,
) -> Result<Windows, DaemonError> {
    let myself = Myself { identity: identity.clone(), etcd: etcd.cloned() };
    Windows::start(plane.clone(), myself).map_err(DaemonError::Thread)
}

/// Who serves which disk, by etcd where there is one.
fn leases(etcd: Option<&Servers>, identity: &Identity) -> Result<Leases, DaemonError> {
    let keeper = etcd.map(|etcd| Keeper::start(etcd.clone(), identity)).transpose()?;
    Ok(Leases::new(identity.clone(), keeper))
}

/// Makes the state directory, and confines the daemon to it and to where datastores may be.
fn confine(
    dir: &StateDir,
    args: &ServeArgs,
    config: &Config,
    roots: &Roots,
    etcd: Option<&Servers>,
) -> Result<confinement::Confinement, DaemonError> {
    let certificates = certificates(args, config);
    // They are read once more when they are needed. Better no daemon now than one that has taken
    // its disks and ends, or that reaches none of its servers.
    if let Some(dir) = certificates {
        match args.nbd_listen.or(config.nbd_listen) {
            Some(_) => ServerCredentials::read(dir).map(drop)?,
            None => ClientCredentials::read(dir).map(drop)?,
        }
    }
    // What is made is for the daemon alone; sockets are given to others one by one.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    dir.create()?;
    let landlock = args.landlock.or(config.landlock).unwrap_or_default();
    let mut readable = etcd.map(Servers::directories).unwrap_or_default();
    readable.extend(certificates.map(Path::to_owned));
    // As above: read now, and again when it is served.
    if let Some((_, shown)) = args.api_tcp.entrance(configured(config))? {
        shown.check()?;
        readable.push(api_tcp::directory(&shown));
    }
    Ok(confinement::confine(landlock, dir, roots, &readable)?)
}

/// The directory of certificates for NBD over TLS.
fn certificates<'a>(args: &'a ServeArgs, config: &'a Config) -> Option<&'a Path> {
    args.nbd_tls.as_deref().or(config.nbd_tls.as_deref())
}

/// Where NBD is served, and for whom.
fn nbd_config(dir: &StateDir, args: &ServeArgs, config: &Config, access: Access) -> ServerConfig {
    let tcp = args.nbd_listen.or(config.nbd_listen);
    ServerConfig {
        unix: Some(dir.nbd_socket()),
        access,
        tcp,
        // Without an address they are for the servers of datastores alone.
        tls: tcp.and(certificates(args, config)).map(Path::to_owned),
        ..args.nbd.settings(config)
    }
}

/// The data path.
fn start_plane(args: &ServeArgs, config: &Config) -> Result<Arc<EnginePlane>, PlaneError> {
    let memory =
        args.guest_memory.or(config.guest_memory).map_or_else(Default::default, Into::into);
    let dir = certificates(args, config).map(Path::to_owned);
    let tls = dir.map_or_else(ClientTls::by_uri, ClientTls::new);
    Ok(Arc::new(
        EnginePlane::start(shards::engine_config(config, args.waiting), memory)?.with_tls(tls),
    ))
}

/// Says how it ended; `left` disks have requests at their storage still.
fn tell_end(left: usize) {
    if left == 0 {
        return info!("stopped");
    }
    warn!(
        disks = left,
        "stopped, with requests left at storage that does not answer: they are lost unless it \
         does, and the kernel keeps their images locked until then"
    );
}

/// Where datastores may be.
fn roots(args: &ServeArgs, config: &Config) -> Result<Roots, ControlError> {
    let [dirs, blocks] =
        [(&args.allow_dir, &config.allow_dir), (&args.allow_block, &config.allow_block)]
            .map(|(given, key)| if given.is_empty() { key } else { given });
    Roots::of(dirs, blocks)
}

/// What the control plane does, as far as arguments and configuration say.
fn options(args: &ServeArgs, config: &Config, socket_access: Access, roots: Roots) -> Options {
    let default = Options::default();
    Options {
        reservable_percent: config
            .reservable_percent
            .map_or(default.reservable_percent, |p| u32::from(p.get())),
        patience: config
            .drain_seconds
            .map_or(default.patience, |s| Duration::from_secs(u64::from(s))),
        socket_access,
        roots,
        keep_removed: args
            .keep_removed_for
            .or(config.keep_removed_for)
            .map_or(default.keep_removed, keep::KeepRemoved::duration),
    }
}

/// Who purges removed disks; and who carries advice out and empties datastores, which may wait for
/// storage, and for which nobody waits.
fn keepers(control: &Arc<Control>) -> io::Result<(Ticker, Ticker)> {
    let purger = keep::start(control.clone())?;
    let control = control.clone();
    let bell = control.bell().clone();
    let balancer =
        Ticker::start_with("headgate-balance", &bell, CARRY, move || control.carry_out())?;
    Ok((purger, balancer))
}

/// Watches shards, and the space of datastores. The threads wait for no storage.
fn watchers(control: &Arc<Control>) -> io::Result<[Ticker; 2]> {
    let (stalls, space) = (control.clone(), control.clone());
    let look = move || {
        space.watch_space();
        space.watch_devices();
        volumes::LOOK
    };
    Ok([watchdog::start(stalls)?, Ticker::start("headgate-volumes", look)?])
}

/// The threads of leases. None of them waits for another.
struct LeaseThreads {
    looks: Ticker,
    terms: Ticker,
    resume: Ticker,
}

impl LeaseThreads {
    fn start(control: &Arc<Control>) -> io::Result<LeaseThreads> {
        let [files, terms, resume] = [(); 3].map(|()| control.clone());
        let start = |name, pause, turn: Box<dyn FnMut() -> Next + Send>| {
            Ticker::start_with(name, control.bell(), pause, turn)
        };
        Ok(LeaseThreads {
            looks: start("headgate-leases", LOOK, Box::new(move || files.look_at_leases()))?,
            terms: start("headgate-terms", TERMS, Box::new(move || terms.keep_terms()))?,
            resume: start("headgate-resume", LOOK, Box::new(move || resume.tend()))?,
        })
    }
}

/// This host's identity among the hosts that share its storage. The state directory is locked.
fn identify(dir: &StateDir) -> Result<Identity, IdentityError> {
    let (identity, origin) = Identity::load(dir.root())?;
    match origin {
        Origin::Kept | Origin::New => {}
        Origin::Copied => {
            warn!("the state directory was copied: this host is another one from now on")
        }
        Origin::Damaged(aside) => {
            warn!(kept = %aside.display(), "the file with this host's identity was damaged: it is another one from now on")
        }
    }
    info!(name = %identity.name, host = %identity.host, start = identity.epoch, "this host");
    Ok(identity)
}
