//! Disk images: what the control side opens and hands to a backend.

use super::file::image::{Caching, FileImage, ImageError};
use super::nbd::connection::{Connection, Export};
use super::nbd::{Announced, PATIENCE};
use super::size::is_disk_size;
use super::storage::Source;
use crate::request::Access;
use crate::topology::{Told, Topology};
use headgate_mirror::stamp::Stamp;
use headgate_nbd::client::connections::Connections;
use headgate_nbd::uri::Uri;
use headgate_nbd_io::ClientTls;
use headgate_stripe::{Label, Layout, Lease, Stage, StripeId};
use headgate_units::{AtomicNanos, Bytes};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// An image: opened, locked and measured.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    size: u64,
    block_size: u32,
    source: Source,
}

/// An export that holds a part of a striped disk.
#[derive(Debug)]
pub struct StripeMember {
    /// Where it is.
    pub uri: Uri,
    /// `None`: the server is not there yet.
    pub connection: Option<Connection>,
}

impl Image {
    /// Creates a sparse file of this size, and makes it and its directory entry durable.
    ///
    /// # Errors
    /// When the size is not a disk's, the file exists, or the file system refuses. Nothing is left
    /// behind then.
    pub fn create(path: &Path, size: Bytes) -> Result<(), ImageError> {
        FileImage::create(path, size)
    }

    /// Removes an image file and makes that durable. A file that is gone already is fine.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove(path: &Path) -> Result<(), ImageError> {
        FileImage::remove(path)
    }

    /// Opens an image file and becomes its only writer, waiting up to `patience` for a killed
    /// predecessor's last requests to leave the kernel. Blocks: not for a shard's thread.
    ///
    /// The last part of the path is no symbolic link: it may be in a directory that others write
    /// to.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn open(path: &Path, caching: Caching, patience: Duration) -> Result<Image, ImageError> {
        let (file, size, block_size) = FileImage::open(path, caching, patience)?;
        Ok(Image { path: path.to_owned(), size, block_size, source: Source::File(file) })
    }

    /// Opens a block device in the same manner, by a path of the operator's, which may be a link.
    /// Nobody on this host has it mounted or claimed at that moment.
    ///
    /// # Errors
    /// [`ImageError::Claimed`] when somebody has; see [`ImageError`].
    pub fn open_device(
        path: &Path,
        caching: Caching,
        patience: Duration,
    ) -> Result<Image, ImageError> {
        let (file, size, block_size) = FileImage::open_device(path, caching, patience)?;
        Ok(Image { path: path.to_owned(), size, block_size, source: Source::File(file) })
    }

    /// A disk without storage: reads are zeroes, writes vanish. For measuring the path to the
    /// backend.
    ///
    /// # Errors
    /// [`ImageError::Size`].
    pub fn null(size: Bytes) -> Result<Image, ImageError> {
        if !is_disk_size(size.0) {
            return Err(ImageError::Size(size.0));
        }
        Ok(Image { path: PathBuf::new(), size: size.0, block_size: 512, source: Source::Null })
    }

    /// A RAM disk of this size, full of zeroes. Pages take memory when they are written first. The
    /// content is gone with the image.
    ///
    /// # Errors
    /// [`ImageError::Size`], or [`ImageError::Io`] when there is no memory.
    pub fn memory(size: Bytes) -> Result<Image, ImageError> {
        let (file, size, block_size) = FileImage::memory(size)?;
        Ok(Image { path: PathBuf::new(), size, block_size, source: Source::Memory(file) })
    }

    /// An export of an NBD server, of this size and block size (512 to 4096). Without a connection
    /// the disk tries until it has one. Until then, and whenever the connection is lost or the
    /// server is silent, requests wait for up to [`PATIENCE`], and then fail.
    ///
    /// # Errors
    /// [`ImageError::Size`] when the size is not whole blocks.
    pub fn remote(
        uri: Uri,
        size: Bytes,
        block_size: u32,
        connection: Option<Connection>,
    ) -> Result<Image, ImageError> {
        let known = (512..=4096).contains(&block_size) && block_size.is_power_of_two();
        if size.0 == 0 || !known || !size.0.is_multiple_of(u64::from(block_size)) {
            return Err(ImageError::Size(size.0));
        }
        Ok(Image {
            path: PathBuf::from(uri.to_string()),
            size: size.0,
            block_size,
            source: Source::Export(Box::new(Export {
                uri,
                size,
                block_size,
                connection,
                patience: PATIENCE,
                tls: Arc::new(ClientTls::by_uri()),
                label: None,
                announced: None,
                connections: Connections::ONE,
            })),
        })
    }

    /// A disk that is striped over exports, by member, and held by this lease: exports with another
    /// are not used. As with [`Image::remote`], connections may be missing.
    ///
    /// # Errors
    /// [`ImageError::Size`] when there is not an export for each member, or the block size is not
    /// one of 512 to 4096.
    pub fn striped(
        id: StripeId,
        layout: Layout,
        lease: Lease,
        block_size: u32,
        members: Vec<StripeMember>,
    ) -> Result<Image, ImageError> {
        let known = (512..=4096).contains(&block_size) && block_size.is_power_of_two();
        if !known || members.len() != usize::from(layout.members()) {
            return Err(ImageError::Size(layout.size().0));
        }
        let names: Vec<String> = members.iter().map(|member| member.uri.to_string()).collect();
        let exports = (0..).zip(members).map(|(index, member)| Export {
            uri: member.uri,
            size: layout.member_size(),
            block_size,
            connection: member.connection,
            patience: PATIENCE,
            tls: Arc::new(ClientTls::by_uri()),
            label: Some(Label { id, index, layout, lease, stage: Stage::Made }),
            announced: None,
            connections: Connections::ONE,
        });
        Ok(Image {
            path: PathBuf::from(names.join(",")),
            size: layout.size().0,
            block_size,
            source: Source::Stripe(exports.collect(), layout),
        })
    }

    /// Has requests of an export wait for a server that is gone or silent for so long. Others wait
    /// for [`PATIENCE`]; for other images it has no meaning.
    #[must_use]
    pub fn patient(mut self, patience: Duration) -> Image {
        self.exports_mut().iter_mut().for_each(|export| export.patience = patience);
        self
    }

    /// Keeps so many connections to each server of exports, where it says that it can have several
    /// ([`Connections`]). Others get one; for other images it has no meaning.
    #[must_use]
    pub fn over(mut self, connections: Connections) -> Image {
        self.exports_mut().iter_mut().for_each(|export| export.connections = connections);
        self
    }

    /// Has the servers of a striped disk told this on every connection. For other images it has no
    /// meaning.
    #[must_use]
    pub fn announcing(mut self, announced: Arc<Announced>) -> Image {
        let striped = matches!(self.source, Source::Stripe(..));
        for export in self.exports_mut().iter_mut().filter(|_| striped) {
            export.announced = Some(announced.clone());
        }
        self
    }

    /// Has an export that is reached over TLS do so with this, for every connection. For other
    /// images it has no meaning.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<ClientTls>) -> Image {
        self.exports_mut().iter_mut().for_each(|export| export.tls = tls.clone());
        self
    }

    /// Lets no request go to the storage after this instant of `CLOCK_BOOTTIME`, which the holder
    /// of the disk's lease moves on as it is prolonged. Requests wait while it is over. For files
    /// and block devices: nobody else reaches images in memory, and exports have no leases.
    #[must_use]
    pub fn until(mut self, term: Arc<AtomicNanos>) -> Image {
        if let Source::File(file) = &mut self.source {
            file.set_term(term);
        }
        self
    }

    /// Has `refused` set when its device refuses a request because it is reserved for another host,
    /// and hands nothing over to it after that: requests wait until their clients are cut off. For
    /// block devices that are reserved for this host.
    #[must_use]
    pub fn reserved(mut self, refused: Arc<AtomicBool>) -> Image {
        if let Source::File(file) = &mut self.source {
            file.set_refused(refused);
        }
        self
    }

    /// The open file or block device; `None` of other images.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::File(file) => Some(file.file().as_fd()),
            Source::Memory(_) | Source::Null | Source::Export(_) | Source::Stripe(..) => None,
        }
    }

    /// What its file system says of it now. Nobody can change it later and leave it that, but for
    /// changes of the next instants ([`Stamp::sees_from`]). `None` of what is no file on a local
    /// file system that is known to tell. Blocks.
    pub fn stamp(&self) -> Option<Stamp> {
        match &self.source {
            Source::File(file) => file.stamp(),
            Source::Memory(_) | Source::Null | Source::Export(_) | Source::Stripe(..) => None,
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// The smallest unit of a request, in bytes.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The sizes of requests that its storage serves best. Of a server's export that is what the
    /// server prefers, if it answered when the image was opened.
    pub fn topology(&self) -> Topology {
        match &self.source {
            Source::File(file) | Source::Memory(file) => file.topology(),
            Source::Export(export) => {
                let told = export.connection.as_ref().map(Connection::told);
                Topology::of(self.block_size, told.unwrap_or_default())
            }
            // What reaches all members at once, in units of one.
            Source::Stripe(_, layout) => {
                Topology::of(self.block_size, Told { min_io: layout.unit().0, ..Told::default() })
            }
            Source::Null => Topology::plain(self.block_size),
        }
    }

    /// Whether requests go around the host's page cache.
    pub fn access(&self) -> Access {
        self.source.access()
    }

    /// Where the image lies: a path, the URI of an export, or nothing for a disk without storage.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn exports_mut(&mut self) -> &mut [Export] {
        match &mut self.source {
            Source::Export(export) => std::slice::from_mut(&mut **export),
            Source::Stripe(exports, _) => exports,
            Source::File(_) | Source::Memory(_) | Source::Null => &mut [],
        }
    }

    pub(crate) fn source_mut(&mut self) -> &mut Source {
        &mut self.source
    }

    pub(crate) fn into_source(self) -> Source {
        self.source
    }
}
