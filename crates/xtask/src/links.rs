//! Links between documents: each must point at a file, and at a heading of it, that exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// A link whose target does not exist.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    /// The document, relative to the root.
    pub file: PathBuf,
    /// The line of the link, counted from 1.
    pub line: usize,
    /// The target as it is written.
    pub target: String,
    /// What is missing.
    pub missing: Missing,
}

/// What a broken link lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The file or directory.
    File,
    /// The heading.
    Heading,
}

/// The broken relative links of the Markdown files in `documents`, by path and text. `exists` says
/// whether the checkout has a file or directory. Addresses with a scheme are not checked.
pub fn broken(
    documents: &BTreeMap<PathBuf, String>,
    exists: impl Fn(&Path) -> bool,
) -> Vec<Broken> {
    let anchors: BTreeMap<&Path, BTreeSet<String>> =
        documents.iter().map(|(file, text)| (file.as_path(), anchors(text))).collect();
    let mut found = Vec::new();
    for (file, text) in documents {
        for (line, target) in targets(text) {
            let missing = missing(file, target, &anchors, &exists);
            let broken =
                |missing| Broken { file: file.clone(), line, target: target.into(), missing };
            found.extend(missing.map(broken));
        }
    }
    found
}

fn missing(
    from: &Path,
    target: &str,
    anchors: &BTreeMap<&Path, BTreeSet<String>>,
    exists: impl Fn(&Path) -> bool,
) -> Option<Missing> {
    let (path, heading) = target.split_once('#').map_or((target, None), |(p, h)| (p, Some(h)));
    let file = match path {
        "" => from.to_owned(),
        _ => resolve(from.parent().unwrap_or(Path::new("")), path),
    };
    if !exists(&file) {
        return Some(Missing::File);
    }
    // Lines of source files, as in `file.rs#L10`, are no headings.
    let known = anchors.get(file.as_path())?;
    heading.filter(|heading| !known.contains(*heading)).map(|_| Missing::Heading)
}

/// `directory/path` without `.` and `..`.
fn resolve(directory: &Path, path: &str) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in directory.join(path).components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved
}

/// The targets of relative links, with their lines. Code is left out.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        for (at, _) in prose.match_indices("](") {
            // An odd number of backticks before it: the link is inside code.
            if prose[..at].matches('`').count() % 2 == 1 {
                continue;
            }
            let rest = &prose[at + 2..];
            let Some(end) = rest.find([')', ' ']) else { continue };
            let target = &rest[..end];
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push((line, target));
            }
        }
    }
    found
}

/// The anchors that GitHub gives to the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let slug = slug(heading.trim());
        let numbered = |n: usize| if n == 0 { slug.clone() } else { format!("{slug}-{n}") };
        let free = (0..).map(numbered).find(|slug| !known.contains(slug));
        known.extend(free);
    }
    known
}

/// A heading's anchor: lower case, hyphens for spaces, letters and digits only.
fn slug(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading;
    // A link shows its text only.
    while let Some((before, after)) = rest.split_once("](") {
        shown += before;
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    shown += rest;
    let kept = shown.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The lines of a document that are not in code blocks, counted from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().filter_map(move |(nth, line)| {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            return None;
        }
        (!in_block).then_some((nth + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)]) -> Vec<(usize, String, Missing)> {
        let documents = files.iter().map(|(f, t)| (PathBuf::from(f), (*t).to_owned())).collect();
        let exists = |file: &Path| {
            file == Path::new("src") || files.iter().any(|(known, _)| Path::new(known) == file)
        };
        broken(&documents, exists).into_iter().map(|b| (b.line, b.target, b.missing)).collect()
    }

    #[test]
    fn a_link_needs_its_file() {
        let other = ("docs/b.md", "# B");
        assert_eq!(check(&[("docs/a.md", "[b](b.md), [src](../src), [up](./b.md)"), other]), []);
        assert_eq!(
            check(&[("docs/a.md", "text\n[c](c.md)"), other]),
            [(2, "c.md".into(), Missing::File)]
        );
        assert_eq!(check(&[("a.md", "[b](b.md)"), other]), [(1, "b.md".into(), Missing::File)]);
    }

    #[test]
    fn a_link_needs_its_heading() {
        let other = ("b.md", "# What is `learnt`?\n## Why\n## Why\n```\n# no heading\n```");
        let ok = "[1](b.md#what-is-learnt) [2](b.md#why) [3](b.md#why-1) [4](#here)\n# Here";
        assert_eq!(check(&[("a.md", ok), other]), []);
        for wrong in ["b.md#why-2", "b.md#no-heading", "#there"] {
            let text = format!("# Here\n[x]({wrong})");
            assert_eq!(check(&[("a.md", &text), other]), [(2, wrong.into(), Missing::Heading)]);
        }
    }

    #[test]
    fn code_and_addresses_are_not_checked() {
        let text = "`[x](y.md)` [`z`](https://example.org/z.md)\n```\n[x](y.md)\n```";
        assert_eq!(check(&[("a.md", text)]), []);
        assert_eq!(check(&[("a.md", "[`z`](z.md)")]), [(1, "z.md".into(), Missing::File)]);
    }

    #[test]
    fn links_in_headings_show_their_text() {
        assert_eq!(slug("See [the PARDA paper](x.md), 3.2"), "see-the-parda-paper-32");
        assert_eq!(slug("Hosts_a: b -- c"), "hosts_a-b----c");
    }
}
