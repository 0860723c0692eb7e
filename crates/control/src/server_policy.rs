//! What the servers of a striped disk are told of its policy.

use super::clock;
use headgate_model::{DiskRecord, Policy, ServerPolicy};

/// Of a policy that other hosts are to keep too, what is this host's own matter.
pub(crate) fn with_own(said: Policy, own: Policy) -> Policy {
    let Policy { latency_target, werror, rerror, .. } = own;
    Policy { latency_target, werror, rerror, ..said }
}

/// What the servers of a striped disk are told.
pub(crate) fn server_policy(record: &DiskRecord) -> Option<ServerPolicy> {
    let stripe = record.remote.as_ref()?.stripe.as_ref()?;
    let said = with_own(record.policy, Policy::default());
    Some(ServerPolicy { epoch: stripe.epoch, text: serde_json::to_string(&said).ok()? })
}

/// The epoch of a policy that is set now: greater than the last one, and than those of a catalog
/// that was newer and is lost.
pub(crate) fn next_epoch(before: u64) -> u64 {
    clock::nanos_since_1970().max(before.saturating_add(1))
}
