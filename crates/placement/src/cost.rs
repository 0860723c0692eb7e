//! What a move gives and what it costs.
//!
//! Both are counted in waiting: requests times seconds. By Little's law a workload with n requests
//! outstanding waits n seconds each second, at n/L requests per second. If its latency falls from L
//! to L', its requests wait L - L' less each; and as it asks for more when it is served faster,
//! they are counted at the mean of what they come at before and after: n·2·(L - L')/(L + L'). That
//! is what a move saves or costs each disk on either device, each second from its end on. (Nearly
//! n·ln(L/L'): the sum is largest where the product of all throughputs is, so nobody's gain counts
//! more because he is fast already.) While it copies, its own requests at both ends make all others
//! wait longer. It has paid when it has saved what the copy cost.
//!
//! Under [`Interference::Streams`] a change counts n·(1/√L' - 1/√L) instead. Σ n/√L stands between
//! the sum of all throughputs Σ n/L, for which one fast stream is worth any number of others that
//! wait, and their product, for which no stream is worth its datastore (α-fairness with α = 1/2: J.
//! Mo, J. Walrand, *Fair end-to-end window-based congestion control*, 2000). It depends on nothing
//! but where disks are: moves that each make it greater never come back to where they began.

use crate::interference::Demand;
use crate::plan_state::PlanState;
use crate::{DeviceModel, Interference};
use headgate_units::Nanos;

/// A move of a unit, before it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    /// Waiting saved, in requests, or what counts for it under [`Interference::Streams`]; below
    /// zero when it causes more than it saves.
    pub(crate) saves: f64,
    /// From its beginning until it has paid; `None` when it never does, or no model says.
    pub(crate) payback: Option<Nanos>,
    /// Latencies of source and target, before and after; `None` where nothing is known.
    pub(crate) source: (Option<Nanos>, Option<Nanos>),
    pub(crate) target: (Option<Nanos>, Option<Nanos>),
}

/// What moving a unit to another device would do, and another unit from there back, if any. O(1).
pub(crate) fn effect(state: &PlanState, unit: usize, to: usize, back: Option<usize>) -> Effect {
    let (from, moving) = (state.device_of(unit), &state.units[unit]);
    let copying = &state.pool.rules.copy;
    let back = back.map(|back| &state.units[back]);
    let (returns, back_used) = back.map_or((Demand::default(), 0), |unit| (unit.demand, unit.used));
    let nothing = Demand::default();
    let takes = copying.time(moving.used.saturating_add(back_used));
    let source = (
        state.latency_with(from, nothing, nothing),
        state.latency_with(from, returns, moving.demand),
    );
    let target =
        (state.latency_with(to, nothing, nothing), state.latency_with(to, moving.demand, returns));
    let mut effect = Effect { saves: 0.0, payback: None, source, target };
    let (Some(source_before), Some(source_after)) = source else { return effect };
    let (Some(target_before), Some(target_after)) = target else { return effect };

    let saved =
        |requests, before, after| saved(state.pool.rules.interference, requests, before, after);
    let (moved, returned) = (moving.demand.requests(), returns.requests());
    let (here, there) =
        (state.devices[from].demand.requests(), state.devices[to].demand.requests());
    effect.saves = saved(here - moved, source_before, source_after)
        + saved(moved, source_before, target_after)
        + saved(there - returned, target_before, target_after)
        + saved(returned, target_before, source_after);

    let copy = state.demand_of(&copying.workload);
    let slowed = |device: usize, before: Nanos, requests: f64| {
        state
            .latency_with(device, copy, nothing)
            .map_or(0.0, |during| -saved(requests, before, during))
    };
    let costs = slowed(from, source_before, here) + slowed(to, target_before, there);
    let payback = takes.0 as f64 * (1.0 + costs / effect.saves);
    if effect.saves > 0.0 && payback.is_finite() {
        effect.payback = Some(Nanos(payback as u64));
    }
    effect
}

/// Waiting that a number of outstanding requests saves when latency changes; below zero when it
/// rises.
fn saved(interference: Interference, requests: f64, before: Nanos, after: Nanos) -> f64 {
    let (before, after) = (before.max(Nanos(1)).0 as f64, after.max(Nanos(1)).0 as f64);
    requests
        * match interference {
            Interference::None => 2.0 * (before - after) / (before + after),
            Interference::Streams => 1.0 / libm::sqrt(after) - 1.0 / libm::sqrt(before),
        }
}

/// That of the model, for [`rates`].
pub(crate) fn slope(model: &DeviceModel) -> u64 {
    model.slope.as_picos()
}

/// Predicted requests per nanosecond of source and target together, before and after a unit moves
/// and something else comes back; with slopes that may be others than the models'. O(1).
pub(crate) fn rates(
    state: &PlanState,
    (unit, back): (usize, Demand),
    target: usize,
    here: impl Fn(&DeviceModel) -> u64,
    there: impl Fn(&DeviceModel) -> u64,
) -> (f64, f64) {
    let (source, moving, nothing) =
        (state.device_of(unit), state.units[unit].demand, Demand::default());
    let both = |from, to| {
        let (comes, goes) = from;
        let at_source = state.rate_with(source, comes, goes, &here);
        let (comes, goes) = to;
        at_source + state.rate_with(target, comes, goes, &there)
    };
    (both((nothing, nothing), (nothing, nothing)), both((back, moving), (moving, back)))
}
