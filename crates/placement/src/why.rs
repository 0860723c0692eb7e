//! Reasons: why a disk moves, why it stays, why it cannot be somewhere.

use crate::{Load, Name, Permille};
use alloc::boxed::Box;
use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a disk should move.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Why {
    /// The load of the two datastores differs.
    #[error("to balance load")]
    Load,
    /// The load of the two datastores differs, and another disk comes in exchange: neither move is
    /// worth while alone.
    #[error("to balance load, in exchange for {0}")]
    Exchange(Name),
    /// Both datastores do so much more together afterwards: where it is it breaks sequential
    /// streams, or is one, or its requests are of another size than the others
    /// ([`Interference::Streams`](crate::Interference::Streams)).
    #[error("because with it there both datastores together do {0} more")]
    Throughput(Permille),
    /// Its datastore is too full.
    #[error("to free space on a datastore that is {0} full")]
    Space(Permille),
    /// Its datastore is to be emptied.
    #[error("to empty a datastore in maintenance")]
    Maintenance,
    /// It is on a datastore of the wrong class.
    #[error("to be on a datastore of class '{0}'")]
    Class(Name),
    /// It should be with others.
    #[error("to be together with {0}")]
    #[serde(alias = "together")]
    Affinity(Name),
    /// It should be away from another.
    #[error("to be apart from '{from}' by rule '{rule}'")]
    #[serde(alias = "apart")]
    AntiAffinity {
        /// The rule.
        rule: Name,
        /// The other disk.
        from: Name,
    },
}

/// Why a disk cannot be on a datastore.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NotThere {
    /// The datastore is to be emptied.
    #[error("it is in maintenance")]
    Maintenance,
    /// The datastore takes no more disks.
    #[error("it is closed to new disks")]
    Closed,
    /// The wrong class.
    #[error("it is not of class '{0}'")]
    Class(Name),
    /// Another disk of the same rule is on the same device.
    #[error("'{from}' is on its device, and rule '{rule}' keeps them apart")]
    #[serde(alias = "apart")]
    AntiAffinity {
        /// The rule.
        rule: Name,
        /// The other disk.
        from: Name,
    },
    /// Disks that it must be with are elsewhere.
    #[error("{with} must be on one datastore with it and is on '{on}'")]
    #[serde(alias = "together")]
    Affinity {
        /// Them.
        with: Name,
        /// Where they are.
        on: Name,
    },
    /// No room.
    #[error("{needs} do not fit: {free} are free for disks")]
    Space {
        /// What the disk takes.
        needs: Bytes,
        /// What is free.
        free: Bytes,
    },
    /// Too much is reserved already.
    #[error("{needs} IOPS are reserved for it, and {free} can still be")]
    Reserved {
        /// IOPS that the disk, and those with it, have reserved.
        needs: u64,
        /// IOPS that can still be reserved.
        free: u64,
    },
    /// Too much is promised already.
    #[error("its disks would be {0} of its capacity if they were full")]
    Overcommitted(Permille),
    /// Too much is promised already, for this datastore.
    #[error("disks on its volume would be promised {promised}, and {most} may be")]
    Promised {
        /// The sizes of all disks there, with this one.
        promised: Bytes,
        /// What they may come to.
        most: Bytes,
    },
    /// Nothing is known of the device, and one workload is there to learn by.
    #[error("its device is not known yet, and one workload to learn by is there")]
    Learning,
    /// It is nearly as full.
    #[error("it is nearly as full itself")]
    AsFull,
    /// It has enough to do already.
    #[error("the disk's load there would unbalance the pool")]
    Busy,
    /// The disk was there lately.
    #[error("the disk came from there lately")]
    Lately,
}

/// Why a disk should stay where it is.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Stay {
    /// It is pinned.
    #[error("it is pinned")]
    Pinned,
    /// It must stay with a disk that is pinned, or that must stay for other reasons.
    #[error("it must be on one datastore with '{0}', which is pinned")]
    WithPinned(Name),
    /// Others of those that it must be with are to come, or it is their turn first.
    #[error("{0} is to be together with it first")]
    Gathering(Name),
    /// Its workload is not known.
    #[error("its workload is not known yet")]
    Unknown,
    /// It has no load to speak of.
    #[error("it does next to nothing")]
    Idle,
    /// It moved lately.
    #[error("it has moved, and is left in peace for {0} more")]
    Held(Nanos),
    /// The pool is balanced.
    #[error("loads differ by {imbalance}, nothing moves up to {start}")]
    Balanced {
        /// Imbalance now.
        imbalance: Permille,
        /// Where balancing starts.
        start: Permille,
    },
    /// There is nothing to balance against.
    #[error("there is no other datastore to balance with")]
    Alone,
    /// Nothing is known of its datastore.
    #[error("nothing is known of the device under its datastore yet")]
    Unmodelled,
    /// The device under its datastore was never seen busy.
    #[error("latency has never risen on its datastore, whatever its load")]
    NeverBusy,
    /// Its datastore is not one of the busier ones.
    #[error("its datastore has {load} of the mean load")]
    NotBusy {
        /// Its normalised load relative to the mean.
        load: Permille,
    },
    /// Its datastore is fast enough.
    #[error("its datastore answers within {latency}, and is left alone below {least}")]
    FastEnough {
        /// Predicted latency.
        latency: Nanos,
        /// [`Balance::latency`](crate::Balance::latency).
        least: Nanos,
    },
    /// It cannot be on any datastore that has less to do.
    #[error("'{datastore}' has the least to do of those that it could go to, but {because}")]
    NoRoom {
        /// The best of them, were it possible.
        datastore: Name,
        /// Why it is not.
        because: NotThere,
    },
    /// All datastores it may be on have about as much to do.
    #[error("no datastore that it may be on has enough less to do")]
    NoneBetter,
    /// It would go back.
    #[error("it came from '{datastore}', and does not go back for {wait} more")]
    NoReturn {
        /// Where it was.
        datastore: Name,
        /// How long.
        wait: Nanos,
    },
    /// Its load is far from what should move.
    #[error("its load is {load}, and about {ideal} should go to '{datastore}'")]
    LittleGain {
        /// The best target.
        datastore: Name,
        /// Its load.
        load: Load,
        /// The load that would make the source or the target what it should be.
        ideal: Load,
    },
    /// The move would make the pool as a whole less balanced.
    #[error("moved to '{datastore}' it would raise the imbalance from {before} to {after}")]
    Worse {
        /// The best target.
        datastore: Name,
        /// Imbalance now.
        before: Permille,
        /// Imbalance after the move.
        after: Permille,
    },
    /// Too little is known of the devices to say that it helps.
    #[error("the models are not sure enough that '{datastore}' would be better")]
    Unsure {
        /// The best target.
        datastore: Name,
    },
    /// The move costs more than it gives.
    #[error("the move to '{datastore}' would pay after {payback}, later than {most}")]
    Costly {
        /// The best target.
        datastore: Name,
        /// When it would have paid.
        payback: Nanos,
        /// [`Copying::payback`](crate::Copying::payback).
        most: Nanos,
    },
    /// The move saves no waiting at all.
    #[error("the move to '{datastore}' would make others there wait more than it saves")]
    NoBenefit {
        /// The best target.
        datastore: Name,
    },
    /// Both datastores would do less together
    /// ([`Interference::Streams`](crate::Interference::Streams)).
    #[error("with it on '{datastore}' both datastores together would do {less} less")]
    DoesLess {
        /// The best target.
        datastore: Name,
        /// In parts of what they do now.
        less: Permille,
    },
    /// Enough disks have moved for now.
    #[error("{most} disks may move within {window}")]
    Enough {
        /// [`Calm::most`](crate::Calm::most).
        most: u32,
        /// [`Calm::window`](crate::Calm::window).
        window: Nanos,
    },
    /// Others move, and that suffices.
    #[error("other moves suffice")]
    Suffices,
    /// Its datastore should be emptied, or does not suit it, and there is nowhere to go.
    #[error("it should leave {why}, but no datastore takes it: on '{datastore}', {because}")]
    Stuck {
        /// Why it should.
        why: Box<Why>,
        /// The one with the least to do.
        datastore: Name,
        /// Why not there.
        because: NotThere,
    },
    /// Its datastore is too full, and no other takes it.
    #[error("its datastore is {full} full, but on '{datastore}', {because}")]
    Full {
        /// How full.
        full: Permille,
        /// The one with the least to do.
        datastore: Name,
        /// Why not there.
        because: NotThere,
    },
    /// The same in a pool of one.
    #[error("it should leave {why}, but there is no other datastore")]
    NowhereToGo {
        /// Why it should.
        why: Box<Why>,
    },
}
