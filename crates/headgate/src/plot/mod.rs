//! Figures: quantities over time or over what was varied, as SVG and as PNG.
//!
//! Neither needs anything of the system: letters are measured, and drawn in PNG, with a font inside the program.

mod png;
mod svg;

pub(crate) use png::png;
pub(crate) use svg::{DrawError, MOST_LINES, svg};

/// Panels above each other over the same axis.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Above all.
    pub title: String,
    /// What the panels share, and its unit: `time (s)`.
    pub axis: String,
    /// From zero to here.
    pub end: f64,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// Names of the lines, in the order of every panel's lines; a line that is not there is empty.
    pub legend: Vec<String>,
    /// Said below the legend.
    pub note: Option<String>,
    /// Instants that are marked in all panels.
    pub marks: Vec<Mark>,
}

/// One quantity.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// What it is and its unit: `throughput (IOPS)`.
    pub axis: &'static str,
    /// The largest value that is shown; the smallest is zero.
    pub top: f64,
    /// One for each name of the legend.
    pub lines: Vec<Line>,
    /// Points by themselves, in the colours of the lines.
    pub points: Vec<Vec<(f64, f64)>>,
}

/// Values at places on the axis; `None` interrupts the line.
pub(crate) type Line = Vec<Option<(f64, f64)>>;

/// An instant at which something happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// In seconds.
    pub at: f64,
    /// What happened.
    pub label: String,
}

impl Panel {
    /// The largest value of any line or point.
    pub(crate) fn largest(&self) -> f64 {
        let points = self.points.iter().flatten();
        self.lines.iter().flatten().flatten().chain(points).map(|&(_, value)| value).fold(0.0, f64::max)
    }
}
