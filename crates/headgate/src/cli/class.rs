//! Commands on classes: policies with names, which many disks have.

use super::common::{DaemonArgs, Print};
use super::dry_run::DryRunArg;
use super::error::CliError;
use super::output::{Align, Table, description, or_dash, print_changed, print_value};
use super::policy::{PolicyArgs, part};
use super::values::{OrNone, force, options};
use clap::{Args, Subcommand};
use headgate_api::classes::{Class, ClassPut};
use headgate_api::client::ClientError;
use headgate_api::types::Changed;
use headgate_model::{Change, Name, PolicyPart};
use headgate_units::Iops;
use hyper::{Method, StatusCode};
use std::io::Write;

/// Commands on classes.
#[derive(Debug, Subcommand)]
pub(super) enum ClassCommand {
    /// List classes
    List {
        #[command(flatten)]
        print: Print,
    },
    /// Show a class
    Show {
        /// Name of the class
        name: Name,
        #[command(flatten)]
        print: Print,
    },
    /// Change a class, or make a new one; in force at all its disks when the command returns
    ///
    /// All disks of the class change, or none: where the reservations do not fit together, or one
    /// disk's own settings contradict the class, nothing is changed.
    #[command(
        after_help = "Examples:\n  headgate class set gold --reservation 500 --limit 3000 --shares 4000\n  \
        headgate class set silver --reservation-per-gb 3 --limit-per-gb 10 --datastore-class ssd\n  \
        headgate disk set db0 --class gold"
    )]
    Set(Box<Set>),
    /// Remove a class that no disk has
    Remove {
        /// Name of the class
        name: Name,
        /// Remove it although disks have it: they keep what they have as their own
        #[arg(long)]
        force: bool,
    },
}

/// Arguments of `class set`.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// Name of the class: 1 to 64 letters, digits, '.', '_', '-'
    name: Name,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Guaranteed minimum in IOs per second for each GiB of a disk, or 'none'; not beside
    /// --reservation
    #[arg(long, value_name = "IOPS")]
    reservation_per_gb: Option<OrNone<Iops>>,
    /// Maximum in IOs per second for each GiB of a disk, or 'none'; not beside --limit
    #[arg(long, value_name = "IOPS")]
    limit_per_gb: Option<OrNone<Iops>>,
    /// Class of datastores that its disks must be on, as of 'headgate datastore set --class', or
    /// 'none'
    #[arg(long, value_name = "CLASS")]
    datastore_class: Option<OrNone<Name>>,
    /// Change it even if the reservations of its disks overbook datastores
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    dry_run: DryRunArg,
    #[command(flatten)]
    print: Print,
}

impl Set {
    fn says_nothing(&self) -> bool {
        let Set { policy, reservation_per_gb, limit_per_gb, datastore_class, .. } = self;
        let per_gb = reservation_per_gb.is_none() && limit_per_gb.is_none();
        per_gb && datastore_class.is_none() && policy.clone().part().is_empty()
    }

    /// The class with these changes.
    fn over(self, before: ClassPut) -> ClassPut {
        let per_gb = |given, before| OrNone::change(given).apply(before);
        ClassPut {
            policy: self.policy.part().over(&before.policy).with_values_only(),
            reservation_per_gb: per_gb(self.reservation_per_gb, before.reservation_per_gb),
            limit_per_gb: per_gb(self.limit_per_gb, before.limit_per_gb),
            datastore_class: OrNone::change(self.datastore_class).apply(before.datastore_class),
            force: force(self.force),
        }
    }
}

impl ClassCommand {
    pub(super) fn print(&self) -> Option<Print> {
        match self {
            ClassCommand::List { print } | ClassCommand::Show { print, .. } => Some(*print),
            ClassCommand::Set(set) => Some(set.print),
            ClassCommand::Remove { .. } => None,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        match self {
            ClassCommand::List { print } => {
                let classes: Vec<Class> = client.get("/v1/classes")?;
                print_value(out, print, &classes, |classes| table(classes).render())
            }
            ClassCommand::Show { name, print } => {
                let class: Class = client.get(&format!("/v1/classes/{name}"))?;
                print_value(out, print, &class, describe)
            }
            ClassCommand::Set(set) => {
                let (print, dry_run) = (set.print, set.dry_run);
                let path = format!("/v1/classes/{}", set.name);
                if set.says_nothing() {
                    let policy = options::<PolicyArgs>();
                    return Err(CliError::Usage(format!(
                        "nothing to change: give one of {policy}, --reservation-per-gb, \
                         --limit-per-gb, --datastore-class"
                    )));
                }
                // Whoever changes it between the two is not overwritten.
                let (client, before) = match client.get_tagged::<Class>(&path) {
                    Ok(class) => (client.of(class.tag), class.value.settings()),
                    Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => {
                        (client.of_nothing(), ClassPut::default())
                    }
                    Err(e) => return Err(e.into()),
                };
                let (to, put) = ((Method::PUT, path.as_str()), set.over(before));
                let changed: Option<Changed<Class>> =
                    dry_run.send(&client, to, &put, print, out)?;
                changed.map_or(Ok(()), |changed| print_changed(out, print, &changed, describe))
            }
            ClassCommand::Remove { name, force } => {
                let force = if force { "yes" } else { "no" };
                Ok(client.delete(&format!("/v1/classes/{name}?force={force}"))?)
            }
        }
    }
}

/// What a class says of the rate: fixed, or for each GiB.
fn rate(fixed: Change<Iops>, per_gb: Option<Iops>) -> String {
    match (fixed, per_gb) {
        (Change::Set(rate), _) => rate.to_string(),
        (_, Some(rate)) => format!("{rate}/GiB"),
        _ => "-".into(),
    }
}

fn table(classes: &[Class]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("RESERVATION", Align::Right),
        ("LIMIT", Align::Right),
        ("SHARES", Align::Right),
        ("DATASTORES", Align::Left),
        ("DISKS", Align::Right),
        ("RESERVED", Align::Right),
    ]);
    for class in classes {
        let PolicyPart { reservation, limit, shares, .. } = class.policy;
        table.row(vec![
            class.name.to_string(),
            rate(reservation, class.reservation_per_gb),
            rate(limit, class.limit_per_gb),
            or_dash(shares),
            or_dash(class.datastore_class.as_ref()),
            class.disks.to_string(),
            class.reserved_iops.to_string(),
        ]);
    }
    table
}

fn describe(class: &Class) -> String {
    let per_gb = |rate: Option<Iops>| rate.map(|rate| format!("{rate} IOPS for each GiB"));
    description(&[
        ("name", Some(class.name.to_string())),
        ("policy", Some(part(&class.policy))),
        ("reservation", per_gb(class.reservation_per_gb)),
        ("limit", per_gb(class.limit_per_gb)),
        ("datastore class", class.datastore_class.as_ref().map(Name::to_string)),
        ("disks", Some(class.disks.to_string())),
        ("reserved", Some(format!("{} IOPS", class.reserved_iops))),
        ("applied by", class.applied_by.as_ref().map(|set| format!("documents '{set}'"))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class() -> Class {
        serde_json::from_str(
            r#"{"name": "gold", "policy": {"limit": 3000, "shares": 4000}, "reservation_per_gb": 3,
                "datastore_class": "ssd", "disks": 12, "reserved_iops": 360}"#,
        )
        .unwrap()
    }

    #[test]
    fn the_list_shows_rates_that_are_fixed_and_those_for_each_gib() {
        assert_eq!(
            table(&[class()]).render(),
            "NAME  RESERVATION  LIMIT  SHARES  DATASTORES  DISKS  RESERVED\n\
             gold        3/GiB   3000    4000  ssd            12       360\n"
        );
    }

    #[test]
    fn the_description_says_what_the_class_says_and_nothing_else() {
        let text = describe(&class());
        assert!(text.contains("policy:           limit 3000 IOPS, shares 4000\n"), "{text}");
        assert!(text.contains("reservation:      3 IOPS for each GiB\n"), "{text}");
        assert!(!text.contains("applied by"), "{text}");
    }
}
