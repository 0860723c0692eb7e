//! Expectations that hold one thing against another: differences, orders, shares, the way that a
//! series takes.

use headgate_sim::{Finding, Judgement, Quiet, Scenario, judge, run};

/// Three VMs on a device of 1,000 IOPS: with weights 1, 3 and 6, with equal ones, and each alone.
/// The third begins late.
const SCENARIO: &str = r#"
    name = "x"
    title = "Three"
    duration = "30s"
    interval = "500ms"
    [windows]
    steady = "10s..30s"
    early = "1s..4s"
    [[datastore]]
    name = "lun"
    device = "rate=1000,latency=1ms"
    cost-model = "unit"
    queue-depth = 4
    [[vm]]
    name = "a"
    disk = [{ shares = 1000 }]
    workload = [{ kind = "closed", outstanding = 16 }]
    [[vm]]
    name = "b"
    disk = [{ shares = 3000 }]
    workload = [{ kind = "closed", outstanding = 16 }]
    [[vm]]
    name = "c"
    disk = [{ shares = 6000 }]
    workload = [{ kind = "closed", outstanding = 16, delay = "5s" }]
    [[variant]]
    name = "weighted"
    [[variant]]
    name = "equal"
    set = { "vm.*.disk.shares" = 1000 }
    [[variant]]
    name = "first-come"
    set = { "datastore.lun.scheduler" = "fifo" }
    [[variant]]
    name = "only-a"
    set = { "vm.b.start" = "never", "vm.c.start" = "never" }
    [[variant]]
    name = "only-b"
    set = { "vm.a.start" = "never", "vm.c.start" = "never" }
    [[variant]]
    name = "only-c"
    set = { "vm.a.start" = "never", "vm.b.start" = "never" }
"#;

fn parse(expectations: &str) -> Result<Scenario, String> {
    Scenario::parse("x.toml", &format!("{SCENARIO}{expectations}"))
        .map_err(|error| error.to_string())
}

fn findings(expectations: &str) -> Vec<Finding> {
    let scenario = parse(expectations).unwrap_or_else(|error| panic!("{error}"));
    let runs: Vec<_> = scenario
        .variants
        .iter()
        .map(|variant| run(&scenario, &variant.name, 1, &mut Quiet).unwrap())
        .collect();
    judge(&scenario, &runs)
}

/// Its values, of expectations that hold.
fn holding(expectations: &str) -> Vec<f64> {
    let findings = findings(expectations);
    for finding in &findings {
        assert_eq!(finding.judgement, Judgement::Holds, "{finding}");
    }
    findings.iter().map(|finding| finding.ours().unwrap()).collect()
}

#[test]
fn a_delayed_workload_begins_so_long_after_its_vm() {
    let values = holding(
        r#"
        [[expect]]
        variant = "weighted"
        measure = "iops"
        of = "c"
        window = "early"
        at-most = 0
        [[expect]]
        variant = "weighted"
        measure = "iops"
        of = "c"
        window = "steady"
        equals = 600
        within = "2%"
        "#,
    );
    assert_eq!(values[0], 0.0);
}

#[test]
fn differences_are_against_the_variant_of_each() {
    // Alone each has 1,000; beside the others 100, 300, 600.
    let values = holding(
        r#"
        [[expect]]
        variant = "weighted"
        measure = "iops"
        each = ["a", "b", "c"]
        window = "steady"
        less = { variant = "only-{}" }
        at-most = -390
        "#,
    );
    for (value, expected) in values.iter().zip([-900.0, -700.0, -400.0]) {
        assert!((value - expected).abs() < 15.0, "{values:?}");
    }
}

#[test]
fn orders_are_compared() {
    let ranked = |with: &str, equals: &str| {
        holding(&format!(
            "[[expect]]\nvariant = \"weighted\"\nmeasure = \"iops\"\neach = [\"a\", \"b\", \"c\"]\nwindow = \"steady\"\n\
             rank-with = {with}\nequals = {equals}\nslack = 0.001\n"
        ))
    };
    assert_eq!(ranked(r#"{ measure = "bandwidth" }"#, "1").len(), 1);
    ranked(r#"{ measure = "latency" }"#, "-1");
    // What each lost is most for a.
    ranked(r#"{ measure = "iops", less = { variant = "only-{}" } }"#, "1");
    let said = findings(
        "[[expect]]\nvariant = \"weighted\"\nmeasure = \"iops\"\neach = [\"a\", \"b\", \"c\"]\nwindow = \"steady\"\n\
         rank-with = { measure = \"latency\" }\nat-least = 1\n",
    );
    assert_eq!(said[0].judgement, Judgement::Fails, "the opposite order is no success");
    assert!(
        said[0].what.starts_with("rank correlation of iops of a + b + c in steady with latency")
    );
}

#[test]
fn shares_are_held_against_what_was_got() {
    // Equal parts of 1/3: a has 3.33 times its tenth; 0.233 + 0.033 + 0.267 away.
    let values = holding(
        r#"
        [[expect]]
        variant = "weighted"
        measure = "share-error"
        of = ["a", "b", "c"]
        window = "steady"
        at-most = 0.03
        [[expect]]
        variant = "first-come"
        measure = "share-error"
        of = ["a", "b", "c"]
        window = "steady"
        equals = 2.333
        within = "3%"
        [[expect]]
        variant = "first-come"
        measure = "share-distance"
        of = ["a", "b", "c"]
        window = "steady"
        equals = 0.5333
        within = "3%"
        [[expect]]
        variant = "equal"
        measure = "share-error"
        of = ["a", "b", "c"]
        window = "steady"
        at-most = 0.03
        "#,
    );
    assert_eq!(values.len(), 4);
}

#[test]
fn a_way_back_is_seen() {
    // From 250 of a's before c comes down to 100: over the whole run it goes down only, but for
    // chance.
    let values = holding(
        r#"
        [[expect]]
        variant = "weighted"
        measure = "iops"
        of = "a"
        reversal = "1s"
        at-most = 60
        [[expect]]
        variant = "weighted"
        measure = "outstanding"
        of = "lun"
        reversal = "1s"
        at-most = 40
        "#,
    );
    assert!(values[0] < 30.0, "{values:?}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let said = |keys: &str| {
        let text = format!("[[expect]]\nmeasure = \"iops\"\nat-least = 1\n{keys}");
        parse(&text).expect_err(keys)
    };
    let of = "of = \"a\"\n";
    for (keys, expected) in [
        (
            format!("{of}per = {{ of = \"b\" }}\nless = {{ of = \"c\" }}"),
            "'per' and 'less' exclude each other",
        ),
        (
            format!("{of}less = {{ measure = \"latency\" }}"),
            "what is taken from it has another unit",
        ),
        (format!("{of}less = {{ variant = \"only-{{}}{{}}\" }}"), "there is no variant 'only-aa'"),
        (format!("{of}rank-with = {{ measure = \"latency\" }}"), "an order needs three at least"),
        (
            "each = [\"a\", \"b\", \"c\"]\nrank-with = { measure = \"transactions\" }".to_owned(),
            "there is no oltp workload 'a'",
        ),
        (format!("{of}reversal = \"700ms\""), "is not a multiple of the recorded interval"),
        (
            format!("{of}reversal = \"1s\"\nper = {{ of = \"b\" }}"),
            "'reversal' works for sums and means only",
        ),
    ] {
        let said = said(&keys);
        assert!(said.contains(expected), "{said}");
    }
    let text = "[[expect]]\nmeasure = \"share-error\"\nof = \"lun\"\nat-most = 1\n";
    let said = parse(text).expect_err(text);
    assert!(said.contains("there is no VM or disk of a VM with several 'lun'"), "{said}");
}
