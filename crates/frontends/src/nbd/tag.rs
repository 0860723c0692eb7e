use headgate_qos::ioprio::Ioprio;
use headgate_units::Priority;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The priority of all that comes in by one export. NBD has no field for one, so the name that a
/// client chose stands for it.
///
/// Clones are the same tag: a change reaches the connections that are open, from their next request
/// on.
#[derive(Clone, Debug, Default)]
pub struct Tag(Arc<AtomicU16>);

impl Tag {
    /// No priority: the virtual machine's default stands in.
    pub fn none() -> Tag {
        Tag::default()
    }

    /// This priority, before the virtual machine's cap.
    pub fn of(priority: Priority) -> Tag {
        let tag = Tag::none();
        tag.set(priority);
        tag
    }

    /// Changes the priority.
    pub fn set(&self, priority: Priority) {
        // Says nothing about other memory, and a request may still go with the old one.
        self.0.store(Ioprio::exactly(priority).0, Ordering::Relaxed);
    }

    /// The field as a guest would have written it.
    pub(super) fn ioprio(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }
}
