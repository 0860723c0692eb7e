//! The form of the files in which changes are kept: a line of JSON, and then a bit for each block
//! of 64 KiB, and a check sum.

use crate::snapshots::Snapshot;
use headgate_mirror::changes::ChangedBlocks;
use headgate_model::Name;
use headgate_units::Bytes;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A file that is longer is of no disk.
const LENGTH_MAX: u64 = 1 << 30;

/// The first line of a file.
pub(super) struct Head(Value);

impl Head {
    pub(super) fn number(&self, key: &str) -> Result<u64, String> {
        self.0[key].as_u64().ok_or_else(|| format!("it has no '{key}'"))
    }

    /// A text, or that there is none: not to say either is another thing.
    pub(super) fn text_if_any(&self, key: &str) -> Result<Option<&str>, String> {
        match self.0.get(key) {
            Some(Value::Null) => Ok(None),
            _ => self.text(key).map(Some),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<&str, String> {
        self.0[key].as_str().ok_or_else(|| format!("it has no '{key}'"))
    }

    pub(super) fn name(&self, key: &str) -> Result<Name, String> {
        self.text(key)?.parse().map_err(|e| format!("'{key}': {e}"))
    }

    /// A snapshot, by where its name and its instant are.
    pub(super) fn snapshot(&self, name: &str, at: &str) -> Result<Snapshot, String> {
        Ok(Snapshot { name: self.name(name)?, at: self.number(at)? })
    }
}

/// The content of a file. The first line says its `format`, and as `size` that of the disk.
pub(super) fn seal(head: &Value, blocks: &ChangedBlocks) -> Vec<u8> {
    let mut text = [head.to_string().as_bytes(), b"\n", &blocks.to_bytes()].concat();
    text.extend(crc32fast::hash(&text).to_le_bytes());
    text
}

/// What was sealed in this format, or why it cannot be used.
pub(super) fn unseal(format: &str, text: &[u8]) -> Result<(Head, ChangedBlocks), String> {
    let (text, sum) = text.split_last_chunk::<4>().ok_or("it is too short")?;
    if u32::from_le_bytes(*sum) != crc32fast::hash(text) {
        return Err("it is damaged: the check sum is another one".into());
    }
    let end =
        text.iter().position(|byte| *byte == b'\n').ok_or("it has no end of its first line")?;
    let (head, bits) = (&text[..end], &text[end + 1..]);
    let head = Head(serde_json::from_slice(head).map_err(|e| e.to_string())?);
    if head.text("format") != Ok(format) {
        return Err(format!("its format is not {format}"));
    }
    let size = Bytes(head.number("size")?);
    let blocks = ChangedBlocks::from_bytes(size, bits);
    Ok((head, blocks.ok_or("its bits are not those of the disk")?))
}

/// What is in a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(LENGTH_MAX).read_to_end(&mut text).map_err(|e| e.to_string())?;
    Ok(text)
}

/// That a file has the name that it is written under.
pub(super) fn check_name(path: &Path, name: &str) -> Result<(), String> {
    let is_named_so = path.file_name().is_some_and(|found| *found == *name);
    is_named_so.then_some(()).ok_or_else(|| format!("it is {name} by what it holds"))
}

/// Any byte of it another one, and any end of it missing.
#[cfg(test)]
pub(super) fn spoilt(good: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let cut = |at: usize| good[..at].to_vec();
    let flipped = |at: usize| [&good[..at], &[good[at] ^ 4], &good[at + 1..]].concat();
    (0..good.len()).flat_map(move |at| [cut(at), flipped(at)])
}
