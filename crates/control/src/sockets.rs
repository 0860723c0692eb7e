//! The sockets of disks: where they are, and who may connect.

use super::{Control, ControlError, Model};
use crate::attach::{self, NbdTcp};
use headgate_access::{Access, Identity, NameError, Peer};
use headgate_api::priorities::{VmPatch, VmSockets};
use headgate_api::types::Attachment;
use headgate_model::{Machine, Name, SocketRecord, VmRecord};
use std::collections::BTreeSet;
use std::path::Path;

impl Model {
    /// What was set for the sockets of a machine's disks.
    fn sockets(&self, vm: Option<&Name>) -> SocketRecord {
        vm.and_then(|vm| self.vms.get(vm)).map(|vm| vm.sockets.clone()).unwrap_or_default()
    }
}

/// What a patch makes of it.
pub(super) fn changed(before: SocketRecord, patch: &VmPatch) -> SocketRecord {
    SocketRecord {
        user: patch.socket_user.clone().apply(before.user),
        group: patch.socket_group.clone().apply(before.group),
    }
}

fn unknown(e: NameError) -> ControlError {
    ControlError::invalid(e.to_string(), "a name that this host knows, or a number")
}

/// What keeps a user from a socket, in words.
fn obstacle(user: &str, who: &Identity, socket: &Path) -> Option<String> {
    match headgate_access::obstacle(socket, who) {
        Ok(None) => None,
        Ok(Some(obstacle)) => Some(format!("user '{user}' {obstacle}")),
        Err(e) => Some(format!("{} cannot be looked at: {e}", socket.display())),
    }
}

fn resolve(sockets: &SocketRecord) -> Result<Access, NameError> {
    let user = sockets.user.as_deref().map(headgate_access::user).transpose()?;
    let group = sockets.group.as_deref().map(headgate_access::group).transpose()?;
    Ok(Access { users: user.into_iter().collect(), groups: group.into_iter().collect() })
}

impl Control {
    /// Those that this setting names, or those that hold for every machine without one.
    ///
    /// # Errors
    /// When this host knows no such user or group.
    pub(super) fn access_by(&self, sockets: &SocketRecord) -> Result<Access, ControlError> {
        if sockets.is_unset() {
            return Ok(self.options.socket_access.clone());
        }
        resolve(sockets).map_err(unknown)
    }

    /// Who may connect to the sockets of a machine's disks. Nobody, where a name has gone since it
    /// was set: the machine is somebody's, and not everybody's.
    pub(super) fn access(&self, vm: Option<&Name>) -> Access {
        let sockets = self.model().sockets(vm);
        if sockets.is_unset() {
            return self.options.socket_access.clone();
        }
        resolve(&sockets).unwrap_or_else(|error| {
            let vm = vm.map(Name::as_str).unwrap_or_default();
            tracing::error!(vm, %error, "nobody can connect to its disks: see 'headgate vm set'");
            Access::default()
        })
    }

    /// The machines whose sockets were set to be this peer's, by its user or one of its groups.
    pub fn machines_of(&self, peer: &Peer) -> BTreeSet<Name> {
        let set: Vec<(Name, SocketRecord)> = {
            let model = self.model();
            model.vms.iter().map(|(name, vm)| (name.clone(), vm.sockets.clone())).collect()
        };
        let is_theirs = |sockets: &SocketRecord| {
            // A name that has gone is nobody's.
            resolve(sockets).is_ok_and(|access| access.names(peer))
        };
        set.into_iter().filter(|(_, sockets)| is_theirs(sockets)).map(|(name, _)| name).collect()
    }

    /// The disks of these machines.
    pub fn disks_of(&self, machines: &BTreeSet<Name>) -> BTreeSet<Name> {
        let model = self.model();
        let of = |vm: &Option<Name>| vm.as_ref().is_some_and(|vm| machines.contains(vm));
        let disks = model.disks.iter().filter(|(_, entry)| of(&entry.record.vm));
        disks.map(|(name, _)| name.clone()).collect()
    }

    /// A machine's directory of sockets.
    pub(super) fn machine(&self, vm: Option<&Name>) -> Option<Machine> {
        let name = vm?.clone();
        Some(Machine { directory: self.dir.machine_dir(&name), name })
    }

    /// All ways to a disk, and what keeps a user from them: this one, or the one that was set for
    /// its machine. NBD is served over TCP at `nbd_tcp`.
    ///
    /// # Errors
    /// When there is no such disk, or this host does not know the user.
    pub fn attachment(
        &self,
        name: &Name,
        nbd_tcp: Option<NbdTcp>,
        user: Option<&str>,
    ) -> Result<Attachment, ControlError> {
        let (vm, set) = {
            let model = self.model();
            let vm = model.disk(name)?.record.vm.clone();
            let set = model.sockets(vm.as_ref()).user;
            (vm, set)
        };
        let (nbd, vhost) = (self.dir.nbd_socket_of(vm.as_ref()), self.dir.vhost_socket(name));
        let mut attachment = attach::attachment(name, &nbd, nbd_tcp, &vhost);
        if let Some(user) = user.or(set.as_deref()) {
            let who = Identity::of(user).map_err(unknown)?;
            attachment.vhost_obstacle = obstacle(user, &who, &vhost);
            attachment.nbd_obstacle = obstacle(user, &who, &nbd);
        }
        Ok(attachment)
    }

    /// What is told of a machine's sockets.
    pub(super) fn view_sockets(&self, model: &Model, vm: &Name) -> VmSockets {
        let SocketRecord { user, group } = model.sockets(Some(vm));
        VmSockets {
            socket_user: user,
            socket_group: group,
            socket_directory: self.dir.machine_dir(vm).to_string_lossy().into_owned(),
        }
    }

    /// Hands a machine's access to its sockets; on failure those who had it before have it again.
    pub(super) fn put_access_in_force(&self, record: &VmRecord) -> Result<(), ControlError> {
        let before = self.model().sockets(Some(&record.name));
        if before == record.sockets {
            return Ok(());
        }
        let access = self.access_by(&record.sockets)?;
        self.plane.set_access(&record.name, &access).map_err(|e| {
            let before = self.access(Some(&record.name));
            if let Err(error) = self.plane.set_access(&record.name, &before) {
                tracing::error!(vm = %record.name, %error, "nobody can connect to its disks");
            }
            e.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use serde_json::json;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn disk(bench: &Bench, disk: &str, vm: Option<&str>) {
        let request = json!({"name": disk, "size": 1 << 20, "datastore": "array", "vm": vm});
        bench.control.create_disk(serde_json::from_value(request).unwrap()).unwrap();
    }

    fn set(bench: &Bench, vm: &str, patch: serde_json::Value) -> Result<(), ControlError> {
        bench.control.set_vm(&name(vm), &serde_json::from_value(patch).unwrap()).map(drop)
    }

    fn users(users: &[u32]) -> Access {
        Access { users: users.iter().copied().collect(), ..Access::default() }
    }

    fn move_to(bench: &Bench, disk: &str, vm: serde_json::Value) -> Result<(), ControlError> {
        let patch = serde_json::from_value(json!({ "vm": vm })).unwrap();
        bench.control.set_disk(&name(disk), patch).map(drop)
    }

    #[test]
    fn disks_are_their_machines_and_everybody_elses_only_without_a_setting() {
        let bench = Bench::new();
        let everybody = Access::of_groups([headgate_access::own_group()]);
        disk(&bench, "a", Some("red"));
        disk(&bench, "b", Some("blue"));
        assert_eq!(bench.plane.access("a"), everybody);
        set(&bench, "red", json!({"socket_user": "4701"})).unwrap();
        assert_eq!(bench.plane.access("a"), users(&[4701]));
        assert_eq!(bench.plane.access("b"), everybody);
        set(&bench, "blue", json!({"socket_user": "root", "socket_group": "4801"})).unwrap();
        let expected = Access { users: [0].into(), groups: [4801].into() };
        assert_eq!(bench.plane.access("b"), expected);
        // A disk goes with its machine, now and after a restart.
        move_to(&bench, "a", json!("blue")).unwrap();
        assert_eq!(bench.plane.access("a"), expected);
        let bench = bench.restart();
        assert_eq!(bench.plane.access("a"), expected);
        set(&bench, "blue", json!({"socket_user": null, "max_priority": 9})).unwrap();
        assert_eq!(bench.plane.access("a"), Access { groups: [4801].into(), ..users(&[]) });
        bench.control.reset_vm(&name("blue")).unwrap();
        assert_eq!(bench.plane.access("a"), everybody);
    }

    #[test]
    fn a_name_that_nobody_has_is_refused_and_one_that_has_gone_lets_nobody_in() {
        let bench = Bench::new();
        disk(&bench, "a", Some("red"));
        let error = set(&bench, "red", json!({"socket_user": "no such user"})).unwrap_err();
        assert_eq!(error.to_string(), "this host has no user 'no such user'");
        assert!(bench.control.vm(&name("red")).unwrap().sockets.socket_user.is_none());
        let sockets = SocketRecord { user: Some("no such user".into()), group: None };
        let gone = VmRecord { sockets, ..VmRecord::unset(name("red")) };
        bench.control.catalog().put_vm(&gone).unwrap();
        let bench = bench.restart();
        assert_eq!(bench.plane.access("a"), Access::default());
        // What has nothing to do with it can still be set.
        set(&bench, "red", json!({"max_priority": 9})).unwrap();
    }

    #[test]
    fn a_machine_is_its_users_and_groups_and_nobody_elses() {
        let bench = Bench::new();
        disk(&bench, "a", Some("red"));
        disk(&bench, "b", Some("red"));
        disk(&bench, "c", None);
        disk(&bench, "d", Some("unset"));
        set(&bench, "red", json!({"socket_user": "4701", "socket_group": "4801"})).unwrap();
        set(&bench, "none", json!({"socket_user": "4701"})).unwrap();
        let of = |user, group| {
            let peer = Peer { user, groups: vec![group], process: None };
            let machines = bench.control.machines_of(&peer);
            let disks = bench.control.disks_of(&machines);
            let text = |names: BTreeSet<Name>| {
                names.iter().map(Name::to_string).collect::<Vec<_>>().join(" ")
            };
            (text(machines), text(disks))
        };
        assert_eq!(of(4701, 1), ("none red".into(), "a b".into()));
        assert_eq!(of(5, 4801), ("red".into(), "a b".into()));
        assert_eq!(of(4801, 4701), Default::default(), "a group's number is no user's");
        // Who may everything as root has no machines as a tenant.
        assert_eq!(of(0, 0), Default::default());
    }

    #[test]
    fn what_cannot_be_put_in_force_leaves_all_as_it_was() {
        let bench = Bench::new();
        disk(&bench, "a", Some("red"));
        set(&bench, "red", json!({"socket_user": "4701", "max_priority": 5})).unwrap();
        bench.plane.break_down("set_access");
        set(&bench, "red", json!({"socket_user": "4702", "max_priority": 6})).unwrap_err();
        bench.control.reset_vm(&name("red")).unwrap_err();
        bench.plane.repair();
        bench.plane.break_down("set_machine");
        move_to(&bench, "a", json!("blue")).unwrap_err();
        bench.plane.repair();
        let bench = bench.restart();
        assert_eq!(bench.plane.access("a"), users(&[4701]));
        let vm = bench.control.vm(&name("red")).unwrap();
        assert_eq!((vm.priorities.max_priority.get(), vm.disks.len()), (5, 1));
    }

    #[test]
    fn what_keeps_a_user_out_is_told() {
        let bench = Bench::new();
        disk(&bench, "a", Some("red"));
        let ask = |user| bench.control.attachment(&name("a"), None, user).unwrap();
        assert_eq!(ask(None).vhost_obstacle, None, "nobody was asked about");
        // Nothing listens there in this test: that is an obstacle too.
        let told = ask(Some("4701")).vhost_obstacle.unwrap();
        assert!(told.contains("vhost/a.sock cannot be looked at"), "{told}");
        let socket = bench.temp.path().join("vhost/a.sock");
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        std::fs::write(&socket, "").unwrap();
        let told = ask(Some("4701")).vhost_obstacle.unwrap();
        assert!(told.starts_with("user '4701' may not"), "{told}");
        assert_eq!(ask(Some("root")).vhost_obstacle, None);
        let error = bench.control.attachment(&name("a"), None, Some("no such user")).unwrap_err();
        assert_eq!(error.to_string(), "this host has no user 'no such user'");
    }
}
