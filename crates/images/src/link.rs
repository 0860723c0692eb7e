//! An export of an NBD server. Each caller waits for its own request; a thread receives the
//! replies.

use crate::content::{Content, Run};
use crate::error::ImageError;
use headgate_nbd::client::handshake::{ExportInfo, ReplyStyle};
use headgate_nbd::client::structured::{Event, ReplyBuffer};
use headgate_nbd::uri::Uri;
use headgate_nbd::wire::{NbdError, REQUEST_LEN, Request, STATE_ZERO, command};
use headgate_nbd_io::{ClientTls, Dial, Opened, Socket, say_goodbye};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long connecting and the handshake may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest reply that is received, in bytes: a chunk, or the extents of a question.
const LONGEST: u32 = 1 << 20;
/// A TCP connection whose server's host is silent for so long counts as cut.
const SILENCE: Duration = Duration::from_secs(60);

/// A connection to an export. Requests of several threads are under way at once; the connection has
/// the memory of two long replies besides.
#[derive(Debug)]
pub struct Link {
    name: String,
    info: ExportInfo,
    socket: Mutex<Socket>,
    /// Another handle, to end the connection while a request is being sent.
    end: Socket,
    shared: Arc<Shared>,
    receiver: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    allocation: Option<u32>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    requests: HashMap<u64, Outstanding>,
    /// Why there are no replies any more.
    broken: Option<String>,
}

/// A request without its reply.
#[derive(Debug)]
struct Outstanding {
    offset: u64,
    error: u32,
    wants: Wants,
    caller: SyncSender<Result<Answer, String>>,
}

#[derive(Debug)]
enum Wants {
    /// That it is done.
    Nothing,
    /// The bytes, of which so many have come.
    Bytes { bytes: Vec<u8>, came: usize },
    /// What a range holds.
    Status { runs: Vec<Run> },
}

#[derive(Debug)]
enum Answer {
    Done,
    Bytes(Vec<u8>),
    Runs(Vec<Run>),
}

impl Link {
    /// Opens an export. `name` is what messages call it. The certificates for `nbds://` are those
    /// that the URI names.
    ///
    /// # Errors
    /// [`ImageError::Nbd`]: the server cannot be reached, refuses, or is no NBD server.
    pub fn open(uri: &Uri, name: &str) -> Result<Link, ImageError> {
        let failed = |why: String| ImageError::Nbd { server: name.to_owned(), why };
        let told = |e: std::io::Error| failed(format!("cannot connect: {e}"));
        let (style, deadline) = (ReplyStyle::Allocation, Instant::now() + PATIENCE);
        let tls = ClientTls::by_uri();
        let dial = Dial { style, deadline, silence: Some(SILENCE), tls: &tls, policy: None };
        let Opened { socket, info, form, .. } =
            dial.open(uri).map_err(|e| failed(e.to_string()))?;
        socket.set_timeouts(None).map_err(told)?;
        let (mut receiving, end) =
            (socket.try_clone().map_err(told)?, socket.try_clone().map_err(told)?);
        let shared = Arc::new(Shared { allocation: form.allocation(), state: Mutex::default() });
        let with = shared.clone();
        let receiver = thread::Builder::new()
            .name("headgate-replies".into())
            .spawn(move || with.receive(&mut receiving))
            .map_err(told)?;
        let socket = Mutex::new(socket);
        Ok(Link { name: name.to_owned(), info, socket, end, shared, receiver: Some(receiver) })
    }

    /// What the server says of the export.
    pub fn info(&self) -> ExportInfo {
        self.info
    }

    /// Ends the connection, from any thread. All requests fail, those under way too.
    pub fn hang_up(&self) {
        // It fails where the server has ended it before.
        let _ = self.end.shutdown();
    }

    /// Reads a range, in requests as long as the server takes.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        let most = self.longest();
        let mut at = offset;
        for piece in into.chunks_mut(most) {
            let wants = Wants::Bytes { bytes: vec![0; piece.len()], came: 0 };
            match self.request(command::READ, at, piece.len() as u32, &[], wants)? {
                Answer::Bytes(bytes) => piece.copy_from_slice(&bytes),
                _ => return Err(self.error("a read is answered with something else")),
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes a range, in requests as long as the server takes.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        let mut at = offset;
        for piece in bytes.chunks(self.longest()) {
            self.request(command::WRITE, at, piece.len() as u32, piece, Wants::Nothing)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Has a range read as zeroes.
    pub(crate) fn zero(&self, offset: u64, len: u32) -> Result<(), ImageError> {
        self.request(command::WRITE_ZEROES, offset, len, &[], Wants::Nothing).map(drop)
    }

    /// Has what was written made durable.
    pub(crate) fn flush(&self) -> Result<(), ImageError> {
        self.request(command::FLUSH, 0, 0, &[], Wants::Nothing).map(drop)
    }

    /// What a range holds, from its beginning on. All data where the server does not say.
    pub(crate) fn status(&self, offset: u64, len: u64) -> Result<Vec<Run>, ImageError> {
        if self.shared.allocation.is_none() {
            return Ok(vec![Run { len, content: Content::Data }]);
        }
        let unit = u64::from(self.info.min_block.unwrap_or(1).max(1));
        let asked = len.min(u64::from(u32::MAX) / unit * unit) as u32;
        let wants = Wants::Status { runs: Vec::new() };
        match self.request(command::BLOCK_STATUS, offset, asked, &[], wants)? {
            Answer::Runs(runs) => Ok(runs),
            _ => Err(self.error("a question for block status is answered with something else")),
        }
    }

    /// The longest read or write that the server takes, at most [`LONGEST`], in bytes.
    fn longest(&self) -> usize {
        let unit = self.info.min_block.unwrap_or(1).max(1);
        let most = self.info.max_block.unwrap_or(LONGEST).min(LONGEST);
        (most / unit * unit).max(unit) as usize
    }

    fn error(&self, why: &str) -> ImageError {
        ImageError::Nbd { server: self.name.clone(), why: why.to_owned() }
    }

    fn request(
        &self,
        command: u16,
        offset: u64,
        len: u32,
        payload: &[u8],
        wants: Wants,
    ) -> Result<Answer, ImageError> {
        let (caller, answer) = sync_channel(1);
        let cookie = {
            let mut state = self.shared.lock();
            if let Some(why) = &state.broken {
                return Err(self.error(why));
            }
            state.last += 1;
            let cookie = state.last;
            state.requests.insert(cookie, Outstanding { offset, error: 0, wants, caller });
            cookie
        };
        let head: [u8; REQUEST_LEN] = Request { flags: 0, command, cookie, offset, len }.to_bytes();
        let sent = {
            let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
            socket.write_all(&head).and_then(|()| socket.write_all(payload))
        };
        if let Err(e) = sent {
            self.shared.give_up(&format!("the connection broke: {e}"));
            self.hang_up();
        }
        match answer.recv() {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(self.error(&why)),
            Err(_) => Err(self.error("the connection broke")),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        say_goodbye(&self.end);
        self.hang_up();
        if let Some(receiver) = self.receiver.take() {
            // It has no way to panic that would matter now.
            let _ = receiver.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails all requests, and those to come.
    fn give_up(&self, why: &str) {
        let mut state = self.lock();
        state.broken.get_or_insert_with(|| why.to_owned());
        for (_, request) in state.requests.drain() {
            // Each caller takes one answer, and its queue has room for that.
            let _ = request.caller.try_send(Err(why.to_owned()));
        }
    }

    /// Receives replies until the connection ends.
    fn receive(&self, socket: &mut Socket) {
        let mut buffer = ReplyBuffer::new(LONGEST);
        let why = loop {
            match socket.read(buffer.spare()) {
                Ok(0) => break "the connection broke: the server has ended it".to_owned(),
                Ok(count) => buffer.filled(count),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => break format!("the connection broke: {e}"),
            }
            if let Err(why) = self.replies(&mut buffer) {
                break format!("it breaks the protocol: {why}");
            }
        };
        self.give_up(&why);
        // What is being sent would wait for a server whose replies nobody reads.
        let _ = socket.shutdown();
    }

    fn replies(&self, buffer: &mut ReplyBuffer) -> Result<(), String> {
        let mut state = self.lock();
        loop {
            let wanted = |cookie| {
                state.requests.get(&cookie).map(|request| match &request.wants {
                    Wants::Bytes { bytes, .. } => bytes.len() as u32,
                    Wants::Nothing | Wants::Status { .. } => 0,
                })
            };
            match buffer.next(wanted) {
                Ok(Some(event)) => state.on(event, self.allocation)?,
                Ok(None) => return Ok(()),
                Err(e) => return Err(e.to_string()),
            }
        }
    }
}

impl State {
    fn of(&mut self, cookie: u64) -> Result<&mut Outstanding, String> {
        self.requests.get_mut(&cookie).ok_or_else(|| "a reply to no request".to_owned())
    }

    fn on(&mut self, event: Event<'_>, allocation: Option<u32>) -> Result<(), String> {
        match event {
            Event::Simple { cookie, error, data } => {
                let request = self.of(cookie)?;
                request.error = error;
                if let Wants::Bytes { bytes, came } = &mut request.wants
                    && error == 0
                {
                    bytes.copy_from_slice(data);
                    *came = data.len();
                }
                self.end(cookie)
            }
            Event::Data { cookie, offset, data } => {
                let place = self.of(cookie)?.place(offset, data.len())?;
                place.copy_from_slice(data);
                Ok(())
            }
            Event::Hole { cookie, offset, len } => {
                self.of(cookie)?.place(offset, len as usize)?.fill(0);
                Ok(())
            }
            Event::Status { cookie, context, extents } => match &mut self.of(cookie)?.wants {
                Wants::Status { runs } if Some(context) == allocation => {
                    runs.extend(extents.iter().map(|(len, state)| Run {
                        len: len.into(),
                        content: match state & STATE_ZERO {
                            0 => Content::Data,
                            _ => Content::Zeroes,
                        },
                    }));
                    Ok(())
                }
                Wants::Status { .. } => Ok(()),
                _ => Err("a block status that was not asked for".into()),
            },
            Event::Error { cookie, error } => {
                // Zero is no error number, yet this is an error.
                self.of(cookie)?.error = error.max(1);
                Ok(())
            }
            Event::Done { cookie } => self.end(cookie),
        }
    }

    fn end(&mut self, cookie: u64) -> Result<(), String> {
        let request = self.requests.remove(&cookie).ok_or("a reply to no request")?;
        let answer = match (request.error, request.wants) {
            (0, Wants::Nothing) => Ok(Answer::Done),
            (0, Wants::Status { runs }) => Ok(Answer::Runs(runs)),
            (0, Wants::Bytes { bytes, came }) if came == bytes.len() => Ok(Answer::Bytes(bytes)),
            (0, Wants::Bytes { bytes, came }) => {
                Err(format!("it answers a read of {} bytes with {came}", bytes.len()))
            }
            (error, _) => Err(said(error)),
        };
        // The caller waits for this one answer.
        let _ = request.caller.try_send(answer);
        Ok(())
    }
}

impl Outstanding {
    /// Where a piece of the answer to a read belongs.
    fn place(&mut self, offset: u64, len: usize) -> Result<&mut [u8], String> {
        let Wants::Bytes { bytes, came } = &mut self.wants else {
            return Err("data that was not asked for".into());
        };
        let at = offset.checked_sub(self.offset).and_then(|at| usize::try_from(at).ok());
        let place = at.and_then(|at| bytes.get_mut(at..at.checked_add(len)?));
        *came += len;
        place.ok_or_else(|| "data of another place than was asked for".into())
    }
}

/// An error's number in words.
fn said(code: u32) -> String {
    use NbdError::{Invalid, Io, NoSpace, NotPermitted, NotSupported, Overflow};
    let known = [NotPermitted, Io, Invalid, NoSpace, Overflow, NotSupported];
    let found = known.into_iter().find(|error| error.code() == code);
    found.map_or_else(|| format!("error {code}"), |error| error.message().to_owned())
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
