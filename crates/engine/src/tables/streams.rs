//! What each priority of a disk has got.

use headgate_units::Priority;

/// Requests and charges by final priority. A fixed table, so that no guest makes it grow: 4 KiB per
/// disk.
#[derive(Debug)]
pub(crate) struct Streams(Box<[Stream; SLOTS]>);

/// One for each value of a priority's eight bits.
const SLOTS: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    ios: u64,
    cost: u64,
}

impl Streams {
    pub(crate) fn new() -> Streams {
        Streams(Box::new([Stream::default(); SLOTS]))
    }

    pub(crate) fn on_dispatch(&mut self, priority: Priority, cost_millionths: u64) {
        let stream = &mut self.0[usize::from(priority.get())];
        stream.ios += 1;
        stream.cost += cost_millionths;
    }

    /// Those that have ever been served, lowest priority first.
    pub(crate) fn snapshot(&self) -> Vec<crate::snapshot::StreamSnapshot> {
        let served = (0u64..).zip(self.0.iter()).filter(|(_, stream)| stream.ios > 0);
        served
            .filter_map(|(priority, stream)| {
                Some(crate::snapshot::StreamSnapshot {
                    priority: Priority::new(priority).ok()?,
                    ios: stream.ios,
                    cost: stream.cost,
                })
            })
            .collect()
    }
}
