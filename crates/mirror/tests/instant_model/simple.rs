//! A machine that is easy to believe: a mark for each chunk, a step for one chunk at a time, and
//! changes whole. It proves the model, and so do the wrong ones that are made of it.

use super::defect::Defect;
use super::machine::Machine;
use headgate_mirror::instant::{
    Action, Keeps, NotTaken, Outcome, Over, Progress, Reason, Setup, SetupError, State, Unexpected,
};
use headgate_mirror::{
    Completion, Durability, Extent, Found, Job, Op, Request, RequestId, Side, StepId,
    TargetContent, Turn, Unmap,
};
use headgate_units::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mark {
    Old,
    Reading,
    Safe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Examining,
    Reading,
    Writing,
    Zeroing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Step {
    chunk: usize,
    stage: Stage,
    in_order: bool,
    keeps: Keeps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    id: RequestId,
    request: Request,
    sent: bool,
    /// It may tell of a loss of what was read.
    doubt: bool,
    again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flush {
    NotYet,
    UnderWay,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Simple {
    setup: Setup,
    defect: Defect,
    keeps: Keeps,
    chunk: u64,
    drained: bool,
    marks: Vec<Mark>,
    steps: Vec<Option<Step>>,
    asked: Vec<Asked>,
    flush: Flush,
    ended: Option<Outcome>,
    released: bool,
}

fn vouches(request: Request) -> bool {
    use Durability::Fua;
    matches!(request, Request::Flush | Request::Write(_, Fua) | Request::Zero(_, _, Fua))
}

fn op_of(request: Request) -> Op {
    match request {
        Request::Read(extent) => Op::Read(extent),
        Request::Write(extent, durability) => Op::Write(extent, durability),
        Request::Discard(extent) => Op::Discard(extent),
        Request::Zero(extent, unmap, durability) => Op::Zero(extent, unmap, durability),
        Request::Flush => Op::Flush,
    }
}

impl Simple {
    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn extent(&self, chunk: usize) -> Result<Extent, Unexpected> {
        let start = chunk as u64 * self.chunk;
        let len = self.chunk.min(self.setup.size.0 - start);
        Extent::new(Bytes(start), Bytes(len)).ok_or(Unexpected::NothingUnderWay)
    }

    fn chunks(&self, request: Request) -> std::ops::Range<usize> {
        let of = |e: Extent| e.start().0 / self.chunk..e.end().0.div_ceil(self.chunk);
        let chunks = request.extent().map_or(0..0, of);
        chunks.start as usize..chunks.end as usize
    }

    fn are_safe(&self, request: Request) -> bool {
        let early = self.is(Defect::WritesBeforeRead);
        let ready = |mark: &Mark| *mark == Mark::Safe || (early && *mark == Mark::Reading);
        self.marks[self.chunks(request)].iter().all(ready)
    }

    fn all_safe(&self) -> bool {
        self.marks.iter().all(|mark| *mark == Mark::Safe)
    }

    fn buffers(&self, only_in_order: bool) -> u64 {
        let steps = self.steps.iter().flatten();
        let holds = |step: &&Step| {
            step.keeps == Keeps::Buffers && matches!(step.stage, Stage::Reading | Stage::Writing)
        };
        let steps = steps.filter(holds).filter(|step| step.in_order || !only_in_order);
        steps.filter_map(|step| self.extent(step.chunk).ok()).map(|e| e.len().0).sum()
    }

    fn has_room(&self, in_order: bool) -> bool {
        let most = self.setup.limits.buffers.0;
        let half = (most / 2).max(self.chunk);
        let share = self.is(Defect::IgnoresShareInOrder);
        self.is(Defect::IgnoresMemory)
            || self.keeps == Keeps::Target
            || (self.is(Defect::SharesForEver) && self.setup.keeps == Keeps::Target)
            || (self.buffers(false) + self.chunk <= most
                && (!in_order || share || self.buffers(true) + self.chunk <= half))
    }

    fn send(&mut self, at: usize, out: &mut Vec<Action>) {
        let doubt = self.ended.is_none() && !self.all_safe() && vouches(self.asked[at].request);
        self.asked[at].sent = true;
        self.asked[at].doubt |= doubt;
        let Asked { id, request, .. } = self.asked[at];
        let (side, job) = (Side::Source, Job::Request(id));
        if self.is(Defect::AnswersBeforeTheSource) && self.ended.is_none() {
            out.push(Action::Answer(id, Completion::Done));
        }
        out.push(Action::Send { side, job, op: op_of(request) });
    }

    fn begin(&mut self, chunk: usize, stage: Stage, in_order: bool, out: &mut Vec<Action>) -> bool {
        if self.is(Defect::IgnoresSteps) && self.steps.iter().all(Option::is_some) {
            self.steps.push(None);
        }
        let Some(at) = self.steps.iter().position(Option::is_none) else { return false };
        self.steps[at] = Some(Step { chunk, stage, in_order, keeps: self.keeps });
        if stage == Stage::Reading {
            self.marks[chunk] = Mark::Reading;
        }
        self.order(at, out);
        true
    }

    /// Sends what a step is at.
    fn order(&self, at: usize, out: &mut Vec<Action>) {
        let Some(step) = self.steps[at] else { return };
        let Ok(extent) = self.extent(step.chunk) else { return };
        let (side, op) = match step.stage {
            Stage::Examining => (Side::Source, Op::Examine(extent)),
            Stage::Reading => (Side::Source, Op::Read(extent)),
            Stage::Writing => (Side::Target, Op::Write(extent, Durability::Cached)),
            Stage::Zeroing => (Side::Target, Op::Zero(extent, Unmap::May, Durability::Cached)),
        };
        out.push(Action::Send { side, job: Job::Copy(StepId(at as u32)), op });
    }

    /// Whatever may go on does.
    fn go_on(&mut self, out: &mut Vec<Action>) {
        if self.ended.is_none() && self.drained {
            self.changes(out);
            self.finish(out);
        }
        let copies = self.steps.iter().any(Option::is_some) || self.flush == Flush::UnderWay;
        let quiet = !copies || self.is(Defect::ReleasesEarly);
        let releases = !self.released && !self.is(Defect::NeverReleases);
        if self.ended.is_some() && quiet && releases {
            self.released = true;
            out.push(Action::Release);
        }
    }

    fn changes(&mut self, out: &mut Vec<Action>) {
        let mut order: Vec<usize> = (0..self.asked.len()).collect();
        if self.is(Defect::Overtakes) {
            order.reverse();
        }
        let mut full = false;
        for at in order {
            if self.asked[at].sent {
                continue;
            }
            let request = self.asked[at].request;
            let read: Vec<usize> =
                self.chunks(request).filter(|chunk| self.marks[*chunk] == Mark::Old).collect();
            for chunk in read {
                full |= !self.has_room(false);
                full = full || !self.begin(chunk, Stage::Reading, false, out);
            }
            if self.are_safe(request) {
                self.send(at, out);
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        let early = self.is(Defect::FlushesEarly);
        if !self.all_safe() || (!early && self.steps.iter().any(Option::is_some)) {
            return;
        }
        if self.is(Defect::CompletesWithoutFlush) {
            self.flush = Flush::Done;
        }
        let doubt = self.asked.iter().any(|asked| asked.doubt);
        let doubt = doubt && !self.is(Defect::CompletesDespiteDoubt);
        match self.flush {
            Flush::NotYet => {
                self.flush = Flush::UnderWay;
                let (side, job) = (Side::Target, Job::LastFlush);
                out.push(Action::Send { side, job, op: Op::Flush });
            }
            Flush::Done if !doubt && self.steps.iter().all(Option::is_none) => {
                self.end(Outcome::Complete, out);
            }
            Flush::UnderWay | Flush::Done => {}
        }
    }

    fn end(&mut self, outcome: Outcome, out: &mut Vec<Action>) {
        self.ended = Some(outcome);
        out.push(Action::Ended(outcome));
        if self.is(Defect::EndsTwice) {
            out.push(Action::Ended(outcome));
        }
        if self.is(Defect::ForgetsWaitingAtTheEnd) {
            return;
        }
        if self.is(Defect::FailsRequestsWithTarget) {
            let waiting = self.asked.iter().filter(|asked| !asked.sent);
            out.extend(waiting.map(|asked| Action::Answer(asked.id, Completion::Failed)));
            self.asked.retain(|asked| asked.sent);
        }
        for at in 0..self.asked.len() {
            if !self.asked[at].sent {
                self.send(at, out);
            }
        }
    }

    fn give_up(&mut self, reason: Reason, out: &mut Vec<Action>) {
        if self.ended.is_none() {
            self.end(Outcome::GivenUp(reason), out);
        }
    }

    fn step_at(&self, step: StepId, stage: Stage) -> Option<Step> {
        let step = (*self.steps.get(step.0 as usize)?)?;
        (step.stage == stage).then_some(step)
    }

    /// The next of a step, or its end.
    fn next(&mut self, at: usize, stage: Option<Stage>, out: &mut Vec<Action>) {
        let stage = stage.filter(|_| self.ended.is_none());
        let keeps =
            |step: Step, stage| if stage == Stage::Reading { self.keeps } else { step.keeps };
        self.steps[at] = self.steps[at].zip(stage).map(|(step, stage)| Step {
            stage,
            keeps: keeps(step, stage),
            ..step
        });
        self.order(at, out);
    }

    fn request_done(&mut self, at: usize, how: Completion, out: &mut Vec<Action>) {
        let asked = self.asked[at];
        let changes = !matches!(asked.request, Request::Read(_) | Request::Flush);
        if self.is(Defect::SendsTwice) && !asked.again && changes {
            self.asked[at].again = true;
            return self.send(at, out);
        }
        self.asked.remove(at);
        let how = if self.is(Defect::SwallowsFailures) { Completion::Done } else { how };
        out.push(Action::Answer(asked.id, how));
        if self.is(Defect::AnswersTwice) {
            out.push(Action::Answer(asked.id, how));
        }
        let ignores = self.is(Defect::IgnoresFailedFlush);
        if asked.doubt && how == Completion::Failed && !ignores {
            self.give_up(Reason::SourceNotDurable, out);
        }
    }

    fn step_done(&mut self, at: usize, step: Step, how: Completion, out: &mut Vec<Action>) {
        match (step.stage, how) {
            (Stage::Examining, _) => self.examined(at, step, out),
            (Stage::Reading, Completion::Done) => {
                if !self.is(Defect::WaitsForTarget) {
                    self.marks[step.chunk] = Mark::Safe;
                }
                self.next(at, Some(Stage::Writing), out);
                let last = step.chunk + 1 == self.marks.len();
                if self.is(Defect::ReadsAgain) && last && step.in_order {
                    self.begin(step.chunk, Stage::Reading, false, out);
                }
            }
            (Stage::Reading, Completion::Failed) => {
                self.next(at, None, out);
                if self.is(Defect::IgnoresFailedRead) {
                    self.marks[step.chunk] = Mark::Safe;
                } else {
                    self.give_up(Reason::SourceUnreadable, out);
                }
            }
            (Stage::Writing | Stage::Zeroing, how) => {
                if self.is(Defect::WaitsForTarget) {
                    self.marks[step.chunk] = Mark::Safe;
                }
                if !self.is(Defect::KeepsBuffers) || step.in_order {
                    self.next(at, None, out);
                }
                if how == Completion::Failed && !self.is(Defect::IgnoresFailedTarget) {
                    self.give_up(Reason::TargetFailed, out);
                }
            }
        }
    }

    /// It is data, as far as anybody knows.
    fn examined(&mut self, at: usize, step: Step, out: &mut Vec<Action>) {
        let old = self.marks[step.chunk] == Mark::Old && self.ended.is_none();
        if old && self.has_room(true) {
            self.marks[step.chunk] = Mark::Reading;
            return self.next(at, Some(Stage::Reading), out);
        }
        self.next(at, None, out);
    }
}

impl Machine for Simple {
    fn new(setup: Setup, defect: Defect) -> Result<Self, SetupError> {
        let mut chunk = setup.limits.chunk.0;
        while setup.size.0.div_ceil(chunk).div_ceil(8) > setup.limits.bitmap.0 {
            chunk *= 2;
        }
        Ok(Simple {
            setup,
            defect,
            keeps: setup.keeps,
            chunk,
            drained: false,
            marks: vec![Mark::Old; setup.size.0.div_ceil(chunk) as usize],
            steps: vec![None; setup.limits.steps as usize],
            asked: Vec::new(),
            flush: Flush::NotYet,
            ended: None,
            released: false,
        })
    }

    fn drained(&mut self, how: Completion, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        if self.drained {
            return Err(Unexpected::AlreadyDrained);
        }
        self.drained = true;
        if how == Completion::Failed && !self.is(Defect::IgnoresFailedOldFlush) {
            self.give_up(Reason::SourceNotDurable, out);
        }
        self.go_on(out);
        Ok(())
    }

    fn request(
        &mut self,
        id: RequestId,
        request: Request,
        out: &mut Vec<Action>,
    ) -> Result<(), NotTaken> {
        if self.asked.len() >= self.setup.limits.requests {
            return Err(NotTaken::Full);
        }
        if self.asked.iter().any(|asked| asked.id == id) && !self.is(Defect::TakesAnyNumber) {
            return Err(NotTaken::Duplicate);
        }
        if request.extent().is_some_and(|e| e.end() > self.setup.size) {
            if self.is(Defect::TakesAnyRange) {
                out.push(Action::Answer(id, Completion::Failed));
            }
            return Err(NotTaken::OutOfRange);
        }
        let safe = self.ended.is_some() || self.are_safe(request);
        let waits = match request {
            Request::Read(_) => !safe && self.is(Defect::ReadsWait),
            Request::Flush => !self.all_safe() && self.is(Defect::FlushesWait),
            Request::Discard(_) => {
                if !safe && !self.is(Defect::DiscardsWait) && !self.is(Defect::DiscardsUncopied) {
                    out.push(Action::Answer(id, Completion::Done));
                    return Ok(());
                }
                !self.is(Defect::DiscardsUncopied) && !safe
            }
            Request::Write(..) | Request::Zero(..) => !safe,
        };
        let asked = Asked { id, request, sent: false, doubt: false, again: false };
        self.asked.push(asked);
        if !waits {
            self.send(self.asked.len() - 1, out);
        }
        self.go_on(out);
        Ok(())
    }

    fn copy(&mut self, out: &mut Vec<Action>) -> Turn {
        let over = self.ended.is_some() && !self.is(Defect::CopiesAfterTheEnd);
        if over || self.all_safe() {
            return Turn::Idle;
        }
        let drained = self.drained || self.is(Defect::CopiesBeforeDrained);
        let waits = self.asked.iter().any(|asked| !asked.sent);
        let ahead = self.steps() < self.setup.limits.ahead;
        if !drained || waits || !ahead || !self.has_room(true) {
            return Turn::Later;
        }
        let taken: Vec<usize> = self.steps.iter().flatten().map(|step| step.chunk).collect();
        let last = self.marks.len() - 1;
        let skips = self.is(Defect::NeverCopiesTheLast);
        let next = (0..self.marks.len()).find(|chunk| {
            let skipped = skips && *chunk == last;
            self.marks[*chunk] == Mark::Old && !taken.contains(chunk) && !skipped
        });
        match next {
            Some(chunk) if self.begin(chunk, Stage::Examining, true, out) => Turn::Began,
            _ => Turn::Later,
        }
    }

    fn found(
        &mut self,
        step: StepId,
        found: Found,
        len: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        let at = step.0 as usize;
        let Some(step) = self.step_at(step, Stage::Examining) else {
            return Err(Unexpected::NotExamining);
        };
        if len.0 == 0 {
            return Err(Unexpected::FoundNothing);
        }
        let all = len >= self.extent(step.chunk)?.len() || self.is(Defect::MarksHalfAHole);
        let hole = found == Found::Hole && all && !self.is(Defect::WritesHoles);
        if hole && self.marks[step.chunk] == Mark::Old && self.ended.is_none() {
            self.marks[step.chunk] = Mark::Safe;
            let skips = self.is(Defect::SkipsHolesOfUnknownTargets);
            let zeroes = self.setup.target == TargetContent::Unknown && !skips;
            self.next(at, zeroes.then_some(Stage::Zeroing), out);
        } else {
            self.examined(at, step, out);
        }
        self.go_on(out);
        Ok(())
    }

    fn read_zeroes(&mut self, step: StepId, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        let at = step.0 as usize;
        let Some(step) = self.step_at(step, Stage::Reading) else {
            return Err(Unexpected::NotReading);
        };
        self.marks[step.chunk] = Mark::Safe;
        let next = match self.setup.target {
            _ if self.is(Defect::WritesZeroes) => Some(Stage::Writing),
            TargetContent::Zeroes => None,
            TargetContent::Unknown => Some(Stage::Zeroing),
        };
        self.next(at, next, out);
        self.go_on(out);
        Ok(())
    }

    /// It reads one chunk at a time, and that has no parts.
    fn read_part(&mut self, step: StepId, _: Bytes, _: &mut Vec<Action>) -> Result<(), Unexpected> {
        let read = self.step_at(step, Stage::Reading);
        Err(read.map_or(Unexpected::NotReading, |_| Unexpected::NoPart))
    }

    fn refused(&mut self, step: StepId, out: &mut Vec<Action>) -> Result<(), Unexpected> {
        let at = step.0 as usize;
        let step = self.step_at(step, Stage::Reading).filter(|step| step.keeps == Keeps::Target);
        let step = step.ok_or(Unexpected::NotReading)?;
        self.keeps = Keeps::Buffers;
        self.steps[at] = None;
        self.marks[step.chunk] = match self.defect {
            Defect::PassesRefused => Mark::Safe,
            Defect::ForgetsRefused => Mark::Reading,
            _ => Mark::Old,
        };
        self.go_on(out);
        Ok(())
    }

    fn done(
        &mut self,
        side: Side,
        job: Job,
        how: Completion,
        out: &mut Vec<Action>,
    ) -> Result<(), Unexpected> {
        let any = self.is(Defect::TakesAnyEnd);
        let nothing = if any { Ok(()) } else { Err(Unexpected::NothingUnderWay) };
        match job {
            Job::Request(id) => {
                let mine = |asked: &Asked| asked.id == id && asked.sent;
                let Some(at) = self.asked.iter().position(mine) else { return nothing };
                if side == Side::Target {
                    return nothing;
                }
                self.request_done(at, how, out);
            }
            Job::LastFlush => {
                if self.flush != Flush::UnderWay || side == Side::Source {
                    return nothing;
                }
                self.flush = Flush::Done;
                if how == Completion::Failed && !self.is(Defect::IgnoresFailedTarget) {
                    self.give_up(Reason::TargetFailed, out);
                }
            }
            Job::Copy(StepId(at)) => {
                let at = at as usize;
                let Some(step) = self.steps.get(at).copied().flatten() else { return nothing };
                let source = matches!(step.stage, Stage::Examining | Stage::Reading);
                if source != (side == Side::Source) {
                    return nothing;
                }
                if step.stage == Stage::Examining && how == Completion::Done {
                    return Err(Unexpected::FoundWhat);
                }
                self.step_done(at, step, how, out);
            }
        }
        if !self.is(Defect::NeverWakes) || job == Job::LastFlush {
            self.go_on(out);
        }
        Ok(())
    }

    fn cancel(&mut self, out: &mut Vec<Action>) -> Result<(), Over> {
        if self.ended.is_some() && !self.is(Defect::CancelsTwice) {
            return Err(Over);
        }
        self.end(Outcome::Cancelled, out);
        self.go_on(out);
        Ok(())
    }

    fn lose_target(&mut self, out: &mut Vec<Action>) -> Result<(), Over> {
        if self.ended.is_some() {
            return Err(Over);
        }
        if self.is(Defect::KeepsTarget) {
            return Ok(());
        }
        self.end(Outcome::GivenUp(Reason::TargetLost), out);
        self.go_on(out);
        Ok(())
    }

    fn chunk(&self) -> Bytes {
        Bytes(self.chunk)
    }

    fn steps(&self) -> u32 {
        self.steps.iter().flatten().filter(|step| step.in_order).count() as u32
    }

    fn progress(&self) -> Progress {
        let safe = self.marks.iter().filter(|mark| **mark == Mark::Safe).count() as u64;
        let state = match self.ended {
            Some(Outcome::Complete) => State::Complete,
            Some(_) => State::GivenUp,
            None if !self.drained => State::Draining,
            None if self.all_safe() => State::Finishing,
            None => State::Copying,
        };
        Progress {
            copied: Bytes((safe * self.chunk).min(self.setup.size.0)),
            size: self.setup.size,
            buffers: Bytes(self.buffers(false)),
            waiting: self.asked.iter().filter(|asked| !asked.sent).count(),
            state,
        }
    }

    fn is_over(&self) -> bool {
        self.released && self.asked.is_empty()
    }
}
