//! Requests to the API of a whole daemon: control plane, engine, catalog, observer. A line of the
//! input is a request: a method, a path and perhaps a body.
//!
//! Whatever comes: nothing panics, errors are in the API's own form, a change that is acknowledged
//! is in the catalog, and all that was made can be removed.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use headgate_catalog::{Catalog, SqliteCatalog};
use headgate_cluster::Identity;
use headgate_control::event_log::{self, EventLog};
use headgate_control::leases::Leases;
use headgate_control::windows::{Myself, Windows};
use headgate_control::{Control, Options, Parts, StateDir};
use headgate_daemon::calibrate::Calibrator;
use headgate_daemon::engine_plane::EnginePlane;
use headgate_daemon::fleet::{self, Fleet};
use headgate_daemon::http::{App, router};
use headgate_daemon::observe::Observer;
use headgate_engine::EngineConfig;
use headgate_history::Samples;
use http_body_util::BodyExt;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tower_service::Service;

/// More requests of one input are left out: some take a while.
const REQUESTS: usize = 12;

pub(super) const WORDS: &[&str] = &[
    "GET /v1/",
    "POST /v1/",
    "PATCH /v1/",
    "PUT /v1/",
    "DELETE /v1/",
    "disks",
    "datastores",
    "vms",
    "tenants",
    "exports",
    "rules",
    "advice",
    "/d",
    "/m",
    "/a",
    "?force=yes",
    "?image=keep",
    "\n",
    "{}",
    "null",
    "\"name\":",
    "\"size\":1048576",
    "\"policy\":",
    "\"limit\":",
    "\"reservation\":",
    "\"shares\":",
    "\"datastore\":\"m\"",
    "\"backend\":{\"memory\":",
    "\"emulated\":\"rate=1600\"",
    "\"dir\":\"x\"",
    "\"layers\":[\"delay=1ms\"]",
    "\"window\":",
    "\"placement\":",
    "\"vm\":\"v\"",
    "\"priority\":",
    "\"limit_peak\":",
    "\"latency_target\":\"p99<5ms\"",
    "18446744073709551615",
    "-1",
    "1e300",
    "\"queue_depth\":",
    "calibration",
    "takeover",
    "attachment",
    "history",
    "trace",
    "points",
    "\"threshold\":\"auto\"",
    "\"board\":\"none\"",
    "/metrics",
    "/healthz",
    "\"force\":\"yes\"",
];

const SEEDS: &[&str] = &[
    "GET /v1/disks\nGET /v1/datastores\nGET /v1/vms\nGET /v1/exports\nGET /v1/rules\nGET /v1/advice",
    "GET /healthz\nGET /metrics\nGET /v1/top\nGET /v1/stats\nGET /v1/openapi.json\nGET /nowhere",
    r#"POST /v1/datastores {"name":"m","backend":{"memory":67108864}}
POST /v1/disks {"name":"d","size":1048576,"datastore":"m","vm":"v","policy":{"limit":500}}
PATCH /v1/disks/d {"reservation":100,"limit":null,"shares":300}
GET /v1/disks/d
GET /v1/disks/d/attachment
DELETE /v1/disks/d?force=yes
DELETE /v1/datastores/m"#,
    r#"POST /v1/datastores {"name":"a","backend":{"emulated":"rate=1600,latency=5ms"},"queue_depth":32}
POST /v1/disks {"name":"d","size":1048576,"policy":{"reservation":100,"limit_peak":900,"limit":600}}
POST /v1/disks {"name":"e","size":4096,"datastore":"a","policy":{"latency_target":"p99<50ms"}}
PATCH /v1/datastores/a {"window":{"threshold":"30ms","board":"none"},"layers":["delay=1ms"]}
GET /v1/datastores/a
GET /v1/datastores/a/history?last=1h
GET /v1/datastores/a/points
GET /v1/datastores/a/trace"#,
    r#"POST /v1/datastores {"name":"f","backend":{"dir":"f"},"capacity":1000}
POST /v1/disks {"name":"d","size":65536,"datastore":"f"}
POST /v1/exports {"name":"x","disk":"d","priority":5}
PATCH /v1/exports/x {"priority":2}
PATCH /v1/vms/v {"max_priority":5}
GET /v1/vms/v
PATCH /v1/tenants/t {"limit":700,"max_disks":2}
PATCH /v1/vms/v {"tenant":"t","shares":5}
DELETE /v1/exports/x
DELETE /v1/disks/d?image=keep
POST /v1/disks/d/takeover {"datastore":"f"}"#,
    r#"POST /v1/datastores {"name":"f","backend":{"dir":"f"},"overcommit":3}
POST /v1/disks {"name":"d","size":65536,"datastore":"f","policy":{"werror":"stop","rerror":"stop"}}
POST /v1/disks/d/resume {}
DELETE /v1/disks/d
GET /v1/removed
POST /v1/removed/d/restore {"name":"e"}
DELETE /v1/disks/e
DELETE /v1/removed/d"#,
    r#"PUT /v1/rules {"affinity":[]}
POST /v1/datastores {"name":"m","backend":{"memory":1048576}}
POST /v1/datastores/m/calibration {}
GET /v1/datastores/m/calibration
DELETE /v1/datastores/m/calibration
POST /v1/disks {"name":"d","size":2097152,"datastore":"m","force":"yes"}"#,
    r#"POST /v1/datastores {"name":"m","backend":{"memory":8388608}}
POST /v1/disks {"name":"d","size":2097152,"datastore":"default"}
POST /v1/disks/d/migrate {"to":"m","shares":1,"limit_bandwidth":1048576,"force":"no"}
GET /v1/moves
PATCH /v1/moves/d {"state":"paused","limit":10}
DELETE /v1/disks/d
GET /v1/moves/d
DELETE /v1/moves/d?force=no"#,
    r#"POST /v1/datastores {"name":"r","backend":{"nbd":"nbd+unix:///?socket=/run/x"}}
POST /v1/datastores {"name":"b","backend":{"block":"/dev/sdz"}}
POST /v1/disks {"name":"d","datastore":"r","export":"e"}"#,
];

pub(super) fn seeds() -> Vec<Vec<u8>> {
    SEEDS.iter().map(|lines| lines.as_bytes().to_vec()).collect()
}

/// All parts of a daemon but its sockets.
struct Bench {
    router: Router,
    runtime: tokio::runtime::Runtime,
    dir: StateDir,
    _temp: tempfile::TempDir,
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

fn start(dir: &StateDir) -> App {
    let (identity, _) = Identity::load(dir.root()).expect("an identity");
    let engine = EngineConfig { shards: 1, ..EngineConfig::default() };
    let plane = Arc::new(EnginePlane::start(engine, Default::default()).expect("a shard"));
    let myself = Myself { identity: identity.clone(), etcd: None };
    let samples = Samples::open(&dir.samples(), Duration::from_secs(60)).expect("a history");
    let parts = Parts {
        plane: plane.clone(),
        windows: Windows::start(plane.clone(), myself).expect("a thread"),
        leases: Leases::new(identity.clone(), None),
        samples: Arc::new(samples),
        catalog: Box::new(SqliteCatalog::open(&dir.catalog()).expect("a catalog")),
        records: None,
        events: EventLog::open(&dir.events(), event_log::SIZE).expect("a log of events"),
    };
    let myself = fleet::Myself { identity: identity.clone(), api: None };
    let control = Control::start(dir.clone(), identity, Options::default(), parts);
    let control = control.expect("an empty daemon");
    let observer = Arc::new(Observer::start(control.clone()).expect("a thread"));
    let fleet = Fleet::start(control.clone(), observer.clone(), myself, None);
    let fleet = fleet.expect("it needs no thread");
    App {
        fleet: Arc::new(fleet),
        observer,
        calibrator: Arc::new(Calibrator::new(control.clone(), plane)),
        control,
        nbd_tcp: None,
        confinement: Arc::default(),
        what_ifs: Default::default(),
    }
}

/// An answer.
struct Answer {
    status: u16,
    body: Value,
}

impl Bench {
    fn new() -> Bench {
        let temp = super::scratch();
        let dir = StateDir::new(temp.path()).expect("a short path");
        // It makes the directories.
        drop(dir.lock().expect("a new directory"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .build()
            .expect("a runtime");
        // What is named by a relative path stays in here.
        let router = router(start(&dir));
        Bench { router, runtime, dir, _temp: temp }
    }

    fn send(&mut self, method: &Method, path: &str, body: Vec<u8>) -> Option<Answer> {
        let request = Request::builder().method(method).uri(path).body(Body::from(body)).ok()?;
        let router = &mut self.router;
        let (status, bytes) = self.runtime.block_on(async {
            let response = router.call(request).await.unwrap_or_else(|never| match never {});
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.expect("a body in memory");
            (status, body.to_bytes())
        });
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if status >= 400 {
            let error = body["error"].as_str().unwrap_or_default();
            assert!(!error.is_empty(), "{status} for {method} {path} says nothing: {bytes:?}");
            assert!(!error.contains("was cut"), "{method} {path}: {error}");
        }
        Some(Answer { status, body })
    }

    /// The names in a list.
    fn names(&mut self, list: &str) -> BTreeSet<String> {
        let answer = self.send(&Method::GET, list, Vec::new()).expect("a good request");
        assert_eq!(answer.status, 200, "{list}: {}", answer.body);
        // What is removed may have had one name more than once.
        let of = |one: &Value| one["id"].as_str().or(one["name"].as_str()).map(str::to_owned);
        answer.body.as_array().into_iter().flatten().filter_map(of).collect()
    }

    /// Removes all that is there.
    fn clear(&mut self) {
        for (list, flags) in [
            ("/v1/exports", ""),
            ("/v1/disks", "?force=yes&image=purge"),
            ("/v1/removed", ""),
            ("/v1/vms", ""),
            ("/v1/datastores", ""),
        ] {
            for name in self.names(list) {
                if list == "/v1/datastores" {
                    let path = format!("{list}/{name}/calibration");
                    // Mostly none runs.
                    self.send(&Method::DELETE, &path, Vec::new());
                }
                let path = format!("{list}/{name}{flags}");
                let answer = self.send(&Method::DELETE, &path, Vec::new()).expect("a good path");
                assert!(answer.status < 300, "{path} stays: {} {}", answer.status, answer.body);
            }
        }
        let none = Method::PUT;
        let answer = self.send(&none, "/v1/rules", b"{}".to_vec()).expect("a good request");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

/// What must not be followed out of the bench: paths lead into it, servers to nobody.
fn tame(value: &mut Value, root: &Path) {
    match value {
        Value::String(text) if text.contains("://") => {
            *text = format!("nbd+unix:///?socket={}/nobody", root.display());
        }
        Value::String(text) if text.contains('/') => {
            *text = root.join(format!("p{}", text.len() % 4)).display().to_string();
        }
        Value::String(text) if text.contains("..") => text.clear(),
        Value::Array(values) => values.iter_mut().for_each(|value| tame(value, root)),
        Value::Object(fields) => fields.values_mut().for_each(|value| tame(value, root)),
        _ => {}
    }
}

fn body(text: &[u8], root: &Path) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice::<Value>(text) else { return text.to_vec() };
    let before = value.clone();
    tame(&mut value, root);
    if value == before { text.to_vec() } else { value.to_string().into_bytes() }
}

/// Sends one line. Answers the status.
fn line(bench: &mut Bench, line: &[u8]) -> Option<(Method, String, u16)> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let method = Method::from_bytes(words.next()?).ok()?;
    let path = std::str::from_utf8(words.next()?).ok()?.to_owned();
    let root = bench.dir.root().to_owned();
    let body = words.next().map_or_else(Vec::new, |text| body(text, &root));
    if method == Method::POST && path.ends_with("/calibration") && body.len() < 2 {
        // It would load the machine for minutes.
        return None;
    }
    let status = bench.send(&method, &path, body)?.status;
    Some((method, path, status))
}

pub(super) fn run(input: &[u8]) {
    BENCH.with_borrow_mut(|bench| {
        let bench = bench.get_or_insert_with(Bench::new);
        for request in input.split(|byte| *byte == b'\n').take(REQUESTS) {
            line(bench, request);
        }
        // What the daemon shows is what the catalog holds.
        let shown = [bench.names("/v1/datastores"), bench.names("/v1/disks")];
        let mut catalog = SqliteCatalog::open(&bench.dir.catalog()).expect("the catalog");
        let held = catalog.load().expect("what the daemon wrote can be read");
        let datastores = held.datastores.iter().map(|one| one.name.to_string()).collect();
        let disks = held.disks.iter().map(|one| one.name.to_string()).collect();
        assert_eq!(shown, [datastores, disks]);
        bench.clear();
    });
}
