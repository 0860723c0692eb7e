//! What the first bytes of a file say about its format.

use crate::Format;

/// Bytes that are looked at.
pub(crate) const LEN: usize = 512;

/// Formats that are not read here, by their first bytes. Taken byte by byte, a guest would find
/// the format's tables in place of its data.
const FOREIGN: &[(&[u8], &str)] = &[
    (b"KDMV", "VMDK"),
    (b"COWD", "VMDK"),
    (b"# Disk DescriptorFile", "VMDK"),
    (b"vhdxfile", "VHDX"),
    (b"conectix", "VHD"),
    (b"QED\0", "QED"),
    (b"WithoutFreeSpace", "Parallels"),
    (b"WithouFreSpacExt", "Parallels"),
    (b"LUKS\xba\xbe", "LUKS"),
];
/// Where VirtualBox's format has its magic number, and that number.
const VDI: (usize, [u8; 4]) = (0x40, [0x7f, 0x10, 0xda, 0xbe]);
/// How qcow2 begins.
pub(crate) const QCOW2: [u8; 4] = *b"QFI\xfb";

/// What the first bytes look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Like an image of this format. What looks like nothing in particular is raw.
    Like(Format),
    /// Like a format that is not read here.
    Foreign(&'static str),
}

/// Looks at the first [`LEN`] bytes of a file, or at all if it has fewer.
pub(crate) fn looks(head: &[u8]) -> Looks {
    if head.starts_with(&QCOW2) {
        return Looks::Like(Format::Qcow2);
    }
    if head.get(VDI.0..VDI.0 + 4) == Some(&VDI.1) {
        return Looks::Foreign("VDI");
    }
    let foreign = FOREIGN.iter().find(|(magic, _)| head.starts_with(magic));
    foreign.map_or(Looks::Like(Format::Raw), |(_, name)| Looks::Foreign(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_first_bytes() {
        assert_eq!(looks(b"QFI\xfb\0\0\0\x03"), Looks::Like(Format::Qcow2));
        assert_eq!(looks(b"KDMV\x01"), Looks::Foreign("VMDK"));
        let mut vdi = vec![0; LEN];
        vdi[0x40..0x44].copy_from_slice(&VDI.1);
        assert_eq!(looks(&vdi), Looks::Foreign("VDI"));
        for raw in [&b""[..], b"QF", b"\xebc\x90", &[0; LEN]] {
            assert_eq!(looks(raw), Looks::Like(Format::Raw));
        }
    }
}
