//! Policies of striped disks on their way between gateways and nodes: those of this daemon's disks,
//! and those that other daemons announce for its own.

use crate::engine_parts::failed;
use crate::engine_plane::EnginePlane;
use headgate_control::Control;
use headgate_control::announced::Announcement;
use headgate_engine::backend::nbd::{self, Announced, PolicyText};
use headgate_frontends::nbd::policies::{AnnouncedPolicy, Policies};
use headgate_model::{
    Connection, Name, PlaneError, PolicyAnswer, PolicyAnswers, ServerConnection, ServerPolicy,
};
use headgate_nbd::client::handshake::PolicyAnswer as Said;
use headgate_nbd::uri::Uri;
use headgate_stripe::Label;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How long telling one server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The exports that a disk lies on, and the label of each.
type Members = Vec<(Uri, Label)>;

/// A striped disk's members, and what they are told.
struct Told {
    disk: Name,
    members: Members,
    /// Gone with the threads that connect to them.
    announced: Weak<Announced>,
}

/// The striped disks of this daemon. One that moves to other servers is there twice.
#[derive(Default)]
pub(crate) struct AnnouncedPolicies(Mutex<Vec<Told>>);

impl AnnouncedPolicies {
    /// A disk is being opened: what its connections will say.
    pub(crate) fn begin(
        &self,
        disk: &Name,
        members: Members,
        policy: ServerPolicy,
    ) -> Arc<Announced> {
        let count = members.len() as u16;
        let announced = Arc::new(Announced::new(text(policy), count));
        let told = Told { disk: disk.clone(), members, announced: Arc::downgrade(&announced) };
        let mut all = self.lock();
        all.retain(|told| told.announced.strong_count() > 0);
        all.push(told);
        announced
    }

    /// Those of a disk.
    fn of(&self, disk: &Name) -> Vec<(Members, Arc<Announced>)> {
        let all = self.lock();
        let of_disk = all.iter().filter(|told| told.disk == *disk);
        of_disk.filter_map(|t| Some((t.members.clone(), t.announced.upgrade()?))).collect()
    }

    /// Adds what the servers of a disk said to its policy.
    pub(crate) fn complete(&self, disk: &Name, connection: &mut Connection) {
        let servers = &mut connection.servers;
        let is_on = |members: &[(Uri, Label)], servers: &[ServerConnection]| {
            members.len() == servers.len()
                && members
                    .iter()
                    .zip(servers)
                    .all(|((uri, _), on)| uri.server().to_string() == on.server)
        };
        for (members, announced) in self.of(disk) {
            if is_on(&members, servers) {
                for (member, server) in (0..).zip(servers.iter_mut()) {
                    server.policy = announced.answer(member).map(answer);
                }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Told>> {
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
        let all = self.announced.of(disk);
        if all.is_empty() {
            return Err(PlaneError::new(format!("disk '{disk}' is not striped here")));
        }
        let tell = |uri: &Uri, label: &Label, announced: &Announced| {
            let said = nbd::announce(uri, PATIENCE, &self.tls, label, announced);
            said.map(|said| said.map_or(PolicyAnswer::Unknown, answer)).map_err(failed)
        };
        let tell = &tell;
        Ok(thread::scope(|scope| {
            let mut threads = Vec::new();
            for (members, announced) in &all {
                announced.set(text(policy.clone()));
                for (uri, label) in members {
                    threads.push((uri, scope.spawn(move || tell(uri, label, announced))));
                }
            }
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
