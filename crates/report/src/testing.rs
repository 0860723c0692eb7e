//! Scenarios for this crate's tests.

use headgate_sim::Scenario;

/// One VM with four requests outstanding on a device of 500 IOPS.
pub(crate) fn on_500_iops(name: &str, expectations: &str) -> Scenario {
    let text = format!(
        r#"
        name = "{name}"
        title = "x"
        duration = "3s"
        windows = {{ end = "1s..3s" }}
        datastore = [{{ name = "lun", device = "rate=500,latency=1ms" }}]
        [[vm]]
        name = "a"
        disk = [{{}}]
        workload = [{{ kind = "closed", outstanding = 4 }}]
        {expectations}
        "#
    );
    Scenario::parse(&format!("{name}.toml"), &text).unwrap_or_else(|e| panic!("{e}"))
}

/// An expectation of the VM's rate.
pub(crate) fn expect(keys: &str) -> String {
    format!("[[expect]]\nmeasure = \"iops\"\nof = \"a\"\nwindow = \"end\"\n{keys}\n")
}
