//! Workloads: when they issue requests, and of which kind, size and position.

use super::names::{find, find_or_only, plain_name, some_time};
use super::vm::DiskFile;
use crate::scenario::{
    Arrivals, Datastore, DiskSpec, Host, Oltp, Pacing, Pattern, Replay, ReplayTiming,
    TimeDistribution, Workload, WorkloadKind,
};
use crate::values::{
    At, BurstLength, Fault, Hot, Names, Outstanding, Part, Processors, Rank, Rate, RequestSize,
    Size, Sizes, Speed, Steps, Terminals, Time,
};
use headgate_devices::ModelSpec;
use headgate_units::{Bytes, Nanos};
use serde::Deserialize;

/// Something that issues requests.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WorkloadFile {
    /// The name within the VM; 'workload' by default.
    pub(super) name: Option<At<String>>,
    /// When it issues requests.
    kind: At<KindFile>,
    /// Its disk, where the VM has several.
    disk: Option<At<String>>,
    /// The time from its VM's start until it begins; none by default.
    delay: Option<Time>,
    /// The priority of its requests, 1 to 254; none by default.
    priority: Option<Rank>,
    /// Reads among its requests; 100% by default.
    read: Option<Part>,
    /// Random requests; others begin where the last one ended. 100% by default.
    random: Option<Part>,
    /// Random requests that go to the beginning of its extent: '80% in 20%' sends four of five to
    /// the first fifth. Evenly by default.
    hot: Option<At<Hot>>,
    /// The size of its requests; 4K by default.
    size: Option<Sizes>,
    /// The length of the part of the disk that it uses, from 'offset' on; all by default.
    extent: Option<At<Size>>,
    /// The first byte that it uses; 0 by default.
    offset: Option<At<Size>>,
    /// closed, on-off, and replay with timing 'closed': requests that it keeps outstanding; 32 by
    /// default.
    outstanding: Option<At<Outstanding>>,
    /// closed: one of these numbers in place of 'outstanding', drawn by the seed.
    outstanding_of: Option<At<Vec<Outstanding>>>,
    /// closed: one of these types in place of read, random and size, drawn by the seed.
    types: Option<At<Names>>,
    /// closed and oltp: the think time between a completion and what follows; none by default.
    think: Option<Time>,
    /// closed, on-off and oltp: whether think, on, off and cpu are constant or exponentially
    /// distributed; constant by default.
    times: Option<Times>,
    /// burst: requests of one burst.
    requests: Option<BurstLength>,
    /// burst: the pause.
    every: Option<At<Time>>,
    /// burst: when the pause begins; fixed by default.
    pacing: Option<Pacing>,
    /// open: requests per second.
    rate: Option<Rate>,
    /// open: constant or poisson; poisson by default.
    arrivals: Option<Arrivals>,
    /// on-off: the length of a busy phase.
    on: Option<At<Time>>,
    /// on-off: the length of a quiet phase.
    off: Option<At<Time>>,
    /// oltp: clients that wait for transactions.
    terminals: Option<Terminals>,
    /// oltp: reads of a transaction, one after another.
    reads: Option<Steps>,
    /// oltp: writes of a transaction, all at once after the reads.
    writes: Option<Steps>,
    /// oltp: processor time of a transaction; none by default.
    cpu: Option<Time>,
    /// oltp: processors; as many as terminals by default.
    processors: Option<Processors>,
    /// oltp: the disk on which one sequential write ends each transaction; no such write by
    /// default.
    log_disk: Option<At<String>>,
    /// oltp: the size of that write; 4K by default.
    log_size: Option<RequestSize>,
    /// replay: the trace, a path beside the scenario's file.
    trace: Option<String>,
    /// replay: recorded or closed; recorded by default.
    timing: Option<TimingFile>,
    /// replay: the speed, with timing 'recorded': 200% halves all times. 100% by default.
    speed: Option<Speed>,
    /// replay: whether it begins anew at the trace's end; false by default.
    repeat: Option<bool>,
}

/// A type of workload, for VMs that draw theirs.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TypeFile {
    /// The name.
    name: String,
    /// The size of its requests; 4K by default.
    size: Option<Sizes>,
    /// Reads among its requests; 100% by default.
    read: Option<Part>,
    /// Random requests; 100% by default.
    random: Option<Part>,
}

/// When requests are issued.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum KindFile {
    /// A closed loop: it keeps a number of requests outstanding.
    Closed,
    /// Many requests at once, again and again.
    Burst,
    /// Requests arrive independently of completions.
    Open,
    /// A closed loop with quiet phases.
    OnOff,
    /// Transactions of terminals.
    Oltp,
    /// A recorded trace.
    Replay,
}

/// How times are distributed.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Times {
    /// All are equal.
    Constant,
    /// They are exponentially distributed.
    Exponential,
}

/// When the requests of a trace are issued.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum TimingFile {
    /// At their recorded times.
    Recorded,
    /// In order, with a number of requests outstanding.
    Closed,
}

impl At<WorkloadFile> {
    pub(super) fn workload(
        &self,
        disks: &[DiskSpec],
        disk_files: &[At<DiskFile>],
        types: &[TypeFile],
    ) -> Result<Workload, Fault> {
        if let Some(name) = &self.name {
            plain_name(name, "a workload")?;
        }
        let names = disks.iter().map(|disk| disk.name.as_str());
        let index = find_or_only(self.disk.as_ref(), &self.span, "disk", names.clone())?;
        let kind = self.kind(names)?;
        let room = Room { disk: &disks[index], file: disk_files.get(index) };
        let pattern = self.pattern(self.size.as_ref(), self.read, self.random, &room)?;
        let patterns = match &self.types {
            Some(drawn) => {
                let known = types.iter().map(|kind| kind.name.as_str());
                let of = |name: &String| {
                    let kind = &types[find(name, &drawn.span, "type", known.clone())?];
                    self.pattern(kind.size.as_ref(), kind.read, kind.random, &room)
                };
                drawn.0.iter().map(of).collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        let outstanding = match &self.outstanding_of {
            Some(numbers) => {
                let some = !numbers.is_empty();
                numbers.check(some, "there is nothing to draw from; write numbers")?;
                numbers.iter().map(|number| number.0).collect()
            }
            None => Vec::new(),
        };
        Ok(Workload {
            name: self.name.as_ref().map_or("workload".to_owned(), |name| name.value.clone()),
            disk: index,
            delay: self.delay.map_or(Nanos::ZERO, |delay| delay.0),
            kind,
            pattern,
            priority: self.priority.map(|priority| priority.0),
            patterns,
            outstanding,
        })
    }

    /// Storage that completes at once and a closed loop without think time would stop the
    /// simulated time.
    pub(super) fn check_time_passes(
        &self,
        workload: &Workload,
        disks: &[DiskSpec],
        host: &Host,
        datastores: &[Datastore],
    ) -> Result<(), Fault> {
        let at_once = match &workload.kind {
            WorkloadKind::Closed { think, .. } => *think == TimeDistribution::ZERO,
            WorkloadKind::OnOff { .. } => true,
            WorkloadKind::Oltp(oltp) => {
                oltp.think == TimeDistribution::ZERO && oltp.cpu == TimeDistribution::ZERO
            }
            WorkloadKind::Replay(replay) => {
                replay.repeat && matches!(replay.timing, ReplayTiming::Closed { .. })
            }
            WorkloadKind::Burst { .. } | WorkloadKind::Open { .. } => false,
        };
        let no_time = |disk: &DiskSpec| {
            let store = &datastores[disk.datastore];
            let null = |&index: &usize| matches!(store.nodes[index].device, ModelSpec::Null);
            store.network + host.network == Nanos::ZERO && disk.nodes.iter().any(null)
        };
        self.kind.check(
            !(at_once && disks.iter().any(no_time)),
            "this work never lets time pass on a device 'null'; add think time, a network or another device",
        )
    }
}

/// The part of a disk that a workload may use.
struct Room<'a> {
    disk: &'a DiskSpec,
    file: Option<&'a At<DiskFile>>,
}

impl WorkloadFile {
    /// A key without which the kind means nothing.
    fn need<'a, T>(&self, key: &'a Option<T>, name: &str, example: &str) -> Result<&'a T, Fault> {
        key.as_ref().ok_or_else(|| {
            // Kinds in files are the variants' names in kebab case.
            let kind = match self.kind.value {
                KindFile::OnOff => "on-off".to_owned(),
                other => format!("{other:?}").to_lowercase(),
            };
            self.kind.fault(format!("kind = '{kind}' needs '{name}'; add {name} = {example}"))
        })
    }

    fn span(&self, time: Nanos) -> TimeDistribution {
        match self.times {
            Some(Times::Exponential) => TimeDistribution::Exponential(time),
            Some(Times::Constant) | None => TimeDistribution::Constant(time),
        }
    }

    fn kind<'a>(
        &self,
        disks: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<WorkloadKind, Fault> {
        let outstanding = self.outstanding.as_ref().map_or(32, |number| number.0);
        let time = |key: Option<Time>| self.span(key.map_or(Nanos::ZERO, |time| time.0));
        Ok(match self.kind.value {
            KindFile::Closed => WorkloadKind::Closed { outstanding, think: time(self.think) },
            KindFile::Burst => WorkloadKind::Burst {
                requests: self.need(&self.requests, "requests", "32")?.0,
                every: some_time(
                    self.need(&self.every, "every", "'250ms'")?,
                    "the pause between bursts",
                )?,
                pacing: self.pacing.unwrap_or(Pacing::Fixed),
            },
            KindFile::Open => WorkloadKind::Open {
                rate: self.need(&self.rate, "rate", "500")?.0,
                arrivals: self.arrivals.unwrap_or(Arrivals::Poisson),
            },
            KindFile::OnOff => WorkloadKind::OnOff {
                outstanding,
                on: self.span(some_time(self.need(&self.on, "on", "'2s'")?, "the busy time")?),
                off: self.span(some_time(self.need(&self.off, "off", "'3s'")?, "the quiet time")?),
            },
            KindFile::Oltp => {
                WorkloadKind::Oltp(self.oltp(time(self.think), time(self.cpu), disks)?)
            }
            KindFile::Replay => WorkloadKind::Replay(self.replay(outstanding)?),
        })
    }

    fn oltp<'a>(
        &self,
        think: TimeDistribution,
        cpu: TimeDistribution,
        disks: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Oltp, Fault> {
        let terminals = self.need(&self.terminals, "terminals", "100")?.0;
        let reads = self.reads.map_or(0, |reads| reads.0);
        let writes = self.writes.map_or(0, |writes| writes.0);
        let log = match &self.log_disk {
            Some(disk) => {
                let size = self.log_size.map_or(Bytes::from_kib(4), |size| size.0);
                Some((find(disk, &disk.span, "disk", disks)?, size))
            }
            None => None,
        };
        if reads == 0 && writes == 0 && log.is_none() {
            self.need::<Steps>(&None, "reads", "3, or writes or a log-disk")?;
        }
        let processors = self.processors.map_or(0, |processors| processors.0);
        Ok(Oltp { terminals, reads, writes, cpu, processors, think, log })
    }

    fn replay(&self, outstanding: u32) -> Result<Replay, Fault> {
        let trace = self.need(&self.trace, "trace", "'traces/web.csv'")?.clone();
        let timing = match (self.timing, &self.outstanding) {
            (Some(TimingFile::Closed), _) => ReplayTiming::Closed { outstanding },
            (Some(TimingFile::Recorded) | None, Some(outstanding)) => {
                return Err(outstanding.fault(
                    "'outstanding' means nothing with recorded times; remove it, or set timing = 'closed'",
                ));
            }
            (Some(TimingFile::Recorded) | None, None) => {
                ReplayTiming::Recorded { speed_percent: self.speed.map_or(100, |speed| speed.0) }
            }
        };
        Ok(Replay { trace, timing, repeat: self.repeat == Some(true) })
    }

    fn pattern(
        &self,
        size: Option<&Sizes>,
        read: Option<Part>,
        random: Option<Part>,
        room: &Room<'_>,
    ) -> Result<Pattern, Fault> {
        let sizes = size.map_or_else(|| vec![(Bytes::from_kib(4), 1)], |sizes| sizes.0.clone());
        let largest = sizes.iter().map(|&(size, _)| size.0).max().unwrap_or(0);
        let whole = room.disk.size.0;
        let offset = self.offset.as_ref().map_or(0, |offset| offset.0.0);
        let length = self.extent.as_ref().map_or(whole.saturating_sub(offset), |key| key.0.0);
        if offset.checked_add(length).is_none_or(|end| end > whole) || length < largest {
            let keys = [&self.extent, &self.offset].into_iter().flatten().map(|key| &key.span);
            let span = keys.chain(room.file.map(|disk| &disk.span)).next();
            let message = format!(
                "the part of the disk from {} on of {} does not lie in its {} or is too small for a request; make it fit",
                Bytes(offset),
                Bytes(length),
                room.disk.size
            );
            return Err(Fault::new(span.unwrap_or(&self.kind.span), message));
        }
        if let Some(hot) = &self.hot {
            let fits = length / 100 * u64::from(hot.part) >= largest;
            hot.check(fits, "the hot part is smaller than a request; make it larger")?;
        }
        Ok(Pattern {
            read: read.map_or(100, |part| part.0),
            random: random.map_or(100, |part| part.0),
            hot: self.hot.as_ref().map(|hot| (hot.requests, hot.part)),
            sizes,
            extent: (offset, length),
        })
    }
}
