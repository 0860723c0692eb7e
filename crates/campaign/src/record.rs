//! What happened in a run, second by second.

/// What one disk did in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskSecond {
    /// Cost of what was dispatched, in reference IOs.
    pub cost: f64,
    /// Whether its queue was empty at any time, after its client had answered.
    pub emptied: bool,
    /// How often its client registered it as a new disk.
    pub registered: u32,
    /// The cost of reads alone, of writes alone.
    pub lanes: [f64; 2],
    /// Time with reads alone queued, with writes alone, with both, in seconds; of disks that write.
    pub asking: [f64; 3],
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Second {
    /// The phase that it belongs to.
    pub phase: usize,
    /// Seconds of the phase before it.
    pub into: usize,
    /// Time in which the storage was ready and had nothing, in seconds.
    pub idle: f64,
    /// Time in which the storage stood still, in seconds.
    pub stalled: f64,
    /// For how long the window has been full at its end, in seconds.
    pub blocked: f64,
    /// By how much reservations are late at its end if nobody else was served since they were not,
    /// in seconds: no order does better.
    pub late: f64,
    /// The most of that in the second.
    pub latest: f64,
    /// The disks.
    pub disks: Vec<DiskSecond>,
}

/// When something could be sent, in seconds since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// From when on.
    pub at: f64,
    /// Until when there was room for more; `at` where one request was sent and there was not.
    pub until: f64,
    /// What that one cost, in reference IOs.
    pub cost: f64,
}

/// When something of a disk was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sent {
    /// In seconds since the start.
    pub at: f64,
    /// Reads and writes that were queued, with this one.
    pub queued: [u32; 2],
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Its seconds, in order.
    pub seconds: Vec<Second>,
    /// When something could be sent, in order.
    pub chances: Vec<Chance>,
    /// For each disk with limits of one direction, when something was sent, in order.
    pub sent: Vec<Vec<Sent>>,
    /// For each disk with an open load, by how much its requests completed past their deadlines, in
    /// seconds; 0 for those in time.
    pub late: Vec<Vec<f64>>,
    /// For each disk with a latency target, when its requests completed and what they took from the
    /// queue to the end, in seconds.
    pub took: Vec<Vec<(f64, f64)>>,
}

impl Record {
    /// Reference IOs per second that a disk got over a stretch of seconds.
    pub fn rate(&self, disk: usize, from: usize, to: usize) -> f64 {
        let span = &self.seconds[from.min(self.seconds.len())..to.min(self.seconds.len())];
        let cost: f64 =
            span.iter().filter_map(|second| second.disks.get(disk)).map(|d| d.cost).sum();
        cost / span.len().max(1) as f64
    }
}
