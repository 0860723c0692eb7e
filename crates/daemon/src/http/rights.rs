//! Who may do what over the API, by what the kernel says of the process at the other end.
//!
//! The socket lets in root, the daemon's own user and three groups. Of these, the members of one
//! may do everything, those of the second only read, and those of the third what
//! [tenants](super::tenants) may.

use super::caller::{Known, Right, Tenant};
use super::error::ApiError;
use super::operations::Operation;
use axum::extract::Request;
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headgate_access::{Access, Peer};
use headgate_events::Who;

/// The groups of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiGroups {
    /// Members may do everything.
    pub change: u32,
    /// Members may read what is no guest's own.
    pub read: Option<u32>,
    /// Members may use the disks of machines that are theirs.
    pub tenants: Option<u32>,
}

impl Default for ApiGroups {
    /// This process's group may do everything.
    fn default() -> ApiGroups {
        ApiGroups { change: headgate_access::own_group(), read: None, tenants: None }
    }
}

impl ApiGroups {
    /// Who may connect.
    pub fn access(&self) -> Access {
        Access::of_groups([self.change].into_iter().chain(self.read).chain(self.tenants))
    }

    /// What a peer of a daemon of this user may.
    pub(super) fn right(&self, peer: &Peer, own_user: u32) -> Right {
        match peer.user == 0 || peer.user == own_user || peer.is_in(self.change) {
            true => Right::Change,
            false if self.read.is_some_and(|group| peer.is_in(group)) => Right::Read(None),
            false if self.tenants.is_some_and(|group| peer.is_in(group)) => {
                Right::Own(Tenant::Process(peer.clone()))
            }
            false => Right::Nothing,
        }
    }
}

/// Whether a request is for those who only read. What is nowhere can be asked for.
fn only_reads(method: &Method, uri: &Uri) -> bool {
    let operation = Operation::of(method, uri);
    operation.map_or(method.is_safe(), |one| one.allowed.is_for_viewers())
}

/// The layer. A peer of whom nothing is known may nothing.
pub(super) async fn check(mut request: Request, next: Next) -> Response {
    let known = request.extensions().get::<Known>().cloned();
    let Known { who, right } =
        known.unwrap_or(Known { who: Who::Unknown { address: None }, right: Right::Nothing });
    let reads = only_reads(request.method(), request.uri());
    let tenant = match &right {
        Right::Change => return next.run(request).await,
        Right::Read(_) if reads => return next.run(request).await,
        Right::Read(tenant) => tenant.clone(),
        Right::Own(tenant) => Some(tenant.clone()),
        Right::Nothing | Right::NoToken => None,
    };
    if let Some(tenant) = tenant {
        request.extensions_mut().insert(tenant.clone());
        let mut response = next.run(request).await;
        // Whose change it was.
        response.extensions_mut().insert(tenant);
        return response;
    }
    let user = match &who {
        Who::Process { user, .. } => Some(*user),
        _ => None,
    };
    tracing::warn!(by = %who, user, "refused: {} {}", request.method(), request.uri().path());
    refusal(&who, &right, request.method(), request.uri())
}

/// What one hears who may not do it.
fn refusal(who: &Who, right: &Right, method: &Method, uri: &Uri) -> Response {
    if matches!(right, Right::NoToken) {
        let error = format!("{who} has shown no token that is known here");
        let answer = ApiError::new(StatusCode::UNAUTHORIZED, error)
            .expected("Authorization: Bearer TOKEN, with one of the file of 'serve --api-tokens'")
            .hint("give --token-file, or HEADGATE_TOKEN_FILE");
        return ([(header::WWW_AUTHENTICATE, "Bearer")], answer).into_response();
    }
    let may = match right {
        Right::Read(_) => "may only read, and no traces",
        _ => "may not use the API",
    };
    let answer = ApiError::new(StatusCode::FORBIDDEN, format!("{who} {may}"));
    if matches!(who, Who::Certificate { .. } | Who::Token { .. }) {
        let operation = Operation::of(method, uri);
        let role = operation.map_or("role admin", |one| one.allowed.roles());
        return answer
            .expected(role)
            .hint("roles are in allow.toml of 'serve --api-tls', or in the file of --api-tokens")
            .into_response();
    }
    answer
        .expected("root, the daemon's own user, or a member of the group of 'serve --api-group'")
        .hint("a process has the groups that its user had when they logged in")
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, Logged};
    use super::*;
    use headgate_events::{Entry, Filter, Outcome};

    fn peer(user: u32, groups: &[u32]) -> Peer {
        Peer { user, groups: groups.to_vec(), process: Some(1) }
    }

    #[test]
    fn groups_decide_and_users_in_none_may_nothing() {
        let groups = ApiGroups { change: 10, read: Some(20), tenants: Some(40) };
        let right = |user, of: &[u32]| groups.right(&peer(user, of), 7);
        assert!(matches!(right(0, &[]), Right::Change));
        assert!(matches!(right(7, &[]), Right::Change));
        assert!(matches!(right(8, &[30, 10, 20]), Right::Change));
        assert!(matches!(right(8, &[20]), Right::Read(None)));
        assert!(matches!(right(8, &[40]), Right::Own(Tenant::Process(_))));
        assert!(matches!(right(8, &[40, 20]), Right::Read(None)));
        assert!(matches!(right(10, &[30]), Right::Nothing), "a group's number is no user's");
        let none = ApiGroups { change: 10, read: None, tenants: None };
        assert!(matches!(none.right(&peer(8, &[20, 40]), 7), Right::Nothing));
        let reads = |method, path: &str| only_reads(&method, &path.parse().unwrap());
        assert!(reads(Method::GET, "/v1/disks") && reads(Method::HEAD, "/v1/disks"));
        assert!(!reads(Method::GET, "/v1/datastores/a/trace"));
        assert!(!reads(Method::DELETE, "/v1/disks/a"));
    }

    /// Runs curl as another user: `None` where that cannot be done here.
    fn ask(socket: &std::path::Path, group: u32, method: &str, path: &str) -> Option<u16> {
        use std::os::unix::process::CommandExt;
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method, "--unix-socket"]);
        curl.arg(socket).arg(format!("http://x{path}")).uid(4711).gid(group);
        let said = curl.output().ok()?;
        String::from_utf8(said.stdout).ok()?.parse().ok()
    }

    #[test]
    fn who_may_only_read_changes_nothing_over_a_real_socket() {
        let logged = Logged::all();
        let bench = Bench::new();
        let groups = ApiGroups { change: 4801, read: Some(4802), tenants: None };
        bench.serve_to(groups, |_, socket| {
            let Some(refused) = ask(socket, 4803, "GET", "/v1/disks") else {
                eprintln!("SKIPPED: needs root and curl, to be another user");
                return;
            };
            assert_eq!(refused, 0, "the socket's own rights keep others out");
            assert_eq!(ask(socket, 4801, "GET", "/v1/disks"), Some(200));
            assert_eq!(ask(socket, 4802, "GET", "/v1/disks"), Some(200));
            assert_eq!(ask(socket, 4802, "GET", "/v1/datastores/default/trace"), Some(403));
            let before = logged.count();
            assert_eq!(ask(socket, 4802, "DELETE", "/v1/datastores/default"), Some(403));
            let line = logged.since(before, "refused: DELETE /v1/datastores/default");
            assert!(line.len() == 1 && line[0].contains("user 4711"), "{line:?}");
            // What was read in vain and what was not changed are events.
            let log = bench.app();
            let log = log.control.events();
            assert!(log.settle(log.last(), std::time::Duration::from_secs(20)));
            let events = log.read(&Filter::default(), 100).unwrap().events;
            let refused = |words: &str| {
                let is_it = |entry: &Entry| {
                    let user = matches!(entry.by, Who::Process { user: 4711, group: 4802, .. });
                    user && entry.operation == words && entry.result == Outcome::Refused
                };
                events.iter().filter(|event| is_it(&event.entry)).count()
            };
            assert_eq!(refused("datastore remove"), 1, "{events:?}");
            assert_eq!(refused("GET /v1/datastores/default/trace"), 1, "{events:?}");
            assert_eq!(ask(socket, 4801, "DELETE", "/v1/datastores/default"), Some(204));
        });
    }
}
