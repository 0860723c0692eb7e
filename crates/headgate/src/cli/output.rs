//! Tables, descriptions and errors as text.

use super::common::Print;
use super::error::CliError;
use headgate_api::types::{Changed, ErrorBody};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Where a column's text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Columns as wide as their widest cell, two spaces apart.
pub(super) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[(&str, Align)]) -> Table {
        let columns = columns.iter().map(|(title, align)| ((*title).to_owned(), *align)).collect();
        Table { columns, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(super) fn render(&self) -> String {
        let head: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        let width = |i: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(i)).chain(head.get(i));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, &width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                let _ = match align {
                    Align::Left => write!(line, "{cell:<width$}  "),
                    Align::Right => write!(line, "{cell:>width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A description: names and values, one per line, the values aligned. Lines without a value are
/// left out.
pub(super) fn description(lines: &[(&str, Option<String>)]) -> String {
    let shown =
        || lines.iter().filter_map(|(name, value)| value.as_ref().map(|value| (*name, value)));
    let width = shown().map(|(name, _)| name.len() + 1).max().unwrap_or(0);
    shown().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{:<width$}  {value}", format!("{name}:"));
        text
    })
}

/// JSON as `--json` prints it.
pub(super) fn json<T: Serialize>(out: &mut dyn Write, value: &T) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// What a reading command has found: JSON if that is wanted, else the text made of it.
pub(super) fn print_value<T: Serialize>(
    out: &mut dyn Write,
    print: Print,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), CliError> {
    if print.json {
        return Ok(json(out, value)?);
    }
    Ok(out.write_all(text(value).as_bytes())?)
}

/// What a command has changed, and the warnings about it.
pub(super) fn print_changed<T: Serialize>(
    out: &mut dyn Write,
    print: Print,
    changed: &Changed<T>,
    text: impl FnOnce(&T) -> String,
) -> Result<(), CliError> {
    print_value(out, print, changed, |changed| text(&changed.now))?;
    if !print.json {
        warnings(&changed.warnings);
    }
    Ok(())
}

/// An error for standard error.
pub(super) fn error(body: &ErrorBody, as_json: bool) -> String {
    if as_json {
        let text = serde_json::to_string_pretty(body).expect("an error is plain data");
        return format!("{text}\n");
    }
    let mut text = format!("error: {}\n", body.error);
    if let Some(expected) = &body.expected {
        let _ = writeln!(text, "  expected: {expected}");
    }
    if let Some(hint) = &body.hint {
        let _ = writeln!(text, "  hint: {hint}");
    }
    text
}

/// Warnings go to standard error, so that output stays readable by programs.
pub(super) fn warnings(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

/// Seconds since 1970 as `2026-09-21 14:13 UTC`.
pub(super) fn date(seconds: u64) -> String {
    // Days to year, month and day in the proleptic Gregorian calendar, by eras of 400 years that
    // start in March.
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3_600, rest / 60 % 60)
}

/// A value, or a dash.
pub(super) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("NAME", Align::Left), ("SIZE", Align::Right)]);
        table.row(vec!["a".into(), "10 GiB".into()]);
        table.row(vec!["longer".into(), "1 B".into()]);
        assert_eq!(table.render(), "NAME      SIZE\na       10 GiB\nlonger     1 B\n");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
    }

    #[test]
    fn an_error_says_what_was_wrong_what_was_expected_and_what_to_do() {
        let body = ErrorBody {
            error: "there is no disk 'x'".into(),
            expected: Some("one of a, b".into()),
            hint: Some("see 'headgate disk list'".into()),
        };
        assert_eq!(
            error(&body, false),
            "error: there is no disk 'x'\n  expected: one of a, b\n  hint: see 'headgate disk list'\n"
        );
    }
}
