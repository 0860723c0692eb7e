//! The words of storage trouble.

use super::error::CliError;
use super::output::date;
use headgate_api::client::Client;
use headgate_api::trouble::{LastError, Trouble, TroubleState};
use headgate_api::types::Disk;
use headgate_model::Name;
use hyper::Method;

/// Has a disk try what it holds.
pub(super) fn resume(client: &Client, name: &Name) -> Result<Disk, CliError> {
    let path = format!("/v1/disks/{name}/resume");
    Ok(client.send(Method::POST, &path, &serde_json::json!({}))?)
}

/// Whether a disk holds requests.
pub(super) fn is_held(disk: &Disk) -> bool {
    disk.trouble.as_ref().is_some_and(|trouble| trouble.state == TroubleState::Held)
}

/// What is wrong, and since when.
pub(super) fn words(trouble: &Trouble) -> String {
    format!("{trouble}; since {}", date(trouble.since))
}

/// What failed last, where and when.
pub(super) fn last_error(last: &LastError) -> String {
    let LastError { at, op, error, offset, length } = last;
    format!("{op} of {length} at byte {}, {}: {error}", offset.0, date(*at))
}
