//! Figures as PNG.

use super::figure::Figure;
use super::svg::{DrawError, rgb, size};
use png::{BitDepth, ColorType, Encoder, EncodingError};
use thiserror::Error;

/// Why there is no picture.
#[derive(Debug, Error)]
pub enum PngError {
    /// The drawing library failed.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// No viewer opens a picture of this size.
    #[error(
        "a picture of {0} by {1} pixels is too large, at most {MOST} are possible: choose fewer \
         variants, or SVG"
    )]
    Size(u32, u32),
    /// The encoder failed.
    #[error("the picture cannot be encoded: {0}")]
    Encode(#[from] EncodingError),
}

/// Pixels of a side beyond which viewers refuse a picture.
const MOST: u32 = 32_767;

/// Draws figures below each other, one pixel for each unit of [`svg`](super::svg).
pub fn png(figures: &[Figure]) -> Result<Vec<u8>, PngError> {
    let (width, height) = size(figures)?;
    if width > MOST || height > MOST {
        return Err(PngError::Size(width, height));
    }
    let mut pixels = vec![0; width as usize * height as usize * 3];
    rgb(figures, &mut pixels, (width, height))?;
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
}
