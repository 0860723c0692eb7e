//! A client that stands still, as no real one may.

use headgate_engine::port::{Detach, Port, PortCommand, PortEvent, PortIo, Rest};
use headgate_engine::request::{Completion, DiskInfo};
use std::sync::mpsc::{Receiver, Sender};

/// Blocks its shard when it is told to, until it is told to go on.
pub struct Blocker {
    pub blocked: Sender<()>,
    pub go_on: Receiver<()>,
}

impl Port for Blocker {
    fn on_command(&mut self, _io: &mut dyn PortIo, _command: PortCommand) {
        self.blocked.send(()).unwrap();
        let _ = self.go_on.recv();
    }
    fn on_start(&mut self, _io: &mut dyn PortIo) {}
    fn on_complete(&mut self, _io: &mut dyn PortIo, _completion: Completion) {}
    fn on_event(&mut self, _io: &mut dyn PortIo, _event: PortEvent) {}
    fn on_room(&mut self, _io: &mut dyn PortIo) {}
    fn on_turn_end(&mut self, _io: &mut dyn PortIo) {}
    fn on_resize(&mut self, _io: &mut dyn PortIo, _info: &DiskInfo) {}
    fn come_to_rest(&mut self, _io: &mut dyn PortIo) -> Rest {
        Rest::Busy
    }
    fn on_arrive(&mut self, _io: &mut dyn PortIo) {}
    fn on_detach(&mut self, _io: &mut dyn PortIo, _how: Detach) {}
}
