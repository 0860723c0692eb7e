//! Figures in files.

use super::error::CliError;
use headgate_report::plot::{Figure, png, svg};
use std::path::PathBuf;

/// A file to draw into.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) file: PathBuf,
    kind: PictureKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PictureKind {
    Svg,
    Png,
}

impl Picture {
    pub(super) fn parse(text: &str) -> Result<Picture, String> {
        let file = PathBuf::from(text);
        let kind = match file.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => PictureKind::Svg,
            Some("png") => PictureKind::Png,
            _ => return Err(format!("'{text}' ends neither in .svg nor in .png")),
        };
        Ok(Picture { file, kind })
    }

    /// The content of the file.
    pub(super) fn draw(&self, figures: &[Figure]) -> Result<Vec<u8>, CliError> {
        match self.kind {
            PictureKind::Svg => {
                svg(figures).map(String::into_bytes).map_err(|e| CliError::Stopped(e.to_string()))
            }
            PictureKind::Png => png(figures).map_err(|e| CliError::Stopped(e.to_string())),
        }
    }
}
