//! The parts of a figure, independent of the output format.

/// Panels above each other over the same axis.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Above all.
    pub title: String,
    /// The axis that the panels share, with its unit: `time (s)`.
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
pub struct Panel {
    /// The quantity and its unit: `throughput (IOPS)`.
    pub axis: &'static str,
    /// The largest value that is shown; the smallest is zero.
    pub top: f64,
    /// One for each name of the legend.
    pub lines: Vec<Line>,
    /// Points by themselves, in the colours of the lines.
    pub points: Vec<Vec<(f64, f64)>>,
    /// Values that lines are held against, above the lines.
    pub levels: Vec<Level>,
    /// Rectangles below the lines: bars, cells of a table.
    pub blocks: Vec<Block>,
    /// Names of places on the axis, instead of numbers.
    pub places: Vec<(f64, String)>,
    /// Names of rows from top to bottom, each of height 1, instead of numbers.
    pub rows: Vec<String>,
}

/// A rectangle.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its lower left corner.
    pub from: (f64, f64),
    /// Its upper right corner.
    pub to: (f64, f64),
    /// In the colour of which line.
    pub colour: usize,
    /// How much of the colour, 0 to 1.
    pub shade: f64,
    /// The entries.
    pub text: String,
}

/// A value over a part of the axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// It begins here.
    pub from: f64,
    /// And ends here.
    pub to: f64,
    /// The value.
    pub value: f64,
    /// In the colour of which line; of none, if it is of no line alone.
    pub colour: Option<usize>,
}

/// Values at places on the axis; `None` interrupts the line.
pub type Line = Vec<Option<(f64, f64)>>;

/// An instant at which something happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// In seconds.
    pub at: f64,
    /// The event.
    pub label: String,
}

impl Panel {
    /// With lines alone, up to their largest value.
    pub fn of_lines(axis: &'static str, lines: Vec<Line>) -> Panel {
        let (points, levels, blocks) = (Vec::new(), Vec::new(), Vec::new());
        let (places, rows) = (Vec::new(), Vec::new());
        let mut panel = Panel { axis, top: 0.0, lines, points, levels, blocks, places, rows };
        panel.top = panel.largest();
        panel
    }

    /// The same with levels that lines are held against.
    pub fn with_levels(mut self, levels: Vec<Level>) -> Panel {
        self.levels = levels;
        self.top = self.largest();
        self
    }

    /// The largest value of any line, level, point or block.
    pub fn largest(&self) -> f64 {
        let points = self.points.iter().flatten();
        let lines = self.lines.iter().flatten().flatten().chain(points).map(|&(_, value)| value);
        let lines = lines.chain(self.levels.iter().map(|level| level.value));
        lines.chain(self.blocks.iter().map(|block| block.to.1)).fold(0.0, f64::max)
    }
}
