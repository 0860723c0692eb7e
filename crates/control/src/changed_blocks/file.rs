//! The file in which a snapshot's knowledge of its base is kept.

use super::sealed::{check_name, read as read_file, seal, unseal};
use crate::records::write_atomically;
use crate::snapshots::Known;
use headgate_model::Name;
use serde_json::json;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Another one is of another version.
const FORMAT: &str = "headgate-changes-1";

pub(super) fn name_of(snapshot: &Name) -> String {
    format!("{snapshot}.changes")
}

/// Either the old content or the new one survives a crash.
pub(super) fn write(dir: &File, known: &Known) -> io::Result<()> {
    let head = json!({
        "format": FORMAT,
        "snapshot": known.of.name, "at": known.of.at,
        "base": known.base.name, "base_at": known.base.at,
        "size": known.blocks.size().0,
    });
    write_atomically(dir, &name_of(&known.of.name), &seal(&head, &known.blocks))
}

/// What a file holds, or why that cannot be used.
pub(super) fn read(path: &Path) -> Result<Known, String> {
    let known = parse(&read_file(path)?)?;
    check_name(path, &name_of(&known.of.name))?;
    Ok(known)
}

fn parse(text: &[u8]) -> Result<Known, String> {
    let (head, blocks) = unseal(FORMAT, text)?;
    Ok(Known {
        of: head.snapshot("snapshot", "at")?,
        base: head.snapshot("base", "base_at")?,
        blocks: Arc::new(blocks),
    })
}

#[cfg(test)]
mod tests {
    use super::super::sealed::spoilt;
    use super::*;
    use crate::snapshots::Snapshot;
    use headgate_units::Bytes;

    fn known() -> Known {
        let changes = headgate_mirror::changes::Changes::new(Bytes::from_mib(100));
        changes.mark(3 << 20, 4096);
        let snapshot = |name: &str, at| Snapshot { name: name.parse().unwrap(), at };
        Known {
            of: snapshot("db-tue", 200),
            base: snapshot("db-mon", 100),
            blocks: Arc::new(changes.since_base(Bytes::from_mib(100))),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        write(&File::open(dir.path()).unwrap(), &known()).unwrap();
        let path = dir.path().join("db-tue.changes");
        assert_eq!(read(&path), Ok(known()));
        let good = std::fs::read(&path).unwrap();
        for (number, wrong) in spoilt(&good).enumerate() {
            assert!(parse(&wrong).is_err(), "{number}");
        }
        std::fs::rename(&path, dir.path().join("db-wed.changes")).unwrap();
        assert!(read(&dir.path().join("db-wed.changes")).is_err());
    }
}
