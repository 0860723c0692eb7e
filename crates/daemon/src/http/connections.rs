//! Connections to the API: so many, and none for longer than it is used.
//!
//! A connection that has no request in service is idle, also while a request's head or body is on
//! its way. When all places are taken, the one that has been idle longest is closed for a newcomer.
//! So whoever lets connections hang keeps nobody out.

use super::caller::Caller;
use super::error::ApiError;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use headgate_access::Peer;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// The longest body of a request, in bytes.
const BODY_MAX: usize = 2 << 20;

/// How long nobody is accepted after accepting has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What clients may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ApiLimits {
    /// Connections.
    pub(super) connections: usize,
    /// How long the next request's head may take, from the last answer on.
    pub(super) head_time: Duration,
    /// How long a request's body may take.
    pub(super) body_time: Duration,
}

impl Default for ApiLimits {
    fn default() -> ApiLimits {
        ApiLimits {
            connections: 128,
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(30),
        }
    }
}

/// The connections that there are.
#[derive(Default)]
struct Table {
    open: Mutex<Open>,
    /// A connection became idle.
    changed: Notify,
}

#[derive(Default)]
struct Open {
    connections: BTreeMap<u64, Connection>,
    next: u64,
    /// Counts what happens, so that it can be said what happened first.
    stamp: u64,
}

struct Connection {
    task: AbortHandle,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Since this stamp.
    Idle(u64),
    InService,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more may come, if need be for one that is idle.
    fn has_room(&self, most: usize) -> bool {
        let open = self.lock();
        open.connections.len() < most
            || open.connections.values().any(|one| one.state != State::InService)
    }

    fn close_longest_idle(&self) {
        let mut open = self.lock();
        let idle = open.connections.iter().filter_map(|(number, one)| match one.state {
            State::Idle(since) => Some((since, *number)),
            State::InService => None,
        });
        if let Some((_, number)) = idle.min()
            && let Some(closed) = open.connections.remove(&number)
        {
            closed.task.abort();
        }
    }

    fn set(&self, number: u64, in_service: State) {
        let mut open = self.lock();
        open.stamp += 1;
        let stamp = open.stamp;
        if let Some(one) = open.connections.get_mut(&number) {
            one.state = match in_service {
                State::InService => State::InService,
                State::Idle(_) => State::Idle(stamp),
            };
        }
        drop(open);
        if in_service != State::InService {
            self.changed.notify_one();
        }
    }
}

/// A request in service. Dropping it ends that.
struct Service {
    table: Arc<Table>,
    number: u64,
}

impl Service {
    fn begin(table: &Arc<Table>, number: u64) -> Service {
        table.set(number, State::InService);
        Service { table: table.clone(), number }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.table.set(self.number, State::Idle(0));
    }
}

/// Bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Where connections come from.
pub(super) enum Source {
    Unix(UnixListener),
    /// Those that have shaken hands.
    Ready(mpsc::Receiver<(Box<dyn Duplex>, Caller)>),
}

impl Source {
    /// The next one, and who it is.
    async fn next(&mut self) -> io::Result<(Box<dyn Duplex>, Caller)> {
        match self {
            Source::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let caller = match Peer::of(&stream) {
                    Ok(peer) => Caller::Process(peer),
                    Err(e) => {
                        tracing::warn!(error = %e, "the kernel does not say who uses the API");
                        Caller::Unknown
                    }
                };
                Ok((Box::new(stream), caller))
            }
            Source::Ready(ready) => match ready.recv().await {
                Some(open) => Ok(open),
                // Nobody accepts any more: the end is near.
                None => std::future::pending().await,
            },
        }
    }
}

/// Serves until `stop` says so, then answers what is under way.
pub(super) async fn serve(
    mut source: Source,
    router: Router,
    limits: ApiLimits,
    stop: watch::Receiver<Stop>,
) {
    let table = Arc::new(Table::default());
    let mut tasks = JoinSet::new();
    let mut stopped = stop.clone();
    loop {
        let has_room = table.has_room(limits.connections);
        tokio::select! {
            _ = stopped.changed() => break,
            Some(_) = tasks.join_next() => {}
            () = table.changed.notified(), if !has_room => {}
            accepted = source.next(), if has_room => match accepted {
                Ok(connected) => {
                    if table.lock().connections.len() >= limits.connections {
                        table.close_longest_idle();
                    }
                    open(&table, &mut tasks, connected, (router.clone(), limits, stop.clone()));
                }
                Err(e) => {
                    tracing::warn!(error = %e, "cannot accept a connection to the API");
                    // Its descriptor is the next client's.
                    table.close_longest_idle();
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(source);
    while tasks.join_next().await.is_some() {}
}

/// Whether the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    No,
    Yes,
}

fn open(
    table: &Arc<Table>,
    tasks: &mut JoinSet<()>,
    connected: (Box<dyn Duplex>, Caller),
    (router, limits, stop): (Router, ApiLimits, watch::Receiver<Stop>),
) {
    let mut open = table.lock();
    let number = open.next;
    open.next += 1;
    open.stamp += 1;
    let stamp = open.stamp;
    let connection = talk(table.clone(), number, connected, (router, limits, stop));
    let table = table.clone();
    let task = tasks.spawn(async move {
        connection.await;
        table.lock().connections.remove(&number);
    });
    open.connections.insert(number, Connection { task, state: State::Idle(stamp) });
}

/// One connection, until its end.
async fn talk(
    table: Arc<Table>,
    number: u64,
    (stream, caller): (Box<dyn Duplex>, Caller),
    (router, limits, mut stop): (Router, ApiLimits, watch::Receiver<Stop>),
) {
    let stopped = stop.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(stopped.clone());
        let (table, router) = (table.clone(), router.clone());
        async move { Ok::<_, Infallible>(answer(&table, number, router, limits, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head_time);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stop.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "a connection to the API ended");
    }
}

async fn answer(
    table: &Arc<Table>,
    number: u64,
    router: Router,
    limits: ApiLimits,
    request: Request<Incoming>,
) -> Response {
    let (head, body) = request.into_parts();
    let body = match timeout(limits.body_time, to_bytes(Body::new(body), BODY_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(e)) => {
            let error = format!("the request's body cannot be read: {e}");
            return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error)
                .expected(format!("at most {BODY_MAX} bytes"))
                .into_response();
        }
        Err(_) => {
            let error = format!("the request's body took longer than {:?}", limits.body_time);
            return ApiError::new(StatusCode::REQUEST_TIMEOUT, error)
                .hint("send the body with the request")
                .into_response();
        }
    };
    let _service = Service::begin(table, number);
    let service = TowerToHyperService::new(router);
    let request = Request::from_parts(head, Body::from(body));
    match hyper::service::Service::call(&service, request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener as StdListener, UnixStream};
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::thread::JoinHandle;

    const PATIENCE: Duration = Duration::from_secs(20);
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    struct House {
        path: PathBuf,
        stop: watch::Sender<Stop>,
        served: JoinHandle<()>,
        _dir: tempfile::TempDir,
    }

    impl House {
        fn new(router: Router, limits: ApiLimits) -> House {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("api.sock");
            let listener = StdListener::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            let (stop, stopped) = watch::channel(Stop::No);
            let served = std::thread::spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let listener = UnixListener::from_std(listener).unwrap();
                    serve(Source::Unix(listener), router, limits, stopped).await;
                });
            });
            House { path, stop, served, _dir: dir }
        }

        fn connect(&self) -> UnixStream {
            let stream = UnixStream::connect(&self.path).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        }
    }

    fn limits(connections: usize) -> ApiLimits {
        ApiLimits { connections, ..ApiLimits::default() }
    }

    fn hello() -> Router {
        Router::new().route("/", get(|| async { "hello" }))
    }

    /// Sends a request and reads the answer.
    fn ask(stream: &mut UnixStream) -> String {
        stream.write_all(REQUEST).unwrap();
        read(stream)
    }

    /// What comes; nothing when the server has hung up.
    fn read(stream: &mut UnixStream) -> String {
        let mut bytes = [0; 4096];
        let read = match stream.read(&mut bytes) {
            Ok(read) => read,
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(e) => panic!("the server is silent: {e}"),
        };
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    #[test]
    fn the_longest_idle_leave_for_newcomers() {
        let house = House::new(hello(), limits(4));
        let mut used = house.connect();
        assert!(ask(&mut used).ends_with("hello"));
        let mut idle = Vec::new();
        for _ in 0..40 {
            idle.push(house.connect());
            // It was used last, and is not the one that leaves.
            assert!(ask(&mut used).ends_with("hello"));
        }
        let mut operator = house.connect();
        assert!(ask(&mut operator).ends_with("hello"));
        for old in &mut idle[..37] {
            assert_eq!(read(old), "");
        }
        assert!(ask(idle.last_mut().unwrap()).ends_with("hello"));
    }

    #[test]
    fn who_is_served_is_not_sent_away_and_newcomers_wait() {
        let (go, wait) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel::<()>();
        let ends = Arc::new(Mutex::new((begun, wait)));
        let slow = move || async move {
            let waited = tokio::task::spawn_blocking(move || {
                let ends = ends.lock().unwrap();
                ends.0.send(()).is_ok() && ends.1.recv().is_ok()
            });
            if waited.await.unwrap_or(false) { "done" } else { "failed" }
        };
        let house = House::new(Router::new().route("/", get(slow)), limits(1));
        let mut served = house.connect();
        served.write_all(REQUEST).unwrap();
        has_begun.recv_timeout(PATIENCE).unwrap();
        let mut next = house.connect();
        next.write_all(REQUEST).unwrap();
        go.send(()).unwrap();
        go.send(()).unwrap();
        let both = [read(&mut served), read(&mut next)];
        assert!(both.iter().all(|answer| answer.ends_with("done")), "{both:?}");
    }

    #[test]
    fn half_a_head_and_half_a_body_run_out_of_time() {
        let short = Duration::from_millis(50);
        let limits = ApiLimits { connections: 4, head_time: short, body_time: short };
        let house = House::new(hello(), limits);
        let mut half = house.connect();
        half.write_all(&REQUEST[..10]).unwrap();
        // An answer (408) may come first.
        while !read(&mut half).is_empty() {}
        assert_eq!(read(&mut house.connect()), "");
        let mut body = house.connect();
        body.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
        assert!(read(&mut body).starts_with("HTTP/1.1 408"));
    }

    #[test]
    fn a_body_that_is_too_long_is_refused() {
        let house = House::new(hello(), limits(4));
        let mut long = house.connect();
        long.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n").unwrap();
        // The server may hang up at any byte.
        let _ = long.write_all(&vec![b' '; 3_000_000]);
        assert!(read(&mut long).starts_with("HTTP/1.1 413"));
    }

    #[test]
    fn the_end_closes_what_is_idle() {
        let house = House::new(hello(), limits(4));
        let mut used = house.connect();
        assert!(ask(&mut used).ends_with("hello"));
        house.stop.send(Stop::Yes).unwrap();
        assert_eq!(read(&mut used), "");
        house.served.join().unwrap();
    }
}
