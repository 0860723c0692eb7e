use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use headgate_api::terms::DryRun;
use headgate_api::types::ErrorBody;
use headgate_control::{ControlError, ErrorKind};
use serde::de::DeserializeOwned;

/// A failed request: status and body.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    body: Said,
}

/// What is said instead of what was asked for.
#[derive(Debug)]
enum Said {
    Error(ErrorBody),
    /// That it would have been done.
    DryRun(Box<DryRun>),
}

impl ApiError {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> ApiError {
        let body = ErrorBody { error: error.into(), expected: None, hint: None };
        ApiError { status, body: Said::Error(body) }
    }

    pub(super) fn expected(mut self, expected: impl Into<String>) -> ApiError {
        if let Said::Error(body) = &mut self.body {
            body.expected = Some(expected.into());
        }
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> ApiError {
        if let Said::Error(body) = &mut self.body {
            body.hint = Some(hint.into());
        }
        self
    }
}

impl From<ControlError> for ApiError {
    fn from(e: ControlError) -> ApiError {
        let status = match e.kind() {
            ErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Missing => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Stale => StatusCode::PRECONDITION_FAILED,
            ErrorKind::DryRun => StatusCode::OK,
            ErrorKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let body = match e {
            ControlError::Dry(run) => Said::DryRun(run),
            e => Said::Error(ErrorBody {
                error: e.to_string(),
                expected: e.expected(),
                hint: e.hint(),
            }),
        };
        ApiError { status, body }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self.body {
            Said::Error(body) => (self.status, Json(body)).into_response(),
            Said::DryRun(run) => (self.status, Json(run)).into_response(),
        }
    }
}

/// A JSON body; errors in it are answered in the API's own form.
pub(super) struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(|e| {
            ApiError::new(e.status(), format!("the request's body cannot be read: {e}"))
        })?;
        serde_json::from_slice(&bytes).map(Body).map_err(|e| {
            ApiError::new(
                StatusCode::BAD_REQUEST,
                format!("the request's body is not what it should be: {e}"),
            )
            .expected("JSON as described by /v1/openapi.json")
        })
    }
}

/// A path parameter; errors in it are answered in the API's own form.
pub(super) struct Param<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Param<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Param<T>, ApiError> {
        Path::<T>::from_request_parts(parts, state)
            .await
            .map(|Path(value)| Param(value))
            .map_err(|e| ApiError::new(StatusCode::BAD_REQUEST, e.body_text()))
    }
}

/// Query parameters; errors in them are answered in the API's own form.
pub(super) struct Flags<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Flags<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Flags<T>, ApiError> {
        Query::<T>::from_request_parts(parts, state)
            .await
            .map(|Query(value)| Flags(value))
            .map_err(|e| ApiError::new(StatusCode::BAD_REQUEST, e.body_text()))
    }
}
