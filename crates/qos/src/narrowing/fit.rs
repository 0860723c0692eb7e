//! The window that suits one promise, as far as it is known.

use crate::cost::Cost;
use crate::window::WorkWindow;

/// What judgements of a promise said of the window, since it was last said that none helps.
#[derive(Clone, Copy, Default)]
pub(super) struct Fit {
    /// How often in a row it was kept.
    kept: u32,
    window: Option<WorkWindow>,
}

impl Fit {
    /// The promise is kept in this window.
    pub(super) fn is_kept(&mut self, window: WorkWindow) {
        let widest = self.window.filter(|_| self.kept > 0);
        self.window = Some(widest.map_or(window, |widest| widest.max(window)));
        self.kept = self.kept.saturating_add(1);
    }

    /// It is broken, and this window is to keep it.
    pub(super) fn is_short(&mut self, wanted: WorkWindow) {
        let most = Cost::from_millionths(wanted.work.as_millionths() / 2);
        *self = Fit { kept: 0, window: Some(WorkWindow { most, ..wanted }) };
    }

    /// It is broken, and what was done is not seen yet.
    pub(super) fn is_pending(&mut self) {
        self.kept = 0;
    }

    /// No window is of use to it.
    pub(super) fn forget(&mut self) {
        *self = Fit::default();
    }

    /// Whether it was kept only once since it was last broken.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.kept == 1
    }

    /// The widest window that keeps it, or the one that is to; `None` where none is needed.
    pub(super) fn window(&self) -> Option<WorkWindow> {
        self.window
    }
}
