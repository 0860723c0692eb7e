//! The samples of one datastore that a view is made of, and a disk in them.

use super::{HELD_PERCENT, KEPT, SHOWN, Sample};
use headgate_api::top::NarrowedWindow;
use headgate_model::{DatastoreSample, DiskSample, Name};
use headgate_units::Iops;
use std::collections::HashMap;
use std::sync::Arc;

fn store<'a>(sample: &'a Sample, name: &Name) -> Option<&'a DatastoreSample> {
    sample.iter().find(|store| store.name == *name)
}

/// A disk of a sample. O(disks).
pub(super) fn disk<'a>(store: &'a DatastoreSample, name: &Name) -> Option<&'a DiskSample> {
    store.disk_near(name, 0)
}

/// The samples of one datastore that a view is made of.
pub(super) struct Span<'a> {
    /// Where the judgement of promises starts.
    pub oldest: &'a DatastoreSample,
    /// Where the loads start.
    pub before: &'a DatastoreSample,
    pub now: &'a DatastoreSample,
    /// All of them.
    all: Vec<&'a DatastoreSample>,
    /// Where a disk is in the last.
    places: HashMap<&'a Name, usize>,
}

/// A disk in a span.
#[derive(Clone, Copy)]
pub(super) struct DiskSpan<'a> {
    span: &'a Span<'a>,
    place: usize,
    pub now: &'a DiskSample,
}

impl<'a> Span<'a> {
    pub fn of(history: &'a [Arc<Sample>], name: &Name) -> Option<Span<'a>> {
        let all: Vec<&DatastoreSample> =
            history.iter().filter_map(|sample| store(sample, name)).collect();
        let now = *all.last()?;
        let before = all[all.len().saturating_sub(SHOWN + 1)];
        let places = now.disks.iter().enumerate().map(|(at, disk)| (&disk.name, at)).collect();
        Some(Span { oldest: all[0], before, now, all, places })
    }

    pub fn disk(&'a self, name: &Name) -> Option<DiskSpan<'a>> {
        let place = *self.places.get(name)?;
        Some(DiskSpan { span: self, place, now: self.now.disks.get(place)? })
    }

    pub fn disks(&'a self) -> impl Iterator<Item = DiskSpan<'a>> {
        let disks = self.now.disks.iter().enumerate();
        disks.map(|(place, now)| DiskSpan { span: self, place, now })
    }

    pub fn narrowed(&self) -> Option<NarrowedWindow> {
        let narrowed = self.now.narrowed.as_ref()?;
        Some(NarrowedWindow {
            disk: narrowed.disk.clone(),
            promise: narrowed.promise.into(),
            before_iops: narrowed.before,
            now_iops: narrowed.now,
        })
    }
}

impl<'a> DiskSpan<'a> {
    fn in_sample(self, store: &'a DatastoreSample) -> Option<&'a DiskSample> {
        self.span.now.earlier(self.place, store)
    }

    /// The disk where the judgement of promises starts, if that is before now.
    pub fn oldest(self) -> Option<&'a DiskSample> {
        self.in_sample(self.span.oldest).filter(|old| old.at() < self.now.at())
    }

    /// The disk where the loads start.
    pub fn before(self) -> Option<&'a DiskSample> {
        self.in_sample(self.span.before)
    }

    /// Whether it had requests.
    pub fn is_busy(self) -> bool {
        let old = self.in_sample(self.span.oldest);
        old.is_some_and(|old| self.now.rates_since(old).outstanding > 0.0)
    }

    /// What it got, in normalised IOs per second, if its requests waited and that was less than was
    /// reserved for it.
    pub fn missed(self, reservation: Iops) -> Option<f64> {
        // What a disk holds for its storage's trouble asks for nothing.
        if self.span.all.len() != KEPT || self.now.trouble.hold.is_some() {
            return None;
        }
        let mut samples = self.span.all.iter().rev();
        let waited = samples.all(|store| self.in_sample(store).is_some_and(|disk| disk.queued > 0));
        let old = self.oldest().filter(|_| waited)?;
        let got = self.now.rates_since(old).normalised_iops;
        let held = got * 100.0 >= (reservation.get() * HELD_PERCENT) as f64;
        (!held).then_some(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_model::Policy;
    use headgate_stats::DiskSnapshot;
    use headgate_units::Nanos;
    use proptest::prelude::*;

    /// Disks that were waited for as long as their numbers say, each second.
    fn sample(second: u64, numbers: &[u8]) -> Arc<Sample> {
        let disk = |number: &u8| {
            let waited = u128::from(*number) * u128::from(second) * 1_000_000_000;
            let at = Nanos::from_secs(second);
            let stats = DiskSnapshot { at, outstanding_time: waited, ..DiskSnapshot::default() };
            DiskSample::new(format!("d{number}").parse().unwrap(), Policy::default(), stats)
        };
        let disks = numbers.iter().map(disk).collect();
        Arc::new(vec![DatastoreSample::fresh("ds".parse().unwrap(), disks)])
    }

    proptest! {
        /// Whatever comes, goes and changes places between samples.
        #[test]
        fn a_disk_is_itself_in_each_sample(
            old in prop::sample::subsequence((1..40u8).collect::<Vec<_>>(), 0..39).prop_shuffle(),
            now in prop::sample::subsequence((1..40u8).collect::<Vec<_>>(), 0..39),
        ) {
            let history = [sample(1, &old), sample(2, &now)];
            let span = Span::of(&history, &"ds".parse().unwrap()).unwrap();
            prop_assert_eq!(span.disks().count(), now.len());
            for number in 1..40 {
                let name: Name = format!("d{number}").parse().unwrap();
                let disk = span.disk(&name);
                prop_assert_eq!(disk.is_some(), now.contains(&number));
                let Some(disk) = disk else { continue };
                prop_assert_eq!(disk.oldest().is_some(), old.contains(&number));
                if let Some(before) = disk.oldest() {
                    prop_assert_eq!(&before.name, &name);
                    let waiting = disk.now.rates_since(before).outstanding;
                    prop_assert_eq!(waiting, f64::from(number));
                }
            }
        }
    }
}
