use schemars::JsonSchema;
use serde::Deserialize;

/// What is measured.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Completions per second.
    Iops,
    /// Normalised IOs dispatched per second: what policies count.
    NormalisedIops,
    /// Bytes completed per second.
    Bandwidth,
    /// Pairs among the subjects, which are named from the one that should complete most to the one that should
    /// complete least, of which the later one completes more.
    Inversions,
    /// Dispatches by reservation per second.
    ReservationIops,
    /// Dispatches by shares per second.
    WeightIops,
    /// Jain's index of the subjects' completed bytes: 1 when all got the same, 1/n when one of n got everything.
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
    /// By how many IOs a node of several was told wrong of the service at the others, on average over the requests.
    ToldError,
    /// Requests that told a node wrong by more than one IO for each other node.
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
    /// Pages that flash programmed for each page that a disk wrote: its own and those moved because it wrote.
    WriteAmplification,
    /// Pages moved because a disk wrote, for each page that it wrote.
    ExtraWrites,
    /// Which part of the pages of the blocks that were collected because a disk wrote was still of use.
    Utilisation,
    /// Pages moved because a disk wrote.
    MovedFor,
    /// Which part of these was its own.
    OwnMoved,
    /// Pages of a disk that were moved, whoever wrote.
    Moved,
    /// Which part of the blocks that were collected because a disk wrote held pages of several disks.
    MixedVictims,
    /// Over-provisioning space of a disk in blocks, of a shared drive everybody's.
    SpareBlocks,
    /// What its utilisation is to be, under dynamic isolation.
    TargetUtilisation,
    /// Of several disks on flash: by how many blocks the space of one of them changed between two recorded points, at most, for each
    /// block that was collected meanwhile. The recorded interval should be short.
    SpaceStep,
    /// Of VMs or disks: by how much the part of the bandwidth that one of them got differs from its part of the shares, relative to that;
    /// of the one for which that is most.
    ShareError,
    /// Of VMs or disks: the sum of those differences, not relative to anything.
    ShareDistance,
    /// How many requests a host might have outstanding; of several hosts the sum. Where a datastore has an issue-window.
    IssueWindow,
    /// What it got for its shares: beta, in slots per period.
    Beta,
    /// The latency that its window was controlled by.
    ClusterLatency,
    /// The part of the time in which it said that something loads the storage which no window controls.
    Unmanaged,
    /// Standard deviation of the subjects' mean latencies: 0 when all are served alike.
    LatencySpread,
    /// Of 'pool': moves that were advised; in a window: in it.
    Moves,
    /// Of 'pool': moves of a disk to where it had been before.
    Returns,
    /// Of 'pool': standard deviation of the datastores' normalised loads over their mean, as the models have it; at the end, or in a
    /// window: before the first advice in it.
    Imbalance,
    /// Of 'pool': GiB that copies wrote.
    Copied,
    /// Of 'pool': from the first advice to the end of the last move.
    CopyTime,
    /// Of 'pool': rules found broken, after every move and placement.
    Violations,
    /// Of datastores of the pool: its disks there at the end.
    Disks,
    /// Of a datastore of the pool: how much longer a read takes for each read more, as learnt; 1/P.
    Slope,
    /// Of a datastore of the pool: the part of the variance that the line explains, R².
    SlopeFit,
    /// Of a datastore of the pool: least squares over all requests in all intervals, without any filter.
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
    /// R² of latency over requests outstanding, all else being equal, of all lines but the worst tenth.
    LinearInOutstanding,
    /// The same over their size.
    LinearInSize,
    /// The same over reads.
    LinearInReads,
    /// The same over randomness.
    LinearInRandom,
    /// By how much latency rises from the fewest to the most requests outstanding, relative to its mean: the median of all lines.
    RiseWithOutstanding,
    /// The same with their size.
    RiseWithSize,
    /// The same with reads.
    RiseWithReads,
    /// The same with randomness.
    RiseWithRandom,
}
