//! Whether a scheduler has anything to decide.

use crate::scenario::{Action, DiskSpec, Event, Moves, Pattern, Setup, Workload, WorkloadKind};
use headgate_units::{Bytes, Nanos};

/// A window bounds requests of up to this size by their number alone.
const BOUNDED_BY_NUMBER: Bytes = Bytes::from_mib(1);

/// Whether any datastore's scheduler ever has requests to choose among. It has none where its
/// window has room for all that disks ever have outstanding and nothing else holds requests back:
/// then each goes when it comes, whatever the scheduler and the costs are. Shares are another
/// matter: flash drives divide themselves by them.
pub(super) fn has_anything_to_order(setup: &Setup) -> bool {
    let copies = setup.pool.as_ref().is_some_and(|pool| pool.moves != Moves::Instant);
    let own_windows = setup.hosts.iter().any(|host| host.queue_depth.is_some());
    let holds_back = |disk: &DiskSpec| {
        let policy = &disk.policy;
        let limited = policy.highest().is_some() || policy.limit_bandwidth().is_some();
        limited || policy.limits_directions() || disk.io_scheduler.is_some()
    };
    let only_vms =
        |event: &Event| matches!(event.action, Action::Start { .. } | Action::Stop { .. });
    copies
        || own_windows
        || !setup.timeline.iter().all(only_vms)
        || setup.vms.iter().flat_map(|vm| &vm.disks).any(holds_back)
        || (0..setup.datastores.len()).any(|store| !has_room(setup, store))
}

/// Whether a datastore's window has room for all that disks which may ever be there have
/// outstanding together.
fn has_room(setup: &Setup, index: usize) -> bool {
    let store = &setup.datastores[index];
    let plain = store.issue_window.is_none()
        && store.config.plug == Nanos::ZERO
        && store.nodes.iter().all(|node| node.front.is_none());
    let may_be_here = |disk: &DiskSpec| {
        let moves = setup.pool.is_some() && disk.membership.listed;
        disk.datastore == index || moves
    };
    let mut most = 0u32;
    for (vm_index, vm) in setup.vms.iter().enumerate() {
        for workload in &vm.workloads {
            if !vm.disks.get(workload.disk).is_some_and(may_be_here) {
                continue;
            }
            let Some(own) = most_outstanding(workload) else { return false };
            most = most.saturating_add(own);
        }
        for sweep in setup.sweeps.iter().filter(|sweep| sweep.vm == vm_index) {
            most = most.saturating_add(sweep.outstanding.iter().copied().max().unwrap_or(0));
            if sweep.sizes.iter().any(|&size| size > BOUNDED_BY_NUMBER) {
                return false;
            }
        }
    }
    plain && most <= store.queue_depth
}

/// The most requests that a workload keeps outstanding; `None` where nothing bounds them, or where
/// they are so large that their number does not count alone.
fn most_outstanding(workload: &Workload) -> Option<u32> {
    let large = |pattern: &Pattern| pattern.sizes.iter().any(|&(size, _)| size > BOUNDED_BY_NUMBER);
    if large(&workload.pattern) || workload.patterns.iter().any(large) {
        return None;
    }
    match workload.kind {
        WorkloadKind::Closed { outstanding, .. } | WorkloadKind::OnOff { outstanding, .. } => {
            Some(workload.outstanding.iter().copied().max().unwrap_or(outstanding))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn has(workloads: &str, more: &str) -> bool {
        let text = format!(
            r#"
            name = "x"
            title = "x"
            duration = "1s"
            datastore = [{{ name = "lun", device = "array=4", queue-depth = 32 }}]
            vm = [
                {{ name = "a", disk = [{{ {more} }}], workload = [{workloads}] }},
                {{ name = "b", disk = [{{}}], workload = [{{ kind = "closed", outstanding = 8 }}] }},
            ]
            "#
        );
        let scenario = Scenario::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        has_anything_to_order(&scenario.variants[0].setup)
    }

    #[test]
    fn a_window_with_room_for_all_leaves_nothing_to_order() {
        let closed = |n: u32| format!("{{ kind = \"closed\", outstanding = {n} }}");
        assert!(!has(&closed(24), "") && has(&closed(25), ""));
        assert!(!has("{ kind = \"closed\", outstanding-of = [4, 24] }", ""));
        assert!(has("{ kind = \"closed\", outstanding-of = [4, 25] }", ""));
        assert!(has("{ kind = \"open\", rate = 10 }", ""), "any number may come");
        assert!(has("{ kind = \"closed\", outstanding = 1, size = \"2M\" }", ""));
        assert!(has(&closed(1), "limit = 100"), "a limit holds back");
    }

    #[test]
    fn a_disk_counts_wherever_it_may_be() {
        let has = |a: bool, b: bool| {
            let text = format!(
                r#"
                name = "x"
                title = "x"
                duration = "1s"
                pool = {{ }}
                datastore = [
                    {{ name = "one", device = "array=4", queue-depth = 32 }},
                    {{ name = "two", device = "array=4", queue-depth = 32 }},
                ]
                [[vm]]
                name = "a"
                disk = [{{ datastore = "one", listed = {a} }}]
                workload = [{{ kind = "closed", outstanding = 20 }}]
                [[vm]]
                name = "b"
                disk = [{{ datastore = "two", listed = {b} }}]
                workload = [{{ kind = "closed", outstanding = 20 }}]
                "#
            );
            let scenario = Scenario::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"));
            has_anything_to_order(&scenario.variants[0].setup)
        };
        assert!(has(true, false) && has(false, true), "one may come to where the other is");
        assert!(!has(false, false), "each stays where it is");
    }
}
