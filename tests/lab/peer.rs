//! qemu-storage-daemon as a server: what a test of ours must also pass on.

use crate::nbd::Handshake;
use crate::process::Process;
use crate::{DiskSpec, Lab, Server, tools, wait_for};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The program.
pub const QEMU_STORAGE_DAEMON: &str = "qemu-storage-daemon";

/// A running qemu-storage-daemon with one raw file per disk.
pub struct StorageDaemon {
    dir: PathBuf,
    nbd: PathBuf,
    disks: Vec<String>,
    process: Process,
}

impl StorageDaemon {
    /// Starts it with empty disks and waits until it serves them.
    pub fn start(lab: &Lab, disks: &[DiskSpec]) -> anyhow::Result<StorageDaemon> {
        let dir = lab.subdir("qsd")?;
        for disk in disks {
            tools::sparse_file(&image(&dir, &disk.name), disk.size)?;
        }
        let disks = disks.iter().map(|d| d.name.clone()).collect::<Vec<_>>();
        let nbd = dir.join("nbd.sock");
        let process = launch(&dir, &nbd, &disks)?;
        Ok(StorageDaemon { dir, nbd, disks, process })
    }
}

fn launch(dir: &Path, nbd: &Path, disks: &[String]) -> anyhow::Result<Process> {
    let mut command = Command::new(QEMU_STORAGE_DAEMON);
    command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={}", nbd.display()));
    for name in disks {
        let (image, socket) = (image(dir, name), vhost_socket(dir, name));
        command.arg("--blockdev").arg(format!(
            "driver=file,node-name={name},filename={},cache.direct=on,aio=io_uring,discard=unmap",
            image.display()
        ));
        command
            .arg("--export")
            .arg(format!("type=nbd,id=nbd-{name},node-name={name},name={name},writable=on"));
        command.arg("--export").arg(format!(
            "type=vhost-user-blk,id=vhost-{name},node-name={name},writable=on,num-queues=4,\
             addr.type=unix,addr.path={}",
            socket.display()
        ));
    }
    let mut process = Process::spawn(QEMU_STORAGE_DAEMON, command, &dir.join("log"))?;
    wait_for("qemu-storage-daemon should greet NBD clients", Duration::from_secs(20), || {
        process.ensure_running()?;
        Ok(Handshake::connect(nbd).ok())
    })?;
    Ok(process)
}

fn image(dir: &Path, disk: &str) -> PathBuf {
    dir.join(format!("{disk}.raw"))
}

fn vhost_socket(dir: &Path, disk: &str) -> PathBuf {
    dir.join(format!("{disk}.sock"))
}

impl Server for StorageDaemon {
    fn name(&self) -> &'static str {
        QEMU_STORAGE_DAEMON
    }

    fn nbd_socket(&self) -> &Path {
        &self.nbd
    }

    fn vhost_socket(&self, disk: &str) -> PathBuf {
        vhost_socket(&self.dir, disk)
    }

    fn image(&self, disk: &str) -> anyhow::Result<PathBuf> {
        Ok(image(&self.dir, disk))
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.process.terminate(Duration::from_secs(20))
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()
    }

    fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = launch(&self.dir, &self.nbd, &self.disks)?;
        Ok(())
    }
}
