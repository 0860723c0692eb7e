//! The `headgate` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    headgate::cli::main()
}
