//! Sensitivities of scenario files: their points, and what is said of those that are none.

use headgate_sim::{Origin, Scenario, Sensitivity};

/// A file, with a table of sensitivities from line 19 on.
const FILE: &str = r#"name = "x"
title = "x"
duration = "60s"
windows = { steady = "10s..60s" }
datastore = [{ name = "lun", device = "rate=1000,latency=1ms", queue-depth = 8 }]
vm = [{ name = "VM1", disk = [{}], workload = [{ kind = "closed", outstanding = 32 }] }]
[[variant]]
name = "own"
[[variant]]
name = "deep"
set = { "datastore.lun.queue-depth" = 64 }
[[expect]]
name = "fast"
of = "VM1"
measure = "iops"
window = "steady"
at-least = 900
KEYS
[[sensitivity]]
name = "depth"
set = { "datastore.lun.queue-depth" = "{}" }
values = [4, 8, 16]
expect = "fast"
"#;

/// The file with some texts replaced.
fn parse(changes: &[(&str, &str)]) -> Result<Vec<Sensitivity>, String> {
    let mut text = FILE.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let parsed = Scenario::parse("f.toml", &text.replace("KEYS", ""));
    parsed.map(|scenario| scenario.sensitivities).map_err(|error| error.to_string())
}

fn points(all: &[Sensitivity]) -> Vec<(&str, Origin)> {
    all[0].points.iter().map(|point| (point.value.as_str(), point.origin)).collect()
}

#[test]
fn a_point_is_the_file_with_another_value() {
    let all = parse(&[]).unwrap();
    assert_eq!(points(&all), [("4", Origin::Other), ("8", Origin::File), ("16", Origin::Other)]);
    assert_eq!(
        (all[0].line, &all[0].seeds[..], &all[0].judged[..]),
        (19, &[1, 2, 3][..], &[12][..])
    );
    let depth = |variant: &str, point: usize| {
        all[0].points[point].scenario.variant(variant).unwrap().setup.datastores[0].queue_depth
    };
    assert_eq!([0, 1, 2].map(|point| depth("own", point)), [4, 8, 16]);
    assert_eq!([0, 1, 2].map(|point| depth("deep", point)), [64; 3], "a variant keeps its own");
}

#[test]
fn the_files_own_value_is_tried_where_it_is_none_of_them() {
    let all =
        parse(&[("[4, 8, 16]", "[4, 16]"), ("expect = \"fast\"", "expect = \"fast\"\nseeds = 1")]);
    let all = all.unwrap();
    let expected = [("as it is", Origin::File), ("4", Origin::Other), ("16", Origin::Other)];
    assert_eq!(points(&all), expected);
    assert_eq!(all[0].seeds, [1]);
}

#[test]
fn values_go_into_texts_and_windows() {
    let all = parse(&[(
        "\"datastore.lun.queue-depth\" = \"{}\" }\nvalues = [4, 8, 16]",
        "\"windows.steady\" = \"{}\" }\nvalues = [\"10s..60s\", \"20s..60s\"]",
    )])
    .unwrap();
    assert_eq!(points(&all), [("10s..60s", Origin::File), ("20s..60s", Origin::Other)]);
    let all = parse(&[
        (
            "\"datastore.lun.queue-depth\" = \"{}\"",
            "\"datastore.lun.device\" = \"rate={},latency=1ms\"",
        ),
        ("[4, 8, 16]", "[500, 1000]"),
    ])
    .unwrap();
    assert_eq!(points(&all), [("500", Origin::Other), ("1000", Origin::File)]);
}

#[test]
fn without_names_what_has_a_published_number_is_judged() {
    let all = parse(&[("expect = \"fast\"\n", ""), ("KEYS", "paper = 950")]).unwrap();
    assert_eq!(all[0].judged, [12]);
}

#[test]
fn a_mistake_is_named_with_its_place_and_what_was_expected() {
    let set = "set = { \"datastore.lun.queue-depth\" = \"{}\" }";
    let values = "values = [4, 8, 16]";
    let judged = "expect = \"fast\"\n[[sensitivity]]";
    assert!(!FILE.contains(judged));
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[(values, "values = []")], "f.toml:20:8: 'values' is empty; write at least one value"),
        (
            &[("expect = \"fast\"", "expect = \"fasst\"")],
            "f.toml:23:10: there is no expectation 'fasst', which would have name = 'fasst'; did you \
             mean 'fast'? There is 'fast'",
        ),
        (
            &[("expect = \"fast\"", "expect = []")],
            "f.toml:23:10: a list of names is empty; name one",
        ),
        (
            &[("expect = \"fast\"\n", "")],
            "f.toml:20:8: no expectation has 'paper', so none would be judged; add expect = ['NAME'], \
             and name = 'NAME' to the expectation",
        ),
        (
            &[(set, "set = { \"datastore.lvn.queue-depth\" = \"{}\" }")],
            "f.toml:21:9: 'datastore.lvn.queue-depth' leads nowhere: there is no 'lvn'; did you mean \
             'lun'? There is 'lun' (in sensitivity 'depth' at 4)",
        ),
        (
            &[(set, "set = { \"datastore.lun.depth\" = \"{}\" }")],
            "f.toml:21:9: there is no key 'depth' here; there is ",
        ),
        (
            &[(set, "set = { \"expect.fast.at-least\" = \"{}\" }")],
            "f.toml:21:9: 'expect.fast.at-least' is nothing that a sensitivity varies; begin the path \
             with one of 'datastore', 'duration',",
        ),
        (
            &[(set, "set = { \"windows.stead\" = \"{}\" }")],
            "f.toml:21:9: there is no window 'stead'; did you mean 'steady'?",
        ),
        (
            &[(set, "set = { \"datastore.lun.queue-depth\" = 9 }")],
            "f.toml:21:7: nothing in 'set' takes the value; write {} where it goes",
        ),
        (
            &[(values, "values = [4, 8, 4]")],
            "f.toml:22:17: 4 is the same as a value before it; keep one of them",
        ),
        (
            &[(values, "values = [8]")],
            "f.toml:20:8: its values change nothing in any variant; set a key that the variants",
        ),
        (&[(values, "values = [4, \"many\"]")], "(in sensitivity 'depth' at many)"),
        (
            &[("name = \"depth\"", "name = \"d pth\"")],
            "f.toml:20:8: 'd pth' cannot be the name of a sensitivity",
        ),
        (
            &[(
                "KEYS",
                "[[sensitivity]]\nname = \"depth\"\nset = { \"vm.VM1.workload.outstanding\" = \"{}\" }\n\
                        values = [1]\nexpect = \"fast\"",
            )],
            "f.toml:24:8: the name 'depth' is used twice; give each its own",
        ),
        (&[(values, "value = [4]")], "there is no key 'value' here; did you mean 'values'?"),
        (
            &[
                ("expect = \"fast\"\n", ""),
                (
                    "KEYS",
                    "at-one-point = \"by chance\"\n[[expect]]\n\
               of = \"VM1\"\nmeasure = \"iops\"\nat-least = 1\npaper = 1",
                ),
            ],
            "f.toml:18:16: no [[sensitivity]] judges this expectation, so nobody knows; name it in the \
             'expect' of one, or remove the key",
        ),
        (&[("KEYS", "at-one-point = \"a\"\ndiffers = \"b\"")], "'at-one-point'"),
        (
            &[(
                "KEYS",
                "[[expect]]\nname = \"fast\"\nof = \"VM1\"\nmeasure = \"iops\"\nat-least = 1",
            )],
            "f.toml:19:8: the name 'fast' is used twice",
        ),
    ];
    for (changes, expected) in cases {
        let said = parse(changes).err().unwrap_or_else(|| "nothing".into());
        assert!(said.contains(expected), "{changes:?}\n{said}\n{expected}");
    }
}
