//! The promises of `docs/security.md`: each names the files of its tests, which must hold some.

/// Where they are.
pub const DOCUMENT: &str = "docs/security.md";
const SECTION: &str = "## What holds";

/// One promise.
struct Promise<'t> {
    /// The line where it begins, counted from 1.
    line: usize,
    /// Its first line.
    first: &'t str,
    /// All of it, in one line.
    text: String,
}

/// What is wrong with the promises in `text`. `read` answers the text of a file of the checkout, if
/// there is one.
pub fn broken(text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let promises = promises(text);
    if promises.is_empty() {
        return vec![format!("{DOCUMENT}: no promise stands below '{SECTION}'")];
    }
    promises.iter().flat_map(|promise| wrong_with(promise, &read)).collect()
}

fn wrong_with(promise: &Promise<'_>, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let at = format!("{DOCUMENT}:{}", promise.line);
    let files = tests(&promise.text);
    if files.is_empty() {
        return vec![format!("{at}: no test is named: {}", promise.first)];
    }
    let wrong = |file: &&str| match read(file) {
        None => Some(format!("{at}: no such file: {file}")),
        Some(text) if holds_tests(&text) => None,
        Some(_) => Some(format!("{at}: no test is in {file}")),
    };
    files.iter().filter_map(wrong).collect()
}

/// The items of the section.
fn promises(text: &str) -> Vec<Promise<'_>> {
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != SECTION).skip(1);
    let mut promises: Vec<Promise<'_>> = Vec::new();
    for (at, line) in lines.take_while(|(_, line)| !line.starts_with("## ")) {
        match (line.strip_prefix("- "), promises.last_mut()) {
            (Some(first), _) => promises.push(Promise { line: at + 1, first, text: first.into() }),
            (None, Some(promise)) => {
                promise.text.push(' ');
                promise.text.push_str(line.trim());
            }
            (None, None) => {}
        }
    }
    promises
}

/// The Rust files that stand in backticks behind `Test:` or `Tests:`.
fn tests(promise: &str) -> Vec<&str> {
    let behind = ["Test: ", "Tests: "].iter().filter_map(|word| promise.split_once(word));
    let quoted = behind.flat_map(|(_, rest)| rest.split('`').skip(1).step_by(2));
    quoted.filter(|name| name.contains('/') && name.ends_with(".rs")).collect()
}

fn holds_tests(source: &str) -> bool {
    source.lines().any(|line| line.trim() == "#[test]")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Security
- **Elsewhere.** No test.
## What holds
Words.
- **A.** `crates/a.rs` does it. Test: `tests/a.rs`.
- **B**: text `x`. Tests:
  `tests/a.rs` (`shown`), and `headgate load --all`,
  `tests/b.rs`.
## What does not
- **C.** No test.
";

    fn check(text: &str) -> Vec<String> {
        broken(text, |file| match file {
            "tests/a.rs" | "tests/b.rs" => Some("    #[test]\n    fn f() {}\n".into()),
            "tests/empty.rs" => Some("// No #[test] here.\nmod tests;\n".into()),
            _ => None,
        })
    }

    #[test]
    fn promises_with_tests_pass() {
        assert!(check(TEXT).is_empty(), "{:?}", check(TEXT));
    }

    #[test]
    fn a_promise_without_a_test_is_named() {
        let none = TEXT.replace(" Test: `tests/a.rs`.", "");
        assert_eq!(
            check(&none),
            ["docs/security.md:5: no test is named: **A.** `crates/a.rs` does it."]
        );
        // A file that is no Rust file of this checkout is no test.
        let other = TEXT.replace("Test: `tests/a.rs`.", "Test: `.ci/run`.");
        assert_eq!(check(&other).len(), 1);
    }

    #[test]
    fn tests_that_are_gone_or_empty_are_named() {
        let gone = TEXT.replace("tests/b.rs", "tests/gone.rs");
        assert_eq!(check(&gone), ["docs/security.md:6: no such file: tests/gone.rs"]);
        let empty = TEXT.replace("tests/b.rs", "tests/empty.rs");
        assert_eq!(check(&empty), ["docs/security.md:6: no test is in tests/empty.rs"]);
    }

    #[test]
    fn a_section_that_is_gone_is_named() {
        assert_eq!(check(&TEXT.replace("## What holds", "## Holds")).len(), 1);
    }
}
