//! The control side of one connection: vhost-user messages in, commands to the port out.
//!
//! Everything that is validated once and for all is validated here, on the connection's own thread,
//! which may block.

use super::config::{MAX_MEM_SLOTS, MAX_QUEUES, PROTOCOL_FEATURES, features};
use super::memory::{InflightArea, MemoryTable};
use super::memory_rules::{GuestMemorySource, MemoryRules};
use super::port::{BadEvent, Command, Enabled, Kick, MovedRing, NewRing, Signal, Trust};
use super::view::View;
use super::{Refused, hung_up};
use headgate_engine::PortRef;
use headgate_engine::request::Durability;
use headgate_vring::blk::feature;
use headgate_vring::layout::MAX_QUEUE_SIZE;
use headgate_vring::{DeviceQueue, QueueFeatures, QueueLayout};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error as ProtocolError, GpuBackend, Result as ProtocolResult, VhostUserBackendReqHandlerMut,
};

/// How often the control thread looks, while a ring stops, whether its front-end is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Addresses of a ring in the front-end's own address space.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RingAddresses {
    descriptors: u64,
    available: u64,
    used: u64,
}

/// What the front-end has said of one queue so far.
struct Setup {
    size: u16,
    addresses: Option<RingAddresses>,
    base: u16,
    call: Option<Signal>,
    error: Option<Signal>,
    enabled: Enabled,
    /// The port has the ring.
    started: bool,
}

impl Setup {
    fn new() -> Setup {
        Setup {
            size: 0,
            addresses: None,
            base: 0,
            call: None,
            error: None,
            enabled: Enabled::No,
            started: false,
        }
    }
}

/// The device as one front-end sees it.
pub(super) struct Device {
    port: PortRef,
    peer: UnixStream,
    view: Arc<View>,
    trust: Arc<Trust>,
    features: u64,
    table: MemoryTable,
    inflight: Option<InflightArea>,
    queues: Vec<Setup>,
}

impl From<Refused> for ProtocolError {
    fn from(refused: Refused) -> ProtocolError {
        ProtocolError::ReqHandlerError(std::io::Error::other(refused))
    }
}

impl Device {
    pub(super) fn new(
        port: PortRef,
        peer: UnixStream,
        view: Arc<View>,
        trust: Arc<Trust>,
        memory: GuestMemorySource,
    ) -> Result<Device, Refused> {
        let queues = (0..MAX_QUEUES).map(|_| Setup::new()).collect();
        let table = MemoryTable::empty(MemoryRules::new(memory))?;
        Ok(Device { port, peer, view, trust, features: 0, table, inflight: None, queues })
    }

    fn new_signal(&self) -> impl FnOnce(File) -> Result<Signal, BadEvent> + use<> {
        let trust = self.trust.clone();
        move |file| Signal::new(file, trust)
    }

    fn tell(&self, command: Command) -> Result<(), Refused> {
        self.port.command(Box::new(command)).map_err(|_| Refused::Detached)
    }

    fn queue(&mut self, index: u32) -> Result<&mut Setup, Refused> {
        let why =
            || Refused::Queue { queue: index, why: format!("the device has {MAX_QUEUES} queues") };
        self.queues.get_mut(index as usize).ok_or_else(why)
    }

    /// A queue whose ring does not run: its set-up may change.
    fn idle_queue(&mut self, index: u32) -> Result<&mut Setup, Refused> {
        let queue = self.queue(index)?;
        if queue.started {
            return Err(Refused::Queue {
                queue: index,
                why: "its ring runs: stop it first".into(),
            });
        }
        Ok(queue)
    }

    fn layout(&self, setup: &Setup, index: u32) -> Result<QueueLayout, Refused> {
        let why = || Refused::Queue {
            queue: index,
            why: "kicked off before its addresses were set".into(),
        };
        let at = setup.addresses.ok_or_else(why)?;
        Ok(QueueLayout {
            size: setup.size,
            descriptors: self.table.guest_address(at.descriptors)?,
            available: self.table.guest_address(at.available)?,
            used: self.table.guest_address(at.used)?,
        })
    }

    fn start(&mut self, index: u8, kick: Kick) -> Result<(), Refused> {
        let queue = u32::from(index);
        let setup = self.queues.get(usize::from(index)).ok_or(Refused::NotServed("this queue"))?;
        let layout = self.layout(setup, queue)?;
        let region =
            self.inflight.as_ref().map(|area| area.region(u16::from(index))).transpose()?;
        let memory = Arc::clone(self.table.memory());
        let features = QueueFeatures::from_bits(self.features);
        let device_queue = DeviceQueue::start(memory, &layout, features, setup.base, region)
            .map_err(|e| Refused::Queue { queue, why: e.to_string() })?;
        let flushes = self.features & feature::FLUSH != 0;
        let setup = &mut self.queues[usize::from(index)];
        setup.started = true;
        let new = NewRing {
            index: u16::from(index),
            queue: device_queue,
            enabled: setup.enabled,
            durability: if flushes { Durability::Cached } else { Durability::Fua },
            kick,
            call: setup.call.take(),
            error: setup.error.take(),
        };
        self.tell(Command::Start(Box::new(new)))?;
        self.view.tell();
        Ok(())
    }

    /// Stops a ring and waits until nothing of it is in flight. Answers its position in the
    /// available ring. The disk's limit may keep that waiting, and with it this front-end, as long
    /// as it is there; nobody else waits.
    fn stop(&mut self, index: u32) -> Result<u16, Refused> {
        let started = std::mem::replace(&mut self.queue(index)?.started, false);
        let (answer, wait) = sync_channel(1);
        // Also when it does not run: others may wait for its replays.
        self.tell(Command::Stop(index as u16, answer))?;
        match self.wait(&wait)? {
            Some(base) => self.queue(index)?.base = base,
            None if started => return Err(Refused::Detached),
            None => {}
        }
        Ok(self.queue(index)?.base)
    }

    /// Waits for the port's answer, unless the front-end goes: the port is then to be closed, not
    /// to be waited for. `None`: the port has dropped the sender, for it has no such ring, or has
    /// ended.
    fn wait(&self, answer: &Receiver<u16>) -> Result<Option<u16>, Refused> {
        loop {
            match answer.recv_timeout(LOOK_EVERY) {
                Ok(base) => return Ok(Some(base)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if hung_up(&self.peer) => {
                    return Err(Refused::HungUp);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Puts a new memory table in force for every started ring.
    fn set_table(&mut self, table: MemoryTable) -> Result<(), Refused> {
        self.table = table;
        let mut moved = Vec::new();
        for (index, setup) in self.queues.iter().enumerate().filter(|(_, s)| s.started) {
            moved
                .push(MovedRing { index: index as u16, layout: self.layout(setup, index as u32)? });
        }
        if moved.is_empty() {
            return Ok(());
        }
        let (answer, wait) = sync_channel(1);
        self.tell(Command::Memory(Arc::clone(self.table.memory()), moved, answer))?;
        match wait.recv().map_err(|_| Refused::Detached)?.first() {
            None => Ok(()),
            Some(lost) => {
                let why = "its rings do not lie in the new memory table".into();
                Err(Refused::Queue { queue: u32::from(*lost), why })
            }
        }
    }

    /// Back to the state before negotiation, but for the memory.
    fn reset(&mut self) -> Result<(), Refused> {
        for index in 0..u32::from(MAX_QUEUES) {
            if self.queue(index)?.started {
                self.stop(index)?;
            }
            *self.queue(index)? = Setup::new();
        }
        self.features = 0;
        self.inflight = None;
        self.tell(Command::ExpectReplays(Vec::new()))
    }
}

fn event<T>(
    index: u8,
    file: Option<File>,
    made: impl FnOnce(File) -> Result<T, BadEvent>,
) -> Result<Option<T>, Refused> {
    let why = |e: BadEvent| Refused::Queue { queue: u32::from(index), why: e.to_string() };
    file.map(made).transpose().map_err(why)
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> ProtocolResult<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> ProtocolResult<()> {
        Ok(self.reset()?)
    }

    fn reset_device(&mut self) -> ProtocolResult<()> {
        Ok(self.reset()?)
    }

    fn get_features(&mut self) -> ProtocolResult<u64> {
        Ok(features(&self.view.disk()))
    }

    fn set_features(&mut self, chosen: u64) -> ProtocolResult<()> {
        let unknown = chosen & !features(&self.view.disk());
        if unknown != 0 {
            return Err(Refused::Features(unknown).into());
        }
        self.features = chosen;
        if chosen & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            // Without protocol features there is no message to enable a ring: it is enabled from
            // the start.
            for setup in &mut self.queues {
                setup.enabled = Enabled::Yes;
            }
        }
        Ok(())
    }

    fn get_protocol_features(&mut self) -> ProtocolResult<VhostUserProtocolFeatures> {
        Ok(PROTOCOL_FEATURES)
    }

    fn set_protocol_features(&mut self, features: u64) -> ProtocolResult<()> {
        match features & !PROTOCOL_FEATURES.bits() {
            0 => Ok(()),
            unknown => Err(Refused::Features(unknown).into()),
        }
    }

    fn get_queue_num(&mut self) -> ProtocolResult<u64> {
        Ok(u64::from(MAX_QUEUES))
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> ProtocolResult<Option<Vec<u64>>> {
        self.set_table(self.table.replaced(regions, files)?)?;
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> ProtocolResult<u64> {
        Ok(MAX_MEM_SLOTS)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        fd: File,
        _postcopy: Option<bool>,
    ) -> ProtocolResult<Option<u64>> {
        self.set_table(self.table.with(region, fd)?)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> ProtocolResult<()> {
        Ok(self.set_table(self.table.without(region)?)?)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> ProtocolResult<()> {
        let size = u16::try_from(num).ok().filter(|n| n.is_power_of_two() && *n <= MAX_QUEUE_SIZE);
        let why = format!("{num} descriptors: not a power of two up to {MAX_QUEUE_SIZE}");
        self.idle_queue(index)?.size = size.ok_or(Refused::Queue { queue: index, why })?;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> ProtocolResult<()> {
        let addresses = Some(RingAddresses { descriptors, available, used });
        // Front-ends repeat the addresses of a running ring to change flags that mean nothing here.
        if self.queue(index)?.addresses != addresses {
            self.idle_queue(index)?.addresses = addresses;
        }
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> ProtocolResult<()> {
        let why = || Refused::Queue { queue: index, why: format!("base {base} of a split ring") };
        self.idle_queue(index)?.base = u16::try_from(base).map_err(|_| why())?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> ProtocolResult<VhostUserVringState> {
        let base = self.stop(index)?;
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> ProtocolResult<()> {
        let why = "no eventfd for kicks: polling is not served".into();
        let refused = Refused::Queue { queue: u32::from(index), why };
        let kick = event(index, fd, Kick::new)?.ok_or(refused)?;
        if self.queue(u32::from(index))?.started {
            // A second kick descriptor for a running ring: go on from where it is.
            self.stop(u32::from(index))?;
        }
        Ok(self.start(index, kick)?)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> ProtocolResult<()> {
        let call = event(index, fd, self.new_signal())?;
        let setup = self.queue(u32::from(index))?;
        if !setup.started {
            setup.call = call;
            return Ok(());
        }
        Ok(self.tell(Command::Call(u16::from(index), call))?)
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> ProtocolResult<()> {
        let error = event(index, fd, self.new_signal())?;
        let setup = self.queue(u32::from(index))?;
        if !setup.started {
            setup.error = error;
            return Ok(());
        }
        Ok(self.tell(Command::Error(u16::from(index), error))?)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> ProtocolResult<()> {
        let enabled = if enable { Enabled::Yes } else { Enabled::No };
        let setup = self.queue(index)?;
        setup.enabled = enabled;
        if setup.started {
            self.tell(Command::Enable(index as u16, enabled))?;
        }
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> ProtocolResult<Vec<u8>> {
        Ok(self.view.read(offset, size))
    }

    fn set_config(
        &mut self,
        _offset: u32,
        _buf: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> ProtocolResult<()> {
        // The only writable field is the cache mode, whose feature is not offered.
        Err(Refused::NotServed("writing the configuration space").into())
    }

    fn get_inflight_fd(
        &mut self,
        inflight: &VhostUserInflight,
    ) -> ProtocolResult<(VhostUserInflight, File)> {
        check_inflight(inflight)?;
        Ok(InflightArea::create(inflight.num_queues, inflight.queue_size)?)
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> ProtocolResult<()> {
        check_inflight(inflight)?;
        if self.queues.iter().any(|q| q.started) {
            return Err(Refused::NotServed("changing the in-flight region of running rings").into());
        }
        let area = InflightArea::map(inflight, file, self.table.rules())?;
        let marked = area.marked()?;
        self.inflight = Some(area);
        if !marked.is_empty() {
            let (disk, queues) = (self.view.disk().name, marked.len());
            tracing::info!(disk, queues, "requests of a former process will be replayed");
        }
        Ok(self.tell(Command::ExpectReplays(marked))?)
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> ProtocolResult<()> {
        Err(Refused::NotServed("a GPU socket").into())
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> ProtocolResult<File> {
        Err(Refused::NotServed("a shared object").into())
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> ProtocolResult<Option<File>> {
        Err(Refused::NotServed("device state transfer").into())
    }

    fn check_device_state(&mut self) -> ProtocolResult<()> {
        Err(Refused::NotServed("device state transfer").into())
    }

    fn get_shmem_config(&mut self) -> ProtocolResult<VhostUserShMemConfig> {
        Err(Refused::NotServed("shared memory regions").into())
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> ProtocolResult<()> {
        Err(Refused::NotServed("dirty page logging").into())
    }
}

fn check_inflight(inflight: &VhostUserInflight) -> Result<(), Refused> {
    let VhostUserInflight { num_queues, queue_size, .. } = *inflight;
    if num_queues > MAX_QUEUES || queue_size > MAX_QUEUE_SIZE {
        let why = format!("in-flight region for {num_queues} queues of {queue_size}");
        return Err(Refused::Memory(why));
    }
    Ok(())
}
