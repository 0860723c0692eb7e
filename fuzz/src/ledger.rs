//! What was fed so far: a document with two tables, of which one is the sum of the other.
//!
//! A row says what one target was fed on one day by one build. What is fed later on that day is
//! added to it, so that the 24 hours of a target can come together in pieces.

use std::fmt::Write as _;
use thiserror::Error;

/// Processor time that each target is to have, in seconds: 24 hours.
pub const GOAL: u64 = 24 * 3600;

const SUMS: &str = "| target | processor time | executions | missing to 24 h |";
const ROWS: &str = "| date | build | target | processor time | executions | found |";
/// What nobody counted.
const UNKNOWN: &str = "not kept";
const NOTHING: &str = "nothing";

/// What one target was fed by one build on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `YYYY-MM-DD`.
    pub date: String,
    /// What fed it.
    pub build: String,
    /// The target, in backticks; other words stand for more than one.
    pub target: String,
    /// Processor time in seconds, if it was measured.
    pub seconds: Option<u64>,
    /// Inputs that the target was run with, if they were counted.
    pub executions: Option<u64>,
    /// What came of it.
    pub found: String,
}

impl Row {
    /// A row of a target that was fed until now.
    pub fn of(date: String, build: &str, target: &str, fed: Fed) -> Row {
        Row {
            date,
            build: build.to_owned(),
            target: format!("`{target}`"),
            seconds: Some(fed.seconds),
            executions: Some(fed.executions),
            found: inputs(fed.found),
        }
    }

    fn continues(&self, other: &Row) -> bool {
        (&self.date, &self.build, &self.target) == (&other.date, &other.build, &other.target)
            && self.seconds.is_some()
            && self.executions.is_some()
    }

    fn add(&mut self, new: Row) {
        let sum = |one: &mut Option<u64>, new: Option<u64>| {
            *one = one.zip(new).map(|(one, new)| one + new);
        };
        sum(&mut self.seconds, new.seconds);
        sum(&mut self.executions, new.executions);
        self.found = match (count(&self.found), count(&new.found)) {
            (Some(found), Some(more)) => inputs(found + more),
            (None, Some(0)) => return,
            _ => format!("{}; {}", self.found, new.found),
        };
    }
}

/// So many inputs, in words.
fn inputs(count: u64) -> String {
    match count {
        0 => NOTHING.to_owned(),
        1 => "1 input".to_owned(),
        n => format!("{n} inputs"),
    }
}

/// How many inputs these words are, if they say nothing else.
fn count(found: &str) -> Option<u64> {
    match found.split_once(' ') {
        None => (found == NOTHING).then_some(0),
        Some((number, "input" | "inputs")) => number.parse().ok(),
        Some(_) => None,
    }
}

/// What a target was fed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    /// Processor time in seconds.
    pub seconds: u64,
    /// Inputs.
    pub executions: u64,
    /// Inputs that broke a promise.
    pub found: u64,
}

/// The document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Before the sums, between the tables, and behind the rows.
    prose: [String; 3],
    /// Oldest first.
    pub rows: Vec<Row>,
}

/// Why a text is no ledger.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LedgerError {
    /// A table is missing.
    #[error("the line '{0}' stands nowhere")]
    NoTable(&'static str),
    /// A row cannot be read.
    #[error("expected {expected} in '{line}'")]
    Row {
        /// What should be there.
        expected: &'static str,
        /// The row.
        line: String,
    },
}

impl Ledger {
    /// Reads the document. Its sums are not looked at: they follow from its rows.
    ///
    /// # Errors
    /// When a table is missing, or a row cannot be read.
    pub fn parse(text: &str) -> Result<Ledger, LedgerError> {
        let (before, _, rest) = table(text, SUMS)?;
        let (between, rows, after) = table(rest, ROWS)?;
        let rows = rows.iter().map(|line| row(line)).collect::<Result<_, _>>()?;
        Ok(Ledger { prose: [before, between, after].map(str::to_owned), rows })
    }

    /// Adds a row, to one of the same day, build and target if there is one.
    pub fn add(&mut self, new: Row) {
        match self.rows.iter_mut().find(|row| row.continues(&new)) {
            Some(row) => row.add(new),
            None => self.rows.push(new),
        }
    }

    /// What a target was fed in all, as far as it was counted.
    pub fn sum(&self, target: &str) -> Fed {
        let mut sum = Fed::default();
        let name = |row: &Row| row.target.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
        for row in self.rows.iter().filter(|row| name(row).as_deref() == Some(target)) {
            sum.seconds += row.seconds.unwrap_or(0);
            sum.executions += row.executions.unwrap_or(0);
        }
        sum
    }

    /// The document, with the sums of these targets.
    pub fn render(&self, targets: &[&str]) -> String {
        let [before, between, after] = &self.prose;
        let mut text =
            format!("{before}{}{between}{ROWS}\n|---|---|---|---|---|---|\n", self.sums(targets));
        for Row { date, build, target, seconds, executions, found } in &self.rows {
            let time = seconds.map_or(UNKNOWN.to_owned(), |n| grouped(n) + " s");
            let count = executions.map_or(UNKNOWN.to_owned(), grouped);
            writeln!(text, "| {date} | {build} | {target} | {time} | {count} | {found} |")
                .expect("a text takes all");
        }
        text + after
    }

    /// The table of the sums of these targets.
    pub fn sums(&self, targets: &[&str]) -> String {
        let mut text = format!("{SUMS}\n|---|---|---|---|\n");
        let (mut all, mut missing) = (Fed::default(), 0);
        for target in targets {
            let sum = self.sum(target);
            let lacks = GOAL.saturating_sub(sum.seconds);
            line(&mut text, &format!("`{target}`"), sum, lacks);
            all.seconds += sum.seconds;
            all.executions += sum.executions;
            missing += lacks;
        }
        line(&mut text, "all", all, missing);
        text
    }
}

fn line(text: &mut String, name: &str, sum: Fed, lacks: u64) {
    let lacks = if lacks == 0 { NOTHING.to_owned() } else { hours(lacks.div_ceil(36)) };
    let (time, count) = (hours(sum.seconds / 36), grouped(sum.executions));
    writeln!(text, "| {name} | {time} | {count} | {lacks} |").expect("a text takes all");
}

/// Hundredths of an hour.
fn hours(hundredths: u64) -> String {
    format!("{}.{:02} h", hundredths / 100, hundredths % 100)
}

/// A number with commas between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What stands before a table, its rows, and what stands behind it.
fn table<'t>(
    text: &'t str,
    head: &'static str,
) -> Result<(&'t str, Vec<&'t str>, &'t str), LedgerError> {
    let start = text.find(head).ok_or(LedgerError::NoTable(head))?;
    let lines = text[start..].split_inclusive('\n').take_while(|line| line.starts_with('|'));
    let lines: Vec<&str> = lines.collect();
    let end = start + lines.iter().map(|line| line.len()).sum::<usize>();
    // Behind the head is the line that makes it a table.
    Ok((&text[..start], lines.into_iter().skip(2).collect(), &text[end..]))
}

fn row(line: &str) -> Result<Row, LedgerError> {
    let wrong = |expected| LedgerError::Row { expected, line: line.trim_end().to_owned() };
    let cells = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|'));
    let cells: Vec<&str> = cells.unwrap_or_default().split('|').map(str::trim).collect();
    let [date, build, target, time, executions, found] = cells[..] else {
        return Err(wrong("six cells"));
    };
    let number = |cell: &str, unit: &str, expected| match cell {
        UNKNOWN => Ok(None),
        cell => {
            let digits = cell.strip_suffix(unit).map(|digits| digits.replace(',', ""));
            let number = digits.and_then(|digits| digits.parse().ok());
            number.map(Some).ok_or_else(|| wrong(expected))
        }
    };
    Ok(Row {
        date: date.to_owned(),
        build: build.to_owned(),
        target: target.to_owned(),
        seconds: number(time, " s", "a time in seconds")?,
        executions: number(executions, "", "a number of executions")?,
        found: found.to_owned(),
    })
}

/// The date in UTC, so many seconds after 1970 began.
///
/// Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
pub fn date(unix_seconds: u64) -> String {
    // Days since 1 March of the year 0, in eras of 400 years.
    let days = unix_seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) =
        (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Fed

| target | processor time | executions | missing to 24 h |
|---|---|---|---|
| `a` | wrong | wrong | wrong |

Words.

| date | build | target | processor time | executions | found |
|---|---|---|---|---|---|
| 2026-11-26 | libFuzzer | all | not kept | not kept | corpora |
| 2026-11-29 | debug | `a` | not kept | 1,267 | nothing |
| 2026-11-29 | libFuzzer | `b` | 4,000 s | 12 | nothing |

End.
";

    fn fed(seconds: u64, executions: u64, found: u64) -> Fed {
        Fed { seconds, executions, found }
    }

    #[test]
    fn sums_follow_from_rows_and_all_else_stays() {
        let ledger = Ledger::parse(TEXT).unwrap();
        let expected = TEXT.replace(
            "| `a` | wrong | wrong | wrong |\n",
            "| `a` | 0.00 h | 1,267 | 24.00 h |\n\
             | `b` | 1.11 h | 12 | 22.89 h |\n\
             | `c` | 0.00 h | 0 | 24.00 h |\n\
             | all | 1.11 h | 1,279 | 70.89 h |\n",
        );
        assert_eq!(ledger.render(&["a", "b", "c"]), expected);
        assert_eq!(Ledger::parse(&expected).unwrap(), ledger);
    }

    #[test]
    fn what_is_fed_on_one_day_by_one_build_is_one_row() {
        let mut ledger = Ledger::parse(TEXT).unwrap();
        let day = || "2026-11-29".to_owned();
        ledger.add(Row::of(day(), "libFuzzer", "b", fed(500, 3, 0)));
        ledger.add(Row::of(day(), "libFuzzer", "b", fed(0, 0, 2)));
        ledger.add(Row::of(day(), "libFuzzer", "b", fed(0, 1, 1)));
        assert_eq!(ledger.rows.len(), 3);
        assert_eq!(ledger.sum("b"), fed(4_500, 16, 0));
        assert_eq!(ledger.rows[2].found, "3 inputs");
        ledger.rows[2].found = "3 inputs, mended".into();
        ledger.add(Row::of(day(), "libFuzzer", "b", fed(0, 0, 0)));
        assert_eq!(ledger.rows[2].found, "3 inputs, mended");
        ledger.add(Row::of(day(), "libFuzzer", "b", fed(0, 0, 1)));
        assert_eq!(ledger.rows[2].found, "3 inputs, mended; 1 input");
        // A time that nobody measured has no sum.
        ledger.add(Row::of(day(), "debug", "a", fed(7, 1, 0)));
        assert_eq!((ledger.rows.len(), ledger.sum("a")), (4, fed(7, 1_268, 0)));
        ledger.add(Row::of("2026-11-30".into(), "libFuzzer", "b", fed(90_000, 1, 0)));
        assert_eq!(ledger.rows.len(), 5);
        assert!(ledger.sums(&["b"]).contains("| `b` | 26.25 h | 17 | nothing |"));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| Ledger::parse(text).unwrap_err().to_string();
        assert!(error("").contains(SUMS));
        assert!(error(SUMS).contains(ROWS));
        assert!(error(&TEXT.replace("4,000 s", "4,000")).contains("a time in seconds"));
        assert!(error(&TEXT.replace("1,267", "many")).contains("a number of executions"));
        assert!(error(&TEXT.replace("| corpora", "")).contains("six cells"));
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        // By `date -u -d @SECONDS +%F`.
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_798_761_599, "2026-12-31"),
            (1_798_761_600, "2027-01-01"),
            (4_107_542_399, "2100-02-28"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }
}
