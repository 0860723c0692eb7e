//! The file in which an orderly end keeps what is noted of a disk.

use super::sealed::{check_name, read as read_file, seal, unseal};
use crate::records::write_atomically;
use crate::snapshots::{Before, Kept};
use headgate_mirror::stamp::Stamp;
use headgate_model::Name;
use headgate_units::{Bytes, Nanos};
use serde_json::json;
use std::fs::File;
use std::io;
use std::path::Path;

/// Another one is of another version.
const FORMAT: &str = "headgate-tracked-1";

/// What the names of these files end with.
const EXTENSION: &str = "tracked";

pub(super) fn name_of(disk: &Name) -> String {
    format!("{disk}.{EXTENSION}")
}

/// Whether it is one by its name.
pub(super) fn is_one(path: &Path) -> bool {
    path.extension().is_some_and(|found| found == EXTENSION)
}

/// Either the old content or the new one survives a crash.
pub(super) fn write(dir: &File, kept: &Kept) -> io::Result<()> {
    let Before { stamp, holder } = &kept.before;
    let head = json!({
        "format": FORMAT,
        "disk": kept.disk, "size": kept.blocks.size().0,
        "base": kept.base.name, "base_at": kept.base.at,
        "boot": kept.boot, "holder": holder,
        "device": stamp.device, "inode": stamp.inode, "length": stamp.length.0,
        "modified": stamp.modified.0, "changed": stamp.changed.0,
    });
    write_atomically(dir, &name_of(&kept.disk), &seal(&head, &kept.blocks))
}

/// What a file holds, or why that cannot be used.
pub(super) fn read(path: &Path) -> Result<Kept, String> {
    let kept = parse(&read_file(path)?)?;
    check_name(path, &name_of(&kept.disk))?;
    Ok(kept)
}

fn parse(text: &[u8]) -> Result<Kept, String> {
    let (head, blocks) = unseal(FORMAT, text)?;
    let stamp = Stamp {
        device: head.number("device")?,
        inode: head.number("inode")?,
        length: Bytes(head.number("length")?),
        modified: Nanos(head.number("modified")?),
        changed: Nanos(head.number("changed")?),
    };
    let boot = head.text("boot")?.to_owned();
    let base = head.snapshot("base", "base_at")?;
    let before = Before { stamp, holder: head.text_if_any("holder")?.map(str::to_owned) };
    Ok(Kept { disk: head.name("disk")?, base, boot, before, blocks })
}

#[cfg(test)]
mod tests {
    use super::super::sealed::spoilt;
    use super::*;
    use crate::snapshots::Snapshot;

    fn kept() -> Kept {
        let changes = headgate_mirror::changes::Changes::new(Bytes::from_mib(100));
        changes.mark(3 << 20, 4096);
        Kept {
            disk: "db".parse().unwrap(),
            base: Snapshot { name: "db-mon".parse().unwrap(), at: 100 },
            boot: "b".into(),
            before: Before {
                stamp: Stamp {
                    device: u64::MAX,
                    inode: 1 << 63,
                    length: Bytes::from_mib(100),
                    modified: Nanos(1_790_000_000_123_456_789),
                    changed: Nanos(1_790_000_000_123_456_790),
                },
                holder: Some("0123abcd".into()),
            },
            blocks: changes.since_base(Bytes::from_mib(100)),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        write(&File::open(dir.path()).unwrap(), &kept()).unwrap();
        let path = dir.path().join("db.tracked");
        assert_eq!(read(&path), Ok(kept()));
        let good = std::fs::read(&path).unwrap();
        for (number, wrong) in spoilt(&good).enumerate() {
            assert!(parse(&wrong).is_err(), "{number}");
        }
        std::fs::rename(&path, dir.path().join("other.tracked")).unwrap();
        assert!(read(&dir.path().join("other.tracked")).is_err());
    }

    #[test]
    fn a_file_without_a_part_of_it_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        write(&File::open(dir.path()).unwrap(), &kept()).unwrap();
        let good = std::fs::read(dir.path().join("db.tracked")).unwrap();
        let end = good.iter().position(|byte| *byte == b'\n').unwrap();
        let head: serde_json::Value = serde_json::from_slice(&good[..end]).unwrap();
        assert_eq!(parse(&seal(&head, &kept().blocks)), Ok(kept()));
        let mut without_lease = kept();
        without_lease.before.holder = None;
        write(&File::open(dir.path()).unwrap(), &without_lease).unwrap();
        assert_eq!(read(&dir.path().join("db.tracked")), Ok(without_lease));
        for key in head.as_object().unwrap().keys() {
            let mut without = head.clone();
            without.as_object_mut().unwrap().remove(key);
            assert!(parse(&seal(&without, &kept().blocks)).is_err(), "{key}");
        }
    }
}
