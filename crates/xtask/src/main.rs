//! Checks of this repository that no other tool makes.
//!
//! `cargo xtask tidy` fails on what the house rules forbid, `cargo xtask figures` prints the sizes
//! that a reviewer asks for, and `cargo xtask purity` proves that the pure crates need no operating
//! system. See `HACKING.md`.

mod columns;
mod cycles;
mod features;
mod figures;
mod functions;
mod house;
mod links;
mod modules;
mod mutations;
mod paths;
mod promises;
mod purity;
mod ratchet;
mod source;
mod tidy;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

Commands:
  tidy                 check the house rules; exit 1 if one is broken
  tidy --tighten       the same, and lower the ratchets to what is there now
  cycles [CRATE]       print the uses that hold cycles of more than two files together
  figures [DIR]        print lines, files, long functions, cycles, unsafe blocks and arrows
  mutations [NAME...]  put known defects into what keeps acknowledged bytes: is each noticed?
  mutations --in-place [NAME...]
                       the same in this checkout, which saves building everything twice; files
                       are put back, after a signal and after a crash too
  purity               prove that the pure crates need no clock, file, socket, thread or entropy
";

fn main() -> ExitCode {
    if let Some(code) = mutations::wrapper::stand_in() {
        return code;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["tidy"] => tidy::run(ratchet::Mode::Check),
        ["tidy", "--tighten"] => tidy::run(ratchet::Mode::Tighten),
        ["cycles"] => figures::cycles(None),
        ["cycles", krate] => figures::cycles(Some(krate)),
        ["figures"] => figures::run(tree::root()),
        ["figures", dir] => figures::run(Ok(PathBuf::from(dir))),
        ["mutations", "--in-place", names @ ..] => mutations::run(mutations::Where::InPlace, names),
        ["mutations", names @ ..] => mutations::run(mutations::Where::Copy, names),
        ["purity"] => purity::run(),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
