//! Disks whose content is not whole.

use super::migrate::span;
use headgate_api::copies::{FilledBy, Filling};
use headgate_api::types::Disk;
use headgate_model::INCOMPLETE;
use headgate_units::Bytes;

/// Whether an import has not finished a disk, or never will.
pub(super) fn is_incomplete(disk: &Disk) -> bool {
    disk.vm.as_ref().is_some_and(|vm| vm.as_str() == INCOMPLETE)
}

/// The state of a disk that is being filled: `copying 35 %`.
pub(super) fn state(filling: &Filling) -> String {
    match filling.by {
        FilledBy::Copy | FilledBy::Import => format!("copying {} %", percent(filling)),
        FilledBy::Nobody => "incomplete".into(),
    }
}

/// How far it is.
pub(super) fn words(filling: &Filling) -> String {
    let from = match (filling.by, &filling.source) {
        (FilledBy::Copy, Some(source)) => format!("a copy of disk '{source}'"),
        (FilledBy::Import, Some(source)) => format!("an import of {source}"),
        (FilledBy::Nobody, Some(source)) => {
            format!("an import of {source}, whose command says nothing any more")
        }
        (_, None) => "an import, whose command says nothing".into(),
    };
    let mut text = format!("{from}: {} of {}", filling.copied, filling.size);
    if let Some(rate) = filling.rate {
        text.push_str(&format!(", {}/s", Bytes(rate)));
    }
    if let Some(left) = filling.seconds_left {
        text.push_str(&format!(", {} left", span(left)));
    }
    text
}

fn percent(filling: &Filling) -> u64 {
    filling.copied.0.saturating_mul(100) / filling.size.0.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_lacks_is_told_with_where_it_comes_from() {
        let half = Filling {
            by: FilledBy::Copy,
            source: Some("db0".into()),
            copied: Bytes::from_gib(35),
            size: Bytes::from_gib(100),
            rate: Some(10 << 20),
            seconds_left: Some(922),
        };
        assert_eq!(state(&half), "copying 35 %");
        let text = words(&half);
        assert_eq!(text, "a copy of disk 'db0': 35 GiB of 100 GiB, 10 MiB/s, 16 min left");
        let import = Filling { by: FilledBy::Import, source: Some("a.raw".into()), ..half.clone() };
        assert_eq!((state(&import), &words(&import)[..18]), (state(&half), "an import of a.raw"));
        let (rate, seconds_left) = (None, None);
        let left = Filling { by: FilledBy::Nobody, source: None, rate, seconds_left, ..half };
        assert_eq!(state(&left), "incomplete");
        assert_eq!(words(&left), "an import, whose command says nothing: 35 GiB of 100 GiB");
    }
}
