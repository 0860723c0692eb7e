//! What each disk is due: water filling over a span of time.
//!
//! Source: mClock, OSDI 2010, section 3.1: with T delivered, each disk gets `clamp(w·λ, r, l)`, for
//! the λ at which the sum is T. Where the reservations do not fit, they are served in proportion,
//! and the disks without one together keep 1/(n+1) of T ([`Floor`](headgate_qos::Floor)).
//!
//! All figures are amounts over the span, in reference IOs. O(disks) for each of a fixed number of
//! bisections.

/// Working time of the storage after a stall in which what the stall cost is owed, in seconds:
/// [`Config::debt_horizon`](headgate_qos::Config::debt_horizon). What a limit lets a disk make good
/// for later is not.
pub const MADE_GOOD: f64 = 5.0;

/// A pause that a limit need not make good for, in seconds:
/// [`Config::limit_slack`](headgate_qos::Config::limit_slack).
pub const PAUSE: f64 = 0.02;

/// One disk's claim on a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The least that it is promised.
    pub reservation: f64,
    /// The most that it may have, and not more than it asked for; infinite where nothing binds.
    pub most: f64,
    /// Its weight.
    pub shares: f64,
    /// Whether the disk has a reservation at all, whatever it asked for.
    pub class: ClaimClass,
}

/// Whether a disk counts for the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimClass {
    /// It has a reservation.
    Reserved,
    /// It has none.
    Unreserved,
}

/// What storage that delivered so much owes.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// To each disk.
    pub amounts: Vec<f64>,
    /// The level λ of the shares; 0 where the reservations do not fit.
    pub level: f64,
    /// Whether the reservations fit.
    pub regime: Regime,
}

/// Whether the reservations fit in what was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// They fit, with the floor beside them.
    Plenty,
    /// They fit, but not with the floor.
    Brim,
    /// They do not fit.
    Shortage,
}

/// `floor` is the n of one in n; `None` where no floor is kept.
pub fn due(claims: &[Claim], delivered: f64, floor: Option<u16>) -> Due {
    due_beside(claims, delivered, floor.map_or(0.0, |n| delivered / (f64::from(n) + 1.0)))
}

/// The same where disks without a reservation keep `floor` reference IOs.
pub fn due_beside(claims: &[Claim], delivered: f64, floor: f64) -> Due {
    let least = |claim: &Claim| claim.reservation.min(claim.most);
    let reserved: f64 = claims.iter().map(least).sum();
    let unreserved = |claim: &&Claim| claim.class == ClaimClass::Unreserved;
    let asked: f64 = claims.iter().filter(unreserved).map(|claim| claim.most).sum();
    let kept = floor.min(asked).min(delivered);
    if reserved <= delivered - kept {
        let (amounts, level) = fill(claims, delivered);
        return Due { amounts, level, regime: Regime::Plenty };
    }
    let regime = if reserved > delivered { Regime::Shortage } else { Regime::Brim };
    let bare: Vec<Claim> = claims
        .iter()
        .map(|claim| match claim.class {
            ClaimClass::Unreserved => *claim,
            ClaimClass::Reserved => Claim { reservation: 0.0, most: 0.0, ..*claim },
        })
        .collect();
    let scale = (delivered - kept) / reserved;
    let (floors, _) = fill(&bare, kept);
    let amounts = claims
        .iter()
        .zip(floors)
        .map(|(claim, floor)| match claim.class {
            ClaimClass::Reserved => least(claim) * scale,
            ClaimClass::Unreserved => floor,
        })
        .collect();
    Due { amounts, level: 0.0, regime }
}

/// `clamp(w·λ, r, l)` with the sum `total`, or with every disk at its most if that is less, and λ.
fn fill(claims: &[Claim], total: f64) -> (Vec<f64>, f64) {
    let at =
        |claim: &Claim, level: f64| (claim.shares * level).max(claim.reservation).min(claim.most);
    let sum = |level: f64| claims.iter().map(|claim| at(claim, level)).sum::<f64>();
    if claims.iter().map(|claim| claim.most).sum::<f64>() <= total {
        return (claims.iter().map(|claim| claim.most).collect(), f64::INFINITY);
    }
    let least = claims.iter().map(|claim| claim.shares).fold(f64::INFINITY, f64::min);
    let (mut low, mut high) = (0.0, total / least.max(f64::MIN_POSITIVE) + 1.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if sum(middle) < total { low = middle } else { high = middle }
    }
    (claims.iter().map(|claim| at(claim, high)).collect(), high)
}

/// How a disk with limits of its reads and of its writes divides what it has: both take turns, so
/// both get the same, up to the most of either, and the rest is the other's. Max-min fairness.
pub fn divide(amount: f64, most: [f64; 2]) -> [f64; 2] {
    let half = amount / 2.0;
    let [reads, writes] = most;
    match (reads < half, writes < half) {
        (true, _) => [reads, (amount - reads).min(writes)],
        (_, true) => [(amount - writes).min(reads), writes],
        _ => [half, half],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(reservation: f64, most: f64, shares: f64) -> Claim {
        let class = if reservation > 0.0 { ClaimClass::Reserved } else { ClaimClass::Unreserved };
        Claim { reservation, most, shares, class }
    }

    fn rounded(claims: &[Claim], delivered: f64, floor: Option<u16>) -> (Vec<f64>, Regime) {
        let due = due(claims, delivered, floor);
        (due.amounts.iter().map(|amount| amount.round()).collect(), due.regime)
    }

    #[test]
    fn figure_three_of_the_paper() {
        // mClock, section 3.1: weights 1:2:3, reservations 250 and 250, a limit of 1000.
        let disks = [
            claim(250.0, f64::INFINITY, 100.0),
            claim(250.0, f64::INFINITY, 200.0),
            claim(0.0, 1000.0, 300.0),
        ];
        for (delivered, amounts) in [
            (250.0, [125.0, 125.0, 0.0]),
            (700.0, [250.0, 250.0, 200.0]),
            (1200.0, [250.0, 380.0, 570.0]),
            (1500.0, [250.0, 500.0, 750.0]),
            (2500.0, [500.0, 1000.0, 1000.0]),
        ] {
            assert_eq!(rounded(&disks, delivered, None).0, amounts, "{delivered}");
        }
    }

    #[test]
    fn a_shortage_scales_reservations_and_keeps_the_floor_by_shares() {
        let disks = [
            claim(800.0, f64::INFINITY, 100_000.0),
            claim(400.0, f64::INFINITY, 1.0),
            claim(0.0, f64::INFINITY, 3.0),
            claim(0.0, f64::INFINITY, 1.0),
        ];
        let (amounts, regime) = rounded(&disks, 1010.0, Some(100));
        assert_eq!((amounts, regime), (vec![667.0, 333.0, 8.0, 3.0], Regime::Shortage));
        assert_eq!(rounded(&disks, 1205.0, Some(100)).1, Regime::Brim);
        assert_eq!(rounded(&disks, 1205.0, None).1, Regime::Plenty);
    }

    #[test]
    fn directions_get_the_same_up_to_the_most_of_either() {
        for (amount, most, each) in [
            (100.0, [f64::INFINITY; 2], [50.0, 50.0]),
            (100.0, [20.0, f64::INFINITY], [20.0, 80.0]),
            (100.0, [f64::INFINITY, 20.0], [80.0, 20.0]),
            (100.0, [60.0, 45.0], [55.0, 45.0]),
            (100.0, [60.0, 60.0], [50.0, 50.0]),
            (100.0, [60.0, 0.0], [60.0, 0.0]),
            (100.0, [10.0, 20.0], [10.0, 20.0]),
        ] {
            assert_eq!(divide(amount, most), each, "{amount} within {most:?}");
        }
    }

    #[test]
    fn what_a_disk_does_not_ask_for_goes_to_the_others() {
        let disks = [claim(500.0, 100.0, 1.0), claim(0.0, f64::INFINITY, 1.0)];
        assert_eq!(rounded(&disks, 1000.0, Some(100)).0, [100.0, 900.0]);
        let idle = [claim(0.0, 10.0, 1.0), claim(5.0, 20.0, 1.0)];
        assert_eq!(rounded(&idle, 1000.0, Some(100)).0, [10.0, 20.0]);
    }
}
