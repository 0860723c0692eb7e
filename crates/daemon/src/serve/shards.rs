//! How many shards there are, and whose.

use super::Config;
use super::config::WaitingRule;
use headgate_engine::{EngineConfig, Pin, ShardGroup};
use headgate_model::Name;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use tracing::info;

/// Groups of datastores that have a shard each, by name (docs/decisions/0080-shard-groups.md).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardGroups(BTreeMap<Name, Vec<Name>>);

impl<'de> Deserialize<'de> for ShardGroups {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<ShardGroups, D::Error> {
        let groups = BTreeMap::<Name, Vec<Name>>::deserialize(text)?;
        let mut of = BTreeMap::new();
        for (group, datastores) in &groups {
            if datastores.is_empty() {
                return Err(D::Error::custom(format!(
                    "the shard group '{group}' names no datastore: a list of names is expected"
                )));
            }
            for datastore in datastores {
                if let Some(other) = of.insert(datastore, group) {
                    return Err(D::Error::custom(format!(
                        "the datastore '{datastore}' is in shard group '{other}' and again in \
                         '{group}': it can be on one shard"
                    )));
                }
            }
        }
        Ok(ShardGroups(groups))
    }
}

/// How the engine runs, as far as the configuration and the command line say.
pub(super) fn engine_config(config: &Config, waiting: Option<WaitingRule>) -> EngineConfig {
    let default = EngineConfig::default();
    let groups = config.shard_groups.0.iter().map(|(name, datastores)| ShardGroup {
        name: name.to_string(),
        datastores: datastores.iter().map(Name::to_string).collect(),
    });
    let groups: Vec<_> = groups.collect();
    for ShardGroup { name, datastores } in &groups {
        info!(group = name, ?datastores, "a shard group has a thread of its own");
    }
    EngineConfig {
        shards: config.shards.map_or(default.shards, |n| usize::from(n.get())),
        groups,
        waiting: waiting.or(config.waiting).map_or(default.waiting, Into::into),
        pin: config.pin_shards.map_or(default.pin, |pin| if pin { Pin::Yes } else { Pin::No }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn groups_have_a_shard_each_beside_the_common_ones() {
        let config =
            read("shards = 3\n[shard-groups]\nb = [\"b1\"]\na = [\"a1\", \"a2\"]\n").unwrap();
        let engine = engine_config(&config, None);
        assert_eq!(engine.shards, 3);
        let groups: Vec<_> =
            engine.groups.iter().map(|g| (g.name.as_str(), g.datastores.join(" "))).collect();
        assert_eq!(groups, [("a", "a1 a2".into()), ("b", "b1".into())]);
        assert_eq!(engine_config(&Config::default(), None).groups, []);
    }

    #[test]
    fn a_datastore_is_on_one_shard_and_a_group_has_some() {
        for (bad, names) in [
            ("a = [\"x\"]\nb = [\"y\", \"x\"]", ["'x'", "'a' and again in 'b'"]),
            ("a = [\"x\", \"x\"]", ["'x'", "'a' and again in 'a'"]),
            ("a = []", ["'a'", "no datastore"]),
            ("a = [\"no name\"]", ["no name", "line 2"]),
            ("a = \"x\"", ["sequence", "line 2"]),
        ] {
            let error = read(&format!("[shard-groups]\n{bad}\n")).unwrap_err();
            assert!(names.iter().all(|name| error.contains(name)), "{error}");
        }
    }
}
