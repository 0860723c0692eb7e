//! The kernel's own targets, and what tools that are not Headgate's say of their reservations.

use super::PAGES;
use anyhow::{Context, ensure};
use headgate_lab::guest::Kernel;
use headgate_lab::{cache_dir, tools};
use std::path::PathBuf;

/// What there is to reserve.
#[derive(Clone, Copy, Debug)]
pub enum Device {
    /// A disk of the kernel's SCSI target, over iSCSI.
    Scsi,
    /// A namespace of the kernel's NVMe target, over TCP, of two hosts that know nothing of
    /// multipath.
    Nvme,
    /// The first over two paths, which the device mapper makes one device of. The second host has a
    /// path of its own.
    ScsiPaths,
    /// The second over two paths, which the kernel makes one device of. The second host's path is a
    /// third one of that device, which is not taken while there are others, and its host is only
    /// what tools say in its name.
    NvmePaths,
}

/// What a device says of its reservation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The registered keys.
    pub keys: Vec<String>,
    /// The key that has it reserved: Write Exclusive, Registrants Only.
    pub holder: Option<String>,
}

impl Seen {
    pub fn held_by(key: &str) -> Seen {
        Seen { keys: vec![key.to_owned()], holder: Some(key.to_owned()) }
    }
}

/// A program that `tests/install` unpacked beside the build.
fn unpacked(program: &str, path: &str) -> anyhow::Result<PathBuf> {
    let unpacked = cache_dir().join(path);
    let found = tools::find(program).or_else(|| unpacked.is_file().then_some(unpacked));
    found.with_context(|| format!("there is no {program}: run tests/install"))
}

fn key(hexadecimal: &str) -> anyhow::Result<String> {
    let digits = hexadecimal.trim().trim_start_matches("0x");
    let number = u64::from_str_radix(digits, 16).with_context(|| hexadecimal.to_owned())?;
    Ok(format!("0x{number:016x}"))
}

impl Device {
    /// What the first host calls it, and the second.
    pub fn paths(self) -> [&'static str; 2] {
        match self {
            Device::Scsi => ["/dev/sda", "/dev/sdb"],
            Device::Nvme => ["/dev/nvme0n1", "/dev/nvme1n1"],
            Device::ScsiPaths => ["/dev/dm-0", "/dev/sdc"],
            Device::NvmePaths => ["/dev/nvme0n1", "/dev/nvme2"],
        }
    }

    pub fn kernel(self) -> anyhow::Result<Option<Kernel>> {
        match self {
            Device::Scsi | Device::ScsiPaths => Kernel::find().map(Some),
            Device::Nvme | Device::NvmePaths => Ok(Kernel::newer()),
        }
    }

    /// With multipath, two ways to one namespace are one device, whoever the hosts are.
    pub fn kernel_words(self) -> &'static str {
        match self {
            Device::Scsi | Device::ScsiPaths | Device::NvmePaths => "",
            Device::Nvme => "nvme_core.multipath=N",
        }
    }

    pub fn modules(self) -> &'static [&'static str] {
        match self {
            Device::Scsi => {
                &["configfs", "target_core_mod", "iscsi_target_mod", "iscsi_tcp", "sd_mod"]
            }
            Device::ScsiPaths => &[
                "configfs",
                "target_core_mod",
                "iscsi_target_mod",
                "iscsi_tcp",
                "sd_mod",
                "dm-multipath",
                "dm-round-robin",
            ],
            Device::Nvme | Device::NvmePaths => &["configfs", "brd", "nvmet-tcp", "nvme-tcp"],
        }
    }

    pub fn programs(self) -> anyhow::Result<Vec<PathBuf>> {
        let of_scsi = || -> anyhow::Result<Vec<PathBuf>> {
            let iscsistart = unpacked("iscsistart", "open-iscsi/sbin/iscsistart")?;
            Ok(vec![tools::find("sg_persist").context("it was there")?, iscsistart])
        };
        Ok(match self {
            Device::Scsi => of_scsi()?,
            Device::ScsiPaths => {
                let dmsetup = tools::find("dmsetup").context("no dmsetup: run tests/install")?;
                of_scsi()?.into_iter().chain([dmsetup]).collect()
            }
            Device::Nvme | Device::NvmePaths => vec![unpacked("nvme", "nvme-cli/usr/sbin/nvme")?],
        })
    }

    /// The commands that make it, and a way to it for each host.
    pub fn set_up(self) -> String {
        match self {
            Device::Scsi => format!(
                "mkdir -p /var/target/pr && mkdir /sys/kernel/config/target/iscsi
                 target lun serial-of-lun {PAGES} 0 && path lun 0 1 && path lun 0 2"
            ),
            Device::Nvme => "nvme_target lun /dev/ram0 1 1 && nvme_path lun 1 1 1 && \
                             nvme_path lun 1 2 2"
                .to_owned(),
            Device::ScsiPaths => format!(
                "mkdir -p /var/target/pr && mkdir /sys/kernel/config/target/iscsi
                 target lun serial-of-lun {PAGES} 0 && path lun 0 1 && path lun 0 2 &&
                 path lun 0 3 && dmsetup create --noudevsync --uuid mpath-serial-of-lun paths \
                 --table '0 {} multipath 0 0 1 1 round-robin 0 2 1 8:0 1 8:16 1'",
                u64::from(PAGES) * 8
            ),
            Device::NvmePaths => "nvme_target lun /dev/ram0 1 1 && nvme_port lun 2 &&
                 nvme_port lun 3 && echo non-optimized >$port/ana_groups/1/ana_state &&
                 nvme_path lun 1 1 1 && nvme_path lun 2 1 1 && nvme_path lun 3 2 1 &&
                 until [ -c /dev/nvme2 ]; do usleep 100000; done"
                .to_owned(),
        }
    }

    /// Asks for keys and reservation, and not as the daemon does.
    pub fn question(self) -> String {
        let path = self.paths()[1];
        match self {
            Device::Scsi | Device::ScsiPaths => format!(
                "sg_persist --in --read-keys {path} && sg_persist --in --read-reservation {path}"
            ),
            Device::Nvme | Device::NvmePaths => {
                format!("nvme resv-report {path} --namespace-id=1 --eds --numd=255")
            }
        }
    }

    pub fn seen(self, said: &str) -> anyhow::Result<Seen> {
        let mut seen = Seen::default();
        let lines = said.lines().map(str::trim);
        match self {
            Device::Scsi | Device::ScsiPaths => {
                for line in lines.clone().filter(|line| line.starts_with("0x")) {
                    seen.keys.push(key(line)?);
                }
                if let Some(line) = lines.clone().find_map(|line| line.strip_prefix("Key=")) {
                    seen.holder = Some(key(line)?);
                    ensure!(said.contains("type: Write Exclusive, registrants only"), "{said}");
                } else {
                    ensure!(said.contains("there is NO reservation"), "{said}");
                }
            }
            Device::Nvme | Device::NvmePaths => {
                let mut kind = None;
                let mut holds = false;
                for (name, value) in lines.filter_map(|line| line.split_once(':')) {
                    let value = value.trim();
                    match name.trim() {
                        "rtype" => kind = Some(value.to_owned()),
                        "rcsts" => holds = value == "1",
                        "rkey" => {
                            seen.keys.push(key(value)?);
                            if holds {
                                seen.holder = Some(key(value)?);
                            }
                        }
                        _ => {}
                    }
                }
                let expected = if seen.holder.is_some() { "3" } else { "0" };
                ensure!(kind.as_deref() == Some(expected), "{said}");
            }
        }
        Ok(seen)
    }

    /// The second host, but not by Headgate, takes it from this key, with 0x99.
    pub fn taken_from(self, holder: &str) -> String {
        let path = self.paths()[1];
        match self {
            Device::Scsi | Device::ScsiPaths => format!(
                "sg_persist --out --register --param-sark=0x99 {path} && sg_persist --out --preempt \
                 --param-rk=0x99 --param-sark={holder} --prout-type=5 {path}"
            ),
            Device::Nvme | Device::NvmePaths => format!(
                "nvme resv-register {path} --namespace-id=1 --nrkey=0x99 --rrega=0 && \
                 nvme resv-acquire {path} --namespace-id=1 --crkey=0x99 --prkey={holder} --rtype=3 --racqa=1"
            ),
        }
    }

    /// And clears it.
    pub fn cleared(self) -> String {
        let path = self.paths()[1];
        match self {
            Device::Scsi | Device::ScsiPaths => {
                format!("sg_persist --out --clear --param-rk=0x99 {path}")
            }
            Device::Nvme | Device::NvmePaths => {
                format!("nvme resv-release {path} --namespace-id=1 --crkey=0x99 --rrela=1")
            }
        }
    }

    /// How many registrations the first host has: each path of SCSI is one, a host of NVMe is.
    pub fn registrations(self) -> usize {
        if matches!(self, Device::ScsiPaths) { 2 } else { 1 }
    }

    /// The first of two paths is gone.
    pub fn first_path_fails(self) -> &'static str {
        match self {
            Device::ScsiPaths => "dmsetup message paths 0 'fail_path 8:0'",
            _ => "echo 1 >$(nvme_controller 1)/delete_controller",
        }
    }

    /// It is there again, and the second is gone.
    pub fn second_path_fails(self) -> &'static str {
        match self {
            Device::ScsiPaths => {
                "dmsetup message paths 0 'reinstate_path 8:0' && \
                 dmsetup message paths 0 'fail_path 8:16'"
            }
            _ => {
                "nvme_path lun 1 1 1 && nvme_controller 1 && \
                 echo 1 >$(nvme_controller 2)/delete_controller"
            }
        }
    }
}
