//! Wire types of the terms on which changes are asked for.

use super::apply::{PromisesOn, ThingChange};
use serde::{Deserialize, Serialize};

/// What a change would do that was asked for with `?dry_run=true`. It passed the checks of the real
/// one, and nothing was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DryRun {
    /// What would be different: nothing, where the change says what is already so.
    pub changes: Vec<ThingChange>,
    /// Datastores of which more or less would be promised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promises: Vec<PromisesOn>,
    /// What may not be as intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
