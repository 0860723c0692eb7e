//! Figures: quantities over time or over what was varied, as SVG and as PNG.
//!
//! Neither needs anything of the system: letters are measured, and drawn in PNG, with a font inside
//! the program.

mod figure;
mod png;
mod ratios;
mod svg;

pub use figure::{Block, Figure, Level, Line, Mark, Panel};
pub use png::png;
pub use ratios::{Group, Ratio, Ratios, Tone};
pub use svg::{DrawError, MOST_LINES, svg};
