use super::error::EtcdError;
use super::exchange::{Exchange, Failure, Pass, Sender, not_etcd};
use super::servers::Servers;
use super::wire::{Grant, Int, LeaseId, LeaseState, Outcome, Streamed, Transaction};
use bytes::Bytes;
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
