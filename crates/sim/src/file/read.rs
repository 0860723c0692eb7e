//! From text to a scenario, with the position of the first mistake.

use super::schema::ScenarioFile;
use super::sensitivity::sensitivities;
use super::setup::scenario;
use super::text::{deserialize, explain, position};
use super::variants::{blame, variants};
use crate::scenario::{Scenario, Variant};
use crate::values::Fault;
use toml::Spanned;
use toml::de::DeTable;

/// Why a scenario file is not one: where, what is wrong there, what was expected and what to do.
///
/// Prints as `FILE:LINE:COLUMN: MESSAGE`, as compilers do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
#[non_exhaustive]
pub struct ScenarioError {
    /// The file's name, as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong, what was expected, what to do.
    pub message: String,
}

impl Scenario {
    /// Reads a scenario file. `name` is what errors call it.
    ///
    /// # Errors
    /// [`ScenarioError`] names the line and the column of the first thing that is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Scenario, ScenarioError> {
        parse(text).map_err(|fault| {
            let (line, column) = position(text, fault.span.start);
            ScenarioError { file: name.to_owned(), line, column, message: fault.message }
        })
    }
}

fn parse(text: &str) -> Result<Scenario, Fault> {
    let tree = DeTable::parse(text).map_err(|error| explain(&error))?;
    let mut scenario = read(text, &tree)?;
    scenario.sensitivities = sensitivities(text, &tree, &scenario, &|changed| read(text, changed))?;
    Ok(scenario)
}

/// A scenario without its sensitivities.
fn read<'i>(text: &str, tree: &Spanned<DeTable<'i>>) -> Result<Scenario, Fault> {
    let mut first = None;
    let mut read = Vec::new();
    for (index, variant) in variants(tree)?.into_iter().enumerate() {
        let changed = variant.apply(tree.clone())?;
        let file: Result<(ScenarioFile, Variant), Fault> = (|| {
            let file: ScenarioFile = deserialize(changed.clone())?;
            super::keys::check(changed.get_ref())?;
            let setup = file.setup()?;
            Ok((file, Variant { name: variant.name.clone(), setup }))
        })();
        // A mistake in a variant after the first is perhaps none in the file as it is written.
        let (file, variant) = match index {
            0 => file?,
            _ => file.map_err(|fault| blame(fault, &variant.name))?,
        };
        first.get_or_insert(file);
        read.push(variant);
    }
    match first {
        Some(first) => scenario(text, &first, read),
        None => Err(Fault::new(&(0..0), "the file has no variant; write one")),
    }
}
