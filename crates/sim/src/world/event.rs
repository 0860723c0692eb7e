//! What is planned for an instant.

/// Events have the indices of what they happen to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Device { node: u32 },
    Wake { gate: u32 },
    Guest { disk: u32 },
    Window { window: u32 },
    AtNode { request: u32 },
    Back { request: u32 },
    Workload { workload: u32, token: u32, epoch: u32 },
    Begin { workload: u32, epoch: u32 },
    Start { vm: u32 },
    Timeline { index: u32 },
    Noise { node: u32 },
    Tick,
    Mark,
    Sample,
    Advise,
    Tide,
    Copy { number: u32 },
    Sweep { sweep: u32 },
}
