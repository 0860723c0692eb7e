//! `cargo xtask purity`: what the compiled pure crates ask of the system they are linked into.
//!
//! `tidy` reads names in sources; this reads the undefined symbols of the compiled crates, in
//! which macros, derives and default type parameters have become calls. A pure crate may ask for
//! memory, arithmetic and panics. A clock, a file, a socket, a thread, the environment and the
//! seed of a `HashMap` have symbols of their own, and any of those fails.
//!
//! Generic code is compiled where it is used, so a generic function that no pure crate calls is
//! seen by `tidy` only.

use crate::house::House;
use crate::tree::{self, Failure, Workspace, output};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A target with a standard library but no operating system below it.
const BARE_TARGET: &str = "wasm32-unknown-unknown";

/// Parts of the standard library that need no operating system.
const HARMLESS: &[&str] = &[
    "std::alloc::",
    "std::collections::hash::",
    "std::error::",
    "std::io::Read",
    "std::io::Write",
    "std::io::buffered::",
    "std::io::cursor::",
    "std::io::error::",
    "std::io::impls::",
    "std::panicking::",
    "std::hash::random::DefaultHasher",
];

/// Symbols without a path that need no operating system: the compiler's own, and arithmetic.
const HARMLESS_C: &[&str] = &[
    "_Unwind_Resume",
    "bcmp",
    "ceil",
    "cos",
    "exp",
    "exp2",
    "floor",
    "fma",
    "fmod",
    "log",
    "log10",
    "log1p",
    "log2",
    "memchr",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "pow",
    "rint",
    "round",
    "rust_eh_personality",
    "sin",
    "sqrt",
    "strlen",
    "tan",
    "trunc",
];

/// Checks the symbols and, where it is installed, builds for the bare target.
pub fn run() -> Result<bool, Failure> {
    let workspace = tree::workspace(&tree::root()?)?;
    let house = House::shipped()?;
    let pure: Vec<&str> = house.pure(&workspace).collect();
    let mut clean = true;
    for (name, library) in libraries(&workspace, &pure)? {
        let symbols = undefined(&library)?;
        let wrong: Vec<&String> = symbols.iter().filter(|s| !is_harmless(s)).collect();
        println!("{name}: {} undefined symbols, {} wrong", symbols.len(), wrong.len());
        for symbol in &wrong {
            println!("    {symbol}");
        }
        clean &= wrong.is_empty();
    }
    Ok(bare(&workspace, &pure)? && clean)
}

/// Builds the pure crates and returns their libraries.
fn libraries(workspace: &Workspace, pure: &[&str]) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut build = Command::new("cargo");
    build.current_dir(&workspace.root).args(["build", "--quiet", "--lib", "--message-format=json"]);
    let said = output(build.args(packages(workspace, pure)))?;
    let mut found = BTreeSet::new();
    for line in said.lines() {
        let message: Value = serde_json::from_str(line)?;
        let manifest = message["manifest_path"].as_str().unwrap_or_default();
        let of = pure.iter().find(|c| workspace.crates[**c].dir.join("Cargo.toml") == *manifest);
        let Some(name) = of else { continue };
        let files = message["filenames"].as_array().map_or(&[][..], Vec::as_slice);
        let library = files.iter().filter_map(Value::as_str).find(|f| f.ends_with(".rlib"));
        found.extend(library.map(|l| ((*name).to_owned(), PathBuf::from(l))));
    }
    match found.len() == pure.len() {
        true => Ok(found.into_iter().collect()),
        false => Err(format!("{} pure crates, {} libraries", pure.len(), found.len()).into()),
    }
}

fn packages(workspace: &Workspace, pure: &[&str]) -> Vec<String> {
    pure.iter().flat_map(|c| ["-p".to_owned(), workspace.crates[*c].package.clone()]).collect()
}

/// The undefined symbols of a library, with their paths.
fn undefined(library: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut nm = Command::new("nm");
    let said = output(nm.args(["--undefined-only", "--demangle", "--quiet"]).arg(library))
        .map_err(|e| format!("{e} (nm is part of binutils)"))?;
    Ok(symbols(&said))
}

fn symbols(said: &str) -> BTreeSet<String> {
    let names = said.lines().filter_map(|line| line.trim_start().strip_prefix("U "));
    names.map(str::to_owned).collect()
}

/// Whether a symbol can be had without an operating system.
fn is_harmless(symbol: &str) -> bool {
    if !symbol.contains("::") && !symbol.starts_with('<') {
        // Arithmetic that the processor lacks, such as `__udivti3` and `__floatuntidf`.
        let arithmetic = symbol.starts_with("__") && symbol.contains("ti");
        // Constants that LLVM shares between the parts of a crate are `anon.*`.
        return arithmetic || symbol.starts_with("anon.") || HARMLESS_C.contains(&symbol);
    }
    let starts = symbol.match_indices("std::").map(|(at, _)| at);
    let roots = starts.filter(|&at| {
        !symbol[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
    });
    roots.into_iter().all(|at| HARMLESS.iter().any(|h| symbol[at..].starts_with(h)))
}

/// Builds the pure crates for a target without an operating system, where its library is there.
fn bare(workspace: &Workspace, pure: &[&str]) -> Result<bool, Failure> {
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]));
    if !installed.is_ok_and(|list| list.lines().any(|target| target == BARE_TARGET)) {
        println!("SKIPPED: {BARE_TARGET} is not installed: rustup target add {BARE_TARGET}");
        return Ok(true);
    }
    let mut build = Command::new("cargo");
    build.current_dir(&workspace.root).args(["check", "--lib", "--target", BARE_TARGET]);
    let built = build.args(packages(workspace, pure)).status()?.success();
    println!("{BARE_TARGET}: {}", if built { "builds" } else { "does not build" });
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_system_is_wrong() {
        for symbol in [
            "std::time::Instant::now",
            "<std::time::Instant>::now",
            "std::time::SystemTime::elapsed",
            "std::fs::File::open",
            "<std::fs::OpenOptions>::_open",
            "std::net::tcp::TcpStream::connect",
            "std::thread::current::current",
            "std::thread::scoped::scope",
            "std::env::_var",
            "std::process::abort",
            "std::io::stdio::_print",
            "std::sys::random::linux::hashmap_random_keys",
            "<std::hash::random::RandomState>::new::KEYS::{K#0}::{closure#1}::__RUST_STD_INTERNAL_VAL",
            "<std::hash::random::RandomState as core::default::Default>::default",
            "getrandom",
            "clock_gettime",
            "open64",
            "__tls_get_addr",
        ] {
            assert!(!is_harmless(symbol), "{symbol}");
        }
    }

    #[test]
    fn what_needs_none_passes() {
        for symbol in [
            "memcpy",
            "__udivti3",
            "__floatuntidf",
            "round",
            "anon.4b5d587f31a04de635f9a18d9ddd05cc.7.llvm.17515754910871662698",
            "__rustc::__rust_alloc",
            "core::panicking::panic_fmt",
            "<headgate_units::nanos::Nanos as core::fmt::Display>::fmt",
            "<std::io::error::Error as core::fmt::Debug>::fmt",
            "my_std::fs::open",
        ] {
            assert!(is_harmless(symbol), "{symbol}");
        }
    }

    #[test]
    fn the_list_of_nm_is_read() {
        let said = "\nx.o:\n                 U memcpy\n                 U core::panicking::panic\n";
        assert_eq!(symbols(said).len(), 2);
    }
}
