use super::load::{load, variant};
use crate::cli::common::Print;
use crate::cli::error::CliError;
use crate::cli::output::{Align, Table, json};
use clap::Args;
use headgate_model::LimitMode;
use headgate_qos::Policy;
use headgate_report::{Breaks, breaks};
use headgate_sim::{Allocation, Clamp, Variant, explain};
use headgate_units::{Iops, Shares};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

/// Arguments of `sim explain`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Explain {
    /// Scenario whose datastores, disks and initial policies to use
    #[arg(required_unless_present = "disk", conflicts_with = "disk")]
    scenario: Option<PathBuf>,
    /// Variant of the scenario [default: its first]
    #[arg(long, requires = "scenario")]
    variant: Option<String>,
    /// Disk with its policy; may be given more than once
    #[arg(long, value_name = "NAME[:shares=N,reservation=IOPS,limit=IOPS,limit-mode=soft]")]
    disk: Vec<DiskPolicy>,
    /// Capacities in normalised IOs per second, separated by commas
    #[arg(long, value_name = "IOPS,...", required = true, value_delimiter = ',')]
    capacity: Vec<Iops>,
    #[command(flatten)]
    pub(super) print: Print,
}

/// `NAME:shares=N,reservation=IOPS,limit=IOPS,limit-mode=MODE`.
#[derive(Clone, Debug, PartialEq)]
struct DiskPolicy {
    name: String,
    policy: Policy,
}

impl FromStr for DiskPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<DiskPolicy, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        if name.is_empty() {
            return Err(format!("'{text}' has no name before the colon"));
        }
        let (mut shares, mut reservation, mut limit, mut mode) = (None, None, None, None);
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("'{part}' is not KEY=VALUE"))?;
            let twice = || format!("{key} is given twice");
            let rate = || value.parse::<Iops>().map_err(|e| e.to_string());
            let before = match key {
                "shares" => {
                    shares.replace(value.parse::<Shares>().map_err(|e| e.to_string())?).map(drop)
                }
                "reservation" => reservation.replace(rate()?).map(drop),
                "limit" => limit.replace(rate()?).map(drop),
                "limit-mode" => mode.replace(limit_mode(value)?).map(drop),
                _ => {
                    return Err(format!(
                        "'{key}' is not known, expected shares, reservation, limit or limit-mode"
                    ));
                }
            };
            if before.is_some() {
                return Err(twice());
            }
        }
        let policy = Policy::shared(shares.unwrap_or_default())
            .with_limit(limit)
            .and_then(|policy| policy.with_reservation(reservation))
            .map_err(|e| e.to_string())?
            .with_limit_mode(mode.unwrap_or_default());
        Ok(DiskPolicy { name: name.to_owned(), policy })
    }
}

fn limit_mode(word: &str) -> Result<headgate_qos::LimitMode, String> {
    match word {
        "strict" => Ok(headgate_qos::LimitMode::Strict),
        "soft" => Ok(headgate_qos::LimitMode::Soft),
        _ => Err(format!("'{word}' is no limit mode, expected strict or soft")),
    }
}

/// Disks that share storage.
#[derive(Serialize)]
struct Explained {
    /// The datastore; none for disks given on the command line.
    datastore: Option<String>,
    capacities: Vec<Iops>,
    disks: Vec<ExplainedDisk>,
}

#[derive(Serialize)]
struct ExplainedDisk {
    name: String,
    shares: Shares,
    reservation: Option<Iops>,
    limit: Option<Iops>,
    limit_mode: LimitMode,
    /// One for each capacity.
    allocations: Vec<Allocation>,
    #[serde(flatten)]
    breaks: Breaks,
}

impl Explain {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), CliError> {
        let groups = match &self.scenario {
            None => vec![(None, self.disk)],
            Some(file) => {
                let scenario = load(file)?;
                let chosen = match (&self.variant, scenario.variants.first()) {
                    (Some(name), _) => variant(&scenario, name)?,
                    (None, Some(first)) => first,
                    (None, None) => {
                        return Err(CliError::Usage("the scenario has no variants".into()));
                    }
                };
                datastores(chosen)
            }
        };
        let all: Vec<Explained> = groups
            .into_iter()
            .map(|(datastore, disks)| explained(datastore, disks, &self.capacity))
            .collect();
        if self.print.json {
            return Ok(json(out, &all)?);
        }
        for (index, one) in all.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            out.write_all(text(one).as_bytes())?;
        }
        Ok(())
    }
}

/// The disks of each datastore that has any.
fn datastores(variant: &Variant) -> Vec<(Option<String>, Vec<DiskPolicy>)> {
    let stores = variant.setup.datastores.iter().enumerate();
    let disks_of = |index: usize| {
        let disks =
            variant.setup.vms.iter().flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
        let mine = disks.filter(|(_, disk)| disk.datastore == index);
        mine.map(|(vm, disk)| {
            let name = if vm.disks.len() == 1 {
                vm.name.clone()
            } else {
                format!("{}/{}", vm.name, disk.name)
            };
            DiskPolicy { name, policy: disk.policy }
        })
        .collect::<Vec<_>>()
    };
    stores
        .map(|(index, store)| (Some(store.name.clone()), disks_of(index)))
        .filter(|(_, disks)| !disks.is_empty())
        .collect()
}

fn explained(datastore: Option<String>, disks: Vec<DiskPolicy>, capacities: &[Iops]) -> Explained {
    let policies: Vec<Policy> = disks.iter().map(|disk| disk.policy).collect();
    let rows = explain(&policies, capacities);
    let disks = disks
        .into_iter()
        .zip(breaks(&policies))
        .enumerate()
        .map(|(index, (DiskPolicy { name, policy }, breaks))| ExplainedDisk {
            name,
            shares: policy.shares(),
            reservation: policy.reservation(),
            limit: policy.limit(),
            limit_mode: headgate_model::Policy::from(policy).limit_mode,
            allocations: rows.iter().filter_map(|row| row.get(index).copied()).collect(),
            breaks,
        })
        .collect();
    Explained { datastore, capacities: capacities.to_vec(), disks }
}

/// Without a fraction where there is none.
fn rate(iops: f64) -> String {
    let text = format!("{iops:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

fn text(one: &Explained) -> String {
    let mut text =
        one.datastore.as_ref().map_or_else(String::new, |name| format!("datastore {name}\n"));
    let titles: Vec<String> =
        one.capacities.iter().map(|capacity| format!("OF {capacity}")).collect();
    let mut columns = vec![
        ("DISK", Align::Left),
        ("SHARES", Align::Right),
        ("RESERVATION", Align::Right),
        ("LIMIT", Align::Right),
    ];
    columns.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    let or_dash = |iops: Option<Iops>| iops.map_or_else(|| "-".into(), |iops| iops.to_string());
    let mut marks: Vec<Clamp> = Vec::new();
    for disk in &one.disks {
        let mut cells = vec![
            disk.name.clone(),
            disk.shares.to_string(),
            or_dash(disk.reservation),
            match (disk.limit, disk.limit_mode) {
                (Some(limit), LimitMode::Soft) => format!("{limit} soft"),
                (limit, _) => or_dash(limit),
            },
        ];
        for Allocation { iops, clamp, .. } in &disk.allocations {
            marks.push(*clamp);
            cells.push(format!("{} {}", rate(*iops), mark(*clamp)));
        }
        table.row(cells);
    }
    text.push_str(&table.render());
    for (clamp, meaning) in [
        (Clamp::Reservation, "held up by its reservation"),
        (Clamp::Limit, "held down by its limit"),
        (
            Clamp::Shortage,
            "less than its reservation: reservations exceed the capacity, which is divided in proportion to them",
        ),
        (
            Clamp::Starved,
            "nothing is left: reservations take it all, and the scheduler lets 1 IO in 100 pass all the same",
        ),
    ] {
        if marks.contains(&clamp) {
            text.push_str(&format!("{} {meaning}\n", mark(clamp)));
        }
    }
    for disk in &one.disks {
        let below = disk
            .breaks
            .reservation_below
            .map(|at| format!("its reservation holds it up below {}", rate(at)));
        let beside = match disk.limit_mode {
            LimitMode::Strict => "",
            LimitMode::Soft => ", as long as others take the rest",
        };
        let from = disk
            .breaks
            .limit_from
            .map(|at| format!("its limit holds it down from {} on{beside}", rate(at)));
        let said: Vec<String> = [below, from].into_iter().flatten().collect();
        if !said.is_empty() {
            text.push_str(&format!("{}: {}\n", disk.name, said.join(", ")));
        }
    }
    text
}

fn mark(clamp: Clamp) -> char {
    match clamp {
        Clamp::Reservation => 'R',
        Clamp::Limit => 'L',
        Clamp::Share => ' ',
        Clamp::Shortage => '!',
        Clamp::Starved => '0',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_mistakes_named() {
        let read: DiskPolicy = "RD:reservation=250,shares=100".parse().unwrap();
        assert_eq!(
            (read.policy.reservation().map(Iops::get), read.policy.shares().get()),
            (Some(250), 100)
        );
        assert_eq!("x".parse::<DiskPolicy>().unwrap().policy, Policy::default());
        let soft: DiskPolicy = "x:limit=9,limit-mode=soft".parse().unwrap();
        assert_eq!(soft.policy.limit_mode(), headgate_qos::LimitMode::Soft);
        for (text, said) in [
            (":shares=1", "has no name"),
            ("x:shares", "is not KEY=VALUE"),
            ("x:weight=1", "'weight' is not known, expected shares"),
            ("x:limit=1,limit=2", "limit is given twice"),
            ("x:limit=1,limit-mode=hard", "'hard' is no limit mode, expected strict or soft"),
            ("x:limit=0", "'0' is not a rate"),
            ("x:limit=1,reservation=2", "above the limit"),
        ] {
            assert!(text.parse::<DiskPolicy>().unwrap_err().contains(said), "{text}");
        }
    }
}
