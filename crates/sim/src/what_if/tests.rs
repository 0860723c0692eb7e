use super::client::Sending;
use super::*;
use headgate_qos::window::Slots;
use headgate_qos::{Burst, Config, CostModel, Policy, SchedulerKind};
use headgate_units::{Bytes, Iops, Shares};

const MINUTE: Nanos = Nanos::from_secs(60);

fn policy(reservation: Option<u64>, limit: Option<u64>) -> Policy {
    let iops = |rate: Option<u64>| rate.map(|rate| Iops::new(rate).unwrap());
    let (shares, burst) = (Shares::default(), Burst::default());
    Policy::new(iops(reservation), iops(limit), None, shares, burst).unwrap()
}

/// Minutes of a disk that keeps `outstanding` and is served `rate` a second, `at_device` of them at
/// the device on average.
fn disk(name: &str, minutes: usize, rate: u64, outstanding: f64, at_device: f64) -> DiskRecord {
    let micros = |mean: f64| (mean * 60e6) as u64;
    let period = PeriodRecord {
        reads: rate * 60,
        writes: 0,
        bytes: Bytes(rate * 60 * 4_096),
        waited: Waited {
            device: micros(at_device),
            limit: 0,
            queue: micros(outstanding - at_device),
        },
        outstanding: vec![outstanding as f32; 12],
    };
    let time = Nanos((outstanding / rate as f64 * 1e9) as u64);
    DiskRecord {
        name: name.into(),
        before: policy(None, None),
        after: policy(None, None),
        periods: vec![period; minutes],
        latency: Some((time, Nanos(time.0 * 2))),
    }
}

/// Two disks that keep 16 outstanding each divide 200 a second behind a window of 8.
fn shared(minutes: usize) -> LoadRecord {
    let disks = vec![disk("a", minutes, 100, 16.0, 4.0), disk("b", minutes, 100, 16.0, 4.0)];
    let spread = Spread::by(|permille| Some(Nanos(1_000 * u64::from(permille) + 1))).unwrap();
    LoadRecord {
        periods: vec![MINUTE; minutes],
        disks,
        device: DeviceRecord { curve: Curve::Recorded, spread },
        scheduler: SchedulerKind::MClock,
        config: Config::for_hosts(CostModel::Unit),
        window: Slots::whole(8),
        groups: Vec::new(),
        members: Vec::new(),
    }
}

fn ask(record: &LoadRecord) -> Answer {
    what_if(record, Bounds::default(), 1, &mut || false).unwrap()
}

fn near(found: f64, wanted: f64, percent: f64) -> bool {
    (found - wanted).abs() <= wanted * percent / 100.0
}

#[test]
fn a_reservation_is_served_from_the_same_storage_and_no_longer_missed() {
    let mut record = shared(3);
    record.disks[0].after = policy(Some(150), None);
    let answer = ask(&record);
    let [a, b] = &answer.disks[..] else { panic!("{answer:?}") };
    assert!(near(a.before.rate(), 100.0, 3.0) && near(b.before.rate(), 100.0, 3.0), "{answer:?}");
    assert!(near(a.after.rate(), 150.0, 3.0) && near(b.after.rate(), 50.0, 6.0), "{answer:?}");
    assert_eq!((a.before.demanded, a.after.short), (0, 0), "nothing was reserved before");
    assert!(a.after.demanded > 150, "{}", a.after.demanded);
    let p50 = |run: &Simulated| run.latency.at_permille(500).unwrap();
    assert!(p50(&a.after) < p50(&a.before) && p50(&b.after) > p50(&b.before));
    assert_eq!(answer.recorded, Nanos::from_secs(180));
    // What is more than there is falls short: in every second, and by what is missing.
    record.disks[0].after = policy(Some(300), None);
    let a = &ask(&record).disks[0].after;
    assert!(a.short > 150 && a.short * 100 >= a.demanded * 99, "{a:?}");
    let missing = a.missing as f64 / 1e6 / a.short as f64;
    assert!(near(missing, 300.0 - a.received_rate(), 5.0), "{missing}: {}", a.received_rate());
}

#[test]
fn a_limit_leaves_the_rest_to_others() {
    let mut record = shared(2);
    record.disks[1].after = policy(None, Some(40));
    let answer = ask(&record);
    assert!(near(answer.disks[1].after.rate(), 40.0, 3.0), "{answer:?}");
    assert!(near(answer.disks[0].after.rate(), 160.0, 5.0), "{answer:?}");
}

#[test]
fn equal_questions_have_equal_answers_and_no_change_changes_nothing() {
    let record = shared(2);
    let answer = ask(&record);
    assert_eq!(ask(&record), answer);
    assert!(answer.disks.iter().all(|disk| disk.before == disk.after));
    let other = what_if(&record, Bounds::default(), 2, &mut || false).unwrap();
    assert_ne!(other, answer);
}

#[test]
fn what_cannot_be_answered_is_said() {
    let mut record = shared(1);
    assert_eq!(what_if(&record, Bounds::default(), 1, &mut || true), Err(NoAnswer::Cut));
    record.disks.truncate(1);
    record.disks[0].periods[0].reads = 199;
    let few = what_if(&record, Bounds::default(), 1, &mut || false).unwrap_err();
    assert_eq!(few, NoAnswer::TooFew { requests: 199, seen: MINUTE });
    assert_eq!(few.to_string(), "199 requests are recorded in 60.00 s, 200 are needed");
    record.config.lead = 0;
    record.disks[0].periods[0].reads = 200;
    let wrong = what_if(&record, Bounds::default(), 1, &mut || false);
    assert!(matches!(wrong, Err(NoAnswer::Scheduler(_))), "{wrong:?}");
}

#[test]
fn a_disk_that_was_limited_and_is_no_more_sends_what_its_clients_and_the_bounds_let_it() {
    let mut record = shared(2);
    record.disks.truncate(1);
    // At its limit: nothing but the limit was waited for, and the device took 1 ms.
    let period = PeriodRecord {
        waited: Waited { device: 6_000_000, limit: 954_000_000, queue: 0 },
        outstanding: vec![0.1; 12],
        ..record.disks[0].periods[0].clone()
    };
    record.disks[0].periods = vec![period; 2];
    record.disks[0].before = policy(None, Some(100));
    let answer = ask(&record);
    let a = &answer.disks[0];
    assert_eq!(a.load, Some(LoadKind::Closed { population: 1.0 }));
    assert!(near(a.before.rate(), 100.0, 3.0), "{}", a.before.rate());
    // Eight at once, each for a millisecond, as nothing says that more at once takes longer.
    assert!(near(a.after.rate(), 8_000.0, 5.0), "{}", a.after.rate());
    assert!(answer.requests <= 4 * Bounds::default().requests);
    let tight = what_if(&record, Bounds { requests: 50_000 }, 1, &mut || false).unwrap();
    assert!(tight.requests <= 200_000 && tight.simulated < answer.simulated, "{tight:?}");
    assert!(near(tight.disks[0].after.rate(), 8_000.0, 5.0), "{tight:?}");
    let tighter = what_if(&record, Bounds { requests: 2_000 }, 1, &mut || false).unwrap();
    assert!(tighter.requests <= 8_000, "{tighter:?}");
}

#[test]
fn clients_are_judged_by_how_the_number_outstanding_varies() {
    let kind = |numbers: [f32; 12], queued: f64| {
        let mean = numbers.iter().sum::<f32>() / 12.0;
        let mut disk = disk("a", 1, 100, f64::from(mean), f64::from(mean) * (1.0 - queued));
        disk.periods[0].outstanding = numbers.into();
        LoadKind::of(&disk, &[MINUTE])
    };
    let closed = |population| Some(LoadKind::Closed { population });
    assert_eq!(kind([8.0; 12], 0.0), closed(1.0));
    // Random arrivals of 100 a second vary it by 6 % and more in 5 s.
    let mut varied = [0.0f32; 12];
    for (n, value) in varied.iter_mut().enumerate() {
        *value = if n % 2 == 0 { 2.0 } else { 2.3 };
    }
    assert_eq!(kind(varied, 0.0), Some(LoadKind::Open));
    // A number that goes up once is kept all the same.
    let stepped = [4.0, 4.0, 4.0, 4.0, 4.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0];
    assert_eq!(kind(stepped, 0.9), closed(1.0));
    assert_eq!(LoadKind::of(&disk("a", 0, 0, 0.0, 0.0), &[]), None);
    // Without intervals, who mostly waits in the queue is taken to keep its number.
    let unknown = |queued| kind_without_intervals(queued);
    assert_eq!((unknown(0.9), unknown(0.1)), (closed(1.0), Some(LoadKind::Open)));
}

fn kind_without_intervals(queued: f64) -> Option<LoadKind> {
    let mut disk = disk("a", 1, 100, 8.0, 8.0 * (1.0 - queued));
    disk.periods[0].outstanding.clear();
    LoadKind::of(&disk, &[MINUTE])
}

#[test]
fn clients_do_in_each_interval_what_they_did_in_it() {
    let mut disk = disk("a", 1, 100, 8.0, 4.0);
    disk.periods[0].outstanding = vec![0.0, 0.0, 16.0, 16.0];
    let sent = |kind: LoadKind, n| kind.in_interval(&disk.periods[0], MINUTE, Some(n));
    let closed = LoadKind::Closed { population: 1.0 };
    assert_eq!(sent(closed, 0), Sending::Nothing);
    assert_eq!(sent(closed, 2), Sending::Closed { clients: 16, pause: Nanos::ZERO });
    assert_eq!(sent(LoadKind::Open, 2), Sending::Open { gap: Nanos::from_millis(5) });
    // Half of twice as many clients pause: as many as are missing, by Little's law.
    let pausing = LoadKind::Closed { population: 2.0 };
    assert_eq!(sent(pausing, 2), Sending::Closed { clients: 32, pause: Nanos::from_millis(80) });
}

#[test]
fn a_plan_stays_within_its_budget_and_goes_through_all_of_the_time() {
    for (minutes, rate, budget) in [(1, 100, 400_000), (60, 100, 20_000), (360, 5_000, 50_000)] {
        let mut record = shared(minutes);
        record.disks = vec![disk("a", minutes, rate, 16.0, 4.0)];
        let plan = Plan::of(&record, budget);
        let simulated: f64 = plan.stretches.iter().map(|s| s.length.as_secs_f64()).sum();
        let requests = simulated * rate as f64;
        let all = (minutes as u64 * 60 * rate) as f64;
        assert!(requests <= 1.1 * (budget as f64).min(all), "{minutes} {rate}: {requests}");
        assert!(requests >= 0.5 * (budget as f64).min(all), "{minutes} {rate}: {requests}");
        assert!(plan.stretches.len() <= 2_000);
        assert!(plan.stretches.iter().all(|s| s.length >= Nanos::from_millis(999)));
        let periods: Vec<usize> = plan.stretches.iter().map(|s| s.period).collect();
        assert!(periods.is_sorted() && *periods.first().unwrap() <= minutes / 2);
        assert!(*periods.last().unwrap() >= minutes / 2, "{periods:?}");
    }
}

#[test]
fn a_spread_has_its_mean_and_the_quantiles_of_what_was_recorded() {
    let spread = Spread::by(|permille| Some(Nanos(u64::from(permille) * 1_000 + 1))).unwrap();
    let draws = 10_000;
    let mean: f64 =
        (0..draws).map(|n| spread.at((f64::from(n) + 0.5) / f64::from(draws))).sum::<f64>() / 1e4;
    assert!((mean - 1.0).abs() < 0.01, "{mean}");
    assert!((spread.at(0.25) - 0.5).abs() < 0.02 && (spread.at(0.75) - 1.5).abs() < 0.02);
    let weak = spread.raised(0.05);
    assert!(weak.at(0.99) < 1.1 && weak.at(0.99) > weak.at(0.5));
    assert_eq!((Spread::none().at(0.0), Spread::none().at(0.999)), (1.0, 1.0));
    assert_eq!(Spread::by(|_| None), None);
}
