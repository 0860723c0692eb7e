//! What decides who may what: the groups of a unix socket, the roles of certificates, or tokens.

use super::caller::{Caller, Known, Recheck, Right, Tenant};
use super::rights::ApiGroups;
use super::tokens::Tokens;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use headgate_events::Who;
use headgate_tls::{ApiRights, ApiRole, Look, ServerCredentials, ServerDirectory};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// See the module. Files are looked at again by [`look`](Self::look).
#[derive(Clone)]
pub(super) enum Gate {
    Groups(ApiGroups),
    Certificates(Arc<Mutex<ServerDirectory>>),
    Tokens(Arc<RwLock<Tokens>>),
}

impl Gate {
    /// The credentials that hold, of a gate that has some.
    pub(super) fn credentials(&self) -> Option<Arc<ServerCredentials>> {
        match self {
            Gate::Certificates(directory) => {
                Some(directory.lock().unwrap_or_else(PoisonError::into_inner).now())
            }
            Gate::Groups(_) | Gate::Tokens(_) => None,
        }
    }

    /// Who this is, and what they may now.
    pub(super) fn know(&self, caller: &Caller, token: Option<&[u8]>) -> Known {
        match (self, caller) {
            (Gate::Groups(groups), Caller::Process(peer)) => {
                let own_user = rustix::process::geteuid().as_raw();
                let group = peer.groups.first().copied().unwrap_or(u32::MAX);
                let who = Who::Process { user: peer.user, group, process: peer.process };
                Known { who, right: groups.right(peer, own_user) }
            }
            (Gate::Certificates(_), Caller::Certificate { peer, address }) => {
                let name = peer.to_string();
                let who = Who::Certificate { name, address: address.to_string() };
                let rights = self.credentials().map(|now| now.api(peer)).unwrap_or_default();
                let right = right(&who, rights);
                Known { who, right }
            }
            (Gate::Tokens(tokens), Caller::Stranger(address)) => {
                let tokens = tokens.read().unwrap_or_else(PoisonError::into_inner);
                let address = address.to_string();
                match token.and_then(|token| tokens.find(token)) {
                    Some((name, rights)) => {
                        let who = Who::Token { name, address };
                        let right = right(&who, rights);
                        Known { who, right }
                    }
                    None => Known {
                        who: Who::Unknown { address: Some(address) },
                        right: Right::NoToken,
                    },
                }
            }
            _ => Known { who: Who::Unknown { address: None }, right: Right::Nothing },
        }
    }

    /// Reads files again that have changed.
    pub(super) fn look(&self) {
        match self {
            Gate::Groups(_) => {}
            Gate::Certificates(directory) => {
                let look = directory.lock().unwrap_or_else(PoisonError::into_inner).look();
                match look {
                    Look::Same => {}
                    Look::Changed => {
                        tracing::info!("the certificates and roles of the API have changed");
                    }
                    Look::Unusable(error) => {
                        tracing::error!(%error, "the certificates and roles of before still hold");
                    }
                }
            }
            Gate::Tokens(tokens) => {
                let looked = tokens.read().unwrap_or_else(PoisonError::into_inner).look();
                let Some(looked) = looked else { return };
                let mut tokens = tokens.write().unwrap_or_else(PoisonError::into_inner);
                match looked {
                    Ok(new) => {
                        tracing::info!("the tokens of the API have changed");
                        *tokens = new;
                    }
                    Err(error) => {
                        tracing::error!(%error, "the tokens of before still hold");
                        tokens.keep();
                    }
                }
            }
        }
    }
}

/// What roles give.
fn right(who: &Who, rights: ApiRights) -> Right {
    if rights.roles.contains(&ApiRole::Admin) {
        return Right::Change;
    }
    let reads = rights.roles.contains(&ApiRole::Viewer);
    let own = rights.roles.contains(&ApiRole::Operator);
    let own = own.then(|| Tenant::Machines { who: who.clone(), rights });
    match (reads, own) {
        (true, own) => Right::Read(own),
        (false, Some(own)) => Right::Own(own),
        (false, None) => Right::Nothing,
    }
}

/// The outermost layer: finds out who asks.
pub(super) async fn identify(
    State(gate): State<Gate>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = request.extensions().get::<Caller>().cloned().unwrap_or(Caller::Unknown);
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| {
        let value = value.as_bytes();
        let (scheme, token) = value.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii().to_vec())
    });
    request.extensions_mut().insert(gate.know(&caller, token.as_deref()));
    let right_now = move || gate.know(&caller, token.as_deref()).right;
    request.extensions_mut().insert(Recheck(Arc::new(right_now)));
    next.run(request).await
}
