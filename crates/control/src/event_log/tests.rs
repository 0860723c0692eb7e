use super::*;
use std::fs;

const SOON: Duration = Duration::from_secs(20);

fn log(dir: &Path) -> EventLog {
    EventLog::open(dir, SIZE).unwrap()
}

fn change(disk: &str) -> Entry {
    let by = Who::Process { user: 0, group: 0, process: Some(1) };
    Entry::new(by, "disk set", Outcome::Taken).of_disk(disk)
}

fn refused(user: u32) -> Entry {
    Entry::new(Who::Process { user, group: 0, process: Some(1) }, "disk set", Outcome::Refused)
}

fn ids(log: &EventLog, filter: &Filter) -> Vec<u64> {
    assert!(log.settle(log.last(), SOON));
    log.read(filter, 10_000).unwrap().events.iter().map(|event| event.id).collect()
}

fn after(after: u64) -> Filter {
    Filter { after, ..Filter::default() }
}

#[test]
fn events_are_read_again_by_the_next_daemon_and_numbers_go_on() {
    let temp = tempfile::tempdir().unwrap();
    let first = log(temp.path());
    for disk in ["a", "b", "a"] {
        first.tell(Stream::Changes, change(disk)).unwrap();
    }
    first.tell(Stream::Tenants, change("a")).unwrap();
    assert_eq!(ids(&first, &after(0)), [1, 2, 3, 4]);
    first.close();
    let second = log(temp.path());
    assert_eq!(second.tell(Stream::Daemon, Entry::done("daemon start")), Some(5));
    // From the files, of several streams, and from memory.
    assert_eq!(ids(&second, &after(0)), [1, 2, 3, 4, 5]);
    assert_eq!(ids(&second, &after(3)), [4, 5]);
    assert_eq!(ids(&second, &after(4)), [5]);
    assert_eq!(ids(&second, &after(9)), [0; 0]);
    let of_a = Filter { disk: Some("a".into()), ..Filter::default() };
    assert_eq!(ids(&second, &of_a), [1, 3, 4]);
}

#[test]
fn pages_follow_each_other_until_the_last() {
    let temp = tempfile::tempdir().unwrap();
    let first = log(temp.path());
    for number in 0..10 {
        let stream = if number % 2 == 0 { Stream::Changes } else { Stream::Tenants };
        first.tell(stream, change("a"));
    }
    first.close();
    let log = log(temp.path());
    let (mut at, mut pages) = (0, Vec::new());
    loop {
        let page = log.read(&after(at), 4).unwrap();
        at = page.events.last().map_or(at, |event| event.id);
        pages.push(page.events.iter().map(|event| event.id).collect::<Vec<_>>());
        assert_eq!(page.newest, 10);
        if page.is_last {
            break;
        }
    }
    assert_eq!(pages, [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9, 10]]);
}

#[test]
fn a_torn_last_line_is_told_and_spoils_nothing_else() {
    let temp = tempfile::tempdir().unwrap();
    let first = log(temp.path());
    for _ in 0..3 {
        first.tell(Stream::Changes, change("a"));
    }
    first.close();
    let path = temp.path().join("changes-00000000000000000001.log");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let second = log(temp.path());
    // The number of the torn one is given again: nobody can have seen it.
    assert_eq!(ids(&second, &after(0)), [1, 2, 3]);
    let page = second.read(&after(0), 10).unwrap();
    assert_eq!(page.damaged, 1);
    let told = &page.events[2].entry;
    assert_eq!((told.operation.as_str(), told.result), ("events damaged", Outcome::Noticed));
    assert!(told.why.as_ref().unwrap().contains("changes-0000"), "{told:?}");
    assert_eq!(second.tell(Stream::Changes, change("b")), Some(4));
    assert_eq!(ids(&second, &after(0)), [1, 2, 3, 4]);
    second.close();
    // It is told once, and its line is counted whenever it is read.
    let third = log(temp.path());
    assert_eq!((third.last(), third.read(&after(0), 10).unwrap().damaged), (4, 1));
}

#[test]
fn a_flood_of_refusals_takes_its_own_space_and_little_of_it() {
    let temp = tempfile::tempdir().unwrap();
    let log = EventLog::open(temp.path(), Bytes::from_mib(1)).unwrap();
    let first = log.tell(Stream::Changes, change("a")).unwrap();
    let written = (0..50_000).filter(|_| log.tell(Stream::Refused, refused(7)).is_some()).count();
    assert!((20..30).contains(&written), "{written}");
    assert!(log.tell(Stream::Refused, refused(8)).is_some(), "another peer is heard");
    assert_eq!(ids(&log, &after(0))[0], first);
}

#[test]
fn the_files_stay_within_their_space() {
    let temp = tempfile::tempdir().unwrap();
    let size = Bytes::from_mib(1);
    let log = EventLog::open(temp.path(), size).unwrap();
    for _ in 0..3_000 {
        let mut entry = change("a");
        entry.why = Some("x".repeat(900));
        if log.tell(Stream::Changes, entry.clone()).is_none() {
            assert!(log.settle(log.last(), SOON));
        }
    }
    let kept = ids(&log, &after(0));
    assert!(kept.len() > 100 && kept[0] > 1 && kept.is_sorted(), "{kept:?}");
    let all =
        fs::read_dir(temp.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    assert!(all.sum::<u64>() <= size.0);
}

#[test]
fn storage_that_fails_keeps_nobody_and_what_waits_is_written_later() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("events");
    let log = EventLog::open(&dir, SIZE).unwrap();
    log.tell(Stream::Changes, change("a"));
    assert!(log.settle(1, SOON));
    let away = temp.path().join("away");
    fs::rename(&dir, &away).unwrap();
    // A stream whose file is not open yet.
    let id = log.tell(Stream::Tenants, change("b")).unwrap();
    assert!(!log.settle(id, Duration::from_millis(300)));
    assert_eq!(log.newest(), 1);
    let mut lost = 0;
    for _ in 0..WAITING_MAX + 50 {
        lost += u64::from(log.tell(Stream::Changes, change("c")).is_none());
    }
    assert_eq!(lost, 51);
    let trouble = log.trouble().unwrap();
    assert!(trouble.contains("cannot open") && trouble.contains("51 are lost"), "{trouble}");
    fs::rename(&away, &dir).unwrap();
    assert!(log.settle(id, SOON));
    let deadline = Instant::now() + SOON;
    while log.trouble().is_some() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let all = ids(&log, &after(0));
    assert_eq!(all.len(), 2 + WAITING_MAX, "all that waited, and what is told of the others");
    let last = log.read(&after(*all.last().unwrap() - 1), 1).unwrap().events.remove(0);
    assert_eq!(last.entry.operation, "events kept again");
    assert!(last.entry.why.unwrap().contains("51 events are lost"));
}
