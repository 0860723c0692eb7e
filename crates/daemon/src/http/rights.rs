//! Who may do what over the API, by what the kernel says of the process at the other end.
//!
//! The socket lets in root, the daemon's own user and three groups. Of these, the members of one
//! may do everything, those of the second only read, and those of the third what
//! [tenants](super::tenants) may.

use super::error::ApiError;
use super::tenants::Tenant;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headgate_access::{Access, Peer};

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

/// What a peer may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Change,
    Read,
    Own,
    Nothing,
}

impl ApiGroups {
    /// Who may connect.
    pub fn access(&self) -> Access {
        Access::of_groups([self.change].into_iter().chain(self.read).chain(self.tenants))
    }

    /// What a peer of a daemon of this user may.
    fn right(&self, peer: &Peer, own_user: u32) -> Right {
        match peer.user == 0 || peer.user == own_user || peer.is_in(self.change) {
            true => Right::Change,
            false if self.read.is_some_and(|group| peer.is_in(group)) => Right::Read,
            false if self.tenants.is_some_and(|group| peer.is_in(group)) => Right::Own,
            false => Right::Nothing,
        }
    }
}

/// Whether a request reads, and nothing that tells one guest's doings: a trace has every offset.
fn only_reads(method: &Method, path: &str) -> bool {
    method.is_safe() && !path.ends_with("/trace")
}

/// The layer. A peer of whom nothing is known may nothing.
pub(super) async fn check(
    State(groups): State<ApiGroups>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let peer = peer.map(|ConnectInfo(peer)| peer.clone());
    let own_user = rustix::process::geteuid().as_raw();
    let right = peer.as_ref().map_or(Right::Nothing, |peer| groups.right(peer, own_user));
    match right {
        Right::Change => return next.run(request).await,
        Right::Read if only_reads(request.method(), request.uri().path()) => {
            return next.run(request).await;
        }
        Right::Own => {
            if let Some(peer) = peer {
                request.extensions_mut().insert(Tenant(peer));
                return next.run(request).await;
            }
        }
        Right::Read | Right::Nothing => {}
    }
    let who = peer.as_ref().map_or("nobody knows who".to_owned(), ToString::to_string);
    let user = peer.map(|peer| peer.user);
    tracing::warn!(by = %who, user, "refused: {} {}", request.method(), request.uri().path());
    let may = match right {
        Right::Read => "may only read, and no traces",
        Right::Change | Right::Own | Right::Nothing => "may not use the API",
    };
    ApiError::new(StatusCode::FORBIDDEN, format!("{who} {may}"))
        .expected("root, the daemon's own user, or a member of the group of 'serve --api-group'")
        .hint("a process has the groups that its user had when they logged in")
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, Logged};
    use super::*;

    fn peer(user: u32, groups: &[u32]) -> Peer {
        Peer { user, groups: groups.to_vec(), process: Some(1) }
    }

    #[test]
    fn groups_decide_and_users_in_none_may_nothing() {
        let groups = ApiGroups { change: 10, read: Some(20), tenants: Some(40) };
        let right = |user, of: &[u32]| groups.right(&peer(user, of), 7);
        assert_eq!(right(0, &[]), Right::Change);
        assert_eq!(right(7, &[]), Right::Change);
        assert_eq!(right(8, &[30, 10, 20]), Right::Change);
        assert_eq!(right(8, &[20]), Right::Read);
        assert_eq!((right(8, &[40]), right(8, &[40, 20])), (Right::Own, Right::Read));
        assert_eq!(right(10, &[30]), Right::Nothing, "a group's number is no user's");
        let none = ApiGroups { change: 10, read: None, tenants: None };
        assert_eq!(none.right(&peer(8, &[20, 40]), 7), Right::Nothing);
        assert!(only_reads(&Method::GET, "/v1/disks"));
        assert!(!only_reads(&Method::GET, "/v1/datastores/a/trace"));
        assert!(!only_reads(&Method::DELETE, "/v1/disks/a"));
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
            assert_eq!(ask(socket, 4801, "DELETE", "/v1/datastores/default"), Some(204));
        });
    }
}
