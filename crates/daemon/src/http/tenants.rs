//! What tenants may do over the API: see the disks of their machines, say what becomes of these
//! disks' errors, and name them further exports. What costs others is the operator's
//! (docs/decisions/0073-tenants.md).
//!
//! A tenant of a machine is the user, or a member of the group, that was set for its sockets.

use super::app::App;
use super::caller::Tenant;
use super::edit::BODY_MAX;
use super::error::ApiError;
use super::fleet::DiskFlags;
use super::operations::Operation;
use crate::fleet::{DiskFilter, Machines};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Json, http::Uri};
use headgate_api::priorities::ExportCreate;
use headgate_api::types::DiskPatch;
use headgate_model::Name;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

/// The most further exports of a disk that a tenant may make: each is kept in the catalog.
const EXPORTS_MAX: usize = 64;

/// What a tenant may ask for, of machines that are theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Disks,
    /// Of all hosts.
    FleetDisks,
    Machines,
    Exports,
    /// Of what concerns their disks alone.
    Events,
    /// Of this disk what changes nothing that others share with it.
    Disk(Name),
    /// To change this disk.
    SetDisk(Name),
    Machine(Name),
    Export(Name),
    NewExport,
}

impl Asked {
    /// `None`: it is nothing for tenants.
    fn of(method: &Method, uri: &Uri) -> Option<Asked> {
        let parts: Vec<&str> = uri.path().strip_prefix("/v1/")?.split('/').collect();
        let name = |text: &&str| text.parse::<Name>().ok();
        match (method.as_str(), &parts[..]) {
            ("GET", ["disks"]) => Some(Asked::Disks),
            ("GET", ["fleet", "disks"]) => Some(Asked::FleetDisks),
            ("GET", ["vms"]) => Some(Asked::Machines),
            ("GET", ["exports"]) => Some(Asked::Exports),
            ("GET", ["events"]) => Some(Asked::Events),
            ("GET", ["disks", disk] | ["disks", disk, "attachment"])
            | ("POST", ["disks", disk, "resume"]) => name(disk).map(Asked::Disk),
            ("PATCH", ["disks", disk]) => name(disk).map(Asked::SetDisk),
            ("GET", ["vms", vm]) => name(vm).map(Asked::Machine),
            ("GET" | "PATCH" | "DELETE", ["exports", export]) => name(export).map(Asked::Export),
            ("POST", ["exports"]) => Some(Asked::NewExport),
            _ => None,
        }
    }
}

/// What is a tenant's.
struct Own {
    machines: BTreeSet<Name>,
    disks: BTreeSet<Name>,
}

impl Own {
    async fn of(app: &App, tenant: Tenant) -> Result<Own, ApiError> {
        app.blocking(move |control| {
            let machines = match &tenant {
                Tenant::Process(peer) => control.machines_of(peer),
                Tenant::Machines { rights, .. } => {
                    let all = control.vms()?.into_iter().map(|vm| vm.name);
                    all.filter(|name| rights.has_machine(name.as_str())).collect()
                }
            };
            let disks = control.disks_of(&machines);
            Ok(Own { machines, disks })
        })
        .await
    }

    /// What is listed of all there is.
    async fn list(&self, app: &App, asked: &Asked) -> Result<Response, ApiError> {
        Ok(match asked {
            Asked::Disks => {
                let mut all = app.blocking(|control| control.disks()).await?;
                all.retain(|disk| self.disks.contains(&disk.name));
                Json(all).into_response()
            }
            Asked::Machines => {
                let mut all = app.blocking(|control| control.vms()).await?;
                all.retain(|vm| self.machines.contains(&vm.name));
                Json(all).into_response()
            }
            _ => {
                let mut all = app.control.exports();
                all.retain(|export| self.disks.contains(&export.disk));
                Json(all).into_response()
            }
        })
    }

    /// Their machines in the view of all hosts: those that a rule names, wherever they are; those
    /// of a user of this host here alone, for users of other hosts may be others.
    fn of_all_hosts(&self, tenant: &Tenant) -> Machines {
        match tenant {
            Tenant::Process(_) => {
                Machines::Here(self.machines.iter().map(Name::to_string).collect())
            }
            Tenant::Machines { rights, .. } => Machines::By(rights.clone()),
        }
    }

    /// Whether this is theirs, and a change nothing but what they may.
    fn allows(&self, app: &App, asked: &Asked, body: &Bytes) -> Verdict {
        let is_theirs = match asked {
            Asked::Disks | Asked::FleetDisks | Asked::Machines | Asked::Exports | Asked::Events => {
                true
            }
            Asked::Disk(disk) => self.disks.contains(disk),
            Asked::SetDisk(disk) => {
                self.disks.contains(disk) && read(body).is_none_or(|p| concerns_errors(&p))
            }
            Asked::Machine(vm) => self.machines.contains(vm),
            Asked::Export(export) => {
                app.control.export(export).is_ok_and(|export| self.disks.contains(&export.disk))
            }
            Asked::NewExport => read(body).is_none_or(|new: ExportCreate| {
                let of_disk = app.control.exports().iter().filter(|e| e.disk == new.disk).count();
                self.disks.contains(&new.disk) && of_disk < EXPORTS_MAX
            }),
        };
        if is_theirs { Verdict::Theirs } else { Verdict::NotTheirs }
    }

    /// What they may, in the command line's words.
    fn expected(&self) -> String {
        let disks: Vec<&str> = self.disks.iter().take(10).map(Name::as_str).collect();
        let disks = match disks.is_empty() {
            true => "there is none yet".to_owned(),
            false => disks.join(", "),
        };
        format!(
            "'disk list', also of all hosts, 'show', 'attach', 'resume' and 'set' with --werror or --rerror, 'vm list' \
             and 'show', 'events', and 'export' ({EXPORTS_MAX} of a disk), for disks of machines of this user or \
             its groups: {disks}"
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Theirs,
    NotTheirs,
}

/// A body that is none is the handler's to refuse, which then changes nothing.
fn read<T: DeserializeOwned>(body: &Bytes) -> Option<T> {
    serde_json::from_slice(body).ok()
}

/// Whether a patch changes what becomes of errors, and nothing else.
fn concerns_errors(patch: &DiskPatch) -> bool {
    let DiskPatch { werror, rerror, .. } = *patch;
    *patch == DiskPatch { werror, rerror, ..DiskPatch::default() }
}

/// The layer. Requests of others pass through it.
pub(super) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(tenant) = request.extensions().get::<Tenant>().cloned() else {
        return next.run(request).await;
    };
    match let_through(&app, tenant, request).await {
        Ok(Decided::Answered(answer)) => answer,
        Ok(Decided::Passed(request)) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

enum Decided {
    Answered(Response),
    Passed(Request),
}

async fn let_through(app: &App, tenant: Tenant, request: Request) -> Result<Decided, ApiError> {
    let own = Own::of(app, tenant.clone()).await?;
    let (head, body) = request.into_parts();
    let asked = Asked::of(&head.method, &head.uri);
    let body = to_bytes(body, BODY_MAX).await.map_err(|e| {
        let error = format!("the request's body cannot be read: {e}");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    })?;
    let Some(asked) = asked.filter(|asked| own.allows(app, asked, &body) == Verdict::Theirs) else {
        let (user, path) = (tenant.user(), head.uri.path());
        tracing::warn!(by = %tenant, user, "refused: {} {path}", head.method);
        // The same for what is another's and for what is not there.
        let error = format!("{tenant} may not {} {path}", head.method);
        let role = Operation::of(&head.method, &head.uri).map(|one| one.allowed.roles());
        let (expected, hint) = match &tenant {
            Tenant::Process(_) => (
                own.expected(),
                "the operator says whose a machine is: 'headgate vm set VM --socket-user USER'",
            ),
            Tenant::Machines { .. } => (
                format!("{}; an operator may use {}", role.unwrap_or("role admin"), own.expected()),
                "an operator's machines are in allow.toml of 'serve --api-tls', or in the file of \
                 --api-tokens",
            ),
        };
        return Err(ApiError::new(StatusCode::FORBIDDEN, error).expected(expected).hint(hint));
    };
    match asked {
        Asked::Disks | Asked::Machines | Asked::Exports => {
            own.list(app, &asked).await.map(Decided::Answered)
        }
        Asked::FleetDisks => {
            let machines = own.of_all_hosts(&tenant);
            let flags = Query::<DiskFlags>::try_from_uri(&head.uri)
                .map_err(|e| ApiError::new(StatusCode::BAD_REQUEST, e.body_text()))?;
            let filter = DiskFilter { machines, ..flags.0.filter() };
            let fleet = app.fleet.clone();
            let disks = app.on_thread(move || Ok(fleet.disks(&filter))).await?;
            Ok(Decided::Answered(Json(disks).into_response()))
        }
        _ => Ok(Decided::Passed(Request::from_parts(head, Body::from(body)))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ApiGroups;
    use super::super::testing::Bench;
    use super::*;
    use serde_json::{Value, json};
    use std::path::Path;
    use std::process::Command;

    /// A member of the tenants' group, by user; the status and the body.
    fn ask(socket: &Path, user: u32, method: &str, path: &str, body: &str) -> (u16, Value) {
        use std::os::unix::process::CommandExt;
        let mut curl = Command::new("curl");
        curl.args(["-s", "-w", "\n%{http_code}", "-X", method, "-d", body, "--unix-socket"]);
        let said = curl.arg(socket).arg(format!("http://x{path}")).uid(user).gid(4810).output();
        let said = String::from_utf8(said.unwrap().stdout).unwrap();
        let (body, status) = said.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn names(list: &Value) -> Vec<&str> {
        list.as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect()
    }

    const RED: u32 = 4701;
    const BLUE: u32 = 4702;

    /// What a tenant tries on a disk of their own (`%` in the path), and whether it is for them.
    const TRIED: [(&str, &str, &str, bool); 14] = [
        ("GET", "/v1/disks/%", "", true),
        ("GET", "/v1/disks/%/attachment", "", true),
        ("PATCH", "/v1/disks/%", r#"{"werror": "stop"}"#, true),
        ("GET", "/v1/exports/%-x", "", true),
        ("PATCH", "/v1/exports/%-x", r#"{"priority": 7}"#, true),
        ("PATCH", "/v1/disks/%", r#"{"limit": 9000}"#, false),
        ("PATCH", "/v1/disks/%", r#"{"werror": "stop", "vm": "blue"}"#, false),
        ("PATCH", "/v1/disks/%", r#"{"werror": "stop", "force": "yes"}"#, false),
        ("DELETE", "/v1/disks/%", "", false),
        ("PATCH", "/v1/vms/red", r#"{"max_priority": 200}"#, false),
        ("GET", "/v1/stats", "", false),
        ("GET", "/healthz", "", false),
        ("GET", "/v1/datastores", "", false),
        ("GET", "/v1/removed", "", false),
    ];

    #[test]
    fn tenants_see_and_change_what_is_theirs_and_nothing_else() {
        let has_curl = Command::new("curl").arg("--version").output().is_ok();
        if !rustix::process::geteuid().is_root() || !has_curl {
            eprintln!("SKIPPED: needs root and curl, to be other users");
            return;
        }
        let bench = Bench::new();
        let groups = ApiGroups { change: 4801, read: None, tenants: Some(4810) };
        bench.serve_to(groups, |api, socket| {
            for (disk, vm) in [("a", "red"), ("b", "blue"), ("c", "none")] {
                let vm = if vm == "none" { Value::Null } else { json!(vm) };
                let disk = json!({"name": disk, "size": 1 << 20, "datastore": "default", "vm": vm});
                assert_eq!(api.send("POST", "/v1/disks", &disk.to_string()).0, 201);
            }
            for (vm, user) in [("red", RED), ("blue", BLUE)] {
                let user = json!({"socket_user": user.to_string()}).to_string();
                assert_eq!(api.send("PATCH", &format!("/v1/vms/{vm}"), &user).0, 200);
            }
            for disk in ["a", "b"] {
                let export = json!({"name": format!("{disk}-x"), "disk": disk, "priority": 9});
                assert_eq!(api.send("POST", "/v1/exports", &export.to_string()).0, 201);
            }
            let before = api.send("GET", "/v1/disks/b", "").1;
            for (list, theirs) in [("disks", "a"), ("vms", "red"), ("exports", "a-x")] {
                let (status, all) = ask(socket, RED, "GET", &format!("/v1/{list}"), "");
                assert_eq!((status, names(&all)), (200, vec![theirs]));
                let (_, none) = ask(socket, 4799, "GET", &format!("/v1/{list}"), "");
                assert_eq!(names(&none), [""; 0], "a member who has no machine");
            }
            for (user, theirs) in [(RED, vec!["a"]), (BLUE, vec!["b"]), (4799, vec![])] {
                let (status, all) = ask(socket, user, "GET", "/v1/fleet/disks?vm=", "");
                assert_eq!((status, all["total"].as_u64()), (200, Some(0)), "{all}");
                let (status, all) = ask(socket, user, "GET", "/v1/fleet/disks", "");
                assert_eq!((status, names(&all["disks"])), (200, theirs), "{all}");
                assert_eq!(ask(socket, user, "GET", "/v1/fleet/datastores", "").0, 403);
                assert_eq!(ask(socket, user, "GET", "/v1/hosts", "").0, 403);
            }
            for (method, path, body, is_for_tenants) in TRIED {
                let own = ask(socket, RED, method, &path.replace('%', "a"), body);
                let expected = if is_for_tenants { 200 } else { 403 };
                assert_eq!(own.0, expected, "{method} {path} {body}: {}", own.1);
                // Another's, nobody's, and what is not there are the same.
                for other in ["b", "c", "nothing"].map(|other| path.replace('%', other)) {
                    if path.contains('%') {
                        let other = ask(socket, RED, method, &other, body);
                        assert_eq!(other.0, 403, "{method} {path}: {}", other.1);
                    }
                }
            }
            let mine = json!({"name": "new", "disk": "a", "priority": 5}).to_string();
            let theirs = json!({"name": "new2", "disk": "b", "priority": 5}).to_string();
            assert_eq!(ask(socket, RED, "POST", "/v1/exports", &theirs).0, 403);
            assert_eq!(ask(socket, RED, "POST", "/v1/exports", &mine).0, 201);
            assert_eq!(ask(socket, RED, "DELETE", "/v1/exports/new", "").0, 204);
            let (_, refused) = ask(socket, RED, "GET", "/v1/disks/b", "");
            let error = refused["error"].as_str().unwrap();
            assert!(error.contains("user 4701") && error.contains("GET /v1/disks/b"), "{error}");
            assert!(refused["expected"].as_str().unwrap().ends_with(": a"), "{refused}");
            assert_eq!(api.send("GET", "/v1/disks/b", "").1, before, "nothing of blue's changed");
            // Tenants' changes take no operator's space.
            let files = std::fs::read_dir(socket.with_file_name("events")).unwrap();
            let theirs: Vec<_> = files
                .map(|file| file.unwrap().path())
                .filter(|path| path.to_string_lossy().contains("/tenants-"))
                .collect();
            let text = std::fs::read_to_string(&theirs[0]).unwrap();
            assert!(text.contains("export remove") && !text.contains("\"user\":0,"), "{text}");
        });
    }

    #[test]
    fn a_patch_for_tenants_is_about_errors_alone() {
        let patch = |value| concerns_errors(&serde_json::from_value(value).unwrap());
        assert!(patch(json!({})) && patch(json!({"rerror": "stop", "werror": "report"})));
        for more in [
            json!({"rerror": "stop", "shares": 5}),
            json!({"limit": null}),
            json!({"placement": {"mobility": "pinned"}}),
            json!({"vm": null}),
        ] {
            assert!(!patch(more.clone()), "{more}");
        }
    }
}
