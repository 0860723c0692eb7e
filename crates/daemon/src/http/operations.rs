//! All operations of the API: where, in which words, and for whom. The routes are made of this
//! table, so that none is without a line in the log of events, and none without somebody whom it
//! is for.

use axum::http::{Method, Uri};

/// Whom an operation is for. Admins may do everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Admins, viewers, and of what is theirs tenants.
    Everyone,
    /// Admins and viewers.
    Viewers,
    /// Admins, and of what is theirs tenants.
    Tenants,
    /// Admins.
    Admins,
}

impl Allowed {
    /// Whether viewers may.
    pub(super) fn is_for_viewers(self) -> bool {
        matches!(self, Allowed::Everyone | Allowed::Viewers)
    }

    /// The roles that it takes, in words.
    pub(super) fn roles(self) -> &'static str {
        match self {
            Allowed::Everyone => "role admin, viewer, or operator of the disk's machine",
            Allowed::Viewers => "role admin or viewer",
            Allowed::Tenants => "role admin, or operator of the disk's machine",
            Allowed::Admins => "role admin",
        }
    }
}

/// Whether an operation is told in the log of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Each time.
    Always,
    /// Only who may not, for it changes nothing that anybody set.
    IfForbidden,
}

/// An operation of the API.
pub(super) struct Operation {
    pub(super) method: &'static str,
    /// With `{name}` for a name.
    pub(super) path: &'static str,
    /// In the command line's words where it has some; none for what only reads.
    pub(super) words: &'static str,
    pub(super) allowed: Allowed,
    pub(super) told: Told,
}

use Allowed::{Admins, Everyone, Tenants, Viewers};

const fn read(path: &'static str, allowed: Allowed) -> Operation {
    Operation { method: "GET", path, words: "", allowed, told: Told::IfForbidden }
}

/// What changes nothing, and is asked with a body.
const fn ask(path: &'static str, allowed: Allowed) -> Operation {
    Operation { method: "POST", path, words: "", allowed, told: Told::IfForbidden }
}

/// What changes something.
const fn change(
    method: &'static str,
    path: &'static str,
    words: &'static str,
    allowed: Allowed,
) -> Operation {
    Operation { method, path, words, allowed, told: Told::Always }
}

/// What says how something goes, again and again.
const fn report(
    method: &'static str,
    path: &'static str,
    words: &'static str,
    allowed: Allowed,
) -> Operation {
    Operation { method, path, words, allowed, told: Told::IfForbidden }
}

/// All of them.
pub(super) static ALL: &[Operation] = &[
    read("/v1/datastores", Viewers),
    change("POST", "/v1/datastores", "datastore add", Admins),
    read("/v1/datastores/{name}", Viewers),
    change("PATCH", "/v1/datastores/{name}", "datastore set", Admins),
    change("DELETE", "/v1/datastores/{name}", "datastore remove", Admins),
    read("/v1/datastores/{name}/calibration", Viewers),
    change("POST", "/v1/datastores/{name}/calibration", "datastore calibrate", Admins),
    change("DELETE", "/v1/datastores/{name}/calibration", "datastore calibrate --cancel", Admins),
    read("/v1/datastores/{name}/points", Viewers),
    read("/v1/datastores/{name}/history", Viewers),
    // A trace tells every offset of every guest.
    read("/v1/datastores/{name}/trace", Admins),
    read("/v1/datastores/{name}/maintenance", Viewers),
    change("PUT", "/v1/datastores/{name}/maintenance", "datastore maintenance", Admins),
    read("/v1/advice", Viewers),
    read("/v1/rules", Viewers),
    read("/v1/rules/fit", Viewers),
    change("PUT", "/v1/rules", "rules set", Admins),
    change("PATCH", "/v1/rules", "rules --automatic", Admins),
    read("/v1/balance", Viewers),
    change("POST", "/v1/balance", "balance --apply", Admins),
    change("DELETE", "/v1/balance", "balance --stop", Admins),
    read("/v1/disks", Everyone),
    change("POST", "/v1/disks", "disk create", Admins),
    read("/v1/disks/{name}", Everyone),
    change("PATCH", "/v1/disks/{name}", "disk set", Tenants),
    change("DELETE", "/v1/disks/{name}", "disk remove", Admins),
    read("/v1/disks/{name}/attachment", Everyone),
    // It names disks of others.
    read("/v1/disks/{name}/blame", Viewers),
    read("/v1/disks/{name}/history", Viewers),
    read("/v1/report", Viewers),
    read("/v1/report/samples", Viewers),
    change("POST", "/v1/disks/{name}/takeover", "disk takeover", Admins),
    change("POST", "/v1/disks/{name}/resume", "disk resume", Tenants),
    change("POST", "/v1/disks/{name}/resize", "disk resize", Admins),
    change("POST", "/v1/disks/{name}/migrate", "disk migrate", Admins),
    change("POST", "/v1/disks/{name}/copy", "disk copy", Admins),
    read("/v1/nodes", Viewers),
    read("/v1/copies", Viewers),
    read("/v1/copies/{name}", Viewers),
    change("PATCH", "/v1/copies/{name}", "disk copy (change)", Admins),
    change("DELETE", "/v1/copies/{name}", "disk copy --cancel", Admins),
    read("/v1/imports", Viewers),
    read("/v1/imports/{name}", Viewers),
    report("PUT", "/v1/imports/{name}", "disk import (progress)", Admins),
    change("DELETE", "/v1/imports/{name}", "disk import --cancel", Admins),
    read("/v1/moves", Viewers),
    read("/v1/moves/{name}", Viewers),
    change("PATCH", "/v1/moves/{name}", "disk migrate (change)", Admins),
    change("DELETE", "/v1/moves/{name}", "disk migrate --cancel", Admins),
    read("/v1/removed", Viewers),
    change("DELETE", "/v1/removed/{name}", "disk purge", Admins),
    change("POST", "/v1/removed/{name}/restore", "disk restore", Admins),
    read("/v1/classes", Viewers),
    read("/v1/classes/{name}", Viewers),
    change("PUT", "/v1/classes/{name}", "class set", Admins),
    change("DELETE", "/v1/classes/{name}", "class remove", Admins),
    change("POST", "/v1/apply", "apply", Admins),
    read("/v1/vms", Everyone),
    read("/v1/vms/{name}", Everyone),
    change("PATCH", "/v1/vms/{name}", "vm set", Admins),
    change("DELETE", "/v1/vms/{name}", "vm reset", Admins),
    read("/v1/tenants", Viewers),
    read("/v1/tenants/{name}", Viewers),
    change("PATCH", "/v1/tenants/{name}", "tenant set", Admins),
    change("DELETE", "/v1/tenants/{name}", "tenant remove", Admins),
    read("/v1/exports", Everyone),
    change("POST", "/v1/exports", "export add", Tenants),
    read("/v1/exports/{name}", Everyone),
    change("PATCH", "/v1/exports/{name}", "export set", Tenants),
    change("DELETE", "/v1/exports/{name}", "export remove", Tenants),
    read("/v1/hosts", Viewers),
    read("/v1/fleet/disks", Everyone),
    read("/v1/fleet/datastores", Viewers),
    read("/v1/fleet/advice", Viewers),
    read("/v1/events", Everyone),
    // It names disks of others.
    ask("/v1/what-if", Viewers),
    read("/v1/stats", Viewers),
    read("/v1/top", Viewers),
    read("/metrics", Viewers),
    read("/v1/openapi.json", Viewers),
    read("/healthz", Viewers),
];

impl Operation {
    /// The one that a request asks for; `None`: there is none.
    pub(super) fn of(method: &Method, uri: &Uri) -> Option<&'static Operation> {
        // Whoever asks for the head of an answer reads.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let parts: Vec<&str> = uri.path().split('/').collect();
        let is_it = |one: &&Operation| {
            let pattern = one.path.split('/');
            one.method == method.as_str()
                && pattern.clone().count() == parts.len()
                && pattern.zip(&parts).all(|(wanted, part)| wanted == "{name}" || wanted == *part)
        };
        ALL.iter().find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// What the document says, as `METHOD path`.
    fn documented() -> BTreeSet<String> {
        let document: Value = serde_json::from_str(super::super::DOCUMENT).unwrap();
        let paths = document["paths"].as_object().unwrap().iter();
        paths
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().keys();
                methods.map(move |method| format!("{} {path}", method.to_uppercase()))
            })
            .collect()
    }

    #[test]
    fn the_operations_are_those_of_the_document() {
        let named = |one: &Operation| format!("{} {}", one.method, one.path);
        let all: BTreeSet<String> = ALL.iter().map(named).collect();
        assert_eq!(all.len(), ALL.len(), "one is there twice");
        let mut documented = documented();
        // The document itself.
        documented.insert("GET /v1/openapi.json".into());
        assert_eq!(all, documented);
    }

    #[test]
    fn what_changes_something_has_words_and_is_for_no_viewer() {
        for one in ALL {
            let reads = one.method == "GET" || one.path == "/v1/what-if";
            assert_eq!(one.words.is_empty(), reads, "{} {}", one.method, one.path);
            assert!(reads || !one.allowed.is_for_viewers(), "{} {}", one.method, one.path);
        }
    }

    #[test]
    fn each_operation_answers_where_the_table_says() {
        let bench = Bench::new();
        bench.serve(|api| {
            for one in ALL {
                let path = one.path.replace("{name}", "nobody");
                let found = Operation::of(&one.method.parse().unwrap(), &path.parse().unwrap());
                assert!(std::ptr::eq(found.unwrap(), one), "{} {path}", one.method);
                let (status, answer) = api.send(one.method, &path, "");
                let is_routed = status != 405 && !answer.contains("there is nothing at");
                assert!(is_routed, "{} {path}: {status} {answer}", one.method);
            }
        });
        let none = |method: &str, path: &str| {
            Operation::of(&method.parse().unwrap(), &path.parse().unwrap()).is_none()
        };
        assert!(none("PATCH", "/v1/disks") && none("GET", "/v1/disks/a/b") && none("GET", "/"));
        assert!(!none("HEAD", "/v1/disks"));
    }
}
