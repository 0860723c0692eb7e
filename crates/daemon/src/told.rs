//! What was last told of disks, in the words of the model.

use headgate_engine::DatastoreId;
use headgate_engine::snapshot::DiskSnapshot;
use headgate_model::DiskTold;
use std::collections::HashMap;
use std::sync::Arc;

/// What was last told of the disks of each datastore: of one that stands still it is told again.
/// None: it is one of the daemon's own, which have names that no operator can give.
#[derive(Default)]
pub(crate) struct Told(pub(crate) HashMap<DatastoreId, Translations<DiskSnapshot, DiskTold>>);

/// The translations of things that are shared while they stay what they are, in their order.
pub(crate) struct Translations<A, B>(Vec<(Arc<A>, Option<Arc<B>>)>);

impl<A, B> Default for Translations<A, B> {
    fn default() -> Translations<A, B> {
        Translations(Vec::new())
    }
}

impl<A, B> Translations<A, B> {
    /// Takes what there is now, and has `translate` translate what is new. O(all). Where none came
    /// or went, one that stayed takes a comparison.
    pub(crate) fn update<'a>(
        &mut self,
        all: impl ExactSizeIterator<Item = &'a Arc<A>>,
        translate: impl Fn(&A) -> Option<B>,
    ) where
        A: 'a,
    {
        let new = |one: &Arc<A>| (one.clone(), translate(one).map(Arc::new));
        if self.0.len() == all.len() {
            for (known, one) in self.0.iter_mut().zip(all) {
                // Each is where it was, but for a rare exception, which costs a translation.
                if !Arc::ptr_eq(&known.0, one) {
                    *known = new(one);
                }
            }
            return;
        }
        let before: HashMap<*const A, _> =
            self.0.drain(..).map(|known| (Arc::as_ptr(&known.0), known)).collect();
        let known = |one: &Arc<A>| before.get(&Arc::as_ptr(one)).cloned();
        self.0 = all.map(|one| known(one).unwrap_or_else(|| new(one))).collect();
    }

    /// The translations, in the order of what they are of.
    pub(crate) fn all(&self) -> impl Iterator<Item = Option<&Arc<B>>> {
        self.0.iter().map(|(_, told)| told.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Comes(usize),
        Goes(usize),
        Changes(usize),
        Swap(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..9usize).prop_map(Step::Comes),
            (0..9usize).prop_map(Step::Goes),
            (0..9usize).prop_map(Step::Changes),
            (0..9usize).prop_map(Step::Swap),
        ];
        prop::collection::vec(step, 0..4)
    }

    fn take(all: &mut Vec<Arc<u32>>, step: Step, next: u32) {
        let len = all.len();
        match step {
            Step::Comes(at) => all.insert(at.min(len), Arc::new(next)),
            Step::Goes(at) if at < len => _ = all.remove(at),
            Step::Changes(at) if at < len => all[at] = Arc::new(next),
            Step::Swap(at) if at + 1 < len => all.swap(at, at + 1),
            Step::Goes(_) | Step::Changes(_) | Step::Swap(_) => {}
        }
    }

    proptest! {
        /// Against a translation of all, each time; every fifth has none.
        #[test]
        fn each_has_its_own_translation_and_keeps_it(
            passes in prop::collection::vec(steps(), 1..20),
        ) {
            let translate = |one: &u32| (!one.is_multiple_of(5)).then(|| one * 10);
            let (mut all, mut known) = (Vec::new(), Translations::default());
            let mut next = 0;
            for pass in passes {
                let before = all.clone();
                for step in pass {
                    next += 1;
                    take(&mut all, step, next);
                }
                let asked = Cell::new(0);
                known.update(all.iter(), |one| {
                    asked.set(asked.get() + 1);
                    translate(one)
                });
                let told: Vec<Option<u32>> = known.all().map(|one| one.map(|one| **one)).collect();
                prop_assert_eq!(told, all.iter().map(|one| translate(one)).collect::<Vec<_>>());
                let is_new = |one: &&Arc<u32>| !before.iter().any(|old| Arc::ptr_eq(old, one));
                let new = all.iter().filter(is_new).count();
                let stayed = all.iter().zip(&before).all(|(one, old)| {
                    Arc::ptr_eq(one, old) || !before.iter().any(|old| Arc::ptr_eq(old, one))
                });
                if stayed || all.len() != before.len() {
                    prop_assert_eq!(asked.get(), new, "only what is new is translated");
                }
            }
        }
    }
}
