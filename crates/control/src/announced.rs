//! Policies of striped disks. A gateway announces what its disk is promised to all servers that it
//! lies on; a node takes that for its part, as far as the gateway's certificate reaches
//! (`docs/decisions/0101-announced-policies.md`).

use super::announced_pace::Turn;
use super::disks::check_policy;
use super::server_policy::{server_policy, with_own};
use super::{Control, ControlError, Model, clock};
use crate::new_disk::NewDisk;
use headgate_api::types::Force;
use headgate_events::{Entry, Outcome, Stream, Who};
use headgate_model::{DiskRecord, Name, Policy, PolicyAnswer, PolicySource};
use headgate_stripe::StripeId;
use headgate_units::Iops;
use serde_json::{Value, json};
use std::sync::PoisonError;
use std::time::Duration;
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

/// What an announcement says that was not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Nothing,
    /// What holds was set once more. Nothing is written for that: after a restart a policy of
    /// before may come, as it may to a node that was away, until the gateway is there again.
    Epoch,
    /// Another policy, or another's.
    Policy,
}

/// A policy that may be taken.
struct Taken {
    before: DiskRecord,
    now: DiskRecord,
    news: News,
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

    /// What it says beside what is in force.
    fn news(&self, before: &DiskRecord, policy: &Policy) -> Result<News, ControlError> {
        let known = before.set_by.as_ref().filter(|by| by.stripe == self.stripe.to_string());
        let Some(known) = known else { return Ok(News::Policy) };
        let (now, then) = ((self.lease, self.epoch), (known.lease, known.epoch));
        if now == then && before.policy == *policy {
            return Ok(News::Nothing);
        }
        if now > then {
            let as_known = PolicySource { epoch: known.epoch, ..self.source() };
            let same = before.policy == *policy && as_known == *known;
            return Ok(if same { News::Epoch } else { News::Policy });
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
    /// Changes of one peer are made one after the other, at a rate: this waits for the turn, up to
    /// 2 s.
    ///
    /// # Errors
    /// The policy is none, is older than what is in force, is beyond the gateway's bounds, or does
    /// not fit here; or the peer changes policies faster than it may. The policy of before holds
    /// then.
    pub fn take_announced(&self, disk: &Name, said: Announcement) -> Result<(), ControlError> {
        let mut news = self.check_announced(&self.model(), disk, &said)?.news;
        let mut has_turn = false;
        let (mut catalog, before, now) = loop {
            if news == News::Policy {
                self.await_turn(&said.peer)?;
                has_turn = true;
            }
            let catalog = self.catalog();
            // Everything may have changed since it was looked at.
            let taken = self.check_announced(&self.model(), disk, &said)?;
            match taken.news {
                News::Nothing => return Ok(()),
                News::Epoch => {
                    self.model_mut().set_record(taken.now);
                    return Ok(());
                }
                News::Policy if has_turn => break (catalog, taken.before, taken.now),
                // It was none when it was looked at: now it waits for its turn, too.
                News::Policy => news = News::Policy,
            }
        };
        catalog.update_disk(&now)?;
        let is_served = self.model().disk(disk)?.service == super::Service::Serving;
        if is_served && let Err(e) = self.put_disk_in_force(&before, &now) {
            catalog.update_disk(&before)?;
            return Err(e);
        }
        let policies = [json!({"policy": before.policy}), json!({"policy": now.policy})];
        self.model_mut().set_record(now);
        info!(%disk, peer = said.peer, epoch = said.epoch, "its gateway has set the disk's policy");
        let mut entry = told(disk, &said, policies);
        entry.machines = self.owners(&entry.disks).unwrap_or_default();
        self.events.tell(Stream::Tenants, entry);
        Ok(())
    }

    /// Everything about an announced policy that can be checked before anything is changed.
    fn check_announced(
        &self,
        model: &Model,
        disk: &Name,
        said: &Announcement,
    ) -> Result<Taken, ControlError> {
        let before = model.disk(disk)?.record.clone();
        let policy: Policy = serde_json::from_str(&said.policy).map_err(|e| {
            ControlError::invalid(format!("the announced policy: {e}"), "a policy as of the API")
        })?;
        let policy = with_own(policy, before.policy);
        check_policy(&policy)?;
        let news = said.news(&before, &policy)?;
        if news == News::Policy {
            said.check_bounds(model, disk, &policy)?;
            let share = share_of(&policy, said.servers);
            let new =
                NewDisk { policy: &policy, reserved: share.reservation, ..NewDisk::of(&before) };
            model.check_quota(new.vm, new.counted())?;
            let arrives_at = model.moves.get(disk).map(|moving| moving.arrives_at());
            for on in std::iter::once(&before.datastore).chain(arrives_at.flatten()) {
                let datastore = model.datastore(on)?;
                self.check_admission(model, datastore, new.member(), Force::No)?;
                let of = Some((disk, &before.policy));
                self.check_latency(model, datastore, &policy, of, Force::No)?;
            }
        }
        let now = DiskRecord { policy, set_by: Some(said.source()), ..before.clone() };
        Ok(Taken { before, now, news })
    }

    /// Waits until a peer may change a policy.
    fn await_turn(&self, peer: &str) -> Result<(), ControlError> {
        let turn = {
            let mut pace = self.announced_pace.lock().unwrap_or_else(PoisonError::into_inner);
            pace.turn(peer, clock::now())
        };
        match turn {
            Turn::After(wait) => {
                std::thread::sleep(Duration::from_nanos(wait.0));
                Ok(())
            }
            Turn::TooFast(wait) => Err(ControlError::Busy {
                error: format!(
                    "peer '{peer}' changes policies faster than 10 a second for its disks together"
                ),
                hint: format!("set the policy once more after {wait}"),
            }),
        }
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

fn told(disk: &Name, said: &Announcement, [old, new]: [Value; 2]) -> Entry {
    let by = Who::Certificate { name: said.peer.clone(), address: "NBD".into() };
    let mut entry = Entry::new(by, "disk set (announced)", Outcome::Taken).of_disk(disk);
    (entry.old, entry.new) = (Some(old), Some(new));
    entry
}
