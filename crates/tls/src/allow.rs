//! Which peer may open which disks: the rules of `allow.toml`.
//!
//! ```toml
//! [[allow]]
//! peer = "gw1.example"       # a DNS name in the peer's certificate; "*" is any peer
//! disks = ["db*", "web1"]    # names of exports; a * at the end stands for any rest
//! access = "read"            # or "write", which is the default
//! policy = { reservation = 2000, shares = 500 }  # what the peer may have the disks promised
//! ```
//!
//! Who may use the API over TLS is said there, too: nobody of whom nothing is said.
//!
//! ```toml
//! [[api]]
//! peer = "ops.example"
//! role = "operator"          # or "viewer", or "admin"
//! machines = ["shop*"]       # an operator's, by the names of virtual machines
//! ```
//!
//! What no rule allows is refused. Of several rules for a disk the one that allows most counts.
//! Policies are taken from peers with such bounds only: `reservation` bounds what all disks that
//! the peer has set have reserved together, in IOPS, `shares` those of each of them.

use serde::Deserialize;
use std::collections::BTreeSet;

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
    #[serde(default)]
    api: Vec<ApiRule>,
}

/// What somebody may do over the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiRole {
    /// Reads all but traces.
    Viewer,
    /// Uses the disks of some virtual machines.
    Operator,
    /// Everything.
    Admin,
}

/// All that somebody may do over the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRights {
    /// The roles.
    pub roles: BTreeSet<ApiRole>,
    /// An operator's virtual machines: names, in which a * at the end stands for any rest.
    pub machines: Vec<String>,
}

impl ApiRights {
    /// What a role gives.
    ///
    /// # Errors
    /// An operator has machines, and nobody else does.
    pub fn of(role: ApiRole, machines: &[String]) -> Result<ApiRights, String> {
        match (role, machines.is_empty()) {
            (ApiRole::Operator, true) => {
                return Err("role = \"operator\": machines = [...] says of which".into());
            }
            (ApiRole::Viewer | ApiRole::Admin, false) => {
                return Err("machines: only an operator has some".into());
            }
            _ => {}
        }
        let stars = |name: &&String| name.strip_suffix('*').unwrap_or(name).contains('*');
        if let Some(name) = machines.iter().find(stars) {
            return Err(format!("machines = \"{name}\": a * stands at the end only"));
        }
        Ok(ApiRights { roles: [role].into(), machines: machines.to_vec() })
    }

    /// Whether this machine is theirs.
    pub fn has_machine(&self, machine: &str) -> bool {
        self.machines.iter().any(|pattern| fits(pattern, machine))
    }
}

/// Whether a name is meant.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiRule {
    peer: String,
    role: ApiRole,
    #[serde(default)]
    machines: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    peer: String,
    disks: Vec<String>,
    #[serde(default)]
    access: Access,
    policy: Option<Bounds>,
}

/// What a peer may have disks promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The most that all disks that it has set may have reserved together, in IOPS.
    #[serde(default)]
    pub reservation: u64,
    /// The most shares that each of them may have.
    pub shares: u64,
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
        for rule in &rules.api {
            ApiRights::of(rule.role, &rule.machines)?;
            if rule.peer != "*" && rule.peer.contains('*') {
                let peer = &rule.peer;
                return Err(format!("peer = \"{peer}\": expected a name, or * for any peer"));
            }
        }
        Ok(rules)
    }

    /// What a peer with these names may do over the API: all that a rule gives. O(rules x names).
    pub fn api(&self, names: &[String]) -> ApiRights {
        let is_for = |rule: &&ApiRule| {
            rule.peer == "*" || names.iter().any(|name| name.eq_ignore_ascii_case(&rule.peer))
        };
        let mut rights = ApiRights::default();
        for rule in self.api.iter().filter(is_for) {
            rights.roles.insert(rule.role);
            rights.machines.extend(rule.machines.iter().cloned());
        }
        rights
    }

    /// What a peer with these names in its certificate may do with a disk. O(rules x names).
    pub fn right(&self, names: &[String], disk: &str) -> Right {
        let right = |rule: &Rule| match rule.access {
            Access::Read => Right::Read,
            Access::Write => Right::Write,
        };
        self.of(names, disk).map(right).max().unwrap_or(Right::None)
    }

    /// What a peer with these names may have a disk promised: the most of each that a rule gives
    /// for a disk that it may write. `None`: it takes no policies from it. O(rules x names).
    pub fn bounds(&self, names: &[String], disk: &str) -> Option<Bounds> {
        let writes = self.of(names, disk).filter(|rule| rule.access == Access::Write);
        writes.filter_map(|rule| rule.policy).reduce(|one, other| Bounds {
            reservation: one.reservation.max(other.reservation),
            shares: one.shares.max(other.shares),
        })
    }

    /// The rules for a peer and a disk.
    fn of(&self, names: &[String], disk: &str) -> impl Iterator<Item = &Rule> {
        let is_for = move |rule: &&Rule| {
            let by_name = || names.iter().any(|name| name.eq_ignore_ascii_case(&rule.peer));
            rule.peer == "*" || by_name()
        };
        let has = move |rule: &&Rule| rule.disks.iter().any(|pattern| fits(pattern, disk));
        self.allow.iter().filter(is_for).filter(has)
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
    fn policies_are_bounded_by_what_rules_for_writers_give() {
        let rules = |text: &str| Rules::parse(text).unwrap();
        let bounds = |reservation, shares| Some(Bounds { reservation, shares });
        let all = rules(
            r#"
            [[allow]]
            peer = "gw1"
            disks = ["db*"]
            policy = { reservation = 500, shares = 200 }

            [[allow]]
            peer = "gw1"
            disks = ["db1"]
            policy = { reservation = 100, shares = 900 }

            [[allow]]
            peer = "*"
            disks = ["web*"]
            policy = { shares = 10 }

            [[allow]]
            peer = "gw2"
            disks = ["*"]

            [[allow]]
            peer = "gw3"
            disks = ["*"]
            access = "read"
            policy = { reservation = 1, shares = 1 }
            "#,
        );
        for (name, disk, expected) in [
            ("gw1", "db2", bounds(500, 200)),
            ("gw1", "db1", bounds(500, 900)),
            ("gw1", "web", bounds(0, 10)),
            ("gw1", "other", None),
            ("gw2", "db1", None),
            ("gw2", "web", bounds(0, 10)),
            ("gw3", "db1", None),
        ] {
            assert_eq!(all.bounds(&[name.into()], disk), expected, "{name} {disk}");
        }
        let unknown = "[[allow]]\npeer = \"a\"\ndisks = []\npolicy = { limit = 5 }";
        assert!(Rules::parse(unknown).unwrap_err().contains("limit"));
    }

    #[test]
    fn nobody_uses_the_api_without_a_role() {
        let rules = Rules::parse(
            r#"
            [[api]]
            peer = "ops"
            role = "admin"
            [[api]]
            peer = "shop"
            role = "operator"
            machines = ["shop*", "till"]
            [[api]]
            peer = "*"
            role = "viewer"
            "#,
        )
        .unwrap();
        let of = |name: &str| rules.api(&[name.into()]);
        assert!(of("OPS").roles.contains(&ApiRole::Admin));
        let shop = of("shop");
        assert_eq!(shop.roles, [ApiRole::Viewer, ApiRole::Operator].into());
        assert!(shop.has_machine("shop7") && shop.has_machine("till"));
        assert!(!shop.has_machine("till2") && !shop.has_machine("ash"));
        assert_eq!(of("x").roles, [ApiRole::Viewer].into());
        let nothing = Rules::parse(RULES).unwrap().api(&["gw1.example".into()]);
        assert_eq!(nothing, ApiRights::default(), "who may open disks is not who may do that");
        for (text, word) in [
            ("[[api]]\npeer = \"a\"\nrole = \"operator\"", "machines = [...]"),
            ("[[api]]\npeer = \"a\"\nrole = \"admin\"\nmachines = [\"x\"]", "only an operator"),
            ("[[api]]\npeer = \"a\"\nrole = \"root\"", "admin"),
            ("[[api]]\npeer = \"a*\"\nrole = \"admin\"", "a*"),
            ("[[api]]\npeer = \"a\"\nrole = \"operator\"\nmachines = [\"x*y\"]", "x*y"),
        ] {
            let error = Rules::parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
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
