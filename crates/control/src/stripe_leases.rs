//! The leases of striped disks: who may serve one is written on the labels of its members, and
//! servers that know leases refuse the connections of others (`docs/nbd-counters.md`).

use super::{Control, ControlError, remote};
use crate::leases::{Eviction, LOOK, Leases, Next};
use crate::state::{DatastoreEntry, Service};
use headgate_api::leases::{Lease, LeaseHolder, LeasePlace};
use headgate_api::types::Force;
use headgate_model::{
    Backend, ConnectionState, DiskRecord, MemberContent, MemberProbe, Name, ServerLeases,
    StripeRecord,
};
use headgate_nbd::uri::Uri;
use headgate_stripe::{HostName, Label, Layout, Lease as OnLabels, Stage};
use tracing::warn;

impl Leases {
    /// This host's lease of a striped disk, by its number.
    pub(crate) fn on_labels(&self, number: u64) -> OnLabels {
        let own = self.own();
        OnLabels { number, host: own.host.0, name: HostName::new(&own.name.to_string()) }
    }

    /// The lease with which this host takes a disk on whose members these were found. Another's is
    /// taken by eviction only, and where servers cannot end its connections, by force only.
    ///
    /// # Errors
    /// [`ControlError::HeldOnLabels`].
    pub(crate) fn next_on_labels(
        &self,
        disk: &Name,
        found: &[(String, MemberProbe)],
        eviction: Eviction,
        force: Force,
    ) -> Result<OnLabels, ControlError> {
        let own = self.on_labels(0);
        let leases = found.iter().filter_map(|(server, probe)| match probe.content {
            MemberContent::Labelled(label) => Some((server, probe, label.lease)),
            MemberContent::Nothing | MemberContent::Other(_) => None,
        });
        let mut number = 0;
        for (server, probe, lease) in leases {
            number = number.max(lease.number);
            if !lease.is_held() || lease.host == own.host {
                continue;
            }
            let cannot_end = probe.leases == ServerLeases::Unknown;
            if eviction == Eviction::Never || cannot_end && force == Force::No {
                return Err(ControlError::HeldOnLabels {
                    disk: disk.clone(),
                    holder: lease.name.to_string(),
                    number: lease.number,
                    server: cannot_end.then(|| server.clone()),
                });
            }
        }
        let number = number.checked_add(1).ok_or_else(|| ControlError::Busy {
            error: "the labels of the exports name the greatest number that a lease has".into(),
            hint: "export what they hold, and make a new disk with --overwrite on new exports"
                .into(),
        })?;
        Ok(OnLabels { number, ..own })
    }
}

/// The exports of a striped disk, each with the label that it has while this host holds it.
fn labels(
    leases: &Leases,
    record: &DiskRecord,
    stripe: &StripeRecord,
) -> Result<Vec<(Uri, Label)>, ControlError> {
    let export = record.remote.as_ref().map_or("", |remote| remote.export.as_str());
    let members = stripe.servers.len() as u16;
    let layout = Layout::new(stripe.unit, members, record.size);
    let layout = layout.map_err(headgate_model::PlaneError::new)?;
    let lease = leases.on_labels(stripe.lease);
    let label = |(index, server): (u16, &String)| {
        let label = Label { id: stripe.id, index, layout, lease, stage: Stage::Made };
        Ok((remote::uri(server, export)?, label))
    };
    (0..).zip(&stripe.servers).map(label).collect()
}

pub(super) fn stripe_of(record: &DiskRecord) -> Option<&StripeRecord> {
    record.remote.as_ref()?.stripe.as_ref()
}

impl Control {
    /// Becomes the holder of a known striped disk again: its labels name this host, under a new
    /// number, which the catalog has first. Nothing for other disks. Waits for all of its servers,
    /// up to a deadline for each; nothing is written unless all of them answer.
    ///
    /// # Errors
    /// [`ControlError::HeldOnLabels`]; a server does not answer; an export is another than it was.
    pub(super) fn take_labels(
        &self,
        name: &Name,
        eviction: Eviction,
        force: Force,
    ) -> Result<(), ControlError> {
        let record = self.model().disk(name)?.record.clone();
        let Some(stripe) = stripe_of(&record) else { return Ok(()) };
        let mut found = Vec::new();
        for (uri, label) in labels(&self.leases, &record, stripe)? {
            let probe = self.plane.look_at_member(&uri)?;
            check_same(name, &uri, &probe.content, &label)?;
            found.push((uri.server().to_string(), probe));
        }
        let lease = self.leases.next_on_labels(name, &found, eviction, force)?;
        let record = {
            let mut catalog = self.catalog();
            let mut now = self.model().disk(name)?.record.clone();
            if let Some(stripe) = now.remote.as_mut().and_then(|remote| remote.stripe.as_mut()) {
                stripe.lease = lease.number;
            }
            catalog.update_disk(&now)?;
            self.model_mut().set_record(now.clone());
            now
        };
        let Some(stripe) = stripe_of(&record) else { return Ok(()) };
        for (uri, label) in labels(&self.leases, &record, stripe)? {
            self.plane.label_member(&uri, &label)?;
        }
        Ok(())
    }

    /// Writes on the labels of a striped disk that leaves this host that nobody holds it, where
    /// they name this host now. What cannot be reached keeps this host's name: another one takes
    /// the disk by eviction then.
    pub(super) fn give_labels_back(&self, record: &DiskRecord) {
        let Some(stripe) = stripe_of(record) else { return };
        let give_back = |uri: &Uri, own: Label| {
            let content = self.plane.look_at_member(uri)?.content;
            if matches!(content, MemberContent::Labelled(found) if found.check(&own).is_ok()) {
                let free = Label { lease: own.lease.given_back(), ..own };
                self.plane.label_member(uri, &free)?;
            }
            Ok::<_, ControlError>(())
        };
        for (uri, own) in labels(&self.leases, record, stripe).unwrap_or_default() {
            if let Err(error) = give_back(&uri, own) {
                let disk = &record.name;
                warn!(%disk, %error, "the label of a disk that is gone names this host still");
            }
        }
    }

    /// Stops the striped disks that another host holds by now: their clients know nothing of what
    /// it wrote. Returns when to look again.
    pub(super) fn stop_striped_evicted(&self) -> Next {
        let striped: Vec<Name> = {
            let model = self.model();
            // Most hosts have none, and many disks to look at each second.
            let may_have =
                |store: &DatastoreEntry| matches!(store.record.backend, Backend::Stripe { .. });
            if !model.datastores.values().any(may_have) {
                return Next::WhenRung;
            }
            let served = |entry: &&crate::DiskEntry| entry.service == Service::Serving;
            let striped = model.disks.values().filter(served);
            striped
                .map(|d| &d.record)
                .filter(|r| stripe_of(r).is_some())
                .map(|r| r.name.clone())
                .collect()
        };
        let again = Next::After(LOOK);
        if striped.is_empty() {
            return again;
        }
        let Ok(live) = self.live() else { return again };
        let evicted = |disk: Name| {
            let connection = live.get(&disk)?.remote.as_ref()?;
            (connection.state == ConnectionState::Evicted).then(|| {
                let reason = connection.reason.clone();
                let reason = reason.unwrap_or_else(|| "another host holds the disk".into());
                self.leases.count_eviction();
                (disk, Service::Evicted(reason))
            })
        };
        self.stop_at_once(striped.into_iter().filter_map(evicted).collect());
        again
    }

    /// What `disk show` says of the lease on a striped disk's labels.
    pub(super) fn view_label_lease(&self, record: &DiskRecord, service: &Service) -> Option<Lease> {
        let stripe = stripe_of(record)?;
        let is_own = !matches!(service, Service::Evicted(_));
        let own = self.leases.own();
        let holder = is_own.then(|| LeaseHolder {
            name: own.name.to_string(),
            id: own.host.to_string(),
            pid: std::process::id(),
        });
        let number = is_own.then_some(stripe.lease);
        Some(Lease { place: LeasePlace::Labels, number, holder })
    }
}

/// Whether an export is the disk's member that it was, whoever holds it.
fn check_same(
    name: &Name,
    uri: &Uri,
    content: &MemberContent,
    expected: &Label,
) -> Result<(), ControlError> {
    let why = match content {
        MemberContent::Labelled(found) => {
            match (Label { lease: expected.lease, ..*found }).check(expected) {
                Ok(()) => return Ok(()),
                Err(mismatch) => mismatch.to_string(),
            }
        }
        MemberContent::Nothing => "it is empty".into(),
        MemberContent::Other(what) => what.clone(),
    };
    Err(ControlError::Busy {
        error: format!(
            "export '{}' of {} is no member of disk '{name}' any more: {why}",
            uri.export,
            uri.server()
        ),
        hint: "see what became of the exports at their servers".into(),
    })
}

#[cfg(test)]
#[path = "stripe_leases_tests.rs"]
mod tests;
