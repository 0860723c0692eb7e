//! The systemd unit: what it leaves open, and the daemon under it in a booted machine.

use anyhow::{Context, ensure};
use headgate_lab::booted::{Extra, boot, stripped};
use headgate_lab::guest::QEMU;
use headgate_lab::headgate::binary;
use headgate_lab::{with_lab, workspace};
use std::fs;
use std::process::Command;

/// In tenths: below it `systemd-analyze security` says "OK".
const EXPOSURE_MAX: u32 = 30;

#[test]
fn the_unit_leaves_little_open() {
    with_lab(&["systemd-analyze"], |_| {
        let unit = workspace().join("contrib/headgate.service");
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager"]).arg(unit);
        let said = String::from_utf8(analyze.output()?.stdout)?;
        let line = said.lines().find(|line| line.contains("Overall exposure level"));
        let line = line.with_context(|| format!("no exposure level in:\n{said}"))?;
        println!("{line}");
        let level = line.split_whitespace().find_map(|word| word.parse::<f64>().ok());
        let level = level.with_context(|| format!("no number in: {line}"))?;
        ensure!(level * 10.0 < f64::from(EXPOSURE_MAX), "{line}\n{said}");
        Ok(())
    });
}

/// Each line that begins with `may` or `may not` was tried, and is what it should be or not.
const SCRIPT: &str = include_str!("unit.sh");

#[test]
fn a_machine_with_the_unit_withstands_what_is_forbidden() {
    with_lab(&[QEMU, "strip"], |lab| {
        let contrib = |name: &str| {
            fs::read(workspace().join("contrib").join(name)).with_context(|| name.to_owned())
        };
        let file = |path: &str, mode, content| Extra { path: path.to_owned(), mode, content };
        let users = "u vmred 4701 - /\nu vmblue 4702 - /\nu mallory 4703 - /\nm mallory kvm\n\
                     u reader 4704 - /\nu admin 4705 - /\nm admin headgate\ng monitors 4706\n\
                     m reader monitors\n";
        let drop_in = "[Service]\nExecStart=\nExecStart=/usr/local/bin/headgate serve \
                       --socket-group kvm --api-read-group monitors --allow-dir /srv/headgate\n";
        let extras = [
            file("usr/local/bin/headgate", 0o755, stripped(&binary()?, lab)?),
            file("etc/systemd/system/headgate.service", 0o644, contrib("headgate.service")?),
            file("etc/systemd/system/headgate.service.d", 0o755, Vec::new()),
            file("etc/systemd/system/headgate.service.d/lab.conf", 0o644, drop_in.into()),
            file("etc/sysusers.d", 0o755, Vec::new()),
            file("etc/sysusers.d/headgate.conf", 0o644, contrib("headgate.sysusers")?),
            file("etc/sysusers.d/lab.conf", 0o644, users.into()),
        ];
        let Some(said) = boot(lab, &extras, SCRIPT)? else { return Ok(()) };
        let verdicts: Vec<&str> =
            said.lines().map(str::trim).filter(|line| line.starts_with("verdict")).collect();
        println!("{}", verdicts.join("\n"));
        let wrong: Vec<&&str> = verdicts.iter().filter(|line| !line.ends_with(": right")).collect();
        ensure!(wrong.is_empty(), "{wrong:#?}\n{said}");
        ensure!(verdicts.len() >= 25, "only {} were tried:\n{said}", verdicts.len());
        Ok(())
    });
}
