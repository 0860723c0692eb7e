//! `headgate load`: what a load came to.

use super::common::Print;
use super::error::CliError;
use std::io::Write;

/// Prints a load's report. Failed requests and wrong data are an error.
pub(super) fn print_load(
    out: &mut dyn Write,
    report: &headgate_load::Report,
    print: Print,
) -> Result<(), CliError> {
    match print.json {
        true => writeln!(out, "{}", report.to_json())?,
        false => write!(out, "{report}")?,
    }
    match report.exit_code() {
        0 => Ok(()),
        code => Err(CliError::Unclean(code)),
    }
}
