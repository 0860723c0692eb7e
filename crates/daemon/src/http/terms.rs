//! The terms of a request: `If-Match` and `If-None-Match`, and `?dry_run=true`. A layer around all
//! handlers reads them, so that none can forget them, and refuses those that mean nothing there.

use super::app::App;
use super::error::ApiError;
use super::operations::Operation;
use super::request_terms::{DryRan, TERMS};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headgate_control::configuration::Thing;
use headgate_control::terms::{Etag, Run, Seen, Terms};

/// The changes of which there is a dry run.
const DRY: &[(&str, &str)] = &[
    ("PATCH", "/v1/datastores/{name}"),
    ("DELETE", "/v1/datastores/{name}"),
    ("PUT", "/v1/rules"),
    ("PATCH", "/v1/rules"),
    ("POST", "/v1/disks"),
    ("PATCH", "/v1/disks/{name}"),
    ("DELETE", "/v1/disks/{name}"),
    ("POST", "/v1/disks/{name}/resize"),
    ("POST", "/v1/disks/{name}/migrate"),
    ("PUT", "/v1/classes/{name}"),
    ("DELETE", "/v1/classes/{name}"),
    ("POST", "/v1/apply"),
    ("PATCH", "/v1/vms/{name}"),
    ("DELETE", "/v1/vms/{name}"),
    ("PATCH", "/v1/tenants/{name}"),
    ("DELETE", "/v1/tenants/{name}"),
];

/// The parameter that asks for one.
const DRY_RUN: &str = "dry_run";

/// Whether there is a dry run of an operation.
fn has_dry_run(operation: &Operation) -> bool {
    DRY.contains(&(operation.method, operation.path))
}

/// What has a tag at this path of the table.
fn has_tag(path: &str) -> bool {
    matches!(
        path,
        "/v1/disks/{name}"
            | "/v1/classes/{name}"
            | "/v1/tenants/{name}"
            | "/v1/vms/{name}"
            | "/v1/datastores/{name}"
            | "/v1/rules"
    )
}

/// What is at a path, if it has a tag.
fn thing(operation: &Operation, uri: &Uri) -> Option<Thing> {
    if !has_tag(operation.path) {
        return None;
    }
    let mut parts = uri.path().split('/').skip(2);
    let (kind, name) = (parts.next()?, parts.next().map(super::asked::decoded));
    let name = || name.as_ref()?.parse().ok();
    match kind {
        "disks" => name().map(Thing::Disk),
        "classes" => name().map(Thing::Class),
        "tenants" => name().map(Thing::Tenant),
        "vms" => name().map(Thing::Vm),
        "datastores" => name().map(Thing::Datastore),
        "rules" => Some(Thing::Rules),
        _ => None,
    }
}

/// Tags that a header has.
enum Tags {
    Any,
    These(Vec<Etag>),
}

/// What a header says; `None`: it is not there. A tag that is none of ours is no thing's.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, ApiError> {
    let mut all = headers.get_all(name).iter().peekable();
    if all.peek().is_none() {
        return Ok(None);
    }
    let wrong = || {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            format!("the header {name} is not what it should be"),
        )
        .expected("'*', or tags in quotes as ETag has them, separated by commas")
    };
    let mut tags = Vec::new();
    for value in all {
        for text in value.to_str().map_err(|_| wrong())?.split(',').map(str::trim) {
            match text {
                "*" => return Ok(Some(Tags::Any)),
                // Which of a weak one's representations was seen is not known.
                text if text.starts_with("W/\"") => {}
                text if text.len() >= 2 && text.starts_with('"') && text.ends_with('"') => {
                    tags.extend(text.parse::<Etag>());
                }
                _ => return Err(wrong()),
            }
        }
    }
    Ok(Some(Tags::These(tags)))
}

/// What whoever asks for a change has seen.
fn seen(headers: &HeaderMap) -> Result<Seen, ApiError> {
    let matching = tags(headers, &header::IF_MATCH)?;
    match (matching, tags(headers, &header::IF_NONE_MATCH)?) {
        (None, None) => Ok(Seen::Unsaid),
        (Some(Tags::Any), None) => Ok(Seen::Existing),
        (Some(Tags::These(tags)), None) => Ok(Seen::OneOf(tags)),
        (None, Some(Tags::Any)) => Ok(Seen::Nothing),
        (None, Some(Tags::These(_))) => {
            let error = "of a change, If-None-Match says with '*' that there is to be none yet";
            Err(ApiError::new(StatusCode::BAD_REQUEST, error).expected("If-Match with the tag"))
        }
        (Some(_), Some(_)) => {
            let error = "If-Match and If-None-Match contradict each other";
            Err(ApiError::new(StatusCode::BAD_REQUEST, error).expected("one of them"))
        }
    }
}

/// Takes the parameter that asks for a dry run out of a query.
fn take_run(uri: &Uri) -> Result<(Run, Uri), ApiError> {
    let is_it = |part: &&str| part.split('=').next() == Some(DRY_RUN);
    let query = uri.query().unwrap_or_default();
    let (ours, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_it);
    let run = match ours.as_slice() {
        [] => return Ok((Run::Real, uri.clone())),
        ["dry_run=true"] => Run::Dry,
        ["dry_run=false"] => Run::Real,
        _ => {
            let error = format!("'{}' is no way to ask for a dry run", ours.join("&"));
            return Err(ApiError::new(StatusCode::BAD_REQUEST, error)
                .expected("dry_run=true or dry_run=false, once"));
        }
    };
    let rest = others.join("&");
    let rest = if rest.is_empty() { String::new() } else { format!("?{rest}") };
    let wrong = |e| ApiError::new(StatusCode::BAD_REQUEST, format!("the request's path: {e}"));
    Ok((run, format!("{}{rest}", uri.path()).parse().map_err(wrong)?))
}

/// The layer.
pub(super) async fn keep(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(operation) = Operation::of(request.method(), request.uri()) else {
        return next.run(request).await;
    };
    if request.method().is_safe() {
        let read = read(&app, operation, request, next).await;
        return read.unwrap_or_else(IntoResponse::into_response);
    }
    let (run, rest) = match take_run(request.uri()) {
        Ok(taken) => taken,
        Err(e) => return e.into_response(),
    };
    let changed = change(operation, (run, rest), request, next).await;
    let mut response = changed.unwrap_or_else(IntoResponse::into_response);
    if run == Run::Dry {
        response.extensions_mut().insert(DryRan);
    }
    response
}

/// The tag is that of what is set before the answer is made: if it changes meanwhile, a change by
/// this tag is refused, and none is made of something else than was shown.
async fn read(
    app: &App,
    operation: &Operation,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if request.headers().contains_key(header::IF_MATCH) {
        let error = "If-Match is for changes";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, error).expected("If-None-Match"));
    }
    let of = thing(operation, request.uri()).filter(|_| request.method() == Method::GET);
    let tag = of.and_then(|thing| app.control.show_etag(&thing));
    let Some(tag) = tag else { return Ok(next.run(request).await) };
    let known = tags(request.headers(), &header::IF_NONE_MATCH)?;
    let value = HeaderValue::from_str(&tag.to_string()).ok();
    let is_known = match known {
        None => false,
        Some(Tags::Any) => true,
        Some(Tags::These(tags)) => tags.contains(&tag),
    };
    let mut response = match is_known {
        true => (StatusCode::NOT_MODIFIED, Body::empty()).into_response(),
        false => next.run(request).await,
    };
    if let (Some(value), true) = (value, is_known || response.status().is_success()) {
        response.headers_mut().insert(header::ETAG, value);
    }
    Ok(response)
}

async fn change(
    operation: &Operation,
    (run, rest): (Run, Uri),
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let of = thing(operation, request.uri());
    let seen = seen(request.headers())?;
    let (method, path) = (operation.method, operation.path);
    if seen != Seen::Unsaid && of.is_none() {
        let error = format!("{method} {path} changes nothing that has a tag");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, error)
            .expected("neither If-Match nor If-None-Match"));
    }
    if run == Run::Dry && !has_dry_run(operation) {
        let error = format!("there is no dry run of {method} {path}: nothing was changed");
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error)
            .expected("no dry_run=true, if it is to be done"));
    }
    *request.uri_mut() = rest;
    let terms = Terms { seen: of.map(|thing| (thing, seen)), run };
    Ok(TERMS.scope(terms, next.run(request)).await)
}

/// What the document says of terms.
#[cfg(test)]
pub(super) mod document {
    use super::super::operations;
    use super::{DRY_RUN, has_dry_run, has_tag};
    use utoipa::Modify;
    use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
    use utoipa::openapi::{
        Content, HeaderBuilder, ObjectBuilder, OneOfBuilder, OpenApi, Ref, RefOr, Required,
        Response, ResponseBuilder, Type,
    };

    pub(in super::super) struct OnTerms;

    fn parameter(operation: &mut Operation, name: &str, of: ParameterIn, kind: Type, why: &str) {
        let schema = ObjectBuilder::new().schema_type(kind).build();
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(of)
            .required(Required::False)
            .description(Some(why))
            .schema(Some(schema));
        operation.parameters.get_or_insert_default().push(parameter.build());
    }

    fn told(operation: &mut Operation, status: &str, response: Response) {
        operation.responses.responses.insert(status.into(), response.into());
    }

    fn tagged(operation: &mut Operation, reads: bool) {
        if !reads {
            let why = "The tag of what the change is of, or '*': that there is one";
            parameter(operation, "If-Match", ParameterIn::Header, Type::String, why);
            let error = Content::new(Some(Ref::from_schema_name("ErrorBody")));
            let changed = ResponseBuilder::new()
                .description("it is not what whoever asks has seen: the error says what changed")
                .content("application/json", error);
            return told(operation, "412", changed.build());
        }
        let why = "A tag that is known: the answer is 304 while it is that of what is set";
        parameter(operation, "If-None-Match", ParameterIn::Header, Type::String, why);
        let same = ResponseBuilder::new().description("what is set is that of the tag");
        told(operation, "304", same.build());
        if let Some(RefOr::T(found)) = operation.responses.responses.get_mut("200") {
            let schema = ObjectBuilder::new().schema_type(Type::String).build();
            let header = HeaderBuilder::new().schema(schema).description(Some(
                "The tag of what is set, for If-Match. Counters are no part of it",
            ));
            found.headers.insert("ETag".into(), header.build());
        }
    }

    fn dry(operation: &mut Operation, path: &str) {
        let why = "Change nothing, and say what would change: all checks are those of the change";
        parameter(operation, DRY_RUN, ParameterIn::Query, Type::Boolean, why);
        // It has a form of its own.
        if path == "/v1/apply" {
            return;
        }
        let run = Ref::from_schema_name("DryRun");
        let known = operation.responses.responses.get_mut("200");
        if let Some(RefOr::T(found)) = known {
            if let Some(content) = found.content.get_mut("application/json") {
                let both = OneOfBuilder::new();
                let both = match content.schema.take() {
                    Some(real) => both.item(real),
                    None => both,
                };
                content.schema = Some(both.item(run).into());
            }
            return;
        }
        let content = Content::new(Some(run));
        let response = ResponseBuilder::new()
            .description("of a dry run: what would change")
            .content("application/json", content);
        told(operation, "200", response.build());
    }

    /// Where the document has an operation.
    pub(in super::super) fn find<'a>(
        document: &'a mut OpenApi,
        one: &operations::Operation,
    ) -> Option<&'a mut Operation> {
        let item = document.paths.paths.get_mut(one.path)?;
        let operation = match one.method {
            "GET" => &mut item.get,
            "POST" => &mut item.post,
            "PUT" => &mut item.put,
            "PATCH" => &mut item.patch,
            _ => &mut item.delete,
        };
        operation.as_mut()
    }

    impl Modify for OnTerms {
        fn modify(&self, document: &mut OpenApi) {
            for one in operations::ALL {
                let Some(operation) = find(document, one) else { continue };
                if has_tag(one.path) {
                    tagged(operation, one.method == "GET");
                }
                if has_dry_run(one) {
                    dry(operation, one.path);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "terms_tests.rs"]
mod tests;
