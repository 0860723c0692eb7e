//! What the handlers share.

use super::edit::Edit;
use super::error::ApiError;
use super::request_terms as terms;
use super::what_if::WhatIfs;
use crate::calibrate::Calibrator;
use crate::fleet::Fleet;
use crate::observe::Observer;
use axum::http::StatusCode;
use axum::{Extension, Json};
use headgate_api::health::Confinement;
use headgate_control::attach::NbdTcp;
use headgate_control::{Control, ControlError};
use std::sync::Arc;

/// The state that the handlers share.
#[derive(Clone)]
pub struct App {
    /// Datastores and disks.
    pub control: Arc<Control>,
    /// Measures datastores.
    pub calibrator: Arc<Calibrator>,
    /// The observer's current rates.
    pub observer: Arc<Observer>,
    /// The view of all hosts.
    pub fleet: Arc<Fleet>,
    /// Where NBD is served over TCP.
    pub nbd_tcp: Option<NbdTcp>,
    /// Which files the kernel lets this process open.
    pub confinement: Arc<Confinement>,
    /// Whose turn it is to ask what a change would have done.
    pub what_ifs: WhatIfs,
}

pub(super) type Answer<T> = Result<Json<T>, ApiError>;

/// An answer to a change, with what it changed.
pub(super) type Edited<T> = Result<(Extension<Edit>, Json<T>), ApiError>;

impl App {
    /// Runs what may block on a thread that may.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Control) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let control = self.control.clone();
        self.on_thread(move || work(&control)).await
    }

    /// The same for a change that tells what it changed.
    pub(super) async fn edit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Control) -> Result<(Edit, T), ControlError> + Send + 'static,
    ) -> Edited<T> {
        let (edit, now) = self.blocking(work).await?;
        Ok((Extension(edit), Json(now)))
    }

    pub(super) async fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ApiError> {
        // The terms of the request go with it.
        let (control, terms) = (self.control.clone(), terms::current());
        let work = move || control.on_terms(terms, |_| work());
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => Ok(result?),
            Err(e) => Err(ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the operation was cut: {e}"),
            )
            .hint("see the daemon's log")),
        }
    }
}
