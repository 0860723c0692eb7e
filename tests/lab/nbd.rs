//! A plain NBD client (fixed newstyle, simple replies) that a test can make say anything, also what
//! no client should.
//!
//! Source: the NBD protocol document, "Protocol phases" and "Constants".

use anyhow::{Context, bail, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// First word of each option of a client.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// First word of each answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of each simple reply.
pub const REPLY_MAGIC: u32 = 0x6744_6698;

/// Handshake flags of a client: fixed newstyle, no zeroes after `EXPORT_NAME`.
pub const CLIENT_FLAGS: u32 = 3;

/// `NBD_OPT_EXPORT_NAME`
pub const OPT_EXPORT_NAME: u32 = 1;
/// `NBD_OPT_LIST`
pub const OPT_LIST: u32 = 3;
/// `NBD_OPT_GO`
pub const OPT_GO: u32 = 7;
/// `NBD_OPT_SET_META_CONTEXT`
pub const OPT_SET_META_CONTEXT: u32 = 10;

/// `NBD_REP_ACK`
pub const REP_ACK: u32 = 1;
/// `NBD_REP_INFO`
pub const REP_INFO: u32 = 3;
/// `NBD_REP_ERR_UNSUP`
pub const REP_ERR_UNSUP: u32 = 1 << 31 | 1;
/// `NBD_REP_ERR_INVALID`
pub const REP_ERR_INVALID: u32 = 1 << 31 | 3;
/// `NBD_REP_ERR_UNKNOWN`
pub const REP_ERR_UNKNOWN: u32 = 1 << 31 | 6;

/// `NBD_CMD_READ`
pub const CMD_READ: u16 = 0;
/// `NBD_CMD_WRITE`
pub const CMD_WRITE: u16 = 1;
/// `NBD_CMD_FLUSH`
pub const CMD_FLUSH: u16 = 3;
/// `NBD_CMD_TRIM`
pub const CMD_TRIM: u16 = 4;
/// `NBD_CMD_WRITE_ZEROES`
pub const CMD_WRITE_ZEROES: u16 = 6;

/// `NBD_CMD_FLAG_FUA`
pub const FLAG_FUA: u16 = 1;

/// `NBD_EPERM`
pub const EPERM: u32 = 1;
/// `NBD_EINVAL`
pub const EINVAL: u32 = 22;
/// `NBD_ENOSPC`
pub const ENOSPC: u32 = 28;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection before transmission: greeted, nothing negotiated.
pub struct Handshake {
    /// The socket, for what this client does not say by itself.
    pub stream: UnixStream,
}

/// A server's answer to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// The option that it answers.
    pub option: u32,
    /// `NBD_REP_*`.
    pub kind: u32,
    /// Its data.
    pub data: Vec<u8>,
}

impl Handshake {
    /// Connects and reads the server's greeting.
    pub fn connect(socket: &Path) -> anyhow::Result<Handshake> {
        let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        Handshake::over(stream)
    }

    /// Reads the server's greeting.
    pub fn over(mut stream: UnixStream) -> anyhow::Result<Handshake> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        ensure!(&greeting[..16] == b"NBDMAGICIHAVEOPT", "no newstyle greeting: {greeting:?}");
        ensure!(greeting[17] & 1 == 1, "the server does not speak fixed newstyle");
        Ok(Handshake { stream })
    }

    /// Sends the client's flags.
    pub fn flags(&mut self, flags: u32) -> anyhow::Result<()> {
        Ok(self.stream.write_all(&flags.to_be_bytes())?)
    }

    /// Sends an option whose header claims `length` bytes, and `data`.
    pub fn option(&mut self, option: u32, length: u32, data: &[u8]) -> anyhow::Result<()> {
        let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
        message.extend(option.to_be_bytes());
        message.extend(length.to_be_bytes());
        message.extend(data);
        Ok(self.stream.write_all(&message)?)
    }

    /// Reads one answer to an option; `None` when the server has hung up instead.
    pub fn reply(&mut self) -> anyhow::Result<Option<OptionReply>> {
        let Some(head) = read_or_hangup::<20>(&mut self.stream)? else { return Ok(None) };
        ensure!(be64(&head[0..]) == OPTION_REPLY_MAGIC, "no option reply: {head:?}");
        let mut data = vec![0; be32(&head[16..]) as usize];
        self.stream.read_exact(&mut data)?;
        Ok(Some(OptionReply { option: be32(&head[8..]), kind: be32(&head[12..]), data }))
    }

    /// Asks for an export with `NBD_OPT_GO` and enters transmission.
    pub fn go(mut self, export: &str) -> anyhow::Result<Client> {
        self.flags(CLIENT_FLAGS)?;
        self.go_on(export)
    }

    /// The same when the flags were sent.
    pub fn go_on(mut self, export: &str) -> anyhow::Result<Client> {
        let request = go_request(export.as_bytes());
        self.option(OPT_GO, request.len() as u32, &request)?;
        let mut size = None;
        loop {
            let reply = self.reply()?.context("the server hung up during NBD_OPT_GO")?;
            match reply.kind {
                REP_INFO if reply.data.starts_with(&[0, 0]) && reply.data.len() >= 12 => {
                    size = Some(be64(&reply.data[2..]));
                }
                REP_INFO => {}
                REP_ACK => break,
                kind => {
                    bail!(
                        "NBD_OPT_GO {export:?} refused: {kind:#x} {}",
                        String::from_utf8_lossy(&reply.data)
                    )
                }
            }
        }
        let size = size.context("no NBD_INFO_EXPORT before the acknowledgement")?;
        Ok(Client { stream: self.stream, size })
    }
}

/// The data of an `NBD_OPT_GO` without information requests.
pub fn go_request(name: &[u8]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name);
    data.extend([0, 0]);
    data
}

/// A connection in transmission.
pub struct Client {
    /// The socket, for what this client does not say by itself.
    pub stream: UnixStream,
    /// The export's size in bytes.
    pub size: u64,
}

impl Client {
    /// Connects to an export.
    pub fn connect(socket: &Path, export: &str) -> anyhow::Result<Client> {
        Handshake::connect(socket)?.go(export)
    }

    /// Sends a request's header, and `data` after it.
    pub fn send(
        &mut self,
        (command, flags): (u16, u16),
        handle: u64,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> anyhow::Result<()> {
        let mut message = Vec::with_capacity(28 + data.len());
        message.extend(REQUEST_MAGIC.to_be_bytes());
        message.extend(flags.to_be_bytes());
        message.extend(command.to_be_bytes());
        message.extend(handle.to_be_bytes());
        message.extend(offset.to_be_bytes());
        message.extend(length.to_be_bytes());
        message.extend(data);
        Ok(self.stream.write_all(&message)?)
    }

    /// Reads a reply's header: error and handle; `None` when the server has hung up instead.
    pub fn reply(&mut self) -> anyhow::Result<Option<(u32, u64)>> {
        let Some(head) = read_or_hangup::<16>(&mut self.stream)? else { return Ok(None) };
        ensure!(be32(&head) == REPLY_MAGIC, "no simple reply: {head:?}");
        Ok(Some((be32(&head[4..]), be64(&head[8..]))))
    }

    /// Sends one request and waits for its reply: `NBD_SUCCESS` (0) or an error; `None` when the
    /// server has hung up.
    pub fn ask(
        &mut self,
        command: (u16, u16),
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> anyhow::Result<Option<u32>> {
        self.send(command, 7, offset, length, data)?;
        let Some((error, handle)) = self.reply()? else { return Ok(None) };
        ensure!(handle == 7, "a reply to handle {handle}, which was never used");
        Ok(Some(error))
    }

    /// Reads a range.
    pub fn read(&mut self, offset: u64, length: u32) -> anyhow::Result<Vec<u8>> {
        match self.ask((CMD_READ, 0), offset, length, &[])? {
            Some(0) => {
                let mut data = vec![0; length as usize];
                self.stream.read_exact(&mut data)?;
                Ok(data)
            }
            Some(error) => bail!("reading {length} bytes at {offset}: error {error}"),
            None => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
        }
    }

    /// Insists that the server hangs up without another byte.
    pub fn expect_hangup(&mut self) -> anyhow::Result<()> {
        ensure!(read_or_hangup::<1>(&mut self.stream)?.is_none(), "an answer instead of a hang-up");
        Ok(())
    }
}

/// Reads `N` bytes; `None` when the peer closed or reset the connection before the first one.
fn read_or_hangup<const N: usize>(stream: &mut UnixStream) -> anyhow::Result<Option<[u8; N]>> {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let mut bytes = [0; N];
    match stream.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(e) if matches!(e.kind(), UnexpectedEof | ConnectionReset | BrokenPipe) => Ok(None),
        Err(e) => Err(e).context("waiting for the server's answer"),
    }
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}
