//! Kept inputs: one text file for each target, one input per line in Base64, lines in order. A
//! thousand small files would be as many entries of the repository.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Where the kept inputs of a target are.
pub fn path(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora").join(format!("{target}.txt"))
}

/// The kept inputs of a target; none if it has no file.
///
/// # Errors
/// When the file cannot be read, or a line is no Base64.
pub fn load(target: &str) -> Result<Vec<Vec<u8>>> {
    let path = path(target);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let line = |(number, line): (usize, &str)| {
        BASE64_STANDARD
            .decode(line)
            .with_context(|| format!("{}:{}: expected Base64", path.display(), number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

/// Keeps these inputs, and no others.
///
/// # Errors
/// When the file cannot be written.
pub fn store(target: &str, inputs: &[Vec<u8>]) -> Result<()> {
    let path = path(target);
    let lines: BTreeSet<(usize, String)> =
        inputs.iter().map(|input| (input.len(), BASE64_STANDARD.encode(input))).collect();
    let text: String = lines.into_iter().map(|(_, line)| line + "\n").collect();
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("{}", dir.display()))?;
    }
    fs::write(&path, text).with_context(|| format!("{}", path.display()))
}

/// Writes each input to a file of its own, as libFuzzer wants them.
///
/// # Errors
/// When a file cannot be written.
pub fn unpack(inputs: &[Vec<u8>], dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("{}", dir.display()))?;
    for input in inputs {
        let path = dir.join(file_name(input));
        fs::write(&path, input).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

/// Reads all files of a directory.
///
/// # Errors
/// When one cannot be read.
pub fn pack(dir: &Path) -> Result<Vec<Vec<u8>>> {
    let entries = fs::read_dir(dir).with_context(|| format!("{}", dir.display()))?;
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry?.path();
        fs::read(&path).with_context(|| format!("{}", path.display()))
    };
    entries.map(read).collect()
}

/// A name that follows from the content.
pub fn file_name(input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_back_as_it_was_unpacked() {
        let inputs = vec![vec![], vec![0], vec![255; 300], b"[]".to_vec()];
        let dir = tempfile::tempdir().unwrap();
        unpack(&inputs, dir.path()).unwrap();
        let mut back = pack(dir.path()).unwrap();
        back.sort_by_key(Vec::len);
        assert_eq!(back, [vec![], vec![0], b"[]".to_vec(), vec![255; 300]]);
    }
}
