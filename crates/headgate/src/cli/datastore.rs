use super::common::{DaemonArgs, Print};
use super::datastore_text::{capacity, describe, table};
use super::datastore_trace;
use super::dry_run::DryRunArg;
use super::error::CliError;
use super::history;
use super::host;
use super::maintenance::MaintenanceArgs;
use super::model_plot;
use super::output::{json, print_changed, print_value};
use super::persistent;
use super::picture::Picture;
use super::placement::DatastoreArgs;
use super::values::{self, OrNone, Word};
use super::window::{self, WindowArgs};
use super::write_file::write_file;
use clap::{Args, Subcommand};
use headgate_api::calibration::{Calibration, CalibrationCreate, CalibrationState};
use headgate_api::change::Change;
use headgate_api::client::Client;
use headgate_api::history::DatastoreHour;
use headgate_api::placement::ModelPoint;
use headgate_api::types::{self, BackendSpec, Changed, DatastoreCreate, DatastorePatch};
use headgate_daemon::serve::signals::Signals;
use headgate_devices::LayerSpec;
use headgate_model::Lookback;
use headgate_model::Name;
use headgate_model::{PersistentReservations, Scheduler};
use headgate_qos::{Batch, CostModel};
use headgate_units::{Bytes, Iops, Nanos};
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Period of the checks of a running calibration.
const WATCH: Duration = Duration::from_millis(200);

/// Commands on datastores.
#[derive(Debug, Subcommand)]
pub(super) enum Datastore {
    /// Add a datastore
    #[command(
        after_help = "Examples:\n  headgate datastore add fast --dir /mnt/nvme/headgate --capacity 80000\n  \
        headgate datastore add array --emulated rate=1600,latency=5ms\n  \
        headgate datastore add flash --emulated ssd=2G,isolation=dynamic,aged=yes --scheduler fifo\n  \
        headgate datastore add lun --block /dev/disk/by-id/wwn-0x5000c500a1b2c3d4 --queue-depth 64\n  \
        headgate datastore add far --nbd nbd://10.0.0.7 --capacity 5000\n  \
        headgate datastore add wide --stripe nbds://n1,nbds://n2,nbds://n3 --capacity 15000\n  \
        headgate datastore add scratch --memory 2G\n  \
        headgate datastore add slow --dir /mnt/hdd/headgate --layer trace=10000 --layer delay=5ms,on=write"
    )]
    Add(Box<Add>),
    /// List datastores
    List {
        /// List the datastores of all hosts that meet in the daemon's etcd; one that several of
        /// them have is one
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        print: Print,
    },
    /// Show a datastore, its capacity and its model
    #[command(after_help = "Example:\n  headgate datastore show array --history 7d")]
    Show {
        /// Name of the datastore
        name: Name,
        /// Draw the intervals behind its model, and the model, as .svg or .png
        #[arg(long, value_name = "FILE", value_parser = Picture::parse)]
        plot: Option<Picture>,
        /// Print its history by the hour for a span of 1min to 30d, such as 24h or 7d [default
        /// without a value: 24h]
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "24h")]
        history: Option<Lookback>,
        #[command(flatten)]
        print: Print,
    },
    /// Change a datastore's settings
    #[command(
        after_help = "Example:\n  headgate datastore set fast --capacity 60000 --queue-depth 256"
    )]
    Set(Box<Set>),
    /// Write the requests that its trace layer has kept, as a CSV that 'headgate trace stat' reads
    ///
    /// The layer keeps the last N requests of 'trace=N'; how many it has dropped is said.
    #[command(after_help = "Example:\n  headgate datastore set fast --layer trace=65536\n  \
                            headgate datastore trace fast fast.csv\n  headgate trace stat fast.csv")]
    Trace {
        /// The datastore
        name: Name,
        /// The file; '-' is standard output
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Measure a datastore's capacity and latency threshold, and store them
    ///
    /// Measures worst-case IO: random requests of 4 KiB, half of them writes, at the datastore's
    /// queue depth, on a scratch disk of up to 1 GiB; on a block device reads only. Ends when the
    /// rate has settled; Ctrl-C stops it.
    Calibrate {
        /// Name of the datastore
        name: Name,
        /// Measure even while its disks are in use
        #[arg(long)]
        force: bool,
        /// Longest time to measure, in seconds, 6 to 3600
        #[arg(long, value_name = "S", default_value_t = 30)]
        seconds: u16,
        #[command(flatten)]
        print: Print,
    },
    /// Have a datastore emptied: it takes no disks, and those on it are moved away, one after the
    /// other, to where placement would put them
    #[command(
        after_help = "Example:\n  headgate datastore maintenance old on --wait && headgate datastore remove old"
    )]
    Maintenance(MaintenanceArgs),
    /// Remove a datastore without disks; its directory, device or server is not touched
    Remove {
        /// Name of the datastore
        name: Name,
    },
}

const SCHEDULERS: &[Word<Scheduler>] = &[
    Word("mclock", Scheduler::Mclock, "Reservations, limits and shares"),
    Word(
        "sfq",
        Scheduler::Sfq,
        "Shares only (start-time fair queueing); reservations and limits are not enforced",
    ),
    Word("fifo", Scheduler::Fifo, "Order of arrival; nothing is enforced"),
];

/// Arguments of `datastore add`.
#[derive(Debug, Args)]
pub(super) struct Add {
    /// Name of the datastore: 1 to 64 letters, digits, '.', '_', '-'
    name: Name,
    #[command(flatten)]
    backend: Backend,
    /// With --stripe: of new disks, how many bytes lie on one server before the next one has its
    /// turn; a power of two from 4K to 64M [default: 256K]
    #[arg(long, value_name = "SIZE", requires = "stripe")]
    stripe_unit: Option<Bytes>,
    /// With --nbd or --stripe: connections of a disk to each server, 1 to 16, where the server can
    /// have several [default: 1]
    #[arg(long, value_name = "N")]
    connections: Option<u8>,
    /// Scheduler that orders the requests of its disks; sfq and fifo exist for comparison
    #[arg(long, default_value = "mclock", value_parser = values::one_of(SCHEDULERS))]
    scheduler: Scheduler,
    /// Most requests outstanding at the device, 1 to 4096 [default: 128, for
    /// each server of --stripe; emulated: 32]
    #[arg(long, value_name = "N")]
    queue_depth: Option<u32>,
    /// Rate that can be reserved on it, in worst-case random IOPS; 'headgate datastore calibrate'
    /// measures it [default: the rate of an emulated rate=, otherwise unknown]
    #[arg(long, value_name = "IOPS")]
    capacity: Option<Iops>,
    /// Cost of a request in IOs, for reservations, limits and shares: affine=SIZE (1 + size/SIZE,
    /// like a seek and a transfer), chunks=SIZE (size/SIZE, at least 1), unit (1), or learned or
    /// learned=SIZE (what the device does by reads and writes, random or sequential, and size,
    /// beginning with affine=SIZE) [default: affine=300K, emulated rate= and null: unit]
    #[arg(long, value_name = "COST")]
    cost_model: Option<CostModel>,
    /// Longest time to hold a request back for one of a better priority, 0us (never) to 1ms, while
    /// that pays: for applications with few outstanding requests on fast storage [default: 0us]
    #[arg(long, value_name = "TIME")]
    plug: Option<Nanos>,
    /// Near requests of one disk to send back to back, on storage that seeks:
    /// REQUESTS[,span=SIZE], 2 to 8 of them that start within so much of the first. Delays others,
    /// reservations too, by so many requests for each disk [default: none, span: 4M]
    #[arg(long, value_name = "BATCH")]
    batch: Option<Batch>,
    /// What stands between the scheduler and the storage; may be given several times, outermost
    /// first: delay=TIME[,on=KIND], rate=IOPS[,on=KIND],
    /// error=PERCENT[,on=KIND][,errno=EIO|ENOSPC][,after=N][,count=N][,seed=N],
    /// stragglers=N:TIME, stall=TIME/PERIOD or trace=N, where KIND is read, write, flush, discard
    /// or all
    #[arg(long = "layer", value_name = "LAYER")]
    layers: Vec<LayerSpec>,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    placement: DatastoreArgs,
    /// Of a block device: whether it is reserved for the host that serves its disk, so that the
    /// device itself refuses the writes of others (persistent reservations of SCSI and NVMe)
    /// [default: auto]
    #[arg(long, value_name = "WHEN", value_parser = values::one_of(persistent::MODES))]
    persistent_reservations: Option<PersistentReservations>,
    /// Add a block device although it holds something, such as the file system of a guest that it
    /// was the disk of. One that is in use on this host is refused all the same
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    print: Print,
}

/// Arguments of `datastore set`.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// Name of the datastore
    name: Name,
    /// Rate that can be reserved on it, in worst-case random IOPS, or 'none' for unknown
    #[arg(long, value_name = "IOPS")]
    capacity: Option<OrNone<Iops>>,
    /// Most requests outstanding at the device, 1 to 4096
    #[arg(long, value_name = "N")]
    queue_depth: Option<u32>,
    /// Longest time to hold a request back for one of a better priority, 0us (never) to 1ms
    #[arg(long, value_name = "TIME")]
    plug: Option<Nanos>,
    /// Near requests of one disk to send back to back, such as 8,span=4M, or 'none'
    #[arg(long, value_name = "BATCH")]
    batch: Option<OrNone<Batch>>,
    /// Layers in the place of those that it has, outermost first; 'none' removes them. Requests
    /// that the old ones hold go on at once
    #[arg(long = "layer", value_name = "LAYER")]
    layers: Vec<OrNone<LayerSpec>>,
    /// Of a block device: whether it is reserved for the host that serves its disk, from when the
    /// disk is opened next
    #[arg(long, value_name = "WHEN", value_parser = values::one_of(persistent::MODES))]
    persistent_reservations: Option<PersistentReservations>,
    /// Of a datastore of striped disks: an NBD server behind those that it has, for new disks
    #[arg(long = "add-server", value_name = "URI")]
    add_servers: Vec<String>,
    /// Of a datastore of NBD servers: connections of a disk to each server, 1 to 16, where the
    /// server can have several, from when the disk is opened next
    #[arg(long, value_name = "N")]
    connections: Option<u8>,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    placement: DatastoreArgs,
    #[command(flatten)]
    dry_run: DryRunArg,
    #[command(flatten)]
    print: Print,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Backend {
    /// Raw sparse files in this directory
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// A block device, which becomes one disk
    #[arg(long, value_name = "DEV")]
    block: Option<PathBuf>,
    /// A device model over sparse files: rate=IOPS[,latency=TIME][,depth=N]
    /// [,service=constant|exponential|pareto][,seed=N][,stragglers=N:TIME][,stall=TIME/PERIOD],
    /// array=SPINDLES[,...],
    /// ssd=SIZE[,op=PERCENT][,isolation=none|static|dynamic][,aged=yes|full][,...] or null
    #[arg(long, value_name = "MODEL")]
    emulated: Option<String>,
    /// An NBD server, of which each disk is an export: nbd+unix:///?socket=/PATH,
    /// nbd://HOST[:PORT], or nbds://HOST[:PORT][?tls-hostname=NAME] over TLS, with the certificates
    /// of 'serve --nbd-tls'
    #[arg(long, value_name = "URI")]
    nbd: Option<String>,
    /// NBD servers over which each disk is striped: URIs as of --nbd, with commas between them.
    /// Each has an export of the disk
    #[arg(long, value_name = "URI,URI,...", value_delimiter = ',')]
    stripe: Option<Vec<String>>,
    /// RAM disks of so much together. Nothing on them survives the daemon
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
}

/// A datastore as `show --json` prints it.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    datastore: &'a types::Datastore,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<DatastoreHour>>,
}

impl Add {
    fn request(self) -> Result<DatastoreCreate, CliError> {
        Ok(DatastoreCreate {
            name: self.name,
            backend: BackendSpec {
                dir: self.backend.dir.as_deref().map(absolute).transpose()?,
                block: self.backend.block.as_deref().map(absolute).transpose()?,
                emulated: self.backend.emulated,
                nbd: self.backend.nbd,
                stripe: self.backend.stripe,
                stripe_unit: self.stripe_unit,
                connections: self.connections,
                memory: self.backend.memory,
            },
            scheduler: self.scheduler,
            queue_depth: self.queue_depth,
            capacity: self.capacity,
            cost_model: self.cost_model.map(|model| model.to_string()),
            plug_ns: self.plug.map(|plug| plug.0),
            batch: self.batch.map(|batch| batch.to_string()),
            window: self.window.patch(),
            placement: self.placement.patch(),
            layers: self.layers.iter().map(LayerSpec::to_string).collect(),
            persistent_reservations: self.persistent_reservations,
            force: values::force(self.force),
        })
    }
}

impl Set {
    fn patch(self) -> Result<DatastorePatch, CliError> {
        let patch = DatastorePatch {
            queue_depth: self.queue_depth,
            capacity: OrNone::change(self.capacity),
            plug_ns: self.plug.map(|plug| plug.0),
            batch: match self.batch {
                None => Change::Keep,
                Some(OrNone::None) => Change::Remove,
                Some(OrNone::Value(batch)) => Change::Set(batch.to_string()),
            },
            window: self.window.patch(),
            placement: self.placement.patch(),
            layers: changed_layers(self.layers)?,
            persistent_reservations: self.persistent_reservations,
            add_servers: self.add_servers,
            connections: self.connections,
        };
        if patch == DatastorePatch::default() {
            return Err(CliError::Usage(
                "nothing to change: give --capacity, --queue-depth, --plug, --batch, --layer, \
                 --latency-threshold, --window-min, --window-max, --window-period, --board, \
                 --narrow-window, --persistent-reservations, --add-server, \
                 --class, --spindles, --placement or --overcommit"
                    .into(),
            ));
        }
        Ok(patch)
    }
}

/// What `--layer` changes: `None` where it was not given.
fn changed_layers(given: Vec<OrNone<LayerSpec>>) -> Result<Option<Vec<String>>, CliError> {
    match given[..] {
        [] => return Ok(None),
        [OrNone::None] => return Ok(Some(Vec::new())),
        _ => {}
    }
    let text = |layer| match layer {
        OrNone::Value(layer) => Ok(LayerSpec::to_string(&layer)),
        OrNone::None => {
            Err(CliError::Usage("--layer none removes all layers: give it alone".into()))
        }
    };
    given.into_iter().map(text).collect::<Result<_, _>>().map(Some)
}

/// The daemon has another working directory.
fn absolute(path: &Path) -> Result<String, CliError> {
    let absolute = std::path::absolute(path)
        .map_err(|e| CliError::Usage(format!("{}: {e}", path.display())))?;
    absolute
        .to_str()
        .map(str::to_owned)
        .ok_or_else(|| CliError::Usage(format!("{} is not valid UTF-8", path.display())))
}

impl Datastore {
    pub(super) fn print(&self) -> Option<Print> {
        match self {
            Datastore::List { print, .. }
            | Datastore::Show { print, .. }
            | Datastore::Calibrate { print, .. } => Some(*print),
            Datastore::Set(set) => Some(set.print),
            Datastore::Maintenance(maintenance) => Some(maintenance.print),
            Datastore::Add(add) => Some(add.print),
            Datastore::Remove { .. } | Datastore::Trace { .. } => None,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        match self {
            Datastore::Add(add) => {
                let print = add.print;
                let added: Changed<types::Datastore> =
                    client.send(Method::POST, "/v1/datastores", &add.request()?)?;
                print_changed(out, print, &added, describe)
            }
            Datastore::Set(set) => {
                let (print, dry_run) = (set.print, set.dry_run);
                let path = format!("/v1/datastores/{}", set.name);
                let (to, patch) = ((Method::PATCH, path.as_str()), set.patch()?);
                let changed: Option<Changed<types::Datastore>> =
                    dry_run.send(&client, to, &patch, print, out)?;
                changed.map_or(Ok(()), |changed| print_changed(out, print, &changed, describe))
            }
            Datastore::List { all: true, print } => host::list_datastores(&client, print, out),
            Datastore::List { all: false, print } => {
                let datastores: Vec<types::Datastore> = client.get("/v1/datastores")?;
                print_value(out, print, &datastores, |datastores| table(datastores).render())
            }
            Datastore::Show { name, plot, history, print } => {
                show(&client, &name, plot, history, print, out)
            }
            Datastore::Calibrate { name, force, seconds, print } => {
                let request = CalibrationCreate { force: values::force(force), seconds };
                let done = calibrate(&client, &name, request)?;
                if print.json {
                    return Ok(json(out, &done)?);
                }
                let found = done.capacity.as_ref().map_or_else(|| "unknown".into(), capacity);
                writeln!(out, "capacity of '{name}': {found}")?;
                if let Some(found) = done.threshold {
                    writeln!(out, "latency threshold of '{name}': {}", window::found(&found))?;
                }
                Ok(())
            }
            Datastore::Maintenance(maintenance) => maintenance.run(&client, out),
            Datastore::Trace { name, file } => datastore_trace::write(&client, &name, &file, out),
            Datastore::Remove { name } => Ok(client.delete(&format!("/v1/datastores/{name}"))?),
        }
    }
}

fn show(
    client: &Client,
    name: &Name,
    plot: Option<Picture>,
    history: Option<Lookback>,
    print: Print,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let datastore: types::Datastore = client.get(&format!("/v1/datastores/{name}"))?;
    if let Some(picture) = plot {
        let points: Vec<ModelPoint> = client.get(&format!("/v1/datastores/{name}/points"))?;
        let model = datastore.model.as_ref().and_then(|known| known.model.as_ref());
        let drawn = picture.draw(&[model_plot::figure(name, model, &points)])?;
        write_file(&picture.file, &drawn)?;
    }
    let history: Option<Vec<DatastoreHour>> = match history {
        Some(window) => {
            Some(client.get(&format!("/v1/datastores/{name}/history?window={window}"))?)
        }
        None => None,
    };
    if print.json {
        return Ok(json(out, &Shown { datastore: &datastore, history })?);
    }
    out.write_all(describe(&datastore).as_bytes())?;
    match history {
        Some(hours) if hours.is_empty() => writeln!(out, "\nnothing was seen of it in this time")?,
        Some(hours) => write!(out, "\n{}", history::table(&hours).render())?,
        None => {}
    }
    Ok(())
}

/// Starts a calibration and watches it to its end, with a progress bar where somebody sees it.
fn calibrate(
    client: &Client,
    name: &Name,
    request: CalibrationCreate,
) -> Result<Calibration, CliError> {
    let path = format!("/v1/datastores/{name}/calibration");
    let signals = Signals::catch().map_err(CliError::Print)?;
    let mut state: Calibration = client.send(Method::POST, &path, &request)?;
    let bar = ProgressBar::new(1_000);
    // The template is a constant, and its mistakes would show in every run.
    if let Ok(style) = ProgressStyle::with_template("{msg:>24} {wide_bar} {percent:>3} % {elapsed}")
    {
        bar.set_style(style);
    }
    while state.state == CalibrationState::Running {
        let rate = state.iops.map_or_else(String::new, |iops| format!(" {iops} IOPS"));
        bar.set_message(format!("{}{rate}", state.phase));
        bar.set_position(state.permille);
        if signals.wait_for(WATCH).is_some() {
            client.delete(&path)?;
        }
        state = client.get(&path)?;
    }
    bar.finish_and_clear();
    match state.state {
        CalibrationState::Done | CalibrationState::Running => Ok(state),
        CalibrationState::Cancelled => Err(CliError::Stopped(format!(
            "the calibration of '{name}' was stopped: its capacity is as it was"
        ))),
        CalibrationState::Failed => Err(CliError::Stopped(format!(
            "the calibration of '{name}' failed: {}",
            state.error.unwrap_or_default()
        ))),
    }
}
