//! What the models cost their driver, and what they serve: `cargo bench -p headgate-devices`.

use headgate_devices::{DeviceIo, IoKind, ModelSpec};
use headgate_units::{Bytes, Nanos};
use std::time::Instant;

const CAPACITY: Bytes = Bytes::from_gib(1_000);
const OUTSTANDING: u64 = 32;
const REQUESTS: u64 = 200_000;
const ROUNDS: usize = 7;

fn random_io(kind: IoKind, i: u64) -> DeviceIo {
    let mixed = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let place = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 12;
    DeviceIo { kind, offset: (place % CAPACITY.0) & !4_095, bytes: Bytes::from_kib(8) }
}

/// A closed loop in virtual time: nanoseconds of ours for each request, and requests per second of
/// the device's.
fn run(spec: &ModelSpec, kind: IoKind) -> (f64, f64) {
    let mut device = spec.build(CAPACITY);
    let (mut now, mut submitted) = (Nanos::ZERO, OUTSTANDING);
    #[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
    let start = Instant::now();
    (0..OUTSTANDING).for_each(|i| device.submit(now, i, random_io(kind, i)));
    while submitted < REQUESTS {
        now = device.next_event().map_or(now, |next| now.max(next));
        while device.poll(now).is_some() {
            device.submit(now, submitted, random_io(kind, submitted));
            submitted += 1;
        }
    }
    (start.elapsed().as_nanos() as f64 / submitted as f64, submitted as f64 / now.as_secs_f64())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{OUTSTANDING} random requests of 8 KiB outstanding        ns per request        IOPS in virtual time"
    );
    for (text, kind) in [
        ("rate=1600", IoKind::Read),
        ("rate=1000000", IoKind::Read),
        ("array=10", IoKind::Read),
        ("array=10,disk=sata7k", IoKind::Read),
        ("array=10,cache=0", IoKind::Write),
        ("array=10,raid=5,cache=0", IoKind::Write),
        ("array=10,raid=5", IoKind::Write),
    ] {
        let spec: ModelSpec = text.parse()?;
        let mut rounds = [(0.0, 0.0); ROUNDS];
        rounds.fill_with(|| run(&spec, kind));
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((median, iops), (least, _), (most, _)) =
            (rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]);
        let name = format!("{text} {kind:?}");
        println!("{name:<45} {median:>8.0} ({least:.0} to {most:.0}) {iops:>18.0}");
    }
    Ok(())
}
