//! Disks' storage, as the engine opens it.

use crate::engine_parts::{LOCK_PATIENCE, StoreKind, failed, image_failed};
use crate::engine_plane::EnginePlane;
use crate::translate;
use headgate_devices::ModelSpec;
use headgate_engine::StripeMember;
use headgate_engine::backend::nbd::{self, Connection};
use headgate_engine::{Access as ImageAccess, Caching, DiskId, DiskSpec, Image};
use headgate_model::{
    MemberContent, MemberProbe, Name, OpenDisk, PlaneError, RemoteDisk, ServerLeases, Session,
    SizeRule, StripedDisk,
};
use headgate_nbd::counters::Counting;
use headgate_nbd::uri::Uri;
use headgate_stripe::{Label, Stage};
use headgate_units::Bytes;
use std::time::Duration;

/// How long connecting to a member's export and reading or writing its label may take.
const MEMBER_PATIENCE: Duration = Duration::from_secs(10);

impl EnginePlane {
    fn remote_image(
        &self,
        disk: &Name,
        remote: RemoteDisk,
        size: Bytes,
    ) -> Result<Image, PlaneError> {
        let RemoteDisk { mut uris, block_size, stripe, session, connections } = remote;
        if let Some(StripedDisk { id, layout, lease, policy }) = stripe {
            let label = |(index, uri): (u16, &Uri)| {
                (uri.clone(), Label { id, index, layout, lease, stage: Stage::Made })
            };
            let members = (0..).zip(&uris).map(label).collect();
            let announced = self.announced.begin(disk, members, policy);
            let member = |uri| StripeMember { uri, connection: None };
            let members = uris.into_iter().map(member).collect();
            let image = Image::striped(id, layout, lease, block_size, members).map_err(failed)?;
            return Ok(image.announcing(announced).over(connections));
        }
        let uri = uris.pop().ok_or_else(|| PlaneError::new("it is on no server"))?;
        let connection = session.and_then(Session::into_inner::<Connection>);
        let image = Image::remote(uri, size, block_size, connection).map_err(failed)?;
        Ok(image.over(connections))
    }

    /// See [`headgate_model::DataPlane::look_at_member`].
    pub(crate) fn look_at(&self, uri: &Uri) -> Result<MemberProbe, PlaneError> {
        let found = nbd::look_at_member(uri, MEMBER_PATIENCE, &self.tls).map_err(failed)?;
        let content = match found.content {
            nbd::MemberContent::Nothing => MemberContent::Nothing,
            nbd::MemberContent::Labelled(label) => MemberContent::Labelled(label),
            nbd::MemberContent::Other(why) => MemberContent::Other(why.to_string()),
        };
        let leases = match found.counting {
            Counting::Agreed(_) => ServerLeases::Known,
            Counting::None => ServerLeases::Unknown,
        };
        Ok(MemberProbe { size: found.size, block_size: found.block_size, content, leases })
    }

    /// See [`headgate_model::DataPlane::label_member`].
    pub(crate) fn label(&self, uri: &Uri, label: &Label) -> Result<(), PlaneError> {
        nbd::label_member(uri, MEMBER_PATIENCE, &self.tls, label).map_err(failed)
    }

    fn image(&self, disk: &OpenDisk) -> Result<Image, PlaneError> {
        let kind = self.kind(&disk.datastore);
        let caching = match kind {
            Some(StoreKind::Memory) => return Image::memory(disk.size).map_err(failed),
            Some(StoreKind::Model(ModelSpec::Null)) => {
                return Image::null(disk.size).map_err(failed);
            }
            // The speed of an emulated device is its model's: the file under it should be faster,
            // so it is cached.
            Some(StoreKind::Model(_)) => Caching::Buffered,
            Some(StoreKind::Storage | StoreKind::Device) | None => Caching::PreferDirect,
        };
        let image = match kind {
            Some(StoreKind::Device) => Image::open_device(&disk.image, caching, LOCK_PATIENCE),
            _ => Image::open(&disk.image, caching, LOCK_PATIENCE),
        };
        let image = image.map_err(image_failed)?;
        if image.size() != disk.size && disk.size_rule == SizeRule::Exactly {
            return Err(PlaneError {
                error: format!(
                    "{} has {} bytes, and the disk {}: if that is right, the disk takes the size \
                     with 'headgate disk resize {}'",
                    disk.image.display(),
                    image.size().0,
                    disk.size.0,
                    disk.name
                ),
                hint: Some("take the size, restore the image, or remove the disk".into()),
            });
        }
        Ok(image)
    }

    /// Opens a disk's storage in its datastore, by this name. It has the disk's policy and
    /// priorities, and fails requests that its storage fails.
    pub(crate) fn open_storage(
        &self,
        name: &str,
        disk: &mut OpenDisk,
    ) -> Result<DiskId, PlaneError> {
        let store = self.store(&disk.datastore)?;
        let image = match disk.remote.take() {
            Some(remote) => {
                self.remote_image(&disk.name, remote, disk.size)?.with_tls(self.tls.clone())
            }
            None => self.image(disk)?,
        };
        let image = match disk.term.take() {
            Some(term) => image.until(term),
            None => image,
        };
        let refused = match (disk.fence.take(), image.as_fd()) {
            (Some(fence), Some(device)) => fence.raise(device)?,
            _ => None,
        };
        let image = match refused {
            Some(refused) => image.reserved(refused),
            None => image,
        };
        let expects_direct = self
            .stores()
            .get(&disk.datastore)
            .is_some_and(|store| store.kind == StoreKind::Storage);
        if image.access() != ImageAccess::Direct && expects_direct {
            tracing::warn!(disk = %disk.name, image = %image.path().display(),
                "the file system has no direct IO: requests go through the host's page cache");
        }
        let policy = disk.policy.for_scheduler().map_err(failed)?;
        // It is locked: nobody else changes it from now on, and no client has it yet.
        let noted = disk.noted.take().filter(|noted| image.stamp() == Some(noted.stamp));
        let spec = DiskSpec { name: name.to_owned(), image, policy };
        let id = self.engine.open_disk(store, spec).map_err(failed)?;
        if let Some(noted) = noted
            && let Err(error) = self.engine.track_changes(id, noted.changes)
        {
            tracing::warn!(disk = %disk.name, %error, "what clients change of it is not noted");
        }
        self.put_in_force(id, disk)?;
        Ok(id)
    }

    /// What a disk whose storage is open is to be.
    pub(crate) fn put_in_force(&self, id: DiskId, disk: &OpenDisk) -> Result<(), PlaneError> {
        let policy = disk.policy.for_scheduler().map_err(failed)?;
        self.engine.set_policy(id, policy).map_err(failed)?;
        self.engine.set_writes(id, translate::writes(disk.writes)).map_err(failed)?;
        let priorities = translate::engine_priorities(&disk.priorities);
        self.engine.set_priorities(id, priorities).map_err(failed)
    }
}
