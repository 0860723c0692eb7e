//! Why etcd did not do what it was asked for.

use super::endpoint::Endpoint;
use super::login::LoginError;
use headgate_tls::CredentialsError;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// gRPC's number for "the request makes no sense".
const INVALID_ARGUMENT: i64 = 3;

/// gRPC's number for "no such lease" and the like.
const NOT_FOUND: i64 = 5;

/// gRPC's number for "you may not".
const PERMISSION_DENIED: i64 = 7;

/// gRPC's number for "not in this state".
const FAILED_PRECONDITION: i64 = 9;

/// gRPC's number for "try another server".
const UNAVAILABLE: i64 = 14;

/// gRPC's number for "it is not known who you are".
const UNAUTHENTICATED: i64 = 16;

/// Why etcd did not do what it was asked for.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// None of the servers answered in time.
    #[error(
        "no etcd server answers within {timeout:?}; the last one tried, {endpoint}, said: {reason}"
    )]
    Unreachable {
        /// The server that was tried last.
        endpoint: Endpoint,
        /// How long was waited.
        timeout: Duration,
        /// What went wrong there.
        reason: String,
    },
    /// A server answered with a refusal.
    #[error("etcd at {endpoint} refuses: {message}")]
    Refused {
        /// The server.
        endpoint: Endpoint,
        /// gRPC's status code.
        code: i64,
        /// Its reason.
        message: String,
    },
    /// A server answered with something else than etcd's gateway would.
    #[error("what listens at {endpoint} does not answer as etcd 3.4 or later does: {reason}")]
    NotEtcd {
        /// The server.
        endpoint: Endpoint,
        /// What was wrong.
        reason: String,
    },
    /// There is no TLS with a server: one side does not believe the other, or the server speaks
    /// something else.
    #[error("no TLS with etcd at {endpoint}: {reason}")]
    Tls {
        /// The server.
        endpoint: Endpoint,
        /// What was wrong, and what was expected.
        reason: String,
    },
    /// The certificates cannot be used any more.
    #[error("the directory of --etcd-tls cannot be used: {0}")]
    Certificates(#[from] CredentialsError),
    /// A server does not take the user or the password.
    #[error(
        "etcd at {endpoint} does not let user '{user}' in: {message}; expected a user of etcd's \
         and its password in the file of --etcd-credentials"
    )]
    Login {
        /// The server.
        endpoint: Endpoint,
        /// The user.
        user: String,
        /// Its reason.
        message: String,
    },
    /// A server wants a user and a password, and none was given.
    #[error(
        "etcd at {endpoint} wants to know who this is ({message}); give --etcd-credentials FILE \
         (or the key 'etcd-credentials') with USER:PASSWORD in the file"
    )]
    NoLogin {
        /// The server.
        endpoint: Endpoint,
        /// Its reason.
        message: String,
    },
    /// There is no user and password any more.
    #[error("the file of --etcd-credentials cannot be used: {0}")]
    LoginFile(#[from] LoginError),
    /// Etcd failed a moment ago, and was not asked again.
    #[error("{0} (this was a moment ago)")]
    JustNow(String),
    /// There was no server to ask.
    #[error("no etcd server was named")]
    NoEndpoint,
    /// A key cannot have this name.
    #[error("'{0}' cannot be part of a key; use 1 to 255 bytes without '/'")]
    Key(String),
    /// The system gave no event loop.
    #[error("cannot start an event loop: {0}")]
    Runtime(io::Error),
}

impl EtcdError {
    /// Whether the lease that was named is no more.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, EtcdError::Refused { code: NOT_FOUND, .. })
    }

    /// Whether another server may answer.
    pub(super) fn is_unavailable(&self) -> bool {
        matches!(self, EtcdError::Refused { code: UNAVAILABLE, .. })
    }

    /// Whether the server knows nobody yet: it has no users that have to say who they are.
    pub(super) fn asks_nobody(&self) -> bool {
        matches!(self, EtcdError::Refused { code: FAILED_PRECONDITION, message, .. }
            if message.contains("authentication is not enabled"))
    }

    /// Whether the server wants to know again who this is, and has done nothing before it does.
    pub(super) fn wants_login(&self) -> bool {
        let EtcdError::Refused { code, message, .. } = self else { return false };
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
        match *code {
            UNAUTHENTICATED => true,
            INVALID_ARGUMENT => says(&["user name is empty", "revision of auth store is old"]),
            _ => says(&["invalid auth token"]),
        }
    }

    /// What the user can do, where the error does not say it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            EtcdError::Unreachable { .. } => Some("make sure that etcd is reachable"),
            EtcdError::Certificates(e) => e.hint(),
            EtcdError::Refused { code: PERMISSION_DENIED, .. } => {
                Some("give the user a role that may read and write all that begins with /headgate/")
            }
            _ => None,
        }
    }
}
