//! The terms of the request that is answered.

use headgate_control::terms::{Run, Terms};

/// Of an answer: what was asked for was only tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct DryRan;

tokio::task_local! {
    pub(super) static TERMS: Terms;
}

/// The terms of the request that is answered.
pub(super) fn current() -> Terms {
    TERMS.try_with(Clone::clone).unwrap_or_default()
}

/// Whether nothing is to be changed.
pub(super) fn is_dry() -> bool {
    current().run == Run::Dry
}
