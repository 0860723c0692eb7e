//! A client of the HTTP API, on the daemon's unix socket or over TCP.

use super::events::Event;
use super::remote::Remote;
use super::terms::DryRun;
use super::types::ErrorBody;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// Why the daemon did not do it, or could not be asked.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No daemon listens on the socket.
    #[error("no headgate daemon answers on {at}: {source}")]
    NoDaemon {
        /// The API's socket or address.
        at: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The daemon refused.
    #[error("{}", .body.error)]
    Refused {
        /// What it answered.
        status: StatusCode,
        /// And why.
        body: ErrorBody,
    },
    /// The connection broke.
    #[error("the daemon on {at} broke off: {error}")]
    Broken {
        /// The API's socket or address.
        at: String,
        /// What happened.
        error: String,
    },
    /// It cannot be asked in this way.
    #[error("{error}")]
    Way {
        /// What is wrong.
        error: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl ClientError {
    /// The error in the API's form.
    pub fn body(&self) -> ErrorBody {
        match self {
            ClientError::Refused { body, .. } => body.clone(),
            ClientError::NoDaemon { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                ErrorBody {
                    error: self.to_string(),
                    expected: Some("root, or a member of the group of 'serve --api-group'".into()),
                    hint: Some("become a member of that group and log in anew, or use sudo".into()),
                }
            }
            ClientError::NoDaemon { .. } => ErrorBody {
                error: self.to_string(),
                expected: Some("a running daemon, and the same state directory as it has".into()),
                hint: Some(
                    "start one with 'headgate serve', or give --state-dir or HEADGATE_STATE_DIR, or \
                     --api for one elsewhere"
                        .into(),
                ),
            },
            ClientError::Broken { .. } => ErrorBody {
                error: self.to_string(),
                expected: None,
                hint: Some("see the daemon's log".into()),
            },
            ClientError::Way { expected, .. } => ErrorBody {
                error: self.to_string(),
                expected: Some((*expected).into()),
                hint: None,
            },
        }
    }
}

/// What a stream of events says.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// An event.
    Event(Box<Event>),
    /// Something about the stream itself.
    Remark(String),
}

/// One daemon.
#[derive(Clone, Debug)]
pub struct Client {
    way: Way,
    precondition: Option<Precondition>,
}

/// What must hold for a change to be made.
#[derive(Clone, Debug)]
enum Precondition {
    /// The thing has this tag still.
    Tag(String),
    /// There is none.
    Nothing,
}

/// What was read, and the tag of what is set of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged<T> {
    /// What was read.
    pub value: T,
    /// For [`Client::of`]; `None`: it has none.
    pub tag: Option<String>,
}

/// How it is reached.
#[derive(Clone, Debug)]
enum Way {
    Socket(PathBuf),
    Tcp(Remote),
}

impl Client {
    /// The daemon that serves this socket.
    pub fn new(socket: &Path) -> Client {
        Client { way: Way::Socket(socket.to_owned()), precondition: None }
    }

    /// The daemon at an address, as `serve --api-listen` has one.
    pub fn at(remote: Remote) -> Client {
        Client { way: Way::Tcp(remote), precondition: None }
    }

    /// The same for changes of what had this tag when it was read: they are refused, with what was
    /// changed, if it has another one by now. Without a tag they are made in any case.
    #[must_use]
    pub fn of(&self, tag: Option<String>) -> Client {
        Client { precondition: tag.map(Precondition::Tag), ..self.clone() }
    }

    /// The same for making what was not there when it was looked for.
    #[must_use]
    pub fn of_nothing(&self) -> Client {
        Client { precondition: Some(Precondition::Nothing), ..self.clone() }
    }

    /// Its socket or address.
    fn place(&self) -> String {
        match &self.way {
            Way::Socket(socket) => socket.display().to_string(),
            Way::Tcp(remote) => remote.to_string(),
        }
    }

    /// Reads.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(&self.request(Method::GET, path, Bytes::new())?)
    }

    /// Reads, with the tag of what is set.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get_tagged<T: DeserializeOwned>(&self, path: &str) -> Result<Tagged<T>, ClientError> {
        let answer = self.ask(Method::GET, path, Bytes::new())?;
        Ok(Tagged { value: self.json(&answer.body)?, tag: answer.tag })
    }

    /// What a change would do. Nothing is changed.
    ///
    /// # Errors
    /// See [`ClientError`]; what the change itself is refused for.
    pub fn dry_run<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<DryRun, ClientError> {
        let path = format!("{path}{}dry_run=true", if path.contains('?') { '&' } else { '?' });
        self.send(method, &path, body)
    }

    /// Reads text.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get_text(&self, path: &str) -> Result<String, ClientError> {
        let bytes = self.request(Method::GET, path, Bytes::new())?;
        String::from_utf8(bytes.to_vec()).map_err(|e| self.broken(e))
    }

    /// Sends a body, reads the answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn send<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| self.broken(e))?;
        self.json(&self.request(method, path, body.into())?)
    }

    /// Reads events as they come, after the one with this number, until `take` breaks off or the
    /// daemon ends. Other lines, such as of damage, are `remarks`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn follow(
        &self,
        path: &str,
        last: u64,
        mut take: impl FnMut(Followed) -> ControlFlow<()>,
    ) -> Result<(), ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| self.broken(e))?;
        runtime.block_on(async {
            let mut sender = self.connect().await?;
            let request = self
                .begin(path)
                .header(header::ACCEPT, "text/event-stream")
                .header("last-event-id", last)
                .body(Full::new(Bytes::new()))
                .map_err(|e| self.broken(e))?;
            let answer = sender.send_request(request).await.map_err(|e| self.broken(e))?;
            let (status, mut body) = (answer.status(), answer.into_body());
            if !status.is_success() {
                let bytes = body.collect().await.map_err(|e| self.broken(e))?.to_bytes();
                return Err(self.refused(status, &bytes));
            }
            let mut text = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| self.broken(e))?;
                text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let Some(followed) = self.followed(line.trim_ascii_end())? else { continue };
                    if take(followed).is_break() {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    /// What a line of a stream says, if it says something by itself.
    fn followed(&self, line: &[u8]) -> Result<Option<Followed>, ClientError> {
        if let Some(json) = line.strip_prefix(b"data: ") {
            let event = serde_json::from_slice(json).map_err(|e| self.broken(e))?;
            return Ok(Some(Followed::Event(Box::new(event))));
        }
        let remark = line.strip_prefix(b": ").map(String::from_utf8_lossy);
        Ok(remark.map(|remark| Followed::Remark(remark.into_owned())))
    }

    /// Removes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.request(Method::DELETE, path, Bytes::new()).map(drop)
    }

    fn json<T: DeserializeOwned>(&self, bytes: &Bytes) -> Result<T, ClientError> {
        serde_json::from_slice(bytes).map_err(|e| self.broken(e))
    }

    fn broken(&self, error: impl std::fmt::Display) -> ClientError {
        ClientError::Broken { at: self.place(), error: error.to_string() }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        self.ask(method, path, body).map(|answer| answer.body)
    }

    fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| self.broken(e))?;
        let answer = runtime.block_on(self.exchange(method, path, body))?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(self.refused(answer.status, &answer.body))
    }

    fn refused(&self, status: StatusCode, bytes: &Bytes) -> ClientError {
        match serde_json::from_slice(bytes) {
            Ok(body) => ClientError::Refused { status, body },
            Err(_) => self.broken(format!("it answered {status}")),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Answer, ClientError> {
        let mut sender = self.connect().await?;
        let request = match &self.precondition {
            Some(Precondition::Tag(tag)) => self.begin(path).header(header::IF_MATCH, tag),
            Some(Precondition::Nothing) => self.begin(path).header(header::IF_NONE_MATCH, "*"),
            None => self.begin(path),
        };
        let request = request
            .method(method)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|e| self.broken(e))?;
        let answer = sender.send_request(request).await.map_err(|e| self.broken(e))?;
        let (status, tag) = (answer.status(), answer.headers().get(header::ETAG));
        let tag = tag.and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = answer.into_body().collect().await.map_err(|e| self.broken(e))?;
        Ok(Answer { status, tag, body: body.to_bytes() })
    }

    /// A connection, which is served while the runtime runs.
    async fn connect(&self) -> Result<SendRequest, ClientError> {
        let none = |source| ClientError::NoDaemon { at: self.place(), source };
        match &self.way {
            Way::Socket(socket) => {
                self.speak(UnixStream::connect(socket).await.map_err(none)?).await
            }
            Way::Tcp(remote) => self.speak(remote.connect().await.map_err(none)?).await,
        }
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<SendRequest, ClientError> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(e))?;
        // How it ends is told to whoever waits for an answer.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// A request, with what shows who asks.
    fn begin(&self, path: &str) -> hyper::http::request::Builder {
        let request = Request::builder().uri(path);
        match &self.way {
            Way::Socket(_) => request.header(header::HOST, "headgate"),
            Way::Tcp(remote) => remote.mark(request),
        }
    }
}

/// What was answered.
struct Answer {
    status: StatusCode,
    tag: Option<String>,
    body: Bytes,
}

type SendRequest = http1::SendRequest<Full<Bytes>>;
