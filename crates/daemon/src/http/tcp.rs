//! The API over TCP: with TLS and certificates of clients, or on a loopback address with tokens.

use super::app::App;
use super::caller::Caller;
use super::connections::{ApiLimits, Duplex, Source, Stop, serve};
use super::gate::Gate;
use super::page;
use super::server::layered;
use super::tokens::{Tokens, TokensError};
use headgate_events::{Entry, Outcome, Stream, Who};
use headgate_tls::{CredentialsError, Peer, ServerDirectory};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Handshakes at a time. When one more begins, the oldest is cut off.
const HANDSHAKES: usize = 32;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How often files are looked at again.
const LOOK: Duration = Duration::from_secs(1);

/// How long nobody is accepted after accepting has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take to read its last answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What clients have to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A certificate, over TLS: by the files of this directory.
    Certificate(PathBuf),
    /// A token of this file, on a loopback address.
    Token(PathBuf),
}

impl Shown {
    /// Whether its files can be used.
    ///
    /// # Errors
    /// When they cannot.
    pub fn check(&self) -> Result<(), TcpApiError> {
        self.gate().map(drop)
    }

    fn gate(&self) -> Result<Gate, TcpApiError> {
        Ok(match self {
            Shown::Certificate(dir) => {
                Gate::Certificates(Arc::new(Mutex::new(ServerDirectory::open(dir)?)))
            }
            Shown::Token(file) => Gate::Tokens(Arc::new(RwLock::new(Tokens::open(file)?))),
        })
    }
}

/// Why the API cannot be served over TCP.
#[derive(Debug, Error)]
pub enum TcpApiError {
    /// Everybody could use it.
    #[error("the API on {0} would be open to everybody who reaches it")]
    Open(SocketAddr),
    /// Tokens could be overheard.
    #[error("{0} is no loopback address: tokens would go over the network in the clear")]
    Overheard(SocketAddr),
    /// What is shown there is not said to be of an address.
    #[error("there is no address for the API's certificates or tokens")]
    NoAddress,
    /// Both certificates and tokens are named.
    #[error("certificates and tokens of the API exclude each other")]
    Both,
    /// The certificates cannot be used.
    #[error("the directory of --api-tls cannot be used: {0}")]
    Certificates(#[from] CredentialsError),
    /// The tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The address cannot be had.
    #[error("cannot serve the API on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
}

impl TcpApiError {
    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            TcpApiError::Open(_) => Some(
                "give --api-tls DIR, or on a loopback address --api-tokens FILE with --api-listen"
                    .into(),
            ),
            TcpApiError::Overheard(_) => {
                Some("give --api-tls DIR, or an address such as 127.0.0.1".into())
            }
            TcpApiError::NoAddress => Some("give --api-listen ADDRESS:PORT".into()),
            TcpApiError::Both => Some("give --api-tls or --api-tokens".into()),
            TcpApiError::Certificates(e) => e.hint().map(Into::into),
            TcpApiError::Tokens(e) => e.hint().map(Into::into),
            TcpApiError::Listen { .. } => {
                Some("give an address of this machine and a free port to --api-listen".into())
            }
        }
    }
}

/// Where the API is served over TCP, and what is to be shown there. What would be open to others
/// is refused.
///
/// # Errors
/// See [`TcpApiError`].
pub fn entrance(
    listen: Option<SocketAddr>,
    tls: Option<&Path>,
    tokens: Option<&Path>,
) -> Result<Option<(SocketAddr, Shown)>, TcpApiError> {
    match (listen, tls, tokens) {
        (None, None, None) => Ok(None),
        (None, ..) => Err(TcpApiError::NoAddress),
        (Some(_), Some(_), Some(_)) => Err(TcpApiError::Both),
        (Some(at), Some(dir), None) => Ok(Some((at, Shown::Certificate(dir.to_owned())))),
        (Some(at), None, Some(_)) if !at.ip().is_loopback() => Err(TcpApiError::Overheard(at)),
        (Some(at), None, Some(file)) => Ok(Some((at, Shown::Token(file.to_owned())))),
        (Some(at), None, None) => Err(TcpApiError::Open(at)),
    }
}

/// The API over TCP, on a thread of its own.
pub struct TcpApiServer {
    stop: Option<watch::Sender<Stop>>,
    thread: Option<(JoinHandle<()>, Receiver<()>)>,
}

impl TcpApiServer {
    /// Listens.
    ///
    /// # Errors
    /// When the files cannot be used, or the address is taken or not this machine's.
    pub fn start(at: SocketAddr, shown: &Shown, app: App) -> Result<TcpApiServer, TcpApiError> {
        let gate = shown.gate()?;
        let failed = |source| TcpApiError::Listen { address: at, source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(ApiLimits::default().connections)
            .build()
            .map_err(failed)?;
        let listener = runtime.block_on(TcpListener::bind(at)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let router = page::files().merge(layered(app.clone(), gate.clone()));
        let (stop, stopped) = watch::channel(Stop::No);
        let (ended, end) = channel::<()>();
        let serving = async move {
            let (ready, source) = mpsc::channel(1);
            let mut ending = stopped.clone();
            let intake = async {
                tokio::select! {
                    _ = ending.changed() => {}
                    () = accept(listener, &gate, &app, ready) => {}
                    () = look(&gate) => {}
                }
            };
            let served = serve(Source::Ready(source), router, ApiLimits::default(), stopped);
            tokio::join!(intake, served);
        };
        let thread = std::thread::Builder::new()
            .name("headgate-api-tcp".into())
            .spawn(move || {
                runtime.block_on(serving);
                drop(ended);
            })
            .map_err(failed)?;
        tracing::info!(%address, "the API is served over TCP");
        Ok(TcpApiServer { stop: Some(stop), thread: Some((thread, end)) })
    }
}

impl Drop for TcpApiServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // An error is a server that has ended.
            let _ = stop.send(Stop::Yes);
        }
        if let Some((thread, end)) = self.thread.take()
            && end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected)
        {
            let _ = thread.join();
        }
    }
}

async fn look(gate: &Gate) {
    let mut times = interval(LOOK);
    loop {
        times.tick().await;
        let gate = gate.clone();
        // It reads files. An error is a panic, which has been told.
        let _ = tokio::task::spawn_blocking(move || gate.look()).await;
    }
}

type Ready = mpsc::Sender<(Box<dyn Duplex>, Caller)>;

/// Accepts and shakes hands, with so many at a time.
async fn accept(listener: TcpListener, gate: &Gate, app: &App, ready: Ready) {
    let mut shaking: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = listener.accept().await;
        shaking.retain(|one| !one.is_finished());
        if (shaking.len() >= HANDSHAKES || accepted.is_err())
            && let Some(oldest) = shaking.pop_front()
        {
            oldest.abort();
        }
        match accepted {
            Ok((stream, address)) => {
                let (gate, app, ready) = (gate.clone(), app.clone(), ready.clone());
                let one = tokio::spawn(async move {
                    if let Some(open) = shake(stream, address, &gate, &app).await {
                        // An error is the server's end.
                        let _ = ready.send(open).await;
                    }
                });
                shaking.push_back(one.abort_handle());
            }
            Err(e) => {
                tracing::warn!(error = %e, "cannot accept a connection to the API over TCP");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn shake(
    stream: TcpStream,
    address: SocketAddr,
    gate: &Gate,
    app: &App,
) -> Option<(Box<dyn Duplex>, Caller)> {
    // Answers are small, and wait for nothing.
    let _ = stream.set_nodelay(true);
    let Some(credentials) = gate.credentials() else {
        return Some((Box::new(stream), Caller::Stranger(address)));
    };
    let acceptor = TlsAcceptor::from(credentials.config());
    let why = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let peer = Peer::of(stream.get_ref().1.peer_certificates().unwrap_or_default());
            let caller = Caller::Certificate { peer: Arc::new(peer), address };
            return Some((Box::new(stream), caller));
        }
        Ok(Err(e)) => e.to_string(),
        Err(_) => format!("it took longer than {HANDSHAKE:?}"),
    };
    let who = Who::Unknown { address: Some(address.to_string()) };
    let entry = Entry::new(who, "connection over TLS", Outcome::Refused).because(why);
    app.control.events().tell(Stream::Refused, entry);
    None
}

#[cfg(test)]
mod tests {
    use super::super::operations::{ALL, Allowed, Operation};
    use super::super::testing::{Bench, status, talk};
    use super::*;
    use headgate_events::Filter;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_would_be_open_to_others_is_refused() {
        let at = |text: &str| Some(text.parse().unwrap());
        let (dir, file) = (Some(Path::new("/tls")), Some(Path::new("/tokens")));
        let shown =
            |listen, tls, tokens| entrance(listen, tls, tokens).map(|found| found.is_some());
        assert!(!shown(None, None, None).unwrap());
        for listen in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.0.0.1:1"] {
            assert!(shown(at(listen), dir, None).unwrap());
            assert!(matches!(shown(at(listen), None, None), Err(TcpApiError::Open(_))));
        }
        for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert!(shown(at(listen), None, file).unwrap());
        }
        for listen in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            assert!(matches!(shown(at(listen), None, file), Err(TcpApiError::Overheard(_))));
        }
        assert!(matches!(shown(at("127.0.0.1:1"), dir, file), Err(TcpApiError::Both)));
        assert!(matches!(shown(None, dir, None), Err(TcpApiError::NoAddress)));
    }

    /// A token for each role and operation, so that each refusal has a budget of its own.
    fn tokens_file(roles: &[&str]) -> String {
        let all = roles.iter().flat_map(|role| (0..ALL.len()).map(move |at| (role, at)));
        all.map(|(role, at)| {
            let machines = if *role == "operator" { "machines = [\"shop\"]\n" } else { "" };
            let (name, token) = (format!("{role}-{at}"), token(role, at));
            format!(
                "[[token]]\nname = \"{name}\"\ntoken = \"{token}\"\nrole = \"{role}\"\n{machines}"
            )
        })
        .collect()
    }

    fn token(role: &str, at: usize) -> String {
        format!("{role}-{at}-{}", "x".repeat(32))
    }

    /// Each operation, by each role: what is forbidden is refused, says which role it needs, and is
    /// told with who it was.
    #[test]
    fn each_operation_is_for_those_whom_the_table_names() {
        let bench = Bench::new();
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("tokens");
        let roles = ["admin", "viewer", "operator"];
        std::fs::write(&file, tokens_file(&roles)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let at: SocketAddr = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap()
        };
        let server = TcpApiServer::start(at, &Shown::Token(file), bench.app()).unwrap();
        let ask = |one: &Operation, token: Option<String>| {
            let path = one.path.replace("{name}", "theirs");
            let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
            let method = one.method;
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}\r\n",
                token.unwrap_or_default()
            );
            let answer = talk(std::net::TcpStream::connect(at).unwrap(), &request);
            (status(&answer), answer)
        };
        let mut forbidden = std::collections::BTreeSet::new();
        for (number, one) in ALL.iter().enumerate() {
            let (code, answer) = ask(one, None);
            assert_eq!(code, 401, "{} {}: {answer}", one.method, one.path);
            for role in roles {
                let (code, answer) = ask(one, Some(token(role, number)));
                // Nothing here is an operator's: lists are empty, an export of no disk is wrong
                // in another way, and all else is another's.
                let is_list = one.path == "/v1/exports"
                    || one.allowed == Allowed::Everyone && !one.path.contains("{name}");
                let may = match role {
                    "admin" => true,
                    "viewer" => one.allowed.is_for_viewers(),
                    _ => is_list,
                };
                let says = (code, one.method, one.path, role, &answer);
                assert_eq!(![401, 403].contains(&code), may, "{says:?}");
                if !may {
                    assert!(answer.contains(one.allowed.roles()), "{says:?}");
                    forbidden.insert(format!("{role}-{number}"));
                }
            }
        }
        assert!(forbidden.len() > ALL.len(), "{forbidden:?}");
        let app = bench.app();
        let log = app.control.events();
        assert!(log.settle(log.last(), Duration::from_secs(20)));
        let events = log.read(&Filter::default(), 1_000).unwrap().events;
        let refused = events.iter().filter(|event| event.entry.result == Outcome::Refused);
        let told: std::collections::BTreeSet<String> = refused
            .filter_map(|event| match &event.entry.by {
                Who::Token { name, .. } if !name.starts_with("admin") => Some(name.clone()),
                _ => None,
            })
            .collect();
        let untold: Vec<&String> = forbidden.difference(&told).collect();
        assert!(untold.is_empty(), "{untold:?}");
        drop(server);
    }
}
