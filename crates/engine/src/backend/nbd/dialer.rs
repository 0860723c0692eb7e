//! A thread per server of a remote disk that gets it a new connection when one is lost.
//!
//! It sleeps while the connections hold, and ends when the shard drops its side of the channel.

use super::announced::Announced;
use super::connection::{Connection, Export, RemoteError};
use super::line::{Asker, Call, Line, LinkId, Lost, Outlook, ServerLines};
use crate::backend::context::Context;
use crate::kernel::mailbox::Outlet;
use headgate_nbd::uri::Uri;
use headgate_nbd_io::ClientTls;
use headgate_stripe::{Label, Mismatch};
use headgate_units::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// For so long requests wait for a server that is gone or silent; then they fail with `EIO`, and
/// later ones at once, until it is back.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long one attempt may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first pause between attempts, which doubles.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// The longest pause between attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// A connection of this age that never answered was idle, not refused.
const SHORT: Duration = Duration::from_secs(10);

/// Starts the thread of a server. It tries for nothing before the shard asks through a line: what
/// it finds before the shard has the link would be told to nobody.
pub(crate) fn start(
    name: &str,
    export: &mut Export,
    outlet: Outlet<Context>,
) -> io::Result<ServerLines> {
    let (calls, heard) = channel();
    let mut connection = export.connection.take();
    let lines: Vec<Line> = (0..export.connections.get())
        .map(|number| Line {
            id: LinkId::new(),
            connection: connection.take(),
            patience: export.patience,
            asker: Asker::new(number, calls.clone()),
        })
        .collect();
    let dialer = Dialer {
        uri: export.uri.clone(),
        size: export.size,
        block_size: export.block_size,
        outlet,
        calls: heard,
        patience: export.patience,
        tls: export.tls.clone(),
        label: export.label,
        announced: export.announced.clone(),
        connections: lines.iter().map(|line| Dialled::new(line.id)).collect(),
        heard: VecDeque::new(),
        wanted: VecDeque::new(),
        pause: BACKOFF_MIN,
    };
    // The kernel's names of threads have 15 bytes.
    let name: String = format!("nbd {name}").chars().filter(char::is_ascii).take(15).collect();
    std::thread::Builder::new().name(name).stack_size(STACK).spawn(move || dialer.run())?;
    Ok(ServerLines { server: export.uri.server().to_string(), lines })
}

/// The standard library's resolver needs some of it.
const STACK: usize = 256 << 10;

struct Dialer {
    uri: Uri,
    size: Bytes,
    block_size: u32,
    outlet: Outlet<Context>,
    calls: Receiver<Call>,
    patience: Duration,
    tls: Arc<ClientTls>,
    label: Option<Label>,
    announced: Option<Arc<Announced>>,
    /// By number.
    connections: Vec<Dialled>,
    /// Calls that came during a pause.
    heard: VecDeque<Call>,
    /// Connections that are asked for, by number, as they were asked for.
    wanted: VecDeque<u8>,
    /// Until the next attempt.
    pause: Duration,
}

/// What is known of a connection.
struct Dialled {
    id: LinkId,
    /// When it was lost.
    since: Instant,
    /// When it was made, if it ever was.
    made: Option<Instant>,
}

impl Dialled {
    fn new(id: LinkId) -> Dialled {
        Dialled { id, since: Instant::now(), made: None }
    }
}

/// What an attempt was good for.
enum Attempt {
    Made(Connection),
    /// The server can have one connection only, and this is another.
    Refused,
}

/// The disk is gone.
struct Gone;

impl Dialer {
    fn run(mut self) {
        while self.listen().is_ok() && self.dial().is_ok() {}
    }

    /// Waits until a connection is wanted, and hears of all that are.
    fn listen(&mut self) -> Result<(), Gone> {
        if self.wanted.is_empty() && self.heard.is_empty() {
            self.heard.push_back(self.calls.recv().map_err(|_| Gone)?);
        }
        self.heard.extend(self.calls.try_iter());
        while let Some(call) = self.heard.pop_front() {
            self.want(call)?;
        }
        Ok(())
    }

    fn want(&mut self, Call { number, lost }: Call) -> Result<(), Gone> {
        let Some(connection) = self.connections.get_mut(usize::from(number)) else {
            return Ok(());
        };
        self.wanted.push_back(number);
        let short = connection.made.is_some_and(|at| at.elapsed() < SHORT);
        if lost == Lost::Useless && short {
            self.report(number, "the server ends the connection before it answers")?;
            return self.rest();
        }
        let waited = if lost == Lost::Silent { self.patience } else { Duration::ZERO };
        let now = Instant::now();
        connection.since = now.checked_sub(waited).unwrap_or(now);
        self.pause = BACKOFF_MIN;
        Ok(())
    }

    /// Tries once for the connection that was asked for first.
    fn dial(&mut self) -> Result<(), Gone> {
        let Some(&number) = self.wanted.front() else { return Ok(()) };
        let Some(wanted) = self.connections.get_mut(usize::from(number)) else { return Ok(()) };
        let (id, since) = (wanted.id, wanted.since);
        match self.attempt(number, since) {
            Ok(attempt) => {
                self.wanted.pop_front();
                let command: Box<dyn FnOnce(&mut Context) + Send> = match attempt {
                    Attempt::Made(connection) => {
                        if let Some(made) = self.connections.get_mut(usize::from(number)) {
                            made.made = Some(Instant::now());
                        }
                        Box::new(move |ctx| ctx.link_connected(id, connection))
                    }
                    Attempt::Refused => Box::new(move |ctx| ctx.link_spare(id)),
                };
                self.outlet.send(command).map_err(|_| Gone)
            }
            Err(e) => {
                tracing::debug!(server = %self.uri, error = %e, "no connection");
                let reason = e.to_string();
                for number in self.wanted.clone() {
                    if is_held(&e) {
                        self.tell(number, &reason, Outlook::Evicted)?;
                    } else if is_another(&e) {
                        self.tell(number, &reason, Outlook::GivenUp)?;
                    } else {
                        self.report(number, &reason)?;
                    }
                }
                self.rest()
            }
        }
    }

    fn attempt(&self, number: u8, since: Instant) -> Result<Attempt, RemoteError> {
        // An attempt at a server that does not answer shall not outlast the patience by much.
        let left = self.patience.saturating_sub(since.elapsed());
        let patience =
            if left.is_zero() { HANDSHAKE } else { left.clamp(Duration::from_secs(1), HANDSHAKE) };
        let connection = match &self.label {
            None => {
                let connection = Connection::open(&self.uri, patience, &self.tls)?;
                connection.check(&self.uri, self.size, self.block_size)?;
                connection
            }
            Some(label) => {
                let connection = Connection::open_member(
                    &self.uri,
                    patience,
                    &self.tls,
                    label,
                    self.announced.as_deref(),
                )?;
                connection.check_room(&self.uri, self.size, self.block_size)?;
                connection
            }
        };
        let welcome = number == 0 || connection.offer().several_connections();
        Ok(if welcome { Attempt::Made(connection) } else { Attempt::Refused })
    }

    fn report(&self, number: u8, reason: &str) -> Result<(), Gone> {
        let lost = self.connections.get(usize::from(number)).map(|one| one.since.elapsed());
        let outlook = if lost.unwrap_or_default() < self.patience {
            Outlook::Trying
        } else {
            Outlook::GivenUp
        };
        self.tell(number, reason, outlook)
    }

    fn tell(&self, number: u8, reason: &str, outlook: Outlook) -> Result<(), Gone> {
        let Some(Dialled { id, .. }) = self.connections.get(usize::from(number)) else {
            return Ok(());
        };
        let (id, reason) = (*id, reason.to_owned());
        let command = move |ctx: &mut Context| ctx.link_down(id, reason, outlook);
        self.outlet.send(Box::new(command)).map_err(|_| Gone)
    }

    /// Pauses, with an ear on the disk's end, and not past the end of anybody's patience.
    fn rest(&mut self) -> Result<(), Gone> {
        let lefts = self.wanted.iter().filter_map(|&number| {
            let lost = self.connections.get(usize::from(number))?.since.elapsed();
            Some(self.patience.saturating_sub(lost)).filter(|left| !left.is_zero())
        });
        let pause = lefts.min().map_or(self.pause, |left| self.pause.min(left));
        self.pause = (self.pause * 2).min(BACKOFF_MAX);
        let until = Instant::now() + pause;
        loop {
            match self.calls.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Disconnected) => return Err(Gone),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Ok(call) => self.heard.push_back(call),
            }
        }
    }
}

/// Whether another host may serve the disk, and this one may not any more.
fn is_held(error: &RemoteError) -> bool {
    match error {
        RemoteError::Held { .. } => true,
        RemoteError::Member { why, .. } => matches!(**why, Mismatch::Lease { .. }),
        _ => false,
    }
}

/// Whether the export is not, or not any more, the one that the disk lies on: nobody waits for it.
fn is_another(error: &RemoteError) -> bool {
    match error {
        RemoteError::Changed { .. }
        | RemoteError::Unusable { .. }
        | RemoteError::Label { .. }
        | RemoteError::Held { .. }
        | RemoteError::Member { .. } => true,
        RemoteError::Connect { .. }
        | RemoteError::Handshake { .. }
        | RemoteError::LabelUnread { .. }
        | RemoteError::NotLabelled { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::mailbox::Mailbox;
    use headgate_nbd::client::connections::Connections;

    /// A dialer that was quicker than the shard found no link to tell of its connection, and was
    /// not asked again.
    #[test]
    fn nothing_is_told_before_the_shard_asks() {
        let dir = tempfile::tempdir().unwrap();
        let nobody = dir.path().join("nobody.sock");
        let mut export = Export {
            uri: format!("nbd+unix:///db?socket={}", nobody.display()).parse().unwrap(),
            size: Bytes(1 << 20),
            block_size: 512,
            connection: None,
            patience: PATIENCE,
            tls: Arc::new(ClientTls::by_uri()),
            label: None,
            announced: None,
            connections: Connections::new(3).unwrap(),
        };
        let told = |export: &mut Export, ask: fn(&ServerLines)| {
            let (mailbox, inbox) = Mailbox::<Context>::new().unwrap();
            let line = start("db", export, mailbox.outlet(|whole| whole)).unwrap();
            drop(mailbox);
            ask(&line);
            drop(line);
            // The thread has ended when nobody can send any more.
            inbox.into_iter().count()
        };
        assert_eq!(told(&mut export, |_| {}), 0);
        assert!(told(&mut export, |server| server.lines[1].asker.ask(Lost::Working)) > 0);
    }
}
