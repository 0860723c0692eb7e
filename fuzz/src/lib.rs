//! Fuzz targets: whatever comes from outside, as bytes that somebody made up.
//!
//! A [`Target`] is a function of its input. It panics where a promise is broken. The same targets
//! run in three ways (`fuzz/README.md` has the commands):
//!
//! | run by | inputs | where |
//! |---|---|---|
//! | `cargo test -p headgate-fuzz` | the kept corpus, and mutations of it from fixed seeds | everywhere |
//! | `headgate-fuzz run` | the same, for as long as you like, from other seeds | stable Rust |
//! | `fuzz/run` | led by coverage (libFuzzer), with the address sanitiser where Rust is nightly | for hours |

pub mod corpus;
pub mod drive;
pub mod hours;
pub mod ledger;
pub mod libfuzzer;
pub mod mutate;
mod targets;

use thiserror::Error;

/// One border, and what must hold at it.
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// What is fed with what.
    pub about: &'static str,
    /// No input is longer, in bytes.
    pub longest: usize,
    /// What inputs are often made of.
    pub words: &'static [&'static str],
    seeds: fn() -> Vec<Vec<u8>>,
    run: fn(&[u8]),
}

/// A name that no target has.
#[derive(Debug, Error)]
#[error("no target is called '{given}'; expected one of {known}")]
pub struct UnknownTarget {
    given: String,
    known: String,
}

impl Target {
    /// A target without seeds and words that is in no list.
    pub const fn new(name: &'static str, longest: usize, run: fn(&[u8])) -> Target {
        Target { name, about: "", longest, words: &[], seeds: Vec::new, run }
    }

    /// Feeds the target. What is longer than [`Target::longest`] is cut.
    ///
    /// # Panics
    /// Where a promise is broken. That is what this is for.
    pub fn run(&self, input: &[u8]) {
        (self.run)(&input[..input.len().min(self.longest)]);
    }

    /// Inputs that the target makes itself: what a good peer sends.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)()
    }
}

/// All targets.
pub fn all() -> &'static [Target] {
    targets::ALL
}

/// The target of this name.
///
/// # Errors
/// When there is none.
pub fn find(name: &str) -> Result<&'static Target, UnknownTarget> {
    all().iter().find(|target| target.name == name).ok_or_else(|| UnknownTarget {
        given: name.to_owned(),
        known: all().iter().map(|target| target.name).collect::<Vec<_>>().join(", "),
    })
}
