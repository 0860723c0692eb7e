//! What is at the place to which a disk is moved or copied.

use crate::images;
use headgate_mirror::TargetContent;
use headgate_model::{Backend, Name};
use std::path::PathBuf;

/// The image or the device that is opened there, and what it holds before anything is written.
/// Where images are made, `directory` is theirs.
pub(crate) fn image_and_content(
    disk: &Name,
    backend: &Backend,
    directory: Option<PathBuf>,
) -> (PathBuf, TargetContent) {
    match (backend, directory) {
        (Backend::Block { device, .. }, _) => (device.clone(), TargetContent::Unknown),
        (Backend::Nbd { .. } | Backend::Stripe { .. }, _) => {
            (PathBuf::new(), TargetContent::Unknown)
        }
        (_, Some(directory)) => (images::image_path(&directory, disk), TargetContent::Zeroes),
        (_, None) => (PathBuf::new(), TargetContent::Zeroes),
    }
}
