//! `cargo xtask figures`: sizes of the tree, to be compared between two checkouts.

use crate::cycles;
use crate::house::House;
use crate::tidy::{self, Crate};
use crate::tree::{self, Failure};
use std::path::PathBuf;

/// Sizes of one crate.
#[derive(Default)]
struct Sizes {
    lines: usize,
    files: usize,
    functions: usize,
    long: usize,
    cycles: usize,
    largest: usize,
    unsafe_blocks: usize,
    arrows: usize,
}

/// Prints the figures of the checkout at `root`.
pub fn run(root: Result<PathBuf, Failure>) -> Result<bool, Failure> {
    let root = root?.canonicalize()?;
    let workspace = tree::workspace(&root)?;
    let crates = tidy::read(&workspace)?;
    let files = tree::tracked(&root)?;
    let rust: Vec<_> = files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs")).collect();
    let mut rust_lines = 0;
    for file in &rust {
        rust_lines += std::fs::read_to_string(root.join(file))?.lines().count();
    }
    println!(
        "| crate | lines | files | functions | > 80 lines | cycles > 2 files (largest) | unsafe | arrows |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut sum = Sizes::default();
    for krate in &crates {
        let arrows = workspace.crates[&krate.name].knows.len();
        let sizes = sizes(krate, arrows)?;
        print(&krate.name, &sizes);
        sum.lines += sizes.lines;
        sum.files += sizes.files;
        sum.functions += sizes.functions;
        sum.long += sizes.long;
        sum.cycles += sizes.cycles;
        sum.largest = sum.largest.max(sizes.largest);
        sum.unsafe_blocks += sizes.unsafe_blocks;
        sum.arrows += sizes.arrows;
    }
    print("all", &sum);
    println!();
    println!(
        "Production code only: what `cfg(test)` leaves out is not counted, lines of its files are."
    );
    println!("All Rust files, tests included: {} files, {rust_lines} lines.", rust.len());
    println!(
        "Arrows that house.toml does not allow: {}.",
        House::shipped()?.arrows(&workspace).len()
    );
    for (key, f) in tidy::long_functions(&crates) {
        println!("long: {key} {}", f.lines);
    }
    for (name, cycles) in tidy::cycles_by_crate(&crates) {
        for cycle in cycles {
            let files =
                cycle.iter().map(|f| f.strip_prefix(&root).unwrap_or(f).display().to_string());
            println!("cycle: {name}: {}", files.collect::<Vec<_>>().join(" "));
        }
    }
    Ok(true)
}

/// Prints which file names what of which other one, for all files in a cycle of more than two.
/// Returns whether there is no such cycle.
pub fn cycles(only: Option<&str>) -> Result<bool, Failure> {
    let root = tree::root()?;
    let crates = tidy::read(&tree::workspace(&root)?)?;
    if let Some(only) = only.filter(|only| crates.iter().all(|krate| krate.name != *only)) {
        return Err(format!("there is no crate '{only}'").into());
    }
    let chosen = crates.iter().filter(|krate| only.is_none_or(|only| krate.name == only));
    let mut none = true;
    for krate in chosen {
        for modules in &krate.roots {
            let name = |file: usize| {
                let file = &modules.files[file].0;
                file.strip_prefix(&root).unwrap_or(file).display().to_string()
            };
            for cycle in cycles::components(&modules.edges(), tidy::CYCLE_FILES_MAX) {
                none = false;
                println!("{}: {} files", krate.name, cycle.len());
                for &from in &cycle {
                    println!("  {}", name(from));
                    let uses = &modules.uses()[from];
                    for (&to, paths) in uses.iter().filter(|(to, _)| cycle.contains(to)) {
                        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                        println!("    -> {}: {}", name(to), paths.join(", "));
                    }
                }
            }
        }
    }
    Ok(none)
}

fn sizes(krate: &Crate, arrows: usize) -> Result<Sizes, Failure> {
    let mut sizes = Sizes { arrows, ..Sizes::default() };
    for (file, source) in krate.roots.iter().flat_map(|m| &m.files) {
        sizes.lines += std::fs::read_to_string(file)?.lines().count();
        sizes.files += 1;
        sizes.functions += source.functions.len();
        sizes.long +=
            source.functions.iter().filter(|f| f.lines > crate::functions::LINES_MAX).count();
        sizes.unsafe_blocks += source.unsafe_blocks;
    }
    for cycles in tidy::cycles_by_crate(std::slice::from_ref(krate)).values() {
        sizes.cycles = cycles.len();
        sizes.largest = cycles.iter().map(Vec::len).max().unwrap_or(0);
    }
    Ok(sizes)
}

fn print(name: &str, s: &Sizes) {
    let Sizes { lines, files, functions, long, cycles, largest, unsafe_blocks, arrows } = s;
    println!(
        "| {name} | {lines} | {files} | {functions} | {long} | {cycles} ({largest}) \
         | {unsafe_blocks} | {arrows} |"
    );
}
