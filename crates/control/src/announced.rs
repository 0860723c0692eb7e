//! Policies of striped disks. A gateway announces what its disk is promised to all servers that it
//! lies on; a node takes that for its part, as far as the gateway's certificate reaches
//! (`docs/decisions/0101-announced-policies.md`).

use super::disks::check_policy;
use super::server_policy::{server_policy, with_own};
use super::{Control, ControlError, Model};
use headgate_api::types::Force;
use headgate_model::{DiskRecord, Name, Policy, PolicyAnswer, PolicySource};
use headgate_stripe::StripeId;
use headgate_units::Iops;
use tracing::info;

/// What a gateway says of one of this host's disks.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// The gateway, by its certificate.
    pub peer: String,
    /// The striped disk, of which this host's is a member.
    pub stripe: StripeId,
    /// By what right.
    pub lease: u64,
    /// Later ones are greater, under one lease.
    pub epoch: u64,
    /// Over how many servers it lies.
    pub servers: u16,
    /// The policy, as JSON.
    pub policy: String,
    /// The most that all disks that the gateway has set may have reserved together, in IOPS.
    pub reservation_at_most: u64,
    /// The most shares that the disk may have.
    pub shares_at_most: u64,
}

impl Announcement {
    fn source(&self) -> PolicySource {
        PolicySource {
            peer: self.peer.clone(),
            stripe: self.stripe.to_string(),
            lease: self.lease,
            epoch: self.epoch,
            servers: self.servers,
        }
    }

    /// Whether it comes after what is in force; `false`: it is in force.
    fn is_later(&self, before: &DiskRecord, policy: &Policy) -> Result<bool, ControlError> {
        let known = before.set_by.as_ref().filter(|by| by.stripe == self.stripe.to_string());
        let Some(known) = known else { return Ok(true) };
        let (now, then) = ((self.lease, self.epoch), (known.lease, known.epoch));
        if now == then && before.policy == *policy {
            return Ok(false);
        }
        if now > then {
            return Ok(true);
        }
        Err(ControlError::Busy {
            error: format!(
                "a later policy of the disk is in force: epoch {} of lease {}, and this is epoch {} \
                 of lease {}",
                then.1, then.0, now.1, now.0
            ),
            hint: "set the disk's policy once more at its gateway".into(),
        })
    }

    /// What the gateway may have the disk promised, given what it has others promised already.
    fn check_bounds(
        &self,
        model: &Model,
        disk: &Name,
        policy: &Policy,
    ) -> Result<(), ControlError> {
        let of_peer = |record: &&DiskRecord| {
            record.name != *disk && record.set_by.as_ref().is_some_and(|by| by.peer == self.peer)
        };
        let others = model.disks.values().map(|entry| &entry.record).filter(of_peer);
        let others: u64 = others.filter_map(|r| r.policy.reservation).map(Iops::get).sum();
        let asked = policy.reservation.map_or(0, Iops::get);
        let shares = policy.shares.get();
        let beyond = |what: String| ControlError::Busy {
            error: format!("peer '{}' {what}", self.peer),
            hint: "ask for less, or give the peer more in allow.toml".into(),
        };
        if others.saturating_add(asked) > self.reservation_at_most {
            return Err(beyond(format!(
                "may have {} IOPS reserved in all, has {others}, and asks for {asked} more",
                self.reservation_at_most
            )));
        }
        if shares > self.shares_at_most {
            return Err(beyond(format!(
                "may give a disk {} shares at most, and asks for {shares}",
                self.shares_at_most
            )));
        }
        Ok(())
    }
}

/// A policy whose reservation is what one of so many servers keeps of it.
pub(crate) fn share_of(policy: &Policy, servers: u16) -> Policy {
    let share = |all: Iops| Iops::new(all.get().div_ceil(u64::from(servers.max(1)))).ok();
    Policy { reservation: policy.reservation.and_then(share), ..*policy }
}

impl Control {
    /// Takes what a gateway says of a disk. It is in force when this returns, and written down.
    ///
    /// The scheduler gets the whole reservation: what other servers give of it, it hears with the
    /// requests. Admission counts an equal part of it.
    ///
    /// # Errors
    /// The policy is none, is older than what is in force, is beyond the gateway's bounds, or does
    /// not fit here. The policy of before holds then.
    pub fn take_announced(&self, disk: &Name, said: Announcement) -> Result<(), ControlError> {
        let mut catalog = self.catalog();
        let (before, record) = {
            let model = self.model();
            let before = model.disk(disk)?.record.clone();
            let policy: Policy = serde_json::from_str(&said.policy).map_err(|e| {
                ControlError::invalid(
                    format!("the announced policy: {e}"),
                    "a policy as of the API",
                )
            })?;
            let policy = with_own(policy, before.policy);
            check_policy(&policy)?;
            if !said.is_later(&before, &policy)? {
                return Ok(());
            }
            said.check_bounds(&model, disk, &policy)?;
            let held = Policy { reservation: before.promised(), ..before.policy };
            let share = share_of(&policy, said.servers);
            let arrives_at = model.moves.get(disk).map(|moving| moving.arrives_at());
            for on in std::iter::once(&before.datastore).chain(arrives_at.flatten()) {
                let datastore = model.datastore(on)?;
                self.check_admission(&model, datastore, &share, Some(&held), Force::No)?;
                let of = Some((disk, &before.policy));
                self.check_latency(&model, datastore, &policy, of, Force::No)?;
            }
            let record = DiskRecord { policy, set_by: Some(said.source()), ..before.clone() };
            (before, record)
        };
        catalog.update_disk(&record)?;
        let is_served = self.model().disk(disk)?.service == super::Service::Serving;
        if is_served && let Err(e) = self.put_disk_in_force(&before, &record) {
            catalog.update_disk(&before)?;
            return Err(e);
        }
        self.model_mut().set_record(record);
        info!(%disk, peer = said.peer, epoch = said.epoch, "its gateway has set the disk's policy");
        Ok(())
    }

    /// Tells the servers of a striped disk what it is promised. Answers who does not keep it, and
    /// why. Waits for all of them, up to a deadline. Nothing for other disks.
    pub(super) fn announce(&self, record: &DiskRecord) -> Vec<String> {
        let Some(policy) = server_policy(record) else { return Vec::new() };
        let said = match self.plane.announce(&record.name, policy) {
            Ok(said) => said,
            Err(e) => return vec![format!("its servers were not told: {e}")],
        };
        let warning = |(server, said): (String, Result<PolicyAnswer, _>)| match said {
            Ok(PolicyAnswer::Taken | PolicyAnswer::Unknown) => None,
            Ok(PolicyAnswer::Refused(why)) => {
                Some(format!("{server} does not take the policy: {why}"))
            }
            Err(e) => Some(format!("{server} is told when it is connected again: {e}")),
        };
        said.into_iter().filter_map(warning).collect()
    }
}

#[cfg(test)]
#[path = "announced_tests.rs"]
mod tests;
