//! A client of the HTTP API, on the daemon's unix socket.

use super::types::ErrorBody;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tokio::net::UnixStream;

/// Why the daemon did not do it, or could not be asked.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No daemon listens on the socket.
    #[error("no headgate daemon answers on {}: {source}", .socket.display())]
    NoDaemon {
        /// The API's socket.
        socket: PathBuf,
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
    #[error("the daemon on {} broke off: {error}", .socket.display())]
    Broken {
        /// The API's socket.
        socket: PathBuf,
        /// What happened.
        error: String,
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
                    "start one with 'headgate serve', or give --state-dir or HEADGATE_STATE_DIR"
                        .into(),
                ),
            },
            ClientError::Broken { .. } => ErrorBody {
                error: self.to_string(),
                expected: None,
                hint: Some("see the daemon's log".into()),
            },
        }
    }
}

/// One daemon.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// The daemon that serves this socket.
    pub fn new(socket: &Path) -> Client {
        Client { socket: socket.to_owned() }
    }

    /// Reads.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(&self.request(Method::GET, path, Bytes::new())?)
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
        ClientError::Broken { socket: self.socket.clone(), error: error.to_string() }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| self.broken(e))?;
        let (status, bytes) = runtime.block_on(self.exchange(method, path, body))?;
        if status.is_success() {
            return Ok(bytes);
        }
        Err(match serde_json::from_slice(&bytes) {
            Ok(body) => ClientError::Refused { status, body },
            Err(_) => self.broken(format!("it answered {status}")),
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::NoDaemon { socket: self.socket.clone(), source })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(e))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "headgate")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|e| self.broken(e))?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        tokio::pin!(connection);
        tokio::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            ended = &mut connection => match ended {
                // The connection may end in the same breath as the answer.
                Ok(()) => answer.await,
                Err(e) => Err(e),
            },
        }
        .map_err(|e: hyper::Error| self.broken(e))
    }
}
