//! What a change of policy would have done: one question at a time, on a thread of its own that
//! gives way to all others, and for a bounded time.

use super::app::{Answer, App};
use super::error::{ApiError, Body};
use super::operations::Operation;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{MethodRouter, post};
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_api::what_if::{WhatIf, WhatIfAnswer};
use headgate_control::{Control, ControlError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// By how much the thread gives way to others, as `nice`.
const NICE: i32 = 15;

/// Whether a question is being answered.
#[derive(Clone, Debug, Default)]
pub struct WhatIfs(Arc<AtomicBool>);

/// Who answers it. Dropped, the next may be asked.
struct Turn(Arc<AtomicBool>);

impl WhatIfs {
    fn begin(&self) -> Option<Turn> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| Turn(self.0.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What answers the one operation here, and nothing for any other.
pub(super) fn route(operation: &Operation) -> MethodRouter<App> {
    match (operation.method, operation.path) {
        ("POST", "/v1/what-if") => post(what_if),
        _ => MethodRouter::new(),
    }
}

/// What the disks of a datastore would have received if one of them had had another policy, on the
/// load that was recorded. It changes nothing. One question is answered at a time, within 30 s.
#[cfg_attr(test, utoipa::path(post, path = "/v1/what-if", tag = "statistics",
    request_body = WhatIf, responses((status = 200, body = WhatIfAnswer),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody,
    description = "The record does not hold enough to answer, or another question is being answered"),
    (status = 422, body = ErrorBody))))]
pub(super) async fn what_if(
    State(app): State<App>,
    Body(asked): Body<WhatIf>,
) -> Answer<WhatIfAnswer> {
    let Some(turn) = app.what_ifs.begin() else {
        let error = "another question of this kind is being answered";
        return Err(ApiError::new(StatusCode::CONFLICT, error)
            .hint(format!("ask again when it is: that takes {} s at most", PATIENCE.as_secs())));
    };
    let (sender, answer) = oneshot::channel();
    let control = app.control.clone();
    let work = move || {
        let found = find(&control, &asked);
        drop(turn);
        // Whoever asked may be gone.
        drop(sender.send(found));
    };
    let thread = std::thread::Builder::new().name("what-if".into()).spawn(work);
    let failed = |error: String| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error);
    thread.map_err(|e| failed(format!("a thread cannot be started: {e}")))?;
    match answer.await {
        Ok(found) => Ok(Json(found?)),
        Err(_) => Err(failed("the simulation was cut".into()).hint("see the daemon's log")),
    }
}

fn find(control: &Control, asked: &WhatIf) -> Result<WhatIfAnswer, ControlError> {
    let began = Instant::now();
    // It takes locks that others wait for. What comes after it takes none.
    let known = control.what_if(asked)?;
    // Of this thread alone, as Linux has it. Who may not do it is in nobody's way for long.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "the simulation does not give way to others");
    }
    known.answer(&mut || began.elapsed() >= PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    #[test]
    fn one_question_is_answered_at_a_time() {
        let whats = WhatIfs::default();
        let turn = whats.begin().unwrap();
        assert!(whats.clone().begin().is_none());
        drop(turn);
        assert!(whats.begin().is_some());
    }

    #[test]
    fn questions_without_an_answer_are_refused_in_words() {
        let bench = Bench::new();
        let app = bench.app();
        bench.serve(|api| {
            let ask = |body: &str| api.send("POST", "/v1/what-if", body);
            let (status, said) = ask(r#"{"disk":"db0","change":{"reservation":800}}"#);
            assert!(status == 404 && said.contains("there is no disk 'db0'"), "{status} {said}");
            let disk = r#"{"name":"db0","size":1048576,"datastore":"default"}"#;
            assert_eq!(api.send("POST", "/v1/disks", disk).0, 201);
            let (status, said) = ask(r#"{"disk":"db0","change":{"reservation":800}}"#);
            assert!(status == 409 && said.contains("0 requests are recorded"), "{status} {said}");
            assert!(said.contains("history has nothing of datastore 'default'"), "{said}");
            for (change, words) in [
                ("{}", "says nothing of the policy"),
                (r#"{"vm":"web","limit":5}"#, "not one of policy alone"),
                (r#"{"reservation":800,"limit":5}"#, "above the limit"),
                (r#"{"class":"gold"}"#, "there is no class 'gold'"),
            ] {
                let (status, said) = ask(&format!(r#"{{"disk":"db0","change":{change}}}"#));
                assert!([404, 422].contains(&status), "{change}: {status} {said}");
                assert!(said.contains(words), "{change}: {said}");
            }
            let times = [("10", "9", 422), ("10", "20", 409), ("0", "99999999", 422)];
            for (since, until, expected) in times {
                let body = format!(
                    r#"{{"disk":"db0","change":{{"shares":5}},"since":{since},"until":{until}}}"#
                );
                let (status, said) = ask(&body);
                assert_eq!(status, expected, "{since} {until}: {said}");
            }
            let turn = app.what_ifs.begin().unwrap();
            let (status, said) = ask(r#"{"disk":"db0","change":{"reservation":800}}"#);
            assert!(status == 409 && said.contains("is being answered"), "{status} {said}");
            drop(turn);
        });
    }
}
