//! Keeps the accounts of all disks, a second at a time.

use crate::account::{Account, Minutes};
use crate::places;
use headgate_model::{DatastoreSample, DiskSample, Name};
use headgate_units::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Samples further apart than this say nothing of what was between them.
const GAP: Nanos = Nanos::from_secs(10);

/// Accounts by disk.
type Accounts = BTreeMap<Name, Minutes>;

/// Since when a disk has stood still without that being in its account, by the clock of samples.
type Uncounted = Option<Nanos>;

/// Keeps the accounts of all disks, a second at a time. What a disk is owed that stands still is
/// counted when it does so no more, or its minute is over: each second it would cost as much as all
/// else that is done for an idle disk.
#[derive(Default)]
pub(crate) struct Accountant {
    last: Arc<Vec<DatastoreSample>>,
    /// The minute in which that was taken.
    minute: i64,
    /// By the places of datastores and disks in it.
    uncounted: Vec<Vec<Uncounted>>,
}

impl Accountant {
    /// Takes the next sample. O(disks), with little for each that stands still.
    pub fn see(&mut self, now: Nanos, sample: &Arc<Vec<DatastoreSample>>, accounts: &mut Accounts) {
        let minute = (now.0 / 1_000_000_000 / 60 * 60).cast_signed();
        let same_places = places::are_same(&self.last, sample);
        if minute != self.minute || !same_places {
            self.settle(accounts);
        }
        if !same_places {
            self.uncounted = places::all(sample, &None);
        }
        self.minute = minute;
        let last = std::mem::replace(&mut self.last, sample.clone());
        for (store, uncounted) in sample.iter().zip(&mut self.uncounted) {
            let Some(before) = last.iter().find(|old| old.name == store.name) else { continue };
            for (place, (disk, uncounted)) in store.disks.iter().zip(uncounted).enumerate() {
                let Some(old) = store.earlier(place, before) else { continue };
                let length = disk.at().since(old.at());
                if disk.stood_still_since(old) && length <= GAP {
                    uncounted.get_or_insert(old.at());
                    continue;
                }
                count_still(minute, old, uncounted.take(), accounts);
                if length > Nanos::ZERO && length <= GAP {
                    count(minute, disk, &Account::between(old, disk), accounts);
                }
            }
        }
    }

    /// Counts what is not counted yet.
    pub fn settle(&mut self, accounts: &mut Accounts) {
        for (store, uncounted) in self.last.iter().zip(&mut self.uncounted) {
            for (disk, uncounted) in store.disks.iter().zip(uncounted) {
                count_still(self.minute, disk, uncounted.take(), accounts);
            }
        }
    }
}

/// A disk has stood still from an uncounted instant on until a sample of it.
fn count_still(minute: i64, until: &DiskSample, since: Uncounted, accounts: &mut Accounts) {
    if let Some(since) = since {
        count(minute, until, &Account::still(until, until.at().since(since)), accounts);
    }
}

fn count(minute: i64, disk: &DiskSample, account: &Account, accounts: &mut Accounts) {
    if !account.is_empty() {
        let minutes = accounts.entry(disk.name.clone()).or_default();
        minutes.entry(minute).or_default().merge(account);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample;
    use proptest::prelude::*;

    /// What a disk does in a second.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Second {
        Still,
        Works,
        IsAway,
    }

    /// Samples of two disks, second by second, in which those that stand still share what is told,
    /// or do not.
    fn samples(seconds: &[[Second; 2]], share: bool) -> Vec<Arc<Vec<DatastoreSample>>> {
        let (mut done, mut last) = ([1, 1], [None::<DiskSample>, None]);
        let mut at = 0;
        let mut all = Vec::new();
        for does in seconds {
            at += 1;
            let mut stores = sample(at, &[("a", 0), ("b", 0)]).to_vec();
            let disks = std::mem::take(&mut stores[0].disks);
            for (n, mut disk) in disks.into_iter().enumerate() {
                if does[n] == Second::IsAway {
                    last[n] = None;
                    continue;
                }
                done[n] += u64::from(does[n] == Second::Works) * 50;
                disk.policy = serde_json::from_str(r#"{"reservation": 100}"#).unwrap();
                Arc::make_mut(&mut disk.counted).reads.counts.done = done[n];
                if share
                    && does[n] == Second::Still
                    && let Some(last) = &last[n]
                {
                    let mut earlier = last.clone();
                    // As it was, a second later.
                    earlier.set_at(disk.at());
                    disk = earlier;
                }
                last[n] = Some(disk.clone());
                stores[0].disks.push(disk);
            }
            all.push(Arc::new(stores));
        }
        all
    }

    fn accounts(samples: &[Arc<Vec<DatastoreSample>>], begin: u64, settle_at: usize) -> Accounts {
        let (mut accountant, mut accounts) = (Accountant::default(), BTreeMap::new());
        for (n, (second, sample)) in (begin..).zip(samples).enumerate() {
            accountant.see(Nanos::from_secs(second), sample, &mut accounts);
            if n == settle_at {
                accountant.settle(&mut accounts);
            }
        }
        accountant.settle(&mut accounts);
        accounts
    }

    proptest! {
        /// Whatever stands still, comes and goes, and wherever minutes begin.
        #[test]
        fn a_disk_that_stands_still_has_the_account_of_one_that_is_read_again(
            seconds in prop::collection::vec(
                prop::array::uniform2(prop_oneof![
                    4 => Just(Second::Still),
                    2 => Just(Second::Works),
                    1 => Just(Second::IsAway),
                ]),
                1..80,
            ),
            begin in 0u64..60,
            settle_at in 0usize..80,
        ) {
            let shared = accounts(&samples(&seconds, true), begin, settle_at);
            let plain = accounts(&samples(&seconds, false), begin, 100);
            prop_assert_eq!(shared, plain);
        }
    }
}
