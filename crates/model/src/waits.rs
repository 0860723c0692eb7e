//! What a disk's requests waited for, and behind whom: `docs/blame.md` has the definition.

use crate::Name;

/// Time of a disk's requests by what they waited for, in request-nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// At the device, or on the way there.
    pub device: u128,
    /// For the disk's own limits.
    pub limit: u128,
    /// Behind its own requests at the device.
    pub own: u128,
    /// For a window that is narrower than the widest it was.
    pub window: u128,
    /// Behind the requests of other disks at the device.
    pub neighbours: u128,
    /// Held for the storage's trouble.
    pub held: u128,
    /// What those neighbours took that took the most of late.
    pub named: Vec<NeighbourWait>,
}

/// What a disk's requests waited behind those of a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourWait {
    /// The neighbour.
    pub disk: Name,
    /// Who sent its requests.
    pub sender: Sender,
    /// Another number than before says that it was left out in between, and began anew.
    pub entered: u32,
    /// For how long, in request-nanoseconds.
    pub waited: u64,
}

/// Who sends a disk's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// Its clients.
    Clients,
    /// A copy that is made of it.
    Copy,
}

impl Waits {
    /// All of it.
    pub fn total(&self) -> u128 {
        self.device + self.limit + self.own + self.window + self.neighbours + self.held
    }

    /// What came since `earlier`, neighbours with the most first. Where counting began anew in
    /// between, what came since then.
    #[must_use]
    pub fn since(&self, earlier: &Waits) -> Waits {
        let again = self.device < earlier.device || self.neighbours < earlier.neighbours;
        let none = Waits::default();
        let earlier = if again { &none } else { earlier };
        let named = self.named.iter().map(|now| {
            let is_it = |old: &&NeighbourWait| {
                (&old.disk, old.sender, old.entered) == (&now.disk, now.sender, now.entered)
            };
            let before = earlier.named.iter().find(is_it).map_or(0, |old| old.waited);
            NeighbourWait { waited: now.waited.saturating_sub(before), ..now.clone() }
        });
        let mut named: Vec<NeighbourWait> = named.filter(|one| one.waited > 0).collect();
        named.sort_by(|a, b| b.waited.cmp(&a.waited).then_with(|| a.disk.cmp(&b.disk)));
        Waits {
            device: self.device.saturating_sub(earlier.device),
            limit: self.limit.saturating_sub(earlier.limit),
            own: self.own.saturating_sub(earlier.own),
            window: self.window.saturating_sub(earlier.window),
            neighbours: self.neighbours.saturating_sub(earlier.neighbours),
            held: self.held.saturating_sub(earlier.held),
            named,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(disk: &str, entered: u32, waited: u64) -> NeighbourWait {
        NeighbourWait { disk: disk.parse().unwrap(), sender: Sender::Clients, entered, waited }
    }

    #[test]
    fn a_neighbour_that_began_anew_counts_from_there() {
        let before = Waits {
            device: 10,
            neighbours: 100,
            named: vec![neighbour("a", 0, 60), neighbour("b", 1, 40)],
            ..Waits::default()
        };
        let now = Waits {
            device: 30,
            neighbours: 200,
            named: vec![neighbour("a", 0, 70), neighbour("b", 2, 50), neighbour("c", 3, 20)],
            ..Waits::default()
        };
        let since = now.since(&before);
        assert_eq!((since.device, since.neighbours, since.total()), (20, 100, 120));
        let parts: Vec<(&str, u64)> =
            since.named.iter().map(|one| (one.disk.as_str(), one.waited)).collect();
        assert_eq!(parts, [("b", 50), ("c", 20), ("a", 10)]);
        assert_eq!(before.since(&now).device, 10, "a disk that was opened anew");
    }
}
