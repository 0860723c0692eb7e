//! Metrics and health, on the API and over TCP.
//!
//! Over TCP nobody is known, so nothing else is there, and little can be held: a connection is for
//! one request and a bounded time, and a newcomer takes the place of the oldest.

use super::app::App;
use super::error::ApiError;
use super::routes::healthz;
use crate::metrics::{Format, render};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Metrics, for Prometheus: OpenMetrics, or the text format 0.0.4 for who accepts only that.
#[cfg_attr(test, utoipa::path(get, path = "/metrics", tag = "statistics", responses((status = 200,
    content((String = "application/openmetrics-text"), (String = "text/plain"))))))]
pub(super) async fn metrics(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|one| one.to_str().ok());
    let format = Format::accepted(&accepted.collect::<Vec<_>>().join(","));
    let (control, observer, fleet) = (app.control.clone(), app.observer.clone(), app.fleet.clone());
    let text = app.on_thread(move || render(&control, observer.top(), fleet.hosts())).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], format.write(text)).into_response())
}

/// What is there over TCP.
fn readable(app: App) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .fallback(|uri: Uri| async move {
            ApiError::new(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()))
                .expected("/metrics or /healthz")
                .hint("the API is on the unix socket headgate.sock of the state directory")
        })
        .method_not_allowed_fallback(|uri: Uri| async move {
            let error = format!("{} can only be read", uri.path());
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, error).expected("GET")
        })
        .with_state(app)
}

/// What clients may hold.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections.
    connections: usize,
    /// How long a request's head may take.
    head_time: Duration,
    /// How long a connection may take.
    time: Duration,
}

const LIMITS: Limits =
    Limits { connections: 32, head_time: Duration::from_secs(5), time: Duration::from_secs(30) };

/// How long nobody is accepted after accepting has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long answers that are under way may take at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why metrics cannot be served.
#[derive(Debug, Error)]
#[error("cannot serve metrics on {address}: {source}")]
pub struct MetricsServerError {
    address: SocketAddr,
    source: io::Error,
}

/// Metrics and health over TCP, on a thread of their own.
pub struct MetricsServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl MetricsServer {
    /// Listens on `address`.
    ///
    /// # Errors
    /// When it is taken, or not this machine's.
    pub fn start(address: SocketAddr, app: App) -> Result<MetricsServer, MetricsServerError> {
        let server = MetricsServer::start_with(address, app, LIMITS)?;
        tracing::info!(address = %server.address, "metrics are served over TCP");
        if let Some(warning) = exposed(address) {
            tracing::warn!("{warning}");
        }
        Ok(server)
    }

    fn start_with(
        address: SocketAddr,
        app: App,
        limits: Limits,
    ) -> Result<MetricsServer, MetricsServerError> {
        let failed = |source| MetricsServerError { address, source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()
            .map_err(failed)?;
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("headgate-metrics".into())
            .spawn(move || {
                runtime.block_on(serve(listener, readable(app), limits, stopped));
                runtime.shutdown_timeout(PATIENCE);
            })
            .map_err(failed)?;
        Ok(MetricsServer { stop: Some(stop), thread: Some(thread), address })
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the operator has to know of the address.
fn exposed(address: SocketAddr) -> Option<String> {
    (!address.ip().is_loopback()).then(|| {
        format!(
            "metrics have no authentication: whoever reaches {address} reads the names of disks \
             and machines, and what they do"
        )
    })
}

async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            // A dropped sender is a stop.
            _ = &mut stopped => return,
            accepted = listener.accept() => accepted,
        };
        open.retain(|connection| !connection.is_finished());
        if (open.len() >= limits.connections || accepted.is_err())
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        match accepted {
            Ok((stream, _)) => {
                let connection = tokio::spawn(talk(stream, router.clone(), limits));
                open.push_back(connection.abort_handle());
            }
            Err(e) => {
                tracing::warn!(error = %e, "cannot accept a connection for metrics");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection, until its end.
async fn talk(stream: TcpStream, router: Router, limits: Limits) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head_time).keep_alive(false);
    let service = TowerToHyperService::new(router);
    match timeout(limits.time, http.serve_connection(TokioIo::new(stream), service)).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::debug!(error = %e, "a connection for metrics ended"),
        Err(_) => tracing::debug!("a connection for metrics took too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, status, talk};
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;

    const HOUR: Duration = Duration::from_secs(3_600);
    const PATIENT: Limits = Limits { connections: 2, head_time: HOUR, time: HOUR };

    fn start(bench: &Bench, limits: Limits) -> MetricsServer {
        let anywhere = "127.0.0.1:0".parse().unwrap();
        MetricsServer::start_with(anywhere, bench.app(), limits).unwrap()
    }

    fn get(server: &MetricsServer, method: &str, path: &str, headers: &str) -> String {
        let stream = TcpStream::connect(server.address).unwrap();
        talk(stream, &format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"))
    }

    #[test]
    fn metrics_and_health_can_be_read_over_tcp_and_nothing_else() {
        let bench = Bench::new();
        let server = start(&bench, LIMITS);
        let metrics = get(&server, "GET", "/metrics", "");
        assert_eq!(status(&metrics), 200, "{metrics}");
        assert!(metrics.contains("content-type: application/openmetrics-text"), "{metrics}");
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
        let text = get(&server, "GET", "/metrics", "Accept: text/plain\r\n");
        assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
        assert!(text.contains("headgate_host_info{") && !text.contains("# EOF"), "{text}");
        assert_eq!(status(&get(&server, "GET", "/healthz", "")), 200);
        for path in ["/v1/disks", "/v1/openapi.json", "/", "/metrics/x"] {
            assert_eq!(status(&get(&server, "GET", path, "")), 404, "{path}");
        }
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(status(&get(&server, method, "/metrics", "")), 405, "{method}");
            assert_eq!(status(&get(&server, method, "/v1/disks/x", "")), 404, "{method}");
        }
    }

    #[test]
    fn who_sends_no_head_is_closed() {
        let bench = Bench::new();
        let limits = Limits { head_time: Duration::from_millis(10), ..PATIENT };
        let server = start(&bench, limits);
        let mut silent = TcpStream::connect(server.address).unwrap();
        // It ends, or the test hangs.
        silent.read_to_end(&mut Vec::new()).unwrap();
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest() {
        let bench = Bench::new();
        let server = start(&bench, PATIENT);
        let mut first = TcpStream::connect(server.address).unwrap();
        let mut second = TcpStream::connect(server.address).unwrap();
        let _third = TcpStream::connect(server.address).unwrap();
        first.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(status(&get(&server, "GET", "/healthz", "")), 200);
        second.read_to_end(&mut Vec::new()).unwrap();
    }

    #[test]
    fn an_address_that_others_reach_is_warned_of() {
        assert_eq!(exposed("127.0.0.1:9108".parse().unwrap()), None);
        assert_eq!(exposed("[::1]:9108".parse().unwrap()), None);
        let warning = exposed("0.0.0.0:9108".parse().unwrap()).unwrap();
        assert!(warning.contains("no authentication") && warning.contains("0.0.0.0"), "{warning}");
        exposed("[::]:9108".parse().unwrap()).unwrap();
    }
}
