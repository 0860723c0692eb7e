//! The neighbours that a disk waits for most.

use crate::scheduler::DiskId;
use alloc::vec::Vec;

/// Neighbours that a disk keeps.
pub const NEIGHBOURS: usize = 12;

/// What requests waited for those of another disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Whose they were.
    pub disk: DiskId,
    /// Another number than before says that it was left out in between, and began anew.
    pub entered: u32,
    /// For how long, in request-nanoseconds, since it entered.
    pub waited: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    neighbour: Neighbour,
    /// What it took of late: halved with each reading.
    lately: f64,
}

/// At most [`NEIGHBOURS`] of them. Which took the least of late is left out for one that took more
/// at once.
#[derive(Clone, Default)]
pub(super) struct Neighbours {
    places: Vec<Place>,
    entries: u32,
}

impl Neighbours {
    pub(super) fn with_room() -> Neighbours {
        Neighbours { places: Vec::with_capacity(NEIGHBOURS), entries: 0 }
    }

    /// `hint`: where to look first, and where it is then.
    #[inline]
    pub(super) fn add(&mut self, hint: usize, disk: DiskId, waited: f64) {
        let is_it = |place: &Place| place.neighbour.disk == disk;
        let found = match self.places.get(hint) {
            Some(place) if is_it(place) => Some(hint),
            _ => self.places.iter().position(is_it),
        };
        match found {
            Some(at) => {
                let place = &mut self.places[at];
                place.lately += waited;
                place.neighbour.waited = place.neighbour.waited.saturating_add(waited as u64);
                if hint < self.places.len() {
                    self.places.swap(at, hint);
                }
            }
            None => self.enter(disk, waited),
        }
    }

    fn enter(&mut self, disk: DiskId, waited: f64) {
        let neighbour = Neighbour { disk, entered: self.entries, waited: waited as u64 };
        let place = Place { neighbour, lately: waited };
        if self.places.len() < NEIGHBOURS {
            self.places.push(place);
        } else {
            let least = self.places.iter_mut().min_by(|a, b| a.lately.total_cmp(&b.lately));
            match least {
                Some(least) if least.lately < waited => *least = place,
                _ => return,
            }
        }
        self.entries = self.entries.wrapping_add(1);
    }

    pub(super) fn read(&mut self) -> Vec<Neighbour> {
        for place in &mut self.places {
            place.lately /= 2.0;
        }
        self.places.iter().map(|place| place.neighbour).collect()
    }
}
