//! The points of a datastore's model as a CSV file.

use super::error::RecordedError;
use headgate_api::placement::ModelPoint;
use headgate_placement::{DevicePoint, Outstanding, Permille};
use headgate_units::{Bytes, Nanos};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::str::FromStr;

const HEADER: &str = "at_ns,outstanding,latency_ns,size,random";

pub(super) fn write(path: &Path, points: &[ModelPoint]) -> Result<(), RecordedError> {
    let mut text = format!("{HEADER}\n");
    for ModelPoint { at, outstanding, latency, size, random, .. } in points {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{},{outstanding},{},{},{random}", at.0, latency.0, size.0);
    }
    fs::write(path, text).map_err(|source| RecordedError::Io {
        doing: "write",
        path: path.to_owned(),
        source,
    })
}

pub(super) fn read(path: &Path) -> Result<Vec<DevicePoint>, RecordedError> {
    let text = fs::read_to_string(path).map_err(|source| RecordedError::Io {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    let wrong =
        |line: usize, error: String| RecordedError::Line { path: path.to_owned(), line, error };
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    match lines.next() {
        Some((_, HEADER)) => {}
        other => {
            return Err(wrong(
                1,
                format!("the first line is '{}', expected '{HEADER}'", other.map_or("", |l| l.1)),
            ));
        }
    }
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| point(line).map_err(|error| wrong(number, error)))
        .collect()
}

fn point(line: &str) -> Result<DevicePoint, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [at, outstanding, latency, size, random] = fields[..] else {
        return Err(format!("{} fields, expected 5: {HEADER}", fields.len()));
    };
    number::<u64>("at_ns", at)?;
    let (outstanding, random) =
        (number::<f64>("outstanding", outstanding)?, number::<f64>("random", random)?);
    if !(outstanding >= 0.0 && outstanding.is_finite() && (0.0..=1.0).contains(&random)) {
        return Err(format!(
            "{outstanding} reads outstanding and {random} random: expected 0 or more, and 0 to 1"
        ));
    }
    Ok(DevicePoint {
        outstanding: Outstanding::of(outstanding),
        latency: Nanos(number("latency_ns", latency)?),
        size: Bytes(number("size", size)?),
        random: Permille::of_ratio(random),
    })
}

fn number<T: FromStr>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{what} is '{text}', which is no number"))
}
