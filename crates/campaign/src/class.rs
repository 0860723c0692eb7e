//! Families of set-ups.

use anyhow::{Result, bail};
use std::fmt;
use std::str::FromStr;

/// A family of set-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Storage of constant rate, deep queues.
    Constant,
    /// Exponential service times.
    Exponential,
    /// Heavy-tailed service times.
    HeavyTail,
    /// Stalls of 0.1 to 2 s within each 1 to 5 s.
    Stall,
    /// Stalls of 2 to 5 s within each 10 to 20 s.
    LongStall,
    /// Pauses of 5 to 50 ms several times a second.
    Collection,
    /// The rate falls to a tenth and comes back.
    Swing,
    /// Sizes from 4 KiB to 1 MiB.
    Sizes,
    /// Sizes from 4 KiB to 64 MiB.
    LargeSizes,
    /// Closed loops of 1 to 256 requests.
    Depth,
    /// Disks fall idle and come back.
    OnOff,
    /// Policies change.
    LivePolicy,
    /// Reservations of 105 to 400 % of the rate.
    Shortage,
    /// Reservations of 97 to 100 % of the rate.
    Brim,
    /// Shares from 1 to 1,000,000.
    Weights,
    /// Reservations and limits of 1 to 5.
    Tiny,
    /// One to three clients that do what they can to the others.
    Hostile,
    /// One to three clients that leave and come back as new disks, 143 times a second.
    Registration,
    /// Reserved disks with random arrivals beside others that saturate.
    Latency,
    /// Limits of reads and of writes.
    Directions,
    /// Disks with latency targets beside others that saturate.
    LatencyTarget,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 21] = [
        Class::Constant,
        Class::Exponential,
        Class::HeavyTail,
        Class::Stall,
        Class::LongStall,
        Class::Collection,
        Class::Swing,
        Class::Sizes,
        Class::LargeSizes,
        Class::Depth,
        Class::OnOff,
        Class::LivePolicy,
        Class::Shortage,
        Class::Brim,
        Class::Weights,
        Class::Tiny,
        Class::Hostile,
        Class::Registration,
        Class::Latency,
        Class::Directions,
        Class::LatencyTarget,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Class::Constant => "constant",
            Class::Exponential => "exponential",
            Class::HeavyTail => "heavy-tail",
            Class::Stall => "stall",
            Class::LongStall => "long-stall",
            Class::Collection => "collection",
            Class::Swing => "swing",
            Class::Sizes => "sizes",
            Class::LargeSizes => "large-sizes",
            Class::Depth => "depth",
            Class::OnOff => "on-off",
            Class::LivePolicy => "live-policy",
            Class::Shortage => "shortage",
            Class::Brim => "brim",
            Class::Weights => "weights",
            Class::Tiny => "tiny",
            Class::Hostile => "hostile",
            Class::Registration => "registration",
            Class::Latency => "latency",
            Class::Directions => "directions",
            Class::LatencyTarget => "latency-target",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Class {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Class> {
        let Some(class) = Class::ALL.into_iter().find(|class| class.name() == text) else {
            let names: Vec<&str> = Class::ALL.iter().map(|class| class.name()).collect();
            bail!("'{text}' is not a class; write one of {}", names.join(", "));
        };
        Ok(class)
    }
}
