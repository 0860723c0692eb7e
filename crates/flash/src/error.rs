use crate::medium::MediumError;
use crate::owner::OwnerId;
use thiserror::Error;

/// A configuration that does not fit its medium.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Collection needs a free block to move pages to.
    #[error("the foreground threshold must be 1 or more free blocks: collection moves pages there")]
    NoForeground,
    /// Averages are over something.
    #[error("utilisation must be averaged over 1 victim or more")]
    NoWindow,
    /// The medium is smaller than what the layer keeps for itself.
    #[error(
        "{blocks} blocks are too few: this configuration needs {least} before the first page of data"
    )]
    TooFewBlocks {
        /// Blocks of the medium.
        blocks: u32,
        /// The least number.
        least: u32,
    },
}

/// Why an owner cannot come or go.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OwnerError {
    /// The number is in use.
    #[error("there is an owner {0} already")]
    Exists(OwnerId),
    /// Nobody has that number.
    #[error("there is no owner {0}")]
    Unknown(OwnerId),
    /// A disk without pages.
    #[error("owner {0} must have 1 page or more")]
    NoPages(OwnerId),
    /// It has more pages than it is to grow to.
    #[error("owner {id} has {before} pages, and {pages} are fewer")]
    Shrinks {
        /// Who.
        id: OwnerId,
        /// Pages that it has.
        before: u32,
        /// Pages that it was to have.
        pages: u32,
    },
    /// There is no room for its pages and the least over-provisioning space of everybody.
    #[error(
        "owner {id} needs {needed} blocks for its pages and the least over-provisioning space, and {left} are left: \
         remove an owner, or make this one smaller"
    )]
    NoSpace {
        /// Who.
        id: OwnerId,
        /// Blocks that it needs.
        needed: u32,
        /// Blocks that are neither data nor anybody's least space.
        left: u32,
    },
    /// The layer stopped.
    #[error(transparent)]
    Ftl(#[from] FtlError),
}

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FtlError {
    /// Nobody has that number.
    #[error("there is no owner {0}")]
    UnknownOwner(OwnerId),
    /// The page is outside the owner's disk.
    #[error("page {page} is outside owner {owner}'s {pages} pages")]
    OutOfRange {
        /// Whose disk.
        owner: OwnerId,
        /// Which page.
        page: u64,
        /// Pages that it has.
        pages: u32,
    },
    /// The medium failed. Nothing more is done: rebuild the state with
    /// [`Ftl::recover`](crate::Ftl::recover).
    #[error("the medium failed, the translation layer has stopped")]
    Medium(#[from] MediumError),
    /// The medium failed before.
    #[error(
        "the translation layer has stopped after an earlier failure of its medium: rebuild its state"
    )]
    Stopped,
    /// No block can be gained by collection.
    #[error("no block can be freed: all of them are full of valid pages")]
    NoSpace,
    /// A record is not what it must be: the medium changed behind our back.
    #[error("page {0} of the medium is not what was written there")]
    Corrupt(u32),
}
