//! Errors of commands, and their exit status.

use crate::top::TopError;
use headgate_api::client::ClientError;
use headgate_api::types::ErrorBody;
use headgate_control::StateDirError;
use headgate_daemon::serve::DaemonError;
use headgate_daemon::serve::signals::EndSignal;
use headgate_trace::TraceError;
use hyper::StatusCode;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use thiserror::Error;

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    /// The daemon refused the request or cannot be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// There is no default state directory.
    #[error("no state directory is given and neither XDG_STATE_HOME nor HOME is set")]
    NoStateDir,
    /// An offline pool cannot be read or written.
    #[error(transparent)]
    Recorded(#[from] crate::offline::RecordedError),
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The live view ended.
    #[error(transparent)]
    Top(#[from] TopError),
    /// The daemon cannot serve.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The catalog cannot be mended.
    #[error(transparent)]
    Mend(#[from] headgate_control::mend::MendError),
    /// What was looked at is not as it should be; the report has it.
    #[error("{0}")]
    Found(String),
    /// A document says something that cannot be.
    #[error("{error}")]
    Document {
        /// Where, and what is wrong.
        error: String,
        /// What was expected.
        expected: String,
    },
    /// What a dry run has found would be refused; the difference is printed.
    #[error("{}", .0.error)]
    WouldBeRefused(Box<ErrorBody>),
    /// Documents are applied, and disks are not made or not removed.
    #[error("{failed} of {all} disks are not made or removed; all else is as the documents say")]
    Unfinished {
        /// How many.
        failed: usize,
        /// Of how many.
        all: usize,
    },
    /// The operator was asked and did not say yes.
    #[error("nothing is changed")]
    Declined,
    /// The load cannot run.
    #[error(transparent)]
    Load(#[from] headgate_load::LoadError),
    /// The load ran; its report lists failed requests or wrong data.
    #[error("requests failed or data was wrong: see the report")]
    Unclean(u8),
    /// A file cannot be read or written.
    #[error("cannot {doing} {}: {source}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A trace cannot be read.
    #[error("{}: {error}", file.display())]
    Trace {
        /// Which.
        file: PathBuf,
        /// Why.
        error: TraceError,
    },
    /// A scenario file is wrong.
    #[error(transparent)]
    Scenario(#[from] headgate_sim::ScenarioError),
    /// The simulation ran, and some expectations do not hold.
    #[error("{failed} of {all} expectations do not hold")]
    Expectations {
        /// How many.
        failed: usize,
        /// Of how many.
        all: usize,
    },
    /// Wrong policies were tried, and some checks notice none.
    #[error(
        "{unbroken} of {all} checks notice no wrong policy and are not in experiments/unbroken.txt"
    )]
    Unbroken {
        /// How many.
        unbroken: usize,
        /// Of how many.
        all: usize,
    },
    /// Parameters were varied, and files do not say what claims depend on them.
    #[error("files do not say what came out:\n{0}")]
    Mismarked(String),
    /// A signal ended the command before it printed or wrote anything.
    #[error("interrupted: nothing is printed or written")]
    Interrupted(EndSignal),
    /// A signal ended a series of experiments; those that had ended are printed and written.
    #[error("interrupted: {done} of {all} experiments are done, and kept")]
    Cut {
        /// Which signal.
        signal: EndSignal,
        /// How many had ended.
        done: usize,
        /// Of how many.
        all: usize,
        /// The command that runs the others.
        rest: String,
    },
    /// The content of a disk is not copied.
    #[error("{what}: {error}{after}")]
    Transfer {
        /// What was to be done.
        what: String,
        /// Why it is not.
        error: Box<CliError>,
        /// What became of what there was of it, behind a semicolon.
        after: String,
        /// What to do about that.
        hint: Option<String>,
    },
    /// An image cannot be read or written, or an NBD server fails.
    #[error(transparent)]
    Image(#[from] headgate_images::ImageError),
    /// An authority cannot be made or used.
    #[error(transparent)]
    Authority(#[from] headgate_tls::AuthorityError),
    /// The certificates cannot be used.
    #[error("the directory of --tls-dir cannot be used: {0}")]
    Certificates(#[from] headgate_tls::CredentialsError),
    /// Nothing can be revoked.
    #[error("the authority issued no certificate with the name {0}")]
    NoCertificate(String),
    /// A signal ended the copy of a disk's content.
    #[error("interrupted")]
    CopyInterrupted(EndSignal),
    /// An operation ended early.
    #[error("{0}")]
    Stopped(String),
    /// Standard output failed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

impl CliError {
    pub(super) fn body(&self) -> ErrorBody {
        match self {
            CliError::Client(e) | CliError::Top(TopError::Client(e)) => e.body(),
            CliError::Daemon(e) => {
                ErrorBody { error: e.to_string(), expected: None, hint: e.hint() }
            }
            CliError::Mend(e) => ErrorBody { error: e.to_string(), expected: None, hint: e.hint() },
            CliError::Authority(e) => {
                ErrorBody { error: e.to_string(), expected: None, hint: e.hint().map(Into::into) }
            }
            CliError::Certificates(e) => ErrorBody {
                error: self.to_string(),
                expected: None,
                hint: e.hint().map(Into::into),
            },
            CliError::Document { expected, .. } => {
                ErrorBody { error: self.to_string(), expected: Some(expected.clone()), hint: None }
            }
            CliError::WouldBeRefused(body) => ErrorBody::clone(body),
            CliError::Unfinished { .. } => ErrorBody {
                error: self.to_string(),
                expected: None,
                hint: Some("apply the documents once more when the cause is gone".into()),
            },
            CliError::NoStateDir => ErrorBody {
                error: self.to_string(),
                expected: None,
                hint: Some("give --state-dir or HEADGATE_STATE_DIR".into()),
            },
            CliError::Transfer { error, hint, .. } => {
                let ErrorBody { expected, hint: why, .. } = error.body();
                ErrorBody { error: self.to_string(), expected, hint: hint.clone().or(why) }
            }
            CliError::Image(e) => {
                ErrorBody { error: e.to_string(), expected: None, hint: e.hint() }
            }
            CliError::Cut { rest, .. } => ErrorBody {
                error: self.to_string(),
                expected: None,
                hint: Some(format!("'{rest}' runs the others")),
            },
            CliError::Trace { error, .. } => {
                ErrorBody { error: self.to_string(), expected: None, hint: Some(error.hint()) }
            }
            _ => ErrorBody { error: self.to_string(), expected: None, hint: None },
        }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Usage(_)
            | CliError::Document { .. }
            | CliError::Scenario(_)
            | CliError::Client(ClientError::Way { .. }) => ExitCode::from(2),
            // The daemon rejected a value of the command line: wrong usage.
            CliError::Client(ClientError::Refused {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                ..
            }) => ExitCode::from(2),
            CliError::Load(e) => ExitCode::from(e.exit_code()),
            CliError::Unclean(code) => ExitCode::from(*code),
            CliError::Interrupted(signal)
            | CliError::CopyInterrupted(signal)
            | CliError::Cut { signal, .. } => ExitCode::from(signal.exit_code()),
            CliError::Transfer { error, .. } => error.exit_code(),
            _ => ExitCode::from(1),
        }
    }
}
