//! The route of events: a page of them, or all that come, as they come.

use super::app::App;
use super::caller::{Recheck, Right, Tenant};
use super::connections::Stop;
use super::error::{ApiError, Flags};
use super::own_events as own;
use axum::Json;
use axum::body::{Body, HttpBody};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use headgate_api::events::EventPage;
#[cfg(test)]
use headgate_api::types::ErrorBody;
use headgate_control::ControlError;
use headgate_control::event_log::Page;
use headgate_events::Filter;
use hyper::body::Frame;
use serde::Deserialize;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

/// The most events of one answer, and how many there are without being told.
const LIMIT_MAX: usize = 1_000;

/// How long an answer waits for what was told before it.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often one looks for new events.
const LOOK: Duration = Duration::from_millis(200);

/// How often one looks whether a follower may read still.
const RECHECK: Duration = Duration::from_secs(1);

/// A follower hears something at least so often, so that both sides know of each other.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Which events.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct EventFlags {
    /// Those with larger numbers; 0, from the oldest that is kept, when absent.
    after: Option<u64>,
    /// Not before, in seconds since 1970.
    #[serde(default)]
    since: u64,
    /// Those that concern this disk.
    disk: Option<String>,
    /// So many at most, 1 to 1000; 1000 when absent. Who follows gets all.
    limit: Option<usize>,
}

/// Events, in the order of their numbers: who changed what, what was refused, and what the daemon
/// did and noticed. With `Accept: text/event-stream` they come as they happen, as server-sent
/// events whose data is an Event, after the number in `Last-Event-ID` or `after`.
#[cfg_attr(test, utoipa::path(get, path = "/v1/events", tag = "events", params(EventFlags), responses(
    (status = 200, content((EventPage = "application/json"), (String = "text/event-stream"))),
    (status = 422, body = ErrorBody, description = "there was no such event yet"))))]
pub(super) async fn events(
    State(app): State<App>,
    Flags(flags): Flags<EventFlags>,
    stop: Option<Extension<watch::Receiver<Stop>>>,
    recheck: Option<Extension<Recheck>>,
    tenant: Option<Extension<Tenant>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let limit = flags.limit.unwrap_or(LIMIT_MAX);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let error = format!("an answer cannot have {limit} events");
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error)
            .expected(format!("limit=1 to {LIMIT_MAX}")));
    }
    let mut filter = Filter {
        after: flags.after.unwrap_or(0),
        since_ms: flags.since.saturating_mul(1_000),
        disk: flags.disk,
    };
    if let Some(last) = headers.get("last-event-id") {
        let number = last.to_str().ok().and_then(|text| text.trim().parse().ok());
        filter.after = number.ok_or_else(|| {
            ApiError::new(StatusCode::BAD_REQUEST, "the header Last-Event-ID is no number")
                .expected("the id of an event")
        })?;
    }
    let last = app.control.events().last();
    // How much others do is nothing for tenants.
    if filter.after > last && tenant.is_none() {
        let error = format!("there is no event {} yet: the last is {last}", filter.after);
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error)
            .expected(format!("0 to {last}"))
            .hint("if there was one, the log of events was taken away since: begin at 0"));
    }
    let follows = headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("text/event-stream")));
    if follows {
        let viewer = match (tenant, recheck) {
            (None, recheck) => Viewer::OfAll(recheck.map(|Extension(recheck)| recheck)),
            (Some(_), Some(Extension(recheck))) => Viewer::OfOwn(recheck),
            (Some(_), None) => {
                return Err(ApiError::new(StatusCode::FORBIDDEN, "nobody knows you"));
            }
        };
        return Ok(follow(app, filter, stop.map(|Extension(stop)| stop), viewer));
    }
    if let Some(Extension(tenant)) = tenant {
        return Ok(Json(own::page(&app, &tenant, filter, limit).await?).into_response());
    }
    let page = page(&app, filter, limit).await?;
    let Page { events, is_last, newest, damaged } = page;
    Ok(Json(EventPage { events, is_last, newest, damaged }).into_response())
}

/// Whoever has just made a change finds it.
pub(super) async fn page(app: &App, filter: Filter, limit: usize) -> Result<Page, ApiError> {
    app.blocking(move |control| {
        let log = control.events();
        log.settle(log.last(), PATIENCE);
        log.read(&filter, limit).map_err(|e| ControlError::Busy {
            error: e.to_string(),
            hint: "see the daemon's log".into(),
        })
    })
    .await
}

fn follow(
    app: App,
    filter: Filter,
    stop: Option<watch::Receiver<Stop>>,
    viewer: Viewer,
) -> Response {
    let (lines, body) = mpsc::channel(4);
    tokio::spawn(async move {
        let ended = async {
            match stop {
                Some(mut stop) => _ = stop.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ended => {}
            () = lines.closed() => {}
            () = send(&app, filter, &viewer, &lines) => {}
            () = lose(&viewer) => {}
        }
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::new(Lines(body))).into_response()
}

/// Which events a follower may hear of.
enum Viewer {
    /// Of all, while it may read.
    OfAll(Option<Recheck>),
    /// Of those of its own disks.
    OfOwn(Recheck),
}

impl Viewer {
    fn may_still(&self) -> bool {
        match self {
            Viewer::OfAll(None) => true,
            Viewer::OfAll(Some(Recheck(right))) => {
                matches!(right(), Right::Change | Right::Read(_))
            }
            Viewer::OfOwn(Recheck(right)) => own::tenant(&right()).is_some(),
        }
    }

    /// What of a page is for it, by what it may now.
    async fn see(&self, app: &App, page: Page) -> Page {
        let Viewer::OfOwn(Recheck(right)) = self else { return page };
        let events = match own::tenant(&right()) {
            Some(tenant) => own::of(app, &tenant, page.events).await,
            None => Vec::new(),
        };
        Page { events, damaged: 0, ..page }
    }
}

/// Ends when the follower may not read any more, as without its certificate.
async fn lose(viewer: &Viewer) {
    while viewer.may_still() {
        sleep(RECHECK).await;
    }
}

/// Sends events as they come, until nobody reads them.
async fn send(app: &App, mut filter: Filter, viewer: &Viewer, lines: &mpsc::Sender<Bytes>) {
    let mut said = Instant::now();
    let mut text = ": events\n\n".to_owned();
    loop {
        if filter.after < app.control.events().newest() {
            let read = page(app, filter.clone(), LIMIT_MAX).await;
            match read {
                Ok(page) => {
                    filter.after = match page.events.last() {
                        Some(last) if !page.is_last => last.id,
                        _ => page.newest.max(filter.after),
                    };
                    write_page(&mut text, &viewer.see(app, page).await);
                }
                Err(e) => {
                    tracing::warn!(error = ?e, "events cannot be read: who follows them has to come again");
                    return;
                }
            }
        }
        if text.is_empty() && said.elapsed() >= SIGN_OF_LIFE {
            text.push_str(": no event\n\n");
        }
        if !text.is_empty() {
            said = Instant::now();
            if lines.send(std::mem::take(&mut text).into()).await.is_err() {
                return;
            }
        }
        sleep(LOOK).await;
    }
}

fn write_page(text: &mut String, page: &Page) {
    if page.damaged > 0 {
        let _ = write!(text, ": {} lines are damaged\n\n", page.damaged);
    }
    for event in &page.events {
        // An event was JSON in its file.
        let json = serde_json::to_string(event).unwrap_or_default();
        let _ = write!(text, "id: {}\ndata: {json}\n\n", event.id);
    }
}

/// A body that comes piece by piece.
struct Lines(mpsc::Receiver<Bytes>);

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
