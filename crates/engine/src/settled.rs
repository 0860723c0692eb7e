//! What a disk holds when the engine has ended, as far as that is known for certain.

use crate::backend::file::image::FileImage;
use crate::backend::storage::Storage;
use crate::clock;
use headgate_mirror::changes::Changes;
use headgate_mirror::stamp::Stamp;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// How an engine ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// The names of disks that have requests at their storage still, which hangs then.
    pub left: Vec<String>,
    /// Disks whose changes were noted to the last one, in no order.
    pub settled: Vec<Settled>,
}

/// A disk that is closed. All that was asked of it has ended and is durable, nothing of that was
/// lost, and what its clients changed is noted.
#[derive(Debug)]
pub struct Settled {
    /// Its name.
    pub name: String,
    /// Where it is noted. Nobody marks there any more.
    pub changes: Arc<Changes>,
    /// Its image, after the last change and before it was unlocked. Whoever changed it later has
    /// given it another stamp.
    pub stamp: Stamp,
}

/// How often is looked for a stamp that sees changes: a tick of the clock is over by then, but for
/// one that is set back.
const LOOKS: u32 = 3;

/// Makes durable what an image holds, and answers its stamp, once that sees any later change.
/// `None`: there is no such stamp, or it is not known what the image holds. The image is still
/// locked for this process. Blocks.
fn settle(image: &FileImage) -> Option<Stamp> {
    image.stamp()?;
    if let Err(error) = image.file().sync_all() {
        tracing::warn!(%error, "an image could not be made durable at the end");
        return None;
    }
    for _ in 0..LOOKS {
        let stamp = image.stamp()?;
        let (from, now) = (stamp.sees_from()?, clock::realtime());
        if now >= from {
            // As long as the lease holds, nobody else has changed the image.
            let is_ours = !image.tenure().is_over_at(clock::boottime());
            return is_ours.then_some(stamp);
        }
        sleep(Duration::from_nanos(from.since(now).0.min(TICKS.as_nanos() as u64)));
    }
    None
}

/// The longest that is waited for at once.
const TICKS: Duration = Duration::from_millis(20);

impl Settled {
    /// Of a disk that is about to be closed. Blocks.
    pub(crate) fn of(name: String, changes: Arc<Changes>, storage: &Storage) -> Option<Settled> {
        let stamp = settle(&storage.file()?.image)?;
        Some(Settled { name, changes, stamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::file::Caching;
    use headgate_units::{AtomicNanos, Bytes, Nanos};
    use std::os::unix::fs::FileExt;

    #[test]
    fn an_image_is_settled_when_a_change_would_be_seen_and_it_is_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.img");
        FileImage::create(&path, Bytes::from_mib(1)).unwrap();
        let (mut image, ..) = FileImage::open(&path, Caching::Buffered, Duration::ZERO).unwrap();
        if image.stamp().is_none() {
            eprintln!("left out: the file system of {} tells nothing", dir.path().display());
            return;
        }
        image.file().write_all_at(&[1; 4096], 0).unwrap();
        let stamp = settle(&image).unwrap();
        assert!(clock::realtime() >= stamp.sees_from().unwrap());
        assert_eq!(image.stamp(), Some(stamp));
        image.file().write_all_at(&[2], 0).unwrap();
        assert_ne!(image.stamp(), Some(stamp), "written just after it");
        image.set_term(Arc::new(AtomicNanos::new(Nanos::MAX)));
        assert!(settle(&image).is_some());
        image.set_term(Arc::new(AtomicNanos::new(Nanos(1))));
        assert_eq!(settle(&image), None, "its lease has ended");
    }
}
