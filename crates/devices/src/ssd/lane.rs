//! What must wait for what: a pool's host writes for the collection that made room for them.

use super::fabric::{Class, Fabric, Task};
use super::stopwatch::Stopwatch;
use alloc::collections::VecDeque;
use headgate_units::Nanos;

/// Whose operation of the chips it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A part of a request that waits for it.
    Request(u32),
    /// A page in the write buffer: of which disk, and of which time between two flushes.
    Buffered { disk: u32, epoch: u32 },
    /// Collection in a lane.
    Lane(u32),
    /// Collection in the background.
    Background,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Host(Task, Who),
    Collection(Task),
}

/// Operations of one pool of blocks in the order in which the translation layer decided on them.
///
/// A host's program waits until the collection before it is done: that is what makes room for it,
/// and it is the foreground collection whose time a writer pays (t_GC of equation 1). At most
/// `depth` pages are being moved at once: as many as there are page buffers for it. An erase waits
/// for the moves before it, and what comes after it for the erase.
#[derive(Debug)]
pub(super) struct Lane {
    items: VecDeque<Item>,
    moving: u32,
    erasing: bool,
    pub(super) depth: u32,
    /// Runs while pages are moved.
    pub(super) moves: Stopwatch,
    /// Runs while a block is erased.
    pub(super) erases: Stopwatch,
}

impl Lane {
    pub(super) fn new(depth: u32) -> Lane {
        Lane {
            items: VecDeque::new(),
            moving: 0,
            erasing: false,
            depth,
            moves: Stopwatch::default(),
            erases: Stopwatch::default(),
        }
    }

    pub(super) fn push_host(&mut self, task: Task, who: Who) {
        self.items.push_back(Item::Host(task, who));
    }

    pub(super) fn push_collection(&mut self, task: Task) {
        self.items.push_back(Item::Collection(task));
    }

    /// One of its moves or erases is done.
    pub(super) fn on_done(&mut self) {
        if self.erasing {
            self.erasing = false;
        } else {
            self.moving = self.moving.saturating_sub(1);
        }
    }

    /// Begins what may begin.
    pub(super) fn feed(&mut self, now: Nanos, own: u32, fabric: &mut Fabric) {
        self.begin(now, own, fabric);
        self.moves.run_while(self.moving > 0, now);
        self.erases.run_while(self.erasing, now);
    }

    fn begin(&mut self, now: Nanos, own: u32, fabric: &mut Fabric) {
        while let (Some(&item), false) = (self.items.front(), self.erasing) {
            match item {
                Item::Host(task, who) if self.moving == 0 => {
                    fabric.begin(now, task, Class::Host, who)
                }
                Item::Collection(task @ Task::Erase { .. }) if self.moving == 0 => {
                    self.erasing = true;
                    fabric.begin(now, task, Class::Collection, Who::Lane(own));
                }
                Item::Collection(task)
                    if self.moving < self.depth && !matches!(task, Task::Erase { .. }) =>
                {
                    self.moving += 1;
                    fabric.begin(now, task, Class::Collection, Who::Lane(own));
                }
                Item::Host(..) | Item::Collection(_) => return,
            }
            self.items.pop_front();
        }
    }
}
