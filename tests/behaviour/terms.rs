//! Two administrators at the command line, and changes that are only tried.

use anyhow::ensure;
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::run_to_end;
use headgate_lab::{Lab, with_lab};
use std::fs;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// A command: whether it succeeded, and all that it said.
fn say(daemon: &Headgate, words: &[&str]) -> anyhow::Result<(bool, String)> {
    let mut command = Command::new(headgate::binary()?);
    command.args(words).env("HEADGATE_STATE_DIR", daemon.state_dir());
    let finished = run_to_end(command, PATIENCE)?;
    let said = format!("{}{}", finished.stdout, finished.stderr);
    Ok((finished.status.success(), said))
}

fn started(lab: &Lab) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    for words in [
        "datastore add array --emulated rate=1600",
        "datastore add spare --emulated rate=1600",
        "class set gold --reservation 500",
        "tenant set red --max-disks 2",
        "vm set web --tenant red",
        "disk create a --size 1M --datastore array --vm web --class gold",
        "disk create b --size 1M --datastore array --vm web --class gold",
    ] {
        daemon.command(&words.split(' ').collect::<Vec<_>>())?;
    }
    Ok(daemon)
}

/// Everything that there is, but counters.
fn state(daemon: &Headgate) -> anyhow::Result<String> {
    Ok([
        daemon.command(&["get", "-o", "json"])?,
        daemon.command(&["rules", "show"])?,
        daemon.command(&["vm", "list"])?,
        daemon.command(&["events", "--json"])?,
        daemon.command(&["disk", "list", "--removed"])?,
    ]
    .concat())
}

#[test]
fn a_dry_run_says_what_would_be_and_changes_nothing() {
    with_lab(&[], |lab| {
        let daemon = started(lab)?;
        let before = state(&daemon)?;
        for (words, told) in [
            (
                "disk create c --size 1M --datastore spare --limit 300",
                "+ disk c: datastore spare, policy.limit 300, ",
            ),
            ("disk set a --limit 900", "~ disk a: policy.limit none -> 900\n"),
            ("disk remove a --yes", "- disk a"),
            ("disk remove a --purge --yes", "- disk a"),
            ("disk resize a --size 2M", "~ disk a: size 1M -> 2M"),
            ("disk migrate a --to spare", "~ disk a: datastore array -> spare"),
            (
                "class set gold --reservation 700",
                "~ class gold: policy.reservation 500 -> 700\n\
                 ~ 2 disks by class gold: policy.reservation 500 -> 700\n    a, b\n  \
                 datastore array: 1000 -> 1400 of 1600 IOPS reserved\n",
            ),
            ("class set new --shares 7", "+ class new: "),
            ("tenant set red --max-disks 5", "~ tenant red: quota.max_disks 2 -> 5"),
            ("vm set web --max-priority 9", "~ vm web: max_priority 254 -> 9"),
            ("datastore set array --queue-depth 9", "~ datastore array: queue_depth "),
            ("tenant set red --max-disks 2", "nothing would change"),
        ] {
            let words: Vec<&str> = words.split(' ').chain(["--dry-run"]).collect();
            let (taken, said) = say(&daemon, &words)?;
            ensure!(taken, "{words:?}: {said}");
            ensure!(said.contains(told), "{words:?}: {said}");
            ensure!(state(&daemon)? == before, "{words:?} changed something");
        }
        // A refusal has the words and the exit status of the change.
        for words in [
            "disk create a --size 1M --datastore array",
            "disk create c --size 1M --datastore array --reservation 700",
            "disk set a --limit 5",
            "disk remove none --yes",
            "disk resize a --size 4K",
            "disk migrate a --to array",
            "class set gold --reservation 900",
            "class set gold",
            "tenant set red --reservation 2000",
            "vm set web --tenant nobody",
            "datastore set array --queue-depth 0",
        ] {
            let real: Vec<&str> = words.split(' ').collect();
            let dry: Vec<&str> = words.split(' ').chain(["--dry-run"]).collect();
            let (dry, real) = (say(&daemon, &dry)?, say(&daemon, &real)?);
            ensure!(!dry.0 && dry == real, "{words}: {} and {}", dry.1, real.1);
        }
        Ok(())
    });
}

#[test]
fn who_changes_what_another_has_changed_is_told() {
    with_lab(&[], |lab| {
        let daemon = started(lab)?;
        let mine = lab.dir().join("mine.toml");
        let theirs = lab.dir().join("theirs.toml");
        let [mine, theirs] = [&mine, &theirs].map(|path| path.to_str().unwrap_or_default());
        let shown = daemon.command(&["rules", "show"])?;
        ensure!(shown.starts_with("# tag: \""), "{shown}");
        let with = |start: &str| shown.replace("start = \"10%\"", &format!("start = \"{start}\""));
        ensure!(with("20%") != shown, "{shown}");
        fs::write(mine, with("20%"))?;
        fs::write(theirs, with("30%"))?;
        daemon.command(&["rules", "set", theirs])?;
        for dry in [&["--dry-run"][..], &[]] {
            let (taken, said) = say(&daemon, &[&["rules", "set", mine][..], dry].concat())?;
            ensure!(!taken && said.contains("balance.start 100 -> 300"), "{said}");
        }
        ensure!(daemon.command(&["rules", "show"])?.contains("start = \"30%\""));
        // Without the tag it replaces whatever there is.
        let untagged: String =
            with("20%").lines().skip(1).map(|line| format!("{line}\n")).collect();
        fs::write(mine, untagged)?;
        daemon.command(&["rules", "set", mine])?;
        ensure!(daemon.command(&["rules", "show"])?.contains("start = \"20%\""));
        Ok(())
    });
}
