//! What administrators change.

use headgate_model::Name;
use std::fmt;

/// A thing that administrators change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A disk.
    Disk(Name),
    /// A class of disks.
    Class(Name),
    /// A tenant.
    Tenant(Name),
    /// A virtual machine.
    Vm(Name),
    /// A datastore.
    Datastore(Name),
    /// The rules of placement.
    Rules,
}

impl Thing {
    /// The word on the command line.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Thing::Disk(_) => "disk",
            Thing::Class(_) => "class",
            Thing::Tenant(_) => "tenant",
            Thing::Vm(_) => "vm",
            Thing::Datastore(_) => "datastore",
            Thing::Rules => "rules",
        }
    }

    /// Its name; rules have none.
    pub(crate) fn name(&self) -> Option<&Name> {
        match self {
            Thing::Disk(name)
            | Thing::Class(name)
            | Thing::Tenant(name)
            | Thing::Vm(name)
            | Thing::Datastore(name) => Some(name),
            Thing::Rules => None,
        }
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Thing::Vm(_) => "virtual machine",
            other => other.kind(),
        };
        match self.name() {
            Some(name) => write!(f, "{kind} '{name}'"),
            None => write!(f, "the rules of placement"),
        }
    }
}
