//! A user of etcd and its password, in a file.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The longest file that is read.
const FILE_MAX: u64 = 64 << 10;

/// A user's name and password. The password is shown to nobody but etcd.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A file gives no user and password.
#[derive(Debug, Error)]
pub enum LoginError {
    /// It cannot be read.
    #[error(
        "cannot read {}: {source}; expected a file with USER:PASSWORD in its first line",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds something else.
    #[error(
        "{} holds no user and password of etcd; expected USER:PASSWORD in its first line",
        .0.display()
    )]
    Malformed(PathBuf),
}

impl Login {
    /// Reads a file: its first line is `USER:PASSWORD`.
    pub(super) fn read(path: &Path) -> Result<Login, LoginError> {
        let failed = |source| LoginError::Read { path: path.into(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(FILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
        let malformed = || LoginError::Malformed(path.into());
        let text = std::str::from_utf8(&bytes).map_err(|_| malformed())?;
        match text.lines().next().and_then(|line| line.split_once(':')) {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                Ok(Login { user: user.to_owned(), password: password.to_owned() })
            }
            _ => Err(malformed()),
        }
    }
}

/// Whether users of this machine that have nothing to do with the file may read it.
pub(super) fn is_open_to_all(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.mode() & 0o007 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn read(content: &[u8]) -> Result<Login, LoginError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        Login::read(file.path())
    }

    #[test]
    fn the_first_line_is_user_and_password() {
        for text in ["hg:se:cret", "hg:se:cret\n", "hg:se:cret\r\n", "hg:se:cret\nmore"] {
            let login = read(text.as_bytes()).unwrap();
            assert_eq!((login.user.as_str(), login.password.as_str()), ("hg", "se:cret"));
        }
        // Blanks may be part of a password.
        assert_eq!(read(b"hg: a \n").unwrap().password, " a ");
    }

    #[test]
    fn a_malformed_file_is_named_and_not_quoted() {
        for content in [&b""[..], b"\nhg:pw", b"secretpassword", b":secret", b"hg:", b"hg:\xff"] {
            let error = read(content).unwrap_err().to_string();
            assert!(error.contains("expected USER:PASSWORD"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let error = Login::read(Path::new("/nonexistent/login")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/login") && error.contains("USER:PASSWORD"), "{error}");
    }

    #[test]
    fn the_password_is_not_printed() {
        let login = read(b"hg:secret").unwrap();
        let printed = format!("{login:?} {login:#?}");
        assert!(printed.contains("hg") && !printed.contains("secret"), "{printed}");
    }

    #[test]
    fn a_file_that_everybody_may_read_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, open) in [(0o600, false), (0o640, false), (0o644, true)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open_to_all(file.path()), open, "{mode:o}");
        }
    }
}
