//! Servers that Headgate reaches over TLS: another daemon, nbdkit, qemu-nbd; and those that it does
//! not reach, for they are not who they should be, or it is nobody to them.

use super::{MINUTE, SIZE_MIB, Secure, text};
use crate::remote::{MIXED, create, load_to_end, survives_its_server, wait_until};
use anyhow::{Context, ensure};
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::tls::{certificates, issue};
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate's name that is no address.
const NODE: &str = "node7.example";

/// A laboratory's authority, and a directory with certificates of a server and of a client.
fn both_roles(lab: &Lab, authority: &str, name: &str) -> anyhow::Result<[PathBuf; 2]> {
    let [authority, dir] = [authority, &format!("{authority}-tls")].map(|at| lab.dir().join(at));
    certificates(&["init", text(&authority)])?;
    issue(&authority, "server", name, &dir)?;
    issue(&authority, "client", "gw1.example", &dir)?;
    Ok([authority, dir])
}

fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// The directory as a server's and as a client's.
fn tls(dir: &Path) -> [&str; 2] {
    ["--nbd-tls", text(dir)]
}

#[test]
fn a_server_killed_again_and_again_loses_nothing_over_tls() {
    with_lab(&["qemu-io"], |lab| {
        let [_, dir] = both_roles(lab, "authority", NODE)?;
        let address = free_address()?;
        let words = [&["--nbd-listen", &address][..], &tls(&dir)].concat();
        let server = Headgate::start_as(lab, "server", &[], &words)?;
        let uri = format!("nbds://{address}?tls-hostname={NODE}");
        survives_its_server(lab, server, &uri, 2, &tls(&dir))
    });
}

#[test]
fn what_was_written_over_tls_is_at_the_server_and_can_be_imported_from_it() {
    with_lab(&["qemu-img"], |lab| {
        let server = Secure::start(lab)?;
        let client = server.client(lab, "gw1.example")?;
        let mut host = Headgate::start_as(lab, "host", &[], &tls(&client))?;
        let uri = format!("nbds://{}", server.address);
        host.command(&["datastore", "add", "far", "--nbd", &uri])?;
        create(&host, "disk", "disk", &["--size", &format!("{SIZE_MIB}M")])?;
        let words = MIXED.replace("--seconds 5", "--seconds 5 --connections 2 --depth 64");
        load_to_end(&host, "disk", &words)?;
        host.stop()?;

        let uri = server.uri("disk", &client);
        server.daemon.command(&["disk", "import", "copy", &uri])?;
        let images = ["disk", "copy"].map(|disk| server.daemon.nbd_uri(disk));
        tools::qemu_img_compare(&images[0], &images[1])?;

        let mut load = Command::new(binary()?);
        load.args(["load", &server.uri("other", &client)]).args(MIXED.split_whitespace());
        let done = run_to_end(load, 2 * MINUTE)?;
        ensure!(done.status.success(), "headgate load: {}{}", done.stdout, done.stderr);
        let mut attack = Command::new(binary()?);
        attack.args(["load", &uri, "--hostile", "all"]);
        let refused = run_to_end(attack, MINUTE)?;
        ensure!(refused.stderr.contains("attacks without TLS"), "{}", refused.stderr);
        Ok(())
    });
}

/// A server of others, over TLS at this address.
fn other_server(lab: &Lab, words: &[&str], address: &str) -> anyhow::Result<Process> {
    let mut command = Command::new(tools::find(words[0]).context("not installed")?);
    command.args(&words[1..]);
    let mut process = Process::spawn("the server", command, &lab.dir().join("peer.log"))?;
    wait_for("the server should accept", MINUTE, || {
        process.ensure_running()?;
        Ok(TcpStream::connect(address).ok())
    })?;
    Ok(process)
}

#[test]
fn other_servers_are_served_from_over_tls() {
    with_lab(&["nbdkit", "qemu-nbd"], |lab| {
        let [_, dir] = both_roles(lab, "authority", "127.0.0.1")?;
        let file = lab.dir().join("file.raw");
        tools::sparse_file(&file, 64 << 20)?;
        let certificates = format!("--tls-certificates={}", text(&dir));
        let creds =
            format!("tls-creds-x509,id=tls,endpoint=server,verify-peer=on,dir={}", text(&dir));
        let servers: [&[&str]; 2] = [
            &[
                "nbdkit",
                "-f",
                "-i",
                "127.0.0.1",
                "-p",
                "PORT",
                "--tls=require",
                "--tls-verify-peer",
                &certificates,
                "file",
                text(&file),
            ],
            &[
                "qemu-nbd",
                "-t",
                "-b",
                "127.0.0.1",
                "-p",
                "PORT",
                "--object",
                &creds,
                "--tls-creds",
                "tls",
                "-f",
                "raw",
                text(&file),
            ],
        ];
        for (n, words) in servers.iter().enumerate() {
            let address = free_address()?;
            let port = address.strip_prefix("127.0.0.1:").context("no port")?;
            let words: Vec<&str> =
                words.iter().map(|word| if *word == "PORT" { port } else { word }).collect();
            let mut server = other_server(lab, &words, &address)?;
            let host = Headgate::start_as(lab, &format!("host{n}"), &[], &tls(&dir))?;
            host.command(&["datastore", "add", "far", "--nbd", &format!("nbds://{address}")])?;
            create(&host, "disk", "", &[])?;
            load_to_end(&host, "disk", MIXED).with_context(|| words.join(" "))?;
            server.kill()?;
        }
        Ok(())
    });
}

/// What `disk create` says of an export that cannot be had; no disk is there after it.
fn refused(host: &Headgate, datastore: &str) -> anyhow::Result<String> {
    let words = ["disk", "create", "disk", "--datastore", datastore, "--export", "disk"];
    let said = host.command(&words).err().context("it was created")?.to_string();
    ensure!(host.command(&["disk", "show", "disk"]).is_err(), "a disk is left");
    Ok(said)
}

#[test]
fn a_server_that_is_not_who_it_should_be_is_not_used() {
    with_lab(&[], |lab| {
        let server = Secure::start(lab)?;
        let client = server.client(lab, "gw1.example")?;
        let [_, strange] = both_roles(lab, "strange", "127.0.0.1")?;
        // Known to nobody there, and knows the server.
        let unknown = lab.dir().join("unknown");
        fs::create_dir(&unknown)?;
        fs::copy(server.authority.join("ca-cert.pem"), unknown.join("ca-cert.pem"))?;
        for file in ["client-cert.pem", "client-key.pem"] {
            fs::copy(strange.join(file), unknown.join(file))?;
        }
        let plain_address = free_address()?;
        let _plain = Headgate::start_as(lab, "plain", &[], &["--nbd-listen", &plain_address])?;
        let address = &server.address;
        let secured = format!("nbds://{address}");
        for (n, (words, uri, why)) in [
            (&tls(&client)[..], format!("{secured}?tls-hostname={NODE}"), "not valid for name"),
            (&tls(&strange), secured.clone(), "UnknownIssuer"),
            (&tls(&unknown), secured.clone(), "TLS: "),
            (&tls(&client), format!("nbds://{plain_address}"), "does not serve over TLS"),
            (&tls(&client), format!("nbd://{address}"), "serves over TLS only: nbds://"),
            (&[], secured.clone(), "--nbd-tls DIR"),
        ]
        .into_iter()
        .enumerate()
        {
            let host = Headgate::start_as(lab, &format!("host{n}"), &[], words)?;
            host.command(&["datastore", "add", "far", "--nbd", &uri])?;
            let said = refused(&host, "far")?;
            ensure!(said.contains(why), "{uri}: {why} was expected: {said}");
            if n > 0 {
                continue;
            }
            for (uri, why) in [
                (format!("{secured}?tls-certificates=/etc/tls"), "the daemon has its own"),
                (format!("{secured}?tls-verify-peer=0"), "'tls-verify-peer' is not taken"),
                (format!("nbd://{address}?tls-hostname=h"), "of nbds:// only"),
            ] {
                let add = ["datastore", "add", "bad", "--nbd", &uri];
                let said = host.command(&add).err().context("it was added")?.to_string();
                ensure!(said.contains(why), "{uri}: {why} was expected: {said}");
            }
        }
        ensure!(server.daemon.command(&["disk", "show", "disk"]).is_ok());
        Ok(())
    });
}

#[test]
fn a_certificate_is_revoked_and_renewed_under_a_disk() {
    with_lab(&["qemu-io"], |lab| {
        let server = Secure::start(lab)?;
        let client = server.client(lab, "gw1.example")?;
        let host = Headgate::start_as(lab, "host", &[], &tls(&client))?;
        host.command(&["datastore", "add", "far", "--nbd", &format!("nbds://{}", server.address)])?;
        create(&host, "disk", "disk", &[])?;
        let own = host.nbd_uri("disk");
        tools::qemu_io(&own, &["write -P 7 0 1M", "flush"])?;

        certificates(&["revoke", "gw1.example", "--authority", text(&server.authority)])?;
        server.put("ca-crl.pem", &fs::read(server.authority.join("ca-crl.pem"))?)?;
        let waiting = wait_until(&host, "disk", "waiting")?;
        wait_for("the reason", MINUTE, || {
            let shown = host.json(&["disk", "show", "disk"])?["connection"].clone();
            Ok(shown["reason"].as_str().is_some_and(|why| why.contains("TLS")).then_some(()))
        })
        .with_context(|| waiting.to_string())?;

        // A request waits, and goes on with the new certificate, which has another name.
        let mut write = Command::new("qemu-io");
        write.args(["-f", "raw", "-c", "write -P 9 0 512k", "-c", "flush", &own]);
        let mut write = Process::spawn("qemu-io", write, &lab.dir().join("qemu-io.log"))?;
        let renewed = lab.dir().join("renewed");
        issue(&server.authority, "client", "gw2.example", &renewed)?;
        for file in ["client-key.pem", "client-cert.pem"] {
            fs::rename(renewed.join(file), client.join(file))?;
        }
        wait_until(&host, "disk", "connected")?;
        ensure!(write.wait(MINUTE)?.success(), "the write that waited failed");
        tools::qemu_io(&own, &["read -P 9 0 512k", "read -P 7 512k 512k"]).map(drop)
    });
}
