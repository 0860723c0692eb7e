//! Scenarios by their file, variants by their name.

use crate::cli::error::CliError;
use headgate_sim::Scenario;
use std::path::Path;

/// Reads a scenario file.
pub(super) fn load(file: &Path) -> Result<Scenario, CliError> {
    let cannot = |source| CliError::File { file: file.to_owned(), doing: "read", source };
    let text = std::fs::read_to_string(file).map_err(cannot)?;
    Ok(Scenario::parse(&file.display().to_string(), &text)?)
}

/// A variant by its name.
///
/// # Errors
/// Names those that there are.
pub(super) fn variant<'a>(
    scenario: &'a Scenario,
    name: &str,
) -> Result<&'a headgate_sim::Variant, CliError> {
    scenario.variant(name).ok_or_else(|| {
        let known: Vec<&str> =
            scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
        CliError::Usage(format!(
            "'{}' has no variant '{name}', expected one of {}",
            scenario.name,
            known.join(", ")
        ))
    })
}
