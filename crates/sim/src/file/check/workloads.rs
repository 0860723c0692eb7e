//! Workloads: which keys belong to which kind, and what they mean.

use super::super::pool::TypeFile;
use super::super::read::{Fault, list};
use super::super::values::{At, Percent, Size, Sizes, Time};
use super::super::{ArrivalsFile, DiskFile, KindFile, PacingFile, Times, TimingFile, WorkloadFile};
use super::names::{Special, find, find_or_only, in_range, plain_name, some_time, whole_percent};
use super::storage::MOST_DEPTH;
use crate::scenario::{
    Arrivals, Datastore, Disk, Host, Oltp, Pacing, Pattern, Replay, ReplayTiming, Span, Workload,
    WorkloadKind,
};
use headgate_devices::ModelSpec;
use headgate_units::{Bytes, Nanos};
use std::ops::Range;

/// Keys of a workload that only some kinds have.
fn special_keys(file: &WorkloadFile) -> Vec<Special<'_, KindFile>> {
    use KindFile::{Burst, Closed, Oltp, OnOff, Open, Replay};
    fn place<T>(key: &Option<At<T>>) -> Option<&Range<usize>> {
        key.as_ref().map(|key| &key.span)
    }
    vec![
        ("outstanding", place(&file.outstanding), &[Closed, OnOff, Replay]),
        ("outstanding-of", place(&file.outstanding_of), &[Closed]),
        ("types", place(&file.types), &[Closed]),
        ("think", place(&file.think), &[Closed, Oltp]),
        ("times", place(&file.times), &[Closed, OnOff, Oltp]),
        ("requests", place(&file.requests), &[Burst]),
        ("every", place(&file.every), &[Burst]),
        ("pacing", place(&file.pacing), &[Burst]),
        ("rate", place(&file.rate), &[Open]),
        ("arrivals", place(&file.arrivals), &[Open]),
        ("on", place(&file.on), &[OnOff]),
        ("off", place(&file.off), &[OnOff]),
        ("terminals", place(&file.terminals), &[Oltp]),
        ("reads", place(&file.reads), &[Oltp]),
        ("writes", place(&file.writes), &[Oltp]),
        ("cpu", place(&file.cpu), &[Oltp]),
        ("processors", place(&file.processors), &[Oltp]),
        ("log-disk", place(&file.log_disk), &[Oltp]),
        ("log-size", place(&file.log_size), &[Oltp]),
        ("trace", place(&file.trace), &[Replay]),
        ("timing", place(&file.timing), &[Replay]),
        ("speed", place(&file.speed), &[Replay]),
        ("repeat", place(&file.repeat), &[Replay]),
        ("read", place(&file.read), &[Closed, Burst, Open, OnOff]),
        ("random", place(&file.random), &[Closed, Burst, Open, OnOff, Oltp]),
        ("hot", place(&file.hot), &[Closed, Burst, Open, OnOff, Oltp]),
        ("size", place(&file.size), &[Closed, Burst, Open, OnOff, Oltp]),
        ("extent", place(&file.extent), &[Closed, Burst, Open, OnOff, Oltp]),
        ("offset", place(&file.offset), &[Closed, Burst, Open, OnOff, Oltp]),
    ]
}

fn kind_name(kind: KindFile) -> &'static str {
    match kind {
        KindFile::Closed => "closed",
        KindFile::Burst => "burst",
        KindFile::Open => "open",
        KindFile::OnOff => "on-off",
        KindFile::Oltp => "oltp",
        KindFile::Replay => "replay",
    }
}

pub(super) fn workload(
    file: &At<WorkloadFile>,
    disks: &[Disk],
    disk_files: &[At<DiskFile>],
    types: &[At<TypeFile>],
) -> Result<Workload, Fault> {
    let w = &file.value;
    for (key, place, kinds) in special_keys(w) {
        if let Some(place) = place
            && !kinds.contains(&w.kind.value)
        {
            let kinds: Vec<&str> = kinds.iter().map(|&kind| kind_name(kind)).collect();
            let message = format!(
                "'{key}' means nothing for kind = '{}', only for {}; remove it or change the kind",
                kind_name(w.kind.value),
                list(&kinds)
            );
            return Err(Fault::new(place, message));
        }
    }
    if let Some(name) = &w.name {
        plain_name(name, "a workload")?;
    }
    let needed = |key: &str, example: &str| {
        let message = format!("kind = '{}' needs '{key}'; add {key} = {example}", kind_name(w.kind.value));
        Fault::new(&w.kind.span, message)
    };
    let names = disks.iter().map(|disk| disk.name.as_str());
    let disk = find_or_only(w.disk.as_ref(), &file.span, "disk", names.clone())?;
    let span = |time: Nanos| match &w.times {
        Some(At { value: Times::Exponential, .. }) => Span::Exponential(time),
        _ => Span::Constant(time),
    };
    let time = |key: &Option<At<Time>>| span(key.as_ref().map_or(Nanos::ZERO, |time| time.value.0));
    let outstanding =
        w.outstanding.as_ref().map_or(Ok(32), |n| in_range(n, "the number outstanding", MOST_DEPTH))?;
    let kind = match w.kind.value {
        KindFile::Closed => WorkloadKind::Closed { outstanding, think: time(&w.think) },
        KindFile::Burst => WorkloadKind::Burst {
            requests: in_range(
                w.requests.as_ref().ok_or_else(|| needed("requests", "32"))?,
                "the number of requests in a burst",
                MOST_DEPTH,
            )?,
            every: some_time(
                w.every.as_ref().ok_or_else(|| needed("every", "'250ms'"))?,
                "the pause between bursts",
            )?,
            pacing: match &w.pacing {
                Some(At { value: PacingFile::AfterCompletion, .. }) => Pacing::AfterCompletion,
                _ => Pacing::Fixed,
            },
        },
        KindFile::Open => WorkloadKind::Open {
            rate: w.rate.as_ref().ok_or_else(|| needed("rate", "500"))?.value.0,
            arrivals: match &w.arrivals {
                Some(At { value: ArrivalsFile::Constant, .. }) => Arrivals::Constant,
                _ => Arrivals::Poisson,
            },
        },
        KindFile::OnOff => WorkloadKind::OnOff {
            outstanding,
            on: span(some_time(w.on.as_ref().ok_or_else(|| needed("on", "'2s'"))?, "the busy time")?),
            off: span(some_time(w.off.as_ref().ok_or_else(|| needed("off", "'3s'"))?, "the quiet time")?),
        },
        KindFile::Oltp => WorkloadKind::Oltp(oltp(w, &needed, time(&w.think), time(&w.cpu), names)?),
        KindFile::Replay => WorkloadKind::Replay(replay(w, &needed, outstanding)?),
    };
    let own = (w.size.as_ref(), w.read.as_ref(), w.random.as_ref());
    let pattern_of = |keys| pattern(w, keys, &disks[disk], disk_files.get(disk));
    let pattern = pattern_of(own)?;
    let patterns = match &w.types {
        Some(drawn) => {
            let given = [
                w.size.as_ref().map(|k| &k.span),
                w.read.as_ref().map(|k| &k.span),
                w.random.as_ref().map(|k| &k.span),
            ];
            if let Some(span) = given.into_iter().flatten().next() {
                return Err(Fault::new(span, "the types say this; remove it, or 'types'"));
            }
            let known = types.iter().map(|kind| kind.value.name.value.as_str());
            let of = |name: &String| {
                let kind = &types[find(name, &drawn.span, "type", known.clone())?].value;
                pattern_of((kind.size.as_ref(), kind.read.as_ref(), kind.random.as_ref()))
            };
            drawn.value.0.iter().map(of).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let numbers = match &w.outstanding_of {
        Some(numbers) => {
            if let Some(outstanding) = &w.outstanding {
                return Err(Fault::new(&outstanding.span, "'outstanding-of' says this; keep one of the two"));
            }
            if numbers.value.is_empty() {
                return Err(Fault::new(&numbers.span, "there is nothing to draw from; write numbers"));
            }
            let check = |&value: &u32| {
                in_range(&At { value, span: numbers.span.clone() }, "the number outstanding", MOST_DEPTH)
            };
            numbers.value.iter().map(check).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let name = w.name.as_ref().map_or("workload".to_owned(), |name| name.value.clone());
    let priority = w.priority.as_ref().map(|priority| priority.value.0);
    let delay = w.delay.map_or(Nanos::ZERO, |delay| delay.0);
    Ok(Workload { name, disk, delay, kind, pattern, priority, patterns, outstanding: numbers })
}

/// Work that follows its own completion at once, on storage that completes at once, never ends.
pub(super) fn check_time_passes(
    file: &At<WorkloadFile>,
    workload: &Workload,
    disks: &[Disk],
    host: &Host,
    datastores: &[Datastore],
) -> Result<(), Fault> {
    let zero = |span: Span| span == Span::ZERO;
    let at_once = match &workload.kind {
        WorkloadKind::Closed { think, .. } => zero(*think),
        WorkloadKind::OnOff { .. } => true,
        WorkloadKind::Oltp(oltp) => zero(oltp.think) && zero(oltp.cpu),
        WorkloadKind::Replay(replay) => replay.repeat && matches!(replay.timing, ReplayTiming::Closed { .. }),
        WorkloadKind::Burst { .. } | WorkloadKind::Open { .. } => false,
    };
    let no_time = |disk: &Disk| {
        let store = &datastores[disk.datastore];
        let null = |&index: &usize| matches!(store.nodes[index].device, ModelSpec::Null);
        store.network + host.network == Nanos::ZERO && disk.nodes.iter().any(null)
    };
    if at_once && disks.iter().any(no_time) {
        let message =
            "this work never lets time pass on a device 'null'; add think time, a network or another device";
        return Err(Fault::new(&file.value.kind.span, message));
    }
    Ok(())
}

fn oltp<'a>(
    w: &WorkloadFile,
    needed: &dyn Fn(&str, &str) -> Fault,
    think: Span,
    cpu: Span,
    disks: impl Iterator<Item = &'a str> + Clone,
) -> Result<Oltp, Fault> {
    let terminals = in_range(
        w.terminals.as_ref().ok_or_else(|| needed("terminals", "100"))?,
        "the number of terminals",
        10_000,
    )?;
    let count = |key: &Option<At<u32>>| match key {
        Some(key) if key.value > 1_000 => {
            Err(Fault::new(&key.span, "a transaction has at most 1000 of these; write fewer"))
        }
        Some(key) => Ok(key.value),
        None => Ok(0),
    };
    let (reads, writes) = (count(&w.reads)?, count(&w.writes)?);
    let log = match &w.log_disk {
        Some(disk) => {
            let size = w.log_size.as_ref().map_or(Ok(Bytes::from_kib(4)), request_size)?;
            Some((find(&disk.value, &disk.span, "disk", disks)?, size))
        }
        None => None,
    };
    if reads == 0 && writes == 0 && log.is_none() {
        return Err(needed("reads", "3, or writes or a log-disk"));
    }
    let processors =
        w.processors.as_ref().map_or(Ok(0), |n| in_range(n, "the number of processors", 10_000))?;
    Ok(Oltp { terminals, reads, writes, cpu, processors, think, log })
}

fn replay(w: &WorkloadFile, needed: &dyn Fn(&str, &str) -> Fault, outstanding: u32) -> Result<Replay, Fault> {
    let trace = w.trace.as_ref().ok_or_else(|| needed("trace", "'traces/web.csv'"))?.value.clone();
    let closed = w.timing.as_ref().is_some_and(|timing| timing.value == TimingFile::Closed);
    let timing = match (closed, &w.speed, &w.outstanding) {
        (true, Some(speed), _) => {
            return Err(Fault::new(
                &speed.span,
                "'speed' means nothing with timing = 'closed'; remove one of them",
            ));
        }
        (false, _, Some(outstanding)) => {
            let message =
                "'outstanding' means nothing with recorded times; remove it, or set timing = 'closed'";
            return Err(Fault::new(&outstanding.span, message));
        }
        (true, None, _) => ReplayTiming::Closed { outstanding },
        (false, None, None) => ReplayTiming::Recorded { speed_percent: 100 },
        (false, Some(speed), None) => {
            let percent = speed.value.0;
            if percent.fract() != 0.0 || !(1.0..=100_000.0).contains(&percent) {
                return Err(Fault::new(
                    &speed.span,
                    "a speed is 1% to 100000%, whole; write such a percentage",
                ));
            }
            ReplayTiming::Recorded { speed_percent: percent as u32 }
        }
    };
    Ok(Replay { trace, timing, repeat: w.repeat.as_ref().is_some_and(|repeat| repeat.value) })
}

fn request_size(size: &At<Size>) -> Result<Bytes, Fault> {
    check_request_size(size.value.0, &size.span)
}

fn check_request_size(size: Bytes, span: &Range<usize>) -> Result<Bytes, Fault> {
    if (512..=64 << 20).contains(&size.0) {
        return Ok(size);
    }
    Err(Fault::new(span, format!("a request is 512 bytes to 64 MiB, not {size}; write such a size")))
}

/// Size, reads and randomness.
type PatternKeys<'a> = (Option<&'a At<Sizes>>, Option<&'a At<Percent>>, Option<&'a At<Percent>>);

fn pattern(
    w: &WorkloadFile,
    (size, read, random): PatternKeys<'_>,
    disk: &Disk,
    disk_file: Option<&At<DiskFile>>,
) -> Result<Pattern, Fault> {
    let sizes = match size {
        Some(sizes) => {
            for &(size, _) in &sizes.value.0 {
                check_request_size(size, &sizes.span)?;
            }
            sizes.value.0.clone()
        }
        None => vec![(Bytes::from_kib(4), 1)],
    };
    let offset = w.offset.as_ref().map_or(0, |offset| offset.value.0.0);
    let length = w.extent.as_ref().map_or(disk.size.0.saturating_sub(offset), |extent| extent.value.0.0);
    let largest = sizes.iter().map(|&(size, _)| size.0).max().unwrap_or(0);
    if offset.checked_add(length).is_none_or(|end| end > disk.size.0) || length < largest {
        let span = [&w.extent, &w.offset].into_iter().flatten().map(|key| &key.span).next();
        let span = span.or(disk_file.map(|disk| &disk.span)).unwrap_or(&w.kind.span);
        let message = format!(
            "the part of the disk from {} on of {} does not lie in its {} or is too small for a request; \
             make it fit",
            Bytes(offset),
            Bytes(length),
            disk.size
        );
        return Err(Fault::new(span, message));
    }
    let hot = w.hot.as_ref().map(|hot| (hot.value.requests, hot.value.part));
    if let (Some(hot), Some((_, part))) = (&w.hot, hot)
        && length / 100 * u64::from(part) < largest
    {
        return Err(Fault::new(&hot.span, "the hot part is smaller than a request; make it larger"));
    }
    let percent = |key: Option<&At<Percent>>| key.map_or(Ok(100), |key| whole_percent(key, 0, 100));
    Ok(Pattern { read: percent(read)?, random: percent(random)?, hot, sizes, extent: (offset, length) })
}
