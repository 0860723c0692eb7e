use super::client::{Client, part};
use super::error::EtcdError;
use super::wire::{Blob, CreatedAt, Int, KeyValue, Put, Range, Request, Transaction};
use crate::identity::Identity;
use crate::lease::{Duty, Holder, LeaseError, Term, Terms, Token};
use headgate_units::Nanos;
use std::collections::BTreeMap;

const PREFIX: &str = "/headgate/disk/";

/// The leases of all disks that this host serves, as keys in etcd that hang on one etcd lease.
///
/// A disk's [`Token`] is the revision at which its key was made: etcd counts those up and never
/// back.
///
/// All calls block for at most the client's timeout, which should be a fifth of the terms' `ttl`.
/// `now` is the caller's monotonic clock, read *before* the call.
#[derive(Debug)]
pub struct EtcdLeases {
    client: Client,
    own: Holder,
    terms: Terms,
    session: Option<(Int, Term)>,
    disks: BTreeMap<String, Token>,
    /// Lost, and not told yet.
    lost: Vec<String>,
}

fn key(disk: &str) -> Result<String, EtcdError> {
    Ok(format!("{PREFIX}{}", part(disk)?))
}

fn token(kv: &KeyValue) -> Token {
    Token(u64::try_from(kv.create_revision.0).unwrap_or(0))
}

impl EtcdLeases {
    /// This host holds nothing yet.
    pub fn new(client: Client, own: &Identity, terms: Terms) -> EtcdLeases {
        EtcdLeases {
            client,
            own: Holder::of(own),
            terms,
            session: None,
            disks: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    /// What this host may do with its disks at `now`. Asks nobody.
    pub fn duty(&mut self, now: Nanos) -> Duty {
        self.session.as_mut().map_or(Duty::Stop, |(_, term)| term.duty(now))
    }

    /// The disks that are held, with their numbers.
    pub fn disks(&self) -> impl Iterator<Item = (&str, Token)> {
        self.disks.iter().map(|(disk, token)| (disk.as_str(), *token))
    }

    /// A living session.
    fn session(&mut self, now: Nanos) -> Result<Int, EtcdError> {
        if let Some((lease, term)) = &mut self.session
            && term.duty(now) != Duty::Stop
        {
            return Ok(*lease);
        }
        self.lose();
        let seconds = i64::try_from(self.terms.ttl().0.div_ceil(1_000_000_000)).unwrap_or(i64::MAX);
        let lease = self.client.grant(seconds)?;
        self.session = Some((lease, Term::granted(self.terms, now)));
        Ok(lease)
    }

    /// Becomes the holder of a disk, or says who is.
    ///
    /// # Errors
    /// [`LeaseError::Held`] with the holder's name and number, or why etcd could not be asked; then
    /// nothing is held.
    pub fn acquire(&mut self, now: Nanos, disk: &str) -> Result<Token, LeaseError> {
        let key = key(disk)?;
        let lease = self.session(now)?;
        let value = Blob(serde_json::to_vec(&self.own).unwrap_or_default());
        let outcome = self.client.transact(&Transaction {
            compare: vec![CreatedAt::new(&key, 0)],
            success: vec![Request::Put(Put { key: key.as_str().into(), value, lease })],
            failure: vec![Request::Range(Range { key: key.as_str().into(), ..Range::default() })],
        });
        if outcome.as_ref().is_err_and(EtcdError::is_not_found) {
            self.lose();
        }
        let outcome = outcome?;
        let token = match outcome.succeeded {
            true => Token(u64::try_from(outcome.header.revision.0).unwrap_or(0)),
            false => match outcome.found().first() {
                // Ours: the answer to an earlier try was lost.
                Some(kv) if kv.lease == lease => token(kv),
                Some(kv) => {
                    let unknown = || Holder {
                        name: "unknown".into(),
                        host: String::new(),
                        instance: String::new(),
                        pid: 0,
                    };
                    let holder = serde_json::from_slice(&kv.value.0).unwrap_or_else(|_| unknown());
                    return Err(LeaseError::Held {
                        disk: disk.to_owned(),
                        holder,
                        token: token(kv),
                    });
                }
                None => return Err(self.client.not_etcd("a key that exists and does not").into()),
            },
        };
        self.disks.insert(disk.to_owned(), token);
        Ok(token)
    }

    /// The session is no more, and no disk is held.
    fn lose(&mut self) {
        self.session = None;
        self.lost.extend(std::mem::take(&mut self.disks).into_keys());
    }

    /// Prolongs all leases, and returns the disks that were lost since the last time, to time or to
    /// force: stop those at once.
    ///
    /// # Errors
    /// When etcd could not be asked: go on by [`duty`](EtcdLeases::duty), and try again soon.
    pub fn renew(&mut self, now: Nanos) -> Result<Vec<String>, EtcdError> {
        if self.duty(now) == Duty::Stop {
            self.lose();
        }
        if let Some((lease, _)) = self.session {
            if self.client.keep_alive(lease)? {
                self.check()?;
                if let Some((_, term)) = &mut self.session {
                    term.renewed(now);
                }
            } else {
                self.lose();
            }
        }
        Ok(std::mem::take(&mut self.lost))
    }

    /// Finds the disks whose keys are no longer ours.
    fn check(&mut self) -> Result<(), EtcdError> {
        let held: Vec<(String, Token)> = self.disks.iter().map(|(d, t)| (d.clone(), *t)).collect();
        // A server takes 128 in one transaction.
        for some in held.chunks(100) {
            let mut ranges = Vec::new();
            for (disk, _) in some {
                ranges.push(Request::Range(Range {
                    key: key(disk)?.as_str().into(),
                    ..Range::default()
                }));
            }
            let found =
                self.client.transact(&Transaction { success: ranges, ..Transaction::default() })?;
            if found.responses.len() != some.len() {
                return Err(self.client.not_etcd("another number of answers than of questions"));
            }
            for ((disk, token_of), answer) in some.iter().zip(&found.responses) {
                if answer.response_range.kvs.first().map(token) != Some(*token_of) {
                    self.disks.remove(disk);
                    self.lost.push(disk.clone());
                }
            }
        }
        Ok(())
    }

    /// Gives a disk back: no request may be in flight any more.
    ///
    /// # Errors
    /// When etcd could not be asked; the lease then ends with the session.
    pub fn release(&mut self, disk: &str) -> Result<(), EtcdError> {
        let Some(token) = self.disks.remove(disk) else { return Ok(()) };
        self.remove(disk, token).map(drop)
    }

    /// Takes a disk from the holder with this number, dead or alive; whether that one still had it.
    /// The disk can then be acquired. A living holder stops at its next renewal, or when it cannot
    /// reach etcd at the end of its term: unless that host is known to be dead, serve nothing
    /// before [`Terms::ttl`] has passed.
    ///
    /// # Errors
    /// When etcd could not be asked.
    pub fn evict(&mut self, disk: &str, holder: Token) -> Result<bool, EtcdError> {
        self.remove(disk, holder)
    }

    fn remove(&mut self, disk: &str, token: Token) -> Result<bool, EtcdError> {
        let key = key(disk)?;
        let revision = i64::try_from(token.0).unwrap_or(i64::MAX);
        let outcome = self.client.transact(&Transaction {
            compare: vec![CreatedAt::new(&key, revision)],
            success: vec![Request::Delete(Range { key: key.as_str().into(), ..Range::default() })],
            failure: Vec::new(),
        })?;
        Ok(outcome.succeeded)
    }
}
