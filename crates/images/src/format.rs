//! Formats of images.

use std::fmt;

/// The format of an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Byte by byte.
    Raw,
    /// QEMU's format, versions 2 and 3.
    Qcow2,
}

impl Format {
    /// As it is called on command lines and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
        }
    }

    /// The format of this name.
    pub(crate) fn named(name: &str) -> Option<Format> {
        [Format::Raw, Format::Qcow2].into_iter().find(|format| format.as_str() == name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
