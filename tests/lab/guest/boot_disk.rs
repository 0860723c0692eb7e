//! A disk that a machine's firmware boots from: a file system with a boot loader, the kernel and
//! the initramfs.

use super::{COMMAND_LINE, Kernel, initramfs};
use crate::Lab;
use crate::process::run;
use anyhow::Context;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const MINUTES: Duration = Duration::from_secs(300);

/// Makes the image of one, of this many MiB. It needs `mkfs.vfat`, `mcopy` and `syslinux`.
pub fn boot_disk(lab: &Lab, mib: u64) -> anyhow::Result<PathBuf> {
    let kernel = Kernel::find()?;
    let dir = lab.subdir("boot-disk")?;
    let [image, initrd, config] =
        ["disk.raw", "initrd.gz", "syslinux.cfg"].map(|name| dir.join(name));
    // Firmware reads slowly; what is half as long is there in half the time.
    let mut pack = Command::new("gzip");
    pack.args(["-1", "-c"]).arg(initramfs::path(&kernel)?).stdout(File::create(&initrd)?);
    let packed = pack.stdin(Stdio::null()).status().context("gzip")?;
    anyhow::ensure!(packed.success(), "gzip: {packed}");
    let entry = format!(
        "SERIAL 0\nDEFAULT lab\nLABEL lab\nLINUX vmlinuz\nINITRD initrd.gz\nAPPEND {COMMAND_LINE}\n"
    );
    std::fs::write(&config, entry)?;
    File::create(&image)?.set_len(mib << 20)?;
    let mut format = Command::new("mkfs.vfat");
    // The whole disk is the file system: it begins where the disk does.
    format.args(["-F", "32", "-h", "0"]).arg(&image);
    run(format, MINUTES)?;
    let mut install = Command::new("syslinux");
    install.arg("--install").arg(&image);
    run(install, MINUTES)?;
    for (file, name) in
        [(&kernel.image, "vmlinuz"), (&initrd, "initrd.gz"), (&config, "syslinux.cfg")]
    {
        let mut copy = Command::new("mcopy");
        copy.arg("-i").arg(&image).arg(file).arg(format!("::{name}"));
        run(copy, MINUTES)?;
    }
    Ok(image)
}
