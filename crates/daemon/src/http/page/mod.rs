//! The page for a browser: files that are compiled in, which ask the API as anybody does. They hold
//! no secret, and are for everybody who reaches the address; what they show is for who may ask.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// A file: where, of which type, and what it holds.
struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! file {
    ($path:literal, $kind:expr, $name:literal) => {
        File { path: $path, kind: $kind, content: include_str!($name) }
    };
}

static FILES: [File; 16] = [
    file!("/", "text/html; charset=utf-8", "index.html"),
    file!("/page/page.css", STYLE, "page.css"),
    file!("/page/page.js", SCRIPT, "page.js"),
    file!("/page/api.js", SCRIPT, "api.js"),
    file!("/page/dom.js", SCRIPT, "dom.js"),
    file!("/page/graphs.js", SCRIPT, "graphs.js"),
    file!("/page/datastores.js", SCRIPT, "datastores.js"),
    file!("/page/store-past.js", SCRIPT, "store-past.js"),
    file!("/page/disks.js", SCRIPT, "disks.js"),
    file!("/page/what-if.js", SCRIPT, "what-if.js"),
    file!("/page/machines.js", SCRIPT, "machines.js"),
    file!("/page/moves.js", SCRIPT, "moves.js"),
    file!("/page/hosts.js", SCRIPT, "hosts.js"),
    file!("/page/events.js", SCRIPT, "events.js"),
    file!("/page/uplot.js", SCRIPT, "uplot.js"),
    file!("/page/uplot.css", STYLE, "uplot.css"),
];

static LICENSE: File =
    file!("/page/uplot-license.txt", "text/plain; charset=utf-8", "uplot-license.txt");

/// Nothing from elsewhere, nothing that is written into the page, and no page around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl File {
    fn answer(&self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(self.kind)),
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            // The next daemon may have other files.
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ];
        (headers, self.content).into_response()
    }
}

/// The files, each at its path.
pub(super) fn files() -> Router {
    let add = |router: Router, file: &'static File| {
        router.route(file.path, get(move || async move { file.answer() }))
    };
    FILES.iter().chain([&LICENSE]).fold(Router::new(), add)
}
