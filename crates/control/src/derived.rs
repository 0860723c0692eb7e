//! What is derived of the model, and made anew only where the model was changed since.

use crate::leases::Bell;
use crate::state::Model;
use std::ops::{Deref, DerefMut};
use std::sync::RwLockWriteGuard;

/// Something that was derived of the model after so many changes of it.
#[derive(Debug)]
pub(crate) struct Derived<T>(Option<(u64, T)>);

impl<T> Default for Derived<T> {
    fn default() -> Derived<T> {
        Derived(None)
    }
}

impl<T> Derived<T> {
    /// What is derived after this many changes. O(1) but for the first time.
    pub(crate) fn at(&mut self, changes: u64, derive: impl FnOnce() -> T) -> &T {
        let known = self.0.take().filter(|(at, _)| *at == changes);
        let (_, known) = self.0.insert(known.unwrap_or_else(|| (changes, derive())));
        known
    }
}

/// The model while it is changed. The bell is rung once it is let go.
pub(crate) struct Changing<'a> {
    // First, so that nobody is woken who has to wait for it.
    model: RwLockWriteGuard<'a, Model>,
    _rings: Rings<'a>,
}

struct Rings<'a>(&'a Bell);

impl Drop for Rings<'_> {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl<'a> Changing<'a> {
    pub(crate) fn new(model: RwLockWriteGuard<'a, Model>, bell: &'a Bell) -> Changing<'a> {
        Changing { model, _rings: Rings(bell) }
    }
}

impl Deref for Changing<'_> {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.model
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Model {
        &mut self.model
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against one that is derived each time, and made anew no more often than it changes.
        #[test]
        fn what_is_derived_is_of_the_last_change_and_derived_once(
            changed in prop::collection::vec(any::<bool>(), 1..50),
        ) {
            let (mut derived, mut made, mut changes) = (Derived::default(), 0, 0);
            for changed in &changed {
                changes += u64::from(*changed);
                let found = *derived.at(changes, || {
                    made += 1;
                    changes * 10
                });
                prop_assert_eq!(found, changes * 10);
            }
            let first = usize::from(!changed[0]);
            prop_assert_eq!(made, first + changed.iter().filter(|changed| **changed).count());
        }
    }
}
