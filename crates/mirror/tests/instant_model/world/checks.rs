//! What must hold in each state.

use super::{Broken, Case, Doubt, World, check};
use crate::machine::Machine;
use crate::storage::one;
use headgate_mirror::instant::{Outcome, State};

impl<M: Machine, const N: usize> World<M, N> {
    /// A crash now, a read now, and what the machine says of itself.
    pub(super) fn check_state(&self, case: &Case<N>) -> Result<(), Broken> {
        for block in 0..N {
            let (found, may) = (self.source.maybe(block), self.guest.after_crash(block));
            check(found & !may == 0, || {
                format!("a crash: block {block} may hold {found:b}, not only {may:b}")
            })?;
            let (reads, may) = (self.source.current(block), self.guest.possible(block));
            // Who is still to hear of a loss may be shown either.
            let told = !self.slots.iter().flatten().any(|out| out.lost);
            check(!told || one(reads) & may != 0, || {
                format!("block {block} reads as {reads}, not of {may:b}")
            })?;
        }
        if self.ended == Some(Outcome::Complete) {
            self.check_copy()?;
        }
        self.check_progress(case)?;
        self.check_ends()
    }

    fn check_ends(&self) -> Result<(), Broken> {
        let quiet = !self.copies_under_way();
        check(self.released == (self.ended.is_some() && quiet), || {
            format!("released: {}, ended: {:?}, quiet: {quiet}", self.released, self.ended)
        })?;
        let doubt = self.asked().any(|(slot, out)| out.doubt != Doubt::No && self.is_sent(slot));
        let finished = self.drained && self.all_read() && quiet && !doubt;
        check(!finished || self.ended.is_some(), || "waits, and all is copied".into())?;
        let asked = self.asked().next().is_some();
        let over = self.released && !asked;
        check(self.machine.is_over() <= over, || "over, and it is not".into())?;
        check(!over || !self.drained || self.machine.is_over(), || "not over, and it is".into())
    }

    fn check_progress(&self, case: &Case<N>) -> Result<(), Broken> {
        let progress = self.machine.progress();
        let size = N as u64;
        check(progress.size.0 == size, || format!("of {size}: {progress:?}"))?;
        check(progress.copied.0 <= size, || format!("too much: {progress:?}"))?;
        let (held, _) = self.buffers();
        let most = case.limits.buffers.0;
        check((held..=most).contains(&progress.buffers.0), || {
            format!("{held} bytes of {most} are in use: {progress:?}")
        })?;
        check(self.copies_under_way() || progress.buffers.0 == 0, || {
            format!("buffers of nobody: {progress:?}")
        })?;
        let waiting = self.asked().filter(|(slot, _)| !self.is_sent(*slot)).count();
        check(progress.waiting == waiting, || format!("{waiting} wait: {progress:?}"))?;
        let holds = match progress.state {
            State::Draining => !self.drained && self.ended.is_none(),
            State::Copying => self.drained && self.ended.is_none(),
            State::Finishing => self.drained && self.ended.is_none() && self.all_safe(),
            State::Complete => {
                self.ended == Some(Outcome::Complete) && progress.copied == progress.size
            }
            State::GivenUp => self.ended.is_some_and(|outcome| outcome != Outcome::Complete),
        };
        check(holds, || format!("it is not so: {progress:?}"))?;
        let known = self.steps_in_order();
        let said = self.machine.steps() as usize;
        check((known..=case.limits.ahead as usize).contains(&said), || {
            format!("{said} steps in order, and {known} are under way")
        })
    }
}
