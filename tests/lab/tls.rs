//! Certificates, as the command line makes them; and clients that begin a handshake and do not end
//! it.

use crate::headgate::binary;
use crate::nbd::{CLIENT_FLAGS, OPTION_MAGIC};
use crate::process::{Process, run};
use crate::tools;
use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
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
        let mut said = CLIENT_FLAGS.to_be_bytes().to_vec();
        said.extend(OPTION_MAGIC.to_be_bytes());
        said.extend(OPT_STARTTLS.to_be_bytes());
        said.extend(0_u32.to_be_bytes());
        if stops == Stops::Silent {
            return Ok(stream);
        }
        stream.write_all(&said)?;
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
