//! The IO priority of a request.

use std::fmt;
use std::str::FromStr;

/// The 16-bit IO priority of Linux: class in bits 13 to 15, hint in bits 3 to 12, level in bits 0
/// to 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority(pub u16);

impl Priority {
    /// Headgate's fine priority as a hint: 256 more than it, under the real-time class, which takes
    /// nothing off it.
    fn fine(priority: u16) -> Priority {
        Priority(1 << 13 | (256 + priority) << 3 | 4)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl FromStr for Priority {
    type Err = String;

    /// `none`, `rt/0` to `rt/7`, `be/0` to `be/7`, `idle`, `fine/1` to `fine/254`, or the raw
    /// number, `0x2003` or `8195`.
    fn from_str(text: &str) -> Result<Priority, String> {
        let level = |class: u16, level: &str| match level.parse::<u16>() {
            Ok(level @ 0..=7) => Some(Priority(class << 13 | level)),
            _ => None,
        };
        let found = match text {
            "none" => Some(Priority(0)),
            "idle" => Some(Priority(3 << 13)),
            _ => match (text.split_once('/'), text.strip_prefix("0x")) {
                (Some(("rt", l)), _) => level(1, l),
                (Some(("be", l)), _) => level(2, l),
                (Some(("fine", p)), _) => {
                    p.parse().ok().filter(|p| (1..=254).contains(p)).map(Priority::fine)
                }
                (None, Some(hex)) => u16::from_str_radix(hex, 16).ok().map(Priority),
                (None, None) => text.parse().ok().map(Priority),
                _ => None,
            },
        };
        found.ok_or_else(|| {
            format!("'{text}' is no IO priority: none, rt/0..7, be/0..7, idle, fine/1..254 or 0x0..0xffff was expected")
        })
    }
}
