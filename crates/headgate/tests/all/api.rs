//! The HTTP API over the real socket, as any HTTP client speaks it.

use crate::support::Daemon;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixStream;

fn http(daemon: &Daemon, method: &str, path: &str, body: &str) -> (u16, String) {
    daemon.http(method, path, body)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn a_disk_lives_from_creation_to_removal() {
    let daemon = Daemon::start(&[]);
    let (status, body) =
        http(&daemon, "POST", "/v1/disks", r#"{"name": "a", "size": 1048576, "vm": "web"}"#);
    assert_eq!((status, &json(&body)["state"]), (201, &"serving".into()));
    let (status, body) = http(&daemon, "PATCH", "/v1/disks/a", r#"{"limit": 100}"#);
    assert_eq!((status, &json(&body)["effective_policy"]["limit"]), (200, &100.into()));
    let (status, body) = http(&daemon, "PATCH", "/v1/disks/a", r#"{"limit": null}"#);
    assert_eq!((status, &json(&body)["effective_policy"]["limit"]), (200, &Value::Null));
    assert_eq!(json(&http(&daemon, "GET", "/v1/vms/web", "").1)["disks"], json(r#"["a"]"#));
    assert_eq!(http(&daemon, "DELETE", "/v1/disks/a", "").0, 204);
    assert_eq!(http(&daemon, "GET", "/v1/disks/a", "").0, 404);
}

#[test]
fn every_mistake_is_answered_with_error_expected_and_hint() {
    let daemon = Daemon::start(&[]);
    for (method, path, body, status) in [
        ("GET", "/nowhere", "", 404),
        ("PUT", "/v1/disks", "", 405),
        ("POST", "/v1/disks", "not json", 400),
        ("POST", "/v1/disks", r#"{"name": "../x", "size": 4096}"#, 400),
        ("POST", "/v1/disks", r#"{"name": "x", "size": 4096, "sice": 1}"#, 400),
        ("POST", "/v1/disks", r#"{"name": "x", "size": 5}"#, 422),
        ("POST", "/v1/disks", r#"{"name": "x", "size": 4096, "datastore": "none"}"#, 404),
        ("GET", "/v1/disks/x", "", 404),
        ("GET", "/v1/disks/a%20b", "", 400),
        ("DELETE", "/v1/disks/x?force=perhaps", "", 400),
        ("POST", "/v1/datastores", r#"{"name": "d", "backend": {}}"#, 422),
        ("POST", "/v1/datastores", r#"{"name": "d", "backend": {"emulated": "rate=0"}}"#, 422),
        (
            "POST",
            "/v1/datastores",
            r#"{"name": "default", "backend": {"emulated": "rate=1"}}"#,
            409,
        ),
    ] {
        let (got, answer) = http(&daemon, method, path, body);
        assert_eq!(got, status, "{method} {path} {body}: {answer}");
        let answer = json(&answer);
        assert!(
            answer["error"].is_string()
                && answer.get("expected").is_some()
                && answer.get("hint").is_some()
        );
    }
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|v| references(v, found));
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, found)),
        _ => {}
    }
}

#[test]
fn the_openapi_document_is_whole_and_true() {
    let daemon = Daemon::start(&[]);
    let (_, text) = http(&daemon, "GET", "/v1/openapi.json", "");
    assert_eq!(text, daemon.ok("api"));
    let document = json(&text);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 10);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let paths = document["paths"].as_object().unwrap();
    for (path, operations) in paths {
        assert!(
            operations.as_object().unwrap().values().all(|op| op["responses"].is_object()),
            "{path}"
        );
        if !path.contains('{') && operations.get("get").is_some() {
            assert_eq!(http(&daemon, "GET", path, "").0, 200, "{path}");
        }
    }
    assert!(paths.len() >= 11);
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let daemon = Daemon::start(&[]);
    daemon.ok("datastore add array --emulated rate=1600");
    daemon.ok("disk create a --size 1M --datastore array --reservation 250 --limit 500");
    daemon.ok("disk set a --limit-peak 900 --limit-mode soft --limit-bandwidth 1M");
    daemon.ok("disk set a --limit-peak-bandwidth 2M");
    daemon.ok("disk create b --size 1M --datastore array");
    let (status, text) = http(&daemon, "GET", "/metrics", "");
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"));
    let mut families = BTreeSet::new();
    let mut samples = BTreeSet::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (family, _) = kind.split_once(' ').unwrap();
            assert!(families.insert(family.to_owned()), "{family} is there twice");
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(samples.insert(sample.to_owned()), "{sample} is there twice");
            let name = sample.split('{').next().unwrap();
            assert!(
                families.iter().any(|family| name.starts_with(family.as_str())),
                "{name} has no family"
            );
        }
    }
    for sample in [
        r#"headgate_disk_read_ops_total{datastore="array",disk="a"}"#,
        r#"headgate_disk_written_bytes_total{datastore="array",disk="a"}"#,
        r#"headgate_disk_reservation_iops{datastore="array",disk="a"}"#,
        r#"headgate_disk_queue_seconds_count{datastore="array",disk="a",op="read"}"#,
        r#"headgate_datastore_device_seconds_bucket{le="+Inf",datastore="array",op="write"}"#,
        r#"headgate_datastore_overbooked_iops{datastore="array"}"#,
    ] {
        assert!(samples.contains(sample), "no {sample} in {text}");
    }
    for (metric, value) in
        [("soft", 1), ("peak_iops", 900), ("peak_bytes_per_second", 2 << 20), ("iops", 500)]
    {
        let of = |disk: &str| format!(r#"_disk_limit_{metric}{{datastore="array",disk="{disk}"}}"#);
        let line = format!("headgate{} {value}", of("a"));
        assert!(text.lines().any(|l| l.trim_end_matches(".0") == line), "no {line} in {text}");
        assert!(!text.contains(&of("b")), "{metric} of a disk without limits");
    }
}

#[test]
fn a_client_that_sends_half_a_request_does_not_keep_the_daemon_from_ending() {
    let mut daemon = Daemon::start(&[]);
    let mut stream = UnixStream::connect(daemon.dir().join("headgate.sock")).unwrap();
    stream.write_all(b"GET /v1/disks HTTP/1.1\r\nHo").unwrap();
    assert_eq!(http(&daemon, "GET", "/healthz", "").0, 200);
    assert_eq!(daemon.end(libc::SIGTERM), Some(0));
}
