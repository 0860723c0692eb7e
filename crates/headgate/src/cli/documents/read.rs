//! Reads documents. Every error says in which file and line, what was wrong, and what was expected.

use super::amounts::BANDWIDTHS;
use super::nodes::{At, Fields, Node, RATE, Read};
use super::stores;
use crate::cli::error::CliError;
use headgate_api::apply::{Apply, Prune, WantedClass, WantedDisk, WantedTenant, WantedVm};
use headgate_api::classes::ClassPut;
use headgate_api::types::Force;
use headgate_model::{GroupPolicy, Name, PolicyField, PolicyPart, Quota};
use headgate_units::{Bytes, BytesPerSec, Iops, LatencyTarget, Shares};
use saphyr::YamlLoader;
use saphyr_parser::Parser;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// How a file's name ends that is read from a directory.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads files, and all documents in directories, in order of their names. `-` is standard input.
pub(in crate::cli) fn read_all(set: Name, paths: &[PathBuf]) -> Read<Apply> {
    let mut all = Apply {
        set,
        classes: Vec::new(),
        tenants: Vec::new(),
        vms: Vec::new(),
        datastores: Vec::new(),
        disks: Vec::new(),
        prune: Prune::Nothing,
        dry_run: false,
        force: Force::No,
    };
    for path in paths {
        for (file, text) in texts(path)? {
            read_text(&file, &text, &mut all)?;
        }
    }
    check_twice("class", all.classes.iter().map(|one| (&one.name, &one.at)))?;
    check_twice("tenant", all.tenants.iter().map(|one| (&one.name, &one.at)))?;
    check_twice("vm", all.vms.iter().map(|one| (&one.name, &one.at)))?;
    check_twice("datastore", all.datastores.iter().map(|one| (&one.name, &one.at)))?;
    check_twice("disk", all.disks.iter().map(|one| (&one.name, &one.at)))?;
    Ok(all)
}

fn texts(path: &Path) -> Read<Vec<(String, String)>> {
    let failed = |source| CliError::File { file: path.to_owned(), doing: "read", source };
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(vec![("<stdin>".into(), text)]);
    }
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(failed)?;
        files = entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>().map_err(failed)?;
        files.retain(|file| {
            file.extension().is_some_and(|ending| ENDINGS.iter().any(|one| ending == *one))
        });
        files.sort();
        if files.is_empty() {
            return Err(CliError::Document {
                error: format!("{}: there is no document in it", path.display()),
                expected: "files that end in .yaml, .yml or .json".into(),
            });
        }
    }
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file);
        let text =
            text.map_err(|source| CliError::File { file: file.clone(), doing: "read", source })?;
        Ok((file.display().to_string(), text))
    };
    files.into_iter().map(read).collect()
}

fn check_twice<'a>(
    kind: &str,
    all: impl Iterator<Item = (&'a Name, &'a Option<String>)>,
) -> Read<()> {
    let mut seen: BTreeMap<&Name, &str> = BTreeMap::new();
    for (name, at) in all {
        let at = at.as_deref().unwrap_or_default();
        if let Some(first) = seen.insert(name, at) {
            return Err(CliError::Document {
                error: format!("{at}: {kind} '{name}' is there twice, first in {first}"),
                expected: "each once".into(),
            });
        }
    }
    Ok(())
}

fn read_text(file: &str, text: &str, all: &mut Apply) -> Read<()> {
    let mut loader: YamlLoader<'_, Node> = YamlLoader::default();
    loader.early_parse(false);
    let mut parser = Parser::new_from_str(text);
    let loaded = parser.load(&mut loader, true);
    if let Some(e) = loaded.err().or_else(|| loader.error().cloned()) {
        return Err(CliError::Document {
            error: format!("{file}:{}: {}", e.marker().line(), e.info()),
            expected: "YAML".into(),
        });
    }
    for node in &loader.into_documents() {
        let at = At { file, node };
        if at.is_null() {
            continue;
        }
        let mut fields = at.fields("a document")?;
        let mut list = |name| fields.take(name).map_or(Ok(Vec::new()), |at| at.list(name));
        let (classes, stores, disks) = (list("classes")?, list("datastores")?, list("disks")?);
        let (tenants, vms) = (list("tenants")?, list("vms")?);
        fields.end("a document")?;
        for at in classes {
            all.classes.push(class(at)?);
        }
        for at in tenants {
            all.tenants.push(tenant(at)?);
        }
        for at in vms {
            all.vms.push(vm(at)?);
        }
        for at in stores {
            all.datastores.push(stores::read(at)?);
        }
        for at in disks {
            all.disks.push(disk(at)?);
        }
    }
    Ok(())
}

fn class(at: At<'_>) -> Read<WantedClass> {
    let mut fields = at.fields("a class")?;
    let (name, of) = fields.name("class")?;
    let class = ClassPut {
        policy: policy(&mut fields, &of)?,
        reservation_per_gb: fields.may::<Iops>("reservation_per_gb", &of, RATE)?,
        limit_per_gb: fields.may::<Iops>("limit_per_gb", &of, RATE)?,
        datastore_class: fields.may("datastore_class", &of, "the name of a class of datastores")?,
        force: Force::No,
    };
    fields.end(&of)?;
    Ok(WantedClass { at: Some(at.line()), name, class })
}

/// What a tenant or virtual machine is promised.
fn group(fields: &mut Fields<'_>, of: &str) -> Read<GroupPolicy> {
    Ok(GroupPolicy {
        reservation: fields.may("reservation", of, RATE)?,
        limit: fields.may("limit", of, RATE)?,
        shares: fields.may("shares", of, "a whole number, 1 to 1000000")?,
    })
}

fn tenant(at: At<'_>) -> Read<WantedTenant> {
    let mut fields = at.fields("a tenant")?;
    let (name, of) = fields.name("tenant")?;
    let policy = group(&mut fields, &of)?;
    let quota = Quota {
        max_disks: fields.may("max_disks", &of, "a whole number")?,
        max_space: fields.may("max_space", &of, "a size in bytes, such as 10G")?,
        max_reserved: fields.may("max_reserved", &of, RATE)?,
    };
    fields.end(&of)?;
    Ok(WantedTenant { at: Some(at.line()), name, policy, quota })
}

fn vm(at: At<'_>) -> Read<WantedVm> {
    let mut fields = at.fields("a virtual machine")?;
    let (name, of) = fields.name("vm")?;
    let tenant = fields.may("tenant", &of, "the name of a tenant")?;
    let policy = group(&mut fields, &of)?;
    fields.end(&of)?;
    Ok(WantedVm { at: Some(at.line()), name, tenant, policy })
}

fn disk(at: At<'_>) -> Read<WantedDisk> {
    let mut fields = at.fields("a disk")?;
    let (name, of) = fields.name("disk")?;
    let wanted = WantedDisk {
        at: Some(at.line()),
        name,
        datastore: fields.must("datastore", &of, "the name of a datastore")?,
        size: fields.must::<Bytes>("size", &of, "a size in bytes, such as 10G")?,
        vm: fields.may("vm", &of, "the name of a virtual machine")?,
        class: fields.may("class", &of, "the name of a class")?,
        policy: policy(&mut fields, &of)?,
    };
    fields.end(&of)?;
    Ok(wanted)
}

fn policy(fields: &mut Fields<'_>, of: &str) -> Read<PolicyPart> {
    let Some(at) = fields.take("policy").filter(|at| !at.is_null()) else {
        return Ok(PolicyPart::default());
    };
    let mut inner = at.fields(&format!("the policy of {of}"))?;
    let mut part = PolicyPart::default();
    for field in PolicyField::all() {
        let name = field.as_str();
        if let Some(at) = inner.take(name) {
            let value = policy_value(name, at, of)?;
            let one: PolicyPart = serde_json::from_value(json!({ name: value })).or_else(|e| {
                at.wrong(format!("{name} of {of}: {e}"), "see 'headgate disk set --help'")
            })?;
            part = one.over(&part);
        }
    }
    inner.end(&format!("the policy of {of}"))?;
    Ok(part)
}

/// A value of a policy as the API has it.
fn policy_value(name: &str, at: At<'_>, of: &str) -> Read<Value> {
    let what = format!("{name} of {of}");
    let text = at.text(&what)?;
    if at.is_null() || text == "none" {
        return Ok(Value::Null);
    }
    Ok(match name {
        "reservation" | "limit" | "limit_read" | "limit_write" | "limit_peak" => {
            at.value::<Iops>(&what, RATE)?.get().into()
        }
        name if BANDWIDTHS.contains(&name) => {
            at.value::<BytesPerSec>(&what, "bytes per second, such as 50M")?.get().into()
        }
        "shares" => at.value::<Shares>(&what, "a whole number, 1 to 1000000")?.get().into(),
        "limit_peak_time" => at.value::<u16>(&what, "whole seconds, 1 to 3600")?.into(),
        "burst" => at.value::<u16>(&what, "a whole number of IOs, 0 to 256")?.into(),
        "latency_target" => {
            at.value::<LatencyTarget>(&what, "such as p99=5ms")?;
            text.into()
        }
        _ => text.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Read<Apply> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("site.yaml");
        fs::write(&file, text).unwrap();
        read_all("site".parse().unwrap(), &[file])
    }

    const SITE: &str = "\
classes:
  - name: gold
    policy:
      limit: 3000
      limit_bandwidth: 200M
      latency_target: p99=5ms
      werror: stop
    reservation_per_gb: 3
    datastore_class: ssd
---
disks:
  - name: db0
    datastore: fast
    size: 10G
    vm: db
    class: gold
    policy: {limit: none, shares: '2000'}
  - {name: \"no\", datastore: fast, size: 4096}
datastores:
  - name: fast
    capacity: 5000
tenants:
  - {name: red, reservation: 500, shares: 2000, max_space: 2T}
vms:
  - {name: db, tenant: red, limit: 700}
";

    #[test]
    fn documents_are_read_with_their_lines() {
        let all = read(SITE).unwrap();
        let class = &all.classes[0];
        assert!(class.at.as_ref().unwrap().ends_with("site.yaml:2"), "{class:?}");
        assert_eq!(
            serde_json::to_value(&class.class).unwrap(),
            json!({
                "policy": {"limit": 3000, "limit_bandwidth": 209_715_200, "latency_target": "p99=5ms", "werror": "stop"},
                "reservation_per_gb": 3, "datastore_class": "ssd", "force": "no",
            })
        );
        let disk = &all.disks[0];
        assert!(disk.at.as_ref().unwrap().ends_with("site.yaml:12"), "{disk:?}");
        assert_eq!((disk.size, disk.class.as_ref().unwrap().as_str()), (Bytes(10 << 30), "gold"));
        assert_eq!(
            serde_json::to_value(disk.policy).unwrap(),
            json!({"limit": null, "shares": 2000})
        );
        assert_eq!(
            (all.disks[1].name.as_str(), all.disks[1].policy),
            ("no", PolicyPart::default())
        );
        assert_eq!(all.datastores[0].capacity, Iops::new(5000).ok());
        let red = json!({"name": "red", "policy": {"reservation": 500, "shares": 2000},
            "quota": {"max_space": 2_199_023_255_552_u64}});
        let db = json!({"name": "db", "tenant": "red", "policy": {"limit": 700}});
        let without_line = |value: Value| {
            let Value::Object(mut map) = value else { panic!("{value}") };
            assert!(map.remove("at").unwrap().as_str().unwrap().contains("site.yaml:"));
            Value::from(map)
        };
        assert_eq!(without_line(serde_json::to_value(&all.tenants[0]).unwrap()), red);
        assert_eq!(without_line(serde_json::to_value(&all.vms[0]).unwrap()), db);
    }

    /// What is wrong, the line, and what the error says of it and of what was expected.
    #[test]
    fn every_error_says_where_what_and_what_was_expected() {
        for (wrong, right, line, words, expected) in [
            ("limitt: 3000", "limit: 3000", 4, "no field 'limitt'", "limit_bandwidth"),
            ("limit: 3000 IOPS", "limit: 3000", 4, "'3000 IOPS' is not a rate", "without a unit"),
            ("limit: 0", "limit: 3000", 4, "limit of class 'gold'", "a rate in IOPS"),
            ("limit_bandwidth: 200 kb", "limit_bandwidth: 200M", 5, "200 kb", "such as 50M"),
            ("latency_target: 5ms", "latency_target: p99=5ms", 6, "5ms", "p99=5ms"),
            ("werror: halt", "werror: stop", 7, "halt", "disk set --help"),
            ("reservation_per_gb: 3.5", "reservation_per_gb: 3", 8, "3.5", "a rate in IOPS"),
            ("size: 10X", "size: 10G", 14, "size of disk 'db0'", "such as 10G"),
            ("sizes: 10G", "size: 10G", 12, "disk 'db0' has no size", "such as 10G"),
            ("vm: [a, b]", "vm: db", 15, "is a list", "one value"),
            ("vm: a b", "vm: db", 15, "vm of disk 'db0'", "a virtual machine"),
            ("disk:", "disks:", 11, "a document has no field 'disk'", "classes, datastores, disks"),
            ("policy: 5", "policy: {limit: none, shares: '2000'}", 17, "has no fields", "fields"),
            ("size: 10G\n    size: 11G", "size: 10G", 15, "duplicated key", "YAML"),
            ("shares: 20000000}", "shares: '2000'}", 17, "20000000", "1 to 1000000"),
            (
                "- {name: db0,",
                "- {name: \"no\",",
                18,
                "disk 'db0' is there twice, first in ",
                "once",
            ),
            ("- {nam: x,", "- {name: \"no\",", 18, "a disk has no name", "a name"),
        ] {
            let text = SITE.replacen(right, wrong, 1);
            assert_ne!(text, SITE, "{wrong}");
            let body = read(&text).unwrap_err().body();
            let at = format!("site.yaml:{line}: ");
            assert!(body.error.contains(&at) && body.error.contains(words), "{wrong}: {body:?}");
            assert!(body.expected.as_ref().unwrap().contains(expected), "{wrong}: {body:?}");
        }
    }

    #[test]
    fn what_is_empty_says_nothing() {
        for text in ["", "---\n", "disks:\nclasses: []\n", "# nothing\n"] {
            let all = read(text).unwrap();
            assert!(all.disks.is_empty() && all.classes.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn a_directory_is_read_in_order_and_one_name_is_once_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let set = || "site".parse().unwrap();
        let empty = read_all(set(), &[dir.path().to_owned()]).unwrap_err().body();
        assert!(empty.error.contains("no document"), "{empty:?}");
        let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        file("b.json", r#"{"classes": [{"name": "gold"}]}"#);
        file("a.yml", "classes: [{name: iron}]");
        file("notes.txt", "{{{");
        let all = read_all(set(), &[dir.path().to_owned()]).unwrap();
        let names: Vec<&str> = all.classes.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["iron", "gold"]);
        file("c.yaml", "# again\nclasses: [{name: iron}]");
        let twice = read_all(set(), &[dir.path().to_owned()]).unwrap_err().body().error;
        assert!(twice.contains("c.yaml:2") && twice.contains("a.yml:1"), "{twice}");
    }
}
