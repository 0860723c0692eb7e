use crate::{Held, Outstanding, Permille};
use core::fmt;
use headgate_stats::Interval;
use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// What a datastore did in an interval of 2 to 10 s: a point of its model. The datastore's
/// statistics, not a disk's; of several hosts, outstanding requests add up and latencies are
/// weighted by requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePoint {
    /// Mean number of reads at the device.
    pub outstanding: Outstanding,
    /// Mean latency of a read there.
    pub latency: Nanos,
    /// Mean size of reads and writes.
    pub size: Bytes,
    /// Reads and writes that continue no stream.
    pub random: Permille,
}

/// Which intervals tell something of the device (section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// Intervals of larger requests on average are left out: transfer time is not queueing. 32 KiB
    /// in the paper.
    pub largest: Bytes,
    /// Intervals of more sequential requests are left out: a prefetched read says nothing of the
    /// disks. 90 % in the paper.
    pub most_sequential: Permille,
    /// Intervals of fewer reads are left out: their mean is chance.
    pub least_reads: u32,
}

impl Default for Filters {
    fn default() -> Filters {
        Filters { largest: Bytes::from_kib(32), most_sequential: Permille(900), least_reads: 10 }
    }
}

/// Why an interval is no point of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftOut {
    /// Requests waited for limits of ours: what the device could have done was not asked of it.
    Limited,
    /// Requests waited for a window of ours: likewise.
    Windowed,
    /// Too few reads. Writes are done when they are in a cache, and say nothing.
    FewReads,
    /// Requests too large on average.
    Large,
    /// Too sequential.
    Sequential,
}

impl LeftOut {
    /// All, in the order in which they are looked for.
    pub const ALL: [LeftOut; 5] = [
        LeftOut::Limited,
        LeftOut::Windowed,
        LeftOut::FewReads,
        LeftOut::Large,
        LeftOut::Sequential,
    ];
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftOut::Limited => "requests waited for a disk's limit",
            LeftOut::Windowed => "requests waited for the queue depth",
            LeftOut::FewReads => "too few reads",
            LeftOut::Large => "requests too large",
            LeftOut::Sequential => "too sequential",
        })
    }
}

impl DevicePoint {
    /// The point of an interval, if it tells something of the device. `held` is whether requests
    /// waited for anything of ours in more than a small part of the interval.
    ///
    /// # Errors
    /// [`LeftOut`] says why it does not.
    pub fn of(interval: &Interval, held: Held, filters: &Filters) -> Result<DevicePoint, LeftOut> {
        match DeviceInterval::of(interval, held, filters) {
            DeviceInterval::Point(point) => Ok(point),
            DeviceInterval::Doubtful(_, why) | DeviceInterval::Nothing(why) => Err(why),
        }
    }
}

/// What an interval of a datastore says of the device.
///
/// Outstanding requests and latency are those at the device, from dispatch to completion. So an
/// interval in which requests waited for us shows the device as truly as another: at what we let
/// through. It is second choice all the same, because it shows the device at one load and says
/// nothing of what it would do at what was asked for.
/// [`DeviceModel::learn_from`](crate::DeviceModel::learn_from) has recourse to it where there is
/// too little else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceInterval {
    /// A point of its model.
    Point(DevicePoint),
    /// A point where there are too few of the others, and why it is no better:
    /// [`LeftOut::Limited`], [`LeftOut::Windowed`], or [`LeftOut::Large`]. Of a large one that was
    /// held back, too, the size tells.
    Doubtful(DevicePoint, LeftOut),
    /// Nothing.
    Nothing(LeftOut),
}

impl DeviceInterval {
    /// Sorts an interval. Few reads and sequential ones say nothing of the device, whatever else
    /// there is.
    pub fn of(interval: &Interval, held: Held, filters: &Filters) -> DeviceInterval {
        let held = match held {
            Held::ByLimit => Some(LeftOut::Limited),
            Held::ByWindow => Some(LeftOut::Windowed),
            Held::No => None,
        };
        let doubt = |point: DevicePoint| match held
            .or((point.size > filters.largest).then_some(LeftOut::Large))
        {
            Some(why) => DeviceInterval::Doubtful(point, why),
            None => DeviceInterval::Point(point),
        };
        match DeviceInterval::point_of(interval, filters) {
            Ok(point) => doubt(point),
            Err(why) => DeviceInterval::Nothing(held.unwrap_or(why)),
        }
    }

    /// The same, of a device whose window moves with its latency: what waited for that is no point.
    /// Who else uses the device makes it slower and the window smaller, and a line through such
    /// points would fall.
    pub fn without_windowed(self) -> DeviceInterval {
        match self {
            DeviceInterval::Doubtful(_, LeftOut::Windowed) => {
                DeviceInterval::Nothing(LeftOut::Windowed)
            }
            other => other,
        }
    }

    /// The point, good or doubtful.
    pub fn any_point(&self) -> Option<DevicePoint> {
        match self {
            DeviceInterval::Point(point) | DeviceInterval::Doubtful(point, _) => Some(*point),
            DeviceInterval::Nothing(_) => None,
        }
    }

    /// Why it is no good point; `None` for one that is.
    pub fn why(&self) -> Option<LeftOut> {
        match self {
            DeviceInterval::Point(_) => None,
            DeviceInterval::Doubtful(_, why) | DeviceInterval::Nothing(why) => Some(*why),
        }
    }

    fn point_of(interval: &Interval, filters: &Filters) -> Result<DevicePoint, LeftOut> {
        let count = interval.reads.iops * interval.length.as_secs_f64();
        let latency = match interval.reads.device {
            Some(latency) if libm::round(count) >= f64::from(filters.least_reads.max(1)) => {
                latency.mean
            }
            _ => return Err(LeftOut::FewReads),
        };
        // There are reads, so this is a number.
        let size =
            Bytes((interval.bytes_per_sec / (interval.reads.iops + interval.writes.iops)) as u64);
        let sequential =
            Permille::of_ratio(interval.sequential_fraction.unwrap_or(0.0)).min(Permille::WHOLE);
        if sequential > filters.most_sequential {
            return Err(if size > filters.largest { LeftOut::Large } else { LeftOut::Sequential });
        }
        Ok(DevicePoint {
            outstanding: Outstanding::of(interval.reads.at_device),
            latency: latency.max(Nanos(1)),
            size,
            random: Permille(1_000 - sequential.0),
        })
    }
}

/// How many intervals became points, and why others did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Points.
    pub taken: u64,
    /// Left out, in the order of [`LeftOut::ALL`].
    pub left_out: [u64; 5],
}

impl Totals {
    /// Counts an interval, by why it was left out, if it was.
    pub fn count_why(&mut self, why: Option<LeftOut>) {
        match why {
            None => self.taken += 1,
            Some(why) => self.left_out[why as usize] += 1,
        }
    }

    /// Adds what another counted.
    pub fn merge(&mut self, other: &Totals) {
        self.taken = self.taken.saturating_add(other.taken);
        for (mine, theirs) in self.left_out.iter_mut().zip(other.left_out) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

/// `870 intervals; left out: 12 (too few reads), 3 (too sequential)`.
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} intervals", self.taken)?;
        let left_out = LeftOut::ALL.iter().zip(self.left_out).filter(|&(_, count)| count > 0);
        for (index, (why, count)) in left_out.enumerate() {
            write!(f, "{}{count} ({why})", if index == 0 { "; left out: " } else { ", " })?;
        }
        Ok(())
    }
}
