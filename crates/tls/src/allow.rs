//! Which peer may open which disks: the rules of `allow.toml`.
//!
//! ```toml
//! [[allow]]
//! peer = "gw1.example"       # a DNS name in the peer's certificate; "*" is any peer
//! disks = ["db*", "web1"]    # names of exports; a * at the end stands for any rest
//! access = "read"            # or "write", which is the default
//! ```
//!
//! What no rule allows is refused. Of several rules for a disk the one that allows most counts.

use serde::Deserialize;

/// What a peer may do with a disk. The later ones include the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nothing: for the peer there is no such disk.
    None,
    /// Read it.
    Read,
    /// Read and write it.
    Write,
}

/// The rules of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    #[serde(default)]
    allow: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    peer: String,
    disks: Vec<String>,
    #[serde(default)]
    access: Access,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    Read,
    #[default]
    Write,
}

impl Rules {
    /// Reads rules.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<Rules, String> {
        let rules: Rules = toml::from_str(text).map_err(|e| e.to_string())?;
        for rule in &rules.allow {
            let stars = |name: &&String| name.strip_suffix('*').unwrap_or(name).contains('*');
            if let Some(name) = rule.disks.iter().find(stars) {
                return Err(format!("disks = \"{name}\": a * stands at the end only"));
            }
            if rule.peer != "*" && rule.peer.contains('*') {
                let peer = &rule.peer;
                return Err(format!("peer = \"{peer}\": expected a name, or * for any peer"));
            }
        }
        Ok(rules)
    }

    /// What a peer with these names in its certificate may do with a disk. O(rules x names).
    pub fn right(&self, names: &[String], disk: &str) -> Right {
        let is_for = |rule: &&Rule| {
            let by_name = || names.iter().any(|name| name.eq_ignore_ascii_case(&rule.peer));
            rule.peer == "*" || by_name()
        };
        let has = |rule: &&Rule| {
            rule.disks.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => disk.starts_with(start),
                None => disk == pattern,
            })
        };
        let right = |rule: &Rule| match rule.access {
            Access::Read => Right::Read,
            Access::Write => Right::Write,
        };
        self.allow.iter().filter(is_for).filter(has).map(right).max().unwrap_or(Right::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        [[allow]]
        peer = "gw1.example"
        disks = ["db*", "web1"]

        [[allow]]
        peer = "backup"
        disks = ["*"]
        access = "read"

        [[allow]]
        peer = "*"
        disks = ["public"]
        access = "read"

        [[allow]]
        peer = "backup"
        disks = ["scratch"]
    "#;

    fn right(names: &[&str], disk: &str) -> Right {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        Rules::parse(RULES).unwrap().right(&names, disk)
    }

    #[test]
    fn a_peer_has_what_a_rule_gives_and_of_several_the_most() {
        for (names, disk, expected) in [
            (&["gw1.example"][..], "db", Right::Write),
            (&["GW1.Example"], "db2", Right::Write),
            (&["gw1.example"], "web1", Right::Write),
            (&["gw1.example"], "web10", Right::None),
            (&["gw1.example"], "adb", Right::None),
            (&["gw1"], "db", Right::None),
            (&["gw1.example.org"], "db", Right::None),
            (&["backup"], "anything", Right::Read),
            (&["backup"], "scratch", Right::Write),
            (&["nobody", "backup"], "anything", Right::Read),
            (&[], "public", Right::Read),
            (&[], "db", Right::None),
        ] {
            assert_eq!(right(names, disk), expected, "{names:?} {disk}");
        }
        assert_eq!(Rules::parse("").unwrap().right(&["x".into()], "db"), Right::None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("[[allow]]\npeer = \"a\"", "disks"),
            ("[[allow]]\npeer = \"a\"\ndisks = [\"x\"]\naccess = \"rw\"", "read"),
            ("[[allow]]\npeer = \"a\"\ndisks = [\"x*y\"]", "x*y"),
            ("[[allow]]\npeer = \"*.example\"\ndisks = []", "*.example"),
            ("[[alow]]", "alow"),
            ("peer", "line 1"),
        ] {
            let error = Rules::parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
