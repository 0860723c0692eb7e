//! A thread per remote disk that gets it a new connection when the old one is lost.
//!
//! It sleeps while the connection holds, and ends when the shard drops its side of the channel.

use super::announced::Announced;
use super::connection::{Connection, Export, RemoteError};
use super::line::{Line, LinkId, Lost, Outlook};
use crate::backend::context::Context;
use crate::kernel::mailbox::Outlet;
use headgate_nbd::uri::Uri;
use headgate_nbd_io::ClientTls;
use headgate_stripe::{Label, Mismatch};
use headgate_units::Bytes;
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

/// Starts the thread of a disk. It tries for nothing before the shard asks through the line: what
/// it finds before the shard has the link would be told to nobody.
pub(crate) fn start(name: &str, export: &mut Export, outlet: Outlet<Context>) -> io::Result<Line> {
    let id = LinkId::new();
    let (lost, calls) = channel();
    let connection = export.connection.take();
    let dialer = Dialer {
        id,
        uri: export.uri.clone(),
        size: export.size,
        block_size: export.block_size,
        outlet,
        calls,
        patience: export.patience,
        tls: export.tls.clone(),
        label: export.label,
        announced: export.announced.clone(),
        since: Instant::now(),
        pause: BACKOFF_MIN,
        connected: None,
    };
    // The kernel's names of threads have 15 bytes.
    let name: String = format!("nbd {name}").chars().filter(char::is_ascii).take(15).collect();
    std::thread::Builder::new().name(name).stack_size(STACK).spawn(move || dialer.run())?;
    let server = export.uri.server().to_string();
    Ok(Line { id, server, connection, patience: export.patience, lost })
}

/// The standard library's resolver needs some of it.
const STACK: usize = 256 << 10;

struct Dialer {
    id: LinkId,
    uri: Uri,
    size: Bytes,
    block_size: u32,
    outlet: Outlet<Context>,
    calls: Receiver<Lost>,
    patience: Duration,
    tls: Arc<ClientTls>,
    label: Option<Label>,
    announced: Option<Arc<Announced>>,
    /// When the connection was lost.
    since: Instant,
    /// Until the next attempt.
    pause: Duration,
    /// When there was a connection again.
    connected: Option<Instant>,
}

/// The disk is gone.
struct Gone;

impl Dialer {
    fn run(mut self) {
        while let Ok(lost) = self.calls.recv() {
            let short = self.connected.is_some_and(|at| at.elapsed() < SHORT);
            let step = if lost == Lost::Useless && short {
                let reason = "the server ends the connection before it answers".to_owned();
                self.report(reason).and_then(|()| self.rest())
            } else {
                let waited = if lost == Lost::Silent { self.patience } else { Duration::ZERO };
                let now = Instant::now();
                self.since = now.checked_sub(waited).unwrap_or(now);
                self.pause = BACKOFF_MIN;
                Ok(())
            };
            if step.and_then(|()| self.dial()).is_err() {
                return;
            }
        }
    }

    /// Tries until there is a connection.
    fn dial(&mut self) -> Result<(), Gone> {
        loop {
            match self.attempt() {
                Ok(connection) => {
                    self.connected = Some(Instant::now());
                    let id = self.id;
                    let command =
                        Box::new(move |ctx: &mut Context| ctx.link_connected(id, connection));
                    return self.outlet.send(command).map_err(|_| Gone);
                }
                Err(e) => {
                    tracing::debug!(server = %self.uri, error = %e, "no connection");
                    if is_held(&e) {
                        self.tell(e.to_string(), Outlook::Evicted)?;
                    } else if is_another(&e) {
                        self.tell(e.to_string(), Outlook::GivenUp)?;
                    } else {
                        self.report(e.to_string())?;
                    }
                    self.rest()?;
                }
            }
        }
    }

    fn attempt(&self) -> Result<Connection, RemoteError> {
        // An attempt at a server that does not answer shall not outlast the patience by much.
        let left = self.patience.saturating_sub(self.since.elapsed());
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
        Ok(connection)
    }

    fn report(&self, reason: String) -> Result<(), Gone> {
        let outlook =
            if self.since.elapsed() < self.patience { Outlook::Trying } else { Outlook::GivenUp };
        self.tell(reason, outlook)
    }

    fn tell(&self, reason: String, outlook: Outlook) -> Result<(), Gone> {
        let id = self.id;
        let command = move |ctx: &mut Context| ctx.link_down(id, reason, outlook);
        self.outlet.send(Box::new(command)).map_err(|_| Gone)
    }

    /// Pauses, with an ear on the disk's end, and not past the end of the patience.
    fn rest(&mut self) -> Result<(), Gone> {
        let left = self.patience.saturating_sub(self.since.elapsed());
        let pause = if left.is_zero() { self.pause } else { self.pause.min(left) };
        self.pause = (self.pause * 2).min(BACKOFF_MAX);
        match self.calls.recv_timeout(pause) {
            Err(RecvTimeoutError::Disconnected) => Err(Gone),
            Err(RecvTimeoutError::Timeout) | Ok(_) => Ok(()),
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
        };
        let told = |export: &mut Export, ask: fn(&Line)| {
            let (mailbox, inbox) = Mailbox::<Context>::new().unwrap();
            let line = start("db", export, mailbox.outlet(|whole| whole)).unwrap();
            drop(mailbox);
            ask(&line);
            drop(line);
            // The thread has ended when nobody can send any more.
            inbox.into_iter().count()
        };
        assert_eq!(told(&mut export, |_| {}), 0);
        assert!(told(&mut export, |line| line.lost.send(Lost::Working).unwrap()) > 0);
    }
}
