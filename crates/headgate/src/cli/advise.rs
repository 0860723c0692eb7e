//! `headgate advise`: moves of disks that pay, with figures, and the reasons for the others.

use super::balance::automatic;
use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::host;
use super::output::{Align, Table, print_value};
use super::placement::source;
use crate::offline;
use clap::Args;
use headgate_api::client::Client;
use headgate_api::placement::{AdviceReport, ModelPoint, PoolAdvice};
use headgate_model::Lookback;
use headgate_placement::{DatastoreOutlook, Load, Mode, Outlook, Pool};
use headgate_units::Nanos;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments of `headgate advise`.
#[derive(Debug, Args)]
pub(super) struct Advise {
    /// Span of history to use, 1min to 30d, such as 90min, 24h or 7d
    #[arg(long, value_name = "TIME", default_value_t)]
    window: Lookback,
    /// Advise on an offline pool, without a daemon: a directory that --save wrote, or one with a
    /// pool.toml and block traces
    #[arg(long, value_name = "DIR", conflicts_with = "window")]
    from: Option<PathBuf>,
    /// Save the pool and the models behind the advice to this directory, for --from
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    save: Option<PathBuf>,
    /// Show what all hosts advise that meet in the daemon's etcd, also moves that no host can carry
    /// out by itself
    #[arg(long, conflicts_with_all = ["window", "from", "save"])]
    all: bool,
    #[command(flatten)]
    pub(super) print: Print,
}

impl Advise {
    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        if self.all {
            return host::advise(&daemon.client()?, self.print, out);
        }
        let report = match &self.from {
            Some(directory) => offline::advise(directory)?,
            None => {
                let client = daemon.client()?;
                let report: AdviceReport =
                    client.get(&format!("/v1/advice?window={}", self.window))?;
                if let Some(directory) = &self.save {
                    save(&client, directory, &report)?;
                }
                report
            }
        };
        print_value(out, self.print, &report, render)
    }
}

fn save(client: &Client, directory: &Path, report: &AdviceReport) -> Result<(), CliError> {
    let mut points: BTreeMap<String, Vec<ModelPoint>> = BTreeMap::new();
    for datastore in report.pools.iter().flat_map(|pool| &pool.pool.datastores) {
        let name = datastore.name.to_string();
        points.insert(name.clone(), client.get(&format!("/v1/datastores/{name}/points"))?);
    }
    Ok(offline::save(directory, report, &points)?)
}

/// The report as text.
fn render(report: &AdviceReport) -> String {
    let mut text = String::new();
    if report.pools.is_empty() {
        text.push_str("there is no datastore among which disks could be moved\n");
    }
    for (index, pool) in report.pools.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        render_pool(&mut text, pool, report);
    }
    if !report.reviews.is_empty() {
        text.push_str("\nmoves of the last two days\n");
        report.reviews.iter().for_each(|each| text.push_str(&format!("  {each}\n")));
    }
    if let Some(rules) = report.automatic.as_ref().filter(|rules| rules.mode != Mode::Off) {
        text.push_str(&format!("\nautomatic moves: {}\n", automatic(rules)));
    }
    for outside in &report.outside {
        text.push_str(&format!(
            "\ndatastore '{}' takes no part: {}\n",
            outside.datastore, outside.reason
        ));
    }
    text
}

fn render_pool(text: &mut String, pool: &PoolAdvice, report: &AdviceReport) {
    let advice = &pool.advice;
    let class = pool.class.as_ref().map_or_else(String::new, |class| format!("class {class}: "));
    let moves = match advice.moves.len() {
        0 => "no disk moves".to_owned(),
        1 => "1 disk moves".to_owned(),
        n => format!("{n} disks move"),
    };
    text.push_str(&format!("{class}{}; {moves}\n\n", advice.verdict));
    text.push_str(&datastores(&advice.before, &advice.after).render());
    text.push_str(&format!(
        "imbalance {} -> {}, latency {} -> {}, by {}\n",
        advice.before.imbalance,
        advice.after.imbalance,
        time(advice.before.latency),
        time(advice.after.latency),
        report.window.as_ref().map_or_else(
            || "what was recorded".into(),
            |window| format!("workloads of the last {window}")
        )
    ));
    text.push_str("\nmodels\n");
    for datastore in &pool.pool.datastores {
        let Some(known) = report.models.get(datastore.name.as_str()) else { continue };
        let model = known.text.as_deref().unwrap_or("none yet");
        let refusal = known.refusal.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        let source =
            source(known).map_or_else(String::new, |source| format!("; learnt from {source}"));
        text.push_str(&format!("  {}: {model}{source}{refusal}\n", datastore.name));
    }
    if !advice.moves.is_empty() {
        text.push_str("\nmoves\n");
        advice.moves.iter().for_each(|each| text.push_str(&format!("  {each}\n")));
    }
    if !advice.stays.is_empty() {
        text.push_str("\nstays\n");
        let loads = loads(&pool.pool);
        for staying in &advice.stays {
            let load = loads.get(staying.disk.as_str()).copied().flatten();
            let load = load.map_or_else(|| "load unknown".into(), |load| format!("load {load}"));
            text.push_str(&format!("  {} ({load}): {}\n", staying.disk, staying.why));
        }
    }
}

fn loads(pool: &Pool) -> BTreeMap<&str, Option<Load>> {
    pool.disks.iter().map(|disk| (disk.name.as_str(), disk.load(&pool.rules))).collect()
}

fn time(latency: Option<Nanos>) -> String {
    latency.map_or_else(|| "-".into(), |latency| latency.to_string())
}

fn datastores(before: &Outlook, after: &Outlook) -> Table {
    let mut table = Table::new(&[
        ("DATASTORE", Align::Left),
        ("DISKS", Align::Right),
        ("", Align::Right),
        ("LOAD", Align::Right),
        ("", Align::Right),
        ("OF MEAN", Align::Right),
        ("", Align::Right),
        ("LATENCY", Align::Right),
        ("", Align::Right),
        ("FULL", Align::Right),
        ("", Align::Right),
    ]);
    for (before, after) in before.datastores.iter().zip(&after.datastores) {
        let mut cells = vec![before.name.to_string()];
        let each: [fn(&DatastoreOutlook) -> String; 5] = [
            |outlook| outlook.disks.to_string(),
            |outlook| outlook.load.to_string(),
            |outlook| outlook.relative.to_string(),
            |outlook| time(outlook.latency),
            |outlook| outlook.full.to_string(),
        ];
        for show in each {
            let (was, will) = (show(before), show(after));
            let change = if was == will { String::new() } else { format!("-> {will}") };
            cells.extend([was, change]);
        }
        table.row(cells);
    }
    table
}
