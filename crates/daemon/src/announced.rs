//! Policies of striped disks on their way between gateways and nodes: those of this daemon's disks,
//! and those that other daemons announce for its own.

use crate::engine_parts::failed;
use crate::engine_plane::EnginePlane;
use headgate_control::Control;
use headgate_control::announced::Announcement;
use headgate_engine::backend::nbd::{self, Announced, PolicyText};
use headgate_frontends::nbd::policies::{AnnouncedPolicy, Policies};
use headgate_model::{Connection, Name, PlaneError, PolicyAnswer, PolicyAnswers, ServerPolicy};
use headgate_nbd::client::handshake::PolicyAnswer as Said;
use headgate_nbd::uri::Uri;
use headgate_stripe::Label;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How long telling one server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A striped disk's members, and what they are told.
#[derive(Clone)]
struct Told {
    members: Vec<(Uri, Label)>,
    announced: Arc<Announced>,
}

/// The striped disks of this daemon.
#[derive(Default)]
pub(crate) struct AnnouncedPolicies(Mutex<HashMap<Name, Told>>);

impl AnnouncedPolicies {
    /// A disk is being opened: what its connections will say.
    pub(crate) fn begin(
        &self,
        disk: &Name,
        members: Vec<(Uri, Label)>,
        policy: ServerPolicy,
    ) -> Arc<Announced> {
        let count = members.len() as u16;
        let announced = Arc::new(Announced::new(text(policy), count));
        let told = Told { members, announced: announced.clone() };
        self.lock().insert(disk.clone(), told);
        announced
    }

    fn of(&self, disk: &Name) -> Option<Told> {
        self.lock().get(disk).cloned()
    }

    /// Adds what the servers of a disk said to its policy.
    pub(crate) fn complete(&self, disk: &Name, connection: &mut Connection) {
        let Some(Told { announced, .. }) = self.of(disk) else { return };
        for (member, server) in (0..).zip(&mut connection.servers) {
            server.policy = announced.answer(member).map(answer);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Name, Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text(policy: ServerPolicy) -> PolicyText {
    PolicyText { epoch: policy.epoch, text: policy.text.into() }
}

fn answer(said: Said) -> PolicyAnswer {
    match said {
        Said::Taken => PolicyAnswer::Taken,
        Said::Refused(why) => PolicyAnswer::Refused(why),
        Said::Unknown => PolicyAnswer::Unknown,
    }
}

impl EnginePlane {
    /// See [`headgate_model::DataPlane::announce`].
    pub(crate) fn announce_to_all(
        &self,
        disk: &Name,
        policy: ServerPolicy,
    ) -> Result<PolicyAnswers, PlaneError> {
        let not_striped = || PlaneError::new(format!("disk '{disk}' is not striped here"));
        let Told { members, announced } = self.announced.of(disk).ok_or_else(not_striped)?;
        announced.set(text(policy));
        let tell = |uri: &Uri, label: &Label| {
            let said = nbd::announce(uri, PATIENCE, &self.tls, label, &announced);
            said.map(|said| said.map_or(PolicyAnswer::Unknown, answer)).map_err(failed)
        };
        Ok(thread::scope(|scope| {
            let tell = &tell;
            let threads: Vec<_> = members
                .iter()
                .map(|(uri, label)| (uri, scope.spawn(move || tell(uri, label))))
                .collect();
            let said = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(PlaneError::new("its thread panicked")))
            };
            threads.into_iter().map(|(uri, t)| (uri.server().to_string(), said(t))).collect()
        }))
    }
}

/// Hands what gateways announce to the control plane.
pub(crate) struct Taker(Weak<Control>);

impl Taker {
    pub(crate) fn shared(control: &Arc<Control>) -> Arc<dyn Policies> {
        Arc::new(Taker(Arc::downgrade(control)))
    }
}

impl Policies for Taker {
    fn take(&self, policy: AnnouncedPolicy<'_>) -> Result<(), String> {
        let AnnouncedPolicy { disk, peer, said, bounds } = policy;
        let announcement = Announcement {
            peer: peer.to_owned(),
            stripe: headgate_stripe::StripeId(said.lease.disk),
            lease: said.lease.number,
            epoch: said.epoch,
            servers: said.servers,
            policy: said.policy.to_owned(),
            reservation_at_most: bounds.reservation,
            shares_at_most: bounds.shares,
        };
        let disk: Name = disk.parse().map_err(|_| "there is no such disk".to_owned())?;
        let control = self.0.upgrade().ok_or("this daemon is about to end")?;
        let taken = control.take_announced(&disk, announcement);
        taken.map_err(|e| {
            tracing::warn!(%disk, peer, error = %e, "an announced policy is refused");
            e.to_string()
        })
    }
}
