//! Real guests: QEMU boots a Debian cloud kernel and runs the scripts that a test sends.

mod boot_disk;
mod emulator;
mod initramfs;
mod kernel;
mod monitor;
mod newc;

pub use boot_disk::boot_disk;
pub use kernel::Kernel;
pub use monitor::Monitor;
pub(crate) use newc::Archive;

use crate::process::{Process, tail};
use crate::{Lab, wait_for};
use anyhow::{Context, bail, ensure};
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The program.
pub const QEMU: &str = "qemu-system-x86_64";

/// How long a guest may take to boot on a busy machine without KVM.
const BOOT: Duration = Duration::from_secs(120);

/// The same from a disk, by the firmware, which reads a little at a time.
const BOOT_FROM_DISK: Duration = Duration::from_secs(360);

/// How long QEMU may take to end after it closed its port.
const END: Duration = Duration::from_secs(20);

/// How often a machine is started whose emulator fails it.
const STARTS: u32 = 3;

/// What the kernel is told. Without `no_timer_check`, one whose QEMU gets no CPU for a moment
/// believes that its timer is broken, and panics. `cryptomgr.notests`: no tests of its ciphers,
/// which take seconds without KVM.
const COMMAND_LINE: &str =
    "console=ttyS0 panic=-1 quiet loglevel=5 no_timer_check cryptomgr.notests";

/// How a disk reaches the guest. The first is `/dev/vda`, the next `/dev/vdb`.
#[derive(Clone, Debug)]
pub enum Drive {
    /// vhost-user-blk: the guest's memory is shared with the server. QEMU connects again when the
    /// server comes back.
    VhostUser {
        /// The server's socket for the disk.
        socket: PathBuf,
    },
    /// virtio-blk in QEMU over QEMU's own NBD client, which waits for a server that went away.
    Nbd {
        /// The NBD server's socket.
        socket: PathBuf,
        /// The export's name.
        export: String,
    },
    /// The arguments that a server prints for QEMU, memory included. At most one such drive, and no
    /// other vhost-user drive.
    AsPrinted(Vec<String>),
}

/// What a machine boots from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// QEMU puts kernel and initramfs into its memory.
    Memory,
    /// The firmware reads them from the first disk: see [`boot_disk`].
    Disk,
}

/// What machine to boot.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Names the guest in messages and its directory.
    pub name: String,
    /// Virtual CPUs; as many queues per vhost-user disk.
    pub cpus: u16,
    /// Memory in MiB; the initramfs takes about 250 at boot.
    pub memory_mib: u32,
    /// Its disks.
    pub drives: Vec<Drive>,
    /// From where.
    pub start: Start,
    /// Its kernel, if not the usual one.
    pub kernel: Option<Kernel>,
    /// What its kernel is told besides.
    pub kernel_words: String,
}

impl Machine {
    /// A machine with one CPU and one disk.
    pub fn new(name: &str, drive: Drive) -> Machine {
        let (name, drives) = (name.to_owned(), vec![drive]);
        let (kernel, kernel_words) = (None, String::new());
        Machine {
            name,
            cpus: 1,
            memory_mib: 512,
            drives,
            start: Start::Memory,
            kernel,
            kernel_words,
        }
    }
}

/// A running guest. Dropping it pulls its plug.
pub struct Guest {
    name: String,
    qemu: Process,
    console: PathBuf,
    monitor: PathBuf,
    port: BufReader<UnixStream>,
}

impl Guest {
    /// Boots a machine and waits until it takes scripts. Again, and aloud, when it was the
    /// emulator that failed.
    pub fn boot(lab: &Lab, machine: &Machine) -> anyhow::Result<Guest> {
        let mut left = STARTS;
        loop {
            left -= 1;
            match Guest::boot_once(lab, machine) {
                Err(error) if left > 0 && emulator::has_failed(&error) => {
                    eprintln!("BOOTED AGAIN, for the emulator has failed: {error:#}");
                }
                booted => return booted,
            }
        }
    }

    fn boot_once(lab: &Lab, machine: &Machine) -> anyhow::Result<Guest> {
        let kernel = machine.kernel.clone().map_or_else(Kernel::find, Ok)?;
        let initramfs = initramfs::path(&kernel)?;
        let dir = lab.subdir(&machine.name)?;
        let (console, socket) = (dir.join("console"), dir.join("port.sock"));
        let monitor = dir.join("monitor.sock");
        let mut command = Command::new(QEMU);
        let accel = env::var("HEADGATE_LAB_ACCEL").unwrap_or_else(|_| "tcg".to_owned());
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
            "-accel",
            &accel,
        ]);
        command.args(["-machine", "q35", "-smp", &machine.cpus.to_string()]);
        if !machine.drives.iter().any(|drive| matches!(drive, Drive::AsPrinted(_))) {
            command.args([
                "-m",
                &machine.memory_mib.to_string(),
                "-machine",
                "memory-backend=memory",
                "-object",
            ]);
            command.arg(format!(
                "memory-backend-memfd,id=memory,share=on,size={}M",
                machine.memory_mib
            ));
        }
        if machine.start == Start::Memory {
            command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initramfs);
            command.args(["-append", &format!("{COMMAND_LINE} {}", machine.kernel_words)]);
        }
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command
            .arg("-chardev")
            .arg(format!("socket,id=port,server=on,wait=off,path={}", socket.display()));
        command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        command.args(["-device", "virtio-serial-pci"]);
        command.args(["-device", "virtserialport,chardev=port,name=headgate.lab"]);
        for (i, drive) in machine.drives.iter().enumerate() {
            match drive {
                Drive::VhostUser { socket } => {
                    let socket = socket.display();
                    command
                        .arg("-chardev")
                        .arg(format!("socket,id=drive{i},reconnect=1,path={socket}"));
                    let first = match (machine.start, i) {
                        (Start::Disk, 0) => ",bootindex=0",
                        _ => "",
                    };
                    command.arg("-device");
                    command.arg(format!(
                        "vhost-user-blk-pci,chardev=drive{i},num-queues={}{first}",
                        machine.cpus
                    ));
                }
                Drive::Nbd { socket, export } => {
                    command.arg("-blockdev").arg(format!(
                        "driver=nbd,node-name=drive{i},export={export},reconnect-delay=120,cache.direct=on,\
                         discard=unmap,server.type=unix,server.path={}",
                        socket.display()
                    ));
                    command
                        .arg("-device")
                        .arg(format!("virtio-blk-pci,drive=drive{i},write-cache=on"));
                }
                Drive::AsPrinted(arguments) => {
                    command.args(arguments);
                }
            }
        }
        let mut qemu = Process::spawn(&machine.name, command, &dir.join("qemu.log"))?;
        let stream = wait_for("QEMU should open its port", Duration::from_secs(20), || {
            qemu.ensure_running()?;
            Ok(UnixStream::connect(&socket).ok())
        })?;
        let port = BufReader::new(stream);
        let mut guest = Guest { name: machine.name.clone(), qemu, console, monitor, port };
        let within = match machine.start {
            Start::Memory => BOOT,
            Start::Disk => BOOT_FROM_DISK,
        };
        let line = guest.line(within).map_err(|e| emulator::judge(e, &guest.console()))?;
        ensure!(line == "ready", "{}: unexpected first line {line:?}", guest.name);
        Ok(guest)
    }

    /// Connects to QEMU's monitor.
    pub fn monitor(&self) -> anyhow::Result<Monitor> {
        Monitor::connect(&self.monitor)
    }

    /// Runs a shell script in the guest and returns its output. Any exit status but 0 is an error.
    pub fn run(&mut self, script: &str, within: Duration) -> anyhow::Result<String> {
        let (status, output) = self.run_any(script, within)?;
        if status != 0 {
            bail!(
                "{}: exit status {status} of\n{script}\n{output}\n{}",
                self.name,
                tail(&self.console)
            );
        }
        Ok(output)
    }

    /// Runs a shell script in the guest and returns its exit status and output.
    pub fn run_any(&mut self, script: &str, within: Duration) -> anyhow::Result<(i32, String)> {
        let port = self.port.get_mut();
        port.write_all(format!("{}\n{script}", script.len()).as_bytes())?;
        let head = self.line(within).with_context(|| format!("while running\n{script}"))?;
        let (status, length) = head.split_once(' ').context("a line of exit status and length")?;
        let mut output = vec![0; length.parse()?];
        self.port.read_exact(&mut output)?;
        Ok((status.parse()?, String::from_utf8_lossy(&output).into_owned()))
    }

    /// Unmounts, syncs and powers off, as an administrator would, and waits for QEMU to end.
    pub fn power_off(mut self) -> anyhow::Result<()> {
        let script = "sync; umount -a -t ext4 2>/dev/null; poweroff -f";
        self.port.get_mut().write_all(format!("{}\n{script}", script.len()).as_bytes())?;
        let status =
            self.qemu.wait(Duration::from_secs(60)).with_context(|| tail(&self.console))?;
        ensure!(
            status.success(),
            "{}: QEMU ended with {status}\n{}",
            self.name,
            tail(&self.console)
        );
        Ok(())
    }

    /// What the guest's kernel has said on the console so far.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    fn line(&mut self, within: Duration) -> anyhow::Result<String> {
        self.port.get_ref().set_read_timeout(Some(within))?;
        let mut line = String::new();
        match self.port.read_line(&mut line) {
            Ok(0) => {
                let status = self.qemu.wait(END)?;
                let (said, console) = (self.qemu.said(), tail(&self.console));
                bail!("{}: QEMU ended ({status})\n{said}\n{console}", self.name);
            }
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => {
                bail!(
                    "{}: no answer within {within:?} ({error})\n{}",
                    self.name,
                    tail(&self.console)
                )
            }
        }
    }
}
