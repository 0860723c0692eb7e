//! Numbers beside those that they are compared with: a row each, on one logarithmic axis.

use super::svg::{
    Area, DrawError, FONT, GRID, INK, MARK, SMALL, TITLE, TITLE_TEXT, WIDTH, register_fonts,
    text_style,
};
use plotters::element::{PathElement, Polygon};
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Quotients of numbers and of what they are compared with, which stands at 1.
#[derive(Clone, Debug)]
pub struct Ratios {
    /// Above all.
    pub title: String,
    /// Below the axis.
    pub axis: String,
    /// The name of what stands at 1.
    pub reference: String,
    /// Rows that belong together.
    pub groups: Vec<Group>,
}

/// Rows under a heading.
#[derive(Clone, Debug)]
pub struct Group {
    /// The heading.
    pub name: String,
    /// From top to bottom.
    pub rows: Vec<Ratio>,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Ratio {
    /// What it is of.
    pub name: String,
    /// What is said beside the name.
    pub beside: String,
    /// The number that it is compared with, the number, and how far that is off, as texts.
    pub texts: [String; 3],
    /// The quotient; none where there is none.
    pub value: Option<f64>,
    /// Those of single runs.
    pub points: Vec<f64>,
    /// How it is to be taken.
    pub tone: Tone,
}

/// The colour and the form of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// As it should be: a disc.
    Good,
    /// Not as it might be: a square.
    Off,
    /// Known not to be as it should be: a triangle.
    Known,
    /// Not as it should be: a cross.
    Bad,
}

impl Tone {
    fn colour(self) -> RGBColor {
        match self {
            Tone::Good => RGBColor(0, 128, 90),
            Tone::Off => RGBColor(122, 62, 157),
            Tone::Known => RGBColor(190, 110, 0),
            Tone::Bad => RGBColor(190, 30, 30),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Tone::Good => "holds",
            Tone::Off => "off paper",
            Tone::Known => "differs",
            Tone::Bad => "FAILS",
        }
    }
}

/// Deviations that have a band, with its colour, the widest first.
const BANDS: [(f64, RGBColor); 3] = [
    (0.20, RGBColor(240, 244, 248)),
    (0.10, RGBColor(222, 233, 242)),
    (0.05, RGBColor(196, 217, 233)),
];
/// Half widths of the axis, as factors: the first that has room for all is taken.
const WIDTHS: [f64; 5] = [1.3, 2.1, 3.2, 5.2, 10.5];
/// Places with a number, where there is room.
const TICKS: [f64; 15] =
    [0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0];

// Columns and rows, in units of the picture.
const NAME: i32 = 20;
const BESIDE: i32 = 610;
const LEFT: i32 = 640;
const RIGHT: i32 = 1_290;
const TEXTS: [i32; 3] = [1_470, 1_620, 1_780];
const COLUMN_GAP: i32 = 20;
const KEY: u32 = 44;
const HEAD: u32 = 44;
const ROW: i32 = 36;
const AXIS: u32 = 84;
const MARK_SIZE: i32 = 9;
const POINT_SIZE: i32 = 5;
/// Between the left edges of the numbers of two ticks.
const TICK_ROOM: i32 = 62;

impl Ratios {
    /// As SVG.
    ///
    /// # Errors
    ///
    /// [`DrawError`]: the drawing library failed.
    pub fn svg(&self) -> Result<String, DrawError> {
        register_fonts()?;
        let mut text = String::new();
        let size = (WIDTH, self.height());
        self.draw(&SVGBackend::with_string(&mut text, size).into_drawing_area())?;
        Ok(text)
    }

    fn rows(&self) -> u32 {
        self.groups.iter().map(|group| group.rows.len() as u32 + 1).sum()
    }

    fn height(&self) -> u32 {
        TITLE + KEY + HEAD + self.rows() * ROW as u32 + AXIS
    }

    /// How often the least and the most that is shown are in one.
    fn scale(&self) -> Scale {
        let rows = self.groups.iter().flat_map(|group| &group.rows);
        let all = rows.flat_map(|row| row.value.iter().chain(&row.points));
        let far = all.filter(|ratio| **ratio > 0.0).map(|ratio| ratio.ln().abs());
        let most = far.fold(0.0, f64::max);
        let [.., widest] = WIDTHS;
        let fits = WIDTHS.into_iter().find(|width| most <= width.ln());
        Scale { width: fits.unwrap_or(widest).ln() }
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), DrawError> {
        area.fill(&WHITE).map_err(DrawError::new)?;
        let style = (FONT, TITLE_TEXT, FontStyle::Bold).into_font().color(&INK);
        area.draw_text(&self.title, &style, (NAME, 20)).map_err(DrawError::new)?;
        self.draw_key(area, (TITLE + KEY / 2) as i32)?;
        let top = (TITLE + KEY + HEAD) as i32;
        let bottom = top + self.rows() as i32 * ROW;
        let scale = self.scale();
        self.draw_grid(area, scale, (top, bottom))?;
        let head = text_style(SMALL, &MARK);
        for (text, at) in [self.reference.as_str(), "ours", "off by"].iter().zip(TEXTS) {
            let style = head.pos(Pos::new(HPos::Right, VPos::Bottom));
            area.draw_text(text, &style, (at, top)).map_err(DrawError::new)?;
        }
        let mut middle = top + ROW / 2;
        for group in &self.groups {
            let style = (FONT, SMALL, FontStyle::Bold).into_font().color(&INK);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            area.draw_text(&group.name, &style, (NAME, middle)).map_err(DrawError::new)?;
            middle += ROW;
            for row in &group.rows {
                draw_row(area, row, scale, middle)?;
                middle += ROW;
            }
        }
        Ok(())
    }

    /// What the marks mean: those that there are.
    fn draw_key<B: DrawingBackend>(&self, area: &Area<B>, middle: i32) -> Result<(), DrawError> {
        let rows = || self.groups.iter().flat_map(|group| &group.rows);
        let mut tones: Vec<Tone> = rows().map(|row| row.tone).collect();
        tones.sort_unstable();
        tones.dedup();
        let style = text_style(SMALL, &INK).pos(Pos::new(HPos::Left, VPos::Center));
        let mut at = NAME + MARK_SIZE;
        let said = |at: &mut i32, text: &str| -> Result<(), DrawError> {
            area.draw_text(text, &style, (*at + 20, middle)).map_err(DrawError::new)?;
            *at += 56 + width(text)?;
            Ok(())
        };
        draw_reference(area, (at, middle))?;
        said(&mut at, &self.reference)?;
        for tone in tones {
            draw_mark(area, (at, middle), tone)?;
            said(&mut at, &format!("ours, {}", tone.name()))?;
        }
        if rows().any(|row| row.points.len() > 1) {
            draw_point(area, (at, middle), INK)?;
            said(&mut at, "one seed")?;
        }
        for (part, colour) in BANDS.iter().rev() {
            let square = [(at - 12, middle - 12), (at + 12, middle + 12)];
            area.draw(&Rectangle::new(square, colour.filled())).map_err(DrawError::new)?;
            said(&mut at, &format!("within {:.0} %", part * 100.0))?;
        }
        Ok(())
    }

    fn draw_grid<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        scale: Scale,
        (top, bottom): (i32, i32),
    ) -> Result<(), DrawError> {
        for (part, colour) in BANDS {
            let corners = [(scale.place(1.0 - part), top), (scale.place(1.0 + part), bottom)];
            area.draw(&Rectangle::new(corners, colour.filled())).map_err(DrawError::new)?;
        }
        let line = |at: i32, style: ShapeStyle| {
            area.draw(&PathElement::new([(at, top), (at, bottom)], style)).map_err(DrawError::new)
        };
        let style = text_style(SMALL, &INK).pos(Pos::new(HPos::Center, VPos::Top));
        for tick in scale.ticks() {
            let at = scale.place(tick);
            line(at, GRID.stroke_width(2))?;
            let number = format!("{tick:.2}");
            let number = number.trim_end_matches('0').trim_end_matches('.');
            area.draw_text(number, &style, (at, bottom + 8)).map_err(DrawError::new)?;
        }
        line(scale.place(1.0), INK.stroke_width(2))?;
        area.draw(&PathElement::new([(LEFT, bottom), (RIGHT, bottom)], INK.stroke_width(2)))
            .map_err(DrawError::new)?;
        let middle = (LEFT + RIGHT) / 2;
        area.draw_text(&self.axis, &style, (middle, bottom + 44)).map_err(DrawError::new)
    }
}

/// The axis: from `exp(-width)` to `exp(width)`.
#[derive(Clone, Copy, Debug)]
struct Scale {
    width: f64,
}

impl Scale {
    /// Where a quotient is. What is beyond is at the edge; so is what has no logarithm.
    fn place(self, ratio: f64) -> i32 {
        let log = if ratio > 0.0 { ratio.ln() } else { f64::NEG_INFINITY };
        let part = (log / self.width).clamp(-1.0, 1.0);
        let middle = f64::from(LEFT + RIGHT) / 2.0;
        (middle + part * f64::from(RIGHT - LEFT) / 2.0).round() as i32
    }

    fn shows(self, ratio: f64) -> bool {
        ratio > 0.0 && ratio.ln().abs() <= self.width
    }

    /// As many as have room, from 1 outwards.
    fn ticks(self) -> Vec<f64> {
        let mut ticks: Vec<f64> = TICKS.into_iter().filter(|tick| self.shows(*tick)).collect();
        ticks.sort_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()));
        let mut taken: Vec<f64> = Vec::new();
        for tick in ticks {
            let near = |other: &f64| (self.place(*other) - self.place(tick)).abs() < TICK_ROOM;
            if !taken.iter().any(near) {
                taken.push(tick);
            }
        }
        taken
    }
}

fn draw_row<B: DrawingBackend>(
    area: &Area<B>,
    row: &Ratio,
    scale: Scale,
    middle: i32,
) -> Result<(), DrawError> {
    let beside = fitted(&row.beside, (BESIDE - NAME) / 2)?;
    let room = BESIDE - NAME - width(&beside)? - COLUMN_GAP;
    let left = text_style(SMALL, &INK).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw_text(&fitted(&row.name, room)?, &left, (NAME, middle)).map_err(DrawError::new)?;
    let right = text_style(SMALL, &MARK).pos(Pos::new(HPos::Right, VPos::Center));
    area.draw_text(&beside, &right, (BESIDE, middle)).map_err(DrawError::new)?;
    let right = text_style(SMALL, &INK).pos(Pos::new(HPos::Right, VPos::Center));
    for (text, at) in row.texts.iter().zip(TEXTS) {
        area.draw_text(text, &right, (at, middle)).map_err(DrawError::new)?;
    }
    let colour = row.tone.colour();
    if row.points.len() > 1 {
        let places = || row.points.iter().map(|point| scale.place(*point));
        if let (Some(least), Some(most)) = (places().min(), places().max()) {
            let spread = [(least, middle), (most, middle)];
            area.draw(&PathElement::new(spread, colour.stroke_width(2))).map_err(DrawError::new)?;
        }
        for place in places() {
            draw_point(area, (place, middle), colour)?;
        }
    }
    draw_reference(area, (scale.place(1.0), middle))?;
    match row.value {
        Some(value) if scale.shows(value) => {
            draw_mark(area, (scale.place(value), middle), row.tone)
        }
        Some(value) => draw_beyond(area, (scale.place(value), middle), row.tone),
        None => Ok(()),
    }
}

/// What is compared with: a diamond that lets others be seen.
fn draw_reference<B: DrawingBackend>(area: &Area<B>, at: (i32, i32)) -> Result<(), DrawError> {
    let (x, y) = at;
    let size = MARK_SIZE + 5;
    let corners = [(x - size, y), (x, y - size), (x + size, y), (x, y + size), (x - size, y)];
    area.draw(&PathElement::new(corners, INK.stroke_width(2))).map_err(DrawError::new)
}

fn draw_point<B: DrawingBackend>(
    area: &Area<B>,
    at: (i32, i32),
    colour: RGBColor,
) -> Result<(), DrawError> {
    area.draw(&Circle::new(at, POINT_SIZE, colour.mix(0.35).filled())).map_err(DrawError::new)
}

fn draw_mark<B: DrawingBackend>(
    area: &Area<B>,
    at: (i32, i32),
    tone: Tone,
) -> Result<(), DrawError> {
    let ((x, y), size) = (at, MARK_SIZE);
    let colour = tone.colour();
    match tone {
        Tone::Good => area.draw(&Circle::new(at, size - 1, colour.filled())),
        Tone::Off => {
            let corners = [(x - size + 1, y - size + 1), (x + size - 1, y + size - 1)];
            area.draw(&Rectangle::new(corners, colour.filled()))
        }
        Tone::Known => {
            let corners = vec![(x - size, y + size - 1), (x, y - size), (x + size, y + size - 1)];
            area.draw(&Polygon::new(corners, colour.filled()))
        }
        Tone::Bad => {
            let cross = |from, to| PathElement::new([from, to], colour.stroke_width(5));
            area.draw(&cross((x - size, y - size), (x + size, y + size)))
                .and_then(|()| area.draw(&cross((x - size, y + size), (x + size, y - size))))
        }
    }
    .map_err(DrawError::new)
}

/// An arrow at the edge: it is beyond.
fn draw_beyond<B: DrawingBackend>(
    area: &Area<B>,
    (x, y): (i32, i32),
    tone: Tone,
) -> Result<(), DrawError> {
    let tip = if x > (LEFT + RIGHT) / 2 { x + 2 * MARK_SIZE } else { x - 2 * MARK_SIZE };
    let corners = vec![(x, y - MARK_SIZE), (tip, y), (x, y + MARK_SIZE)];
    area.draw(&Polygon::new(corners, tone.colour().filled())).map_err(DrawError::new)
}

fn width(text: &str) -> Result<i32, DrawError> {
    let (wide, _) = (FONT, SMALL).into_font().box_size(text).map_err(DrawError::new)?;
    Ok(wide as i32)
}

/// As much of a text as has room.
fn fitted(text: &str, room: i32) -> Result<String, DrawError> {
    let mut fits = text.to_owned();
    let mut left = text.chars().count();
    while left > 1 && width(&fits)? > room {
        left -= 1;
        fits = text.chars().take(left).chain(['…']).collect();
    }
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, value: Option<f64>, tone: Tone) -> Ratio {
        Ratio {
            name: name.into(),
            beside: "mclock".into(),
            texts: ["300/s".into(), "310/s".into(), "+3.3 %".into()],
            value,
            points: value.into_iter().flat_map(|value| [value * 0.98, value * 1.02]).collect(),
            tone,
        }
    }

    fn ratios(rows: Vec<Ratio>) -> Ratios {
        Ratios {
            title: "x < y".into(),
            axis: "ours / paper".into(),
            reference: "paper".into(),
            groups: vec![Group { name: "iops (1/s)".into(), rows }],
        }
    }

    #[test]
    fn places_are_by_logarithm_and_stay_within_the_axis() {
        let scale = Scale { width: 4.0_f64.ln() };
        let middle = (LEFT + RIGHT) / 2;
        assert_eq!([scale.place(1.0), scale.place(4.0), scale.place(0.25)], [middle, RIGHT, LEFT]);
        let [twice, half] = [scale.place(2.0) - middle, middle - scale.place(0.5)];
        assert!((twice - half).abs() <= 1 && (twice - (RIGHT - middle) / 2).abs() <= 1);
        assert_eq!([scale.place(9.0), scale.place(0.0), scale.place(-1.0)], [RIGHT, LEFT, LEFT]);
        assert!(!scale.shows(9.0) && !scale.shows(0.0) && scale.shows(4.0));
    }

    #[test]
    fn the_axis_is_as_wide_as_what_it_shows() {
        let of = |value| ratios(vec![row("a", Some(value), Tone::Good)]).scale().width.exp();
        for (value, width) in [(1.1, 1.3), (0.5, 2.1), (2.4, 3.2), (4.0, 5.2), (0.001, 10.5)] {
            assert!((of(value) - width).abs() < 1e-9, "{value}: {}", of(value));
        }
        for width in WIDTHS {
            let ticks = Scale { width: width.ln() }.ticks();
            assert!(ticks.contains(&1.0) && ticks.len() >= 5, "{width}: {ticks:?}");
        }
    }

    #[test]
    fn a_row_has_its_mark_its_seeds_and_its_numbers() {
        let all = ratios(vec![
            row("VM1 in steady", Some(1.03), Tone::Good),
            row("VM2", Some(30.0), Tone::Known),
            row("VM3", None, Tone::Bad),
            row(&"a name that is much too long ".repeat(9), Some(0.9), Tone::Off),
        ]);
        let drawn = all.svg().unwrap();
        let texts = ["x &lt; y", "iops (1/s)", "VM1 in steady", "mclock", "+3.3 %", "ours / paper"];
        let key = ["ours, holds", "ours, differs", "ours, off paper", "one seed", "within 20 %"];
        for text in texts.iter().chain(&key) {
            assert!(drawn.contains(text), "{text}");
        }
        assert!(drawn.contains("a name that is much") && drawn.contains('…'));
        let filled = |tone: Tone| {
            let RGBColor(r, g, b) = tone.colour();
            drawn.matches(&format!("fill=\"#{r:02X}{g:02X}{b:02X}\"")).count()
        };
        // Seeds, the mark, and the one of the key.
        assert_eq!([filled(Tone::Good), filled(Tone::Off)], [4, 4]);
        assert_eq!(drawn.matches("<polygon").count(), 2, "an arrow at the edge, and its key");
        assert!(!drawn.contains("href"), "nothing from outside");
    }
}
