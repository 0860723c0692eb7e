//! Sessions of fuzzing with a program in the place of libFuzzer: what it says it ran is in the
//! ledger, however it ends.

use headgate_fuzz::ledger::Ledger;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const LEDGER: &str = "\
| target | processor time | executions | missing to 24 h |
|---|---|---|---|

| date | build | target | processor time | executions | found |
|---|---|---|---|---|---|
| 2026-11-29 | earlier | `board` | 10 s | 1,000 | nothing |
| 2026-11-29 | earlier | `trace` | 10 s | 10 | nothing |
";

/// Says its name, and how far it is.
const BEGIN: &str =
    "echo \"$HEADGATE_FUZZ_TARGET\" >>\"$DIR/order\"; printf '#64\\tpulse  cov: 7\\n'\n";
/// What libFuzzer says at its end.
const END: &str = "echo 'stat::number_of_executed_units: 100'\n";

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// A fuzzer that does this.
    fn new(script: &str) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let fuzzer = dir.path().join("fuzzer");
        fs::write(&fuzzer, format!("#!/bin/sh\n{BEGIN}{script}")).unwrap();
        fs::set_permissions(&fuzzer, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("ledger.md"), LEDGER).unwrap();
        Bench { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate-fuzz"));
        command.args(["hours", "--build", "fake"]).args(options).env("DIR", self.dir.path());
        for (option, name) in [
            ("--fuzzer", "fuzzer"),
            ("--ledger", "ledger.md"),
            ("--work", "work"),
            ("--found", "found"),
        ] {
            command.arg(option).arg(self.path(name));
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn ledger(&self) -> Ledger {
        Ledger::parse(&fs::read_to_string(self.path("ledger.md")).unwrap()).unwrap()
    }

    fn executions(&self, target: &str) -> u64 {
        self.ledger().sum(target).executions
    }

    fn found(&self) -> String {
        self.ledger().rows.last().unwrap().found.clone()
    }
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr[..]].concat()).into_owned()
}

/// Waits for a file: however long it takes, the test does not end before.
fn wait_for(path: &Path) {
    while !path.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
    assert!(kill.unwrap().success());
}

#[test]
fn each_target_is_fed_and_those_with_the_fewest_executions_come_first() {
    let bench = Bench::new(END);
    let out = bench.command(&["board", "trace", "stripe", "--seconds", "0"]).output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(fs::read_to_string(bench.path("order")).unwrap(), "stripe\ntrace\nboard\n");
    let sums = ["board", "trace", "stripe", "texts"].map(|target| bench.executions(target));
    assert_eq!(sums, [1_100, 110, 100, 0]);
    let text = fs::read_to_string(bench.path("ledger.md")).unwrap();
    assert!(text.contains("| `trace` | 0.00 h | 110 | 24.00 h |"), "{text}");
    assert!(said(&out).contains("100 executions"), "{}", said(&out));
}

#[test]
fn what_was_run_until_a_session_is_stopped_is_kept() {
    for name in ["TERM", "INT"] {
        // As libFuzzer does: between two inputs.
        let bench = Bench::new(&format!(
            "finish() {{\n{END}exit 0\n}}\ntrap finish USR1\n\
             : >\"$DIR/runs\"\nwhile :; do sleep 0.01; done\n"
        ));
        let options = ["board", "stripe", "--seconds", "9000", "--patience", "9000"];
        let child = bench.command(&options).spawn().unwrap();
        wait_for(&bench.path("runs"));
        signal(&child, name);
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", said(&out));
        assert_eq!((bench.executions("stripe"), bench.executions("board")), (100, 1_000));
    }
}

#[test]
fn a_process_that_does_not_end_is_killed_and_what_it_said_last_counts() {
    let bench = Bench::new("trap '' USR1 TERM\n: >\"$DIR/runs\"\nwhile :; do sleep 0.01; done\n");
    let options = ["stripe", "--seconds", "9000", "--patience", "0"];
    let child = bench.command(&options).spawn().unwrap();
    wait_for(&bench.path("runs"));
    signal(&child, "TERM");
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(bench.executions("stripe"), 64);
}

#[test]
fn what_broke_is_counted_and_the_target_is_fed_on_until_it_broke_often() {
    // libFuzzer's status and that of a sanitiser.
    let finds = format!(
        "for word; do case $word in -artifact_prefix=*) prefix=${{word#*=}};; esac; done\n\
         n=$(cat \"$DIR/n\" 2>/dev/null || echo 0)\necho $((n + 1)) >\"$DIR/n\"\n\
         : >\"${{prefix}}crash-$n\"\n{END}exit $((77 - n % 2 * 76))\n"
    );
    let bench = Bench::new(&finds);
    let out = bench.command(&["stripe", "--seconds", "9000"]).output().unwrap();
    assert!(!out.status.success());
    assert!(said(&out).contains("it broke 10 promises"), "{}", said(&out));
    assert_eq!(bench.executions("stripe"), 1_000);
    assert_eq!(fs::read_dir(bench.path("found")).unwrap().count(), 10);
    assert_eq!(bench.found(), "10 inputs");
}

#[test]
fn a_program_that_is_no_fuzzer_is_an_error_and_no_row() {
    let bench = Bench::new("exit 3\n");
    fs::write(bench.path("fuzzer"), "#!/bin/sh\nexit 3\n").unwrap();
    let out = bench.command(&["stripe", "--seconds", "9000"]).output().unwrap();
    assert!(!out.status.success() && said(&out).contains("exit status: 3"), "{}", said(&out));
    assert_eq!(bench.ledger(), Ledger::parse(LEDGER).unwrap());
}

/// Whoever writes a row by hand forgets the sums.
#[test]
fn the_ledger_in_the_documents_adds_up() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fuzzing.md");
    let text = fs::read_to_string(path).unwrap();
    let names: Vec<&str> = headgate_fuzz::all().iter().map(|target| target.name).collect();
    let ledger = Ledger::parse(&text).unwrap();
    assert_eq!(ledger.render(&names), text, "`headgate-fuzz ledger` writes the sums");
}
