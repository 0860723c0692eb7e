use super::app::App;
use super::changes;
use super::connections::{ApiLimits, Source, Stop, serve};
use super::gate::{self, Gate};
use super::rights::{self, ApiGroups};
use super::router::router;
use axum::{Router, middleware};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;
use tokio::net::UnixListener;
use tokio::sync::watch;

/// Why the API cannot be served.
#[derive(Debug, Error)]
#[error("cannot serve the API on {}: {source}", .path.display())]
pub struct ServeError {
    path: PathBuf,
    source: io::Error,
}

/// All routes for those who may, by this gate. What is refused is told as what is done.
pub(super) fn layered(app: App, gate: Gate) -> Router {
    router(app.clone())
        .layer(middleware::from_fn(rights::check))
        .layer(middleware::from_fn_with_state(app, changes::keep))
        .layer(middleware::from_fn_with_state(gate, gate::identify))
}

/// The API on its own thread: nothing it does touches a shard's.
pub struct ApiServer {
    stop: Option<watch::Sender<Stop>>,
    thread: Option<(JoinHandle<()>, Receiver<()>)>,
    path: PathBuf,
}

/// How long a client may take to read its last answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl ApiServer {
    /// Listens on `path` for members of `groups`. Replaces a stale socket: the caller holds the
    /// state directory's lock.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(path: &Path, groups: &ApiGroups, app: App) -> Result<ApiServer, ServeError> {
        let failed = |source| ServeError { path: path.to_owned(), source };
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // One for each request that may be under way: none waits for what another waits for.
            .max_blocking_threads(ApiLimits::default().connections.max(16))
            .build()
            .map_err(failed)?;
        let listener = {
            let _in_runtime = runtime.enter();
            let listener = headgate_access::listen(path, &groups.access()).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            UnixListener::from_std(listener).map_err(failed)?
        };
        let router = layered(app, Gate::Groups(groups.clone()));
        let (stop, stopped) = watch::channel(Stop::No);
        let (ended, end) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name("headgate-api".into())
            .spawn(move || {
                runtime.block_on(serve(
                    Source::Unix(listener),
                    router,
                    ApiLimits::default(),
                    stopped,
                ));
                drop(ended);
            })
            .map_err(failed)?;
        Ok(ApiServer { stop: Some(stop), thread: Some((thread, end)), path: path.to_owned() })
    }

    /// Answers what is under way, then stops.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            // An error is a server that has ended.
            let _ = stop.send(Stop::Yes);
        }
        if let Some((thread, end)) = self.thread.take() {
            // A client that reads nothing must not keep the daemon: its thread is left to the end
            // of the process.
            if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected) {
                let _ = thread.join();
            }
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.end();
    }
}
