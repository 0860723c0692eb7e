//! What a request asks for, as it is told.

use super::app::App;
use super::operations::Operation;
use axum::http::{Method, Uri};
use headgate_events::Subject;
use serde_json::Value;

/// What a request asks for, for a line about it.
pub(super) struct Asked {
    /// In the command line's words where it has some.
    pub(super) words: String,
    pub(super) object: Option<Subject>,
    pub(super) disks: Vec<String>,
}

impl Asked {
    /// By what is known before it is done.
    pub(super) fn of(app: &App, method: &Method, uri: &Uri, body: &Value) -> Asked {
        let operation = Operation::of(method, uri).filter(|one| !one.words.is_empty());
        let words =
            operation.map_or_else(|| format!("{method} {}", uri.path()), |one| one.words.into());
        let mut parts = uri.path().split('/').skip(2);
        let (kind, in_path) = (parts.next().unwrap_or(""), parts.next().map(decoded));
        let text = |field: &str| body.get(field).and_then(Value::as_str).map(str::to_owned);
        let has_name = operation.is_some_and(|one| one.path.contains("{name}"));
        let name = if has_name { in_path } else { text("name") };
        let Some(name) = name else { return Asked { words, object: None, disks: Vec::new() } };
        // A removed disk is known by its id, too.
        let disk = |name: &str| name.split('@').next().unwrap_or(name).to_owned();
        let (kind, disks) = match kind {
            "datastores" => ("datastore", Vec::new()),
            "disks" if uri.path().ends_with("/copy") => {
                ("disk", [Some(disk(&name)), text("name")].into_iter().flatten().collect())
            }
            "disks" | "moves" | "copies" | "imports" | "removed" => ("disk", vec![disk(&name)]),
            "vms" => ("vm", Vec::new()),
            "tenants" => ("tenant", Vec::new()),
            "classes" => ("class", Vec::new()),
            "exports" => {
                let known = name.parse().ok().and_then(|name| app.control.export(&name).ok());
                let of = text("disk").or(known.map(|export| export.disk.to_string()));
                ("export", of.into_iter().collect())
            }
            other => (other, Vec::new()),
        };
        Asked { words, object: Some(Subject::new(kind, name)), disks }
    }
}

/// A part of a path as handlers get it.
pub(super) fn decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    #[test]
    fn requests_are_told_by_what_they_are_about() {
        let bench = Bench::new();
        let asked = |method: &str, path: &str, body: &str| {
            let body = serde_json::from_str(body).unwrap_or_default();
            let asked =
                Asked::of(&bench.app(), &method.parse().unwrap(), &path.parse().unwrap(), &body);
            let object = asked.object.map(|one| format!(" {} {}", one.kind, one.name));
            format!("{}{}: {}", asked.words, object.unwrap_or_default(), asked.disks.join(","))
        };
        for (method, path, body, told) in [
            ("PATCH", "/v1/disks/a%2Db", "{}", "disk set disk a-b: a-b"),
            ("POST", "/v1/disks", r#"{"name":"x"}"#, "disk create disk x: x"),
            ("POST", "/v1/disks/a/copy", r#"{"name":"b"}"#, "disk copy disk a: a,b"),
            ("DELETE", "/v1/removed/a@17?x=y", "", "disk purge disk a@17: a"),
            ("POST", "/v1/exports", r#"{"name":"e","disk":"d"}"#, "export add export e: d"),
            ("PUT", "/v1/rules", "{}", "rules set: "),
            ("PUT", "/v1/classes/gold", "{}", "class set class gold: "),
            ("POST", "/v1/apply", "{}", "apply: "),
            ("PUT", "/v1/nowhere", "{}", "PUT /v1/nowhere: "),
            ("GET", "/v1/disks/a", "", "GET /v1/disks/a: "),
        ] {
            assert_eq!(asked(method, path, body), told, "{method} {path}");
        }
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }
}
