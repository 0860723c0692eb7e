//! A real etcd server for hosts to meet in.

use crate::process::Process;
use crate::{Lab, cache_dir, tools, wait_for};
use anyhow::Context;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// One server, alone in its cluster.
pub struct Etcd {
    program: PathBuf,
    dir: PathBuf,
    ports: [u16; 2],
    process: Process,
}

/// The program: of the system, or where `tests/install` put it.
fn program() -> anyhow::Result<PathBuf> {
    let unpacked = cache_dir().join("etcd/usr/bin/etcd");
    let found = tools::find("etcd").or_else(|| unpacked.is_file().then_some(unpacked));
    found.context("there is no etcd: run tests/install")
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl Etcd {
    /// Starts a server and waits until it listens.
    pub fn start(lab: &Lab) -> anyhow::Result<Etcd> {
        let (program, dir) = (program()?, lab.subdir("etcd")?);
        let ports = [free_port()?, free_port()?];
        let process = launch(&program, &dir, ports)?;
        Ok(Etcd { program, dir, ports, process })
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        url(self.ports[0])
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it; what it stored stays.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// Starts it again on what it stored, and waits until it has elected itself and answers.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = launch(&self.program, &self.dir, self.ports)?;
        let port = self.ports[0];
        wait_for("etcd should be healthy", Duration::from_secs(60), || {
            Ok(is_healthy(port).then_some(()))
        })
    }
}

fn is_healthy(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"health\":\"true\""))
}

fn launch(
    program: &std::path::Path,
    dir: &std::path::Path,
    ports: [u16; 2],
) -> anyhow::Result<Process> {
    let [client, peer] = ports.map(url);
    let mut command = Command::new(program);
    command
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--data-dir"])
        .arg(dir.join("data"));
    let mut process = Process::spawn("etcd", command, &dir.join("log"))?;
    wait_for("etcd should listen", Duration::from_secs(60), || {
        process.ensure_running()?;
        Ok(TcpStream::connect(("127.0.0.1", ports[0])).is_ok().then_some(()))
    })?;
    Ok(process)
}
