//! Comments and documents that are wider than the house allows, and paths of one machine.

use std::path::Path;

/// The widest line of a comment or document, in characters.
pub const COLUMNS_MAX: usize = 100;

/// Directories that exist on one machine only. Written without slashes, so that this file passes.
const MACHINE_DIRS: &[&str] = &["work", "farm", "home", "Users"];

/// The kinds of text that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rust,
    Markdown,
    /// Comments begin with `#`: shell, TOML, YAML, units of systemd.
    Hash,
}

/// Lines of `text` that are too wide, with their width. Tables, code blocks, addresses and links
/// of Markdown may be: they cannot be wrapped.
pub fn too_wide(file: &Path, text: &str) -> Vec<(usize, usize)> {
    let Some(kind) = kind(file, text) else { return Vec::new() };
    let mut wide = Vec::new();
    let mut in_block = false;
    for (nth, line) in text.lines().enumerate() {
        let prose = match kind {
            Kind::Rust => comment_of_rust(line),
            Kind::Markdown => Some(line.trim_start()),
            Kind::Hash => line.trim_start().strip_prefix('#').map(str::trim_start),
        };
        let Some(prose) = prose else {
            in_block = false;
            continue;
        };
        if prose.starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let width = line.chars().count();
        if width > COLUMNS_MAX && !in_block && !prose.starts_with('|') && could_wrap(line) {
            wide.push((nth + 1, width));
        }
    }
    wide
}

fn kind(file: &Path, text: &str) -> Option<Kind> {
    let extension = file.extension().map(|e| e.to_string_lossy().into_owned());
    match extension.as_deref() {
        Some("rs") => Some(Kind::Rust),
        Some("md") => Some(Kind::Markdown),
        Some("toml" | "yml" | "yaml" | "sh" | "service") => Some(Kind::Hash),
        _ if text.starts_with("#!") => Some(Kind::Hash),
        _ => None,
    }
}

/// The text of a line's comment. Quotes before `//` must be paired, else it stands in a string.
fn comment_of_rust(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    if let Some(comment) = trimmed.strip_prefix("//") {
        return Some(comment.trim_start_matches(['/', '!']).trim_start());
    }
    let (code, comment) = line.split_once(" // ")?;
    (code.matches('"').count() % 2 == 0).then_some(comment)
}

/// Whether the line is still too wide without its addresses and targets of links.
fn could_wrap(line: &str) -> bool {
    let words = line.split(' ').map(|word| {
        let target = word.find("](").or_else(|| word.find("://"));
        target.map_or(word, |start| &word[..start])
    });
    let width: usize = words.map(|word| word.chars().count() + 1).sum();
    width > COLUMNS_MAX + 1
}

/// Lines of `text` that name a directory of one machine.
pub fn machine_paths(text: &str) -> Vec<usize> {
    let lines = text.lines().enumerate();
    lines.filter(|(_, line)| names_machine_dir(line)).map(|(nth, _)| nth + 1).collect()
}

fn names_machine_dir(line: &str) -> bool {
    line.match_indices('/').any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let starts = before.is_none_or(|c| !c.is_alphanumeric() && !"._-/}~>*".contains(c));
        let below =
            |dir: &str| line[at + 1..].strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
        starts && MACHINE_DIRS.iter().any(|dir| below(dir))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(file: &str, text: &str) -> Vec<(usize, usize)> {
        too_wide(Path::new(file), text)
    }

    fn words(width: usize) -> String {
        "word ".repeat(width / 5 + 1)[..width].to_owned()
    }

    #[test]
    fn a_comment_of_101_characters_is_too_wide() {
        assert_eq!(wide("a.rs", &format!("// {}", words(97))), []);
        assert_eq!(wide("a.rs", &format!("// {}", words(98))), [(1, 101)]);
        assert_eq!(wide("a.toml", &format!("# {}", words(99))), [(1, 101)]);
        assert_eq!(wide("a.md", &words(101)), [(1, 101)]);
    }

    #[test]
    fn characters_are_counted_not_bytes() {
        assert_eq!(wide("a.md", &"é ".repeat(50)), []);
    }

    #[test]
    fn code_is_left_to_the_formatter() {
        assert_eq!(wide("a.rs", &format!("let a = \"{}\";", words(120))), []);
        assert_eq!(wide("a.rs", &format!("let a = \"http: // {}\";", words(120))), []);
        assert_eq!(wide("a.rs", &format!("let a = 1; // {}", words(120))), [(1, 134)]);
        assert_eq!(wide("a.toml", &format!("a = \"{}\"", words(120))), []);
    }

    #[test]
    fn tables_code_blocks_and_addresses_may_be_wide() {
        assert_eq!(wide("a.md", &format!("| {} |", words(120))), []);
        assert_eq!(wide("a.md", &format!("```\n{}\n```\nshort", words(120))), []);
        assert_eq!(wide("a.md", &format!("```\n```\n{}", words(120))), [(3, 120)]);
        assert_eq!(wide("a.md", &format!("see https://{}", "a".repeat(120))), []);
        assert_eq!(wide("a.rs", &format!("/// | {} |", words(120))), []);
        assert_eq!(wide("a.md", &format!("[a]({}) {}", "x".repeat(90), words(20))), []);
        assert_eq!(wide("a.md", &format!("[a]({}) {}", "x".repeat(9), words(120))).len(), 1);
    }

    #[test]
    fn scripts_are_known_by_their_first_line() {
        assert_eq!(wide("run", &format!("#!/bin/sh\n# {}", words(120))), [(2, 122)]);
        assert_eq!(wide("data", &words(120)), []);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let dir = |d: &str| format!("see /{d}/x/y");
        assert_eq!(machine_paths(&format!("fine\n{}", dir("work"))), [2]);
        assert_eq!(machine_paths(&dir("home")), [1]);
        assert_eq!(machine_paths(&dir("var")), [0; 0]);
        assert_eq!(machine_paths("api/home/x and ../work/y"), [0; 0]);
    }
}
