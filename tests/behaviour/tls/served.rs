//! The clients that people use, and who of them has which right.

use super::{MINUTE, SIZE_MIB, Secure, text};
use anyhow::{Context, ensure};
use headgate_lab::process::run;
use headgate_lab::tls::{certificates, issue};
use headgate_lab::{Server, tools, wait_for, with_lab};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program of QEMU's with the export as its image.
fn qemu_command(
    program: &str,
    words: &[&str],
    secure: &Secure,
    certificates: &Path,
) -> anyhow::Result<Command> {
    let (host, port) = secure.address.split_once(':').context("no port")?;
    let dir = text(certificates);
    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={dir}");
    let image = format!("driver=nbd,host={host},port={port},export=disk,tls-creds=tls");
    let mut command = Command::new(program);
    let (first, rest) = match program {
        "qemu-img" => words.split_at(1),
        _ => (&[][..], words),
    };
    command.args(first).args(["--object", &object, "--image-opts"]).args(rest).arg(image);
    Ok(command)
}

/// Runs it.
fn qemu(
    program: &str,
    words: &[&str],
    secure: &Secure,
    certificates: &Path,
) -> anyhow::Result<String> {
    let said = run(qemu_command(program, words, secure, certificates)?, MINUTE)?;
    ensure!(!said.contains("failed"), "{program}: {said}");
    Ok(said)
}

#[test]
fn the_clients_that_people_use_are_served_over_tls() {
    let programs = ["nbdinfo", "nbdcopy", "qemu-img", "qemu-io", "openssl"];
    with_lab(&programs, |lab| {
        let secure = Secure::start(lab)?;
        let gw1 = secure.client(lab, "gw1.example")?;
        // What openssl says of what we make.
        let mut verify = Command::new("openssl");
        verify
            .args(["verify", "-x509_strict", "-CAfile"])
            .arg(secure.authority.join("ca-cert.pem"));
        verify.args([secure.server.join("server-cert.pem"), gw1.join("client-cert.pem")]);
        let said = run(verify, MINUTE)?;
        ensure!(said.matches(": OK").count() == 2, "openssl: {said}");

        let uri = secure.uri("disk", &gw1);
        let info = tools::nbdinfo(&uri)?;
        ensure!(info["TLS"] == true || info["TLS"] == "true", "nbdinfo: {info}");
        ensure!(info["exports"][0]["export-size"] == SIZE_MIB << 20, "nbdinfo: {info}");
        let random = lab.dir().join("random.raw");
        let bytes: Vec<u8> = (0..(SIZE_MIB << 20) / 8)
            .flat_map(|i| headgate_lab::ledger::splitmix(i).to_le_bytes())
            .collect();
        fs::write(&random, bytes)?;
        tools::nbdcopy(text(&random), &uri)?;
        // The unix socket has the same bytes, and so has what is read over TLS.
        tools::qemu_img_compare(&secure.daemon.nbd_uri("disk"), text(&random))?;
        let back = lab.dir().join("back.raw");
        tools::nbdcopy(&uri, text(&back))?;
        ensure!(tools::sha256(&back)? == tools::sha256(&random)?, "other bytes came back");

        let commands = [
            "write -P 0x5a 1M 3M",
            "write -z 2M 64k",
            "discard 3M 64k",
            "flush",
            "read -P 0x5a 1M 1M",
            "read -P 0 2M 64k",
            "read -P 0x5a 2162688 983040",
        ];
        let words: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
        qemu("qemu-io", &words, &secure, &gw1)?;
        let said = qemu("qemu-img", &["info"], &secure, &gw1)?;
        ensure!(said.contains("32 MiB"), "qemu-img: {said}");
        Ok(())
    });
}

#[test]
fn who_has_no_right_is_told_so_and_whose_right_ends_is_disconnected() {
    with_lab(&["nbdinfo", "qemu-io"], |lab| {
        let secure = Secure::start(lab)?;
        let gw1 = secure.client(lab, "gw1.example")?;
        let backup = secure.client(lab, "backup.example")?;
        let serves = |disk: &str, who: &Path| -> anyhow::Result<bool> {
            Ok(secure.nbdinfo(&secure.uri(disk, who))?.status.success())
        };
        // Without TLS, and with a certificate of somebody else's authority.
        let plain = secure.nbdinfo(&format!("nbd://{}/disk", secure.address))?;
        ensure!(!plain.status.success(), "it is served without TLS: {}", plain.stdout);
        let [strange, stranger] = ["strange", "stranger"].map(|name| lab.dir().join(name));
        certificates(&["init", text(&strange)])?;
        issue(&strange, "client", "gw1.example", &stranger)?;
        fs::copy(secure.authority.join("ca-cert.pem"), stranger.join("ca-cert.pem"))?;
        ensure!(!serves("disk", &stranger)?, "a certificate of any authority opens it");
        ensure!(
            secure.daemon.log()?.contains("turned away: 127.0.0.1:"),
            "the log does not tell of it"
        );
        ensure!(serves("disk", &gw1)? && serves("other", &backup)?);

        // Rules.
        let rules = "[[allow]]\npeer = \"gw1.example\"\ndisks = [\"disk\"]\n\
                     [[allow]]\npeer = \"backup.example\"\ndisks = [\"*\"]\naccess = \"read\"\n";
        secure.put("allow.toml", rules.as_bytes())?;
        wait_for("the rules to hold", MINUTE, || Ok((!serves("other", &gw1)?).then_some(())))?;
        ensure!(serves("disk", &gw1)?);
        let info = tools::nbdinfo(&secure.uri("other", &backup))?;
        ensure!(info["exports"][0]["is_read_only"] == true, "nbdinfo: {info}");

        // A certificate is revoked while its owner writes: it is disconnected, and stays out.
        let mut writer = qemu_command("qemu-io", &[], &secure, &gw1)?;
        let mut writer = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut words = writer.stdin.take().context("no stdin")?;
        let said = BufReader::new(writer.stdout.take().context("no stdout")?);
        let mut lines = said.lines();
        let mut write = || -> anyhow::Result<bool> {
            writeln!(words, "write -P 7 0 64k")?;
            let answers = lines.by_ref().map_while(Result::ok);
            let mut answers =
                answers.skip_while(|line| !line.contains("wrote") && !line.contains("failed"));
            Ok(answers.next().context("qemu-io says nothing")?.contains("wrote"))
        };
        ensure!(write()? && write()?, "it cannot write");
        certificates(&["revoke", "gw1.example", "--authority", text(&secure.authority)])?;
        secure.put("ca-crl.pem", &fs::read(secure.authority.join("ca-crl.pem"))?)?;
        wait_for("the end of who was revoked", MINUTE, || Ok((!write()?).then_some(())))?;
        drop(words);
        writer.wait()?;
        wait_for("the revocation", MINUTE, || Ok((!serves("disk", &gw1)?).then_some(())))?;
        ensure!(serves("disk", &backup)?);
        Ok(())
    });
}
