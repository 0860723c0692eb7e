//! Block traces: what requests a disk got, and when.
//!
//! A [`TraceReader`] is an iterator of [`Record`]s over any [`std::io::Read`], gzip included. It
//! takes memory for a window of records, whatever the length of the trace, and reads some millions
//! of requests per second (`cargo bench -p headgate-trace`).
//!
//! | [`Format`] | a line, or a record | latency |
//! |---|---|---|
//! | `csv` | `at_ns,disk,op,offset,bytes,latency_ns`: our own, written by [`CsvWriter`] | optional |
//! | `csv-us` | `ts_us,dev,op,offset,len` | – |
//! | `vscsi` | binary, 32 or 40 bytes: traces of virtual SCSI disks as CloudPhysics published them, versions 1 and 2 | – |
//! | `msr` | `FILETIME,host,disk,Read or Write,offset,bytes,response`: MSR Cambridge, SNIA | yes |
//! | `systor` | `seconds,response,R or W,LUN,offset,bytes`: SYSTOR '17, SNIA | yes |
//! | `blkparse` | what `blkparse` prints by default | – |
//! | `disksim` | `milliseconds device block blocks flags`: DiskSim's ASCII | – |
//! | `fiu` | `ns pid process sector sectors R or W major minor md5`: FIU, SNIA | – |
//! | `tencent` | `seconds,sector,sectors,0 or 1,volume`: Tencent cloud block storage | – |
//!
//! `docs/traces.md` describes them in full.
//!
//! # Order and time
//! Times are relative to the earliest request. Some formats list requests in the order of
//! completion; the reader sorts within a window ([`Options::window`]), and what comes later than
//! that is an error like any other.
//!
//! # Errors
//! [`Tolerance::Strict`] ends at the first line that is not what it should be.
//! [`Tolerance::Lenient`] leaves such lines out and counts them in the [`Report`]. No input panics.
//!
//! # What a trace says
//! [`Characteriser`] computes the traits that BASIL models a workload by.

mod character;
mod detect;
mod disks;
mod error;
mod extents;
mod fields;
mod format;
mod formats;
mod outstanding;
mod reader;
mod record;
mod reorder;
mod source;
mod write;

pub use character::{Character, Characteriser, DiskProfile, Profile, Quantiles, Sizes, Volume};
pub use disks::{DiskId, Disks};
pub use error::{Position, Problem, TraceError};
pub use format::{Format, UnknownFormatName};
pub use outstanding::{Outstanding, Unknown};
pub use reader::{Options, Report, Tolerance, TraceReader};
pub use record::{Kind, Record};
pub use write::{CSV_HEADER, CsvWriter};
