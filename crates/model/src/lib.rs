//! The vocabulary of the control plane: names, records, policies, samples, and the interface of the
//! data plane. It has no behaviour and depends on the pure crates alone, and on `access` for the
//! words of who may connect; the crates that store, serve or display these things depend on it.

mod block_sizes;
mod change;
mod class;
mod connection;
mod copies;
mod data_plane;
mod incomplete;
mod lookback;
mod moves;
mod name;
mod open_disk;
mod overcommit;
mod placement;
mod plane_error;
mod policy;
mod policy_part;
mod records;
mod removed;
mod sample;
mod settled;
mod stripes;
mod tenants;
mod trouble;
mod waits;
mod window;

pub use block_sizes::BlockSizes;
pub use change::Change;
pub use class::{ClassRecord, FieldSource, PlannedRecord, sources};
pub use connection::{
    Connection, ConnectionState, PolicyAnswer, PolicyAnswers, ReceivedIos, ServerConnection,
};
pub use copies::{Blocks, ChangesSince, CopyEvent, CopyOrder, DiskCopies, Reflink};
pub use data_plane::{CutOff, DataPlane, LiveDisk, NotResized, Period, Probe, ShardWaits, Stall};
pub use incomplete::INCOMPLETE;
pub use lookback::{Lookback, UnknownLookback};
pub use moves::{LiveMoves, MoveEvent, MoveOrder, MovePace, MoveRecord, MoveStep};
pub use name::{NAME_MAX, Name, NameError};
pub use open_disk::{Fence, Machine, OpenDisk, RemoteDisk, Session, SizeRule};
pub use overcommit::{Overcommit, UnknownOvercommit};
pub use placement::{DatastorePlacement, DiskPlacement, EmptiedBy};
pub use plane_error::{DENIED, PlaneError};
pub use policy::{LimitMode, Policy};
pub use policy_part::{PolicyField, PolicyPart, UnknownField};
pub use records::{
    Backend, Capacity, CapacitySource, Confidence, DatastoreRecord, DiskRecord, DiskSettings,
    DiskState, ExportRecord, Origin, PersistentReservations, PolicySource, PriorityRecord,
    PriorityScope, RemoteRecord, Scheduler, SocketRecord, VmRecord, Writes,
};
pub use removed::{RemovedId, RemovedIdError, RemovedRecord, RemovedStep};
pub use sample::{
    DatastoreSample, DiskSample, DiskTold, FlashSample, NarrowedSample, NbdSample, StreamSample,
};
pub use settled::{Ended, Noted, Settled};
pub use stripes::{
    MemberContent, MemberProbe, ServerLeases, ServerPolicy, StripeRecord, StripedDisk,
};
pub use tenants::{DiskGroups, GroupPolicy, Quota, TenantRecord, VmPromise};
pub use trouble::{ErrorSample, FAILING, HoldSample, ReadErrors, TroubleSample, WriteErrors};
pub use waits::{NeighbourWait, Sender, Waits};
pub use window::{
    BoardPlace, FollowedThreshold, FoundThreshold, Threshold, UnknownBoard, UnknownThreshold,
    UnknownWindowLaw, WindowLaw, WindowRecord,
};
