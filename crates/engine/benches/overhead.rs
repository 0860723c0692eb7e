//! What the engine itself costs per request: a port that keeps N requests outstanding on a null
//! datastore.
//!
//! `cargo bench -p headgate-engine --bench overhead` prints CPU time of the shard's thread per
//! request, median and spread of nine runs. No system call lies on this path but the ring's own,
//! once per turn.

use headgate_engine::port::{Detach, Port, PortCommand, PortEvent, PortIo, Rest};
use headgate_engine::request::{Completion, DiskInfo, Op, Request};
use headgate_engine::{BackendSpec, DatastoreSpec, DiskSpec, Engine, EngineConfig, Image};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::Bytes;
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const REQUESTS: u64 = 1_000_000;

struct Spinner {
    depth: usize,
    left: u64,
    idle: usize,
    buffer: Vec<u8>,
    began: u64,
    done: Sender<u64>,
}

fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Spinner {
    fn feed(&mut self, io: &mut dyn PortIo) {
        let buffer = libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: 512 };
        let mut room = io.room().min(self.idle);
        while room > 0 && self.left > 0 {
            let offset = self.left.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 2048 * 512;
            let request = Request { op: Op::Read, offset, len: 512, cookie: 0, ioprio: 0 };
            // SAFETY: the buffer lives as long as the port.
            unsafe { io.submit(request, &[buffer]) };
            (room, self.left, self.idle) = (room - 1, self.left - 1, self.idle - 1);
        }
    }
}

impl Port for Spinner {
    fn on_start(&mut self, io: &mut dyn PortIo) {
        self.began = thread_nanos();
        self.feed(io);
    }
    fn on_event(&mut self, _: &mut dyn PortIo, _: PortEvent) {}
    fn on_command(&mut self, _: &mut dyn PortIo, _: PortCommand) {}
    fn on_room(&mut self, io: &mut dyn PortIo) {
        self.feed(io);
    }
    fn on_complete(&mut self, _: &mut dyn PortIo, completion: Completion) {
        assert_eq!(completion.result, Ok(()));
        self.idle += 1;
    }
    fn on_turn_end(&mut self, io: &mut dyn PortIo) {
        self.feed(io);
        if self.left == 0 && self.idle == self.depth {
            let _ = self.done.send(thread_nanos() - self.began);
            io.close();
        }
    }
    fn on_resize(&mut self, _: &mut dyn PortIo, _: &DiskInfo) {}
    fn come_to_rest(&mut self, _io: &mut dyn PortIo) -> Rest {
        Rest::Busy
    }
    fn on_arrive(&mut self, _io: &mut dyn PortIo) {}
    fn on_detach(&mut self, io: &mut dyn PortIo, _: Detach) {
        io.close();
    }
}

fn run(depth: usize, scheduler: SchedulerKind) -> f64 {
    let engine =
        Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).expect("an engine");
    let ds = engine
        .add_datastore(DatastoreSpec {
            name: "null".into(),
            backend: BackendSpec::Null,
            layers: Vec::new(),
            scheduler,
            queue_depth: 32,
            qos: headgate_qos::Config::default(),
        })
        .expect("a datastore");
    let image = Image::null(Bytes::from_mib(1)).expect("a disk");
    let disk = engine
        .open_disk(ds, DiskSpec { name: "d".into(), image, policy: Policy::default() })
        .expect("a disk");
    let (done, wait) = channel();
    let spinner = move |_: &DiskInfo| {
        Box::new(Spinner {
            depth,
            left: REQUESTS,
            idle: depth,
            buffer: vec![0; 4096],
            began: 0,
            done,
        }) as Box<dyn Port>
    };
    engine.attach(disk, spinner).expect("a port");
    let nanos = wait.recv().expect("a result");
    engine.shutdown(Duration::from_secs(5)).expect("a clean end");
    nanos as f64 / REQUESTS as f64
}

fn main() {
    println!("{:<10} {:>6} {:>12} {:>18}", "scheduler", "depth", "ns/request", "min..max");
    for scheduler in [SchedulerKind::Fifo, SchedulerKind::MClock] {
        for depth in [1, 32, 256] {
            let mut runs: Vec<f64> = (0..9).map(|_| run(depth, scheduler)).collect();
            runs.sort_by(f64::total_cmp);
            println!(
                "{:<10} {depth:>6} {:>12.0} {:>18}",
                format!("{scheduler:?}"),
                runs[4],
                format!("{:.0}..{:.0}", runs[0], runs[8])
            );
        }
    }
}
