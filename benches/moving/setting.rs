//! The storage, the disks and the cases.

use crate::Args;
use crate::clients::{Client, Length, Pattern, Served};
use crate::mirror::Mirror;
use anyhow::Context;
use headgate_lab::headgate::Headgate;
use headgate_lab::{Lab, Server, wait_for};
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(1_800);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Nothing moves.
    Still,
    /// A move as it is by default.
    Polite,
    /// A move at the rate that both are given.
    Paced,
    /// A client of the storage daemon, and no mirror.
    Hop,
    /// Its mirror at the same rate.
    MirrorPaced,
    /// Its mirror as it is by default: as fast as it can.
    Mirror,
}

impl Case {
    /// Every case, in the order of a round.
    pub const ALL: [Case; 6] =
        [Case::Still, Case::Polite, Case::Paced, Case::Hop, Case::MirrorPaced, Case::Mirror];

    /// As in the table.
    pub fn name(self, args: &Args) -> String {
        let rate = args.rate_mib;
        match self {
            Case::Still => "no move".into(),
            Case::Polite => "move, defaults".into(),
            Case::Paced => format!("move, `--move-bandwidth {rate}M`"),
            Case::Hop => "through qemu-storage-daemon, no mirror".into(),
            Case::MirrorPaced => format!("its `blockdev-mirror`, {rate} MiB/s"),
            Case::Mirror => "its `blockdev-mirror`, defaults".into(),
        }
    }

    fn has_hop(self) -> bool {
        matches!(self, Case::Hop | Case::MirrorPaced | Case::Mirror)
    }

    fn copies(self) -> bool {
        !matches!(self, Case::Still | Case::Hop)
    }
}

/// A case, measured once.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The disk that moves.
    pub moving: Served,
    /// The disk beside it.
    pub beside: Served,
    /// Bytes copied in a second.
    pub copied: f64,
}

/// How long whole moves took, and what the storage does.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Bytes a second that one client reads from the source, in order.
    pub reads: f64,
    /// Bytes a second that one client writes to the target.
    pub writes: f64,
    /// A move of a disk that nobody uses, alone on both arrays.
    pub idle: Duration,
    /// A move of a disk that is used, beside another that is.
    pub busy: Duration,
    /// Requests a second of its client meanwhile.
    pub busy_iops: f64,
}

fn under_way(moves: &Value) -> impl Iterator<Item = &Value> {
    let all = moves.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(|one| one["state"] != "ended")
}

/// The daemon with its storage.
pub struct Setting<'a> {
    lab: &'a Lab,
    args: Args,
    daemon: Headgate,
}

impl Setting<'_> {
    /// Two arrays, the disks, and data on the one that moves.
    pub fn prepare<'a>(lab: &'a Lab, args: &Args) -> anyhow::Result<Setting<'a>> {
        let daemon = Headgate::start(lab)?;
        for array in ["near", "far"] {
            // The window of an emulated device is 32 by default.
            daemon.command(&["datastore", "add", array, "--emulated", "array=6"])?;
        }
        let size = format!("{}M", args.size_mib);
        for (disk, array, more) in [
            ("moving", "near", None),
            ("beside", "near", Some("--reservation=200")),
            ("mirror", "far", None),
        ] {
            let words = ["disk", "create", disk, "--datastore", array, "--size", &size];
            daemon.command(&[&words[..], more.as_slice()].concat())?;
        }
        let setting = Setting { lab, args: args.clone(), daemon };
        eprintln!("writing {} MiB to the disk that moves", args.data_mib);
        setting.fill("moving", args.data_mib)?;
        Ok(setting)
    }

    fn fill(&self, disk: &str, mib: u64) -> anyhow::Result<Served> {
        self.client(disk, &self.daemon.nbd_uri(disk), Pattern::Writes, Length::Requests(mib))?
            .end(PATIENCE)
    }

    fn client(
        &self,
        name: &str,
        uri: &str,
        does: Pattern,
        length: Length,
    ) -> anyhow::Result<Client> {
        Client::start(&self.lab.subdir(&format!("client-{name}"))?, uri, does, length)
    }

    /// Both clients for so long, while `copied` tells twice what was copied.
    fn serve(
        &self,
        uri: &str,
        mut copied: impl FnMut() -> anyhow::Result<u64>,
    ) -> anyhow::Result<Sample> {
        let (seconds, warmup) = (self.args.seconds, self.args.warmup);
        let length = Length::Seconds(seconds, warmup);
        let moving = self.client("moving", uri, Pattern::Random { depth: 8 }, length)?;
        let uri = self.daemon.nbd_uri("beside");
        let beside = self.client("beside", &uri, Pattern::Random { depth: 4 }, length)?;
        thread::sleep(Duration::from_secs(warmup));
        let (from, began) = (copied()?, Instant::now());
        thread::sleep(Duration::from_secs(seconds).saturating_sub(Duration::from_millis(500)));
        let (to, took) = (copied()?, began.elapsed().as_secs_f64());
        Ok(Sample {
            moving: moving.end(PATIENCE)?,
            beside: beside.end(PATIENCE)?,
            copied: to.saturating_sub(from) as f64 / took,
        })
    }

    /// Measures a case.
    pub fn measure(&mut self, case: Case) -> anyhow::Result<Sample> {
        let sample = if case.has_hop() { self.mirrored(case)? } else { self.moved(case)? };
        let idle = sample.moving.iops < 1.0 || sample.beside.iops < 1.0;
        anyhow::ensure!(!idle, "a client had nothing: {sample:?}");
        let copies = sample.copied > 0.0;
        anyhow::ensure!(copies == case.copies(), "{case:?} copied: {sample:?}");
        Ok(sample)
    }

    fn moved(&self, case: Case) -> anyhow::Result<Sample> {
        let uri = self.daemon.nbd_uri("moving");
        if case == Case::Still {
            return self.serve(&uri, || Ok(0));
        }
        let pace = format!("--move-bandwidth={}M", self.args.rate_mib);
        let words = ["disk", "migrate", "moving", "--to", "far", "--detach"];
        let paced = (case == Case::Paced).then_some(pace.as_str());
        self.daemon.command(&[&words[..], paced.as_slice()].concat())?;
        let copied = || {
            let moves = self.daemon.json(&["disk", "moves"])?;
            let going = under_way(&moves).next();
            let copied = going.and_then(|one| one["copied"].as_u64());
            copied.with_context(|| format!("no move goes on: {moves}"))
        };
        let sample = self.serve(&uri, copied)?;
        self.daemon.command(&["disk", "migrate", "moving", "--cancel"])?;
        self.wait_for_rest()?;
        Ok(sample)
    }

    fn mirrored(&self, case: Case) -> anyhow::Result<Sample> {
        let mut mirror = Mirror::start(self.lab, self.daemon.nbd_socket(), "moving", "mirror")?;
        let uri = mirror.uri();
        let sample = match case.copies() {
            false => self.serve(&uri, || Ok(0))?,
            true => {
                let paced = case == Case::MirrorPaced;
                mirror.begin(paced.then_some(self.args.rate_mib * MIB))?;
                let sample = self.serve(&uri, || mirror.copied())?;
                mirror.cancel()?;
                sample
            }
        };
        mirror.end()?;
        Ok(sample)
    }

    fn wait_for_rest(&self) -> anyhow::Result<()> {
        wait_for("the move should be over", PATIENCE, || {
            let moves = self.daemon.json(&["disk", "moves"])?;
            Ok(under_way(&moves).next().is_none().then_some(()))
        })
    }

    fn migrate(&self, to: &str) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.daemon.command_for(PATIENCE, &["disk", "migrate", "timed", "--to", to])?;
        Ok(began.elapsed())
    }

    /// Whole moves of a disk of data, there and back, and what the storage does by itself.
    pub fn time_moves(&mut self) -> anyhow::Result<Times> {
        let mib = self.args.timed_mib;
        eprintln!("whole moves of {mib} MiB");
        let size = format!("{mib}M");
        for (disk, at) in [("timed", "near"), ("written", "far")] {
            let words = ["disk", "create", disk, "--datastore", at, "--size", &size];
            self.daemon.command(&words)?;
        }
        self.fill("timed", mib)?;
        let writes = self.fill("written", mib)?.bytes;
        let uri = self.daemon.nbd_uri("timed");
        let reads = self.client("timed", &uri, Pattern::Reads, Length::Requests(mib))?;
        let reads = reads.end(PATIENCE)?.bytes;
        let idle = self.migrate("far")?;
        self.migrate("near")?;
        // Longer than the move takes, and ended with it.
        let long = Length::Seconds(3_600, 0);
        let busy = Pattern::Random { depth: 8 };
        let client = self.client("timed", &uri, busy, long)?;
        let other = self.daemon.nbd_uri("beside");
        let beside = self.client("beside", &other, Pattern::Random { depth: 4 }, long)?;
        thread::sleep(Duration::from_secs(self.args.warmup));
        let took = self.migrate("far")?;
        let busy_iops = client.interrupt()?.iops;
        beside.interrupt()?;
        Ok(Times { reads, writes, idle, busy: took, busy_iops })
    }

    /// Ends the daemon.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.daemon.stop()
    }
}
