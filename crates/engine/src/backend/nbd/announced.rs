//! What the servers of a striped disk are told that it is promised, and what they say to that.

use headgate_nbd::client::handshake::PolicyAnswer;
use headgate_nbd::counters::Lease;
use headgate_nbd::policy::Announcement;
use headgate_nbd::uri::Uri;
use headgate_stripe::Label;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A policy to announce: text that its servers understand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyText {
    /// Which one: later ones are greater.
    pub epoch: u64,
    /// The policy.
    pub text: Arc<str>,
}

/// The policy of a striped disk as its servers are told it: on every connection, before anything
/// is asked for over it. Shared by the disk's dialers and by who changes the policy.
#[derive(Debug)]
pub struct Announced(Mutex<State>);

#[derive(Debug)]
struct State {
    policy: PolicyText,
    /// By member: to which epoch it said what.
    answers: Vec<Option<(u64, PolicyAnswer)>>,
}

impl Announced {
    /// To so many members, which have heard nothing yet.
    pub fn new(policy: PolicyText, members: u16) -> Announced {
        Announced(Mutex::new(State { policy, answers: vec![None; usize::from(members)] }))
    }

    /// From now on this is announced.
    pub fn set(&self, policy: PolicyText) {
        self.lock().policy = policy;
    }

    /// What a member said to the policy of now; `None`: it has not heard of it.
    pub fn answer(&self, member: u16) -> Option<PolicyAnswer> {
        let state = self.lock();
        let (epoch, answer) = state.answers.get(usize::from(member))?.as_ref()?;
        (*epoch == state.policy.epoch).then(|| answer.clone())
    }

    /// What is said to a member: the epoch, and the data of the option. `None` for what does not
    /// fit the option.
    pub(super) fn said(&self, uri: &Uri, label: &Label) -> Option<(u64, Vec<u8>)> {
        let PolicyText { epoch, text } = self.lock().policy.clone();
        let Label { id, layout, lease, .. } = label;
        let lease = Lease { disk: id.0, number: lease.number, host: lease.host };
        let servers = layout.members();
        let said = Announcement { lease, epoch, servers, export: &uri.export, policy: &text };
        Some((epoch, said.to_bytes()?))
    }

    pub(super) fn heard(&self, member: u16, epoch: u64, answer: PolicyAnswer) {
        if let PolicyAnswer::Refused(why) = &answer {
            tracing::warn!(member, epoch, why, "a server does not take the disk's policy");
        }
        if let Some(known) = self.lock().answers.get_mut(usize::from(member)) {
            *known = Some((epoch, answer));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(epoch: u64) -> PolicyText {
        PolicyText { epoch, text: format!("policy {epoch}").into() }
    }

    #[test]
    fn an_answer_is_to_the_policy_that_was_said() {
        let announced = Announced::new(policy(1), 2);
        assert_eq!(announced.answer(0), None);
        announced.heard(0, 1, PolicyAnswer::Taken);
        assert_eq!((announced.answer(0), announced.answer(1)), (Some(PolicyAnswer::Taken), None));
        announced.set(policy(2));
        assert_eq!(announced.answer(0), None);
        // One that was on its way.
        announced.heard(1, 1, PolicyAnswer::Taken);
        assert_eq!(announced.answer(1), None);
        announced.heard(1, 2, PolicyAnswer::Refused("no".into()));
        assert_eq!(announced.answer(1), Some(PolicyAnswer::Refused("no".into())));
    }
}
