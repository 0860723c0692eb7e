use super::flash;
use super::history;
use super::model_plot;
use super::output::{Align, Table, description, json, or_dash, warnings};
use super::picture::Picture;
use super::placement::{self, DatastoreArgs};
use super::sim::write_file;
use super::values::{self, OrNone};
use super::window::{self, WindowArgs};
use super::{CliError, Place, Print};
use crate::api::calibration::{Calibration, CalibrationCreate, CalibrationState};
use crate::api::client::Client;
use crate::api::history::DatastoreHour;
use crate::api::placement::ModelPoint;
use crate::api::types::{
    self, BackendSpec, CapacityView, Changed, DatastoreCreate, DatastorePatch, ServiceState,
};
use crate::catalog::{CapacitySource, Confidence, Scheduler};
use crate::name::Name;
use crate::samples::Window;
use crate::serve::signals::Signals;
use clap::{Args, Subcommand};
use headgate_qos::CostModel;
use headgate_units::{Iops, Nanos};
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a calibration is looked at.
const WATCH: Duration = Duration::from_millis(200);

/// Commands on datastores.
#[derive(Debug, Subcommand)]
pub(super) enum Datastore {
    /// Add a datastore
    #[command(
        after_help = "Examples:\n  headgate datastore add fast --dir /mnt/nvme/headgate --capacity 80000\n  \
        headgate datastore add array --emulated rate=1600,latency=5ms\n  \
        headgate datastore add flash --emulated ssd=2G,isolation=dynamic,aged=yes --scheduler fifo\n  \
        headgate datastore add lun --block /dev/sdb --queue-depth 64\n  \
        headgate datastore add far --nbd nbd://10.0.0.7 --capacity 5000"
    )]
    Add(Box<Add>),
    /// List datastores
    List {
        #[command(flatten)]
        print: Print,
    },
    /// Show a datastore, and what is known of its speed
    #[command(after_help = "Example:\n  headgate datastore show array --history 7d")]
    Show {
        /// The datastore
        name: Name,
        /// Draw the intervals that its model is learnt from, and the model: a .svg or .png
        #[arg(long, value_name = "FILE", value_parser = Picture::parse)]
        plot: Option<Picture>,
        /// What it did, by the hour, so far back: a time of 1 min to 30 d, such as 24h or 7d [default when given without a time: 24h]
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "24h")]
        history: Option<Window>,
        #[command(flatten)]
        print: Print,
    },
    /// Change a datastore
    #[command(after_help = "Example:\n  headgate datastore set fast --capacity 60000 --queue-depth 256")]
    Set {
        /// The datastore
        name: Name,
        /// What can be reserved on it, in worst-case random IOPS; 'none' makes it unknown
        #[arg(long, value_name = "IOPS")]
        capacity: Option<OrNone<Iops>>,
        /// Most requests outstanding at the device, 1 to 4096
        #[arg(long, value_name = "N")]
        queue_depth: Option<u32>,
        /// How long a request may wait for one of a better priority, up to 1ms; 0us: never
        #[arg(long, value_name = "TIME")]
        plug: Option<Nanos>,
        #[command(flatten)]
        window: Box<WindowArgs>,
        #[command(flatten)]
        placement: Box<DatastoreArgs>,
        #[command(flatten)]
        print: Print,
    },
    /// Measure what a datastore can promise, and remember it
    ///
    /// Worst-case IO: random requests of 4 KiB, half of them writes, at the datastore's queue depth, on a scratch disk of
    /// up to 1 GiB; on a block device reads only. Ends when the rate has settled, Ctrl-C stops it.
    Calibrate {
        /// The datastore
        name: Name,
        /// Even while its disks are in use
        #[arg(long)]
        force: bool,
        /// For how long to measure at most, in seconds, 6 to 3600
        #[arg(long, value_name = "S", default_value_t = 30)]
        seconds: u16,
        #[command(flatten)]
        print: Print,
    },
    /// Forget a datastore that has no disks; its directory, device or server is left as it is
    Remove {
        /// The datastore
        name: Name,
    },
}

/// Arguments of `datastore add`.
#[derive(Debug, Args)]
pub(super) struct Add {
    /// The datastore: 1 to 64 letters, digits, '.', '_', '-'
    name: Name,
    #[command(flatten)]
    backend: Backend,
    /// Who goes next when several disks wait. sfq keeps shares only, fifo nothing: to compare
    #[arg(long, value_enum, default_value_t)]
    scheduler: Scheduler,
    /// Most requests outstanding at the device, 1 to 4096 [default: 128, emulated: 32]
    #[arg(long, value_name = "N")]
    queue_depth: Option<u32>,
    /// What can be reserved on it, in worst-case random IOPS ('headgate datastore calibrate' measures it)
    #[arg(long, value_name = "IOPS")]
    capacity: Option<Iops>,
    /// What a request is charged against reservation, limit and shares: affine=SIZE (1 + size/SIZE IOs, a disk's seek and
    /// transfer), chunks=SIZE (size/SIZE, one at least) or unit (one) [default: affine=300K, emulated rate= and null: unit]
    #[arg(long, value_name = "COST")]
    cost_model: Option<CostModel>,
    /// How long a request may wait for one of a better priority, up to 1ms, where that is found to pay: for applications with
    /// few requests at a time on fast storage [default: 0us, never]
    #[arg(long, value_name = "TIME")]
    plug: Option<Nanos>,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    placement: DatastoreArgs,
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
    /// A device model over sparse files: rate=IOPS[,latency=TIME][,depth=N][,stragglers=N:TIME], array=SPINDLES[,...],
    /// ssd=SIZE[,op=PERCENT][,isolation=none|static|dynamic][,aged=yes|full][,...] or null
    #[arg(long, value_name = "MODEL")]
    emulated: Option<String>,
    /// An NBD server, of which each disk is an export: nbd+unix:///?socket=/PATH or nbd://HOST[:PORT]
    #[arg(long, value_name = "URI")]
    nbd: Option<String>,
}

/// A datastore as `show --json` prints it.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    datastore: &'a types::Datastore,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<DatastoreHour>>,
}

/// The daemon has another working directory.
fn absolute(path: &Path) -> Result<String, CliError> {
    let absolute =
        std::path::absolute(path).map_err(|e| CliError::Usage(format!("{}: {e}", path.display())))?;
    absolute
        .to_str()
        .map(str::to_owned)
        .ok_or_else(|| CliError::Usage(format!("{} is not valid UTF-8", path.display())))
}

impl Datastore {
    pub(super) fn print(&self) -> Option<Print> {
        match self {
            Datastore::List { print }
            | Datastore::Show { print, .. }
            | Datastore::Set { print, .. }
            | Datastore::Calibrate { print, .. } => Some(*print),
            Datastore::Add(add) => Some(add.print),
            Datastore::Remove { .. } => None,
        }
    }

    pub(super) fn run(self, place: &Place, out: &mut dyn Write) -> Result<(), CliError> {
        let client = place.client()?;
        match self {
            Datastore::Add(add) => {
                let request = DatastoreCreate {
                    name: add.name,
                    backend: BackendSpec {
                        dir: add.backend.dir.as_deref().map(absolute).transpose()?,
                        block: add.backend.block.as_deref().map(absolute).transpose()?,
                        emulated: add.backend.emulated,
                        nbd: add.backend.nbd,
                    },
                    scheduler: add.scheduler,
                    queue_depth: add.queue_depth,
                    capacity: add.capacity,
                    cost_model: add.cost_model.map(|model| model.to_string()),
                    plug_ns: add.plug.map(|plug| plug.0),
                    window: add.window.patch(),
                    placement: add.placement.patch(),
                };
                let added: Changed<types::Datastore> =
                    client.send(Method::POST, "/v1/datastores", &request)?;
                print_changed(out, &added, add.print)
            }
            Datastore::Set { name, capacity, queue_depth, plug, window, placement, print } => {
                let patch = DatastorePatch {
                    queue_depth,
                    capacity: OrNone::change(capacity),
                    plug_ns: plug.map(|plug| plug.0),
                    window: window.patch(),
                    placement: placement.patch(),
                };
                if patch == DatastorePatch::default() {
                    return Err(CliError::Usage(
                        "nothing to change: give --capacity, --queue-depth, --plug, --latency-threshold, --window-min, --window-max, \
                         --window-period, --board, --class, --spindles or --placement"
                            .into(),
                    ));
                }
                let path = format!("/v1/datastores/{name}");
                let changed: Changed<types::Datastore> = client.send(Method::PATCH, &path, &patch)?;
                print_changed(out, &changed, print)
            }
            Datastore::List { print } => {
                let datastores: Vec<types::Datastore> = client.get("/v1/datastores")?;
                if print.json {
                    return Ok(json(out, &datastores)?);
                }
                Ok(out.write_all(table(&datastores).render().as_bytes())?)
            }
            Datastore::Show { name, plot, history, print } => {
                let datastore: types::Datastore = client.get(&format!("/v1/datastores/{name}"))?;
                if let Some(picture) = plot {
                    let points: Vec<ModelPoint> = client.get(&format!("/v1/datastores/{name}/points"))?;
                    let model = datastore.model.as_ref().and_then(|known| known.model.as_ref());
                    let drawn = picture.draw(&[model_plot::figure(&name, model, &points)])?;
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
                    Some(hours) if hours.is_empty() => {
                        writeln!(out, "\nnothing was seen of it in this time")?
                    }
                    Some(hours) => write!(out, "\n{}", history::table(&hours).render())?,
                    None => {}
                }
                Ok(())
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
            Datastore::Remove { name } => Ok(client.delete(&format!("/v1/datastores/{name}"))?),
        }
    }
}

/// Starts a calibration and watches it to its end, with a progress bar where somebody sees it.
fn calibrate(client: &Client, name: &Name, request: CalibrationCreate) -> Result<Calibration, CliError> {
    let path = format!("/v1/datastores/{name}/calibration");
    let signals = Signals::catch().map_err(CliError::Print)?;
    let mut state: Calibration = client.send(Method::POST, &path, &request)?;
    let bar = ProgressBar::new(1_000);
    // The template is a constant, and its mistakes would show in every run.
    if let Ok(style) = ProgressStyle::with_template("{msg:>24} {wide_bar} {percent:>3} % {elapsed}") {
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

fn print_changed(
    out: &mut dyn Write,
    changed: &Changed<types::Datastore>,
    print: Print,
) -> Result<(), CliError> {
    if print.json {
        return Ok(json(out, changed)?);
    }
    out.write_all(describe(&changed.now).as_bytes())?;
    warnings(&changed.warnings);
    Ok(())
}

fn storage(backend: &BackendSpec) -> String {
    let BackendSpec { dir, block, emulated, nbd } = backend;
    let kinds = [("dir", dir), ("block", block), ("emulated", emulated), ("nbd", nbd)];
    let given = kinds.iter().find_map(|(kind, value)| Some(format!("{kind} {}", value.as_ref()?)));
    given.unwrap_or_else(|| "-".into())
}

fn state(datastore: &types::Datastore) -> String {
    match datastore.state {
        ServiceState::Failed => "failed".into(),
        ServiceState::Serving if datastore.overbooked_iops > 0 => "overbooked".into(),
        ServiceState::Serving => "serving".into(),
    }
}

fn table(datastores: &[types::Datastore]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("SCHEDULER", Align::Left),
        ("DEPTH", Align::Right),
        ("CAPACITY", Align::Right),
        ("RESERVED", Align::Right),
        ("DISKS", Align::Right),
        ("STORAGE", Align::Left),
    ]);
    for datastore in datastores {
        table.row(vec![
            datastore.name.to_string(),
            state(datastore),
            datastore.scheduler.as_str().into(),
            datastore.queue_depth.to_string(),
            or_dash(datastore.capacity.as_ref().map(|c| c.iops)),
            datastore.reserved_iops.to_string(),
            datastore.disks.to_string(),
            storage(&datastore.backend),
        ]);
    }
    table
}

fn capacity(capacity: &CapacityView) -> String {
    let from = match &capacity.source {
        CapacitySource::Set => "set by the operator".into(),
        CapacitySource::Model => "known from the model".into(),
        CapacitySource::Measured { at, spread_percent, confidence } => {
            let confidence = match confidence {
                Confidence::High => "high",
                Confidence::Medium => "medium",
                Confidence::Low => "low",
            };
            format!(
                "measured {}, spread {spread_percent} %, confidence {confidence}",
                super::output::date(*at)
            )
        }
    };
    format!("{} IOPS, {from}", capacity.iops)
}

fn describe(datastore: &types::Datastore) -> String {
    let reserved = match datastore.reservable_iops {
        Some(reservable) => format!("{} of {reservable} IOPS", datastore.reserved_iops),
        None => format!("{} IOPS, not checked: the capacity is unknown", datastore.reserved_iops),
    };
    let overbooked =
        (datastore.overbooked_iops > 0).then(|| format!("by {} IOPS", datastore.overbooked_iops));
    let mut lines = vec![
        ("name", Some(datastore.name.to_string())),
        ("state", Some(state(datastore))),
        ("reason", datastore.reason.clone()),
        ("storage", Some(storage(&datastore.backend))),
        ("scheduler", Some(datastore.scheduler.as_str().into())),
        ("queue depth", Some(datastore.queue_depth.to_string())),
        ("cost model", Some(datastore.cost_model.clone())),
        ("plug", (datastore.plug_ns > 0).then(|| Nanos(datastore.plug_ns).to_string())),
    ];
    lines.extend(window::lines(&datastore.window));
    lines.extend([
        ("capacity", Some(datastore.capacity.as_ref().map_or_else(|| "unknown".into(), capacity))),
        ("reserved", Some(reserved)),
        ("overbooked", overbooked),
        ("disks", Some(datastore.disks.to_string())),
    ]);
    lines.extend(flash::lines(datastore.room, datastore.flash.as_ref()));
    lines.extend(placement::datastore(&datastore.placement, datastore.model.as_ref()));
    let disks = datastore.flash.as_ref().map(flash::disks).unwrap_or_default();
    description(&lines) + &disks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datastore() -> types::Datastore {
        serde_json::from_str(
            r#"{"name": "array", "state": "serving", "reason": null, "backend": {"emulated": "rate=1600"},
                "scheduler": "mclock", "queue_depth": 32, "cost_model": "unit", "plug_ns": 0, "window": {"latency_threshold": "none", "found": null, "min": 4,
                "max": 32, "period_ns": null, "board": "auto", "now": null}, "capacity": {"iops": 1600, "source": "measured",
                "at": 1790000000, "spread_percent": 3, "confidence": "high"}, "reservable_iops": 1600,
                "reserved_iops": 1900, "overbooked_iops": 300, "disks": 2}"#,
        )
        .unwrap()
    }

    #[test]
    fn overbooking_is_shown_in_the_list_and_in_the_description() {
        assert_eq!(
            table(&[datastore()]).render(),
            "NAME   STATE       SCHEDULER  DEPTH  CAPACITY  RESERVED  DISKS  STORAGE\n\
             array  overbooked  mclock        32      1600      1900      2  emulated rate=1600\n"
        );
        let text = describe(&datastore());
        assert!(text.contains("overbooked:   by 300 IOPS\n"), "{text}");
        assert!(
            text.contains("1600 IOPS, measured 2026-09-21 14:13 UTC, spread 3 %, confidence high\n"),
            "{text}"
        );
    }
}
