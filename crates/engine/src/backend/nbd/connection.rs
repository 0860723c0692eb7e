//! Connecting to a server and negotiating with it. Everything here may block, up to a deadline.

use super::announced::Announced;
use super::offer::{Offer, Unusable};
use crate::topology::Told;
use headgate_nbd::client::connections::Connections;
use headgate_nbd::client::form::Form;
use headgate_nbd::client::handshake::{HandshakeError, PolicyAnswer, ReplyStyle};
use headgate_nbd::counters::{self, Counting};
use headgate_nbd::uri::Uri;
use headgate_nbd_io::{ClientTls, Dial, DialError, Direct, Opened, say_goodbye};
use headgate_stripe::{LABEL_LEN, Label, LabelError, Mismatch};
use headgate_units::Bytes;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// A TCP connection whose server's host is silent for so long counts as cut.
const SILENCE: Duration = Duration::from_secs(30);

/// Why an export cannot be used.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// The server cannot be reached.
    #[error("cannot connect to {server}: {source}")]
    Connect {
        /// The server.
        server: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The handshake failed; mostly, there is no such export.
    #[error("{server}: {source}")]
    Handshake {
        /// The server.
        server: String,
        /// What went wrong.
        source: DialError,
    },
    /// The export is not one that a disk can be.
    #[error("export '{export}' of {server}: {why}")]
    Unusable {
        /// The server.
        server: String,
        /// The export.
        export: String,
        /// What is in the way.
        why: Unusable,
    },
    /// Its label cannot be read.
    #[error("export '{export}' of {server}: the label of its stripes cannot be read: {source}")]
    LabelUnread {
        /// The server.
        server: String,
        /// The export.
        export: String,
        /// What the server or the system says.
        source: io::Error,
    },
    /// It cannot be labelled.
    #[error("export '{export}' of {server} cannot be labelled: {source}")]
    NotLabelled {
        /// The server.
        server: String,
        /// The export.
        export: String,
        /// What the server or the system says.
        source: io::Error,
    },
    /// It has no label of a striped disk.
    #[error("export '{export}' of {server}: {why}")]
    Label {
        /// The server.
        server: String,
        /// The export.
        export: String,
        /// What is there instead.
        why: LabelError,
    },
    /// It is a part of another disk, or another part of the disk.
    #[error("export '{export}' of {server}: {why}")]
    Member {
        /// The server.
        server: String,
        /// The export.
        export: String,
        /// How it differs.
        why: Box<Mismatch>,
    },
    /// By what the server knows, another host holds the disk that it is a part of.
    #[error("export '{export}' of {server}{text}")]
    Held {
        /// The server.
        server: String,
        /// The export.
        export: String,
        /// What the server says, behind a colon, or nothing.
        text: String,
    },
    /// It is not the export that the disk was made on.
    #[error(
        "export '{export}' of {server} has {found} bytes in blocks of {found_block}, and the disk {expected} in blocks of \
         {expected_block}"
    )]
    Changed {
        /// The server.
        server: String,
        /// The export.
        export: String,
        /// Its size in bytes.
        found: u64,
        /// Its block size in bytes.
        found_block: u32,
        /// The disk's size in bytes.
        expected: u64,
        /// The disk's block size in bytes.
        expected_block: u32,
    },
}

/// An export of a server, before it is a disk.
#[derive(Debug)]
pub(crate) struct Export {
    pub uri: Uri,
    pub size: Bytes,
    pub block_size: u32,
    /// `None`: the server is not there yet.
    pub connection: Option<Connection>,
    /// For how long requests wait for a server that is gone or silent.
    pub patience: Duration,
    /// What a server over TLS needs.
    pub tls: Arc<ClientTls>,
    /// Of an export that holds a part of a striped disk.
    pub label: Option<Label>,
    /// What such a server is told.
    pub announced: Option<Arc<Announced>>,
    /// How many there are, where the server can have several.
    pub connections: Connections,
}

/// A negotiated connection to one export. Dropping it says goodbye to the server and never blocks.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    offer: Offer,
    form: Form,
}

impl Connection {
    /// Connects and negotiates, within `patience` (and the time that resolving a host's name
    /// takes), over TLS where the URI says so: with the certificates that it names, or else those
    /// of `tls`.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn open(uri: &Uri, patience: Duration, tls: &ClientTls) -> Result<Connection, RemoteError> {
        let deadline = Instant::now() + patience;
        let opened = dial(uri, deadline, tls, ReplyStyle::Allocation)?;
        Connection::check_opened(uri, opened)
    }

    /// The same for an export that holds a part of a striped disk: it has this label. The server is
    /// asked for its counters, shown the lease, and told what is announced.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn open_member(
        uri: &Uri,
        patience: Duration,
        tls: &ClientTls,
        label: &Label,
        announced: Option<&Announced>,
    ) -> Result<Connection, RemoteError> {
        let deadline = Instant::now() + patience;
        let mut opened = dial_member(uri, deadline, tls, label, announced)?;
        let names = || (uri.server().to_string(), uri.export.clone());
        let mut bytes = [0; LABEL_LEN];
        Direct::new(&mut opened, deadline).read(0, &mut bytes).map_err(|source| {
            let (server, export) = names();
            RemoteError::LabelUnread { server, export, source }
        })?;
        let found = Label::from_bytes(&bytes).map_err(|why| {
            let (server, export) = names();
            RemoteError::Label { server, export, why }
        })?;
        found.check(label).map_err(|why| {
            let (server, export) = names();
            RemoteError::Member { server, export, why: Box::new(why) }
        })?;
        Connection::check_opened(uri, opened)
    }

    fn check_opened(uri: &Uri, opened: Opened) -> Result<Connection, RemoteError> {
        let server = || uri.server().to_string();
        let form = opened.form;
        let offer = Offer::check(opened.info, form).map_err(|why| RemoteError::Unusable {
            server: server(),
            export: uri.export.clone(),
            why,
        })?;
        let socket = opened
            .socket
            .into_transmission()
            .map_err(|source| RemoteError::Connect { server: server(), source })?;
        Ok(Connection { socket, offer, form })
    }

    /// The export's size.
    pub fn size(&self) -> Bytes {
        Bytes(self.offer.size)
    }

    /// Smallest unit of a request, in bytes: 512 to 4096.
    pub fn block_size(&self) -> u32 {
        self.offer.block_size
    }

    /// What the server says of the requests that it likes: one size, which is no matter of what it
    /// writes without reading first.
    pub(crate) fn told(&self) -> Told {
        Told { min_io: u64::from(self.offer.preferred), ..Told::default() }
    }

    /// Is the export still the one that a disk of this size and block size was made on.
    pub(crate) fn check(&self, uri: &Uri, size: Bytes, block_size: u32) -> Result<(), RemoteError> {
        if self.size() == size {
            self.check_room(uri, size, block_size)
        } else {
            self.changed(uri, size, block_size)
        }
    }

    /// Has the export room for so much of a disk of this block size.
    pub(crate) fn check_room(
        &self,
        uri: &Uri,
        size: Bytes,
        block_size: u32,
    ) -> Result<(), RemoteError> {
        if self.size() >= size && self.block_size() <= block_size {
            return Ok(());
        }
        self.changed(uri, size, block_size)
    }

    fn changed(&self, uri: &Uri, size: Bytes, block_size: u32) -> Result<(), RemoteError> {
        Err(RemoteError::Changed {
            server: uri.server().to_string(),
            export: uri.export.clone(),
            found: self.offer.size,
            found_block: self.offer.block_size,
            expected: size.0,
            expected_block: block_size,
        })
    }

    /// Whether the server counts what the disk receives.
    pub(crate) fn counting(&self) -> Counting {
        self.form.counting()
    }

    /// The form of the server's replies.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    pub(crate) fn offer(&self) -> Offer {
        self.offer
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Ends the connection without a word: operations under way on it end at once.
    pub(crate) fn cut(&self) {
        if let Err(e) = shutdown(&self.socket, Shutdown::Both) {
            // The server was faster.
            tracing::trace!("shutdown: {e}");
        }
    }
}

/// By what right a member of this label is opened.
pub(super) fn lease_of(label: &Label) -> Option<counters::Lease> {
    let Label { id, lease, .. } = label;
    let held = lease.is_held();
    held.then_some(counters::Lease { disk: id.0, number: lease.number, host: lease.host })
}

/// Has a member hear of the disk's policy, over a connection of its own, and answers what it said;
/// `None` where nothing is announced.
///
/// # Errors
/// See [`RemoteError`].
pub fn announce(
    uri: &Uri,
    patience: Duration,
    tls: &ClientTls,
    label: &Label,
    announced: &Announced,
) -> Result<Option<PolicyAnswer>, RemoteError> {
    let opened = dial_member(uri, Instant::now() + patience, tls, label, Some(announced))?;
    say_goodbye(&opened.socket);
    Ok(opened.policy)
}

/// Connects and opens a member by its lease, after it has heard of the disk's policy.
fn dial_member(
    uri: &Uri,
    deadline: Instant,
    tls: &ClientTls,
    label: &Label,
    announced: Option<&Announced>,
) -> Result<Opened, RemoteError> {
    let said = announced.and_then(|announced| announced.said(uri, label));
    let policy = said.as_ref().map(|(_, data)| data.as_slice());
    let style = ReplyStyle::CountedAllocation(lease_of(label));
    let opened = dial_saying(uri, deadline, tls, style, policy)?;
    if let (Some(announced), Some((epoch, _)), Some(answer)) = (announced, &said, &opened.policy) {
        announced.heard(label.index, *epoch, answer.clone());
    }
    Ok(opened)
}

/// Connects and opens an export.
pub(super) fn dial(
    uri: &Uri,
    deadline: Instant,
    tls: &ClientTls,
    style: ReplyStyle,
) -> Result<Opened, RemoteError> {
    dial_saying(uri, deadline, tls, style, None)
}

fn dial_saying(
    uri: &Uri,
    deadline: Instant,
    tls: &ClientTls,
    style: ReplyStyle,
    policy: Option<&[u8]>,
) -> Result<Opened, RemoteError> {
    let dial = Dial { style, deadline, silence: Some(SILENCE), tls, policy };
    dial.open(uri).map_err(|error| {
        let server = uri.server().to_string();
        match error {
            DialError::Connect(source) => RemoteError::Connect { server, source },
            DialError::Handshake(HandshakeError::Refused { export, code, text })
                if code == counters::ERR_HELD =>
            {
                RemoteError::Held { server, export, text }
            }
            source => RemoteError::Handshake { server, source },
        }
    })
}

impl Drop for Connection {
    fn drop(&mut self) {
        say_goodbye(&self.socket);
        // A receive under way holds the socket open.
        self.cut();
    }
}
