//! The cpio format "newc" that the kernel unpacks as initramfs (kernel documentation, "initramfs
//! buffer format").

use std::io::{self, Write};

/// Writes an archive entry by entry.
pub(crate) struct Archive<W> {
    to: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(to: W) -> Archive<W> {
        Archive { to, inode: 0 }
    }

    /// A directory; its parents come before it.
    pub(crate) fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, 0o040755, (0, 0), &[])
    }

    pub(crate) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, 0o100000 | permissions, (0, 0), content)
    }

    pub(crate) fn character_device(
        &mut self,
        path: &str,
        major: u32,
        minor: u32,
    ) -> io::Result<()> {
        self.entry(path, 0o020600, (major, minor), &[])
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.to.flush()
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let size = u32::try_from(content.len()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{path} is over 4 GiB"))
        })?;
        self.inode += 1;
        let name_size = path.len() as u32 + 1;
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor,
        // namesize, check
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        let mut head = String::from("070701");
        head.extend(fields.iter().map(|f| format!("{f:08x}")));
        head.push_str(path);
        head.push('\0');
        pad(&mut self.to, head.as_bytes())?;
        pad(&mut self.to, content)
    }
}

/// Writes bytes and zeroes up to the next multiple of four.
fn pad(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])
}
