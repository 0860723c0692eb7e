//! qemu-storage-daemon as a server: what a test of ours must also pass on.

use crate::nbd::Handshake;
use crate::process::Process;
use crate::{DiskSpec, Lab, Server, tools, wait_for};
use std::os::unix::fs::MetadataExt;
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

/// Whether a file is locked, as QEMU locks its images. Such a lock lives as long as the open file,
/// which requests in an io_uring hold open beyond the death of their process.
fn is_open_by_a_locker(image: &Path) -> anyhow::Result<bool> {
    let inode = std::fs::metadata(image)?.ino();
    let locks = std::fs::read_to_string("/proc/locks")?;
    // "1: OFDLCK ADVISORY READ -1 fe:00:131 100 101": the sixth is device and inode, proc_locks(5).
    let inodes =
        locks.lines().filter_map(|line| line.split_whitespace().nth(5)?.rsplit(':').next());
    Ok(inodes.into_iter().any(|locked| locked == inode.to_string()))
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

    /// Also waits for what a process that is gone leaves in the kernel: its last writes, which a
    /// successor's would otherwise be overtaken by. Headgate waits for that itself when it starts.
    fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        self.disks.iter().map(|disk| image(&self.dir, disk)).try_for_each(|image| {
            wait_for(
                "the last requests of a killed server should end",
                Duration::from_secs(60),
                || Ok((!is_open_by_a_locker(&image)?).then_some(())),
            )
        })
    }

    fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = launch(&self.dir, &self.nbd, &self.disks)?;
        Ok(())
    }
}
