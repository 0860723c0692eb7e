//! Tokens of the API on a loopback address: a file that says which token is whose, and what its
//! owner may.
//!
//! ```toml
//! [[token]]
//! name = "ci"
//! token = "..."         # 32 letters or more, such as of 'openssl rand -hex 32'
//! role = "viewer"       # or "operator" with machines = ["shop*"], or "admin"
//! ```

use headgate_tls::{ApiRights, ApiRole};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The shortest token.
const LETTERS_MIN: usize = 32;

/// Why a file of tokens cannot be used.
#[derive(Debug, Error)]
pub enum TokensError {
    /// It cannot be read.
    #[error("cannot read the tokens {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Others can read it.
    #[error("the tokens {} can be read by others (mode {mode:04o})", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It says what cannot be.
    #[error("the tokens {} are wrong: {error}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong. No token is in it.
        error: String,
    },
}

impl TokensError {
    /// What the user can do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            TokensError::Open { .. } => Some("make it 'chmod 600', and its tokens new ones"),
            TokensError::Read { .. } | TokensError::Wrong { .. } => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lines {
    #[serde(default)]
    token: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    token: String,
    role: ApiRole,
    #[serde(default)]
    machines: Vec<String>,
}

struct Token {
    name: String,
    secret: Vec<u8>,
    rights: ApiRights,
}

/// The tokens of a file.
pub(super) struct Tokens {
    path: PathBuf,
    stamp: Stamp,
    all: Vec<Token>,
}

/// What a file that was written anew has differently.
type Stamp = Option<(u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let meta = fs::metadata(path).ok()?;
    Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`TokensError`].
    pub(super) fn open(path: &Path) -> Result<Tokens, TokensError> {
        let stamp = stamp(path);
        let failed = |source| TokensError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokensError::Open { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let wrong = |error| TokensError::Wrong { path: path.to_owned(), error };
        Ok(Tokens { path: path.to_owned(), stamp, all: parse(&text).map_err(wrong)? })
    }

    /// Reads the file again if it has changed; `None`: it has not.
    pub(super) fn look(&self) -> Option<Result<Tokens, TokensError>> {
        (stamp(&self.path) != self.stamp).then(|| Tokens::open(&self.path))
    }

    /// Not tried again before the file changes once more.
    pub(super) fn keep(&mut self) {
        self.stamp = stamp(&self.path);
    }

    /// Whose token this is, and what they may. It takes as long for each that is as long.
    pub(super) fn find(&self, shown: &[u8]) -> Option<(String, ApiRights)> {
        let mut found = None;
        for token in &self.all {
            if is_same(&token.secret, shown) {
                found = Some((token.name.clone(), token.rights.clone()));
            }
        }
        found
    }
}

fn parse(text: &str) -> Result<Vec<Token>, String> {
    // The reader's own words show the line, with the token in it.
    let lines: Lines = toml::from_str(text).map_err(|e| {
        let line = e.span().map(|span| text[..span.start].lines().count().max(1));
        let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("{line}{}", e.message())
    })?;
    let mut all: Vec<Token> = Vec::new();
    for Line { name, token, role, machines } in lines.token {
        if token.len() < LETTERS_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "the token of '{name}': expected {LETTERS_MIN} letters or more, without spaces"
            ));
        }
        if all.iter().any(|other| other.name == name || other.secret == token.as_bytes()) {
            return Err(format!("the name or the token of '{name}' is there twice"));
        }
        let rights = ApiRights::of(role, &machines).map_err(|e| format!("'{name}': {e}"))?;
        all.push(Token { name, secret: token.into_bytes(), rights });
    }
    Ok(all)
}

/// Compares all of it, however early they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const TEXT: &str = r#"
        [[token]]
        name = "ci"
        token = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        role = "viewer"
        [[token]]
        name = "shop"
        token = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
        role = "operator"
        machines = ["shop*"]
    "#;

    #[test]
    fn a_token_is_whose_it_is_in_full() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("tokens");
        fs::write(&path, TEXT).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Tokens::open(&path), Err(TokensError::Open { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let tokens = Tokens::open(&path).unwrap();
        let find = |letter: &str, count| tokens.find(letter.repeat(count).as_bytes());
        assert_eq!(find("a", 32).unwrap().0, "ci");
        assert!(find("b", 32).unwrap().1.has_machine("shop1"));
        assert!(find("a", 31).is_none() && find("a", 33).is_none() && find("a", 0).is_none());
        assert!(tokens.look().is_none());
        fs::write(&path, TEXT.replace('a', "c")).unwrap();
        assert!(tokens.look().is_some());
    }

    #[test]
    fn what_is_wrong_is_told_without_the_token() {
        for (change, word) in [
            (("a\"\n", "\"\n"), "32 letters"),
            (("bbbb", " bbb"), "without spaces"),
            (("\"shop\"", "\"ci\""), "twice"),
            (("\"operator\"", "\"admin\""), "only an operator"),
            (("\"viewer\"", "\"root\""), "line 5"),
            (("role = \"viewer\"", ""), "role"),
        ] {
            let text = TEXT.replacen(change.0, change.1, 1);
            let error = parse(&text).err().unwrap();
            assert!(error.contains(word), "{error}");
            assert!(!error.contains("aaaa") && !error.contains("bbb"), "{error}");
        }
    }
}
