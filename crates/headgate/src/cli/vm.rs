use super::output::{Align, Table, description, json, warnings};
use super::{CliError, Place, Print};
use crate::api::priorities::{Nice, VmPatch};
use crate::api::types::{self, Changed};
use crate::catalog::PriorityScope;
use crate::name::Name;
use clap::{Args, Subcommand};
use headgate_units::Priority;
use hyper::Method;
use std::io::Write;

/// Commands on virtual machines.
#[derive(Debug, Subcommand)]
pub(super) enum Vm {
    /// List the virtual machines that disks name ('headgate disk set DISK --vm VM') or that something was set for
    List {
        #[command(flatten)]
        print: Print,
    },
    /// Show a virtual machine's disks and what its applications may ask for
    Show {
        /// The virtual machine
        name: Name,
        #[command(flatten)]
        print: Print,
    },
    /// Change what a virtual machine's applications may ask for; in force when the command returns
    #[command(after_help = "Examples:\n  headgate vm set web --max-priority 120\n  \
        headgate vm set db --priority-scope across --max-priority 254 --default-priority 100\n  \
        headgate vm set lab --nice ignore --ioprio-map be7=20,idle=1")]
    Set(Set),
    /// Forget what was set for a virtual machine; its disks stay
    Reset {
        /// The virtual machine
        name: Name,
    },
}

/// Arguments of `vm set`.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// The virtual machine; it need not have disks yet
    name: Name,
    /// No request counts as more, 1 to 254 [default: 254]
    #[arg(long, value_name = "P")]
    max_priority: Option<Priority>,
    /// What a request counts that was given no priority, 1 to 254 [default: 100]
    #[arg(long, value_name = "P")]
    default_priority: Option<Priority>,
    /// Among whom priorities divide: the requests of each disk, or those of all disks of the datastore whose virtual
    /// machines say across [default: within]
    #[arg(long, value_name = "SCOPE")]
    priority_scope: Option<PriorityScope>,
    /// Whether what the guest's kernel derives from nice and the CPU scheduler counts. Where it does not, neither do levels of
    /// ionice -c2: the kernel writes both as the same number [default: honour]
    #[arg(long, value_name = "WHETHER")]
    nice: Option<Nice>,
    /// The priorities of ioprio classes and levels, as far as they differ from the default: rt0 to rt7, be0 to be7 (without
    /// be4) and idle, such as be7=20,idle=1; or 'default'
    #[arg(long, value_name = "MAP")]
    ioprio_map: Option<String>,
    #[command(flatten)]
    print: Print,
}

impl Set {
    fn patch(self) -> VmPatch {
        VmPatch {
            max_priority: self.max_priority,
            default_priority: self.default_priority,
            priority_scope: self.priority_scope,
            nice: self.nice,
            ioprio_map: self.ioprio_map,
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

    pub(super) fn run(self, place: &Place, out: &mut dyn Write) -> Result<(), CliError> {
        let client = place.client()?;
        match self {
            Vm::List { print } => {
                let vms: Vec<types::Vm> = client.get("/v1/vms")?;
                if print.json {
                    return Ok(json(out, &vms)?);
                }
                Ok(out.write_all(table(&vms).render().as_bytes())?)
            }
            Vm::Show { name, print } => {
                let vm: types::Vm = client.get(&format!("/v1/vms/{name}"))?;
                if print.json {
                    return Ok(json(out, &vm)?);
                }
                Ok(out.write_all(describe(&vm).as_bytes())?)
            }
            Vm::Set(set) => {
                let (path, print) = (format!("/v1/vms/{}", set.name), set.print);
                let patch = set.patch();
                if patch == VmPatch::default() {
                    let what = "--max-priority, --default-priority, --priority-scope, --nice or --ioprio-map";
                    return Err(CliError::Usage(format!("nothing to change: give {what}")));
                }
                let changed: Changed<types::Vm> = client.send(Method::PATCH, &path, &patch)?;
                if print.json {
                    return Ok(json(out, &changed)?);
                }
                out.write_all(describe(&changed.now).as_bytes())?;
                warnings(&changed.warnings);
                Ok(())
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
        ("clients", Some(vm.clients.to_string())),
        ("highest priority", Some(set.max_priority.to_string())),
        ("default priority", Some(set.default_priority.to_string())),
        ("priorities divide", Some(scope.to_owned())),
        ("nice", Some(nice.to_owned())),
        ("ioprio map", Some(set.ioprio_map.clone())),
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
