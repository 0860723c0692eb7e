//! The thread that meets other hosts in etcd.

use super::foreign::foreign;
use super::shared::{FleetError, Shared, now, wall};
use super::teller::Teller;
use headgate_cluster::{EtcdError, EtcdWords, KeyChange, Reading, Servers};
use headgate_control::Control;
use headgate_fleet::{Found, KEPT, PREFIX, Part, PartKey, UnixSeconds, Write, period};
use headgate_units::{Bytes, Nanos};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;
use tracing::{info, warn};

/// How long etcd may take for one answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest that the thread sleeps or listens before it looks whether it is to end.
const NAP: Duration = Duration::from_millis(250);

/// After something failed it is tried again so late.
const RETRY: Nanos = Nanos::from_secs(2);

/// What was told comes back on the watch. If it does not for so long, the watch is dead.
const ECHO: Nanos = Nanos::from_secs(10);

/// How often etcd is asked how much it stores.
const ASK_SIZE: Nanos = Nanos::from_secs(60);

/// Nothing is told while etcd stores more: by default it takes no write at all beyond 2 GiB, and
/// then hosts lose their leases.
const STORED_MAX: Bytes = Bytes::from_gib(1);

/// How long a duplicate of this host is named after its last word.
const DUPLICATE: Nanos = Nanos::from_secs(300);

/// One host among others.
pub(super) struct Member {
    teller: Teller,
    control: Arc<Control>,
    shared: Arc<Shared>,
    words: EtcdWords,
    /// When something is told next.
    due: Nanos,
    /// When the watch is read anew, if it is not open.
    retry: Nanos,
    /// When what was told has to have come back.
    echo: Option<Nanos>,
    /// When etcd is asked next how much it stores.
    size_due: Nanos,
    /// It stores too much.
    full: Option<String>,
    errors: Errors,
}

/// What a remark is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Telling,
    Listening,
}

/// What is wrong now.
#[derive(Default)]
struct Errors {
    telling: Option<String>,
    listening: Option<String>,
}

impl Member {
    pub(super) fn new(
        teller: Teller,
        control: Arc<Control>,
        shared: Arc<Shared>,
        etcd: &Servers,
    ) -> Result<Member, FleetError> {
        let kept = Duration::from(KEPT);
        Ok(Member {
            teller,
            control,
            shared,
            words: EtcdWords::new(etcd, PREFIX, kept, PATIENCE)?,
            due: Nanos::ZERO,
            retry: Nanos::ZERO,
            echo: None,
            size_due: Nanos::ZERO,
            full: None,
            errors: Errors::default(),
        })
    }

    /// Until told to end.
    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            let now = now();
            if now >= self.due {
                self.tell(now);
            }
            if self.words.is_watching() {
                self.listen();
            } else if now >= self.retry {
                self.read();
            } else {
                std::thread::sleep(NAP);
            }
        }
        let running = self.shared.lock().view.running(now());
        let writes = self.teller.farewell(now(), running);
        // An etcd that hangs was noticed before, and is not waited for once more.
        if self.errors.telling.is_none() {
            let _ = self.write(now(), writes);
        }
    }

    /// Looks at this host, and tells what is new.
    fn tell(&mut self, now: Nanos) {
        let writes = self.teller.turn(&self.shared, now);
        let running = self.shared.lock().view.running(now);
        self.due = now + period(running);
        self.count_foreign(now);
        if now >= self.size_due {
            self.size_due = now + ASK_SIZE;
            self.full = self.fullness();
        }
        if let Some(full) = &self.full {
            let full = full.clone();
            return self.say(About::Telling, Some(full));
        }
        match self.write(now, writes) {
            Ok(()) => {
                self.teller.told();
                self.echo.get_or_insert(now + ECHO);
                self.say(About::Telling, None);
            }
            Err(e) => {
                if !self.words.has_lease() {
                    self.teller.publisher().lost_all();
                }
                self.due = now + RETRY;
                self.say(About::Telling, Some(e.to_string()));
            }
        }
    }

    /// Why nothing is told although etcd answers.
    fn fullness(&mut self) -> Option<String> {
        // An etcd that does not say it is asked again.
        let stored = Bytes(self.words.bytes_in_use().ok()?);
        (stored > STORED_MAX).then(|| {
            format!(
                "etcd stores {stored}, and this host tells nothing more beyond {STORED_MAX}; \
                 expected an etcd that is compacted: start it with --auto-compaction-retention=1h, \
                 or use 'etcdctl compact'"
            )
        })
    }

    fn write(&mut self, now: Nanos, writes: Vec<Write>) -> Result<(), EtcdError> {
        let (mut remove, mut put) = (Vec::new(), Vec::new());
        for write in writes {
            match write {
                Write::Put(key, value) => put.push((key.to_string(), value)),
                Write::RemoveFrom(key) => remove.push((key.to_string(), key.end_of_kind())),
            }
        }
        self.words.write(now, &remove, put)
    }

    /// Reads all, and watches from then on.
    fn read(&mut self) {
        let begun = now();
        let wall = UnixSeconds(wall());
        self.shared.lock().view.begin_reading();
        let shared = self.shared.clone();
        let own = self.shared.own;
        let read = self.words.read(|key, value| {
            let host = std::str::from_utf8(key).ok().and_then(|key| key.parse::<PartKey>().ok());
            if host.is_none_or(|key| key.host != own) {
                shared.lock().view.put(begun, Found::Read(wall), key, value);
            }
        });
        match read {
            Ok(reading) => {
                let mut state = self.shared.lock();
                state.view.end_reading();
                state.view.heard(now());
                drop(state);
                // What stands there may be anything.
                self.teller.publisher().lost_all();
                (self.due, self.echo) = (Nanos::ZERO, None);
                let cut = matches!(reading, Reading::Cut);
                self.say(
                    About::Listening,
                    cut.then(|| "there are more keys than hosts have".into()),
                );
            }
            Err(e) => {
                self.retry = now() + RETRY;
                self.say(About::Listening, Some(e.to_string()));
            }
        }
    }

    /// Hears what has changed, until something is to be told.
    fn listen(&mut self) {
        let left = Duration::from(self.due.since(now())).min(NAP);
        match self.words.next(left.max(Duration::from_millis(1))) {
            Ok(changes) => {
                if !changes.is_empty() {
                    let now = now();
                    self.shared.lock().view.heard(now);
                    changes.into_iter().for_each(|change| self.hear(now, change));
                }
                if self.echo.is_some_and(|due| now() > due) {
                    self.words.give_up();
                    self.retry = now();
                    self.echo = None;
                    self.say(About::Listening, Some("etcd does not say what has changed".into()));
                }
            }
            Err(e) => {
                self.retry = now() + RETRY;
                self.say(About::Listening, Some(e.to_string()));
            }
        }
    }

    fn hear(&mut self, now: Nanos, change: KeyChange) {
        let (KeyChange::Put { key, .. } | KeyChange::Gone { key }) = &change;
        let read = std::str::from_utf8(key).ok().and_then(|key| key.parse::<PartKey>().ok());
        if let Some(own) = read.filter(|key| key.host == self.shared.own) {
            return self.hear_own(now, own, &change);
        }
        let mut state = self.shared.lock();
        match &change {
            KeyChange::Put { key, value } => state.view.put(now, Found::Told, key, value),
            KeyChange::Gone { key } => state.view.remove(key),
        }
    }

    /// What this host has told comes back; or somebody else has told it, or taken it away.
    fn hear_own(&mut self, now: Nanos, key: PartKey, change: &KeyChange) {
        self.echo = None;
        let told = match change {
            KeyChange::Gone { .. } => return self.teller.publisher().lost(key.kind),
            KeyChange::Put { value, .. } => Part::decode(key.kind, value),
        };
        match told {
            Ok((header, _)) if header.instance == self.teller.instance() => {}
            Ok((header, _)) => {
                self.teller.publisher().lost(key.kind);
                let instance: String =
                    header.instance.iter().map(|byte| format!("{byte:02x}")).collect();
                let mut state = self.shared.lock();
                if state.duplicate.is_none() {
                    warn!(instance, "another daemon tells other hosts things in this host's name");
                }
                state.duplicate = Some((instance, now));
            }
            Err(e) => {
                warn!(key = %key, error = %e, "what this host has told was overwritten");
                self.teller.publisher().lost(key.kind);
            }
        }
    }

    /// Tells the control plane what others do on storage that this host has, too.
    fn count_foreign(&self, now: Nanos) {
        let mut state = self.shared.lock();
        if state.duplicate.as_ref().is_some_and(|(_, at)| now.since(*at) > DUPLICATE) {
            state.duplicate = None;
        }
        let foreign = foreign(&state.view, self.shared.own, now);
        drop(state);
        self.control.set_foreign(foreign);
    }

    /// What is wrong now; the log is told when it begins and when it ends.
    fn say(&mut self, about: About, error: Option<String>) {
        let known = match about {
            About::Telling => &mut self.errors.telling,
            About::Listening => &mut self.errors.listening,
        };
        match (&*known, &error) {
            (None, Some(error)) => warn!(error, ?about, "the view of all hosts grows old"),
            (Some(_), None) => info!(?about, "the view of all hosts is kept again"),
            _ => {}
        }
        *known = error;
        let Errors { telling, listening } = &self.errors;
        self.shared.lock().error = listening.as_ref().or(telling.as_ref()).cloned();
    }
}
