//! The API over TCP: certificates and tokens have roles, each forbidden thing is refused with the
//! role that it needs and told, and clients that only begin a handshake keep nobody out.

use anyhow::{Context, ensure};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::{Finished, Process, run_to_end};
use headgate_lab::tls::{certificates, issue};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use serde_json::Value;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

const RULES: &str = r#"
[[api]]
peer = "admin.example"
role = "admin"
[[api]]
peer = "viewer.example"
role = "viewer"
[[api]]
peer = "shop.example"
role = "operator"
machines = ["shop*"]
"#;

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A command by another way than the socket in the state directory, which it gets none of.
struct Elsewhere {
    api: String,
    shown: [String; 2],
}

impl Elsewhere {
    fn command(&self, words: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(headgate::binary()?);
        command.args(words).args(["--api", &self.api]).args(&self.shown);
        command.env("HEADGATE_STATE_DIR", "/nonexistent");
        Ok(command)
    }

    fn run(&self, words: &[&str]) -> anyhow::Result<Finished> {
        run_to_end(self.command(words)?, PATIENCE)
    }

    fn may(&self, words: &[&str]) -> anyhow::Result<String> {
        let Finished { status, stdout, stderr } = self.run(words)?;
        ensure!(status.success(), "headgate {words:?}: {status}\n{stdout}{stderr}");
        Ok(stdout)
    }

    /// What it says why not.
    fn may_not(&self, words: &[&str]) -> anyhow::Result<String> {
        let Finished { status, stdout, stderr } = self.run(words)?;
        ensure!(!status.success(), "headgate {words:?} was done\n{stdout}");
        Ok(stderr)
    }
}

/// An authority, the daemon's certificates with roles, and the address.
struct Site {
    authority: PathBuf,
    server: PathBuf,
    clients: PathBuf,
    address: String,
}

impl Site {
    fn new(lab: &Lab) -> anyhow::Result<Site> {
        let [authority, server, clients] =
            ["authority", "server", "clients"].map(|name| lab.dir().join(name));
        certificates(&["init", authority.to_str().context("no UTF-8")?])?;
        issue(&authority, "server", "127.0.0.1", &server)?;
        fs::write(server.join("allow.toml"), RULES)?;
        let address = format!("127.0.0.1:{}", free_port()?);
        Ok(Site { authority, server, clients, address })
    }

    fn start(&self, lab: &Lab) -> anyhow::Result<Headgate> {
        let server = self.server.to_string_lossy();
        let words = ["--api-listen", &self.address, "--api-tls", &server];
        Headgate::start_as(lab, "state", &[], &words)
    }

    fn client(&self, name: &str) -> anyhow::Result<Elsewhere> {
        let dir = self.clients.join(name);
        issue(&self.authority, "client", &format!("{name}.example"), &dir)?;
        let shown = ["--tls-dir".into(), dir.to_string_lossy().into_owned()];
        Ok(Elsewhere { api: format!("https://{}", self.address), shown })
    }
}

fn events(daemon: &Headgate) -> anyhow::Result<Vec<Value>> {
    Ok(daemon.json(&["events"])?["events"].as_array().context("no list")?.clone())
}

#[test]
fn certificates_have_roles_and_what_they_do_is_told() {
    with_lab(&[], |lab| {
        let site = Site::new(lab)?;
        let daemon = site.start(lab)?;
        let [admin, viewer, shop, nobody] =
            ["admin", "viewer", "shop", "nobody"].map(|name| site.client(name));
        let (admin, viewer, shop, nobody) = (admin?, viewer?, shop?, nobody?);
        for (disk, vm) in [("a", "shop1"), ("b", "bank")] {
            admin.may(&["disk", "create", disk, "--size", "8M", "--vm", vm])?;
        }
        ensure!(viewer.may(&["disk", "list"])?.contains("bank"), "viewers see all");
        ensure!(viewer.may(&["events", "--disk", "a"])?.contains("certificate admin.example at"));
        let list = shop.may(&["disk", "list"])?;
        ensure!(list.contains("shop1") && !list.contains("bank"), "{list}");
        shop.may(&["disk", "set", "a", "--werror", "report"])?;

        for (who, words, role) in [
            (&viewer, &["disk", "set", "a", "--limit", "5"][..], "role admin, or operator"),
            (&viewer, &["disk", "remove", "a", "--yes"], "role admin"),
            (&viewer, &["datastore", "trace", "default", "/dev/null"], "role admin"),
            (&shop, &["disk", "set", "a", "--limit", "5"], "role admin, or operator"),
            (&shop, &["disk", "set", "b", "--werror", "report"], "role admin, or operator"),
            (&shop, &["disk", "remove", "a", "--yes"], "role admin"),
            (&nobody, &["disk", "list"], "role admin, viewer, or operator"),
        ] {
            let said = who.may_not(words)?;
            ensure!(said.contains(&format!("expected: {role}")), "{words:?}: {said}");
        }
        let seen = shop.may(&["events"])?;
        ensure!(seen.contains("disk set a") && seen.contains("disk create a"), "{seen}");
        // Neither disks of others, nor who looks after its own.
        let hidden = ["bank", "disk create b", "disk set b", "admin.example", "viewer.example"];
        ensure!(hidden.iter().all(|one| !seen.contains(one)), "{seen}");
        let told = events(&daemon)?;
        let of = |name: &str, result: &str| {
            let name = format!("{name}.example");
            let is_it = |event: &&Value| event["by"]["name"] == name && event["result"] == result;
            told.iter().filter(is_it).count()
        };
        ensure!(of("admin", "taken") == 2 && of("shop", "taken") == 1, "{told:#?}");
        ensure!(of("viewer", "refused") == 3 && of("shop", "refused") == 3, "{told:#?}");
        ensure!(of("nobody", "refused") == 1, "{told:#?}");
        // Of another authority, and without a certificate.
        let other = lab.dir().join("other");
        certificates(&["init", other.to_str().context("no UTF-8")?])?;
        let forged = site.clients.join("forged");
        issue(&other, "client", "admin.example", &forged)?;
        fs::copy(site.authority.join("ca-cert.pem"), forged.join("ca-cert.pem"))?;
        let shown = ["--tls-dir".into(), forged.to_string_lossy().into_owned()];
        Elsewhere { shown, ..admin }.may_not(&["disk", "list"])?;
        let forged = events(&daemon)?.into_iter().find(|event| {
            event["operation"] == "connection over TLS" && event["result"] == "refused"
        });
        ensure!(forged.is_some(), "a forged certificate is not told");
        Ok(())
    });
}

#[test]
fn a_certificate_that_is_revoked_does_and_follows_nothing_more() {
    with_lab(&[], |lab| {
        let site = Site::new(lab)?;
        let daemon = site.start(lab)?;
        let (admin, viewer) = (site.client("admin")?, site.client("viewer")?);
        let log = lab.dir().join("followed");
        let follow = viewer.command(&["events", "--follow"])?;
        let mut follower = Process::spawn("headgate events", follow, &log)?;
        admin.may(&["disk", "create", "a", "--size", "8M"])?;
        wait_for("the follower should hear", PATIENCE, || {
            follower.ensure_running()?;
            Ok(fs::read_to_string(&log)?.contains("disk create a").then_some(()))
        })?;
        let authority = site.authority.to_string_lossy();
        certificates(&["revoke", "viewer.example", "--authority", &authority])?;
        fs::copy(site.authority.join("ca-crl.pem"), site.server.join("ca-crl.pem"))?;
        // It comes again, and is refused.
        let status = follower.wait(PATIENCE)?;
        ensure!(!status.success(), "{}", follower.said());
        viewer.may_not(&["disk", "list"])?;
        admin.may(&["disk", "create", "b", "--size", "8M"])?;
        ensure!(!fs::read_to_string(&log)?.contains("disk create b"), "{}", follower.said());
        ensure!(events(&daemon)?.iter().any(|event| event["operation"] == "disk create"));
        Ok(())
    });
}

#[test]
fn clients_that_only_begin_keep_nobody_out() {
    with_lab(&[], |lab| {
        let site = Site::new(lab)?;
        let mut daemon = site.start(lab)?;
        let admin = site.client("admin")?;
        let mut open = Vec::new();
        for _ in 0..200 {
            open.push(TcpStream::connect(&site.address)?);
        }
        admin.may(&["disk", "create", "a", "--size", "8M"])?;
        ensure!(admin.may(&["disk", "list"])?.contains('a'));
        drop(open);
        daemon.ensure_running()
    });
}

#[test]
fn tokens_have_roles_on_this_host_only() {
    with_lab(&[], |lab| {
        let file = lab.dir().join("tokens.toml");
        let token = |letter: &str| letter.repeat(40);
        let text = format!(
            "[[token]]\nname = \"ci\"\ntoken = \"{}\"\nrole = \"viewer\"\n\
             [[token]]\nname = \"ops\"\ntoken = \"{}\"\nrole = \"admin\"\n",
            token("v"),
            token("a")
        );
        fs::write(&file, text)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        let file = file.to_string_lossy();
        let address = format!("127.0.0.1:{}", free_port()?);
        let words = ["--api-listen", &address, "--api-tokens", &file];
        let mut daemon = Headgate::start_as(lab, "state", &[], &words)?;
        let with = |name: &str, token: String| -> anyhow::Result<Elsewhere> {
            let path = lab.dir().join(name);
            fs::write(&path, token)?;
            let shown = ["--token-file".into(), path.to_string_lossy().into_owned()];
            Ok(Elsewhere { api: format!("http://{address}"), shown })
        };
        let (ops, ci) = (with("ops", token("a"))?, with("ci", token("v"))?);
        ops.may(&["disk", "create", "a", "--size", "8M"])?;
        ensure!(ci.may(&["disk", "list"])?.contains('a'));
        ensure!(ci.may_not(&["disk", "remove", "a", "--yes"])?.contains("role admin"));
        let said = with("wrong", token("x"))?.may_not(&["disk", "list"])?;
        ensure!(said.contains("no token that is known"), "{said}");
        let told = events(&daemon)?;
        ensure!(told.iter().any(|event| event["by"]["name"] == "ops"), "{told:#?}");
        ensure!(told.iter().any(|event| event["by"]["kind"] == "unknown"), "{told:#?}");
        let log = daemon.log()?;
        ensure!(!log.contains(&token("x")) && !format!("{told:?}").contains(&token("x")));
        daemon.stop()?;
        // Where anybody could use it, or hear it, there is no daemon.
        for (words, why) in [
            (&["--api-listen", "127.0.0.1:0"][..], "open to everybody"),
            (&["--api-listen", "0.0.0.0:0", "--api-tokens", &file], "in the clear"),
            (&["--api-tokens", &file], "no address"),
        ] {
            let mut command = Command::new(headgate::binary()?);
            command.arg("serve").args(words).arg("--state-dir").arg(lab.dir().join("none"));
            let finished = run_to_end(command, PATIENCE)?;
            ensure!(!finished.status.success() && finished.stderr.contains(why), "{words:?}");
        }
        fs::set_permissions(&*file, fs::Permissions::from_mode(0o644))?;
        let mut command = Command::new(headgate::binary()?);
        command.args(["serve", "--api-listen", "127.0.0.1:0", "--api-tokens", &file]);
        command.arg("--state-dir").arg(lab.dir().join("none"));
        let said = run_to_end(command, PATIENCE)?.stderr;
        ensure!(said.contains("can be read by others"), "{said}");
        Ok(())
    });
}
