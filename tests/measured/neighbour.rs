//! A disk with a reservation beside one with a limit, whose client is hostile.

use headgate_lab::Lab;
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::Pace;
use headgate_lab::premise::Premises;

pub const RATE: u32 = 1_000;
pub const DEPTH: u32 = 16;
pub const RESERVATION: u32 = 500;
pub const LIMIT: u32 = 50;

/// An array of known speed, and on it the disks `neighbour` and `hostile`.
pub fn set_up(lab: &Lab, pace: Pace) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    let model = format!("rate={},depth={DEPTH}", pace.rate(RATE));
    let depth = format!("--queue-depth={DEPTH}");
    daemon.command(&["datastore", "add", "array", "--emulated", &model, &depth])?;
    let reservation = format!("--reservation={}", pace.rate(RESERVATION));
    let limit = format!("--limit={}", pace.rate(LIMIT));
    for (disk, policy) in [("neighbour", &reservation), ("hostile", &limit)] {
        let create = ["disk", "create", disk, "--datastore", "array", "--size", "64M"];
        daemon.command(&[&create[..], &[policy, "--shares=100", "--force"]].concat())?;
    }
    Ok(daemon)
}

/// The array is busy, and the neighbour has as many requests outstanding as the window holds.
pub fn premises(pace: Pace) -> Premises {
    Premises::new().busy("array", pace.rate(RATE).into()).backlog("neighbour", DEPTH)
}
