//! The table of owners: who comes and who goes.

use crate::error::{FtlError, OwnerError};
use crate::ftl::Ftl;
use crate::map::{Entry, nowhere};
use crate::medium::Medium;
use crate::owner::{KnownOwner, OwnerId, OwnerSpec, OwnerStats};
use crate::pace::{Pace, Spent};
use crate::pool::Meter;
use alloc::vec::Vec;

pub(crate) struct Owner {
    /// `None`: the place is vacant.
    pub id: Option<OwnerId>,
    pub spec: OwnerSpec,
    pub since: u64,
    pub map: Vec<Entry>,
    pub tombstones: u32,
    pub stats: OwnerStats,
    /// Pages moved because it wrote, by whose they were: by place in the table of owners.
    pub moved_of: Vec<u64>,
}

/// Owners of whom is counted whose pages each of them has moved: the square of it is memory.
const PAIRED: usize = 256;

impl<M: Medium> Ftl<M> {
    /// Takes an owner in. In the isolated modes over-provisioning space is divided anew; blocks
    /// follow as they are collected.
    ///
    /// The answer has to be remembered where a crash does not reach it, before the owner's first
    /// write. O(owners).
    ///
    /// # Errors
    /// [`OwnerError`].
    pub fn add_owner(&mut self, id: OwnerId, spec: OwnerSpec) -> Result<KnownOwner, OwnerError> {
        if self.stopped {
            return Err(FtlError::Stopped.into());
        }
        if self.place_of(id).is_some() {
            return Err(OwnerError::Exists(id));
        }
        if spec.pages == 0 {
            return Err(OwnerError::NoPages(id));
        }
        let (needed, left) = self.room_for(spec.pages);
        if needed > left {
            return Err(OwnerError::NoSpace { id, needed, left });
        }
        let since = self.sequence;
        self.enter(KnownOwner { id, spec, since });
        self.divide();
        Ok(KnownOwner { id, spec, since })
    }

    /// Gives an owner more logical pages, so many in all. New ones were never written.
    /// Over-provisioning space is divided anew. O(pages + owners).
    ///
    /// The answer has to be remembered as that of [`add_owner`](Ftl::add_owner).
    ///
    /// # Errors
    /// [`OwnerError`], also when it has more pages already; it has the pages that it had.
    pub fn grow_owner(&mut self, id: OwnerId, pages: u32) -> Result<KnownOwner, OwnerError> {
        if self.stopped {
            return Err(FtlError::Stopped.into());
        }
        let o = self.place_of(id).ok_or(OwnerError::Unknown(id))?;
        let before = self.owners[o].spec.pages;
        if pages < before {
            return Err(OwnerError::Shrinks { id, before, pages });
        }
        let (needed, left) = self.room_to_grow(before, pages);
        if needed > left {
            return Err(OwnerError::NoSpace { id, needed, left });
        }
        let owner = &mut self.owners[o];
        owner.map.resize(pages as usize, Entry::NOWHERE);
        owner.spec.pages = pages;
        let known = KnownOwner { id, spec: owner.spec, since: owner.since };
        self.divide();
        Ok(known)
    }

    pub(crate) fn enter(&mut self, known: KnownOwner) -> usize {
        let owner = Owner {
            id: Some(known.id),
            spec: known.spec,
            since: known.since,
            map: nowhere(known.spec.pages),
            tombstones: 0,
            stats: OwnerStats::default(),
            moved_of: Vec::new(),
        };
        let place =
            self.owners.iter().position(|owner| owner.id.is_none()).unwrap_or(self.owners.len());
        if place == self.owners.len() {
            self.owners.push(owner);
        } else {
            self.owners[place] = owner;
        }
        let paired = self.owners.len().min(PAIRED);
        for owner in &mut self.owners[..paired] {
            owner.moved_of.resize(paired, 0);
            if let Some(pages) = owner.moved_of.get_mut(place) {
                *pages = 0;
            }
        }
        let number = usize::from(known.id.0);
        if self.numbers.len() <= number {
            self.numbers.resize(number + 1, 0);
        }
        self.numbers[number] = place as u32 + 1;
        if !self.is_shared() {
            if self.pools.len() <= place {
                let pool = self.new_pool();
                self.pools.push(pool);
            }
            let window = self.window();
            self.pools[place].meter = Meter::new(window);
            self.pools[place].pace = Pace::new(window);
            self.pools[place].adjusted_at = 0;
        }
        place
    }

    /// Tells what time passed for an owner since the last report. Who has the clock tells it before
    /// each write, so that what is collected for that write finds it; who never does gets targets
    /// by the chip's times. O(1).
    pub fn spent(&mut self, owner: OwnerId, time: Spent) {
        if let Some(o) = self.place_of(owner).filter(|_| !self.is_shared()) {
            self.pools[o].pace.spend(time);
        }
    }

    /// Gives an owner's pages up. Its blocks are erased in the background, its over-provisioning
    /// space goes to the others. O(its pages + owners).
    ///
    /// # Errors
    /// [`OwnerError::Unknown`], [`FtlError::Stopped`].
    pub fn remove_owner(&mut self, id: OwnerId) -> Result<(), OwnerError> {
        if self.stopped {
            return Err(FtlError::Stopped.into());
        }
        let o = self.place_of(id).ok_or(OwnerError::Unknown(id))?;
        for entry in core::mem::take(&mut self.owners[o].map) {
            self.forget(entry);
        }
        self.owners[o].id = None;
        self.owners[o].spec.pages = 0;
        self.numbers[usize::from(id.0)] = 0;
        if !self.is_shared() {
            self.vacate(o);
        }
        self.divide();
        Ok(())
    }
}
