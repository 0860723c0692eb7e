use super::wire::{Grant, Int, LeaseId, LeaseState, Outcome, Refusal, Streamed, Transaction};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// The longest answer that is read: a thousand hosts' records take a megabyte.
const ANSWER_MAX: usize = 16 << 20;

/// gRPC's number for "no such lease" and the like.
const NOT_FOUND: i64 = 5;

/// gRPC's number for "try another server".
const UNAVAILABLE: i64 = 14;

/// Where an etcd server listens: `http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// The text is no [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{given}' is not an etcd server that can be used; write http://HOST:PORT, port 2379 unless said otherwise"
)]
pub struct EndpointError {
    given: String,
}

impl FromStr for Endpoint {
    type Err = EndpointError;
    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let wrong = || EndpointError { given: text.to_owned() };
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // An IPv6 address stands in brackets.
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, "2379"),
            Some((host, port)) => (host, port.strip_prefix(':').ok_or_else(wrong)?),
            None => rest.split_once(':').unwrap_or((rest, "2379")),
        };
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(good) {
            return Err(wrong());
        }
        Ok(Endpoint { host: host.to_owned(), port: port.parse().map_err(|_| wrong())? })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "http://[{}]:{}", self.host, self.port),
            false => write!(f, "http://{}:{}", self.host, self.port),
        }
    }
}

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
}

/// A connection to one of several etcd servers, kept open between calls. Blocks for at most its
/// timeout.
#[derive(Debug)]
pub struct Client {
    endpoints: Vec<Endpoint>,
    /// The one that answered last.
    current: usize,
    connection: Option<http1::SendRequest<Full<Bytes>>>,
    timeout: Duration,
    runtime: Runtime,
}

/// One part of a key.
pub(super) fn part(name: &str) -> Result<&str, EtcdError> {
    match name {
        _ if name.is_empty() || name.len() > 255 || name.contains('/') => {
            Err(EtcdError::Key(name.to_owned()))
        }
        _ => Ok(name),
    }
}

impl Client {
    /// A client of these servers; nothing is sent yet. A call that gets no answer from any of them
    /// fails after `timeout`.
    ///
    /// # Errors
    /// When no server is named.
    pub fn new(endpoints: Vec<Endpoint>, timeout: Duration) -> Result<Client, EtcdError> {
        if endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(EtcdError::Runtime)?;
        Ok(Client { endpoints, current: 0, connection: None, timeout, runtime })
    }

    fn endpoint(&self) -> Endpoint {
        self.endpoints[self.current].clone()
    }

    fn next_endpoint(&mut self) {
        self.connection = None;
        self.current = (self.current + 1) % self.endpoints.len();
    }

    /// Asks one server after another until one answers.
    fn call<T: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, EtcdError> {
        let body = serde_json::to_vec(request).map_err(|e| self.not_etcd(e))?;
        let body = Bytes::from(body);
        // A connection that was kept may have been closed since: that says nothing of the server.
        let tries = self.endpoints.len() + usize::from(self.connection.is_some());
        let each = self.timeout / u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX);
        let mut last = EtcdError::NoEndpoint;
        for _ in 0..tries {
            let kept = self.connection.is_some();
            match self.once(path, body.clone(), each) {
                Ok((status, bytes)) if status == StatusCode::OK => {
                    return serde_json::from_slice(&bytes).map_err(|e| self.not_etcd(e));
                }
                Ok((status, bytes)) => {
                    let error = self.refusal(status, &bytes);
                    match error {
                        EtcdError::Refused { code: UNAVAILABLE, .. } => {
                            last = error;
                            self.next_endpoint();
                        }
                        _ => return Err(error),
                    }
                }
                Err(reason) => {
                    last = EtcdError::Unreachable {
                        endpoint: self.endpoint(),
                        timeout: self.timeout,
                        reason,
                    };
                    match kept {
                        true => self.connection = None,
                        false => self.next_endpoint(),
                    }
                }
            }
        }
        Err(last)
    }

    pub(super) fn not_etcd(&self, reason: impl fmt::Display) -> EtcdError {
        EtcdError::NotEtcd { endpoint: self.endpoint(), reason: reason.to_string() }
    }

    fn refusal(&self, status: StatusCode, bytes: &[u8]) -> EtcdError {
        match serde_json::from_slice(bytes) {
            Ok(Refusal { code, message, error }) if code != 0 => EtcdError::Refused {
                endpoint: self.endpoint(),
                code,
                message: if message.is_empty() { error } else { message },
            },
            _ => self.not_etcd(format!("it answers {status}")),
        }
    }

    /// One request to the present server.
    fn once(
        &mut self,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<(StatusCode, Bytes), String> {
        let Client { endpoints, current, connection, runtime, .. } = self;
        let endpoint = &endpoints[*current];
        let exchange = async {
            let mut sender = match connection.take() {
                Some(sender) => sender,
                None => connect(endpoint).await?,
            };
            let request = Request::builder()
                .method(Method::POST)
                .uri(path)
                .header(header::HOST, format!("{}:{}", endpoint.host, endpoint.port))
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::new(body))
                .map_err(|e| e.to_string())?;
            sender.ready().await.map_err(|e| e.to_string())?;
            let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_MAX)
                .collect()
                .await
                .map_err(|e| e.to_string())?;
            *connection = Some(sender);
            Ok((status, body.to_bytes()))
        };
        runtime.block_on(async {
            match tokio::time::timeout(within, exchange).await {
                Ok(answer) => answer,
                Err(_) => Err("nothing".to_owned()),
            }
        })
    }

    /// A lease of so many seconds.
    pub(super) fn grant(&mut self, ttl: i64) -> Result<Int, EtcdError> {
        let lease: LeaseState = self.call("/v3/lease/grant", &Grant { ttl: Int(ttl) })?;
        if lease.id == Int(0) {
            return Err(self.not_etcd(format!("a lease without number ({})", lease.error)));
        }
        Ok(lease.id)
    }

    /// Prolongs a lease; whether there was one.
    pub(super) fn keep_alive(&mut self, id: Int) -> Result<bool, EtcdError> {
        let answer: Streamed = self.call("/v3/lease/keepalive", &LeaseId { id })?;
        Ok(answer.result.ttl > Int(0))
    }

    /// Ends a lease and removes what hangs on it. One that is no more is fine.
    pub(super) fn revoke(&mut self, id: Int) -> Result<(), EtcdError> {
        match self.call::<serde_json::Value>("/v3/lease/revoke", &LeaseId { id }) {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }

    pub(super) fn transact(&mut self, transaction: &Transaction) -> Result<Outcome, EtcdError> {
        self.call("/v3/kv/txn", transaction)
    }
}

async fn connect(endpoint: &Endpoint) -> Result<http1::SendRequest<Full<Bytes>>, String> {
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // Runs whenever a call waits for its answer. Its error is the call's error.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_what_is_none_is_named() {
        for (text, printed) in [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("http://etcd-1.example/", "http://etcd-1.example:2379"),
            ("http://[::1]:4001", "http://[::1]:4001"),
            ("http://[fd00::2]", "http://[fd00::2]:2379"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), printed);
        }
        for text in [
            "",
            "127.0.0.1:2379",
            "https://a:1",
            "http://",
            "http://a:b",
            "http://a b:1",
            "http://[::1]2379",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains("write http://HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error_in_time() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let endpoint = Endpoint { host: "127.0.0.1".into(), port };
        let mut client = Client::new(vec![endpoint], Duration::from_secs(5)).unwrap();
        let error = client.grant(5).unwrap_err();
        assert!(matches!(error, EtcdError::Unreachable { .. }), "{error}");
        assert!(Client::new(Vec::new(), Duration::from_secs(1)).is_err());
    }

    #[test]
    fn what_is_not_etcd_is_named_as_such() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint =
            Endpoint { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let server = std::thread::spawn(move || {
            use std::io::{Read, Write};
            for answer in [
                "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno",
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
            ] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut client = Client::new(vec![endpoint], Duration::from_secs(5)).unwrap();
        for _ in 0..2 {
            let error = client.grant(5).unwrap_err();
            assert!(matches!(error, EtcdError::NotEtcd { .. }), "{error}");
            client.connection = None;
        }
        server.join().unwrap();
    }
}
