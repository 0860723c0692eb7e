//! A disk that is striped over several exports of NBD servers: where each byte lies, and what each
//! export says of itself.
//!
//! The disk is cut into units of one size, which go to the members in turn. A *member* is one
//! export. Its first MiB is the label's; its data begins at [`DATA_AT`].
//!
//! | what | where |
//! |---|---|
//! | what may be a striped disk | [`Layout::new`] |
//! | how large the exports have to be | [`Layout::member_size`] |
//! | which request goes to which member | [`Layout::parts`] |
//! | which bytes of the request's buffer go there | [`Layout::runs`] |
//! | which byte of the disk a member holds somewhere | [`Layout::disk_offset`] |
//! | what the members say of a range, in the order of the disk | [`Layout::join`] |
//! | whether an export is the one that was meant | [`Label::check`] |
//!
//! ```
//! use headgate_stripe::*;
//! use headgate_units::Bytes;
//!
//! let kib = |n| Bytes::from_kib(n).0;
//! let layout = Layout::new(Bytes::from_kib(64), 3, Bytes::from_gib(10))?;
//!
//! // 160 KiB from 32 KiB on: half of the first unit, the second, the third.
//! let parts: Vec<_> = layout.parts(kib(32), kib(160)).collect();
//! let data = DATA_AT.0;
//! assert_eq!(parts[0], Part { member: 0, offset: data + kib(32), len: kib(32) });
//! assert_eq!(parts[1], Part { member: 1, offset: data, len: kib(64) });
//! assert_eq!(parts[2], Part { member: 2, offset: data, len: kib(64) });
//! assert_eq!(layout.disk_offset(2, parts[2].offset), Some(kib(128)));
//!
//! // Each export says what it is, so that exports in another order are noticed.
//! let lease = Lease { number: 1, host: [9; 16], name: HostName::new("gw1") };
//! let (id, stage) = (StripeId([7; 16]), Stage::Made);
//! let label = |index| Label { id, index, layout, lease, stage };
//! let found = Label::from_bytes(&label(1).to_bytes())?;
//! assert_eq!(found.check(&label(1)), Ok(()));
//! assert_eq!(found.check(&label(2)), Err(Mismatch::Place { found: 1, expected: 2 }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where a byte lies
//! Byte `o` of the disk is in unit `s = o / unit`. That is on member `s % members`, at
//! `DATA_AT + (s / members) * unit + o % unit` of its export.
//!
//! Of the bytes before any offset of the disk a member holds a beginning of its data: its units
//! come in the order of the disk, one behind the other. A range of the disk is what lies before its
//! end less what lies before its beginning. So a member's share of it is one stretch of the export,
//! and one request carries it.
//!
//! # The label
//! The first [`LABEL_LEN`] bytes of each export. Numbers are big endian.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 16 | `HEADGATE STRIPE` and a line feed |
//! | 16 | 4 | version: 2; 3 while the disk is being made |
//! | 20 | 16 | the disk: the same in all of its members |
//! | 36 | 2 | index of this member, from 0 |
//! | 38 | 2 | members |
//! | 40 | 8 | unit, in bytes |
//! | 48 | 8 | size of the disk, in bytes |
//! | 56 | 8 | the lease's number; 0: nobody has held the disk |
//! | 64 | 16 | the host that holds it; 0: nobody does |
//! | 80 | 64 | that host's name in UTF-8, without control characters, and zeroes behind it |
//! | 144 | 1 | 0 in version 2; 1 in version 3 |
//! | 145 | 3947 | 0 |
//! | 4092 | 4 | CRC-32C (Castagnoli) of all before it |
//!
//! The first 20 bytes and the checksum stay where they are in every version: what is damaged is
//! told from what is newer.
//!
//! # Making a disk
//! Whoever makes a disk writes labels of [`Stage::BeingMade`] to all members, and then those of
//! [`Stage::Made`], each durably before the next; it serves the disk after that. So a label that
//! says that the disk is being made says that nothing was written to the disk yet, wherever its
//! making was cut: what is left of it can be taken for a disk of zeroes.
//!
//! A program of before version 3 refuses labels of that version, and reads those of a disk that is
//! made.
//!
//! # The lease
//! One host at a time may serve a disk. Whoever takes it over writes its own lease to all members,
//! with a greater number than any of them had; whoever finds another's lease on a member has lost
//! the disk.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod checksum;
mod id;
mod join;
mod label;
mod layout;
mod lease;
mod ranges;

pub use id::{StripeId, StripeIdError};
pub use join::{Joined, Stretch};
pub use label::{LABEL_LEN, Label, LabelError, Mismatch, Stage};
pub use layout::{Layout, LayoutError, MEMBERS_MAX, SIZE_MAX, SIZE_STEP, UNIT_MAX, UNIT_MIN};
pub use lease::{HOST_NAME_MAX, HostName, Lease};
pub use ranges::{DATA_AT, Part, Parts, Run, Runs};
