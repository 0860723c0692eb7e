//! What is on a device or in a file, by the bytes that file systems, volume managers and disk
//! images put at known places. Pure: it is given the bytes.

/// How much of the beginning is looked at.
pub(super) const HEAD: u64 = (1 << 20) + 4096;

/// How much of the end is looked at: the oldest superblocks of md are up to 128 KiB before it.
pub(super) const TAIL: u64 = 128 << 10;

/// The beginning and the end of a device or a file. Shorter ones overlap.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    /// The first [`HEAD`] bytes.
    pub head: &'a [u8],
    /// The last [`TAIL`] bytes.
    pub tail: &'a [u8],
    /// Size of all, in bytes.
    pub size: u64,
}

/// Bytes that tell, and where they are.
struct Magic {
    what: &'static str,
    /// From the beginning.
    at: usize,
    bytes: &'static [u8],
}

const fn magic(what: &'static str, at: usize, bytes: &'static [u8]) -> Magic {
    Magic { what, at, bytes }
}

/// All but disk images.
const ON_DEVICES: &[Magic] = &[
    magic("a GPT partition table", 512, b"EFI PART"),
    magic("a GPT partition table", 4096, b"EFI PART"),
    magic("an ext2, ext3 or ext4 file system", 1080, b"\x53\xef"),
    magic("an XFS file system", 0, b"XFSB"),
    magic("a Btrfs file system", 65600, b"_BHRfS_M"),
    magic("a bcachefs file system", 4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9"),
    magic("a bcache device", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    magic("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    magic("an EROFS file system", 1024, b"\xe2\xe1\xf5\xe0"),
    magic("a SquashFS file system", 0, b"hsqs"),
    magic("a JFS file system", 32768, b"JFS1"),
    magic("a ReiserFS file system", 65588, b"ReIsEr"),
    magic("a GFS2 file system", 65536, b"\x01\x16\x19\x70"),
    magic("an OCFS2 file system", 1024, b"OCFSV2"),
    magic("an OCFS2 file system", 2048, b"OCFSV2"),
    magic("an OCFS2 file system", 4096, b"OCFSV2"),
    magic("an APFS container", 32, b"NXSB"),
    magic("an HFS+ file system", 1024, b"H+\0\x04"),
    magic("an HFS+ file system", 1024, b"HX\0\x05"),
    magic("an ISO 9660 file system", 32769, b"CD001"),
    magic("an NTFS file system", 3, b"NTFS    "),
    magic("a BitLocker volume", 3, b"-FVE-FS-"),
    magic("an exFAT file system", 3, b"EXFAT   "),
    magic("a FAT file system", 54, b"FAT12   "),
    magic("a FAT file system", 54, b"FAT16   "),
    magic("a FAT file system", 82, b"FAT32   "),
    magic("a VMFS volume", 1 << 20, b"\x0d\xd0\x01\xc0"),
    magic("swap space", 4086, b"SWAPSPACE2"),
    magic("swap space", 8182, b"SWAPSPACE2"),
    magic("swap space", 16374, b"SWAPSPACE2"),
    magic("swap space", 65526, b"SWAPSPACE2"),
    magic("an LVM physical volume", 0, b"LABELONE"),
    magic("an LVM physical volume", 512, b"LABELONE"),
    magic("an LVM physical volume", 1024, b"LABELONE"),
    magic("an LVM physical volume", 1536, b"LABELONE"),
    magic("a LUKS container", 16384, b"SKUL\xba\xbe"),
    magic("a part of an md array", 0, MD),
    magic("a part of an md array", 4096, MD),
    magic("a Ceph BlueStore device", 0, b"bluestore block device"),
];

/// Of md's superblocks.
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";

/// Files that hold a disk in another form than byte by byte.
const IMAGES: &[(Magic, Container)] = &[
    (magic("a qcow2 image", 0, b"QFI\xfb"), Container::QemuImg("qcow2")),
    (magic("a VMDK image", 0, b"KDMV"), Container::QemuImg("vmdk")),
    (magic("a VMDK image", 0, b"COWD"), Container::QemuImg("vmdk")),
    (magic("the description of a VMDK image", 0, b"# Disk Desc"), Container::QemuImg("vmdk")),
    (magic("a VHDX image", 0, b"vhdxfile"), Container::QemuImg("vhdx")),
    (magic("a VHD image", 0, b"conectix"), Container::QemuImg("vpc")),
    (magic("a VDI image", 64, b"\x7f\x10\xda\xbe"), Container::QemuImg("vdi")),
    (magic("a QED image", 0, b"QED\0"), Container::QemuImg("qed")),
    (magic("a Parallels image", 0, b"WithoutFreeSpace"), Container::QemuImg("parallels")),
    (magic("a Parallels image", 0, b"WithouFreSpacExt"), Container::QemuImg("parallels")),
    (magic("a LUKS container", 0, b"LUKS\xba\xbe"), Container::Luks),
];

/// How to get at the disk in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    /// By `qemu-img`, which calls the format so.
    QemuImg(&'static str),
    /// By its key.
    Luks,
}

impl Ends<'_> {
    fn has(&self, magic: &Magic) -> bool {
        self.head.get(magic.at..).is_some_and(|rest| rest.starts_with(magic.bytes))
    }

    /// Whether these bytes are so far from the beginning.
    fn has_at(&self, at: Option<u64>, bytes: &[u8]) -> bool {
        let begin = self.size.saturating_sub(self.tail.len() as u64);
        let at = at.and_then(|at| usize::try_from(at.checked_sub(begin)?).ok());
        at.and_then(|at| self.tail.get(at..)).is_some_and(|rest| rest.starts_with(bytes))
    }

    fn before_end(&self, distance: u64) -> Option<u64> {
        self.size.checked_sub(distance)
    }

    /// A disk in a form of its own. What it is, and how to get at it.
    pub(super) fn container(&self) -> Option<(&'static str, Container)> {
        let found = IMAGES.iter().find(|(magic, _)| self.has(magic));
        let fixed_vhd = || {
            let footer = self.has_at(self.before_end(512), b"conectix");
            footer.then_some(("a VHD image", Container::QemuImg("vpc")))
        };
        found.map(|(magic, container)| (magic.what, *container)).or_else(fixed_vhd)
    }

    /// All that is found, each once.
    pub(super) fn signatures(&self) -> Vec<&'static str> {
        let mut found: Vec<&str> =
            ON_DEVICES.iter().filter(|magic| self.has(magic)).map(|magic| magic.what).collect();
        found.extend(self.container().map(|(what, _)| what));
        if self.has_zfs() {
            found.push("a part of a ZFS pool");
        }
        // A copy at the end outlives a beginning that was overwritten.
        let last = [512, 4096].map(|sector| self.before_end(sector));
        if last.iter().any(|at| self.has_at(*at, b"EFI PART")) {
            found.push("a GPT partition table");
        }
        // Versions 1.0 and 0.90.
        let md = [
            self.before_end(8192).map(|at| at & !4095),
            (self.size & !0xffff).checked_sub(0x1_0000),
        ];
        if md.iter().any(|at| self.has_at(*at, MD)) {
            found.push("a part of an md array");
        }
        let intel = self.has_at(self.before_end(1024), b"Intel Raid ISM Cfg");
        if intel || self.has_at(self.before_end(512), b"\xde\x11\xde\x11") {
            found.push("a part of a firmware's RAID");
        }
        // FAT and NTFS have it too.
        if found.is_empty() && self.has(&magic("", 510, b"\x55\xaa")) {
            found.push("a partition table or a boot sector");
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Any of the uberblocks of the first label.
    fn has_zfs(&self) -> bool {
        let blocks = self.head.get(128 << 10..256 << 10).unwrap_or_default();
        let magics: [&[u8]; 2] = [b"\x0c\xb1\xba\0\0\0\0\0", b"\0\0\0\0\0\xba\xb1\x0c"];
        blocks.chunks(1024).any(|block| magics.iter().any(|magic| block.starts_with(magic)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 2 << 20;

    fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut content = vec![0; SIZE];
        content[at..at + bytes.len()].copy_from_slice(bytes);
        content
    }

    fn ends(content: &[u8]) -> Ends<'_> {
        let head = &content[..content.len().min(HEAD as usize)];
        let tail = &content[content.len().saturating_sub(TAIL as usize)..];
        Ends { head, tail, size: content.len() as u64 }
    }

    #[test]
    fn everything_in_the_tables_is_found_where_it_is_and_nowhere_else() {
        let images = IMAGES.iter().map(|(magic, _)| magic);
        for magic in ON_DEVICES.iter().chain(images) {
            let content = with(magic.at, magic.bytes);
            assert_eq!(ends(&content).signatures(), [magic.what], "at {}", magic.at);
            let beside = with(magic.at + 7, magic.bytes);
            assert!(!ends(&beside).signatures().contains(&magic.what), "{}", magic.what);
        }
        for (magic, container) in IMAGES {
            let content = with(magic.at, magic.bytes);
            assert_eq!(ends(&content).container(), Some((magic.what, *container)));
        }
    }

    #[test]
    fn what_is_at_the_end_is_found() {
        let of = |before: usize, bytes: &[u8]| {
            let content = with(SIZE - before, bytes);
            ends(&content).signatures()
        };
        assert_eq!(of(512, b"EFI PART"), ["a GPT partition table"]);
        assert_eq!(of(4096, b"EFI PART"), ["a GPT partition table"]);
        assert_eq!(of(8192, MD), ["a part of an md array"]);
        assert_eq!(of(65536, MD), ["a part of an md array"]);
        assert_eq!(of(1024, b"Intel Raid ISM Cfg Sig."), ["a part of a firmware's RAID"]);
        assert_eq!(of(512, b"conectix"), ["a VHD image"]);
        assert_eq!(of(511, b"conectix"), [""; 0]);
    }

    #[test]
    fn an_empty_device_has_nothing_and_a_boot_sector_is_told() {
        assert!(ends(&[0; SIZE]).signatures().is_empty());
        assert!(ends(&[]).signatures().is_empty());
        let mut sector = with(510, b"\x55\xaa");
        assert_eq!(ends(&sector).signatures(), ["a partition table or a boot sector"]);
        sector[3..11].copy_from_slice(b"NTFS    ");
        assert_eq!(ends(&sector).signatures(), ["an NTFS file system"]);
        let zfs = with((128 << 10) + 3 * 1024, b"\x0c\xb1\xba\0\0\0\0\0");
        assert_eq!(ends(&zfs).signatures(), ["a part of a ZFS pool"]);
    }

    proptest! {
        #[test]
        fn any_content_of_any_size_is_judged(
            content in proptest::collection::vec(any::<u8>(), 0..20_000),
        ) {
            let ends = ends(&content);
            let (found, container) = (ends.signatures(), ends.container());
            prop_assert!(container.is_none_or(|(what, _)| found.contains(&what)));
        }
    }
}
