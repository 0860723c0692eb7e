//! Wire types of what disks were promised and got, over hours and months.

use crate::blame::{Blame, Blamed, Causes};
use crate::top::LatencyMicros;
use headgate_model::Name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Request-seconds of waiting by cause; see [`Causes`].
pub type WaitSeconds = Causes;

/// What a disk did and waited for in a minute, or in an hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiskPeriod {
    /// When it began, in seconds since 1970.
    pub begin: i64,
    /// Seconds of it that were seen, in which the disk asked for something or had a reservation.
    pub seen_seconds: f64,
    /// Reads and writes per second.
    pub iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_sec: f64,
    /// From arrival to completion, at most a tenth too high; absent when nothing was done.
    pub total_micros: Option<LatencyMicros>,
    /// Requests that failed.
    pub errors: u64,
    /// What it waited for, and behind whom; `null` where it asked for nothing.
    pub blame: Option<Blame>,
    /// How its reservation was kept.
    pub promise: Promise,
}

/// How a reservation was kept over a time.
///
/// A second counts as demanded when the disk had a reservation and had requests queued at its
/// beginning and at its end. It is short when it got less than 97 % of the reservation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Promise {
    /// What was reserved: the reservation times the time, in normalised IOs.
    pub reserved_ios: f64,
    /// What was received, likewise.
    pub received_ios: f64,
    /// Seconds in which the reservation was demanded.
    pub demanded_seconds: f64,
    /// Of these, seconds in which it fell short.
    pub short_seconds: f64,
    /// What was reserved in the demanded seconds.
    pub demanded_ios: f64,
    /// What was received in them.
    pub received_when_demanded_ios: f64,
    /// What was missing in the short ones.
    pub missing_ios: f64,
    /// The part of the demanded seconds that were not short, in per cent; `null` where none was
    /// demanded.
    pub kept_percent: Option<f64>,
    /// What requests waited for in the short seconds, in request-seconds.
    pub short_waits: WaitSeconds,
    /// The neighbours that they waited for most, with request-seconds each.
    pub short_neighbours: BTreeMap<String, f64>,
}

impl Promise {
    /// Adds another time, or another disk.
    pub fn add(&mut self, other: &Promise) {
        self.reserved_ios += other.reserved_ios;
        self.received_ios += other.received_ios;
        self.demanded_seconds += other.demanded_seconds;
        self.short_seconds += other.short_seconds;
        self.demanded_ios += other.demanded_ios;
        self.received_when_demanded_ios += other.received_when_demanded_ios;
        self.missing_ios += other.missing_ios;
        let (mine, more) = (&mut self.short_waits, &other.short_waits);
        mine.device += more.device;
        mine.limit += more.limit;
        mine.own += more.own;
        mine.neighbours += more.neighbours;
        mine.window += more.window;
        mine.held += more.held;
        for (name, seconds) in &other.short_neighbours {
            *self.short_neighbours.entry(name.clone()).or_default() += seconds;
        }
        self.kept_percent = kept_percent(self.demanded_seconds, self.short_seconds);
    }

    /// Why seconds were short, the largest parts first.
    pub fn why(&self) -> Option<Blame> {
        let waits = &self.short_waits;
        let total: f64 = waits.each().iter().map(|(_, seconds)| seconds).sum();
        if total <= 0.0 {
            return None;
        }
        let mut neighbours: Vec<Blamed> = self
            .short_neighbours
            .iter()
            .filter_map(|(name, seconds)| {
                Some(Blamed { disk: name.parse().ok()?, copy: false, part: seconds / total })
            })
            .collect();
        neighbours.sort_by(|a, b| b.part.total_cmp(&a.part));
        let causes = Causes {
            device: waits.device / total,
            limit: waits.limit / total,
            own: waits.own / total,
            neighbours: waits.neighbours / total,
            window: waits.window / total,
            held: waits.held / total,
        };
        let seconds = self.short_seconds;
        Some(Blame { seconds, waiting: total / seconds.max(1e-9), causes, neighbours })
    }
}

/// The part of the demanded seconds that were kept, in per cent.
pub fn kept_percent(demanded: f64, short: f64) -> Option<f64> {
    (demanded > 0.0).then(|| (demanded - short) / demanded * 100.0)
}

/// An hour of a disk, as it is kept: what a report is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PromiseSample {
    /// The disk; it may have been removed since.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// The virtual machine that it belongs to now; `null` also where it was removed.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// The tenant that this machine belongs to now.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Option<Name>,
    /// When the hour began, in seconds since 1970.
    pub begin: i64,
    /// Seconds of it that were seen.
    pub seen_seconds: f64,
    /// How its reservation was kept.
    pub promise: Promise,
}

/// A line of a report: of a disk, of a virtual machine or of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportLine {
    /// Whose it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Of a disk: the virtual machine that it belongs to now.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// Of a disk or a machine: the tenant that it belongs to now.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Option<Name>,
    /// How its reservations were kept. Of a machine or a tenant these are sums over its disks,
    /// seconds too; what it is promised itself is not counted.
    pub promise: Promise,
}

/// What was promised and what was received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    /// The first second of it, since 1970.
    pub since: i64,
    /// The first second after it.
    pub until: i64,
    /// By disk.
    pub disks: Vec<ReportLine>,
    /// By virtual machine.
    pub machines: Vec<ReportLine>,
    /// By tenant.
    #[serde(default)]
    pub tenants: Vec<ReportLine>,
    /// All disks together.
    pub all: Promise,
}

impl Report {
    /// Of the hours that begin within a time.
    pub fn of(since: i64, until: i64, samples: &[PromiseSample]) -> Report {
        let mut lines: [BTreeMap<&Name, ReportLine>; 3] = Default::default();
        let mut all = Promise::default();
        for sample in samples {
            let (vm, tenant) = (sample.vm.as_ref(), sample.tenant.as_ref());
            // Of each kind: who, and what it belongs to.
            let of = [(Some(&sample.disk), vm, tenant), (vm, None, tenant), (tenant, None, None)];
            for (lines, (name, vm, tenant)) in lines.iter_mut().zip(of) {
                let Some(name) = name else { continue };
                let line = lines.entry(name).or_insert_with(|| ReportLine {
                    name: name.clone(),
                    vm: vm.cloned(),
                    tenant: tenant.cloned(),
                    promise: Promise::default(),
                });
                line.promise.add(&sample.promise);
            }
            all.add(&sample.promise);
        }
        let [disks, machines, tenants] = lines.map(|lines| lines.into_values().collect());
        Report { since, until, disks, machines, tenants, all }
    }

    /// The lines of each kind, with its name.
    pub fn each(&self) -> [(&'static str, &[ReportLine]); 3] {
        let [disks, machines, tenants] =
            [&self.disks, &self.machines, &self.tenants].map(Vec::as_slice);
        [("disk", disks), ("machine", machines), ("tenant", tenants)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_by_disk_machine_and_tenant() {
        let sample = |disk: &str, vm: &str, begin, demanded, short| {
            let tenant = (vm != "z").then(|| "red".parse().unwrap());
            let short_neighbours = BTreeMap::from([("flooder".to_owned(), 3.0 * short)]);
            let short_waits =
                WaitSeconds { neighbours: 3.0 * short, device: short, ..WaitSeconds::default() };
            let mut promise = Promise::default();
            promise.add(&Promise {
                demanded_seconds: demanded,
                short_seconds: short,
                short_waits,
                short_neighbours,
                ..Promise::default()
            });
            let (disk, vm) = (disk.parse().unwrap(), Some(vm.parse().unwrap()));
            PromiseSample { disk, vm, tenant, begin, seen_seconds: 3_600.0, promise }
        };
        let samples = [
            sample("a", "x", 0, 1_000.0, 1.0),
            sample("a", "x", 3_600, 3_000.0, 3.0),
            sample("b", "x", 0, 4_000.0, 0.0),
            sample("c", "y", 0, 2_000.0, 6.0),
            sample("d", "z", 0, 1_000.0, 500.0),
        ];
        let report = Report::of(0, 7_200, &samples);
        let kept = |lines: &[ReportLine]| -> Vec<f64> {
            lines.iter().map(|line| line.promise.kept_percent.unwrap()).collect()
        };
        assert_eq!(kept(&report.disks), [99.9, 100.0, 99.7, 50.0]);
        assert_eq!(kept(&report.machines), [99.95, 99.7, 50.0]);
        assert_eq!(kept(&report.tenants), [99.9]);
        assert_eq!((report.all.demanded_seconds, report.all.short_seconds), (11_000.0, 510.0));
        let whose = |line: &ReportLine| (line.vm.clone(), line.tenant.clone());
        let (x, red) = (Some("x".parse().unwrap()), Some("red".parse().unwrap()));
        assert_eq!(whose(&report.disks[0]), (x, red.clone()));
        assert_eq!(whose(&report.machines[0]), (None, red));
        assert_eq!(whose(&report.tenants[0]), (None, None));
        let why = report.disks[0].promise.why().unwrap();
        assert_eq!(why.words(), "flooder 75 %, the device 25 %");
        assert_eq!(report.disks[1].promise.why(), None);
        assert_eq!(kept_percent(0.0, 0.0), None);
    }
}
