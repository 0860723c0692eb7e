//! Disks that are made of other ones: with what was asked for, or with what those have.

use crate::copies::copy_of;
use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::writer::{self, Writer};
use headgate_lab::{Server, tools, wait_for, with_lab};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Datastores whose disks are files, or as good as files.
const STORES: [(&str, &[&str]); 3] = [
    ("files", &[]),
    ("array", &["--emulated=rate=3000,service=exponential,depth=32"]),
    ("ram", &["--memory=512M"]),
];

fn with_stores(daemon: &Headgate, lab: &headgate_lab::Lab) -> anyhow::Result<()> {
    for (name, backend) in STORES {
        let path = format!("--dir={}", lab.subdir(name)?.display());
        let backend = backend.first().copied().unwrap_or(&path);
        daemon.command(&["datastore", "add", name, backend])?;
    }
    Ok(())
}

#[test]
fn a_disk_made_of_a_snapshot_is_larger_and_has_what_was_asked_for() {
    with_lab(&["qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        with_stores(&daemon, lab)?;
        daemon.command(&["class", "set", "gold", "--shares=300", "--limit=900"])?;
        for (store, _) in STORES {
            let (db, snapshot, new) =
                (format!("db-{store}"), format!("s-{store}"), format!("n-{store}"));
            let on = format!("--datastore={store}");
            daemon.command(&["disk", "create", &db, "--size=24M", &on, "--vm=db"])?;
            tools::qemu_io(&daemon.nbd_uri(&db), &["write -P 7 0 24M"])?;
            daemon.command(&["disk", "snapshot", &db, &snapshot])?;
            let kept = format!("k-{store}");
            daemon.command_for(PATIENCE, &["disk", "clone", &snapshot, &kept, &on])?;
            tools::qemu_io(&daemon.nbd_uri(&db), &["write -P 8 0 1M"])?;
            let make = ["disk", "create", &new, "--from", &snapshot, "--class=gold", "--vm=test"];
            let options = ["--size=32M", "--limit=none", "--burst=5", &on];
            daemon.command_for(PATIENCE, &[&make[..], &options].concat())?;
            let shown = daemon.json(&["disk", "show", &new])?;
            ensure!(shown["size"] == 32 << 20 && shown["class"] == "gold", "{shown}");
            ensure!(shown["vm"] == "test" && shown["read_only"] == false, "{shown}");
            ensure!(shown["policy"]["shares"] == 300, "{shown}");
            ensure!(shown["policy"]["limit"].is_null() && shown["policy"]["burst"] == 5, "{shown}");
            ensure!(shown["origin"]["disk"] == *snapshot, "{shown}");
            // What was there, zeroes behind it, and all of it can be written.
            let checks = ["read -P 7 0 24M", "read -P 0 24M 8M", "write -P 9 23M 9M"];
            tools::qemu_io(&daemon.nbd_uri(&new), &checks).context(store)?;
            tools::qemu_img_compare(&daemon.nbd_uri(&snapshot), &daemon.nbd_uri(&kept))?;
        }
        let same = ["read -P 7 0 23M", "read -P 9 23M 9M"];
        daemon.stop()?;
        daemon.start_again()?;
        for store in ["files", "array"] {
            tools::qemu_io(&daemon.nbd_uri(&format!("n-{store}")), &same).context(store)?;
        }
        let refused = |words: &[&str], why: &str| {
            let said = daemon.command(words).map_err(|e| format!("{e:#}"));
            let said = said.expect_err("it is refused");
            ensure!(said.contains(why), "{words:?}: {said}");
            Ok(())
        };
        let from = ["disk", "create", "x", "--from", "db-files"];
        refused(&[&from[..], &["--size=16M"]].concat(), "is less than the 24 MiB")?;
        refused(&[&from[..], &["--class=none-such"]].concat(), "no class 'none-such'")?;
        refused(&[&from[..], &["--moved-from=db-ram"]].concat(), "cannot be used with")?;
        refused(&["disk", "create", "x", "--size=1M", "--detach"], "name it with --from")?;
        refused(&["disk", "clone", "x", "y"], "no disk 'x'")?;
        let names = daemon.command(&["disk", "list"])?;
        ensure!(names.lines().count() == 13, "{names}");
        daemon.stop()
    });
}

#[test]
fn a_clone_has_what_its_disk_has_and_both_serve_verified_clients() {
    with_lab(&["qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        with_stores(&daemon, lab)?;
        daemon.command(&["class", "set", "gold", "--shares=300"])?;
        let make = ["disk", "create", "db", "--size=32M", "--datastore=array", "--class=gold"];
        let promised = ["--reservation=200", "--vm=db", "--mobility=pinned"];
        daemon.command(&[&make[..], &promised].concat())?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["write -P 6 16M 16M"])?;
        // The first half is the writer's.
        let mut writers = [Writer::new(daemon.nbd_socket(), "db", 1, 4096).without_trims()];
        writer::beside(&mut writers, PATIENCE, || {
            daemon.command_for(PATIENCE, &["disk", "clone", "db", "one", "--datastore=files"])?;
            let said = daemon.json(&["disk", "show", "one"])?;
            ensure!(said["class"] == "gold" && said["policy"]["reservation"] == 200, "{said}");
            ensure!(said["placement"]["mobility"] == "pinned" && said["vm"].is_null(), "{said}");
            // One that lasts says how far it is, in each list.
            let slow = ["disk", "clone", "db", "two", "--datastore=ram", "--copy-limit=20"];
            let options = ["--detach", "--reservation=none", "--vm=test"];
            daemon.command(&[&slow[..], &options].concat())?;
            let said = wait_for("it should copy", PATIENCE, || {
                let said = daemon.json(&["disk", "show", "two"])?;
                Ok((said["filling"]["copied"].as_u64() > Some(0)).then_some(said))
            })?;
            ensure!(said["filling"]["by"] == "copy" && said["filling"]["source"] == "db", "{said}");
            ensure!(daemon.command(&["disk", "list"])?.contains("copying "), "{said}");
            let hurry = ["disk", "copy", "--change", "two", "--copy-limit=none"];
            daemon.command(&[&hurry[..], &["--copy-shares=1000"]].concat())?;
            wait_for("it should be complete", PATIENCE, || {
                Ok((copy_of(&daemon, "two")?["state"] == "complete").then_some(()))
            })?;
            let said = daemon.json(&["disk", "show", "two"])?;
            ensure!(said["filling"].is_null() && said["vm"] == "test", "{said}");
            ensure!(said["policy"]["reservation"].is_null(), "{said}");
            Ok(())
        })?;
        // None has anything of another any more.
        writer::beside(&mut writers, PATIENCE, || {
            for clone in ["one", "two"] {
                let overwritten = ["read -P 6 16M 16M", "write -P 9 0 20M", "read -P 9 0 20M"];
                tools::qemu_io(&daemon.nbd_uri(clone), &overwritten).context(clone)?;
            }
            Ok(())
        })?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["read -P 6 16M 16M"])?;
        daemon.stop()
    });
}
