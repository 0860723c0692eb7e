//! Instants at which a test ends the program, to see what the next one makes of it.

/// An instant between two steps that must each survive alone. Does nothing outside tests.
#[inline]
pub(crate) fn point(_name: &'static str) {
    #[cfg(test)]
    testing::pass(_name);
}

/// Whether a test has ended the program: what is dropped now was never dropped. Not outside tests.
#[inline]
pub(crate) fn has_happened() -> bool {
    #[cfg(test)]
    return testing::has_ended();
    #[cfg(not(test))]
    false
}

#[cfg(test)]
pub(crate) mod testing {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::{Arc, Mutex};

    thread_local! {
        static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
    }

    /// When the program ends. Workers that act for a thread have its plan.
    #[derive(Clone, Default)]
    pub(crate) struct Plan(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        /// How many instants are passed before the end.
        left: usize,
        passed: Vec<&'static str>,
        ended: bool,
    }

    /// What ends the program.
    struct Killed;

    pub(super) fn pass(name: &'static str) {
        let Some(Plan(plan)) = PLAN.with_borrow(Option::clone) else { return };
        let mut plan = plan.lock().unwrap();
        if plan.ended {
            return;
        }
        plan.passed.push(name);
        if plan.left == 0 {
            plan.ended = true;
            drop(plan);
            // No message: it is no failure.
            resume_unwind(Box::new(Killed));
        }
        plan.left -= 1;
    }

    /// Whether this thread's plan has come to its end.
    pub(crate) fn has_ended() -> bool {
        plan().is_some_and(|Plan(plan)| plan.lock().unwrap().ended)
    }

    /// The plan of this thread, for one that acts for it.
    pub(crate) fn plan() -> Option<Plan> {
        PLAN.with_borrow(Option::clone)
    }

    /// Runs `work` under another thread's plan.
    pub(crate) fn under<T>(plan: Option<Plan>, work: impl FnOnce() -> T) -> T {
        PLAN.set(plan);
        let done = catch_unwind(AssertUnwindSafe(work));
        PLAN.set(None);
        done.unwrap_or_else(|e| resume_unwind(e))
    }

    /// Runs `work` and ends it at the instant after `instants` others. Returns the name of that
    /// instant, or `None` when `work` came to its own end before.
    pub(crate) fn killed_after<T>(
        instants: usize,
        work: impl FnOnce() -> T,
    ) -> Option<&'static str> {
        let plan = Plan::default();
        plan.0.lock().unwrap().left = instants;
        // What it answers, or that a worker was cut, is of no interest to one that was killed.
        let end = catch_unwind(AssertUnwindSafe(|| under(Some(plan.clone()), work)));
        let state = plan.0.lock().unwrap();
        match end {
            _ if state.ended => state.passed.last().copied(),
            Ok(_) => None,
            Err(e) => resume_unwind(e),
        }
    }
}
