//! Commands on tenants: what they are promised, and how much they may have.

use super::common::{DaemonArgs, Print};
use super::dry_run::DryRunArg;
use super::error::CliError;
use super::output::{Align, Table, description, or_dash, print_changed, print_value};
use super::values::{OrNone, force};
use clap::{Args, Subcommand};
use headgate_api::tenants::{Tenant, TenantPatch};
use headgate_api::types::Changed;
use headgate_model::{GroupPolicy, Name};
use headgate_units::{Bytes, Iops, Shares};
use hyper::Method;
use std::fmt::Display;
use std::io::Write;

/// Commands on tenants.
#[derive(Debug, Subcommand)]
pub(super) enum TenantCommand {
    /// List tenants
    List {
        #[command(flatten)]
        print: Print,
    },
    /// Show what a tenant is promised and may have, and what it has
    Show {
        /// Name of the tenant
        name: Name,
        #[command(flatten)]
        print: Print,
    },
    /// Change a tenant, or make a new one; in force when the command returns
    ///
    /// What its disks are promised together holds on each datastore that they are on. Virtual
    /// machines belong to a tenant by 'headgate vm set VM --tenant TENANT'.
    #[command(
        after_help = "Examples:\n  headgate tenant set red --reservation 3000 --limit 10000\n  \
        headgate tenant set blue --shares 4000 --max-disks 50 --max-space 2T --max-reserved 5000\n  \
        headgate vm set web --tenant red"
    )]
    Set(Set),
    /// Remove a tenant that no virtual machine belongs to
    Remove {
        /// Name of the tenant
        name: Name,
    },
}

/// What the disks of a tenant or of a virtual machine are promised together.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct GroupArgs {
    /// Guaranteed minimum of all its disks together on each datastore, in IOs per second, or
    /// 'none'; what its disks are guaranteed themselves counts towards it
    #[arg(long, value_name = "IOPS")]
    pub(super) reservation: Option<OrNone<Iops>>,
    /// Maximum of all its disks together on each datastore, in IOs per second, or 'none'
    #[arg(long, value_name = "IOPS")]
    pub(super) limit: Option<OrNone<Iops>>,
    /// Weight of all its disks together against what is beside it on a datastore, 1 to 1000000, or
    /// 'none'; those of a disk are 1000 by default
    #[arg(long, value_name = "N")]
    pub(super) shares: Option<OrNone<Shares>>,
}

/// Arguments of `tenant set`.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// Name of the tenant: 1 to 64 letters, digits, '.', '_', '-'
    name: Name,
    #[command(flatten)]
    group: GroupArgs,
    /// Most disks that it may have, or 'none'
    #[arg(long, value_name = "N")]
    max_disks: Option<OrNone<u64>>,
    /// Most that its disks may have together, or 'none'
    #[arg(long, value_name = "BYTES")]
    max_space: Option<OrNone<Bytes>>,
    /// Most that may be reserved by its disks together, in IOs per second, or 'none'
    #[arg(long, value_name = "IOPS")]
    max_reserved: Option<OrNone<u64>>,
    /// Change it even if that overbooks datastores
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    dry_run: DryRunArg,
    #[command(flatten)]
    print: Print,
}

impl Set {
    fn patch(&self) -> TenantPatch {
        TenantPatch {
            reservation: OrNone::change(self.group.reservation),
            limit: OrNone::change(self.group.limit),
            shares: OrNone::change(self.group.shares),
            max_disks: OrNone::change(self.max_disks),
            max_space: OrNone::change(self.max_space),
            max_reserved: OrNone::change(self.max_reserved),
            force: force(self.force),
        }
    }
}

impl TenantCommand {
    pub(super) fn print(&self) -> Option<Print> {
        match self {
            TenantCommand::List { print } | TenantCommand::Show { print, .. } => Some(*print),
            TenantCommand::Set(set) => Some(set.print),
            TenantCommand::Remove { .. } => None,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        match self {
            TenantCommand::List { print } => {
                let tenants: Vec<Tenant> = client.get("/v1/tenants")?;
                print_value(out, print, &tenants, |tenants| table(tenants).render())
            }
            TenantCommand::Show { name, print } => {
                let tenant: Tenant = client.get(&format!("/v1/tenants/{name}"))?;
                print_value(out, print, &tenant, describe)
            }
            TenantCommand::Set(set) => {
                let (path, patch) = (format!("/v1/tenants/{}", set.name), set.patch());
                let (to, print) = ((Method::PATCH, path.as_str()), set.print);
                let changed: Option<Changed<Tenant>> =
                    set.dry_run.send(&client, to, &patch, print, out)?;
                changed.map_or(Ok(()), |changed| print_changed(out, print, &changed, describe))
            }
            TenantCommand::Remove { name } => Ok(client.delete(&format!("/v1/tenants/{name}"))?),
        }
    }
}

fn table(tenants: &[Tenant]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("RESERVATION", Align::Right),
        ("LIMIT", Align::Right),
        ("SHARES", Align::Right),
        ("VMS", Align::Right),
        ("DISKS", Align::Right),
        ("SIZE", Align::Right),
        ("RESERVED", Align::Right),
    ]);
    for tenant in tenants {
        table.row(vec![
            tenant.name.to_string(),
            or_dash(tenant.policy.reservation),
            or_dash(tenant.policy.limit),
            or_dash(tenant.policy.shares),
            tenant.vms.len().to_string(),
            tenant.usage.disks.to_string(),
            tenant.usage.size.to_string(),
            tenant.usage.reserved_iops.to_string(),
        ]);
    }
    table
}

/// What a group is promised, in words; none where it is none.
pub(super) fn promised(policy: &GroupPolicy) -> Option<String> {
    let GroupPolicy { reservation, limit, shares } = policy;
    let parts = [
        reservation.map(|r| format!("reservation {r} IOPS")),
        limit.map(|l| format!("limit {l} IOPS")),
        shares.map(|s| format!("shares {s}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn of_most(has: impl Display, most: Option<impl Display>) -> String {
    most.map_or_else(|| has.to_string(), |most| format!("{has} of at most {most}"))
}

fn describe(tenant: &Tenant) -> String {
    let vms: Vec<&str> = tenant.vms.iter().map(Name::as_str).collect();
    let (usage, quota) = (tenant.usage, tenant.quota);
    let on = tenant.datastores.iter().map(|on| {
        let (datastore, all, inside) = (&on.datastore, on.promised_iops, on.inside_iops);
        format!("{datastore}: {all} IOPS promised, {inside} to what is in it")
    });
    let on: Vec<String> = on.collect();
    description(&[
        ("name", Some(tenant.name.to_string())),
        ("together", promised(&tenant.policy)),
        ("on", (!on.is_empty()).then(|| on.join("; "))),
        ("virtual machines", (!vms.is_empty()).then(|| vms.join(", "))),
        ("disks", Some(of_most(usage.disks, quota.max_disks))),
        ("size", Some(of_most(usage.size, quota.max_space))),
        ("reserved", Some(format!("{} IOPS", of_most(usage.reserved_iops, quota.max_reserved)))),
        ("applied by", tenant.applied_by.as_ref().map(|set| format!("documents '{set}'"))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant() -> Tenant {
        serde_json::from_str(
            r#"{"name": "red", "reservation": 3000, "limit": 9000, "max_disks": 10, "vms": ["web"],
                "disks": 3, "size": 3221225472, "reserved_iops": 250,
                "datastores": [{"datastore": "array", "promised_iops": 3000, "inside_iops": 250}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn the_list_shows_what_a_tenant_is_promised_and_has() {
        assert_eq!(
            table(&[tenant()]).render(),
            "NAME  RESERVATION  LIMIT  SHARES  VMS  DISKS   SIZE  RESERVED\n\
             red          3000   9000       -    1      3  3 GiB       250\n"
        );
    }

    #[test]
    fn the_description_shows_quotas_beside_what_there_is() {
        let text = describe(&tenant());
        for line in [
            "together:          reservation 3000 IOPS, limit 9000 IOPS\n",
            "on:                array: 3000 IOPS promised, 250 to what is in it\n",
            "disks:             3 of at most 10\n",
            "size:              3 GiB\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
