//! The file in which a snapshot's knowledge of its base is kept: a line of JSON, and then a bit for
//! each block of 64 KiB, and a check sum.

use crate::records::write_atomically;
use crate::snapshots::{Known, Snapshot};
use headgate_mirror::changes::ChangedBlocks;
use headgate_model::Name;
use headgate_units::Bytes;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Another one is of another version.
const FORMAT: &str = "headgate-changes-1";

/// A file that is longer is of no disk.
const LENGTH_MAX: u64 = 1 << 30;

pub(super) fn name_of(snapshot: &Name) -> String {
    format!("{snapshot}.changes")
}

/// Either the old content or the new one survives a crash.
pub(super) fn write(dir: &File, known: &Known) -> io::Result<()> {
    let bits = known.blocks.to_bytes();
    let head = json!({
        "format": FORMAT,
        "snapshot": known.of.name, "at": known.of.at,
        "base": known.base.name, "base_at": known.base.at,
        "size": known.blocks.size().0,
    });
    let mut text = [head.to_string().as_bytes(), b"\n", &bits].concat();
    text.extend(crc32fast::hash(&text).to_le_bytes());
    write_atomically(dir, &name_of(&known.of.name), &text)
}

/// What a file holds, or why that cannot be used.
pub(super) fn read(path: &Path) -> Result<Known, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(LENGTH_MAX).read_to_end(&mut text).map_err(|e| e.to_string())?;
    let known = parse(&text)?;
    let is_named_so = path.file_name().is_some_and(|name| *name == *name_of(&known.of.name));
    is_named_so.then_some(known).ok_or_else(|| "it is another snapshot's".to_owned())
}

fn parse(text: &[u8]) -> Result<Known, String> {
    let (text, sum) = text.split_last_chunk::<4>().ok_or("it is too short")?;
    if u32::from_le_bytes(*sum) != crc32fast::hash(text) {
        return Err("it is damaged: the check sum is another one".into());
    }
    let end =
        text.iter().position(|byte| *byte == b'\n').ok_or("it has no end of its first line")?;
    let (head, bits) = (&text[..end], &text[end + 1..]);
    let head: Value = serde_json::from_slice(head).map_err(|e| e.to_string())?;
    let number = |key: &str| head[key].as_u64().ok_or_else(|| format!("it has no '{key}'"));
    let name = |key: &str| -> Result<Name, String> {
        let text = head[key].as_str().ok_or_else(|| format!("it has no '{key}'"))?;
        text.parse().map_err(|e| format!("'{key}': {e}"))
    };
    if head["format"] != FORMAT {
        return Err(format!("its format is not {FORMAT}"));
    }
    let size = Bytes(number("size")?);
    let blocks =
        ChangedBlocks::from_bytes(size, bits).ok_or("its bits are not those of the disk")?;
    Ok(Known {
        of: Snapshot { name: name("snapshot")?, at: number("at")? },
        base: Snapshot { name: name("base")?, at: number("base_at")? },
        blocks: Arc::new(blocks),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Any byte that is another one, and any end that is missing.
        for at in 0..good.len() {
            for wrong in [&good[..at], &[&good[..at], &[good[at] ^ 4], &good[at + 1..]].concat()] {
                assert!(parse(wrong).is_err(), "byte {at}");
            }
        }
        std::fs::rename(&path, dir.path().join("db-wed.changes")).unwrap();
        assert!(read(&dir.path().join("db-wed.changes")).is_err());
    }
}
