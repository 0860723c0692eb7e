//! What each disk should get: the target allocation of the mClock paper (USENIX OSDI 2010, §2,
//! equations 1 and 2), written down independently of the scheduler under test.

use crate::pace::Pace;
use crate::sample::Interval;
use anyhow::ensure;

/// A disk's policy and its arguments on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Least rate in normalised IOPS; 0 for none.
    pub reservation: u32,
    /// Highest rate in normalised IOPS.
    pub limit: Option<u32>,
    /// Weight.
    pub shares: u32,
}

impl Promise {
    /// Only a weight.
    pub const fn shares(shares: u32) -> Promise {
        Promise { reservation: 0, limit: None, shares }
    }

    /// The same on storage that is slower by this pace.
    pub fn at(&self, pace: Pace) -> Promise {
        Promise {
            reservation: pace.rate(self.reservation),
            limit: self.limit.map(|limit| pace.rate(limit)),
            shares: self.shares,
        }
    }

    /// The arguments that make `disk create` and `disk set` promise this and nothing else.
    pub fn arguments(&self) -> Vec<String> {
        let or_none =
            |value: Option<u32>| value.map_or_else(|| "none".to_owned(), |v| v.to_string());
        vec![
            format!("--reservation={}", or_none(Some(self.reservation).filter(|r| *r > 0))),
            format!("--limit={}", or_none(self.limit)),
            format!("--shares={}", self.shares),
        ]
    }
}

/// Divides a total among disks that always ask for more: finds x with Σ min(limit, max(reservation,
/// x·shares)) = total. When even the reservations do not fit, they are scaled down.
pub fn divide(total: f64, promises: &[Promise]) -> Vec<f64> {
    let reserved: f64 = promises.iter().map(|p| f64::from(p.reservation)).sum();
    if reserved >= total {
        return promises.iter().map(|p| f64::from(p.reservation) * total / reserved).collect();
    }
    let at = |x: f64| -> Vec<f64> {
        let limit = |p: &Promise| p.limit.map_or(f64::INFINITY, f64::from);
        promises
            .iter()
            .map(|p| (x * f64::from(p.shares)).max(f64::from(p.reservation)).min(limit(p)))
            .collect()
    };
    let (mut low, mut high) = (0.0, total);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if at(middle).iter().sum::<f64>() < total { low = middle } else { high = middle }
    }
    at(low)
}

/// What disks that always ask for more got in an interval is divided by their promises, each within
/// this part of what is due to it. That is due of what they got together: storage may give somewhat
/// less than its rate ([`busy`](crate::premise::Premises::busy)), and all of that is then missing
/// at a disk without a reservation, however small its part.
///
/// # Errors
/// One got more or less.
pub fn ensure_divided(
    interval: &Interval,
    promises: &[(&str, Promise)],
    within: f64,
) -> anyhow::Result<()> {
    let rates = promises.iter().map(|(disk, _)| interval.iops(disk));
    let rates = rates.collect::<anyhow::Result<Vec<f64>>>()?;
    let due = divide(rates.iter().sum(), &promises.iter().map(|p| p.1).collect::<Vec<_>>());
    for (((disk, promise), rate), due) in promises.iter().zip(&rates).zip(due) {
        eprintln!("  {disk}: {rate:.1} IOPS, due {due:.1}");
        ensure!(
            (rate / due - 1.0).abs() <= within,
            "{disk}: {rate:.1} IOPS where {due:.1} are due: {promise:?}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(total: f64, promises: &[Promise]) -> Vec<u32> {
        divide(total, promises).iter().map(|x| x.round() as u32).collect()
    }

    #[test]
    fn the_papers_examples_come_out() {
        let example = [
            Promise { reservation: 250, limit: None, shares: 100 },
            Promise { reservation: 250, limit: None, shares: 200 },
            Promise { reservation: 0, limit: Some(1000), shares: 300 },
        ];
        assert_eq!(rounded(250.0, &example), [125, 125, 0]);
        assert_eq!(rounded(700.0, &example), [250, 250, 200]);
        assert_eq!(rounded(1200.0, &example), [250, 380, 570]);
        assert_eq!(rounded(3000.0, &example), [667, 1333, 1000]);
    }

    #[test]
    fn limits_leave_the_rest_unused() {
        let limited = Promise { reservation: 0, limit: Some(10), shares: 1 };
        assert_eq!(rounded(100.0, &[limited, limited]), [10, 10]);
    }
}
