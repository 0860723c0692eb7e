//! The load generator by itself: `cargo run --release -p headgate-load --example headgate-load --
//! --help`.

use clap::Parser;
use headgate_load::{LoadArgs, run};
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(flatten)]
    load: LoadArgs,
}

fn main() -> ExitCode {
    let args = Cli::parse().load;
    match run(&args) {
        Ok(report) => {
            if args.json {
                println!("{}", report.to_json());
            } else {
                print!("{report}");
            }
            ExitCode::from(report.exit_code())
        }
        Err(e) => {
            eprintln!("headgate-load: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}
