//! A line in the log of events, and one in the daemon's log, for every change that the API makes or
//! refuses: who, what, and the values.
//!
//! A layer around all routes writes it, so that no operation can be without one. What was before is
//! the handlers' to tell.

use super::app::App;
use super::asked::Asked;
use super::caller::{Known, Tenant};
use super::edit::{BODY_MAX, Edit};
use super::error::ApiError;
use super::operations::{Operation, Told};
use super::request_terms::DryRan;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headgate_api::types::ErrorBody;
use headgate_events::{Entry, Outcome, Stream, Who, hide_in_text};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest text about values in a line, in bytes.
const VALUES_MAX: usize = 2_048;

/// How long the answer to a change waits until its event is durable.
const PATIENCE: Duration = Duration::from_secs(2);

/// The layer. What only reads is told if it was forbidden.
pub(super) async fn keep(State(app): State<App>, request: Request, next: Next) -> Response {
    let operation = Operation::of(request.method(), request.uri());
    let told = |one: &Operation| one.told == Told::IfForbidden;
    let reads = operation.map_or(request.method().is_safe(), told);
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
    let known = head.extensions.get::<Known>();
    let by = known.map_or(Who::Unknown { address: None }, |known| known.who.clone());
    if reads {
        let asked = Asked::of(&app, &head.method, &head.uri, &Value::Null);
        let response = next.run(Request::from_parts(head, Body::from(body))).await;
        if ![StatusCode::FORBIDDEN, StatusCode::UNAUTHORIZED].contains(&response.status()) {
            return response;
        }
        let (response, entry) =
            not_taken(response, Call { by, asked, values: None, owners: None }).await;
        app.control.events().tell(Stream::Refused, entry);
        return response;
    }
    let value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = Asked::of(&app, &head.method, &head.uri, &value);
    let owners = app.control.owners(&asked.disks);
    let call = Call { by, asked, values: values(head.uri.query(), value), owners };
    let done = async move {
        let response = next.run(Request::from_parts(head, Body::from(body))).await;
        // Nothing was changed, and nothing was to be.
        if response.extensions().get::<DryRan>().is_some() {
            return response;
        }
        match response.status().is_success() {
            true => taken(&app, response, call).await,
            false => {
                let owners = call.owners.clone();
                let (response, mut entry) = not_taken(response, call).await;
                entry.machines = owners.unwrap_or_default();
                app.control.events().tell(Stream::Refused, entry);
                response
            }
        }
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

/// A request, as it is told.
struct Call {
    by: Who,
    asked: Asked,
    /// What stands in it.
    values: Option<Value>,
    /// Whose its disks were before; `None`: one was nobody's.
    owners: Option<Vec<String>>,
}

impl Call {
    fn entry(self, result: Outcome) -> Entry {
        let Call { by, asked, values, owners: _ } = self;
        let mut entry = Entry::new(by, asked.words, result);
        (entry.object, entry.disks, entry.asked) = (asked.object, asked.disks, values);
        entry
    }
}

/// Tells what is in force, and waits until that is durable, for a bounded time.
async fn taken(app: &App, response: Response, call: Call) -> Response {
    let edit = response.extensions().get::<Edit>().cloned().unwrap_or_default();
    let text = edit.text().unwrap_or_else(|| call.values.as_ref().map_or_else(String::new, text));
    let (by, mut what) = (call.by.to_string(), call.asked.words.clone());
    if let Some(object) = &call.asked.object {
        what = format!("{what} {}", object.name);
    }
    tracing::info!(by = %by, values = %short(hide_in_text(&text)), "{what}");
    let owners = call.owners.clone();
    let mut entry = call.entry(Outcome::Taken);
    entry.machines = both(owners, app.control.owners(&entry.disks));
    if edit != Edit::default() {
        entry.asked = None;
    }
    (entry.old, entry.new) = (edit.old, edit.new);
    let stream = match response.extensions().get::<Tenant>() {
        Some(_) => Stream::Tenants,
        None => Stream::Changes,
    };
    let control = app.control.clone();
    let kept = tokio::task::spawn_blocking(move || {
        let log = control.events();
        log.tell(stream, entry).is_some_and(|id| log.settle(id, PATIENCE))
    });
    if !kept.await.unwrap_or(false) {
        tracing::warn!(by = %by, "the event of a change is not kept yet: {what}");
    }
    response
}

/// Whose disks are now and were before.
fn both(before: Option<Vec<String>>, now: Option<Vec<String>>) -> Vec<String> {
    let (Some(before), Some(now)) = (before, now) else { return Vec::new() };
    before.into_iter().chain(now).collect::<BTreeSet<_>>().into_iter().collect()
}

/// What is told of a request that changed nothing.
async fn not_taken(response: Response, call: Call) -> (Response, Entry) {
    let failed = response.status().is_server_error();
    let mut entry = call.entry(if failed { Outcome::Failed } else { Outcome::Refused });
    let (head, body) = response.into_parts();
    // An answer to what is refused is short, and made here.
    let body = to_bytes(body, BODY_MAX).await.unwrap_or_default();
    entry.why = Some(match serde_json::from_slice::<ErrorBody>(&body) {
        Ok(body) => body.error,
        Err(_) => head.status.to_string(),
    });
    (Response::from_parts(head, Body::from(body)), entry)
}

/// What was asked for: the query's fields, and the body's.
fn values(query: Option<&str>, body: Value) -> Option<Value> {
    match (query, body) {
        (None, Value::Null) => None,
        (None, body) => Some(body),
        (Some(query), Value::Null) => Some(json!({ "query": query })),
        (Some(query), body) => Some(json!({ "query": query, "body": body })),
    }
}

/// On one line: JSON has no line breaks once it was read.
fn text(values: &Value) -> String {
    match values.get("query").and_then(Value::as_str) {
        Some(query) => {
            let body = values.get("body").map(Value::to_string);
            [Some(query.to_owned()), body].into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        None => values.to_string(),
    }
}

fn short(mut text: String) -> String {
    if text.len() > VALUES_MAX {
        let end = (0..=VALUES_MAX).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::operations;
    use super::super::testing::{Bench, Logged};
    use super::*;
    use headgate_events::Filter;

    #[test]
    fn a_line_stays_one_line_and_short() {
        let said = |query, body| text(&values(query, body).unwrap());
        assert_eq!(said(None, json!({"a": "x\ny"})), r#"{"a":"x\ny"}"#);
        assert_eq!(said(Some("image=keep"), Value::Null), "image=keep");
        assert_eq!(said(Some("a=b"), json!({})), "a=b {}");
        let long = short("\u{e9}".repeat(VALUES_MAX));
        assert!(long.len() <= VALUES_MAX + 3 && long.ends_with("..."), "{}", long.len());
    }

    /// The operations that change something: method, path, body, and what the line must have.
    const CHANGES: [(&str, &str, &str, &str); 33] = [
        ("POST", "/v1/datastores", r#"{"name":"log1","backend":{"emulated":"rate=1600"}}"#, "log1"),
        ("PATCH", "/v1/datastores/log1", r#"{"queue_depth":8}"#, "queue_depth: 32 -> 8"),
        (
            "POST",
            "/v1/disks",
            r#"{"name":"logged","size":1048576,"datastore":"default"}"#,
            r#""name":"logged""#,
        ),
        ("PATCH", "/v1/disks/logged", r#"{"limit":500}"#, "policy.limit: null -> 500"),
        ("PUT", "/v1/classes/logc", r#"{"policy":{"shares":7}}"#, r#""shares":7"#),
        ("PATCH", "/v1/disks/logged", r#"{"class":"logc"}"#, r#"class: null -> "logc""#),
        ("PUT", "/v1/classes/logc", r#"{"policy":{"shares":9}}"#, "policy.shares: 7 -> 9"),
        ("DELETE", "/v1/classes/logc?force=yes", "", "class remove logc"),
        (
            "POST",
            "/v1/apply",
            r#"{"set":"logs","classes":[{"name":"loga","class":{"policy":{"shares":5}}}]}"#,
            r#""set":"logs""#,
        ),
        ("POST", "/v1/disks/logged/resize", r#"{"size":2097152}"#, "size: 1048576 -> 2097152"),
        ("POST", "/v1/exports", r#"{"name":"loge","disk":"logged","priority":50}"#, "loge"),
        ("PATCH", "/v1/exports/loge", r#"{"priority":60}"#, "priority: 50 -> 60"),
        ("DELETE", "/v1/exports/loge", "", "export remove loge"),
        ("PATCH", "/v1/vms/logv", r#"{"max_priority":120}"#, r#""max_priority":120"#),
        ("PATCH", "/v1/vms/logv", r#"{"max_priority":90}"#, "max_priority: 120 -> 90"),
        ("PATCH", "/v1/tenants/logt", r#"{"limit":700}"#, r#""limit":700"#),
        ("PATCH", "/v1/tenants/logt", r#"{"max_disks":7}"#, "quota.max_disks: null -> 7"),
        ("PATCH", "/v1/vms/logv", r#"{"tenant":"logt"}"#, r#"tenant: null -> "logt""#),
        ("DELETE", "/v1/vms/logv", "", "vm reset logv"),
        ("DELETE", "/v1/tenants/logt", "", "tenant remove logt"),
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

    #[test]
    fn every_operation_that_changes_something_is_logged_with_who_and_what() {
        let pattern = |method: &str, path: &str| {
            let path = path.split('?').next().unwrap();
            let found = Operation::of(&method.parse().unwrap(), &path.parse().unwrap()).unwrap();
            (found.method, found.path)
        };
        let mut tried: BTreeSet<_> =
            CHANGES.iter().map(|(method, path, ..)| pattern(method, path)).collect();
        // It succeeds on a disk whose storage was in trouble only.
        tried.insert(("POST", "/v1/disks/{name}/resume"));
        // It succeeds while advice is carried out only.
        tried.insert(("DELETE", "/v1/balance"));
        // They succeed on a disk that moves or is copied only, which is over too soon here.
        tried.insert(("DELETE", "/v1/imports/{name}"));
        for operation in ["moves", "copies"] {
            for method in ["PATCH", "DELETE"] {
                tried.insert(pattern(method, &format!("/v1/{operation}/logged")));
            }
        }
        tried.insert(("POST", "/v1/disks/{name}/migrate"));
        tried.insert(("POST", "/v1/disks/{name}/copy"));
        let all = operations::ALL.iter().filter(|one| one.told == Told::Always);
        let all: BTreeSet<_> = all.map(|one| (one.method, one.path)).collect();
        assert_eq!(all, tried, "an operation is not in this test");

        let logged = Logged::all();
        let bench = Bench::new();
        bench.serve(|api| {
            let other = r#"{"name":"log2","backend":{"emulated":"rate=1600"}}"#;
            assert_eq!(api.send("POST", "/v1/datastores", other).0, 201);
            for (method, path, body, values) in CHANGES {
                let before = logged.count();
                let (status, answer) = api.send(method, path, body);
                assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
                let asked = Asked::of(
                    &bench.app(),
                    &method.parse().unwrap(),
                    &path.parse().unwrap(),
                    &json!({}),
                );
                let line = asked.words;
                assert!(!line.contains("/v1/"), "{line} is not the command line's word");
                // Other tests of the program change something of their own meanwhile.
                let mut new = logged.since(before, &line);
                new.retain(|text| text.contains(values));
                assert_eq!(new.len(), 1, "{method} {path}: {new:?}");
                assert!(new[0].contains("INFO"), "{}", new[0]);
                let me = format!("process {}", std::process::id());
                let user = format!("user {}", rustix_uid());
                assert!(new[0].contains(&me) && new[0].contains(&user), "{}", new[0]);
                // The answer came when its event was durable.
                let event = last_event(&bench);
                assert_eq!((event.operation, event.result), (line, Outcome::Taken), "{path}");
                let who = Who::Process {
                    user: rustix_uid(),
                    group: rustix::process::getegid().as_raw(),
                    process: Some(std::process::id().cast_signed()),
                };
                assert_eq!(event.by, who);
                let says = event.old.is_some() || event.new.is_some() || event.asked.is_some();
                assert!(says || method == "DELETE" || path.contains("resume"), "{path}");
            }
            let before = logged.count();
            let newest = bench.app().control.events().last();
            assert_eq!(api.send("DELETE", "/v1/disks/logged", "").0, 404);
            assert_eq!(api.send("GET", "/v1/disks", "").0, 200);
            assert_eq!(api.send("GET", "/v1/disks/none", "").0, 404);
            assert!(logged.since(before, "disk remove logged").is_empty());
            let event = last_event(&bench);
            assert_eq!(bench.app().control.events().last(), newest + 1, "what reads is not told");
            assert_eq!((event.operation.as_str(), event.result), ("disk remove", Outcome::Refused));
            assert!(event.why.unwrap().contains("there is no disk 'logged'"));
        });
    }

    fn last_event(bench: &Bench) -> Entry {
        let app = bench.app();
        let log = app.control.events();
        assert!(log.settle(log.last(), PATIENCE));
        let filter = Filter { after: log.last() - 1, ..Filter::default() };
        log.read(&filter, 1).unwrap().events.remove(0).entry
    }

    /// Every operation that changes something, tried in vain: each is told with who, what and why.
    #[test]
    fn every_operation_that_is_refused_is_told_with_why() {
        let bench = Bench::new();
        bench.serve(|api| {
            let changes = operations::ALL.iter().filter(|one| one.told == Told::Always);
            for (at, one) in changes.enumerate() {
                let path = one.path.replace("{name}", "nobody");
                let before = bench.app().control.events().last();
                let (status, answer) =
                    api.send(one.method, &path, r#"{"no such": "secret://u:p@h"}"#);
                if (200..300).contains(&status) {
                    continue;
                }
                // The budget of one peer.
                if at >= 20 {
                    assert!(bench.app().control.events().last() <= before + 1);
                    continue;
                }
                let event = last_event(&bench);
                assert_eq!(event.result, Outcome::Refused, "{path}: {answer}");
                let error: ErrorBody = serde_json::from_str(&answer).unwrap();
                assert_eq!(event.why.unwrap().len().min(1_000), error.error.len().min(1_000));
                let asked = event.asked.unwrap().to_string();
                assert!(asked.contains("no such") && !asked.contains("u:p"), "{asked}");
            }
        });
    }

    /// The tests' user.
    fn rustix_uid() -> u32 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").unwrap().uid()
    }
}
