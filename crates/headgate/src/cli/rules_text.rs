//! The rules of placement as people write them: TOML with units and comments. Numbers without a
//! unit, as the API has them, can be read too.

use headgate_placement::Rules;
use headgate_units::Bytes;
use serde_json::Value;
use std::fmt::Write;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What a number in the rules is, which gives its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Thousandths, written in per cent.
    Part,
    /// Nanoseconds.
    Time,
    /// Bytes.
    Size,
    /// Bytes per second.
    Rate,
    /// Thousandths of requests, written in requests.
    Requests,
    /// A number of things.
    Count,
}

/// A number in the rules.
struct Field {
    path: &'static str,
    kind: Kind,
    comment: &'static str,
}

const fn field(path: &'static str, kind: Kind, comment: &'static str) -> Field {
    Field { path, kind, comment }
}

/// All numbers, those of a table beside each other.
const FIELDS: [Field; 26] = [
    field("constants.outstanding", Kind::Requests, "K1 of the load formula, in requests"),
    field("constants.size", Kind::Size, "K2"),
    field("constants.read", Kind::Part, "K3"),
    field("constants.random", Kind::Part, "K4"),
    field("balance.start", Kind::Part, "nothing moves below this imbalance"),
    field("balance.goal", Kind::Part, "and until then, once begun"),
    field("balance.gain", Kind::Part, "a move may miss the ideal by all but this part"),
    field("balance.latency", Kind::Time, "a datastore with less is not relieved"),
    field("space.full", Kind::Part, "nothing is put where it makes a datastore fuller"),
    field("space.keep", Kind::Size, "unless so much stays free there"),
    field("space.relieve", Kind::Part, "a fuller one gives disks away"),
    field("space.difference", Kind::Part, "to one that is less full by this"),
    field("space.overcommit", Kind::Part, "sizes of all disks, of the capacity; or \"none\""),
    field("copy.rate", Kind::Rate, "how fast a move copies"),
    field("copy.overhead", Kind::Size, "what a move counts besides its bytes"),
    field("copy.payback", Kind::Time, "within which a move must have paid"),
    field("copy.workload.outstanding", Kind::Requests, "what the copy has outstanding"),
    field("copy.workload.size", Kind::Size, "a request of it"),
    field("copy.workload.read", Kind::Part, "reads among them"),
    field("copy.workload.random", Kind::Part, "requests that continue no stream"),
    field("calm.hold", Kind::Time, "a disk that moved stays for so long"),
    field("calm.no_return", Kind::Time, "and does not go back for so long"),
    field("calm.most", Kind::Count, "moves within the window; or \"none\" for no bound"),
    field("calm.window", Kind::Time, "the window of 'most'"),
    field("automatic.at_once", Kind::Count, "so many disks at once"),
    field("automatic.per_datastore", Kind::Count, "of these, from or to one datastore"),
];

/// The words among the rules, in their tables.
const WORDS: [(&str, &str, &str); 2] = [
    ("automatic", "mode", "disks move as advised: \"off\", \"ask\" (it waits), \"on\""),
    ("automatic", "hours", "when, in UTC, such as \"22:00-06:00\"; or \"always\""),
];

/// The fields that can be without a value, which TOML has no word for.
const OPTIONAL: [&str; 2] = ["space.overcommit", "calm.most"];

const NONE: &str = "none";

/// Units of time in nanoseconds. A time is written in the largest that it is a multiple of; days
/// from two on.
const TIMES: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl Kind {
    /// The value as TOML.
    fn write(self, value: u64) -> String {
        match self {
            Kind::Part => format!("\"{}%\"", decimal(value, 1)),
            Kind::Requests => format!("\"{}\"", decimal(value, 3)),
            Kind::Time => {
                let fits = |unit: &&(&str, u64)| {
                    value.is_multiple_of(unit.1) && (unit.0 != "d" || value >= 2 * unit.1)
                };
                let (unit, nanos) = match TIMES.iter().find(fits) {
                    Some(unit) if value > 0 => *unit,
                    _ => ("ns", 1),
                };
                format!("\"{}{unit}\"", value / nanos)
            }
            Kind::Size => format!("\"{}\"", size(value)),
            Kind::Rate => format!("\"{}/s\"", size(value)),
            Kind::Count => value.to_string(),
        }
    }

    fn read(self, text: &str) -> Option<u64> {
        match self {
            Kind::Part => thousandths(text.strip_suffix('%')?.trim_end(), 1),
            Kind::Requests => thousandths(text, 3),
            Kind::Time => {
                let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
                let (_, nanos) = TIMES.iter().find(|(name, _)| *name == unit.trim_start())?;
                number.parse::<u64>().ok()?.checked_mul(*nanos)
            }
            Kind::Size => text.parse().ok().map(|Bytes(size)| size),
            Kind::Rate => Kind::Size.read(text.strip_suffix("/s").unwrap_or(text).trim_end()),
            Kind::Count => text.parse().ok(),
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Kind::Part => "a part such as 10% or 12.5%, or a number of thousandths",
            Kind::Requests => "requests such as \"1.3\", or a number of thousandths",
            Kind::Time => "a time with d, h, min, s, ms, us or ns such as 24h, or nanoseconds",
            Kind::Size => "a size such as 64KiB or 1GiB, or a number of bytes",
            Kind::Rate => "a rate such as 50MiB/s, or a number of bytes per second",
            Kind::Count => "a whole number",
        }
    }
}

/// With so many digits after the point, without the zeros at the end.
fn decimal(value: u64, digits: u32) -> String {
    let scale = 10u64.pow(digits);
    let text = format!("{}.{:0width$}", value / scale, value % scale, width = digits as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn thousandths(text: &str, digits: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digit = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digit(whole) || !digit(fraction) || fraction.len() > digits {
        return None;
    }
    format!("{whole}{fraction:0<digits$}").parse().ok()
}

/// Exact, in the largest binary unit.
fn size(bytes: u64) -> String {
    let units = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];
    let fits = |unit: &&(&str, u32)| bytes > 0 && bytes.is_multiple_of(1 << unit.1);
    let (unit, shift) = units.iter().find(fits).copied().unwrap_or(("B", 0));
    format!("{}{unit}", bytes >> shift)
}

/// The rules, all of them.
pub(super) fn write(rules: &Rules) -> Result<String, serde_json::Error> {
    let all = serde_json::to_value(rules)?;
    let mut out = String::from("# Keys that are left out have their default.\n\n");
    let interference = all["interference"].as_str().unwrap_or_default();
    let _ = writeln!(
        out,
        "interference = \"{interference}\"  # disks break streams; or \"none\": load alone\n"
    );
    for (key, comment) in [
        ("affinity", "Groups of disks that must be on one datastore."),
        ("anti-affinity", "Groups of disks of which no two may be on one device."),
    ] {
        let groups = all[key].as_array().map_or(&[][..], Vec::as_slice);
        let none = if groups.is_empty() { " There are none." } else { "" };
        let _ = writeln!(out, "# [[{key}]]: {comment}{none}\n");
        for group in groups {
            let text = |value: &Value| toml::Value::from(value.as_str().unwrap_or_default());
            let disks = group["disks"].as_array().map_or(&[][..], Vec::as_slice);
            let disks: Vec<String> = disks.iter().map(|disk| text(disk).to_string()).collect();
            let (name, disks) = (text(&group["name"]), disks.join(", "));
            let _ = writeln!(out, "[[{key}]]\nname = {name}\ndisks = [{disks}]\n");
        }
    }
    let mut table = "";
    for Field { path, kind, comment } in &FIELDS {
        let Some((section, key)) = path.rsplit_once('.') else { continue };
        if section != table {
            let blank = if table.is_empty() { "" } else { "\n" };
            let _ = writeln!(out, "{blank}[{section}]");
            table = section;
            for (_, key, comment) in WORDS.iter().filter(|(of, ..)| *of == section) {
                let entry = format!("{key} = {}", all[section][*key]);
                let _ = writeln!(out, "{entry:<24} # {comment}");
            }
            if let Some(why) = all[section]["stopped"]["why"].as_str() {
                let _ = writeln!(out, "# They have stopped: {why}");
            }
        }
        let value = match at(&all, path).and_then(Value::as_u64) {
            Some(value) => kind.write(value),
            None => format!("\"{NONE}\""),
        };
        let entry = format!("{key} = {value}");
        let _ = writeln!(out, "{entry:<24} # {comment}");
    }
    Ok(out)
}

fn at<'a>(all: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(all, |value, key| value.get(key))
}

/// Reads rules. Units become numbers in the text, so that errors name its lines.
pub(super) fn read(text: &str) -> Result<Rules, String> {
    let document = DeTable::parse(text).map_err(|e| e.to_string())?;
    let (mut edits, mut without) = (Vec::new(), Vec::new());
    for Field { path, kind, .. } in &FIELDS {
        let Some(value) = find(document.get_ref(), path) else { continue };
        let DeValue::String(given) = value.get_ref() else { continue };
        let number = match (kind.read(given), OPTIONAL.contains(path) && given == NONE) {
            (_, true) => {
                without.push(*path);
                0
            }
            (Some(number), false) => number,
            (None, false) => {
                let line = text[..value.span().start].matches('\n').count() + 1;
                let expected = kind.expected();
                return Err(format!("line {line}: {path} is '{given}', expected {expected}"));
            }
        };
        edits.push((value.span(), number));
    }
    edits.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut plain = text.to_owned();
    for (span, number) in edits {
        plain.replace_range(span, &number.to_string());
    }
    let mut rules: Rules = toml::from_str(&plain).map_err(|e| e.to_string())?;
    for path in without {
        match path {
            "calm.most" => rules.calm.most = None,
            _ => rules.space.overcommit = None,
        }
    }
    Ok(rules)
}

fn find<'a, 'i>(table: &'a DeTable<'i>, path: &str) -> Option<&'a Spanned<DeValue<'i>>> {
    let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
    let (_, value) = table.iter().find(|(name, _)| name.get_ref().as_ref() == key)?;
    match (rest, value.get_ref()) {
        (None, _) => Some(value),
        (Some(rest), DeValue::Table(inner)) => find(inner, rest),
        (Some(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::{Group, Mode, Permille};

    #[test]
    fn the_default_has_units() {
        let text = write(&Rules::default()).unwrap();
        for line in [
            "rate = \"50MiB/s\"",
            "overhead = \"1GiB\"",
            "payback = \"24h\"",
            "no_return = \"7d\"",
            "start = \"10%\"",
            "latency = \"1ms\"",
            "overcommit = \"none\"",
            "most = 10",
            "outstanding = \"1.3\"",
            "mode = \"off\"",
            "hours = \"always\"",
            "at_once = 1",
        ] {
            assert!(text.lines().any(|one| one.starts_with(line)), "{line}:\n{text}");
        }
        assert_eq!(read(&text), Ok(Rules::default()));
    }

    #[test]
    fn what_is_written_is_read_back_whatever_it_is() {
        let group =
            |name: &str| Group { name: name.into(), disks: vec!["a\"b".into(), "c".into()] };
        for number in [0, 1, 7, 999, 1_000, 1_001, 86_400_000, 4_000_000_000u64] {
            let mut all = serde_json::to_value(Rules::default()).unwrap();
            for Field { path, kind, .. } in &FIELDS {
                let least = *kind == Kind::Rate || path.starts_with("automatic.");
                let value = if least { number.max(1) } else { number };
                let (table, key) = path.rsplit_once('.').unwrap();
                let table = all.pointer_mut(&format!("/{}", table.replace('.', "/"))).unwrap();
                table[key] = value.into();
            }
            let mut rules: Rules = serde_json::from_value(all).unwrap();
            rules.affinity = vec![group("one"), group("two")];
            rules.anti_affinity = vec![group("three")];
            rules.automatic.mode = Mode::Ask;
            rules.automatic.hours = "22:00-06:00".parse().unwrap();
            let text = write(&rules).unwrap();
            assert_eq!(read(&text), Ok(rules), "{text}");
        }
        let mut rules = Rules::default();
        (rules.calm.most, rules.space.overcommit) = (None, Some(Permille(2_005)));
        assert_eq!(read(&write(&rules).unwrap()), Ok(rules));
    }

    /// A rule that is added needs a unit and a comment.
    #[test]
    fn every_number_of_the_rules_is_a_field() {
        fn numbers(path: String, value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                    let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    numbers(inner, value, found);
                }),
                Value::Number(_) | Value::Null => found.push(path),
                _ => {}
            }
        }
        let mut found = Vec::new();
        let all = serde_json::to_value(Rules::default()).unwrap();
        numbers(String::new(), &all, &mut found);
        let mut known: Vec<&str> = FIELDS.iter().map(|field| field.path).collect();
        found.sort();
        known.sort_unstable();
        assert_eq!(found, known);
    }

    #[test]
    fn numbers_without_units_are_read_as_before() {
        let rules =
            read("[copy]\nrate = 52428800\npayback = 86400000000000\n[balance]\nstart = 200");
        let mut expected = Rules::default();
        expected.balance.start = Permille(200);
        assert_eq!(rules, Ok(expected));
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let error = read("[copy]\n\npayback = \"24 hours\"").unwrap_err();
        assert!(error.contains("line 3") && error.contains("such as 24h"), "{error}");
        let error = read("[copy]\nrate = \"50MiB/s\"\npay = 1").unwrap_err();
        assert!(error.contains("line 3") && error.contains("pay"), "{error}");
        for wrong in ["10", "%", "1.25%", "-1%", "x%"] {
            read(&format!("[balance]\nstart = \"{wrong}\"")).unwrap_err();
        }
        for wrong in ["hold = \"none\"", "hold = \"1.5h\"", "hold = \"99999999999d\""] {
            read(&format!("[calm]\n{wrong}")).unwrap_err();
        }
    }
}
