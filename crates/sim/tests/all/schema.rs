//! The kept schema of scenario files, for editors.

use std::fs;
use std::path::Path;

/// To make it anew: `HEADGATE_WRITE_SCHEMA=1 cargo test -p headgate-sim --test all schema`.
#[test]
fn the_schema_for_editors_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/scenario.schema.json");
    let current = serde_json::to_string_pretty(&headgate_sim::schema()).unwrap() + "\n";
    if std::env::var_os("HEADGATE_WRITE_SCHEMA").is_some() {
        fs::write(&path, &current).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == current,
        "experiments/scenario.schema.json is not what the types say; write it anew, see above"
    );
}
