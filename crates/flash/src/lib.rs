//! A page-mapped flash translation layer that can give each owner its own erase blocks and its own
//! over-provisioning space.
//!
//! Flash is programmed page by page and erased block by block. Who overwrites a page writes a new
//! one, and the old one is waste until *collection* moves the valid pages of its block away and
//! erases it. How many have to be moved depends on how much of the medium is not data, the
//! *over-provisioning space*. When several owners share blocks, one moves pages for another's
//! writes, and no scheduler above can divide the device any more. Under *isolation* every block
//! holds pages of one owner, whose over-provisioning space is sized so that it reaches its target
//! rate.
//!
//! | part | where |
//! |---|---|
//! | what is underneath: dies, planes, erase blocks, pages, out-of-band records | [`Geometry`], [`Medium`], [`Image`] |
//! | the layer: write, read, trim, owners | [`Ftl`] |
//! | what it tells the medium | [`Op`], [`Sink`] |
//! | collection between requests, step by step | [`Ftl::work`], [`Ftl::step`] |
//! | shared, static, dynamic | [`Isolation`] |
//! | what collection costs, and back | [`Utilisation`], [`CellTimes`], [`WriteCosts`] |
//! | what writes did cost | [`Ftl::spent`], [`Spent`] |
//! | what it costs by analysis, for comparison | [`theory`] |
//! | rebuilding the state | [`Ftl::recover`] |
//!
//! ```
//! use headgate_flash::{Config, Ftl, Geometry, Image, OwnerId, OwnerSpec};
//! use headgate_units::Bytes;
//!
//! // 2 dies of 2 planes, 16 blocks each, 64 pages of 4 KiB.
//! let geometry = Geometry::new(2, 2, 16, 64, Bytes::from_kib(4))?;
//! let mut ftl = Ftl::format(Image::new(geometry), Config::default())?;
//! let disk = OwnerId(7);
//! ftl.add_owner(disk, OwnerSpec::pages(3_000))?;
//! let mut ops = Vec::new();
//! for page in 0..3_000 {
//!     ftl.write(disk, page, &mut ops)?; // programs pages, and collects when it must
//! }
//! while let Some(_work) = ftl.step(&mut ops)? {} // or in small steps when nobody waits
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The medium and the operations
//! A [`Medium`] is what the records are on; [`Image`] keeps them in memory. The layer changes it at
//! once. Beside that it tells a [`Sink`] each operation, in order: a device model puts times on
//! them. A real medium does them, in that order wherever the same block is concerned.
//!
//! # State
//! Each page is programmed with a [`Record`] of its owner, its logical page and a sequence number.
//! Everything else follows from the records. So nothing needs a journal, and a crash loses no page
//! whose program was completed. A trim is a page of its own that says which pages it was, kept
//! while copies older than it may be on the medium.
//!
//! # Pools, quotas, thresholds
//! Blocks are collected in *pools*: one for all owners in the shared mode, else one for each. A
//! pool may hold as many blocks as its *quota*. Of these its data need some; the rest is its
//! over-provisioning space. When a write would open a block and leave the pool fewer than
//! [`Thresholds::foreground`] to go, blocks are collected first, as many as it takes.
//!
//! # Source
//! J. Kim, D. Lee, S. H. Noh: *Towards SLO Complying SSDs Through OPS Isolation*, FAST 2015. What
//! the paper leaves open, and what is chosen, is in `docs/decisions/0031-flash.md`.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod background;
mod blocks;
mod check;
mod collect;
mod config;
mod equations;
mod error;
mod ftl;
mod geometry;
mod image;
mod level;
mod map;
mod medium;
mod op;
mod owner;
mod owners;
mod pace;
mod pool;
mod quota;
mod recover;
mod stats;
pub mod theory;

pub use background::{Work, WorkKind};
pub use config::{
    Config, Control, CopyBack, Isolation, Levelling, Rating, Streams, Targets, Thresholds, Victims,
};
pub use equations::{CellTimes, Utilisation, WriteCosts};
pub use error::{ConfigError, FtlError, OwnerError};
pub use ftl::Ftl;
pub use geometry::{BlockId, Geometry, GeometryError, PageAddr, PlaneId};
pub use image::Image;
pub use medium::{Content, Medium, MediumError, PageState, Record};
pub use op::{Cause, Ignore, Op, Sink};
pub use owner::{KnownOwner, OwnerId, OwnerSpec, OwnerStats};
pub use pace::Spent;
pub use recover::RecoverError;
pub use stats::{FtlStats, Reach, Standing, Wear};
