//! A daemon without its process, for tests of the API over real sockets.

use super::{ApiGroups, ApiServer, App, WhatIfs};
use crate::calibrate::Calibrator;
use crate::engine_plane::EnginePlane;
use crate::fleet::{self, Fleet};
use crate::observe::Observer;
use headgate_catalog::SqliteCatalog;
use headgate_cluster::Identity;
use headgate_control::event_log::{EventLog, SIZE};
use headgate_control::leases::Leases;
use headgate_control::windows::{Myself, Windows};
use headgate_control::{Control, Options, Parts, StateDir};
use headgate_engine::EngineConfig;
use headgate_frontends::vhost::GuestMemorySource;
use headgate_history::Samples;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// All parts of a daemon, over a state directory of its own.
pub(super) struct Bench {
    app: App,
    dir: StateDir,
    _temp: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new() -> Bench {
        let temp = tempfile::tempdir().unwrap();
        // Other users go through it to the sockets.
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let dir = StateDir::new(temp.path()).unwrap();
        // It makes the directories.
        drop(dir.lock().unwrap());
        let (identity, _) = Identity::load(dir.root()).unwrap();
        let engine = EngineConfig { shards: 1, ..EngineConfig::default() };
        let plane = Arc::new(EnginePlane::start(engine, GuestMemorySource::default()).unwrap());
        let myself = Myself { identity: identity.clone(), etcd: None };
        let parts = Parts {
            plane: plane.clone(),
            windows: Windows::start(plane.clone(), myself).unwrap(),
            leases: Leases::new(identity.clone(), None),
            samples: Arc::new(Samples::open(&dir.samples(), Duration::from_secs(5)).unwrap()),
            catalog: Box::new(SqliteCatalog::open(&dir.catalog()).unwrap()),
            records: None,
            events: EventLog::open(&dir.events(), SIZE).unwrap(),
        };
        let myself = fleet::Myself { identity: identity.clone(), api: None };
        let control = Control::start(dir.clone(), identity, Options::default(), parts).unwrap();
        let observer = Arc::new(Observer::start(control.clone()).unwrap());
        let fleet = Fleet::start(control.clone(), observer.clone(), myself, None).unwrap();
        let app = App {
            fleet: Arc::new(fleet),
            observer,
            calibrator: Arc::new(Calibrator::new(control.clone(), plane)),
            control,
            nbd_tcp: None,
            confinement: Arc::default(),
            what_ifs: WhatIfs::default(),
        };
        Bench { app, dir, _temp: temp }
    }

    pub(super) fn app(&self) -> App {
        self.app.clone()
    }

    /// Serves the API while `work` uses it.
    pub(super) fn serve(&self, work: impl FnOnce(&Api)) {
        self.serve_to(ApiGroups::default(), |api, _| work(api));
    }

    /// Serves the API to these groups while `work` uses it, at this socket.
    pub(super) fn serve_to(&self, groups: ApiGroups, work: impl FnOnce(&Api, &Path)) {
        let path = self.dir.api_socket();
        let server = ApiServer::start(&path, &groups, self.app()).unwrap();
        work(&Api(path.clone()), &path);
        server.stop();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.app.calibrator.cancel_all();
        self.app.control.shutdown();
    }
}

/// A client of the API.
pub(super) struct Api(PathBuf);

impl Api {
    /// The status, and the body.
    pub(super) fn send(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let answer = self.send_with(method, path, "", body);
        (status(&answer), answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// The same with further headers, each with its end of line; the whole answer.
    pub(super) fn send_with(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let stream = UnixStream::connect(&self.0).unwrap();
        talk(
            stream,
            &format!(
                "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        )
    }
}

/// Sends a request, and reads until the server closes.
pub(super) fn talk(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The status of an answer.
pub(super) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// What this process has logged.
pub(super) struct Logged(&'static Mutex<Vec<String>>);

#[derive(Clone)]
struct Lines;

fn lines() -> &'static Mutex<Vec<String>> {
    static LINES: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    LINES.get_or_init(Mutex::default)
}

impl Logged {
    /// Keeps lines from the first call on, of all tests.
    pub(super) fn all() -> Logged {
        static ONCE: OnceLock<()> = OnceLock::new();
        ONCE.get_or_init(|| {
            tracing_subscriber::fmt().with_ansi(false).with_writer(Lines).init();
        });
        Logged(lines())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The lines after the first so many that have `text`.
    pub(super) fn since(&self, first: usize, text: &str) -> Vec<String> {
        self.lock().iter().skip(first).filter(|line| line.contains(text)).cloned().collect()
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;
    fn make_writer(&'a self) -> Lines {
        Lines
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line).into_owned();
        lines().lock().unwrap_or_else(PoisonError::into_inner).push(text);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
