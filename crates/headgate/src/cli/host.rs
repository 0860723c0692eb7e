//! `headgate host`, and what other commands show of all hosts.

use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::output::{Align, Table, date, description, json, or_dash, print_value};
use clap::Subcommand;
use headgate_api::client::Client;
use headgate_api::fleet::{
    CarriedOut, FleetAdvices, FleetDatastores, FleetDisk, FleetDisks, FleetView, FleetWaits, Host,
    HostState, Hosts, Told, ViewSource,
};
use headgate_units::{Bytes, Nanos};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// `headgate host`
#[derive(Debug, Subcommand)]
pub(super) enum HostCommand {
    /// List the hosts that meet in the daemon's etcd, also those that are down
    #[command(after_help = "Example:\n  headgate host list")]
    List {
        #[command(flatten)]
        print: Print,
    },
    /// Show a host with its disks
    #[command(after_help = "Example:\n  headgate host show web~3fa9")]
    Show {
        /// The host: what 'host list' calls it, or the beginning of its identity
        #[arg(value_name = "HOST")]
        host: String,
        #[command(flatten)]
        print: Print,
    },
}

impl HostCommand {
    pub(super) fn print(&self) -> Print {
        match self {
            HostCommand::List { print } | HostCommand::Show { print, .. } => *print,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        let hosts: Hosts = client.get("/v1/hosts")?;
        match self {
            HostCommand::List { print } => print_value(out, print, &hosts, hosts_text),
            HostCommand::Show { host, print } => {
                let host = find(&hosts.hosts, &host)?;
                if print.json {
                    return print_value(out, print, host, |_| String::new());
                }
                let disks: FleetDisks = client.get(&format!("/v1/fleet/disks?host={}", host.id))?;
                print_value(out, print, host, |host| describe(host, &disks.disks))
            }
        }
    }
}

/// A host by its label, its name or the beginning of its identity.
fn find<'a>(hosts: &'a [Host], text: &str) -> Result<&'a Host, CliError> {
    let exactly = hosts.iter().find(|host| host.label == text || host.id == text);
    let known: Vec<&str> = hosts.iter().map(|host| host.label.as_str()).collect();
    if let Some(host) = exactly {
        return Ok(host);
    }
    let fits = |host: &&Host| host.name == text || text.len() >= 4 && host.id.starts_with(text);
    let mut all = hosts.iter().filter(fits);
    match (all.next(), all.next()) {
        (Some(host), None) => Ok(host),
        (Some(_), Some(_)) => Err(CliError::Usage(format!(
            "more than one host is called '{text}': one of {} was expected",
            known.join(", ")
        ))),
        (None, _) => Err(CliError::Usage(format!(
            "no host is called '{text}': one of {} was expected",
            known.join(", ")
        ))),
    }
}

/// An age, roughly.
pub(super) fn ago(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

/// What is known of a host's daemon, and since when it was not heard.
fn state(host: &Host) -> String {
    match host.state {
        HostState::Running => "running".into(),
        state => format!("{}, last seen {}", state.as_str(), date(host.last_seen)),
    }
}

/// What is wrong with the view, a line each.
pub(super) fn remarks(view: &FleetView) -> String {
    let mut text = String::new();
    let mut say = |line: String| text.push_str(&format!("{line}\n"));
    if view.source == ViewSource::Alone {
        say("this host alone: other hosts are shown where 'serve --etcd' says where they meet"
            .into());
    }
    if let Some(error) = &view.error {
        let age =
            view.age_seconds.map_or_else(|| "never".into(), |age| format!("{} ago", ago(age)));
        say(format!("the view is old, other hosts were last heard: {age}; {error}"));
    }
    for one in &view.unreadable_keys {
        say(format!("no summary of a host: {}: {}", one.key, one.why));
    }
    let named = view.unreadable_keys.len() as u64;
    if view.unreadable > named {
        say(format!("and {} keys more that hold none", view.unreadable - named));
    }
    if view.left_out > 0 {
        say(format!("there was no room for {} parts of what hosts said", view.left_out));
    }
    text
}

fn hosts_text(hosts: &Hosts) -> String {
    let mut table = Table::new(&[
        ("HOST", Align::Left),
        ("STATE", Align::Left),
        ("AGE", Align::Right),
        ("DATASTORES", Align::Right),
        ("DISKS", Align::Right),
        ("FAILED", Align::Right),
        ("MISSED", Align::Right),
        ("IOPS", Align::Right),
        ("BYTES/S", Align::Right),
        ("WAITING", Align::Right),
        ("API", Align::Left),
    ]);
    for host in &hosts.hosts {
        table.row(vec![
            host.label.clone(),
            state(host),
            ago(host.age_seconds),
            host.datastores.to_string(),
            host.disks.to_string(),
            host.failed.to_string(),
            host.missed.to_string(),
            host.iops.to_string(),
            Bytes(host.bytes_per_sec).to_string(),
            host.queued.to_string(),
            or_dash(host.api.clone()),
        ]);
    }
    table.render() + &remarks(&hosts.view)
}

fn describe(host: &Host, disks: &[FleetDisk]) -> String {
    let mut text = description(&[
        ("host", Some(host.label.clone())),
        ("name", Some(host.name.clone())),
        ("identity", Some(host.id.clone())),
        ("state", Some(state(host))),
        ("said", Some(format!("{} ago", ago(host.age_seconds)))),
        ("version", Some(host.version.clone())),
        ("API", host.api.clone()),
        ("starts", Some(host.starts.to_string())),
        ("datastores", Some(host.datastores.to_string())),
        ("disks", Some(host.disks.to_string())),
        ("not told of", (host.disks_untold > 0).then(|| format!("{} disks", host.disks_untold))),
        ("duplicate", host.duplicate.as_ref().map(|other| format!("daemon {other}, too"))),
    ]);
    if !disks.is_empty() {
        text.push('\n');
        text.push_str(&disks_table(disks).render());
    }
    text
}

/// Whether what is said of something is said by a host that is there.
fn host_of(told: &Told) -> String {
    match told.host_state {
        HostState::Running => told.host.clone(),
        state => format!("{} ({})", told.host, state.as_str()),
    }
}

fn disks_table(disks: &[FleetDisk]) -> Table {
    let mut table = Table::new(&[
        ("HOST", Align::Left),
        ("DISK", Align::Left),
        ("VM", Align::Left),
        ("DATASTORE", Align::Left),
        ("STATE", Align::Left),
        ("SIZE", Align::Right),
        ("RESERVED", Align::Right),
        ("LIMIT", Align::Right),
        ("IOPS", Align::Right),
        ("WAITING", Align::Right),
        ("P99", Align::Right),
        ("WAITS FOR", Align::Left),
        ("AGE", Align::Right),
    ]);
    for disk in disks {
        let missed = if disk.reservation_missed { "!" } else { "" };
        let waits = disk.waits.as_ref().map(FleetWaits::words);
        table.row(vec![
            host_of(&disk.told),
            disk.name.to_string(),
            or_dash(disk.vm.as_ref()),
            disk.datastore.to_string(),
            disk.state.as_str().into(),
            disk.size.to_string(),
            or_dash(disk.reservation.map(|rate| format!("{rate}{missed}"))),
            or_dash(disk.limit),
            disk.iops.to_string(),
            disk.queued.to_string(),
            or_dash(disk.latency_micros.map(Nanos::from_micros)),
            or_dash(waits),
            ago(disk.told.age_seconds),
        ]);
    }
    table
}

/// `headgate disk list --all`
pub(super) fn list_disks(
    client: &Client,
    print: Print,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let disks: FleetDisks = client.get("/v1/fleet/disks")?;
    print_value(out, print, &disks, |disks| {
        disks_table(&disks.disks).render() + &remarks(&disks.view)
    })
}

/// `headgate datastore list --all`
pub(super) fn list_datastores(
    client: &Client,
    print: Print,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let stores: FleetDatastores = client.get("/v1/fleet/datastores")?;
    print_value(out, print, &stores, datastores_text)
}

fn datastores_text(stores: &FleetDatastores) -> String {
    let mut table = Table::new(&[
        ("DATASTORE", Align::Left),
        ("HOST", Align::Left),
        ("STATE", Align::Left),
        ("DISKS", Align::Right),
        ("RESERVED", Align::Right),
        ("CAPACITY", Align::Right),
        ("IOPS", Align::Right),
        ("BYTES/S", Align::Right),
        ("P99", Align::Right),
        ("FREE", Align::Right),
        ("AGE", Align::Right),
    ]);
    for store in &stores.datastores {
        if store.hosts.len() > 1 {
            // What all of them do there together.
            table.row(vec![
                store.storage.clone().unwrap_or_default(),
                format!("{} hosts", store.hosts.len()),
                String::new(),
                store.disks.to_string(),
                store.reserved_iops.to_string(),
                or_dash(store.capacity_iops),
                store.iops.to_string(),
                Bytes(store.bytes_per_sec).to_string(),
            ]);
        }
        let indent = if store.hosts.len() > 1 { "  " } else { "" };
        for one in &store.hosts {
            table.row(vec![
                format!("{indent}{}", one.name),
                host_of(&one.told),
                one.state.as_str().into(),
                one.disks.to_string(),
                one.reserved_iops.to_string(),
                or_dash(one.capacity_iops),
                one.iops.to_string(),
                Bytes(one.bytes_per_sec).to_string(),
                or_dash(one.latency_micros.map(Nanos::from_micros)),
                or_dash(one.free.map(Bytes)),
                ago(one.told.age_seconds),
            ]);
        }
    }
    table.render() + &remarks(&stores.view)
}

/// `headgate advise --all`
pub(super) fn advise(client: &Client, print: Print, out: &mut dyn Write) -> Result<(), CliError> {
    let advice: FleetAdvices = client.get("/v1/fleet/advice")?;
    print_value(out, print, &advice, advice_text)
}

fn advice_text(advice: &FleetAdvices) -> String {
    if advice.moves.is_empty() {
        return format!("no host advises a move\n{}", remarks(&advice.view));
    }
    let mut text = String::new();
    for one in &advice.moves {
        let (host, age) = (host_of(&one.told), ago(one.told.age_seconds));
        text.push_str(&format!(
            "{host}: {}: {} -> {}: {} (said {age} ago)\n",
            one.disk, one.from, one.to, one.why
        ));
        if one.carried_out == CarriedOut::Nobody {
            let obstacle = one.obstacle.as_deref().unwrap_or("its host does not have that storage");
            text.push_str(&format!("  not carried out by itself: {obstacle}\n"));
        }
    }
    text + &remarks(&advice.view)
}

/// How many disks `top --all` shows.
const TOP_DISKS: usize = 40;

/// How often it is shown anew.
const TOP_PERIOD: Duration = Duration::from_secs(2);

/// `headgate top --all`: hosts, and the disks that matter most; again and again on a terminal.
pub(super) fn top(
    client: &Client,
    once: bool,
    print: Print,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    if print.json {
        let hosts: Hosts = client.get("/v1/hosts")?;
        let FleetDisks { disks, .. } = client.get("/v1/fleet/disks")?;
        let Hosts { view, hosts } = hosts;
        let all = serde_json::json!({"view": view, "hosts": hosts, "disks": disks});
        return Ok(json(out, &all)?);
    }
    if once || !io::stdout().is_terminal() {
        return Ok(out.write_all(top_text(client)?.as_bytes())?);
    }
    loop {
        // From the first line on, and nothing of before behind it.
        let text = top_text(client)?;
        out.write_all(format!("\x1b[H\x1b[J{text}").as_bytes())?;
        out.flush()?;
        std::thread::sleep(TOP_PERIOD);
    }
}

fn top_text(client: &Client) -> Result<String, CliError> {
    let hosts: Hosts = client.get("/v1/hosts")?;
    let disks: FleetDisks = client.get(&format!("/v1/fleet/disks?limit={TOP_DISKS}"))?;
    let more = match disks.total.saturating_sub(disks.disks.len()) {
        0 => String::new(),
        more => format!("and {more} disks more: 'headgate disk list --all'\n"),
    };
    Ok(format!("{}\n{}{more}", hosts_text(&hosts), disks_table(&disks.disks).render()))
}
