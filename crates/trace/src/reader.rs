use crate::detect::detect;
use crate::disks::Disks;
use crate::error::{After, Late, Position, Problem, TraceError, excerpt};
use crate::format::Format;
use crate::formats::vscsi::Version;
use crate::formats::{Line, LineParser, Raw};
use crate::record::Record;
use crate::reorder::{Reorder, TooLate};
use crate::source::{Failure, Source};
use headgate_units::{Bytes, Nanos};
use serde::Serialize;
use std::io::Read;

/// What to do about lines that are not what they should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tolerance {
    /// End with an error that names the line.
    #[default]
    Strict,
    /// Leave them out, and count them in the [`Report`].
    Lenient,
}

/// How to read a trace.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The format; found out from the first lines when `None`.
    pub format: Option<Format>,
    /// What to do about mistakes.
    pub tolerance: Tolerance,
    /// So many requests are sorted by time at a time; 0 for none. Each takes 64 bytes or so of
    /// memory. Default 65,536.
    pub window: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { format: None, tolerance: Tolerance::Strict, window: 65_536 }
    }
}

/// What was found on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The format.
    pub format: Format,
    /// Requests given out.
    pub requests: u64,
    /// Lines, or binary records, read.
    pub lines: u64,
    /// Of these: headers, comments, and events that are not requests.
    pub other_lines: u64,
    /// Of these: not what they should be, and left out. 0 unless [`Tolerance::Lenient`].
    pub malformed: u64,
    /// Of these: too early for where they stand, and left out. 0 unless [`Tolerance::Lenient`].
    pub out_of_order: u64,
    /// Requests that came after a later one and were put in their place.
    pub reordered: u64,
    /// What was wrong with the first line left out.
    pub first_problem: Option<String>,
    /// The trace ends before its time, and why. `None` unless [`Tolerance::Lenient`].
    pub cut_short: Option<String>,
}

enum Parser {
    Lines(LineParser),
    Records(Version),
}

enum State {
    Reading,
    /// What waits is given out, then the error if there is one.
    Ending(Option<TraceError>),
    Ended,
}

/// The requests of a trace, in the order of their times.
///
/// After the first error there is nothing more. What was read before the error comes first.
pub struct TraceReader<R: Read> {
    source: Source<R>,
    parser: Parser,
    tolerance: Tolerance,
    window: usize,
    waiting: Reorder,
    disks: Disks,
    /// Time of the earliest request.
    origin: Option<u64>,
    report: Report,
    state: State,
}

impl<R: Read> TraceReader<R> {
    /// Reads the beginning of `input`, which may be compressed with gzip.
    ///
    /// # Errors
    /// [`TraceError`] when nothing can be read, or no format is given and the first lines are in
    /// none that is known.
    pub fn new(input: R, options: Options) -> Result<TraceReader<R>, TraceError> {
        let at_start = |source| TraceError::Read { after: After(None), source };
        let mut source = match Source::new(input).map_err(at_start)? {
            Ok(source) => source,
            Err(packed) => {
                return Err(TraceError::Packed { what: packed.what, unpack: packed.unpack });
            }
        };
        // Damage in the middle of the first block shows again when it is read.
        let damage = match source.head() {
            Ok(_) => None,
            Err(Failure::Read(e)) => return Err(at_start(e)),
            Err(Failure::Damaged(why)) => Some(why),
        };
        let head = source.head().unwrap_or_default();
        if Source::<R>::is_tar(head) {
            return Err(TraceError::Packed {
                what: "a tar archive",
                unpack: "tar -xOf FILE | headgate trace stat -",
            });
        }
        let format = match options.format.or_else(|| detect(head)) {
            Some(format) => format,
            None => {
                return Err(match damage {
                    Some(why) => TraceError::Damaged { after: After(None), why },
                    None if head.is_empty() => TraceError::Empty,
                    None => {
                        let first = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
                        TraceError::UnknownFormat { first: excerpt(first) }
                    }
                });
            }
        };
        let parser = match LineParser::new(format, head) {
            Some(parser) => Parser::Lines(parser),
            // A first record of neither version will be an error like any other.
            None => Parser::Records(Version::detect(head).unwrap_or(Version::One)),
        };
        source.remember(damage);
        let report = Report {
            format,
            requests: 0,
            lines: 0,
            other_lines: 0,
            malformed: 0,
            out_of_order: 0,
            reordered: 0,
            first_problem: None,
            cut_short: None,
        };
        Ok(TraceReader {
            source,
            parser,
            tolerance: options.tolerance,
            window: options.window,
            waiting: Reorder::new(options.window),
            disks: Disks::default(),
            origin: None,
            report,
            state: State::Reading,
        })
    }

    /// The format, given or found.
    pub fn format(&self) -> Format {
        self.report.format
    }

    /// The disks named so far. Those of the requests given out are among them.
    pub fn disks(&self) -> &Disks {
        &self.disks
    }

    /// What was found so far; complete after the last request.
    pub fn report(&self) -> &Report {
        &self.report
    }

    fn current_position(&self) -> Position {
        match self.parser {
            Parser::Lines(_) => Position::Line(self.report.lines),
            Parser::Records(_) => Position::Record(self.report.lines),
        }
    }

    fn after(&self) -> After {
        After((self.report.lines > 0).then(|| self.current_position()))
    }

    /// The next request of the file, in the file's order; `None` at the end.
    fn parse(&mut self) -> Result<Option<Raw>, TraceError> {
        loop {
            let parsed = match &mut self.parser {
                Parser::Lines(parser) => match self.source.line() {
                    Ok(None) => return Ok(None),
                    Ok(Some(line)) => parser.line(line, &mut self.disks),
                    Err(failure) => return self.fail(failure),
                },
                Parser::Records(version) => match self.source.record(version.record_bytes()) {
                    Ok([]) => return Ok(None),
                    Ok(record) if record.len() < version.record_bytes() => {
                        let why = format!(
                            "{} bytes are left, a record has {}",
                            record.len(),
                            version.record_bytes()
                        );
                        return self.fail(Failure::Damaged(why));
                    }
                    Ok(record) => version.record(record, &mut self.disks),
                    Err(failure) => return self.fail(failure),
                },
            };
            self.report.lines += 1;
            match parsed {
                Ok(Line::Request(raw)) => return Ok(Some(raw)),
                Ok(Line::Other) => self.report.other_lines += 1,
                Err(problem) => self.malformed(problem)?,
            }
        }
    }

    #[cold]
    fn malformed(&mut self, problem: Problem) -> Result<(), TraceError> {
        let error = TraceError::Malformed { position: self.current_position(), problem };
        if self.tolerance == Tolerance::Lenient {
            self.report.malformed += 1;
        }
        self.tolerate(error)
    }

    #[cold]
    fn too_late(&mut self, late: u64) -> Result<(), TraceError> {
        let error = TraceError::OutOfOrder {
            position: self.current_position(),
            late: Late(Nanos(late)),
            window: self.window,
        };
        if self.tolerance == Tolerance::Lenient {
            self.report.out_of_order += 1;
        }
        self.tolerate(error)
    }

    fn tolerate(&mut self, error: TraceError) -> Result<(), TraceError> {
        match self.tolerance {
            Tolerance::Strict => Err(error),
            Tolerance::Lenient => {
                self.report.first_problem.get_or_insert_with(|| error.to_string());
                Ok(())
            }
        }
    }

    #[cold]
    fn fail(&mut self, failure: Failure) -> Result<Option<Raw>, TraceError> {
        let after = self.after();
        match (failure, self.tolerance) {
            (Failure::Read(source), _) => Err(TraceError::Read { after, source }),
            (Failure::Damaged(why), Tolerance::Strict) => Err(TraceError::Damaged { after, why }),
            (Failure::Damaged(why), Tolerance::Lenient) => {
                self.report.cut_short = Some(TraceError::Damaged { after, why }.to_string());
                Ok(None)
            }
        }
    }

    fn give(&mut self, raw: Raw) -> Record {
        let origin = *self.origin.get_or_insert(raw.at);
        self.report.requests += 1;
        Record {
            at: Nanos(raw.at - origin),
            kind: raw.kind,
            offset: raw.offset,
            bytes: Bytes(raw.bytes),
            disk: raw.disk,
            latency: raw.latency,
        }
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Result<Record, TraceError>> {
        loop {
            match &mut self.state {
                State::Reading => match self.parse() {
                    Ok(Some(raw)) => match self.waiting.push(raw) {
                        Ok(Some(first)) => return Some(Ok(self.give(first))),
                        Ok(None) => {}
                        Err(TooLate(late)) => {
                            if let Err(error) = self.too_late(late) {
                                self.state = State::Ending(Some(error));
                            }
                        }
                    },
                    Ok(None) => self.state = State::Ending(None),
                    Err(error) => self.state = State::Ending(Some(error)),
                },
                State::Ending(error) => {
                    if let Some(raw) = self.waiting.pop() {
                        return Some(Ok(self.give(raw)));
                    }
                    let error = error.take();
                    self.report.reordered = self.waiting.stragglers();
                    self.state = State::Ended;
                    return error.map(Err);
                }
                State::Ended => return None,
            }
        }
    }
}
