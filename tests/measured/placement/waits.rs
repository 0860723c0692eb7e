//! How long requests wait while disks move, beside how long they wait while none does: at full
//! speed, and as long as somebody lets it. `HEADGATE_MOVE_WAITS=8` measures eight rounds, of half a
//! minute each; without it nothing is measured.

use super::client::Told;
use super::{DEPTHS, IN_GUESTS, Pod};
use anyhow::ensure;
use headgate_lab::Server;
use headgate_lab::guest::QEMU;
use headgate_lab::pace::with_paced_lab_alone;
use headgate_lab::stolen::stolen;
use headgate_lab::tools;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long disks move in a round, at least.
const STRETCH: Duration = Duration::from_secs(12);

/// What a move may add to the longest wait, in milliseconds.
const BAR: f64 = 100.0;

/// The longest of several stretches, by disk.
#[derive(Default)]
struct Longest([Told; DEPTHS.len()]);

impl Longest {
    fn add(&mut self, told: &[Told]) {
        for (mine, one) in self.0.iter_mut().zip(told) {
            mine.longest = mine.longest.max(one.longest);
            mine.slow = mine.slow.max(one.slow);
        }
    }
}

/// Milliseconds, by disk.
fn words(told: &[Told]) -> String {
    let one = |told: &Told| format!("{:.0}/{:.0}", told.slow, told.longest);
    told.iter().map(one).collect::<Vec<_>>().join("  ")
}

fn rounds() -> Option<u32> {
    std::env::var("HEADGATE_MOVE_WAITS").ok()?.parse().ok().filter(|rounds| *rounds > 0)
}

impl Pod {
    /// All disks at full load for so long, while something is done. What their clients saw.
    fn stretch(
        &mut self,
        least: Duration,
        work: impl FnOnce(&Pod) -> anyhow::Result<()>,
    ) -> anyhow::Result<(Vec<Told>, Duration)> {
        self.load_all(&[100])?;
        sleep(Duration::from_secs(1));
        let began = Instant::now();
        work(self)?;
        sleep(least.saturating_sub(began.elapsed()));
        let took = began.elapsed();
        Ok((self.stop_and_tell()?, took))
    }
}

/// The stretches of a round: disks move to and fro, then none does for as long. The longest wait of
/// all stretches with moves is held against that of as many without: the array's own variance is in
/// both.
#[test]
fn no_request_waits_long_for_a_move_at_full_speed() {
    let Some(rounds) = rounds() else {
        println!("SKIPPED: set HEADGATE_MOVE_WAITS to a number of rounds of half a minute");
        return;
    };
    with_paced_lab_alone(&["fio", QEMU, "qemu-io"], |lab, pace| {
        let mut pod = Pod::start(lab, pace, 1)?;
        pod.add_array(9)?;
        for disk in &pod.disks {
            tools::qemu_io(&pod.daemon.nbd_uri(&disk.name), &["write -P 5 0 256M"])?;
        }
        let (mut with, mut without) = (Longest::default(), Longest::default());
        let mut copied = 0_u32;
        for round in 0..rounds {
            let (from, name) = (stolen()?, pod.disks[round as usize % DEPTHS.len()].name.clone());
            let (moved, took) = pod.stretch(STRETCH, |pod| {
                let began = Instant::now();
                while began.elapsed() < STRETCH {
                    for to in ["array9", "array6"] {
                        let shares = ["disk", "migrate", &name, "--to", to, "--move-shares=2000"];
                        pod.daemon.command_for(10 * STRETCH, &shares)?;
                        copied += 1;
                    }
                }
                Ok(())
            })?;
            let (rested, _) = pod.stretch(took, |_| Ok(()))?;
            let stolen = stolen()?.saturating_sub(from).as_secs_f64();
            eprintln!("round {round}, {name}, {:.0} s, {stolen:.2} s stolen", took.as_secs_f64());
            eprintln!("  p99.9/longest with moves:  {}", words(&moved));
            eprintln!("  p99.9/longest without:     {}", words(&rested));
            with.add(&moved);
            without.add(&rested);
        }
        eprintln!("{copied} moves, pace {}", pace.factor());
        eprintln!("all rounds, with moves:  {}", words(&with.0));
        eprintln!("all rounds, without:     {}", words(&without.0));
        let mut worst: f64 = f64::NEG_INFINITY;
        for (number, (with, without)) in with.0.iter().zip(&without.0).enumerate() {
            let more = with.longest - without.longest;
            let guest = if IN_GUESTS.contains(&number) { ", in a guest" } else { "" };
            eprintln!("  {}{guest}: {more:+.0} ms", pod.disks[number].name);
            worst = worst.max(more);
        }
        eprintln!("the longest wait is {worst:+.0} ms longer with moves");
        ensure!(worst <= BAR, "a request waited {worst:.0} ms longer than any without moves");
        pod.daemon.stop()
    });
}
