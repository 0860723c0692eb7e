//! Content of disks in image files and on NBD servers, and the copy from one to the other.
//!
//! - [`Source`] and [`Sink`]: where content comes from and where it goes.
//! - [`copy`]: copies one into the other, sparse, in a bounded amount of memory. It knows neither
//!   files nor sockets.
//! - [`ImageSource`]: a raw or qcow2 file that somebody else made. It is hostile: nothing that it
//!   refers to is opened unless the caller [allows it](Backing).
//! - [`NewImage`]: a raw or qcow2 file that appears under its name when it is whole.
//! - [`Link`]: an export of an NBD server, with several requests under way. [`NbdSource`] and
//!   [`NbdSink`] are what it holds, and what it is to hold.
//!
//! Everything here blocks; [`Control`] ends a copy from another thread.

#![forbid(unsafe_code)]

mod chunks;
mod content;
mod copy;
mod error;
mod format;
mod link;
mod nbd;
mod new_image;
mod qcow2;
mod raw;
mod signature;
mod source;
mod walk;

pub use content::{Content, Run, Sink, Source};
pub use copy::{CHUNK, Control, Copied, JOBS, copy};
pub use error::ImageError;
pub use format::Format;
pub use link::Link;
pub use nbd::{NbdSink, NbdSource};
pub use new_image::{NewImage, Replace};
pub use qcow2::Backing;
pub use source::ImageSource;
