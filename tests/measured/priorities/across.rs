//! Priorities across virtual machines.

use super::misuse::attack;
use super::{MINUTE, PROGRAMS, RATE, TOLERANCE, WHILE, add_array, boot, daemon, start_on, stop};
use anyhow::ensure;
use headgate_lab::guest::Guest;
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::streams::{Division, Stream};
use headgate_lab::{Lab, Server};

/// Two machines with three applications each. In the report the priorities are 12 to 2; the guests'
/// ioprio levels are mapped to them.
struct Two {
    pace: Pace,
    daemon: Headgate,
    guests: [Guest; 2],
}

/// A machine: its name and its disk's, its table, its applications and what their requests count.
type Described = (&'static str, &'static str, [(&'static str, u8); 3]);

const TWO: [Described; 2] = [
    (
        "one",
        "be0=12,be2=8,be5=4",
        [("ionice -c2 -n0", 12), ("ionice -c2 -n2", 8), ("ionice -c2 -n5", 4)],
    ),
    (
        "two",
        "be1=10,be3=6,be7=2",
        [("ionice -c2 -n1", 10), ("ionice -c2 -n3", 6), ("ionice -c2 -n7", 2)],
    ),
];

const SIX: [Stream; 6] = [("one", 12), ("two", 10), ("one", 8), ("two", 6), ("one", 4), ("two", 2)];

impl Two {
    /// Boots, with the second drive of each guest on an array that is divided by order of arrival.
    fn boot(lab: &Lab, pace: Pace) -> anyhow::Result<Two> {
        let daemon = daemon(lab, pace, "mclock", &["one", "two"])?;
        add_array(&daemon, pace, "fifo", "fifo", &["fifo-one", "fifo-two"])?;
        for (vm, map, _) in TWO {
            daemon.command(&["vm", "set", vm, "--ioprio-map", map])?;
            daemon.command(&["vm", "set", &format!("fifo-{vm}"), "--ioprio-map", map])?;
        }
        let guests = [
            boot(lab, &daemon, "guest-one", &["one", "fifo-one"])?,
            boot(lab, &daemon, "guest-two", &["two", "fifo-two"])?,
        ];
        Ok(Two { pace, daemon, guests })
    }

    /// Starts the six applications on a drive; `depth` says how many requests each of the second
    /// machine's has outstanding.
    fn start(&mut self, drive: &str, depth: u32) -> anyhow::Result<()> {
        for (n, (guest, (.., applications))) in self.guests.iter_mut().zip(TWO).enumerate() {
            let depth = if n == 1 { depth } else { 16 };
            for (under, _) in applications {
                start_on(drive, guest, under, &format!("--rw=randread --iodepth={depth}"))?;
            }
        }
        Ok(())
    }

    /// What the streams get of an array, on which each machine has a disk for its three
    /// applications and these keep so many requests outstanding.
    fn measure(
        &self,
        array: &str,
        streams: &[Stream; 6],
        depths: [u32; 2],
    ) -> anyhow::Result<Division> {
        let [one, two] = depths;
        let premises = Premises::new()
            .busy(array, self.pace.rate(RATE).into())
            .backlog(streams[0].0, one)
            .backlog(streams[1].0, two);
        Division::measure(&self.daemon, &premises, streams, self.pace.time(WHILE))
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.guests.iter_mut().try_for_each(stop)
    }

    fn power_off(self) -> anyhow::Result<()> {
        let Two { mut daemon, guests, .. } = self;
        guests.into_iter().try_for_each(Guest::power_off)?;
        daemon.stop()
    }
}

/// Pairs in which the lower priority got more.
fn inversions(division: &Division) -> usize {
    let got = &division.got;
    let pairs = got.iter().flat_map(|a| got.iter().map(move |b| (a, b)));
    pairs.filter(|(((_, high), less), ((_, low), more))| high > low && less < more).count()
}

#[test]
fn six_applications_of_two_machines_follow_their_priorities_across_machines() {
    with_paced_lab(&PROGRAMS, |lab, pace| {
        let mut two = Two::boot(lab, pace)?;
        let fifo = SIX.map(|(disk, priority)| {
            (if disk == "one" { "fifo-one" } else { "fifo-two" }, priority)
        });
        two.start("vdb", 32)?;
        let arrival = two.measure("fifo", &fifo, [48, 96])?;
        two.stop()?;
        eprintln!("order of arrival: {:?}, {} inversions", arrival.got, inversions(&arrival));

        // TG-1: two levels, machines by shares and applications inside them.
        two.daemon.command(&["disk", "set", "one", "--shares=200"])?;
        two.daemon.command(&["disk", "set", "two", "--shares=500"])?;
        two.start("vda", 16)?;
        let within = two.measure("array", &SIX, [48, 48])?;
        eprintln!("within machines of 200 and 500 shares: {} inversions", inversions(&within));
        let part = |(disk, priority): Stream| match disk {
            "one" => 2.0 / 7.0 * f64::from(priority) / 24.0,
            _ => 5.0 / 7.0 * f64::from(priority) / 18.0,
        };
        within.ensure(&SIX.map(|stream| (stream, part(stream))), TOLERANCE)?;

        // In force at once, under load.
        for (vm, ..) in TWO {
            two.daemon.command(&["vm", "set", vm, "--priority-scope=across"])?;
        }
        eprintln!("across machines");
        let across = two.measure("array", &SIX, [48, 48])?;
        two.stop()?;
        across.ensure_by_priority(TOLERANCE)?;
        ensure!(inversions(&arrival) > 0, "no inversion in the order of arrival: {arrival:?}");
        ensure!(inversions(&within) > 0, "no inversion between machines: {within:?}");
        ensure!(inversions(&across) == 0, "an inversion across machines: {across:?}");
        let total = across.rate() / arrival.rate();
        eprintln!("total {total:.3} of that by order of arrival");
        ensure!(total >= 0.97, "priorities cost throughput: {total:.3} of FIFO");
        two.power_off()
    });
}

/// TG-5 on the real daemon: six applications with one request outstanding each, on storage that
/// takes five. There is little to choose from, unless the next request waits a little for a better
/// one.
const SHALLOW: [(&str, [u8; 2]); 3] = [("one", [12, 10]), ("two", [8, 6]), ("three", [4, 2])];

#[test]
fn a_plug_brings_priorities_back_where_queues_are_shallow() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = Headgate::start(lab)?;
        let rate = pace.rate(1500);
        let micros = |nominal: u32| format!("{}us", nominal * pace.factor());
        let model = format!("rate={rate},latency={}", micros(500));
        daemon.command(&["datastore", "add", "array", "--emulated", &model, "--queue-depth=5"])?;
        let mut machines = Vec::new();
        for (vm, [high, low]) in SHALLOW {
            let create = ["disk", "create", vm, "--datastore=array", "--size=64M", "--vm", vm];
            daemon.command(&create)?;
            daemon.command(&["vm", "set", vm, "--priority-scope=across"])?;
            let priorities = format!("--priority=fine/{high},fine/{low}");
            machines.push(attack(lab, &daemon, vm, &["--depth=2", "--streams", &priorities])?);
        }
        let streams: Vec<Stream> =
            SHALLOW.iter().flat_map(|(vm, of)| of.map(|p| (*vm, p))).collect();
        let mut measured = Vec::new();
        // A plug covers the time that clients take, which no pace changes. It is 1 ms at most.
        let plugs = [0, 200, 500].map(|nominal| (nominal * pace.factor()).min(1_000));
        for plug in plugs.map(|micros| format!("{micros}us")) {
            daemon.command(&["datastore", "set", "array", "--plug", &plug])?;
            let division =
                Division::measure(&daemon, &Premises::new(), &streams, pace.time(WHILE / 2))?;
            let lowest = division.part(("three", 2)) / division.part(("one", 12));
            eprintln!(
                "plug {plug}: priority 2 gets {lowest:.2} of what 12 gets, {} inversions, {:.0} requests per second",
                inversions(&division),
                division.rate()
            );
            measured.push((lowest, division.rate()));
        }
        let (without, total) = measured[0];
        ensure!(without >= 0.8, "queues are deep enough without a plug: {measured:?}");
        for (with, rate) in &measured[1..] {
            ensure!(*with <= 0.8 * without, "the plug does not help: {measured:?}");
            ensure!(
                *rate >= 0.9 * total,
                "the plug costs more than a tenth of the throughput: {measured:?}"
            );
        }
        for mut machine in machines {
            machine.interrupt()?;
            machine.wait(MINUTE)?;
        }
        daemon.stop()
    });
}
