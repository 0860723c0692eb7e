use super::error::EtcdError;
use super::exchange::{ANSWER_MAX, Exchange, Failure, Pass, Sender, not_etcd};
use super::servers::Servers;
use super::wire::{
    Found, Grant, Int, LeaseId, LeaseState, Outcome, Range, Status, Streamed, Transaction,
};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A connection to one of several etcd servers, kept open between calls. Blocks for at most its
/// timeout.
#[derive(Debug)]
pub struct Client {
    servers: Servers,
    /// The one that answered last.
    current: usize,
    connection: Option<Sender>,
    pass: Pass,
    timeout: Duration,
    runtime: Runtime,
}

/// An answer without an end.
#[derive(Debug)]
pub(super) struct Stream {
    body: Incoming,
    /// Bytes of which no line was made yet.
    read: Vec<u8>,
    /// So many of them end no line.
    seen: usize,
}

impl Stream {
    fn line(&mut self) -> Option<Vec<u8>> {
        let new = self.read.get(self.seen..).unwrap_or_default();
        let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
            self.seen = self.read.len();
            return None;
        };
        let end = self.seen + end;
        self.seen = 0;
        let rest = self.read.split_off(end + 1);
        Some(std::mem::replace(&mut self.read, rest))
    }
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
    /// When the system gives no event loop.
    pub fn new(servers: Servers, timeout: Duration) -> Result<Client, EtcdError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(EtcdError::Runtime)?;
        let pass = Pass::default();
        Ok(Client { servers, current: 0, connection: None, pass, timeout, runtime })
    }

    fn next_endpoint(&mut self) {
        self.connection = None;
        self.current = (self.current + 1) % self.servers.endpoints().len();
    }

    /// Asks one server after another until one answers.
    fn call<T: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, EtcdError> {
        let body = serde_json::to_vec(request).map_err(|e| self.not_etcd(e))?;
        let body = Bytes::from(body);
        let count = self.servers.endpoints().len();
        // A connection that was kept may have been closed since: that says nothing of the server.
        let tries = count + usize::from(self.connection.is_some());
        let each = self.timeout / u32::try_from(count).unwrap_or(u32::MAX);
        let mut last = EtcdError::NoEndpoint;
        for _ in 0..tries {
            let kept = self.connection.is_some();
            match self.once(path, body.clone(), each) {
                Ok(bytes) => return serde_json::from_slice(&bytes).map_err(|e| self.not_etcd(e)),
                Err(Failure::Refused(error) | Failure::Own(error)) => return Err(error),
                Err(Failure::Server(error)) => {
                    last = error;
                    self.next_endpoint();
                }
                Err(Failure::Broken(reason)) => {
                    last = EtcdError::Unreachable {
                        endpoint: self.servers.endpoints()[self.current].clone(),
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
        not_etcd(&self.servers.endpoints()[self.current], reason)
    }

    /// One question to the present server, with all that has to be said before.
    fn once(&mut self, path: &str, body: Bytes, within: Duration) -> Result<Bytes, Failure> {
        let Client { servers, current, connection, pass, runtime, .. } = self;
        let endpoint = &servers.endpoints()[*current];
        let mut exchange = Exchange { servers, endpoint, connection, pass };
        runtime.block_on(async {
            match tokio::time::timeout(within, exchange.ask(path, body)).await {
                Ok(answer) => answer,
                Err(_) => Err(Failure::Broken("nothing".to_owned())),
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

    pub(super) fn range(&mut self, range: &Range) -> Result<Found, EtcdError> {
        self.call("/v3/kv/range", range)
    }

    /// What the present server stores, in bytes.
    pub(super) fn bytes_in_use(&mut self) -> Result<u64, EtcdError> {
        let status: Status = self.call("/v3/maintenance/status", &serde_json::json!({}))?;
        Ok(u64::try_from(status.in_use.0).unwrap_or(0))
    }

    /// Asks the present server, or the next one that there is, for an answer without an end.
    pub(super) fn open(
        &mut self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<Stream, EtcdError> {
        let body = Bytes::from(serde_json::to_vec(request).map_err(|e| self.not_etcd(e))?);
        let within = self.timeout;
        let Client { servers, current, connection, pass, runtime, .. } = self;
        // What was on it is of no use any more.
        *connection = None;
        let endpoint = &servers.endpoints()[*current];
        let mut exchange = Exchange { servers, endpoint, connection, pass };
        let opened = runtime.block_on(async {
            match tokio::time::timeout(within, exchange.ask_for_stream(path, body)).await {
                Ok(answer) => answer,
                Err(_) => Err(Failure::Broken("nothing".to_owned())),
            }
        });
        let error = match opened {
            Ok((sender, body)) => {
                *connection = Some(sender);
                return Ok(Stream { body, read: Vec::new(), seen: 0 });
            }
            Err(Failure::Refused(error) | Failure::Own(error)) => return Err(error),
            Err(Failure::Server(error)) => error,
            Err(Failure::Broken(reason)) => {
                EtcdError::Unreachable { endpoint: endpoint.clone(), timeout: within, reason }
            }
        };
        self.next_endpoint();
        Err(error)
    }

    /// The next line of an answer without an end; `None` when none has come within so long.
    pub(super) fn next_line(
        &mut self,
        stream: &mut Stream,
        within: Duration,
    ) -> Result<Option<Vec<u8>>, EtcdError> {
        if let Some(line) = stream.line() {
            return Ok(Some(line));
        }
        let reason = self.runtime.block_on(async {
            let all = async {
                loop {
                    match stream.body.frame().await {
                        None => return Err("it has ended the watch".to_owned()),
                        Some(Err(e)) => return Err(e.to_string()),
                        Some(Ok(frame)) => {
                            stream
                                .read
                                .extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                        }
                    }
                    if let Some(line) = stream.line() {
                        return Ok(line);
                    }
                    if stream.read.len() > ANSWER_MAX {
                        return Err(format!("a line of more than {ANSWER_MAX} bytes"));
                    }
                }
            };
            tokio::time::timeout(within, all).await
        });
        match reason {
            Err(_) => Ok(None),
            Ok(Ok(line)) => Ok(Some(line)),
            Ok(Err(reason)) => {
                let endpoint = self.servers.endpoints()[self.current].clone();
                self.next_endpoint();
                Err(EtcdError::Unreachable { endpoint, timeout: self.timeout, reason })
            }
        }
    }

    /// The present server was silent for too long: another one is asked next.
    pub(super) fn leave(&mut self) {
        self.pass = Pass::default();
        self.next_endpoint();
    }

    pub(super) fn transact(&mut self, transaction: &Transaction) -> Result<Outcome, EtcdError> {
        self.call("/v3/kv/txn", transaction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(port: u16) -> Servers {
        let endpoint = format!("http://127.0.0.1:{port}").parse().unwrap();
        Servers::new(vec![endpoint], None, None).unwrap()
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error_in_time() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut client = Client::new(servers(port), Duration::from_secs(5)).unwrap();
        let error = client.grant(5).unwrap_err();
        assert!(matches!(error, EtcdError::Unreachable { .. }), "{error}");
    }

    #[test]
    fn what_is_not_etcd_is_named_as_such() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
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
        let mut client = Client::new(servers(port), Duration::from_secs(5)).unwrap();
        for _ in 0..2 {
            let error = client.grant(5).unwrap_err();
            assert!(matches!(error, EtcdError::NotEtcd { .. }), "{error}");
            client.connection = None;
        }
        server.join().unwrap();
    }
}
