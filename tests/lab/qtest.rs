//! A machine without a guest: its processor halts at its first instruction, and the test drives a
//! virtio-blk device of it by port IO and writes to memory, as a driver may that keeps to no
//! manners.
//!
//! QEMU has an accelerator of that name too, which has no processor. Distributions leave it out.
//!
//! Sources: QEMU's "qtest" protocol (`softmmu/qtest.c`, comment at its head); PCI Local Bus 3.0,
//! section 3.2.2.3.2 (configuration mechanism 1) and chapter 6; VIRTIO 1.2, section 4.1.4.10
//! (legacy interface over PCI), 2.7.2 (legacy layout of a virtqueue) and 5.2.6 (block requests).

use crate::guest::QEMU;
use crate::process::Process;
use crate::{Lab, wait_for};
use anyhow::{Context, ensure};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long an answer may take. A reset waits for what is at the storage.
const PATIENCE: Duration = Duration::from_secs(120);

const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
const CONFIG_ENABLE: u32 = 1 << 31;
const SLOT: u32 = 4;
const COMMAND: u32 = 0x04;
/// Port IO, memory, and the device as a master of the bus.
const COMMAND_ALL: u32 = 7;
const BAR_0: u32 = 0x10;
/// A transitional block device of virtio.
const BLOCK_DEVICE: u32 = 0x1001_1af4;

/// Where the device's registers are put.
const BASE: u16 = 0xc000;
const DRIVER_FEATURES: u16 = BASE + 4;
const QUEUE_PAGE: u16 = BASE + 8;
const QUEUE_SIZE: u16 = BASE + 12;
const QUEUE_SELECT: u16 = BASE + 14;
const QUEUE_NOTIFY: u16 = BASE + 16;
const DEVICE_STATUS: u16 = BASE + 18;
/// `ACKNOWLEDGE | DRIVER`, and with `DRIVER_OK`.
const STATUS_DRIVER: u8 = 3;
const STATUS_DRIVER_OK: u8 = 7;

/// Firmware: `hlt`, at the reset vector and everywhere else. Interrupts are off after a reset.
static FIRMWARE: [u8; 64 << 10] = [0xf4; 64 << 10];

const MEMORY_MIB: u32 = 16;
const RING_SIZE: u16 = 128;
const RING: u64 = 0x10_0000;
const AVAILABLE: u64 = RING + 16 * RING_SIZE as u64;
const USED: u64 = RING + 0x1000;
/// All requests share their buffers.
const HEADER: u64 = RING + 0x2000;
const STATUS: u64 = RING + 0x3000;
const DATA: u64 = RING + 0x4000;
const BLOCK: u32 = 4096;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// A status byte that no device writes.
const NO_STATUS: u8 = 0xee;

/// Reads of one block that fill the ring, at three descriptors each.
pub const READS: u16 = RING_SIZE / 3;

/// The driver of a `vhost-user-blk-pci` device in QEMU. Dropping it ends QEMU.
pub struct BareDriver {
    qemu: Process,
    stream: BufReader<UnixStream>,
}

impl BareDriver {
    /// Starts QEMU with the disk behind `socket`, and finds the device.
    ///
    /// # Errors
    /// QEMU does not come up, or has no such device.
    pub fn start(lab: &Lab, socket: &Path) -> anyhow::Result<BareDriver> {
        let dir = lab.subdir("qtest")?;
        let (control, firmware) = (dir.join("qtest.sock"), dir.join("firmware"));
        std::fs::write(&firmware, FIRMWARE)?;
        let mut command = Command::new(QEMU);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg"]);
        command.arg("-bios").arg(firmware);
        command.args(["-machine", "pc,memory-backend=memory", "-m", &format!("{MEMORY_MIB}M")]);
        command.args(["-qtest-log", "none", "-object"]);
        command.arg(format!("memory-backend-memfd,id=memory,share=on,size={MEMORY_MIB}M"));
        command.arg("-qtest").arg(format!("unix:{},server=on,wait=off", control.display()));
        command.arg("-chardev").arg(format!("socket,id=disk,path={}", socket.display()));
        command.arg("-device").arg(format!(
            "vhost-user-blk-pci,chardev=disk,num-queues=1,queue-size={RING_SIZE},addr={SLOT},disable-legacy=off"
        ));
        let mut qemu = Process::spawn("QEMU", command, &dir.join("log"))?;
        let stream = wait_for("QEMU should take commands", PATIENCE, || {
            qemu.ensure_running()?;
            Ok(UnixStream::connect(&control).ok())
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut driver = BareDriver { qemu, stream: BufReader::new(stream) };
        driver.find_device()?;
        driver.lay_ring()?;
        Ok(driver)
    }

    /// Gives the device its registers.
    fn find_device(&mut self) -> anyhow::Result<()> {
        self.send(&[outl(CONFIG_ADDRESS, config_address(0))])?;
        let identity = self.ask(&format!("inl {CONFIG_DATA:#x}"))?;
        ensure!(identity == u64::from(BLOCK_DEVICE), "slot {SLOT} holds {identity:#x}");
        self.send(&[
            outl(CONFIG_ADDRESS, config_address(BAR_0)),
            outl(CONFIG_DATA, BASE.into()),
            outl(CONFIG_ADDRESS, config_address(COMMAND)),
            outl(CONFIG_DATA, COMMAND_ALL),
        ])?;
        self.send(&[outw(QUEUE_SELECT, 0)])?;
        let size = self.ask(&format!("inw {QUEUE_SIZE:#x}"))?;
        ensure!(size == u64::from(RING_SIZE), "the device's ring has {size} entries");
        Ok(())
    }

    /// Writes what all rounds have in common: descriptors, and the header of a read at 0.
    fn lay_ring(&mut self) -> anyhow::Result<()> {
        let mut table = Vec::new();
        let mut descriptor = |addr: u64, len: u32, flags: u16, next: u16| {
            table.extend(addr.to_le_bytes());
            table.extend(len.to_le_bytes());
            table.extend(flags.to_le_bytes());
            table.extend(next.to_le_bytes());
        };
        for head in (0..READS).map(|read| 3 * read) {
            descriptor(HEADER, 16, NEXT, head + 1);
            descriptor(DATA, BLOCK, NEXT | WRITE, head + 2);
            descriptor(STATUS, 1, WRITE, 0);
        }
        self.send(&[write(RING, &table), write(HEADER, &[0; 16])])
    }

    /// Sets the device up with a ring full of reads, and kicks it. It must be new or reset.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn fill(&mut self) -> anyhow::Result<()> {
        let mut available: Vec<u8> = [0, READS].map(u16::to_le_bytes).concat();
        available.extend((0..READS).flat_map(|read| (3 * read).to_le_bytes()));
        self.send(&[
            write(AVAILABLE, &available),
            write(USED, &[0; 4]),
            write(STATUS, &[NO_STATUS]),
            outb(DEVICE_STATUS, STATUS_DRIVER),
            outl(DRIVER_FEATURES, 0),
            outw(QUEUE_SELECT, 0),
            outl(QUEUE_PAGE, (RING >> 12) as u32),
            outb(DEVICE_STATUS, STATUS_DRIVER_OK),
            outw(QUEUE_NOTIFY, 0),
        ])
    }

    /// Resets the device: writes 0 to its status. Returns when it has left the ring.
    ///
    /// # Errors
    /// QEMU is gone, or the device does not leave the ring in time.
    pub fn reset(&mut self) -> anyhow::Result<()> {
        self.send(&[outb(DEVICE_STATUS, 0)])
    }

    /// Waits until all that [`fill`](BareDriver::fill) offered was read.
    ///
    /// # Errors
    /// Not in time, or with a failure.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        wait_for("the device should serve its ring", PATIENCE, || {
            let used = self.ask(&format!("readw {:#x}", USED + 2))?;
            Ok((used == u64::from(READS)).then_some(()))
        })?;
        let status = self.ask(&format!("readb {STATUS:#x}"))?;
        ensure!(status == 0, "a read ended with status {status:#x}");
        Ok(())
    }

    /// Sends commands that answer nothing but that they are done.
    fn send(&mut self, commands: &[String]) -> anyhow::Result<()> {
        self.stream.get_mut().write_all((commands.join("\n") + "\n").as_bytes())?;
        for command in commands {
            let said = self.line().with_context(|| command.clone())?;
            ensure!(said == "OK", "{command}: {said}");
        }
        Ok(())
    }

    /// Sends a command that answers a number.
    fn ask(&mut self, command: &str) -> anyhow::Result<u64> {
        self.stream.get_mut().write_all(format!("{command}\n").as_bytes())?;
        let said = self.line().with_context(|| command.to_owned())?;
        let number = said.strip_prefix("OK 0x").with_context(|| format!("{command}: {said}"))?;
        Ok(u64::from_str_radix(number, 16)?)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        if !matches!(read, Ok(1..)) {
            self.qemu.ensure_running()?;
        }
        ensure!(read.context("no answer of QEMU")? > 0, "QEMU hung up");
        Ok(line.trim_end().to_owned())
    }
}

fn config_address(register: u32) -> u32 {
    CONFIG_ENABLE | SLOT << 11 | register
}

fn outb(port: u16, value: u8) -> String {
    format!("outb {port:#x} {value:#x}")
}

fn outw(port: u16, value: u16) -> String {
    format!("outw {port:#x} {value:#x}")
}

fn outl(port: u16, value: u32) -> String {
    format!("outl {port:#x} {value:#x}")
}

fn write(address: u64, bytes: &[u8]) -> String {
    let mut command = format!("write {address:#x} {:#x} 0x", bytes.len());
    for byte in bytes {
        write!(command, "{byte:02x}").expect("a string takes all");
    }
    command
}
