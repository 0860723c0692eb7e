//! Draws figures: as SVG, and as pixels for [`png`](super::png).

use super::figure::{Block, Figure, Line, Mark, Panel};
use plotters::backend::RGBPixel;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::element::PathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use std::sync::OnceLock;
use thiserror::Error;

/// Why there is no figure.
#[derive(Debug, Error)]
#[error("the figure cannot be drawn: {0}")]
pub struct DrawError(String);

impl DrawError {
    pub(super) fn new(error: impl std::fmt::Display) -> DrawError {
        DrawError(error.to_string())
    }
}

pub(super) type Area<B> = DrawingArea<B, Shift>;
type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

// Units of the picture. Coordinates are whole numbers of them, so there are twice as many as pixels
// on most screens.
pub(super) const WIDTH: u32 = 1_800;
pub(super) const TITLE: u32 = 66;
const PANEL: u32 = 420;
const TIME_AXIS: u32 = 84;
/// Left of the panels, the margin included.
const VALUE_AXIS: u32 = 160;
const MARGIN: u32 = 20;
const LEGEND: u32 = 320;
const TEXT: u32 = 26;
pub(super) const SMALL: u32 = 22;
pub(super) const TITLE_TEXT: u32 = 32;
const LABEL_ROW: i32 = 30;
const LABEL_ROWS: usize = 3;
const LABEL_GAP: i32 = 14;
const LEGEND_ROW: i32 = 38;
const LEGEND_LINE: u32 = 58;
/// Radius of a point that is not part of a line.
const DOT: i32 = 6;

pub(super) const FONT: &str = "sans-serif";
pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
pub(super) const GRID: RGBColor = RGBColor(225, 225, 225);
pub(super) const MARK: RGBColor = RGBColor(130, 130, 130);

/// Colours that colour-blind readers can distinguish (Okabe and Ito, then darker ones).
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
    RGBColor(136, 34, 85),
    RGBColor(153, 153, 51),
    RGBColor(51, 34, 136),
    RGBColor(68, 170, 153),
    RGBColor(170, 68, 0),
];

/// Lines of a legend that are shown; the caller leaves out the rest.
pub const MOST_LINES: usize = COLOURS.len();

/// Draws figures below each other, as SVG.
///
/// # Errors
///
/// [`DrawError`]: the drawing library failed.
pub fn svg(figures: &[Figure]) -> Result<String, DrawError> {
    let size = size(figures)?;
    let mut text = String::new();
    draw_all(figures, SVGBackend::with_string(&mut text, size))?;
    Ok(text)
}

/// Draws figures below each other into `pixels` of `size`, three bytes each: red, green, blue.
///
/// # Errors
///
/// [`DrawError`]: the drawing library failed, or `pixels` does not have the length of `size`.
pub(super) fn rgb(
    figures: &[Figure],
    pixels: &mut [u8],
    size: (u32, u32),
) -> Result<(), DrawError> {
    let backend =
        BitMapBackend::<RGBPixel>::with_buffer_and_format(pixels, size).map_err(DrawError::new)?;
    draw_all(figures, backend)
}

/// Width and height of figures below each other, in units of the picture.
pub(super) fn size(figures: &[Figure]) -> Result<(u32, u32), DrawError> {
    register_fonts()?;
    let heights = figures.iter().map(height).collect::<Result<Vec<u32>, _>>()?;
    Ok((WIDTH, heights.iter().sum::<u32>().max(1)))
}

/// Fonts inside the program: a picture needs nothing of the system.
pub(super) fn register_fonts() -> Result<(), DrawError> {
    static FONTS: OnceLock<Result<(), String>> = OnceLock::new();
    let registered = FONTS.get_or_init(|| {
        let fonts =
            [(FontStyle::Normal, dejavu::sans::regular()), (FontStyle::Bold, dejavu::sans::bold())];
        fonts.into_iter().try_for_each(|(style, font)| {
            register_font(FONT, style, font)
                .map_err(|_| "the font inside the program is damaged".to_owned())
        })
    });
    registered.clone().map_err(DrawError)
}

fn draw_all<B: DrawingBackend>(figures: &[Figure], backend: B) -> Result<(), DrawError> {
    let mut rest = backend.into_drawing_area();
    rest.fill(&WHITE).map_err(DrawError::new)?;
    for figure in figures {
        let (this, below) = rest.split_vertically(height(figure)?);
        draw(figure, &this)?;
        rest = below;
    }
    rest.present().map_err(DrawError::new)
}

/// A label of a mark: its row from the bottom, and where it begins.
struct Label<'a> {
    text: &'a str,
    row: usize,
    start: i32,
}

/// Labels of marks in rows, so that they do not overlap; one for which there is no room is left
/// out.
fn labels(figure: &Figure) -> Result<Vec<Label<'_>>, DrawError> {
    let font = (FONT, SMALL).into_font();
    let mut ends = [i32::MIN; LABEL_ROWS];
    let mut labels = Vec::new();
    for Mark { at, label } in &figure.marks {
        let (wide, _) = font.box_size(label).map_err(DrawError::new)?;
        let start = place(figure, *at).min((WIDTH - LEGEND) as i32 - wide as i32).max(0);
        let Some(row) = ends.iter().position(|end| end.saturating_add(LABEL_GAP) <= start) else {
            continue;
        };
        ends[row] = start + wide as i32;
        labels.push(Label { text: label, row, start });
    }
    Ok(labels)
}

fn rows(labels: &[Label<'_>]) -> u32 {
    labels.iter().map(|label| label.row + 1).max().unwrap_or(0) as u32
}

fn height(figure: &Figure) -> Result<u32, DrawError> {
    let labels = rows(&labels(figure)?) * LABEL_ROW as u32;
    Ok(TITLE + labels + figure.panels.len() as u32 * PANEL + TIME_AXIS + 10)
}

pub(super) fn text_style(size: u32, colour: &RGBColor) -> TextStyle<'_> {
    (FONT, size).into_font().color(colour)
}

fn draw<B: DrawingBackend>(figure: &Figure, area: &Area<B>) -> Result<(), DrawError> {
    let (head, body) = area.split_vertically(TITLE);
    let style = (FONT, TITLE_TEXT, FontStyle::Bold).into_font().color(&INK);
    head.draw_text(&figure.title, &style, (VALUE_AXIS as i32, 20)).map_err(DrawError::new)?;
    let (mut left, right) = body.split_horizontally(WIDTH - LEGEND);
    let labels = labels(figure)?;
    let label_height = rows(&labels) as i32 * LABEL_ROW;
    if label_height > 0 {
        let (above, panels) = left.split_vertically(label_height);
        let style = text_style(SMALL, &INK);
        for Label { text, row, start } in labels {
            let top = label_height - (row as i32 + 1) * LABEL_ROW;
            above.draw_text(text, &style, (start, top + 4)).map_err(DrawError::new)?;
        }
        left = panels;
    }
    for (index, panel) in figure.panels.iter().enumerate() {
        let last = index + 1 == figure.panels.len();
        let (this, below) = left.split_vertically(PANEL + if last { TIME_AXIS } else { 0 });
        draw_panel(figure, panel, last, &this)?;
        left = below;
    }
    draw_legend(figure, label_height, &right)
}

/// Where an instant is, in the coordinates of the labels' area.
fn place(figure: &Figure, at: f64) -> i32 {
    let wide = f64::from(WIDTH - LEGEND - VALUE_AXIS);
    VALUE_AXIS as i32 + (at / figure.end.max(f64::MIN_POSITIVE) * wide) as i32
}

fn draw_panel<B: DrawingBackend>(
    figure: &Figure,
    panel: &Panel,
    last: bool,
    area: &Area<B>,
) -> Result<(), DrawError> {
    let top = match panel.rows.len() {
        0 if panel.top > 0.0 => panel.top * 1.05,
        0 => 1.0,
        rows => rows as f64,
    };
    let mut chart = ChartBuilder::on(area)
        .margin_top(14)
        .margin_left(MARGIN)
        .margin_bottom(if last { 0 } else { 8 })
        .x_label_area_size(if last { TIME_AXIS } else { 0 })
        .y_label_area_size(VALUE_AXIS - MARGIN)
        .build_cartesian_2d(0.0..figure.end.max(f64::MIN_POSITIVE), 0.0..top)
        .map_err(DrawError::new)?;
    let places = if top >= 10.0 {
        0
    } else if top >= 1.0 {
        1
    } else {
        3
    };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(2))
        .axis_style(INK.stroke_width(2))
        .x_labels(if panel.places.is_empty() { 12 } else { 0 })
        .y_labels(if panel.rows.is_empty() { 6 } else { 0 })
        .x_label_formatter(&|at| plain(*at))
        .y_label_formatter(&|value| grouped(*value, places))
        .label_style(text_style(TEXT, &INK))
        .axis_desc_style(text_style(TEXT, &INK))
        .x_desc(figure.axis.as_str())
        .y_desc(panel.axis)
        .draw()
        .map_err(DrawError::new)?;
    for Block { from, to, colour, shade, .. } in &panel.blocks {
        let colour = COLOURS[colour % COLOURS.len()].mix(*shade);
        chart
            .draw_series([Rectangle::new([*from, *to], colour.filled())])
            .map_err(DrawError::new)?;
    }
    draw_texts(&chart, panel, top, last, area)?;
    for Mark { at, .. } in &figure.marks {
        let line = [(*at, 0.0), (*at, top)];
        chart
            .draw_series(DashedLineSeries::new(line, 8, 8, MARK.stroke_width(2)))
            .map_err(DrawError::new)?;
    }
    for (points, colour) in panel.points.iter().zip(COLOURS) {
        let dots = points.iter().map(|&at| Circle::new(at, 4, colour.mix(0.45).filled()));
        chart.draw_series(dots).map_err(DrawError::new)?;
    }
    draw_lines(&mut chart, panel)?;
    draw_levels(&chart, panel, area)
}

/// Half the height and width of the diamonds at the ends of a level.
const LEVEL_END: i32 = 9;

/// Where a place of the chart lies in its area, in pixels.
fn pixels<B: DrawingBackend>(
    chart: &Chart<'_, B>,
    area: &Area<B>,
) -> impl Fn((f64, f64)) -> (i32, i32) {
    let (left, above) = area.get_base_pixel();
    move |at| {
        let (x, y) = chart.backend_coord(&at);
        (x - left, y - above)
    }
}

/// Published values: a thin line between two diamonds, so that the lines below can be seen.
fn draw_levels<B: DrawingBackend>(
    chart: &Chart<'_, B>,
    panel: &Panel,
    area: &Area<B>,
) -> Result<(), DrawError> {
    let pixel = pixels(chart, area);
    for level in &panel.levels {
        let ends = [pixel((level.from, level.value)), pixel((level.to, level.value))];
        draw_level(area, ends, level.colour)?;
    }
    Ok(())
}

fn draw_level<B: DrawingBackend>(
    area: &Area<B>,
    ends: [(i32, i32); 2],
    colour: Option<usize>,
) -> Result<(), DrawError> {
    let colour = colour.map_or(INK, |index| COLOURS[index % COLOURS.len()]);
    area.draw(&PathElement::new(ends, INK.stroke_width(2))).map_err(DrawError::new)?;
    // Within its window, whose end may be that of the panel.
    let size = LEVEL_END;
    let [(from, left), (to, right)] = ends;
    for (x, y) in [(from + size, left), (to - size, right)] {
        let corners = [(x - size, y), (x, y - size), (x + size, y), (x, y + size), (x - size, y)];
        area.draw(&Polygon::new(corners[..4].to_vec(), WHITE.filled())).map_err(DrawError::new)?;
        area.draw(&PathElement::new(corners, colour.stroke_width(3))).map_err(DrawError::new)?;
    }
    Ok(())
}

/// The names of places and rows, and what stands in blocks.
fn draw_texts<B: DrawingBackend>(
    chart: &Chart<'_, B>,
    panel: &Panel,
    top: f64,
    last: bool,
    area: &Area<B>,
) -> Result<(), DrawError> {
    let pixel = pixels(chart, area);
    let below = text_style(TEXT, &INK).pos(Pos::new(HPos::Center, VPos::Top));
    for (place, name) in panel.places.iter().filter(|_| last) {
        let (x, y) = pixel((*place, 0.0));
        area.draw_text(name, &below, (x, y + 12)).map_err(DrawError::new)?;
    }
    let beside = text_style(TEXT, &INK).pos(Pos::new(HPos::Right, VPos::Center));
    for (row, name) in panel.rows.iter().enumerate() {
        let (x, y) = pixel((0.0, top - row as f64 - 0.5));
        area.draw_text(&shortened(name, 6), &beside, (x - 12, y)).map_err(DrawError::new)?;
    }
    let inside = text_style(TEXT, &INK).pos(Pos::new(HPos::Center, VPos::Center));
    for Block { from, to, text, .. } in panel.blocks.iter().filter(|block| !block.text.is_empty()) {
        let middle = pixel(((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0));
        area.draw_text(text, &inside, middle).map_err(DrawError::new)?;
    }
    Ok(())
}

fn draw_lines<B: DrawingBackend>(chart: &mut Chart<'_, B>, panel: &Panel) -> Result<(), DrawError> {
    // Lines often lie upon each other: whole ones below, dotted ones above, so that all show.
    for pass in [Stroke::Whole, Stroke::Dashed, Stroke::Dotted] {
        let lines = panel.lines.iter().zip(COLOURS).enumerate();
        for (_, (line, colour)) in lines.filter(|(index, _)| Stroke::of(*index) == pass) {
            for piece in pieces(line) {
                if let [point] = piece[..] {
                    let dot = Circle::new(point, DOT, colour.filled());
                    chart.draw_series([dot]).map_err(DrawError::new)?;
                    continue;
                }
                let style = colour.stroke_width(pass.width());
                match pass.dash() {
                    None => chart.draw_series([PathElement::new(piece, style)]).map(drop),
                    Some((dash, gap)) => {
                        chart.draw_series(DashedLineSeries::new(piece, dash, gap, style)).map(drop)
                    }
                }
                .map_err(DrawError::new)?;
            }
        }
    }
    Ok(())
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stroke {
    Whole,
    Dashed,
    Dotted,
}

impl Stroke {
    fn of(index: usize) -> Stroke {
        [Stroke::Whole, Stroke::Dashed, Stroke::Dotted][index % 3]
    }

    /// Length of a dash, and of the gap after it.
    fn dash(self) -> Option<(u32, u32)> {
        match self {
            Stroke::Whole => None,
            Stroke::Dashed => Some((22, 14)),
            Stroke::Dotted => Some((7, 9)),
        }
    }

    fn width(self) -> u32 {
        match self {
            Stroke::Whole => 4,
            Stroke::Dashed | Stroke::Dotted => 5,
        }
    }
}

/// The line between its interruptions. A point alone becomes a dot.
fn pieces(line: &Line) -> impl Iterator<Item = Vec<(f64, f64)>> + '_ {
    line.split(Option::is_none)
        .filter(|piece| !piece.is_empty())
        .map(|piece| piece.iter().flatten().copied().collect())
}

fn draw_legend<B: DrawingBackend>(
    figure: &Figure,
    label_height: i32,
    area: &Area<B>,
) -> Result<(), DrawError> {
    let style = text_style(TEXT, &INK).pos(Pos::new(HPos::Left, VPos::Center));
    let start = label_height + 34;
    for (index, (name, colour)) in figure.legend.iter().zip(COLOURS).enumerate() {
        let middle = start + index as i32 * LEGEND_ROW;
        let stroke = Stroke::of(index);
        let (dash, gap) = stroke.dash().unwrap_or((LEGEND_LINE, 1));
        for from in (30..30 + LEGEND_LINE as i32).step_by((dash + gap) as usize) {
            let to = (from + dash as i32).min(30 + LEGEND_LINE as i32);
            let line = PathElement::new(
                [(from, middle), (to, middle)],
                colour.stroke_width(stroke.width() + 1),
            );
            area.draw(&line).map_err(DrawError::new)?;
        }
        area.draw_text(&shortened(name, 15), &style, (104, middle)).map_err(DrawError::new)?;
    }
    let mut below = start + figure.legend.len() as i32 * LEGEND_ROW;
    if figure.panels.iter().any(|panel| !panel.levels.is_empty()) {
        draw_level(area, [(30, below), (88, below)], None)?;
        area.draw_text("published", &style, (104, below)).map_err(DrawError::new)?;
        below += LEGEND_ROW;
    }
    if let Some(note) = &figure.note {
        area.draw_text(note, &text_style(SMALL, &MARK), (30, below)).map_err(DrawError::new)?;
    }
    Ok(())
}

fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

/// Without zeroes behind the point.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// With commas between thousands.
fn grouped(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, _)) => (whole, &text[whole.len()..]),
        None => (text.as_str(), ""),
    };
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Level, png};

    fn figure() -> Figure {
        let rising: Line = (0..100).map(|i| Some((f64::from(i), f64::from(i) * 20.0))).collect();
        let broken: Line =
            (0..100).map(|i| (i % 50 > 10).then_some((f64::from(i), 500.0))).collect();
        Figure {
            title: "A title with < and & in it".into(),
            axis: "time (s)".into(),
            end: 100.0,
            panels: vec![
                Panel {
                    top: 2_000.0,
                    points: vec![vec![(3.0, 40.0)]],
                    ..Panel::of_lines("throughput (IOPS)", vec![rising, broken.clone()])
                },
                Panel::of_lines("latency (ms)", vec![Line::new(), Line::new()]),
            ],
            legend: vec!["VM1".into(), "a name that is much too long".into()],
            note: Some("and 7 more".into()),
            marks: vec![
                Mark { at: 30.0, label: "VM2 starts".into() },
                Mark { at: 31.0, label: "VM3 starts".into() },
            ],
        }
    }

    #[test]
    fn a_figure_has_its_axes_lines_legend_and_marks() {
        let drawn = svg(&[figure(), figure()]).unwrap();
        for text in [
            "time (s)",
            "throughput (IOPS)",
            "latency (ms)",
            "VM2 starts",
            "VM3 starts",
            "and 7 more",
            "2,000",
        ] {
            assert!(drawn.contains(text), "{text}");
        }
        assert!(drawn.contains("A title with &lt; and &amp; in it"));
        // One line is whole, one dashed, and so in the legend.
        let strokes = |hex: &str| drawn.matches(&format!("stroke=\"{hex}\"")).count();
        assert_eq!(strokes("#0072B2"), 4);
        assert!(strokes("#D55E00") > 20);
        assert!(!drawn.contains("href"), "nothing from outside");
    }

    #[test]
    fn levels_are_in_the_colour_of_their_line_and_explained() {
        let level = |colour| Level { from: 20.0, to: 60.0, value: 900.0, colour };
        let drawn = |levels: Vec<Level>| {
            let mut figure = figure();
            let panel = figure.panels.remove(0).with_levels(levels);
            figure.panels = vec![panel];
            svg(&[figure]).unwrap()
        };
        let strokes = |drawn: &str, hex: &str| drawn.matches(&format!("stroke=\"{hex}\"")).count();
        let without = drawn(Vec::new());
        let with = drawn(vec![level(Some(0)), level(None)]);
        // Two diamonds each; lines, and all of the key, are in ink.
        assert_eq!(strokes(&with, "#0072B2") - strokes(&without, "#0072B2"), 2);
        assert_eq!(strokes(&with, "#282828") - strokes(&without, "#282828"), 7);
        assert!(with.contains("published") && !without.contains("published"));
    }

    #[test]
    fn blocks_have_texts_and_places_and_rows_have_names() {
        let block = |text: &str, at: f64| Block {
            from: (at, 0.0),
            to: (at + 1.0, 1.0),
            colour: 1,
            shade: 0.5,
            text: text.into(),
        };
        let mut figure = figure();
        figure.panels = vec![Panel {
            blocks: vec![block("40 %", 0.0), block("", 50.0)],
            places: vec![(0.5, "left".into()), (50.5, "right".into())],
            rows: vec!["upper".into(), "much too long".into()],
            ..Panel::of_lines("who wrote", Vec::new())
        }];
        let drawn = svg(&[figure]).unwrap();
        for text in ["40 %", "left", "right", "upper", "much …", "who wrote"] {
            assert!(drawn.contains(text), "{text}");
        }
        assert!(!drawn.contains("\n0.5\n"), "names stand where numbers would");
        assert!(drawn.matches("fill=\"#D55E00\"").count() >= 2);
    }

    #[test]
    fn the_same_figure_is_a_picture() {
        let picture = png(&[figure()]).unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"));
        let word = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
        assert_eq!((word(16), word(20)), (WIDTH, height(&figure()).unwrap()));
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!(grouped(1_234_567.0, 0), "1,234,567");
        assert_eq!(grouped(999.0, 0), "999");
        assert_eq!(grouped(1_234.5, 1), "1,234.5");
        assert_eq!(plain(120.0), "120");
        assert_eq!(plain(0.25), "0.25");
    }
}
