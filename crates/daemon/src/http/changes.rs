//! One line in the log for every change that the API makes: who, what, and the values.
//!
//! A layer over all routes writes it, so that no operation can be without one. What was before is
//! the handlers' to tell.

use super::error::ApiError;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headgate_access::Peer;
use headgate_api::priorities::{Priorities, VmSockets};
use headgate_api::types::Vm;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The longest body of a request, in bytes.
pub(super) const BODY_MAX: usize = 2 << 20;

/// The longest text about values in a line, in bytes.
const VALUES_MAX: usize = 2_048;

/// What a change made of what was: `policy.limit: null -> 500`.
#[derive(Clone, Debug)]
pub(super) struct Edit(String);

impl Edit {
    /// The difference of two views of one thing, which have only what can be set.
    pub(super) fn between<T: Serialize>(before: &T, now: &T) -> Edit {
        let [before, now] = [before, now].map(|view| {
            let mut leaves = BTreeMap::new();
            // A view that is no JSON has no leaves, and then the line has no values.
            flatten("", serde_json::to_value(view).unwrap_or_default(), &mut leaves);
            leaves
        });
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let text = |value: Option<&Value>| value.map_or("null".to_owned(), Value::to_string);
        let changes: Vec<String> = names
            .into_iter()
            .filter(|name| before.get(*name) != now.get(*name))
            .map(|name| format!("{name}: {} -> {}", text(before.get(name)), text(now.get(name))))
            .collect();
        if changes.is_empty() {
            return Edit("as before".into());
        }
        Edit(changes.join(", "))
    }
}

/// What can be set of a virtual machine.
#[derive(Serialize)]
pub(super) struct VmSettings<'a> {
    #[serde(flatten)]
    priorities: &'a Priorities,
    #[serde(flatten)]
    sockets: &'a VmSockets,
}

impl VmSettings<'_> {
    pub(super) fn of(vm: &Vm) -> VmSettings<'_> {
        VmSettings { priorities: &vm.priorities, sockets: &vm.sockets }
    }
}

/// Values by their names, the names of what is around them before theirs. Lists count as values.
fn flatten(name: &str, value: Value, leaves: &mut BTreeMap<String, Value>) {
    let Value::Object(fields) = value else {
        leaves.insert(name.to_owned(), value);
        return;
    };
    for (key, value) in fields {
        let inner = if name.is_empty() { key } else { format!("{name}.{key}") };
        flatten(&inner, value, leaves);
    }
}

/// The layer. What is refused changes nothing, and is not told.
pub(super) async fn log(request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let body = match to_bytes(body, BODY_MAX).await {
        Ok(body) => body,
        Err(e) => {
            let error = format!("the request's body cannot be read: {e}");
            return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error)
                .expected(format!("at most {BODY_MAX} bytes"))
                .into_response();
        }
    };
    let what = what(&head.method, &head.uri);
    let by = head.extensions.get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.clone());
    let query = head.uri.query().map(str::to_owned);
    let done = async move {
        let request = Request::from_parts(head, Body::from(body.clone()));
        let response = next.run(request).await;
        if response.status().is_success() {
            let by = by.map_or("unknown".to_owned(), |peer| peer.to_string());
            let values = match response.extensions().get::<Edit>() {
                Some(Edit(text)) => text.clone(),
                None => asked(&body, query.as_deref()),
            };
            tracing::info!(by = %by, values = %short(values), "{what}");
        }
        response
    };
    // A client that does not wait for the answer makes its change all the same.
    match tokio::spawn(done).await {
        Ok(response) => response,
        Err(e) => {
            let error = format!("the operation was cut: {e}");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error)
                .hint("see the daemon's log")
                .into_response()
        }
    }
}

/// What was asked for, on one line: JSON has no line breaks once it was read.
fn asked(body: &[u8], query: Option<&str>) -> String {
    let body = match serde_json::from_slice::<Value>(body) {
        Ok(value) => Some(value.to_string()),
        Err(_) => None,
    };
    [query.map(str::to_owned), body].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn short(mut text: String) -> String {
    if text.len() > VALUES_MAX {
        let end = (0..=VALUES_MAX).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

/// What was done, in the command line's words where it has some: `disk set db`.
fn what(method: &Method, uri: &Uri) -> String {
    let parts: Vec<&str> = uri.path().split('/').skip(2).collect();
    let words = match (method.as_str(), &parts[..]) {
        ("POST", ["datastores"]) => "datastore add",
        ("PATCH", ["datastores", _]) => "datastore set",
        ("DELETE", ["datastores", _]) => "datastore remove",
        ("POST", ["datastores", _, "calibration"]) => "datastore calibrate",
        ("DELETE", ["datastores", _, "calibration"]) => "datastore calibrate --cancel",
        ("POST", ["disks"]) => "disk create",
        ("PATCH", ["disks", _]) => "disk set",
        ("DELETE", ["disks", _]) => "disk remove",
        ("POST", ["disks", _, "takeover"]) => "disk takeover",
        ("POST", ["disks", _, "resume"]) => "disk resume",
        ("POST", ["disks", _, "resize"]) => "disk resize",
        ("POST", ["disks", _, "migrate"]) => "disk migrate",
        ("PATCH", ["moves", _]) => "disk migrate (change)",
        ("DELETE", ["moves", _]) => "disk migrate --cancel",
        ("POST", ["disks", _, "copy"]) => "disk copy",
        ("PATCH", ["copies", _]) => "disk copy (change)",
        ("DELETE", ["copies", _]) => "disk copy --cancel",
        ("POST", ["removed", _, "restore"]) => "disk restore",
        ("DELETE", ["removed", _]) => "disk purge",
        ("PATCH", ["vms", _]) => "vm set",
        ("DELETE", ["vms", _]) => "vm reset",
        ("POST", ["exports"]) => "export add",
        ("PATCH", ["exports", _]) => "export set",
        ("DELETE", ["exports", _]) => "export remove",
        ("PUT", ["rules"]) => "rules set",
        ("PATCH", ["rules"]) => "rules --automatic",
        ("POST", ["balance"]) => "balance --apply",
        ("DELETE", ["balance"]) => "balance --stop",
        ("PUT", ["datastores", _, "maintenance"]) => "datastore maintenance",
        _ => return format!("{method} {}", uri.path()),
    };
    match parts.get(1) {
        Some(name) => format!("{words} {name}"),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, Logged};
    use super::*;
    use serde_json::json;

    #[test]
    fn an_edit_names_what_is_different_and_nothing_else() {
        let before = json!({"policy": {"limit": null, "shares": 1000}, "vm": "a"});
        let now = json!({"policy": {"limit": 500, "shares": 1000}, "vm": "b"});
        let Edit(text) = Edit::between(&before, &now);
        assert_eq!(text, r#"policy.limit: null -> 500, vm: "a" -> "b""#);
        let Edit(text) = Edit::between(&now, &now);
        assert_eq!(text, "as before");
    }

    #[test]
    fn a_line_stays_one_line_and_short() {
        assert_eq!(asked(b"{\"a\":\n \"x\\ny\"}", None), r#"{"a":"x\ny"}"#);
        assert_eq!(asked(b"", Some("image=keep")), "image=keep");
        let long = short("\u{e9}".repeat(VALUES_MAX));
        assert!(long.len() <= VALUES_MAX + 3 && long.ends_with("..."), "{}", long.len());
    }

    /// The operations that change something: method, path, body, and what the line must have.
    const CHANGES: [(&str, &str, &str, &str); 24] = [
        ("POST", "/v1/datastores", r#"{"name":"log1","backend":{"emulated":"rate=1600"}}"#, "log1"),
        ("PATCH", "/v1/datastores/log1", r#"{"queue_depth":8}"#, "queue_depth: 32 -> 8"),
        (
            "POST",
            "/v1/disks",
            r#"{"name":"logged","size":1048576,"datastore":"default"}"#,
            r#""name":"logged""#,
        ),
        ("PATCH", "/v1/disks/logged", r#"{"limit":500}"#, "policy.limit: null -> 500"),
        ("POST", "/v1/disks/logged/resize", r#"{"size":2097152}"#, "size: 1048576 -> 2097152"),
        ("POST", "/v1/exports", r#"{"name":"loge","disk":"logged","priority":50}"#, "loge"),
        ("PATCH", "/v1/exports/loge", r#"{"priority":60}"#, "priority: 50 -> 60"),
        ("DELETE", "/v1/exports/loge", "", "export remove loge"),
        ("PATCH", "/v1/vms/logv", r#"{"max_priority":120}"#, r#""max_priority":120"#),
        ("PATCH", "/v1/vms/logv", r#"{"max_priority":90}"#, "max_priority: 120 -> 90"),
        ("DELETE", "/v1/vms/logv", "", "vm reset logv"),
        ("PUT", "/v1/rules", r#"{"balance":{"start":222}}"#, "balance.start: 100 -> 222"),
        ("PATCH", "/v1/rules", r#"{"mode":"ask"}"#, r#"mode: "off" -> "ask""#),
        ("POST", "/v1/balance", r#"{"at_once":2}"#, r#""at_once":2"#),
        ("PUT", "/v1/datastores/log1/maintenance", r#"{"state":"off"}"#, r#""state":"off""#),
        ("POST", "/v1/datastores/log1/calibration", r#"{"force":"no","seconds":60}"#, "60"),
        ("DELETE", "/v1/datastores/log1/calibration", "", "calibrate --cancel log1"),
        ("DELETE", "/v1/disks/logged?image=keep", "", "image=keep"),
        ("POST", "/v1/disks/logged/takeover", r#"{"datastore":"default"}"#, "default"),
        ("DELETE", "/v1/disks/logged", "", "disk remove logged"),
        ("POST", "/v1/removed/logged/restore", "{}", "disk restore logged"),
        ("DELETE", "/v1/disks/logged?image=remove", "", "image=remove"),
        ("DELETE", "/v1/removed/logged", "", "disk purge logged"),
        ("DELETE", "/v1/datastores/log2", "", "datastore remove log2"),
    ];

    /// The operations in the document that are no reading, as `METHOD path`.
    fn documented() -> BTreeSet<String> {
        let document: Value = serde_json::from_str(super::super::DOCUMENT).unwrap();
        let mut all = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys().filter(|one| *one != "get") {
                all.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        all
    }

    /// As the document has it: what stands where a name is becomes `{name}`.
    fn pattern(method: &str, path: &str) -> String {
        let path = path.split('?').next().unwrap();
        let parts: Vec<&str> = path.split('/').collect();
        let parts =
            parts.iter().enumerate().map(|(at, part)| if at == 3 { "{name}" } else { part });
        format!("{method} {}", parts.collect::<Vec<_>>().join("/"))
    }

    #[test]
    fn every_operation_that_changes_something_is_logged_with_who_and_what() {
        let mut tried: BTreeSet<String> =
            CHANGES.iter().map(|(method, path, ..)| pattern(method, path)).collect();
        // It succeeds on a disk whose storage was in trouble only.
        let resume = "/v1/disks/logged/resume";
        tried.insert(pattern("POST", resume));
        assert_eq!(what(&Method::POST, &resume.parse().unwrap()), "disk resume logged");
        // It succeeds while advice is carried out only.
        tried.insert(pattern("DELETE", "/v1/balance"));
        assert_eq!(what(&Method::DELETE, &"/v1/balance".parse().unwrap()), "balance --stop");
        // They succeed on a disk that moves or is copied only, which is over too soon here.
        for (method, path, words) in [
            ("POST", "/v1/disks/logged/migrate", "disk migrate logged"),
            ("PATCH", "/v1/moves/logged", "disk migrate (change) logged"),
            ("DELETE", "/v1/moves/logged", "disk migrate --cancel logged"),
            ("POST", "/v1/disks/logged/copy", "disk copy logged"),
            ("PATCH", "/v1/copies/logged", "disk copy (change) logged"),
            ("DELETE", "/v1/copies/logged", "disk copy --cancel logged"),
        ] {
            tried.insert(pattern(method, path));
            assert_eq!(what(&method.parse().unwrap(), &path.parse().unwrap()), words);
        }
        assert_eq!(documented(), tried, "an operation is not in this test");

        let logged = Logged::all();
        let bench = Bench::new();
        bench.serve(|api| {
            let other = r#"{"name":"log2","backend":{"emulated":"rate=1600"}}"#;
            assert_eq!(api.send("POST", "/v1/datastores", other).0, 201);
            for (method, path, body, values) in CHANGES {
                let before = logged.count();
                let (status, answer) = api.send(method, path, body);
                assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
                let line = what(&method.parse().unwrap(), &path.parse().unwrap());
                assert!(!line.contains("/v1/"), "{line} is not the command line's word");
                // Other tests of the program change something of their own meanwhile.
                let mut new = logged.since(before, &line);
                new.retain(|text| text.contains(values));
                assert_eq!(new.len(), 1, "{method} {path}: {new:?}");
                assert!(new[0].contains("INFO"), "{}", new[0]);
                let me = format!("process {}", std::process::id());
                let user = format!("user {}", rustix_uid());
                assert!(new[0].contains(&me) && new[0].contains(&user), "{}", new[0]);
            }
            let before = logged.count();
            assert_eq!(api.send("DELETE", "/v1/disks/logged", "").0, 404);
            assert_eq!(api.send("GET", "/v1/disks", "").0, 200);
            assert!(logged.since(before, "disk remove logged").is_empty());
        });
    }

    /// The tests' user.
    fn rustix_uid() -> u32 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").unwrap().uid()
    }
}
