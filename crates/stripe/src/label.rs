use crate::checksum::crc32c;
use crate::id::StripeId;
use crate::layout::{Layout, LayoutError};
use crate::lease::{HOST_NAME_MAX, HostName, Lease};
use core::fmt;
use headgate_units::Bytes;
use thiserror::Error;

/// The length of a label, in bytes. It is at the beginning of the export.
pub const LABEL_LEN: usize = 4096;

/// Of a disk that is made: programs of before there were stages read it.
const VERSION_MADE: u32 = 2;
/// With a stage.
const VERSION_STAGED: u32 = 3;

const MAGIC: &[u8; 16] = b"HEADGATE STRIPE\n";
const VERSION_AT: usize = 16;
const ID_AT: usize = 20;
const INDEX_AT: usize = 36;
const MEMBERS_AT: usize = 38;
const UNIT_AT: usize = 40;
const SIZE_AT: usize = 48;
const NUMBER_AT: usize = 56;
const HOST_AT: usize = 64;
const NAME_AT: usize = 80;
const STAGE_AT: usize = NAME_AT + HOST_NAME_MAX;
const CHECKSUM_AT: usize = LABEL_LEN - 4;

const BEING_MADE: u8 = 1;

/// How far the making of a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Some of its members may have no label yet. Nobody has served it.
    BeingMade,
    /// All of its members have labels.
    Made,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::BeingMade => {
                "the making of the disk was begun and not finished: create it again on the same \
                 exports"
            }
            Stage::Made => "the disk is made",
        })
    }
}

/// What an export says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The disk.
    pub id: StripeId,
    /// Which member of it, from 0.
    pub index: u16,
    /// How the disk is laid out.
    pub layout: Layout,
    /// Who may serve it, or makes it.
    pub lease: Lease,
    /// Whether it can be served.
    pub stage: Stage,
}

/// Why bytes are no label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LabelError {
    /// Zeroes, or something else than a label.
    #[error("the export holds no label: it is not a member of a striped disk")]
    None,
    /// The checksum is another, or there is something where nothing belongs.
    #[error("the label of the export is damaged")]
    Damaged,
    /// Written by a program that this one does not understand.
    #[error(
        "the label of the export is of version {0}, and this program reads versions \
         {VERSION_MADE} and {VERSION_STAGED}: use the program that wrote it, or a newer one"
    )]
    Version(u32),
    /// A layout that there is not.
    #[error("the label of the export says {0}")]
    Layout(LayoutError),
    /// A member that the disk does not have.
    #[error("the label of the export says member {index} of {members}, counted from 0")]
    Index {
        /// Which member.
        index: u16,
        /// How many the disk has.
        members: u16,
    },
    /// A host without a number, a number of nobody's, a name that is none, or nobody who makes the
    /// disk.
    #[error("the label of the export says of a host what cannot be")]
    Lease,
}

/// How an export differs from the one that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// It is another disk's.
    #[error(
        "the export belongs to the striped disk {found}, expected {expected}: check its address"
    )]
    Disk {
        /// The label's.
        found: StripeId,
        /// The one that was asked for.
        expected: StripeId,
    },
    /// The disk was made with another unit, number of members or size.
    #[error(
        "the disk was made with {found}, expected {expected}: give the exports and values that it \
         was made with"
    )]
    Layout {
        /// The label's.
        found: Layout,
        /// The one that was asked for.
        expected: Layout,
    },
    /// It is another member of the disk.
    #[error(
        "the export is member {found} of the disk, expected member {expected} (the first is 0): \
         give the exports in the order in which the disk was made of them"
    )]
    Place {
        /// The label's.
        found: u16,
        /// The one that was asked for.
        expected: u16,
    },
    /// Another may serve the disk.
    #[error("the disk is held by {found}, and lease {expected} was expected")]
    Lease {
        /// The label's.
        found: Lease,
        /// The number of the one that was asked for.
        expected: u64,
    },
    /// It is not made, or it is.
    #[error("{0}")]
    Stage(Stage),
}

impl Label {
    /// The label as bytes. One whose index is not below its members is written as it is, and
    /// refused when it is read.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LABEL_LEN] {
        let mut bytes = [0; LABEL_LEN];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(0, MAGIC);
        let (version, stage) = match self.stage {
            Stage::Made => (VERSION_MADE, 0),
            Stage::BeingMade => (VERSION_STAGED, BEING_MADE),
        };
        put(VERSION_AT, &version.to_be_bytes());
        put(ID_AT, &self.id.0);
        put(INDEX_AT, &self.index.to_be_bytes());
        put(MEMBERS_AT, &self.layout.members().to_be_bytes());
        put(UNIT_AT, &self.layout.unit().0.to_be_bytes());
        put(SIZE_AT, &self.layout.size().0.to_be_bytes());
        put(NUMBER_AT, &self.lease.number.to_be_bytes());
        put(HOST_AT, &self.lease.host);
        put(NAME_AT, self.lease.name.bytes());
        put(STAGE_AT, &[stage]);
        let checksum = crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// The label that an export begins with.
    ///
    /// # Errors
    /// When there is none, when it is damaged or of another version, and when it says what cannot
    /// be.
    pub fn from_bytes(bytes: &[u8; LABEL_LEN]) -> Result<Label, LabelError> {
        if !bytes.starts_with(MAGIC) {
            return Err(LabelError::None);
        }
        if u32::from_be_bytes(field(bytes, CHECKSUM_AT)) != crc32c(&bytes[..CHECKSUM_AT]) {
            return Err(LabelError::Damaged);
        }
        let (stage, expected) = match u32::from_be_bytes(field(bytes, VERSION_AT)) {
            VERSION_MADE => (Stage::Made, 0),
            VERSION_STAGED => (Stage::BeingMade, BEING_MADE),
            version => return Err(LabelError::Version(version)),
        };
        let [found, zeroes @ ..] = &bytes[STAGE_AT..CHECKSUM_AT] else {
            return Err(LabelError::Damaged);
        };
        if *found != expected || zeroes.iter().any(|byte| *byte != 0) {
            return Err(LabelError::Damaged);
        }
        let members = u16::from_be_bytes(field(bytes, MEMBERS_AT));
        let unit = Bytes(u64::from_be_bytes(field(bytes, UNIT_AT)));
        let size = Bytes(u64::from_be_bytes(field(bytes, SIZE_AT)));
        let layout = Layout::new(unit, members, size).map_err(LabelError::Layout)?;
        let index = u16::from_be_bytes(field(bytes, INDEX_AT));
        if index >= members {
            return Err(LabelError::Index { index, members });
        }
        let lease = lease(bytes).ok_or(LabelError::Lease)?;
        if stage == Stage::BeingMade && !lease.is_held() {
            return Err(LabelError::Lease);
        }
        Ok(Label { id: StripeId(field(bytes, ID_AT)), index, layout, lease, stage })
    }

    /// Whether this, which an export says, is the label that is expected there.
    ///
    /// # Errors
    /// What differs first: the disk, its layout, the place in it, who may serve it, the stage.
    pub fn check(&self, expected: &Label) -> Result<(), Mismatch> {
        if self.id != expected.id {
            return Err(Mismatch::Disk { found: self.id, expected: expected.id });
        }
        if self.layout != expected.layout {
            return Err(Mismatch::Layout { found: self.layout, expected: expected.layout });
        }
        if self.index != expected.index {
            return Err(Mismatch::Place { found: self.index, expected: expected.index });
        }
        if self.lease != expected.lease {
            let expected = expected.lease.number;
            return Err(Mismatch::Lease { found: self.lease, expected });
        }
        if self.stage != expected.stage {
            return Err(Mismatch::Stage(self.stage));
        }
        Ok(())
    }
}

fn lease(bytes: &[u8; LABEL_LEN]) -> Option<Lease> {
    let number = u64::from_be_bytes(field(bytes, NUMBER_AT));
    let name = HostName::from_bytes(&field(bytes, NAME_AT))?;
    let lease = Lease { number, host: field(bytes, HOST_AT), name };
    let is_nobodys = !lease.is_held() && lease.name == Lease::NONE.name;
    (is_nobodys || lease.is_held() && number > 0).then_some(lease)
}

/// Some bytes of a label.
fn field<const LEN: usize>(bytes: &[u8; LABEL_LEN], at: usize) -> [u8; LEN] {
    let mut field = [0; LEN];
    field.copy_from_slice(&bytes[at..at + LEN]);
    field
}
