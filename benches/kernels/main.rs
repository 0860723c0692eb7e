//! Headgate beside the kernel's own schedulers and controllers: BFQ, mq-deadline, blk-throttle and
//! io.cost, in a real guest, on emulated storage of a known rate.
//!
//! The kernel's schedulers divide one virtio disk among control groups. Headgate divides the same
//! kind of storage among one virtio disk for each tenant, and the guest has no scheduler. Rounds
//! are interleaved. The table has medians of the rounds.

mod contender;
mod question;
mod stage;
mod table;

use anyhow::ensure;
use clap::Parser;
use contender::Contender;
use headgate_lab::{Lab, guest, with_lab};
use question::Question;
use stage::Stage;
use std::time::{Duration, Instant};

/// Asks the kernel's schedulers and Headgate for fairness, priority, latency and response to
/// bursts, each with the total throughput.
#[derive(Parser)]
struct Options {
    /// Rounds; each asks every contender every question once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Requests per second of the emulated storage. A guest without KVM keeps up with 2000.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(100..=10_000))]
    rate: u32,
    /// What follows the rate in the device's model, such as `,service=exponential`.
    #[arg(long, default_value = ",service=exponential")]
    model: String,
    /// No run begins after so many minutes.
    #[arg(long, default_value_t = 35)]
    minutes: u64,
    /// Only these; may be given several times.
    #[arg(long, value_enum)]
    contender: Vec<Contender>,
    /// Only these; may be given several times.
    #[arg(long, value_enum)]
    question: Vec<Question>,
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    ensure!(options.rounds > 0, "a round at least");
    with_lab(&[guest::QEMU, "fio"], |lab| compare(lab, &options));
    Ok(())
}

fn compare(lab: &Lab, options: &Options) -> anyhow::Result<()> {
    let or_all = |given: &[Contender]| match given {
        [] => Contender::ALL.to_vec(),
        some => some.to_vec(),
    };
    let contenders = or_all(&options.contender);
    let questions = match options.question.as_slice() {
        [] => Question::ALL.to_vec(),
        some => some.to_vec(),
    };
    let begin = Instant::now();
    let late = || begin.elapsed() > Duration::from_secs(60 * options.minutes);
    println!("load before: {}", load());
    let mut stage = Stage::new(lab, options.rate, &options.model)?;
    println!("guest: Linux {}", stage.kernel()?);
    println!("storage: rate={}{}", options.rate, options.model);
    let (mut answers, mut quiet) = (table::Answers::new(), Vec::new());
    let mut measured = || -> anyhow::Result<()> {
        for round in 0..options.rounds {
            quiet.push(stage.quiet()?);
            for turn in 0..contenders.len() {
                let Some(&contender) = contenders.get((round + turn) % contenders.len()) else {
                    continue;
                };
                for &question in &questions {
                    if late() {
                        eprintln!("out of time in round {}", round + 1);
                        return Ok(());
                    }
                    let answer = stage.ask(contender, question)?;
                    let shares: Vec<String> =
                        answer.shares.iter().map(|iops| format!("{iops:.0}")).collect();
                    // Whoever interrupts a long run has what was measured so far.
                    eprintln!(
                        "round {}, {}, {question:?}: {:.1}, used {:.3}, {} IOPS, load {}",
                        round + 1,
                        contender.name(),
                        answer.value,
                        answer.used,
                        shares.join(" "),
                        load(),
                    );
                    answers.push((contender, question, answer));
                }
            }
        }
        Ok(())
    };
    let end = measured();
    if let Some((median, least, most)) = table::spread(&quiet) {
        println!("the light tenant alone: p99 {median:.1} ms ({least:.1} to {most:.1})");
    }
    table::print(&contenders, &questions, &answers);
    println!("load after: {}", load());
    end
}
