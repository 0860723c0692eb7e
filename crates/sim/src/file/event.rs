//! The timeline.

use super::names::find_or_only;
use super::policy::with_policy;
use crate::scenario::{Action, Datastore, Vm};
use crate::values::{At, Fault, QueueDepth, Rate, Time};
use headgate_devices::ModelSpec;
use headgate_qos::Policy;
use headgate_units::Iops;
use serde::Deserialize;

with_policy! {
    /// Something that happens at a time.
    #[derive(Clone, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    pub(super) struct EventFile {
        /// The time.
        pub(super) at: At<Time>,
        /// What happens.
        #[serde(rename = "do")]
        what: At<Verb>,
        /// start, stop, policy: the VM.
        vm: Option<At<String>>,
        /// policy: the disk of the VM, where it has several.
        disk: Option<At<String>>,
        /// rate, queue-depth, fail, return: the datastore, where there are several.
        datastore: Option<At<String>>,
        /// rate, fail, return: the node, where there are several; all nodes by default for rate.
        node: Option<At<String>>,
        /// rate: requests per second of the device.
        rate: Option<At<Rate>>,
        /// queue-depth: requests that each host may have outstanding.
        queue_depth: Option<QueueDepth>,
    }
}

/// What happens.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Verb {
    /// A VM's workloads start.
    Start,
    /// A VM's workloads stop.
    Stop,
    /// The given parts of a disk's policy change.
    Policy,
    /// Devices get another rate.
    Rate,
    /// Hosts get another window.
    QueueDepth,
    /// A node stops completing requests.
    Fail,
    /// A failed node returns.
    Return,
}

impl At<EventFile> {
    /// The action. `policies` are those of all disks at the time of the event.
    pub(super) fn action(
        &self,
        datastores: &[Datastore],
        vms: &[Vm],
        policies: &mut [Vec<Policy>],
    ) -> Result<Action, Fault> {
        let vm = || {
            find_or_only(self.vm.as_ref(), &self.span, "vm", vms.iter().map(|vm| vm.name.as_str()))
        };
        let store = || {
            let names = datastores.iter().map(|store| store.name.as_str());
            find_or_only(self.datastore.as_ref(), &self.span, "datastore", names)
        };
        let node = |store: usize| {
            let names = datastores[store].nodes.iter().map(|node| node.name.as_str());
            find_or_only(self.node.as_ref(), &self.span, "node", names)
        };
        let needed = |key: &str, example: &str| {
            self.what.fault(format!("do = '{key}' needs '{key}'; add {key} = {example}"))
        };
        Ok(match self.what.value {
            Verb::Start => Action::Start { vm: vm()? },
            Verb::Stop => Action::Stop { vm: vm()? },
            Verb::Policy => {
                let vm = vm()?;
                let names = vms[vm].disks.iter().map(|disk| disk.name.as_str());
                let disk = find_or_only(self.disk.as_ref(), &self.span, "disk", names)?;
                let policy = self.policy_keys().apply(policies[vm][disk])?;
                policies[vm][disk] = policy;
                Action::Policy { vm, disk, policy }
            }
            Verb::Rate => {
                let datastore = store()?;
                let only = self.node.as_ref().map(|_| node(datastore)).transpose()?;
                let key = self.rate.as_ref().ok_or_else(|| needed("rate", "500"))?;
                let rate = rate(key, &datastores[datastore], only)?;
                Action::Rate { datastore, node: only, rate }
            }
            Verb::QueueDepth => {
                let depth = self.queue_depth.ok_or_else(|| needed("queue-depth", "32"))?.0;
                Action::QueueDepth { datastore: store()?, depth }
            }
            Verb::Fail => {
                let datastore = store()?;
                Action::Fail { datastore, node: node(datastore)? }
            }
            Verb::Return => {
                let datastore = store()?;
                Action::Return { datastore, node: node(datastore)? }
            }
        })
    }
}

/// A new rate for one node, or for all of them: the devices must have one, and keep it.
fn rate(key: &At<Rate>, store: &Datastore, only: Option<usize>) -> Result<Iops, Fault> {
    key.check(
        store.rate_by_vms.is_empty(),
        "the datastore's rate follows the number of VMs; remove the event or rate-by-vms",
    )?;
    for (index, node) in store.nodes.iter().enumerate() {
        let rated = matches!(node.device, ModelSpec::Rate { .. });
        key.check(
            rated || only.is_some_and(|only| only != index),
            format!(
                "only a device 'rate=...' has a rate, and '{}' is not one; change it",
                node.device
            ),
        )?;
    }
    Ok(key.0)
}
