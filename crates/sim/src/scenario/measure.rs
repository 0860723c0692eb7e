//! The measures of expectations.

use super::Unit;
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Completions per second.
    Iops,
    /// Normalised IOs dispatched per second: what policies count.
    NormalisedIops,
    /// Bytes completed per second.
    Bandwidth,
    /// Pairs among the subjects, which are named from the one that should complete most to the one
    /// that should complete least, of which the later one completes more.
    Inversions,
    /// Dispatches by reservation per second.
    ReservationIops,
    /// Dispatches by shares per second.
    WeightIops,
    /// Jain's index of the subjects' completed bytes: 1 when all got the same, 1/n when one of n
    /// got everything.
    Jain,
    /// Requests that arrived per second.
    Arrivals,
    /// Requests dropped because too many waited.
    Dropped,
    /// Mean number outstanding.
    Outstanding,
    /// Completions per second times mean latency: outstanding, by Little's law.
    Little,
    /// Comparisons of tags by the hosts' schedulers for each dispatch.
    Comparisons,
    /// Mean error, in IOs, of the service elsewhere that requests report to a node of several.
    ToldError,
    /// Requests whose report to a node was wrong by more than one IO for each other node.
    ToldWrong,
    /// Mean time from arrival to completion.
    Latency,
    /// Its median.
    LatencyP50,
    /// Not exceeded by 90%.
    LatencyP90,
    /// Not exceeded by 99%.
    LatencyP99,
    /// Mean time from arrival to dispatch.
    QueueTime,
    /// Mean time from dispatch to completion.
    DeviceTime,
    /// Transactions per second.
    Transactions,
    /// Mean response time of transactions.
    Response,
    /// Not exceeded by 90% of transactions.
    ResponseP90,
    /// Pages that disks on flash wrote per second.
    PageWrites,
    /// Pages that flash programmed for each page that a disk wrote: its own and those moved because
    /// it wrote.
    WriteAmplification,
    /// Pages moved because a disk wrote, for each page that it wrote.
    ExtraWrites,
    /// Which part of the pages of the blocks that were collected because a disk wrote was still of
    /// use.
    Utilisation,
    /// Pages moved because a disk wrote.
    MovedFor,
    /// Which part of these was its own.
    OwnMoved,
    /// Pages of a disk that were moved, for any writer.
    Moved,
    /// Which part of the blocks that were collected because a disk wrote held pages of several
    /// disks.
    MixedVictims,
    /// Over-provisioning space of a disk in blocks; on a shared drive, that of all disks.
    SpareBlocks,
    /// What its utilisation is to be, under dynamic isolation.
    TargetUtilisation,
    /// Of several disks on flash: by how many blocks the space of one of them changed between two
    /// recorded points, at most, for each block that was collected meanwhile. The recorded interval
    /// should be short.
    SpaceStep,
    /// Of VMs or disks: by how much the part of the bandwidth that one of them got differs from its
    /// part of the shares, relative to that; of the one for which that is most.
    ShareError,
    /// Of VMs or disks: the sum of those differences, not relative to anything.
    ShareDistance,
    /// How many requests a host might have outstanding; of several hosts the sum. Where a datastore
    /// has an issue-window.
    IssueWindow,
    /// What it got for its shares: beta, in slots per period.
    Beta,
    /// The latency that its window was controlled by.
    ClusterLatency,
    /// The threshold that it held that latency at; it changes where it follows the storage.
    LatencyThreshold,
    /// The part of the time in which it said that something loads the storage which no window
    /// controls.
    Unmanaged,
    /// Standard deviation of the subjects' mean latencies: 0 when all are served alike.
    LatencySpread,
    /// Of 'pool': moves that were advised; in a window: in it.
    Moves,
    /// Of 'pool': moves of a disk to where it had been before.
    Returns,
    /// Of 'pool': standard deviation of the datastores' normalised loads over their mean, as the
    /// models have it; at the end, or in a window: before the first advice in it.
    Imbalance,
    /// Of 'pool': GiB that copies wrote.
    Copied,
    /// Of 'pool': from the first advice to the end of the last move.
    CopyTime,
    /// Of 'pool': rules found broken, after every move and placement.
    Violations,
    /// Of 'pool': by how much the read latencies that the last advice with moves before the window
    /// predicted differ from those measured in it, relative to these; the mean over datastores with
    /// both. Without such moves there is none.
    PredictionError,
    /// Of datastores of the pool: its disks there at the end.
    Disks,
    /// Of a datastore of the pool: how much longer a read takes for each read more, as learnt; 1/P.
    Slope,
    /// Of a datastore of the pool: the part of the variance that the line explains, R².
    SlopeFit,
    /// Of a datastore of the pool: least squares over all requests in all intervals, without any
    /// filter.
    RawSlope,
    /// Of a datastore of the pool: intervals that were left out of its model.
    LeftOut,
    /// Of datastores of the pool: normalised load relative to the mean of all; when as 'imbalance'.
    RelativeLoad,
    /// Of a datastore of the pool: predicted latency of reads; when as 'imbalance'.
    Predicted,
    /// Of a sweep, as all that follow: the mean of the points' latencies.
    SweepLatency,
    /// The median over points of the workload model's relative error.
    ModelError,
    /// The part of the points of which the model is within 40%.
    ModelGood,
    /// The part of the points for which the model is too high.
    ModelOver,
    /// Of the worst tenth of all points the part that 'where' takes.
    ModelWorst,
    /// K3, by which reads count: large where they do not.
    ConstantReads,
    /// R² of latency over requests outstanding, all else being equal, of all lines but the worst
    /// tenth.
    LinearInOutstanding,
    /// The same over their size.
    LinearInSize,
    /// The same over reads.
    LinearInReads,
    /// The same over randomness.
    LinearInRandom,
    /// By how much latency rises from the fewest to the most requests outstanding, relative to its
    /// mean: the median of all lines.
    RiseWithOutstanding,
    /// The same with their size.
    RiseWithSize,
    /// The same with reads.
    RiseWithReads,
    /// The same with randomness.
    RiseWithRandom,
}

impl Measure {
    pub(crate) fn unit(self) -> Unit {
        match self {
            Measure::Iops
            | Measure::NormalisedIops
            | Measure::ReservationIops
            | Measure::WeightIops
            | Measure::Arrivals
            | Measure::PageWrites
            | Measure::Transactions => Unit::PerSecond,
            Measure::Bandwidth => Unit::BytesPerSecond,
            Measure::Dropped
            | Measure::Outstanding
            | Measure::Little
            | Measure::Comparisons
            | Measure::ToldError
            | Measure::ToldWrong
            | Measure::Inversions
            | Measure::Jain
            | Measure::MovedFor
            | Measure::Moved
            | Measure::SpareBlocks
            | Measure::SpaceStep
            | Measure::IssueWindow
            | Measure::Moves
            | Measure::Returns
            | Measure::Copied
            | Measure::Violations
            | Measure::Disks
            | Measure::LeftOut
            | Measure::ConstantReads
            | Measure::Beta => Unit::Number,
            Measure::WriteAmplification
            | Measure::ExtraWrites
            | Measure::Utilisation
            | Measure::TargetUtilisation
            | Measure::ShareError
            | Measure::ShareDistance
            | Measure::OwnMoved
            | Measure::MixedVictims
            | Measure::Unmanaged
            | Measure::Imbalance
            | Measure::SlopeFit
            | Measure::RelativeLoad
            | Measure::ModelError
            | Measure::ModelGood
            | Measure::ModelOver
            | Measure::ModelWorst
            | Measure::LinearInOutstanding
            | Measure::LinearInSize
            | Measure::LinearInReads
            | Measure::LinearInRandom
            | Measure::RiseWithOutstanding
            | Measure::RiseWithSize
            | Measure::RiseWithReads
            | Measure::RiseWithRandom
            | Measure::PredictionError => Unit::Ratio,
            Measure::Latency
            | Measure::LatencyP50
            | Measure::LatencyP90
            | Measure::LatencyP99
            | Measure::QueueTime
            | Measure::DeviceTime
            | Measure::Response
            | Measure::ResponseP90
            | Measure::ClusterLatency
            | Measure::LatencyThreshold
            | Measure::LatencySpread
            | Measure::CopyTime
            | Measure::Slope
            | Measure::RawSlope
            | Measure::Predicted
            | Measure::SweepLatency => Unit::Seconds,
        }
    }

    /// Of transactions, not of requests.
    pub(crate) fn of_applications(self) -> bool {
        matches!(self, Measure::Transactions | Measure::Response | Measure::ResponseP90)
    }

    /// Of who has shares.
    pub(crate) fn of_shares(self) -> bool {
        matches!(self, Measure::ShareError | Measure::ShareDistance)
    }

    /// Of hosts' windows, not of requests.
    pub(crate) fn of_windows(self) -> bool {
        matches!(
            self,
            Measure::IssueWindow
                | Measure::Beta
                | Measure::ClusterLatency
                | Measure::LatencyThreshold
                | Measure::Unmanaged
        )
    }

    /// Of the pool or of its datastores, not of requests.
    pub(crate) fn of_pools(self) -> bool {
        self.of_the_pool() || self.of_pooled_datastores()
    }

    /// Of the pool as a whole.
    pub(crate) fn of_the_pool(self) -> bool {
        matches!(
            self,
            Measure::Moves
                | Measure::Returns
                | Measure::Imbalance
                | Measure::Copied
                | Measure::CopyTime
                | Measure::Violations
                | Measure::PredictionError
        )
    }

    /// Of datastores, as the pool sees them.
    pub(crate) fn of_pooled_datastores(self) -> bool {
        matches!(
            self,
            Measure::Disks
                | Measure::Slope
                | Measure::SlopeFit
                | Measure::RawSlope
                | Measure::LeftOut
                | Measure::RelativeLoad
                | Measure::Predicted
        )
    }

    /// Of sweeps.
    pub(crate) fn of_sweeps(self) -> bool {
        matches!(
            self,
            Measure::SweepLatency
                | Measure::ModelError
                | Measure::ModelGood
                | Measure::ModelOver
                | Measure::ModelWorst
                | Measure::ConstantReads
                | Measure::LinearInOutstanding
                | Measure::LinearInSize
                | Measure::LinearInReads
                | Measure::LinearInRandom
                | Measure::RiseWithOutstanding
                | Measure::RiseWithSize
                | Measure::RiseWithReads
                | Measure::RiseWithRandom
        )
    }

    /// Whether the series has it: percentiles need the histograms of windows.
    pub(crate) fn in_series(self) -> bool {
        !self.of_applications()
            && !self.of_pools()
            && !self.of_sweeps()
            && !self.of_shares()
            && !matches!(
                self,
                Measure::LatencyP50
                    | Measure::LatencyP90
                    | Measure::LatencyP99
                    | Measure::LatencySpread
                    | Measure::Inversions
                    | Measure::Jain
                    | Measure::SpaceStep
            )
    }

    /// The name in scenario files.
    pub(crate) fn name(self) -> String {
        match toml::Value::try_from(self) {
            Ok(toml::Value::String(name)) => name,
            _ => format!("{self:?}"),
        }
    }
}
