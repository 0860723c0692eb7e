use super::common::{DaemonArgs, Print};
use super::dry_run::DryRunArg;
use super::error::CliError;
use super::output::{Align, Table, description, print_changed, print_value};
use super::tenant::{GroupArgs, promised};
use super::values::{OrNone, Word, force, one_of};
use clap::{Args, Subcommand};
use headgate_api::priorities::{Nice, VmPatch};
use headgate_api::types::{self, Changed, Force};
use headgate_model::Name;
use headgate_model::PriorityScope;
use headgate_units::Priority;
use hyper::Method;
use std::io::Write;

/// Commands on virtual machines.
#[derive(Debug, Subcommand)]
pub(super) enum Vm {
    /// List virtual machines: those that disks name ('headgate disk set DISK --vm VM') and those
    /// with settings
    List {
        #[command(flatten)]
        print: Print,
    },
    /// Show a virtual machine's disks, priority settings and sockets
    Show {
        /// Name of the virtual machine
        name: Name,
        #[command(flatten)]
        print: Print,
    },
    /// Change whose a virtual machine is, what its disks are promised together, its priority
    /// settings, and who may connect to its disks; in force when the command returns
    #[command(after_help = "Examples:\n  headgate vm set web --max-priority 120\n  \
        headgate vm set db --priority-scope across --max-priority 254 --default-priority 100\n  \
        headgate vm set lab --nice ignore --ioprio-map be7=20,idle=1\n  \
        headgate vm set web --socket-user libvirt-qemu\n  \
        headgate vm set web --tenant red --reservation 500 --shares 2000")]
    Set(Set),
    /// Reset a virtual machine's settings to the defaults; its disks are kept
    Reset {
        /// Name of the virtual machine
        name: Name,
    },
}

const SCOPES: &[Word<PriorityScope>] = &[
    Word(
        "within",
        PriorityScope::Within,
        "Requests of one disk compete with each other; the disk's share of the datastore does not change",
    ),
    Word(
        "across",
        PriorityScope::Across,
        "Requests of all disks of the datastore whose virtual machines have this scope compete",
    ),
];

const NICE: &[Word<Nice>] = &[
    Word("honour", Nice::Honour, "They count, as in Linux itself"),
    Word(
        "ignore",
        Nice::Ignore,
        "They do not count, and neither does any level of the best-effort class",
    ),
];

/// Arguments of `vm set`.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// Name of the virtual machine; it need not have disks yet
    name: Name,
    /// Highest priority that a request can have, 1 to 254; higher ones are lowered to it [default:
    /// 254]
    #[arg(long, value_name = "P")]
    max_priority: Option<Priority>,
    /// Priority of requests without one, 1 to 254 [default: 100]
    #[arg(long, value_name = "P")]
    default_priority: Option<Priority>,
    /// Which requests compete by priority [default: within]
    #[arg(long, value_name = "SCOPE", value_parser = one_of(SCOPES))]
    priority_scope: Option<PriorityScope>,
    /// Whether priorities count that the guest's kernel derives from nice and the CPU scheduler.
    /// The kernel encodes them like levels of ionice -c2, so both count or neither does [default:
    /// honour]
    #[arg(long, value_name = "WHETHER", value_parser = one_of(NICE))]
    nice: Option<Nice>,
    /// Priorities of ioprio classes and levels that differ from the defaults, such as
    /// be7=20,idle=1: rt0 to rt7, be0 to be7 (except be4) and idle; or 'default' for all defaults
    #[arg(long, value_name = "MAP")]
    ioprio_map: Option<String>,
    /// User that the machine runs as, by name or number, who may connect to the sockets of its
    /// disks; or 'none'. Who is connected stays [default: none]
    #[arg(long, value_name = "USER")]
    socket_user: Option<OrNone<String>>,
    /// Group whose members may connect to the sockets of its disks; or 'none' [default: when there
    /// is no user either, that of 'serve --socket-group']
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<OrNone<String>>,
    /// Tenant that the machine belongs to, or 'none'
    #[arg(long, value_name = "TENANT")]
    tenant: Option<OrNone<Name>>,
    #[command(flatten)]
    group: GroupArgs,
    /// Change it even if that overbooks datastores
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    dry_run: DryRunArg,
    #[command(flatten)]
    print: Print,
}

impl Set {
    fn patch(self) -> VmPatch {
        VmPatch {
            socket_user: OrNone::change(self.socket_user),
            socket_group: OrNone::change(self.socket_group),
            max_priority: self.max_priority,
            default_priority: self.default_priority,
            priority_scope: self.priority_scope,
            nice: self.nice,
            ioprio_map: self.ioprio_map,
            tenant: OrNone::change(self.tenant),
            reservation: OrNone::change(self.group.reservation),
            limit: OrNone::change(self.group.limit),
            shares: OrNone::change(self.group.shares),
            force: force(self.force),
        }
    }
}

impl Vm {
    pub(super) fn print(&self) -> Option<Print> {
        match self {
            Vm::List { print } | Vm::Show { print, .. } => Some(*print),
            Vm::Set(set) => Some(set.print),
            Vm::Reset { .. } => None,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        match self {
            Vm::List { print } => {
                let vms: Vec<types::Vm> = client.get("/v1/vms")?;
                print_value(out, print, &vms, |vms| table(vms).render())
            }
            Vm::Show { name, print } => {
                let vm: types::Vm = client.get(&format!("/v1/vms/{name}"))?;
                print_value(out, print, &vm, describe)
            }
            Vm::Set(set) => {
                let (path, print) = (format!("/v1/vms/{}", set.name), set.print);
                let dry_run = set.dry_run;
                let patch = set.patch();
                if (VmPatch { force: Force::No, ..patch.clone() }) == VmPatch::default() {
                    let what = "--max-priority, --default-priority, --priority-scope, --nice, --ioprio-map, \
                                --socket-user, --socket-group, --tenant, --reservation, --limit or --shares";
                    return Err(CliError::Usage(format!("nothing to change: give {what}")));
                }
                let to = (Method::PATCH, path.as_str());
                let changed: Option<Changed<types::Vm>> =
                    dry_run.send(&client, to, &patch, print, out)?;
                changed.map_or(Ok(()), |changed| print_changed(out, print, &changed, describe))
            }
            Vm::Reset { name } => Ok(client.delete(&format!("/v1/vms/{name}"))?),
        }
    }
}

fn table(vms: &[types::Vm]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("DISKS", Align::Right),
        ("SIZE", Align::Right),
        ("RESERVED", Align::Right),
        ("PRIORITY", Align::Right),
        ("HIGHEST", Align::Right),
        ("SCOPE", Align::Left),
        ("CLIENTS", Align::Right),
    ]);
    for vm in vms {
        table.row(vec![
            vm.name.to_string(),
            vm.disks.len().to_string(),
            vm.size.to_string(),
            vm.reserved_iops.to_string(),
            vm.priorities.default_priority.min(vm.priorities.max_priority).to_string(),
            vm.priorities.max_priority.to_string(),
            vm.priorities.priority_scope.as_str().to_owned(),
            vm.clients.to_string(),
        ]);
    }
    table
}

fn describe(vm: &types::Vm) -> String {
    let disks: Vec<&str> = vm.disks.iter().map(Name::as_str).collect();
    let set = &vm.priorities;
    let scope = match set.priority_scope {
        PriorityScope::Within => "within each disk",
        PriorityScope::Across => "across virtual machines",
    };
    let nice = match set.nice {
        Nice::Honour => "honoured",
        Nice::Ignore => "ignored, and with it ionice -c2",
    };
    description(&[
        ("name", Some(vm.name.to_string())),
        ("disks", Some(disks.join(", "))),
        ("size", Some(vm.size.to_string())),
        ("reserved", Some(format!("{} IOPS", vm.reserved_iops))),
        ("tenant", vm.tenant.as_ref().map(Name::to_string)),
        ("together", promised(&vm.policy)),
        ("clients", Some(vm.clients.to_string())),
        ("highest priority", Some(set.max_priority.to_string())),
        ("default priority", Some(set.default_priority.to_string())),
        ("priorities divide", Some(scope.to_owned())),
        ("nice", Some(nice.to_owned())),
        ("ioprio map", Some(set.ioprio_map.clone())),
        ("socket user", vm.sockets.socket_user.clone()),
        ("socket group", vm.sockets.socket_group.clone()),
        ("sockets", Some(vm.sockets.socket_directory.clone())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm() -> types::Vm {
        serde_json::from_str(
            r#"{"name": "web", "disks": ["a", "b"], "size": 2097152, "reserved_iops": 250, "clients": 1,
                "max_priority": 50, "default_priority": 100, "priority_scope": "across", "nice": "honour",
                "ioprio_map": "idle=1"}"#,
        )
        .unwrap()
    }

    #[test]
    fn the_list_shows_what_requests_count() {
        assert_eq!(
            table(&[vm()]).render(),
            "NAME  DISKS   SIZE  RESERVED  PRIORITY  HIGHEST  SCOPE   CLIENTS\n\
             web       2  2 MiB       250        50       50  across        1\n"
        );
    }

    #[test]
    fn the_description_says_what_is_set() {
        let text = describe(&vm());
        for line in [
            "highest priority:   50\n",
            "default priority:   100\n",
            "priorities divide:  across virtual machines\n",
            "nice:               honoured\n",
            "ioprio map:         idle=1\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
