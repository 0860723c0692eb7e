//! The storage and the guest: one disk for the kernel's schedulers, and one for each tenant of
//! Headgate, on emulated storage of the same kind.

use crate::contender::Contender;
use crate::question::{Answer, Question};
use anyhow::Context;
use headgate_lab::guest::{Drive, Guest, Machine};
use headgate_lab::headgate::Headgate;
use headgate_lab::{Lab, Server};
use std::time::Duration;

/// The disk of the guest that all tenants share.
pub const SHARED: &str = "vda";
/// Places in the queue of that disk: as many as the window behind Headgate's disks has, so that the
/// device takes as many requests from either.
pub const PLACES: u32 = 32;
const TENANTS: usize = 4;

/// The disk of the guest that a tenant of Headgate has.
pub fn tenant_disk(tenant: usize) -> String {
    format!("vd{}", char::from(b'b' + tenant as u8))
}

/// Daemon and guest.
pub struct Stage {
    daemon: Headgate,
    guest: Guest,
    rate: u32,
}

impl Stage {
    /// Starts both. `more` follows the rate in the device's model.
    pub fn new(lab: &Lab, rate: u32, more: &str) -> anyhow::Result<Stage> {
        let daemon = Headgate::start(lab)?;
        let model = format!("rate={rate}{more}");
        let places = format!("--queue-depth={PLACES}");
        for (name, scheduler) in [("kernel", "fifo"), ("headgate", "mclock")] {
            let scheduler = format!("--scheduler={scheduler}");
            let add = ["datastore", "add", name, "--emulated", &model, &places, &scheduler];
            daemon.command(&add)?;
        }
        let mut disks = vec!["shared".to_owned()];
        daemon.command(&["disk", "create", "shared", "--datastore=kernel", "--size=1G"])?;
        for tenant in 0..TENANTS {
            let name = format!("t{tenant}");
            daemon.command(&["disk", "create", &name, "--datastore=headgate", "--size=1G"])?;
            disks.push(name);
        }
        let mut arguments: Vec<String> = ["-m", "1024", "-machine", "memory-backend=memory"]
            .into_iter()
            .chain(["-object", "memory-backend-memfd,id=memory,share=on,size=1024M"])
            .map(str::to_owned)
            .collect();
        for (number, disk) in disks.iter().enumerate() {
            let socket = daemon.vhost_socket(disk);
            let places = if number == 0 { PLACES } else { 128 };
            arguments.extend([
                "-chardev".to_owned(),
                format!("socket,id=drive{number},path={}", socket.display()),
                "-device".to_owned(),
                format!(
                    "vhost-user-blk-pci,chardev=drive{number},num-queues=1,queue-size={places}"
                ),
            ]);
        }
        let machine = Machine::new("kernels", Drive::AsPrinted(arguments));
        let guest = Guest::boot(lab, &machine)?;
        Ok(Stage { daemon, guest, rate })
    }

    /// What the guest's kernel calls itself.
    pub fn kernel(&mut self) -> anyhow::Result<String> {
        Ok(self.guest.run("uname -rv", Duration::from_secs(20))?.trim().to_owned())
    }

    /// The p99 of the light tenant with the storage to itself, in milliseconds.
    pub fn quiet(&mut self) -> anyhow::Result<f64> {
        self.guest.run(&Contender::None.script(Question::Latency, self.rate), BRIEF)?;
        let script = Question::Latency.script(Contender::None);
        let light = script.replace("[t1]", "[t1]\nrate_iops=1");
        let output = self.guest.run(&light, time(Question::Latency))?;
        Ok(Question::Latency.answer(&output, self.rate)?.value)
    }

    /// Asks a contender a question.
    pub fn ask(&mut self, contender: Contender, question: Question) -> anyhow::Result<Answer> {
        let what = || format!("{} and {question:?}", contender.name());
        if let Some(window) = contender.window() {
            let depth = format!("--queue-depth={window}");
            self.daemon.command(&["datastore", "set", "headgate", &depth])?;
            for (number, tenant) in question.tenants().iter().enumerate() {
                let shares = format!("--shares={}", tenant.weight * 100);
                let reservation = match tenant.reservation {
                    0 => "--reservation=none".to_owned(),
                    rate => format!("--reservation={rate}"),
                };
                let name = format!("t{number}");
                self.daemon.command(&["disk", "set", &name, &shares, &reservation])?;
            }
        }
        let set_up = contender.script(question, self.rate);
        self.guest.run(&set_up, BRIEF).with_context(what)?;
        let output = self.guest.run(&question.script(contender), time(question));
        question.answer(&output.with_context(what)?, self.rate).with_context(what)
    }
}

const BRIEF: Duration = Duration::from_secs(60);

fn time(question: Question) -> Duration {
    Duration::from_secs(question.patience())
}
