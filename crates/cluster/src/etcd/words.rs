//! Keys that hosts write for each other, and that each of them watches.

use super::client::{Client, Stream};
use super::error::EtcdError;
use super::servers::Servers;
use super::wire::{
    Blob, Int, Put, Range, Request, Transaction, Watch, WatchEvent, WatchFrom, WatchLine,
};
use headgate_units::Nanos;
use std::time::Duration;

/// How often the lease of what was written is renewed.
const RENEWED: Nanos = Nanos::from_secs(600);

/// Keys that are read at once.
const PAGE: i64 = 64;

/// Keys that are read at most: as many as a thousand hosts have.
const KEYS_MAX: usize = 100_000;

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// This stands there now.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// There is nothing any more.
    Gone {
        /// The key.
        key: Vec<u8>,
    },
}

/// Whether all keys were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// They were.
    Whole,
    /// There are more than hosts could have written.
    Cut,
}

/// A watch that is open.
#[derive(Debug)]
struct Open(Stream);

/// All keys that begin with a prefix: written under a lease that outlives the daemon, read once,
/// and watched from then on. Every call blocks for at most the patience that it was given.
#[derive(Debug)]
pub struct EtcdWords {
    client: Client,
    watcher: Client,
    prefix: String,
    kept: Duration,
    lease: Option<(Int, Nanos)>,
    watch: Option<Open>,
    /// What the next watch begins with.
    revision: Int,
}

fn end_of(prefix: &str) -> Blob {
    let mut end = prefix.as_bytes().to_vec();
    // It ends with '/', which has a successor.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Blob(end)
}

impl EtcdWords {
    /// The keys that begin with `prefix`, which ends with a slash. What is written stays for `kept`
    /// after it was last renewed. Nothing is sent yet.
    ///
    /// # Errors
    /// When the system gives no event loop.
    pub fn new(
        servers: &Servers,
        prefix: &str,
        kept: Duration,
        patience: Duration,
    ) -> Result<EtcdWords, EtcdError> {
        Ok(EtcdWords {
            client: Client::new(servers.clone(), patience)?,
            watcher: Client::new(servers.clone(), patience)?,
            prefix: prefix.to_owned(),
            kept,
            lease: None,
            watch: None,
            revision: Int(0),
        })
    }

    /// Whether changes are watched.
    pub fn is_watching(&self) -> bool {
        self.watch.is_some()
    }

    /// Reads all keys, gives each to `take`, and watches what changes from then on.
    ///
    /// # Errors
    /// When etcd does not answer, or refuses. Then nothing is watched.
    pub fn read(&mut self, mut take: impl FnMut(&[u8], &[u8])) -> Result<Reading, EtcdError> {
        self.watch = None;
        let (mut from, mut limit, mut count) = (Blob::from(self.prefix.as_str()), PAGE, 0);
        let end = end_of(&self.prefix);
        let mut begun = None;
        let reading = loop {
            let range =
                Range { key: from.clone(), range_end: Some(end.clone()), limit: Int(limit) };
            let found = match self.client.range(&range) {
                // Perhaps there is something so long that so many are too long together.
                Err(EtcdError::Unreachable { .. }) if limit > 1 => {
                    limit = 1;
                    continue;
                }
                found => found?,
            };
            begun.get_or_insert(found.header.revision);
            for kv in &found.kvs {
                take(&kv.key.0, &kv.value.0);
            }
            count += found.kvs.len();
            limit = (2 * limit).min(PAGE);
            match found.kvs.last() {
                Some(last) if found.more && count < KEYS_MAX => {
                    from = last.key.clone();
                    from.0.push(0);
                }
                _ if found.more => break Reading::Cut,
                _ => break Reading::Whole,
            }
        };
        self.revision = Int(begun.map_or(0, |revision| revision.0) + 1);
        self.watch()?;
        Ok(reading)
    }

    fn watch(&mut self) -> Result<(), EtcdError> {
        let create_request = WatchFrom {
            key: self.prefix.as_str().into(),
            range_end: end_of(&self.prefix),
            start_revision: self.revision,
            fragment: true,
        };
        let stream = self.watcher.open("/v3/watch", &Watch { create_request })?;
        self.watch = Some(Open(stream));
        Ok(())
    }

    /// What has changed since the last call; waits for it at most so long. Nothing where nothing
    /// has.
    ///
    /// # Errors
    /// When the watch has ended, or there was none: all is to be read again.
    pub fn next(&mut self, within: Duration) -> Result<Vec<KeyChange>, EtcdError> {
        let Some(mut open) = self.watch.take() else { return Err(EtcdError::NoEndpoint) };
        let Some(line) = self.watcher.next_line(&mut open.0, within)? else {
            self.watch = Some(open);
            return Ok(Vec::new());
        };
        let line: WatchLine =
            serde_json::from_slice(&line).map_err(|e| self.watcher.not_etcd(e))?;
        if let Some(error) = line.error {
            self.watcher.leave();
            return Err(self.watcher.not_etcd(format!("the watch ends: {error}")));
        }
        if line.result.canceled || line.result.compact_revision > Int(0) {
            self.watcher.leave();
            let reason = format!("the watch is cancelled: {}", line.result.cancel_reason);
            return Err(self.watcher.not_etcd(reason));
        }
        self.watch = Some(open);
        let change = |event: WatchEvent| match event.kind.as_str() {
            "DELETE" => KeyChange::Gone { key: event.kv.key.0 },
            _ => KeyChange::Put { key: event.kv.key.0, value: event.kv.value.0 },
        };
        Ok(line.result.events.into_iter().map(change).collect())
    }

    /// Nothing has come for too long: all is to be read again, and another server watched.
    pub fn give_up(&mut self) {
        self.watch = None;
        self.watcher.leave();
    }

    /// Removes ranges of keys and writes these, all or nothing.
    ///
    /// # Errors
    /// When etcd does not answer, or refuses. Whether it was done is then not known.
    pub fn write(
        &mut self,
        now: Nanos,
        remove: &[(String, String)],
        put: Vec<(String, Vec<u8>)>,
    ) -> Result<(), EtcdError> {
        let lease = self.lease(now)?;
        let gone = remove.iter().map(|(from, to)| {
            Request::Delete(Range {
                key: from.as_str().into(),
                range_end: Some(to.as_str().into()),
                ..Range::default()
            })
        });
        let put = put.into_iter().map(|(key, value)| {
            Request::Put(Put { key: Blob(key.into_bytes()), value: Blob(value), lease })
        });
        let success = gone.chain(put).collect();
        let outcome = self.client.transact(&Transaction { success, ..Transaction::default() });
        if outcome.as_ref().is_err_and(EtcdError::is_not_found) {
            self.lease = None;
        }
        outcome.map(drop)
    }

    /// A living lease.
    fn lease(&mut self, now: Nanos) -> Result<Int, EtcdError> {
        if let Some((lease, renewed)) = self.lease {
            if now.since(renewed) < RENEWED {
                return Ok(lease);
            }
            if self.client.keep_alive(lease)? {
                self.lease = Some((lease, now));
                return Ok(lease);
            }
            self.lease = None;
        }
        let seconds = i64::try_from(self.kept.as_secs()).unwrap_or(i64::MAX);
        let lease = self.client.grant(seconds)?;
        self.lease = Some((lease, now));
        Ok(lease)
    }

    /// Whether what was written hangs on a lease that lives, as far as is known.
    pub fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// Bytes that etcd stores, of all that use it.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn bytes_in_use(&mut self) -> Result<u64, EtcdError> {
        self.client.bytes_in_use()
    }
}
