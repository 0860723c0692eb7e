//! SVG to PNG.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use std::sync::Arc;
use thiserror::Error;

/// Why there is no picture.
#[derive(Debug, Error)]
pub(crate) enum PngError {
    /// Cannot be, for the SVG is our own.
    #[error("the figure cannot be read: {0}")]
    Svg(#[from] resvg::usvg::Error),
    /// Too large for memory.
    #[error("a picture of {0} by {1} pixels is too large: choose fewer variants, or SVG")]
    Size(u32, u32),
    /// Cannot be either.
    #[error("the picture cannot be encoded: {0}")]
    Encode(String),
}

/// Pixels of a side beyond which nobody can open a picture.
const MOST: u32 = 32_767;

/// Draws a figure of [`svg`](super::svg), pixel for unit.
pub(crate) fn png(svg: &str) -> Result<Vec<u8>, PngError> {
    let mut options = Options::default();
    let fonts = Arc::make_mut(&mut options.fontdb);
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.load_font_data(dejavu::sans::bold().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let tree = Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size();
    let (width, height) = (size.width(), size.height());
    let too_large = || PngError::Size(width, height);
    if width > MOST || height > MOST {
        return Err(too_large());
    }
    let mut pixels = Pixmap::new(width, height).ok_or_else(too_large)?;
    resvg::render(&tree, Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| PngError::Encode(e.to_string()))
}
