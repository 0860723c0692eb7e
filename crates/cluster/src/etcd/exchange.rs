//! One question to one server: the connection, who is asking, the answer.

use super::endpoint::{Endpoint, Scheme};
use super::error::EtcdError;
use super::login::Login;
use super::servers::Servers;
use super::wire::{Authenticate, Refusal, Token};
use bytes::Bytes;
use headgate_tls::{CA_CERT, ClientCredentials, Role};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, rustls};
use tracing::warn;

/// The longest answer that is read: a thousand hosts' records take a megabyte.
pub(super) const ANSWER_MAX: usize = 16 << 20;

/// How much is told of a text that was not expected, in characters.
const TOLD: usize = 200;

pub(super) type Sender = http1::SendRequest<Full<Bytes>>;

/// Who the servers know us as.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) enum Pass {
    /// They were not told yet.
    #[default]
    None,
    /// They asked nobody who he is, when they were to be told.
    NotAsked,
    /// By this token, as long as they know it.
    Token(HeaderValue),
}

/// A token lets in whoever has it.
impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pass::None => "None",
            Pass::NotAsked => "NotAsked",
            Pass::Token(_) => "Token(..)",
        })
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection broke.
    Broken(String),
    /// This server is none that can be used; another may be.
    Server(EtcdError),
    /// What was asked for is refused.
    Refused(EtcdError),
    /// No server needs to be asked.
    Own(EtcdError),
}

impl Failure {
    fn refusal(error: EtcdError) -> Failure {
        match error.is_unavailable() {
            true => Failure::Server(error),
            false => Failure::Refused(error),
        }
    }
}

/// What one question to one server needs.
pub(super) struct Exchange<'a> {
    pub(super) servers: &'a Servers,
    pub(super) endpoint: &'a Endpoint,
    /// Kept open between questions.
    pub(super) connection: &'a mut Option<Sender>,
    pub(super) pass: &'a mut Pass,
}

pub(super) fn not_etcd(endpoint: &Endpoint, reason: impl fmt::Display) -> EtcdError {
    EtcdError::NotEtcd { endpoint: endpoint.clone(), reason: reason.to_string() }
}

impl Exchange<'_> {
    /// Asks, and says before who is asking, where that is to be said.
    pub(super) async fn ask(&mut self, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        match self.ask_as_known(path, body.clone()).await {
            Err(Failure::Refused(error)) if error.wants_login() => {
                if self.servers.login().is_none() {
                    return Err(Failure::Refused(no_login(error)));
                }
                *self.pass = Pass::None;
                self.ask_as_known(path, body).await
            }
            other => other,
        }
    }

    async fn ask_as_known(&mut self, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        if let (Some(file), Pass::None) = (self.servers.login(), &self.pass) {
            *self.pass = self.log_in(file).await?;
        }
        let token = match &self.pass {
            Pass::Token(token) => Some(token.clone()),
            Pass::None | Pass::NotAsked => None,
        };
        self.post(path, body, token).await
    }

    /// Says who this is.
    async fn log_in(&mut self, file: &Path) -> Result<Pass, Failure> {
        let own = |e: EtcdError| Failure::Own(e);
        let Login { user, password } = Login::read(file).map_err(|e| own(e.into()))?;
        let question = Authenticate { name: &user, password: &password };
        let wrong = |e: &dyn fmt::Display| Failure::Own(not_etcd(self.endpoint, e));
        let body = serde_json::to_vec(&question).map_err(|e| wrong(&e))?;
        match self.post("/v3/auth/authenticate", body.into(), None).await {
            Ok(answer) => {
                let Token { token } = serde_json::from_slice(&answer)
                    .map_err(|_| Failure::Own(not_etcd(self.endpoint, "it gives no token")))?;
                let mut token = HeaderValue::try_from(token)
                    .map_err(|_| Failure::Own(not_etcd(self.endpoint, "no token can be so")))?;
                token.set_sensitive(true);
                Ok(Pass::Token(token))
            }
            Err(Failure::Refused(error)) if error.asks_nobody() => {
                warn!(endpoint = %self.endpoint,
                    "etcd asks nobody for user and password: its authentication is not enabled");
                Ok(Pass::NotAsked)
            }
            Err(Failure::Refused(EtcdError::Refused { endpoint, message, .. })) => {
                Err(own(EtcdError::Login { endpoint, user, message }))
            }
            Err(other) => Err(other),
        }
    }

    /// One request, and its whole answer.
    async fn post(
        &mut self,
        path: &str,
        body: Bytes,
        token: Option<HeaderValue>,
    ) -> Result<Bytes, Failure> {
        let (sender, response) = self.send(path, body, token).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|e| Failure::Broken(e.to_string()))?.to_bytes();
        *self.connection = Some(sender);
        match status {
            StatusCode::OK => Ok(body),
            _ => Err(Failure::refusal(self.refusal(status, &body))),
        }
    }

    /// Asks for an answer that has no end, with all that has to be said before. It comes on the
    /// connection that is kept, or on a new one.
    pub(super) async fn ask_for_stream(
        &mut self,
        path: &str,
        body: Bytes,
    ) -> Result<(Sender, Incoming), Failure> {
        if let (Some(file), Pass::None) = (self.servers.login(), &self.pass) {
            *self.pass = self.log_in(file).await?;
        }
        let token = match &self.pass {
            Pass::Token(token) => Some(token.clone()),
            Pass::None | Pass::NotAsked => None,
        };
        let (sender, response) = self.send(path, body, token).await?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok((sender, response.into_body()));
        }
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|e| Failure::Broken(e.to_string()))?.to_bytes();
        let refusal = self.refusal(status, &body);
        if refusal.wants_login() {
            *self.pass = Pass::None;
        }
        Err(Failure::refusal(refusal))
    }

    /// One request, on the connection that there is or on a new one.
    async fn send(
        &mut self,
        path: &str,
        body: Bytes,
        token: Option<HeaderValue>,
    ) -> Result<(Sender, Response<Incoming>), Failure> {
        let (mut sender, age) = match self.connection.take() {
            Some(sender) => (sender, Age::Used),
            None => (self.connect().await?, Age::New),
        };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, self.endpoint.authority())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body)).map_err(|e| Failure::Broken(e.to_string()))?;
        sender.ready().await.map_err(|e| self.broken(&e, age))?;
        let response = sender.send_request(request).await.map_err(|e| self.broken(&e, age))?;
        Ok((sender, response))
    }

    fn refusal(&self, status: StatusCode, bytes: &[u8]) -> EtcdError {
        match serde_json::from_slice(bytes).ok().and_then(Refusal::into_status) {
            Some((code, message)) => {
                EtcdError::Refused { endpoint: self.endpoint.clone(), code, message }
            }
            None => not_etcd(self.endpoint, format!("it answers {status}{}", beginning(bytes))),
        }
    }

    /// What it means that a connection broke. In TLS 1.3 a server refuses our certificate when the
    /// handshake is over for us, and some then only hang up.
    fn broken(&self, error: &(dyn Error + 'static), age: Age) -> Failure {
        let reason = match (of_tls(error), self.servers.certificates(), age) {
            (Some(tls), Some(dir), _) => self.explain(tls, dir),
            (None, Some(dir), Age::New) => {
                format!("it hung up before it answered ({error}); {}", shown(dir))
            }
            (None, Some(dir), Age::Unborn) => {
                format!("it hung up in the handshake ({error}); {WITH_TLS}, and {}", shown(dir))
            }
            _ => return Failure::Broken(error.to_string()),
        };
        Failure::Server(EtcdError::Tls { endpoint: self.endpoint.clone(), reason })
    }

    /// What is wrong between us, and what was expected.
    fn explain(&self, error: &rustls::Error, dir: &Path) -> String {
        match error {
            rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
                format!(
                    "its certificate is not accepted: {error}; expected one for '{}' of an \
                     authority in {}",
                    self.endpoint.host,
                    dir.join(CA_CERT).display()
                )
            }
            rustls::Error::AlertReceived(_) => format!("it turns us away: {error}; {}", shown(dir)),
            rustls::Error::InvalidMessage(_) => {
                format!("what it answers is no TLS: {error}; {WITH_TLS}")
            }
            _ => error.to_string(),
        }
    }

    async fn connect(&self) -> Result<Sender, Failure> {
        let failed = |e: io::Error| Failure::Broken(e.to_string());
        let host = self.endpoint.host.as_str();
        let stream = TcpStream::connect((host, self.endpoint.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        match (self.endpoint.scheme, self.servers.certificates()) {
            (Scheme::Http, None) => http(TokioIo::new(stream)).await,
            (Scheme::Https, Some(dir)) => {
                let credentials = ClientCredentials::read_optional(dir);
                let credentials = credentials.map_err(|e| Failure::Own(e.into()))?;
                let name = headgate_tls::server_name(host);
                let name = name.ok_or_else(|| self.contradiction("no certificate is for it"))?;
                let tls = TlsConnector::from(credentials.config()).connect(name, stream).await;
                http(TokioIo::new(tls.map_err(|e| self.broken(&e, Age::Unborn))?)).await
            }
            (Scheme::Http, Some(_)) => Err(self.contradiction("http:// beside certificates")),
            (Scheme::Https, None) => Err(self.contradiction("https:// without certificates")),
        }
    }

    /// What [`Servers`] lets nobody say.
    fn contradiction(&self, reason: &str) -> Failure {
        Failure::Own(EtcdError::Tls { endpoint: self.endpoint.clone(), reason: reason.into() })
    }
}

/// What a server without TLS lacks.
const WITH_TLS: &str = "expected an etcd with --cert-file and --key-file";

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// The handshake of TLS is not over.
    Unborn,
    /// There was no answer yet.
    New,
    /// There was one.
    Used,
}

/// HTTP on a new connection.
async fn http<T: Read + Write + Unpin + Send + 'static>(io: T) -> Result<Sender, Failure> {
    let made = http1::handshake(io).await;
    let (sender, connection) = made.map_err(|e| Failure::Broken(e.to_string()))?;
    // Runs whenever a call waits for its answer. Its error is the call's error.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// How a text begins, behind what it explains; nothing where there is no text.
fn beginning(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(TOLD).collect();
    let text = text.trim().replace(char::is_control, " ");
    if text.is_empty() { text } else { format!(": {text}") }
}

/// What we show a server, for who has to find out why it was not enough.
fn shown(dir: &Path) -> String {
    let [certificate, key] = Role::Client.files();
    let dir = dir.display();
    format!("expected that it needs no other certificate than {certificate} (with {key}) in {dir}")
}

/// The error of TLS behind another one.
fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An error of the system hides what it was made of.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = inner.and_then(|inner| inner.downcast_ref()) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn no_login(error: EtcdError) -> EtcdError {
    match error {
        EtcdError::Refused { endpoint, message, .. } => EtcdError::NoLogin { endpoint, message },
        other => other,
    }
}
