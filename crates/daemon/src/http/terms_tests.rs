use super::super::operations;
use super::super::testing::{Api, Bench, status};
use super::*;
use headgate_api::terms::DryRun;
use headgate_api::types::ErrorBody;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Two datastores, two disks, a class, a tenant and its machine.
fn fill(api: &Api) {
    let array = r#"{"name": "array", "backend": {"emulated": "rate=1600"}, "queue_depth": 8}"#;
    for (method, path, body) in [
        ("POST", "/v1/datastores", array.to_owned()),
        ("POST", "/v1/datastores", array.replace("array", "spare")),
        ("PUT", "/v1/classes/gold", r#"{"policy": {"reservation": 500}}"#.into()),
        ("PUT", "/v1/classes/lead", "{}".into()),
        ("PATCH", "/v1/tenants/red", r#"{"max_disks": 2}"#.into()),
        ("PATCH", "/v1/tenants/blue", "{}".into()),
        ("PATCH", "/v1/vms/web", r#"{"tenant": "red"}"#.into()),
        ("POST", "/v1/disks", disk("a", "gold")),
        ("POST", "/v1/disks", disk("b", "gold")),
    ] {
        let (status, answer) = api.send(method, path, &body);
        assert!((200..300).contains(&status), "{method} {path}: {answer}");
    }
}

fn disk(name: &str, class: &str) -> String {
    let disk = json!({"name": name, "size": 1 << 20, "datastore": "array", "vm": "web",
        "class": class});
    disk.to_string()
}

/// Of each change that has a dry run, some that would be made: what is told of them.
const MADE: [(&str, &str, &str, &str); 21] = [
    ("PATCH", "/v1/datastores/array", r#"{"queue_depth": 9}"#, "queue_depth 8 -> 9"),
    ("PATCH", "/v1/datastores/array", r#"{"queue_depth": 8}"#, ""),
    ("DELETE", "/v1/datastores/spare", "", "Remove datastore spare"),
    ("PUT", "/v1/rules", r#"{"balance": {"start": 222}}"#, "balance.start 100 -> 222"),
    ("PATCH", "/v1/rules", r#"{"mode": "ask"}"#, r#"automatic.mode "off" -> "ask""#),
    (
        "POST",
        "/v1/disks",
        r#"{"name": "c", "size": 8192, "datastore": "spare", "policy": {"shares": 7}}"#,
        "Create disk c",
    ),
    ("POST", "/v1/disks", r#"{"name": "c", "size": 8192}"#, "Create disk c"),
    ("PATCH", "/v1/disks/a", r#"{"limit": 900}"#, "policy.limit null -> 900"),
    ("PATCH", "/v1/disks/a", r#"{"read_only": true}"#, "read_only false -> true"),
    ("DELETE", "/v1/disks/a", "", "Remove disk a"),
    ("DELETE", "/v1/disks/a?image=keep", "", "Remove disk a"),
    ("DELETE", "/v1/disks/a?force=yes&image=purge", "", "Remove disk a"),
    ("POST", "/v1/disks/a/resize", r#"{"size": 2097152}"#, "size 1048576 -> 2097152"),
    (
        "POST",
        "/v1/disks/a/resize",
        r#"{"size": 8192, "shrink": "unless-data"}"#,
        "size 1048576 -> 8192",
    ),
    ("POST", "/v1/disks/a/migrate", r#"{"to": "spare"}"#, r#"datastore "array" -> "spare""#),
    (
        "PUT",
        "/v1/classes/gold",
        r#"{"policy": {"reservation": 700}}"#,
        "Change disk a by gold: policy.reservation 500 -> 700",
    ),
    ("DELETE", "/v1/classes/gold?force=yes", "", "Remove class gold"),
    ("PATCH", "/v1/vms/web", r#"{"max_priority": 9}"#, "max_priority 254 -> 9"),
    ("DELETE", "/v1/vms/web", "", r#"tenant "red" -> null"#),
    ("PATCH", "/v1/tenants/new", r#"{"limit": 700}"#, "Create tenant new"),
    ("DELETE", "/v1/tenants/blue", "", "Remove tenant blue"),
];

/// Changes that are refused, and words of why.
const REFUSED: [(&str, &str, &str, &str); 22] = [
    ("PATCH", "/v1/datastores/array", r#"{"queue_depth": 0}"#, "out of range"),
    ("PATCH", "/v1/datastores/none", r#"{"queue_depth": 9}"#, "no datastore 'none'"),
    ("DELETE", "/v1/datastores/array", "", "disk"),
    (
        "PUT",
        "/v1/rules",
        r#"{"affinity": [{"name": "x", "disks": ["a", "b"]}],
            "anti-affinity": [{"name": "y", "disks": ["a", "b"]}]}"#,
        "",
    ),
    ("POST", "/v1/disks", r#"{"name": "a", "size": 4096, "datastore": "array"}"#, "exists"),
    ("POST", "/v1/disks", r#"{"name": "c", "size": 4097, "datastore": "array"}"#, "4097"),
    (
        "POST",
        "/v1/disks",
        r#"{"name": "c", "size": 4096, "datastore": "array", "policy": {"reservation": 601}}"#,
        "601",
    ),
    (
        "POST",
        "/v1/disks",
        r#"{"name": "c", "size": 1152921504606846976, "datastore": "array"}"#,
        "",
    ),
    (
        "POST",
        "/v1/disks",
        r#"{"name": "c", "size": 4096, "datastore": "array", "vm": "web"}"#,
        "may have 2",
    ),
    (
        "POST",
        "/v1/disks",
        r#"{"name": "left", "size": 4096, "datastore": "default"}"#,
        "File exists",
    ),
    ("PATCH", "/v1/disks/a", r#"{"reservation": 1600}"#, "fit"),
    ("PATCH", "/v1/disks/a", r#"{"limit": 5}"#, "reservation"),
    ("DELETE", "/v1/disks/none", "", "no disk 'none'"),
    ("POST", "/v1/disks/a/resize", r#"{"size": 4096}"#, "less than"),
    ("POST", "/v1/disks/a/resize", r#"{"size": 1152921504606846976}"#, ""),
    ("POST", "/v1/disks/a/migrate", r#"{"to": "array"}"#, "array"),
    ("PUT", "/v1/classes/gold", r#"{"policy": {"reservation": 801}}"#, "2 too many"),
    ("DELETE", "/v1/classes/gold", "", "disk"),
    ("PATCH", "/v1/vms/web", r#"{"tenant": "nobody"}"#, "no tenant 'nobody'"),
    ("DELETE", "/v1/vms/none", "", "no virtual machine"),
    ("PATCH", "/v1/tenants/red", r#"{"reservation": 1700}"#, "too many"),
    ("DELETE", "/v1/tenants/red", "", "belong"),
];

fn dry(path: &str) -> String {
    format!("{path}{}dry_run=true", if path.contains('?') { '&' } else { '?' })
}

/// What a dry run tells, in words.
fn words(answer: &str) -> String {
    let run: DryRun = serde_json::from_str(answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
    let one = |thing: headgate_api::apply::ThingChange| {
        let fields = thing.fields.iter();
        let fields = fields.map(|one| format!("{} {} -> {}", one.field, one.from, one.to));
        let fields = fields.collect::<Vec<_>>().join(", ");
        let by = thing.by_class.map(|by| format!(" by {by}")).unwrap_or_default();
        format!("{:?} {} {}{by}: {fields}", thing.act, thing.kind, thing.name)
    };
    run.changes.into_iter().map(one).collect::<Vec<_>>().join("; ")
}

/// All files of a state directory but the history, which is written meanwhile, with what is in
/// them.
fn files(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    fn walk(at: &Path, root: &Path, all: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
        for entry in std::fs::read_dir(at).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path.strip_prefix(root).unwrap().to_owned();
            if name.to_string_lossy().starts_with("samples") {
                continue;
            }
            let content = kind.is_file().then(|| std::fs::read(&path).unwrap());
            all.insert(name, content);
            if kind.is_dir() {
                walk(&path, root, all);
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(root, root, &mut all);
    all
}

/// Every change that there is, dry: those of the table tell what would be, the others that there is
/// no dry run of them. The catalog, the events and all files are byte for byte as they were, and so
/// is what the API says of all things.
#[test]
fn a_dry_run_of_every_change_changes_nothing() {
    let bench = Bench::new();
    bench.serve_to(super::super::ApiGroups::default(), |api, socket| {
        fill(api);
        let log = bench.app().control;
        assert!(log.events().settle(log.events().last(), Duration::from_secs(20)));
        let things = || -> Vec<String> {
            let lists = ["disks", "datastores", "classes", "tenants", "vms", "rules", "removed"];
            let mut lists: Vec<String> =
                lists.iter().map(|list| api.send("GET", &format!("/v1/{list}"), "").1).collect();
            // What a file system has is looked at again, which changes nothing.
            let mut stores: Vec<serde_json::Value> = serde_json::from_str(&lists[1]).unwrap();
            for store in &mut stores {
                store.as_object_mut().unwrap().remove("file_system");
            }
            lists[1] = serde_json::to_string(&stores).unwrap();
            lists.push(api.send("GET", "/v1/moves", "").1);
            lists
        };
        let root = socket.parent().unwrap();
        let (said, kept, last) = (things(), files(root), log.events().last());
        let same = |what: &str| {
            let now = files(root);
            let names = |all: &BTreeMap<PathBuf, _>| all.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(names(&now), names(&kept), "{what}");
            for (name, content) in &now {
                assert!(*content == kept[name], "{what}: {} is another", name.display());
            }
            assert_eq!(things(), said, "{what}");
            assert_eq!(log.events().last(), last, "{what}");
        };
        let mut tried = BTreeSet::new();
        for (method, path, body, told) in MADE {
            let (status, answer) = api.send(method, &dry(path), body);
            assert_eq!(status, 200, "{method} {path} {body}: {answer}");
            let words = words(&answer);
            let fits = if told.is_empty() { words.is_empty() } else { words.contains(told) };
            assert!(fits, "{method} {path} {body}: {words}");
            same(&format!("{method} {path} {body}"));
            let path = path.parse().unwrap();
            let one = Operation::of(&method.parse().unwrap(), &path).unwrap();
            tried.insert((one.method, one.path));
        }
        let documents = r#"{"set": "site", "classes": [{"name": "iron", "class": {}}]}"#;
        let (status, answer) = api.send("POST", "/v1/apply?dry_run=true", documents);
        assert!(status == 200 && answer.contains(r#""changed":false"#), "{answer}");
        same("apply");
        tried.insert(("POST", "/v1/apply"));
        assert_eq!(tried, DRY.iter().copied().collect::<BTreeSet<_>>());
        for one in operations::ALL.iter().filter(|one| one.method != "GET" && !has_dry_run(one)) {
            let path = dry(&one.path.replace("{name}", "a"));
            let (status, answer) = api.send(one.method, &path, "{}");
            assert_eq!(status, 422, "{path}: {answer}");
            assert!(answer.contains("there is no dry run of"), "{path}: {answer}");
            same(&path);
        }
        for wrong in ["dry_run", "dry_run=", "dry_run=yes", "dry_run=false&dry_run=true"] {
            let path = format!("/v1/disks/a?{wrong}");
            let (status, answer) = api.send("PATCH", &path, r#"{"shares": 5}"#);
            assert!(status == 400 && answer.contains("dry run"), "{wrong}: {answer}");
        }
    });
}

#[test]
fn a_dry_run_is_refused_in_the_words_of_the_change() {
    let bench = Bench::new();
    bench.serve_to(super::super::ApiGroups::default(), |api, socket| {
        fill(api);
        // An image that nobody knows.
        std::fs::write(socket.with_file_name("default").join("left.img"), "x").unwrap();
        for (method, path, body, words) in REFUSED {
            let (tried, dry_answer) = api.send(method, &dry(path), body);
            let (status, answer) = api.send(method, path, body);
            assert!(status >= 400, "{path} {body}: {answer}");
            assert_eq!((tried, &dry_answer), (status, &answer), "{method} {path} {body}");
            let error: ErrorBody = serde_json::from_str(&answer).unwrap();
            assert!(error.error.contains(words), "{method} {path} {body}: {answer}");
        }
    });
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next().unwrap();
    let is_it = |line: &&str| line.to_ascii_lowercase().starts_with(&format!("{name}:"));
    head.lines().find(is_it).map(|line| line[name.len() + 1..].trim())
}

const TAGGED: [&str; 6] = [
    "/v1/disks/a",
    "/v1/classes/gold",
    "/v1/tenants/red",
    "/v1/vms/web",
    "/v1/datastores/array",
    "/v1/rules",
];

#[test]
fn whoever_reads_gets_a_tag_and_hears_whether_it_holds() {
    let bench = Bench::new();
    bench.serve(|api| {
        fill(api);
        for path in TAGGED {
            let first = api.send_with("GET", path, "", "");
            let tag = header(&first, "etag").unwrap().to_owned();
            assert!(tag.len() == 34 && tag.starts_with('"'), "{path}: {tag}");
            let known = |with: &str| {
                let header = format!("If-None-Match: {with}\r\n");
                let answer = api.send_with("GET", path, &header, "");
                (status(&answer), answer.ends_with("\r\n\r\n"))
            };
            assert_eq!(known(&tag), (304, true), "{path}");
            assert_eq!(known(&format!("\"other\", W/\"x\",{tag}")), (304, true), "{path}");
            assert_eq!(known("*"), (304, true), "{path}");
            assert_eq!(known("\"other\""), (200, false), "{path}");
            assert_eq!(known(&format!("W/{tag}")), (200, false), "{path}");
            assert_eq!(known("other"), (400, false), "{path}");
        }
        for path in ["/v1/disks", "/v1/disks/none", "/v1/disks/a/attachment", "/healthz"] {
            assert_eq!(header(&api.send_with("GET", path, "", ""), "etag"), None, "{path}");
        }
    });
}

#[test]
fn a_change_by_an_old_tag_is_refused_with_what_has_changed() {
    let bench = Bench::new();
    bench.serve(|api| {
        fill(api);
        let first = api.send_with("GET", "/v1/classes/gold", "", "");
        let tag = header(&first, "etag").unwrap().to_owned();
        let set = |with: &str, reservation: u32, query: &str| {
            let body = json!({"policy": {"reservation": reservation}}).to_string();
            let path = format!("/v1/classes/gold{query}");
            let answer = api.send_with("PUT", &path, with, &body);
            (status(&answer), answer.split("\r\n\r\n").nth(1).unwrap().to_owned())
        };
        let matching = format!("If-Match: {tag}\r\n");
        assert_eq!(set(&matching, 400, "?dry_run=true").0, 200);
        assert_eq!(set(&matching, 400, "").0, 200);
        for query in ["", "?dry_run=true"] {
            let (status, answer) = set(&matching, 300, query);
            assert_eq!(status, 412, "{answer}");
            let error: ErrorBody = serde_json::from_str(&answer).unwrap();
            assert!(error.error.ends_with("policy.reservation 500 -> 400"), "{}", error.error);
        }
        assert_eq!(set("If-Match: \"other\"\r\n", 300, "").0, 412);
        assert_eq!(set(&format!("If-Match: W/{tag}\r\n"), 300, "").0, 412);
        assert_eq!(set("If-Match: other\r\n", 300, "").0, 400);
        assert_eq!(set("If-None-Match: *\r\n", 300, "").0, 412);
        assert_eq!(set(&format!("If-None-Match: {tag}\r\n"), 300, "").0, 400);
        assert_eq!(set(&format!("If-None-Match: *\r\n{matching}"), 300, "").0, 400);
        assert_eq!(set("If-Match: *\r\n", 300, "").0, 200);
        // What has no tag cannot be changed by one.
        for (method, path) in [("POST", "/v1/disks"), ("POST", "/v1/disks/a/resize")] {
            let answer = api.send_with(method, path, &matching, "{}");
            assert!(status(&answer) == 400 && answer.contains("has a tag"), "{answer}");
        }
        assert_eq!(status(&api.send_with("GET", "/v1/disks/a", &matching, "")), 400);
    });
}
