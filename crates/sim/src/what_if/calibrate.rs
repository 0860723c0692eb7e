//! Finds the device with which the record comes out.

use super::client::LoadKind;
use super::device::Device;
use super::plan::Plan;
use super::play::{Cut, Played, Side, play};
use super::record::LoadRecord;

/// How strong the spread is tried to be: as all times of those hours are spread, of which some came
/// of other loads, down to what a steady device has.
const STRENGTHS: [f64; 4] = [1.0, 0.6, 0.3, 0.05];
/// Requests of a disk below which its mean time is chance.
const LEAST: u64 = 50;

/// Runs with the policies of then, of `budget` requests each, and the device that came nearest to
/// the recorded latencies.
pub(super) fn calibrate(
    record: &LoadRecord,
    clients: &[Option<LoadKind>],
    budget: u64,
    seed: u64,
    give_up: &mut dyn FnMut() -> bool,
) -> Result<Device, Cut> {
    let plan = Plan::of(record, budget.max(1_000));
    let mut device = Device::of(record);
    let mut run =
        |device: &Device| play(record, clients, &plan, device, Side::Before, seed, &mut *give_up);
    // What requests cost is known once some were charged.
    let first = run(&device)?;
    device.mean_cost = mean_cost(&first);
    correct(&mut device, record, &first);
    let mut best: Option<(f64, Device)> = None;
    for strength in STRENGTHS {
        let mut tried = Device { spread: record.device.spread.raised(strength), ..device.clone() };
        let played = run(&tried)?;
        let missed = distance(record, &played);
        correct(&mut tried, record, &played);
        if best.as_ref().is_none_or(|(least, _)| missed < *least) {
            best = Some((missed, tried));
        }
    }
    Ok(best.map_or(device, |(_, device)| device))
}

fn mean_cost(played: &Played) -> f64 {
    let (mut cost, mut requests) = (0.0, 0.0);
    for disk in &played.disks {
        cost += disk.received as f64;
        requests += disk.requests as f64;
    }
    if requests > 0.0 { (cost / requests).max(1.0) } else { 1e6 }
}

/// Brings each disk's mean time at the device to the recorded one, both beside what the curve says
/// of as many in flight: that there were others is not the disk's doing.
fn correct(device: &mut Device, record: &LoadRecord, played: &Played) {
    let (seen, _) = record.at_device_all().unwrap_or((1.0, 1.0));
    let by_curve = device.shape.at(played.in_flight()) / device.shape.at(seen);
    for ((factor, disk), got) in device.factors.iter_mut().zip(&record.disks).zip(&played.disks) {
        if let (Some(wanted), Some(took)) = (disk.device_time(), got.mean_device_time())
            && got.requests >= LEAST
        {
            *factor *= (wanted * by_curve / took.max(1.0)).clamp(0.2, 5.0);
        }
    }
}

/// How far latencies are from the recorded ones: the logarithms of their ratios, by requests.
fn distance(record: &LoadRecord, played: &Played) -> f64 {
    let (mut sum, mut weight) = (0.0, 0.0);
    for (disk, got) in record.disks.iter().zip(&played.disks) {
        let Some((p50, p99)) = disk.latency else { continue };
        let requests = disk.requests() as f64;
        for (wanted, permille) in [(p50, 500), (p99, 990)] {
            if let Some(found) = got.latency.at_permille(permille) {
                let ratio = found.0.max(1) as f64 / wanted.0.max(1) as f64;
                sum += requests * libm::log(ratio).abs();
                weight += requests;
            }
        }
    }
    if weight > 0.0 { sum / weight } else { 0.0 }
}
