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
    /// How many requests a host might have outstanding; of several hosts the sum. Where a datastore has an issue-window.
    IssueWindow,
    /// What it got for its shares: beta, in slots per period.
    Beta,
    /// The latency that its window was controlled by.
    ClusterLatency,
    /// The part of the time in which it said that something loads the storage which no window controls.
    Unmanaged,
}
