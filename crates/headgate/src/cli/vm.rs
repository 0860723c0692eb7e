use super::output::{Align, Table, description, json};
use super::{CliError, Place, Print};
use crate::api::types;
use crate::name::Name;
use clap::Subcommand;
use std::io::Write;

/// Commands on virtual machines.
#[derive(Debug, Subcommand)]
pub(super) enum Vm {
    /// List the virtual machines that disks name ('headgate disk set DISK --vm VM')
    List {
        #[command(flatten)]
        print: Print,
    },
    /// Show a virtual machine's disks
    Show {
        /// The virtual machine
        name: Name,
        #[command(flatten)]
        print: Print,
    },
}

impl Vm {
    pub(super) fn print(&self) -> Print {
        match self {
            Vm::List { print } | Vm::Show { print, .. } => *print,
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
                let mut table = Table::new(&[
                    ("NAME", Align::Left),
                    ("DISKS", Align::Right),
                    ("SIZE", Align::Right),
                    ("RESERVED", Align::Right),
                    ("CLIENTS", Align::Right),
                ]);
                for vm in vms {
                    table.row(vec![
                        vm.name.to_string(),
                        vm.disks.len().to_string(),
                        vm.size.to_string(),
                        vm.reserved_iops.to_string(),
                        vm.clients.to_string(),
                    ]);
                }
                out.write_all(table.render().as_bytes())?;
            }
            Vm::Show { name, print } => {
                let vm: types::Vm = client.get(&format!("/v1/vms/{name}"))?;
                if print.json {
                    return Ok(json(out, &vm)?);
                }
                let disks: Vec<&str> = vm.disks.iter().map(Name::as_str).collect();
                let text = description(&[
                    ("name", Some(vm.name.to_string())),
                    ("disks", Some(disks.join(", "))),
                    ("size", Some(vm.size.to_string())),
                    ("reserved", Some(format!("{} IOPS", vm.reserved_iops))),
                    ("clients", Some(vm.clients.to_string())),
                ]);
                out.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    }
}
