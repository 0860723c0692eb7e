//! The driver for stable Rust: kept inputs, seeds and mutations of both, with a fixed order for a
//! given seed.
//!
//! A run is a process of its own, for an input may end it: the input under way is in a file before
//! the target sees it. A panic of any thread counts, also where somebody catches it.

use crate::{Target, corpus, mutate};
use anyhow::{Context, Result, bail};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often it is looked whether an input takes too long.
const LOOK: Duration = Duration::from_millis(200);
/// An input that takes more of them hangs, after two minutes or so. The clock would say so of every
/// input where the machine does something else: then the looks come late, too.
const HANG: u32 = 600;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many mutations.
    Mutations(u64),
    /// After so much time, the corpus included.
    Time(Duration),
}

/// What a run came to, also one that ended early.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Kept inputs and seeds.
    pub kept: u64,
    /// Mutations of them.
    pub mutations: u64,
}

impl Count {
    /// All inputs that the target was run with.
    pub fn executions(&self) -> u64 {
        self.kept + self.mutations
    }
}

/// Feeds a target with what is kept and with mutations, and counts them, until it is time or `stop`
/// is set. An input that breaks a promise is written to a file in `found`, which the error names.
///
/// # Errors
/// When a promise is broken, or a file cannot be read or written.
pub fn drive(
    target: &Target,
    until: Until,
    seed: u64,
    found: &Path,
    stop: &AtomicBool,
    count: &mut Count,
) -> Result<()> {
    let mut inputs = corpus::load(target.name)?;
    let kept = inputs.len();
    inputs.extend(target.seeds());
    // Something to begin with.
    inputs.push(Vec::new());
    let mut feeder = Feeder::new(target, found)?;
    let started = Instant::now();
    for (at, input) in inputs.iter().enumerate() {
        if stop.load(Relaxed) {
            return Ok(());
        }
        count.kept += 1;
        let what = if at < kept { "kept input" } else { "seed" };
        feeder.feed(input, || format!("{what} {at}"))?;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    loop {
        let ended = match until {
            Until::Mutations(most) => count.mutations >= most,
            Until::Time(most) => started.elapsed() >= most,
        };
        if ended || stop.load(Relaxed) {
            return Ok(());
        }
        let input = mutate::mutate(&mut random, &inputs, target.words, target.longest);
        let number = count.mutations;
        count.mutations += 1;
        feeder.feed(&input, || format!("mutation {number} of seed {seed}"))?;
    }
}

/// Feeds one input.
///
/// # Errors
/// When it breaks a promise.
pub fn replay(target: &Target, input: &[u8], found: &Path) -> Result<()> {
    Feeder::new(target, found)?.feed(input, || "the input".to_owned())
}

struct Feeder<'t> {
    target: &'t Target,
    /// The input under way.
    current: File,
    current_path: PathBuf,
    found: PathBuf,
    /// Inputs so far.
    fed: Arc<AtomicU64>,
}

impl<'t> Feeder<'t> {
    fn new(target: &'t Target, found: &Path) -> Result<Feeder<'t>> {
        fs::create_dir_all(found).with_context(|| format!("{}", found.display()))?;
        let current_path = found.join(format!("{}.current", target.name));
        let current =
            File::create(&current_path).with_context(|| format!("{}", current_path.display()))?;
        let fed = Arc::new(AtomicU64::new(0));
        count_panics();
        watch(target.name, current_path.clone(), Arc::downgrade(&fed))?;
        Ok(Feeder { target, current, current_path, found: found.to_owned(), fed })
    }

    fn feed(&mut self, input: &[u8], what: impl FnOnce() -> String) -> Result<()> {
        self.current.set_len(0)?;
        self.current.write_all_at(input, 0)?;
        self.fed.fetch_add(1, Relaxed);
        let before = PANICS.load(Relaxed);
        let unwound = catch_unwind(AssertUnwindSafe(|| self.target.run(input))).is_err();
        if !unwound && PANICS.load(Relaxed) == before {
            return Ok(());
        }
        let path = self.found.join(format!("{}-{}", self.target.name, corpus::file_name(input)));
        fs::write(&path, input).with_context(|| format!("{}", path.display()))?;
        let whose = if unwound { "" } else { " in another thread" };
        bail!(
            "{}: {} made it panic{whose}. The input is in {}; `headgate-fuzz replay {} {}` feeds it \
             again",
            self.target.name,
            what(),
            path.display(),
            self.target.name,
            path.display()
        )
    }
}

impl Drop for Feeder<'_> {
    fn drop(&mut self) {
        // Nothing is under way any more.
        let _ = fs::remove_file(&self.current_path);
    }
}

fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Relaxed);
            usual(info);
        }));
    });
}

/// Ends the process when one input takes too long: nobody can end a thread.
fn watch(name: &'static str, current: PathBuf, fed: std::sync::Weak<AtomicU64>) -> Result<()> {
    let look = move || {
        let (mut last, mut looks) = (u64::MAX, 0);
        while let Some(fed) = fed.upgrade() {
            let now = fed.load(Relaxed);
            looks = if now == last { looks + 1 } else { 0 };
            last = now;
            if now > 0 && looks > HANG {
                let path = current.display();
                eprintln!("error: {name}: an input takes longer than {HANG} looks: {path}");
                std::process::abort();
            }
            drop(fed);
            std::thread::sleep(LOOK);
        }
    };
    std::thread::Builder::new().name("fuzz-watch".into()).spawn(look)?;
    Ok(())
}
