//! Certificates, as the command line makes them; clients that begin a handshake and do not end it;
//! and TLS for clients that know none.

use crate::headgate::binary;
use crate::nbd::{CLIENT_FLAGS, OPTION_MAGIC, REP_ACK};
use crate::process::{Process, run};
use crate::tools;
use anyhow::{Context, ensure};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::spawn;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// `NBD_OPT_STARTTLS`
const OPT_STARTTLS: u32 = 5;

/// `headgate tls` with these words.
pub fn certificates(words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(binary()?);
    command.arg("tls").args(words);
    run(command, MINUTE)
}

/// Makes a certificate for a `server` or a `client` of this name.
pub fn issue(authority: &Path, role: &str, name: &str, out: &Path) -> anyhow::Result<()> {
    let [authority, out] = [authority, out].map(|path| path.to_str().context("no UTF-8"));
    let words = ["issue", role, "--name", name, "--out", out?, "--authority", authority?];
    certificates(&words).map(drop)
}

/// A directory below this one with certificates of a server at 127.0.0.1 and of a client.
pub fn both_roles(below: &Path) -> anyhow::Result<PathBuf> {
    let [authority, dir] = ["authority", "tls"].map(|at| below.join(at));
    certificates(&["init", authority.to_str().context("no UTF-8")?])?;
    issue(&authority, "server", "127.0.0.1", &dir)?;
    issue(&authority, "client", "gw1.example", &dir)?;
    Ok(dir)
}

/// A client's flags, and that it wants TLS.
fn start_tls() -> Vec<u8> {
    let mut said = CLIENT_FLAGS.to_be_bytes().to_vec();
    said.extend(OPTION_MAGIC.to_be_bytes());
    said.extend(OPT_STARTTLS.to_be_bytes());
    said.extend(0_u32.to_be_bytes());
    said
}

/// How far a client goes that does not end its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// It says nothing.
    Silent,
    /// It asks for TLS, and then says nothing.
    BeforeHello,
    /// In the middle of its first message of TLS.
    InHello,
    /// After that message, which the server has to answer by signing something.
    AfterHello,
}

impl Stops {
    /// All of them.
    pub const ALL: [Stops; 4] =
        [Stops::Silent, Stops::BeforeHello, Stops::InHello, Stops::AfterHello];
}

/// What a client says first inside of TLS.
pub struct Hello(Vec<u8>);

impl Hello {
    /// As openssl says it.
    pub fn of_openssl() -> anyhow::Result<Hello> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut client = Command::new(tools::find("openssl").context("not installed")?);
        client.args(["s_client", "-connect", &listener.local_addr()?.to_string()]);
        let log = tempfile::NamedTempFile::new()?;
        let _client = Process::spawn("openssl", client, log.path())?;
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(MINUTE))?;
        // A record of TLS: its type, its version, its length.
        let mut hello = vec![0; 5];
        stream.read_exact(&mut hello)?;
        ensure!(hello[0] == 22, "no record of a handshake: {hello:?}");
        let len = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
        hello.resize(5 + len, 0);
        stream.read_exact(&mut hello[5..])?;
        Ok(Hello(hello))
    }

    /// A client that comes so far, and stays. It waits for no answer.
    pub fn begin(&self, address: &str, stops: Stops) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        if stops == Stops::Silent {
            return Ok(stream);
        }
        stream.write_all(&start_tls())?;
        if stops == Stops::BeforeHello {
            return Ok(stream);
        }
        // What comes before the answer is taken for an attack of its own: the greeting, then it.
        stream.set_read_timeout(Some(MINUTE))?;
        stream.read_exact(&mut [0; 18 + 20])?;
        let len = if stops == Stops::InHello { self.0.len() / 2 } else { self.0.len() };
        stream.write_all(&self.0[..len])?;
        Ok(stream)
    }
}

/// A unix socket behind which clients that know no TLS find a server that demands it: openssl
/// speaks TLS for each of them. A client may not begin a message with `Q` or `R`, which openssl
/// takes for itself.
pub struct Inside {
    /// The socket.
    pub socket: PathBuf,
}

impl Inside {
    /// At this path, for a server at this address, with the certificates of a directory. Ends with
    /// the process.
    pub fn start(socket: &Path, address: &str, certificates: &Path) -> anyhow::Result<Inside> {
        let listener = UnixListener::bind(socket)?;
        let (address, certificates) = (address.to_owned(), certificates.to_owned());
        spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (address, certificates) = (address.clone(), certificates.clone());
                spawn(move || {
                    if let Err(error) = speak_for(client, &address, &certificates) {
                        eprintln!("a client of {address} is not served: {error:#}");
                    }
                });
            }
        });
        Ok(Inside { socket: socket.to_owned() })
    }
}

/// The start of TLS is ours, what is inside is the client's, and openssl stands in between.
fn speak_for(mut client: UnixStream, address: &str, certificates: &Path) -> anyhow::Result<()> {
    client.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    client.read_exact(&mut [0; 4])?;
    let mut server = TcpStream::connect(address)?;
    server.set_nodelay(true)?;
    server.read_exact(&mut [0; 18])?;
    server.write_all(&start_tls())?;
    let mut answer = [0; 20];
    server.read_exact(&mut answer)?;
    ensure!(answer[12..16] == REP_ACK.to_be_bytes(), "no TLS: {answer:x?}");
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut command = Command::new(tools::find("openssl").context("not installed")?);
    command.args(["s_client", "-quiet", "-no_ign_eof", "-verify_return_error", "-connect"]);
    command.arg(listener.local_addr()?.to_string());
    for (word, file) in
        [("-CAfile", "ca-cert.pem"), ("-cert", "client-cert.pem"), ("-key", "client-key.pem")]
    {
        command.arg(word).arg(certificates.join(file));
    }
    let input = OwnedFd::from(client.try_clone()?);
    command.stdin(input).stdout(OwnedFd::from(client)).stderr(Stdio::null());
    let mut openssl = command.spawn()?;
    // It holds the client's socket: the client sees the end when openssl has ended.
    drop(command);
    let (mut tls, _) = listener.accept()?;
    tls.set_nodelay(true)?;
    let (mut to, mut from) = (server.try_clone()?, tls.try_clone()?);
    let up = spawn(move || {
        // Whoever goes away goes away.
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let _ = io::copy(&mut server, &mut tls);
    let _ = tls.shutdown(Shutdown::Both);
    let _ = up.join();
    openssl.wait()?;
    Ok(())
}
