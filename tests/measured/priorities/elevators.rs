//! What elevators inside guests leave of priorities.

use super::{
    APPLICATIONS, MINUTE, PROGRAMS, RATE, TOLERANCE, WHILE, boot, contended, daemon, divides,
    start, stop, under_ionice,
};
use anyhow::ensure;
use headgate_lab::Server;
use headgate_lab::guest::Guest;
use headgate_lab::pace::with_paced_lab;
use headgate_lab::premise::Premises;
use headgate_lab::streams::Division;

/// Every elevator passes the field on. Those that hold requests back themselves are told not to:
/// mq-deadline those of a lower class for ten seconds, kyber while a request takes longer than its
/// targets.
const ELEVATORS: [(&str, &str); 3] = [
    ("none", ""),
    ("mq-deadline", "echo 0 >$q/iosched/prio_aging_expire"),
    (
        "kyber",
        "echo 60000000000 >$q/iosched/read_lat_nsec; echo 60000000000 >$q/iosched/write_lat_nsec",
    ),
];

fn choose_elevator(guest: &mut Guest, elevator: &str, settings: &str) -> anyhow::Result<()> {
    let script = format!(
        "set -e; q=/sys/block/vda/queue; for ko in $(find /kernel -name '{elevator}*.ko'); do insmod $ko; done\n\
         echo {elevator} >$q/scheduler; {settings}\ncat $q/scheduler"
    );
    let said = guest.run(&script, MINUTE)?;
    ensure!(said.contains(&format!("[{elevator}]")), "the guest does not take {elevator}: {said}");
    Ok(())
}

#[test]
fn every_elevator_of_the_guest_can_leave_the_division_to_the_host() {
    with_paced_lab(&PROGRAMS, |lab, pace| {
        let mut daemon = daemon(lab, pace, "mclock", &["disk"])?;
        let mut guest = boot(lab, &daemon, "guest", &["disk"])?;
        for (elevator, settings) in ELEVATORS {
            choose_elevator(&mut guest, elevator, settings)?;
            // As deep as fits into the queue: what an elevator holds back for a moment must not be
            // all that there is.
            let load = under_ionice("--rw=randread --iodepth=28");
            divides(&daemon, &mut guest, elevator, (pace, 112), load)?;
        }
        guest.power_off()?;
        daemon.stop()
    });
}

/// bfq divides by weights of its own and serves one process at a time. The field arrives all the
/// same, and the order of classes is kept; but the lowest level and the idle class get what bfq
/// lets out: the former little by its weight, the latter a turn every 200 ms, and which of them is
/// more is bfq's to say.
#[test]
fn the_upper_priorities_keep_their_order_under_bfq() {
    with_paced_lab(&PROGRAMS, |lab, pace| {
        let mut daemon = daemon(lab, pace, "mclock", &["disk"])?;
        let mut guest = boot(lab, &daemon, "guest", &["disk"])?;
        choose_elevator(
            &mut guest,
            "bfq",
            "echo 0 >$q/iosched/slice_idle; echo 0 >$q/iosched/low_latency",
        )?;
        for (under, _) in APPLICATIONS {
            start(&mut guest, under, "--rw=randread")?;
        }
        let streams = APPLICATIONS.map(|(_, priority)| ("disk", priority));
        let busy = Premises::new().busy("array", pace.rate(RATE).into());
        let division = Division::measure(&daemon, &busy, &streams, pace.time(WHILE))?;
        stop(&mut guest)?;
        eprintln!("{:?}", division.got);
        let [realtime, highest, lowest, idle] = streams.map(|stream| division.part(stream));
        ensure!(
            realtime > highest && highest > lowest.max(idle),
            "a lower priority got more: {division:?}"
        );
        ensure!(lowest.min(idle) > 0.0, "a priority did not arrive: {division:?}");
        guest.power_off()?;
        daemon.stop()
    });
}

/// As it comes: it lets no class wait for a lower one, and leaves levels to the host.
#[test]
fn levels_divide_under_mq_deadline_as_it_comes() {
    with_paced_lab(&PROGRAMS, |lab, pace| {
        let mut daemon = daemon(lab, pace, "mclock", &["disk"])?;
        let mut guest = boot(lab, &daemon, "guest", &["disk"])?;
        choose_elevator(&mut guest, "mq-deadline", "")?;
        for level in [0, 2, 6] {
            start(&mut guest, &format!("ionice -c2 -n{level}"), "--rw=randread")?;
        }
        let streams = [("disk", 180), ("disk", 140), ("disk", 60)];
        let division =
            Division::measure(&daemon, &contended(pace, 48), &streams, pace.time(WHILE))?;
        stop(&mut guest)?;
        division.ensure_by_priority(TOLERANCE)?;
        guest.power_off()?;
        daemon.stop()
    });
}
