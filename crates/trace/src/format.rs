use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How a trace is written down. See the crate's documentation for what each looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Our own.
    Csv,
    /// Microseconds, device, operation, offset, length.
    CsvUs,
    /// Virtual SCSI disks, binary.
    Vscsi,
    /// MSR Cambridge.
    Msr,
    /// SYSTOR '17.
    Systor,
    /// What `blkparse` prints.
    Blkparse,
    /// DiskSim's ASCII.
    Disksim,
    /// FIU.
    Fiu,
    /// Tencent cloud block storage.
    Tencent,
}

/// No format has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a trace format; expected one of {known}", known = Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormatName(String);

impl Format {
    /// All formats, in the order in which they are tried.
    pub const ALL: [Format; 9] = [
        Format::Csv,
        Format::CsvUs,
        Format::Vscsi,
        Format::Msr,
        Format::Systor,
        Format::Blkparse,
        Format::Disksim,
        Format::Fiu,
        Format::Tencent,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::CsvUs => "csv-us",
            Format::Vscsi => "vscsi",
            Format::Msr => "msr",
            Format::Systor => "systor",
            Format::Blkparse => "blkparse",
            Format::Disksim => "disksim",
            Format::Fiu => "fiu",
            Format::Tencent => "tencent",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormatName;
    fn from_str(name: &str) -> Result<Format, UnknownFormatName> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormatName(name.to_owned()))
    }
}
