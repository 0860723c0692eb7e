//! The memory that all connections of a server share.
//!
//! Memory is counted in [`CHUNK`]s. A connection has its first chunk for itself, and all others out
//! of one budget, of which one disk may hold a quarter. A connection that gets no more
//! serves its requests one by one in the chunk that it has: it gets slower, and never stands still
//! for what other connections hold.
//!
//! What is counted is what may be resident: a chunk counts from before its pages are touched until
//! they are given back to the system.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// What memory is counted in, in bytes; also what every connection has for itself.
pub const CHUNK: usize = 64 << 10;

/// One disk's connections hold at most one in so many bytes of the budget.
const PER_DISK: usize = 4;

/// From so much on, of eight parts of the budget, connections keep nothing that they do not use.
const TIGHT_EIGHTHS: usize = 6;

/// See the module's documentation.
#[derive(Debug)]
pub struct Budget {
    most: usize,
    used: AtomicUsize,
    denied: AtomicU64,
    disks: Mutex<HashMap<String, Weak<DiskShare>>>,
}

/// What the connections of one disk hold of the budget.
#[derive(Debug, Default)]
struct DiskShare(AtomicUsize);

/// What one connection holds. Given back with it.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    disk: Arc<DiskShare>,
    /// Its buffers, the first chunk among them. Written by the connection alone.
    claimed: AtomicUsize,
    /// What it holds beside them, all of it out of the budget.
    inbox: AtomicUsize,
    /// Turns in which the connection did something. Written by the connection alone.
    turns: AtomicU64,
    /// Did the connection get less than it asked for, the last time.
    short: AtomicBool,
    /// Somebody looks whether it uses what it holds.
    watched: AtomicBool,
    watch: OnceLock<Watch>,
}

/// What has an account watched.
struct Watch(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// What became of the watch over an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// It holds something: it is watched on.
    Still,
    /// It holds nothing, and has itself watched when it does.
    NoMore,
}

impl Budget {
    /// So many bytes, besides the first chunk of each connection.
    pub fn new(most: usize) -> Arc<Budget> {
        Arc::new(Budget {
            most,
            used: AtomicUsize::new(0),
            denied: AtomicU64::new(0),
            disks: Mutex::default(),
        })
    }

    /// An account for a connection to a disk.
    pub fn account(self: &Arc<Self>, disk: &str) -> Arc<Account> {
        Arc::new(Account {
            budget: self.clone(),
            disk: self.disk(disk),
            claimed: AtomicUsize::new(0),
            inbox: AtomicUsize::new(0),
            turns: AtomicU64::new(0),
            short: AtomicBool::new(false),
            watched: AtomicBool::new(true),
            watch: OnceLock::new(),
        })
    }

    fn disk(&self, name: &str) -> Arc<DiskShare> {
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = disks.get(name).and_then(Weak::upgrade) {
            return known;
        }
        disks.retain(|_, share| share.strong_count() > 0);
        let new = Arc::new(DiskShare::default());
        disks.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }

    /// The most bytes that connections hold, besides the first chunk of each.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Bytes that connections hold of it now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How often a connection got less than it asked for.
    pub fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    fn is_tight(&self) -> bool {
        self.used() >= self.most / 8 * TIGHT_EIGHTHS
    }
}

/// Adds to a count unless it would get beyond `most`.
fn add_within(count: &AtomicUsize, bytes: usize, most: usize) -> bool {
    let more = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= most);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// The part of `bytes` more, beyond `held`, that comes out of the budget.
fn shared_part(held: usize, bytes: usize) -> usize {
    (held + bytes).saturating_sub(CHUNK) - held.saturating_sub(CHUNK)
}

impl Account {
    /// Takes `bytes` more for buffers; `false` when they are not to be had.
    pub fn claim(&self, bytes: usize) -> bool {
        let held = self.claimed.load(Ordering::Relaxed);
        let shared = shared_part(held, bytes);
        let got = shared == 0 || self.claim_shared(shared);
        if got {
            // Before the watch is looked at, and so in `rest`.
            self.claimed.store(held + bytes, Ordering::SeqCst);
            self.watch_what_is_held();
        } else {
            self.budget.denied.fetch_add(1, Ordering::Relaxed);
        }
        self.short.store(!got, Ordering::Relaxed);
        got
    }

    fn claim_shared(&self, bytes: usize) -> bool {
        if !add_within(&self.disk.0, bytes, self.budget.most / PER_DISK) {
            return false;
        }
        let got = add_within(&self.budget.used, bytes, self.budget.most);
        if !got {
            self.disk.0.fetch_sub(bytes, Ordering::Relaxed);
        }
        got
    }

    /// Takes `bytes` for the inbox; `false` when they are not to be had. The connection's own chunk
    /// stays for its buffers.
    pub fn claim_inbox(&self, bytes: usize) -> bool {
        let got = self.claim_shared(bytes);
        if got {
            self.inbox.fetch_add(bytes, Ordering::SeqCst);
            self.watch_what_is_held();
        }
        got
    }

    /// Gives all that was claimed for the inbox back. Its pages went back to the system before.
    pub fn release_inbox(&self) {
        self.release_shared(self.inbox.swap(0, Ordering::Relaxed));
    }

    fn release_shared(&self, bytes: usize) {
        self.disk.0.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Gives `bytes` of buffers back. Their pages went back to the system before.
    pub fn release(&self, bytes: usize) {
        let held = self.claimed.load(Ordering::Relaxed);
        let bytes = bytes.min(held);
        let shared = shared_part(held - bytes, bytes);
        self.claimed.store(held - bytes, Ordering::Relaxed);
        self.release_shared(shared);
    }

    /// What the connection does not use should go back at once: others have too little, or nearly.
    pub fn is_tight(&self) -> bool {
        self.claimed() > CHUNK && (self.short.load(Ordering::Relaxed) || self.budget.is_tight())
    }

    /// The connection did something.
    pub fn on_turn(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// A number that changes whenever the connection does something.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Bytes that the connection holds.
    pub fn claimed(&self) -> usize {
        self.claimed.load(Ordering::SeqCst) + self.inbox.load(Ordering::SeqCst)
    }

    /// Has `watch` called whenever the account begins to hold something and is not watched. To be
    /// set once; until [`Account::rest`] it counts as watched.
    pub fn on_held(&self, watch: impl Fn() + Send + Sync + 'static) {
        // Of two the first stays.
        let _ = self.watch.set(Watch(Box::new(watch)));
    }

    fn watch_what_is_held(&self) {
        // The connection's own line, and nobody writes it: a swap each time would cost more.
        if self.watched.load(Ordering::SeqCst) || self.watched.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(Watch(watch)) = self.watch.get() {
            watch();
        }
    }

    /// Ends the watch over an account that holds nothing.
    pub fn rest(&self) -> Watched {
        if self.claimed() > 0 {
            return Watched::Still;
        }
        self.watched.store(false, Ordering::SeqCst);
        // What was claimed in between may have found it watched.
        if self.claimed() > 0 && !self.watched.swap(true, Ordering::SeqCst) {
            return Watched::Still;
        }
        Watched::NoMore
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.release_inbox();
        self.release(self.claimed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_disk_holds_its_part_and_every_connection_its_own_chunk() {
        let budget = Budget::new(16 * CHUNK);
        let greedy: Vec<_> = (0..8).map(|_| budget.account("a")).collect();
        greedy.iter().for_each(|account| while account.claim(CHUNK) {});
        assert_eq!(budget.used(), 4 * CHUNK);
        assert!(greedy.iter().all(|account| account.claimed() >= CHUNK));
        let neighbour = budget.account("b");
        assert!(neighbour.claim(5 * CHUNK) && !neighbour.claim(CHUNK));
        drop(greedy);
        assert_eq!(budget.used(), 4 * CHUNK);
        drop(neighbour);
        assert_eq!(budget.used(), 0);
        assert!(budget.denied() >= 8);
    }

    #[test]
    fn an_account_is_watched_while_it_holds_something_and_said_to_be_once() {
        let account = Budget::new(16 * CHUNK).account("a");
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        account.on_held(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        assert!(account.claim(CHUNK));
        assert_eq!((account.rest(), calls.load(Ordering::Relaxed)), (Watched::Still, 0));
        for (round, inbox) in [(1, false), (2, true)] {
            account.release(CHUNK);
            account.release_inbox();
            assert_eq!(account.rest(), Watched::NoMore);
            assert!(if inbox { account.claim_inbox(CHUNK) } else { account.claim(CHUNK) });
            assert!(account.claim(0));
            assert_eq!(calls.load(Ordering::Relaxed), round);
            assert_eq!(account.rest(), Watched::Still);
        }
    }

    /// A connection claims while its watch is ended, again and again.
    #[test]
    fn what_is_claimed_while_a_watch_ends_is_watched() {
        let account = Budget::new(16 * CHUNK).account("a");
        let (told, calls) = std::sync::mpsc::channel();
        account.on_held(move || told.send(()).unwrap());
        let mut watched = Watched::Still;
        for _ in 0..20_000 {
            std::thread::scope(|scope| {
                let connection = scope.spawn(|| assert!(account.claim(CHUNK)));
                if watched == Watched::Still {
                    watched = account.rest();
                }
                connection.join().unwrap();
            });
            let calls = calls.try_iter().count();
            assert_eq!(usize::from(watched == Watched::NoMore), calls, "it is watched once");
            watched = Watched::Still;
            account.release(CHUNK);
        }
    }

    proptest! {
        /// Against sums made anew each time.
        #[test]
        fn what_is_used_is_what_connections_hold_beyond_their_first_chunks(
            steps in prop::collection::vec((0..5usize, 0..40usize, any::<bool>()), 1..100),
        ) {
            let budget = Budget::new(64 * CHUNK);
            let accounts: Vec<_> = (0..5).map(|n| budget.account(["a", "b"][n % 2])).collect();
            for (which, chunks, takes) in steps {
                let account = &accounts[which];
                if takes {
                    account.claim(chunks * CHUNK);
                } else {
                    account.release(chunks * CHUNK);
                }
                let beyond = |a: &Arc<Account>| a.claimed().saturating_sub(CHUNK);
                prop_assert_eq!(budget.used(), accounts.iter().map(beyond).sum::<usize>());
                for first in 0..2 {
                    let of_disk: usize = accounts.iter().skip(first).step_by(2).map(beyond).sum();
                    prop_assert!(of_disk <= 16 * CHUNK);
                }
            }
        }
    }
}
