//! The real daemon, its command line and real NBD clients.

use crate::support::{Daemon, client, run};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_disk_serves_nbd_clients_and_keeps_its_data_over_any_end_of_the_daemon() {
    let mut daemon = Daemon::start(&[]);
    daemon.ok("disk create a --size 64M --vm web --shares 7");
    let uri = daemon.ok("disk attach a --nbd").trim().to_owned();
    let Some(wrote) =
        client("qemu-io", &["-f", "raw", "-c", "write -P 5 1M 64k", "-c", "flush", &uri])
    else {
        return;
    };
    assert_eq!(wrote.code, 0, "{}{}", wrote.out, wrote.err);
    for (signal, code) in [(libc::SIGKILL, None), (libc::SIGTERM, Some(0)), (libc::SIGINT, Some(0))]
    {
        assert_eq!(daemon.restart(signal), code);
        let read = client("qemu-io", &["-f", "raw", "-c", "read -P 5 1M 64k", &uri]).unwrap();
        assert!(
            read.code == 0 && !read.out.contains("verification failed"),
            "{}{}",
            read.out,
            read.err
        );
        let disk = daemon.json("disk show a");
        assert_eq!(
            (&disk["state"], &disk["effective_policy"]["shares"]),
            (&"serving".into(), &7.into())
        );
    }
    daemon.ok("disk remove a");
    let gone = client("qemu-io", &["-f", "raw", "-c", "quit", &uri]).unwrap();
    // The machine's socket went with its last disk.
    assert!(gone.err.contains("nbd.sock': No such file or directory"), "{}", gone.err);
    assert!(!daemon.dir().join("default/a.img").exists());
}

#[test]
fn a_policy_changes_a_hundred_times_in_a_row_and_is_read_back() {
    let daemon = Daemon::start(&[]);
    daemon.ok("datastore add array --emulated rate=1600");
    daemon.ok("disk create a --size 1M --datastore array");
    for n in 1..=100 {
        let changed =
            daemon.json(&format!("disk set a --limit {} --reservation {n} --shares {n}", 100 + n));
        let effective = &changed["effective_policy"];
        assert_eq!(
            (&effective["limit"], &effective["reservation"]),
            (&(100 + n).into(), &n.into())
        );
    }
    let removed = daemon.json("disk set a --limit none --reservation none");
    assert!(
        removed["effective_policy"]["limit"].is_null()
            && removed["effective_policy"]["reservation"].is_null()
    );
}

#[test]
fn errors_say_what_was_wrong_what_was_expected_and_what_to_do() {
    let daemon = Daemon::start(&[]);
    daemon.ok("datastore add array --emulated rate=1600");
    daemon.ok("datastore add big --emulated rate=9000");
    daemon.ok("disk create a --size 1M --datastore array --reservation 1500");
    let cases = [
        (
            "disk create b --size 1M --datastore array --reservation 400",
            "error: a reservation of 400 IOPS does not fit on datastore 'array': 1500 of 1600 IOPS are reserved \
             already, 300 IOPS are missing\n  expected: a reservation of at most 100 IOPS\n  hint: use --datastore \
             big, which has room for 9000 IOPS, or --force to overbook this one\n",
        ),
        (
            "disk show nothing",
            "error: there is no disk 'nothing'\n  expected: one of a\n  hint: see 'headgate disk list'\n",
        ),
        (
            "datastore remove array",
            "error: datastore 'array' still has 1 disk(s): a\n  hint: remove the disks first ('headgate disk remove \
             NAME')\n",
        ),
        (
            "disk create a --size 1M",
            "error: disk 'a' exists already\n  hint: choose another name, or see 'headgate disk show \
             a'\n",
        ),
    ];
    for (line, expected) in cases {
        let printed = daemon.run(line);
        assert_eq!((printed.code, printed.err.as_str()), (1, expected), "{line}");
    }
    // Values that only the daemon can judge are the command line's fault all the same.
    for (line, expected) in [
        (
            "datastore add x --dir /nonexistent",
            "error: /nonexistent does not exist\n  expected: a directory that exists\n",
        ),
        (
            "disk create c --datastore array",
            "error: the disk has no size\n  expected: a size in bytes, such as --size 10G\n",
        ),
    ] {
        let printed = daemon.run(line);
        assert_eq!((printed.code, printed.err.as_str()), (2, expected), "{line}");
    }
    let forced = daemon.run("disk create b --size 1M --datastore array --reservation 400 --force");
    assert_eq!(forced.code, 0, "{}", forced.err);
    assert!(
        forced.err.starts_with("warning: datastore 'array' is now overbooked by 300 IOPS"),
        "{}",
        forced.err
    );
    let list = daemon.ok("datastore list");
    assert!(
        list.contains("array    overbooked  mclock        32      1600      1900      2"),
        "{list}"
    );
}

#[test]
fn usage_errors_exit_with_two_and_name_the_argument() {
    let dir = tempfile::tempdir().unwrap();
    for (line, says) in [
        ("disk create ../x --size 1M", "is not a name"),
        ("disk create x --size 1Q", "not a size in bytes"),
        ("disk create x --size 1M --limit 0", "not a rate in IOPS"),
        ("disk create x --size 1M --burst 257", "257 is not in 0..=256"),
        ("disk set x", "nothing to change"),
        ("datastore add x", "--dir"),
        ("datastore add x --dir /a --emulated null", "cannot be used with"),
        ("nonsense", "nonsense"),
    ] {
        let printed = run(dir.path(), line);
        assert_eq!(printed.code, 2, "{line}: {}", printed.err);
        assert!(printed.err.contains(says), "{line}: {}", printed.err);
    }
}

#[test]
fn without_a_daemon_the_command_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    let printed = run(dir.path(), "disk list");
    assert_eq!(printed.code, 1);
    assert!(printed.err.starts_with("error: no headgate daemon answers on"), "{}", printed.err);
    assert!(printed.err.contains("headgate serve"), "{}", printed.err);
    let json: serde_json::Value =
        serde_json::from_str(&run(dir.path(), "disk list --json").err).unwrap();
    assert!(json["hint"].is_string());
}

#[test]
fn a_second_daemon_on_the_same_state_directory_is_refused() {
    let daemon = Daemon::start(&[]);
    let second = daemon.run("serve");
    assert_eq!(second.code, 1);
    assert!(second.err.contains(&format!("(process {})", daemon.pid())), "{}", second.err);
    daemon.ok("disk list");
}

#[test]
fn a_configuration_with_an_unknown_key_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("headgate.toml");
    std::fs::write(&file, "shards = 1\nlimits = 5\n").unwrap();
    let printed = run(dir.path(), &format!("serve --config {}", file.display()));
    assert_eq!(printed.code, 1);
    assert!(printed.err.contains("line 2") && printed.err.contains("limits"), "{}", printed.err);
}

#[test]
fn a_disk_whose_image_is_gone_is_shown_and_the_others_serve() {
    let mut daemon = Daemon::start(&[]);
    daemon.ok("disk create good --size 1M");
    daemon.ok("disk create bad --size 1M");
    daemon.end(libc::SIGTERM);
    std::fs::remove_file(daemon.dir().join("default/bad.img")).unwrap();
    daemon.start_again();
    let list = daemon.ok("disk list");
    assert!(list.contains("bad   failed") && list.contains("good  serving"), "{list}");
    let show = daemon.ok("disk show bad");
    assert!(show.contains("reason:") && show.contains("No such file"), "{show}");
}

#[test]
fn nbd_over_tcp_only_where_asked() {
    let daemon = Daemon::start(&["--nbd-listen", "127.0.0.1:0"]);
    daemon.ok("disk create a --size 1M");
    let attachment = daemon.json("disk attach a");
    let uri = attachment["nbd_tcp_uri"].as_str().unwrap();
    let Some(info) = client("nbdinfo", &["--size", uri]) else { return };
    assert_eq!(info.out.trim(), "1048576", "{}", info.err);
}

#[test]
fn killed_in_the_middle_of_creations_and_removals_it_comes_back_with_disks_and_images_that_match() {
    let mut daemon = Daemon::start(&[]);
    for round in 0u32..8 {
        let dir = daemon.dir().to_owned();
        let commands = std::thread::spawn(move || {
            // Until the daemon is gone.
            for n in 0.. {
                let create =
                    run(&dir, &format!("disk create r{round}-{n} --size 1M --datastore default"));
                if create.code != 0
                    || (n % 2 == 1 && run(&dir, &format!("disk remove r{round}-{n}")).code != 0)
                {
                    return;
                }
            }
        });
        // Rounds end at different places: after so many answers of the daemon.
        let alive = |daemon: &Daemon| daemon.json("disk list").as_array().map_or(0, Vec::len);
        let target = alive(&daemon) + 2 + round as usize % 3;
        while alive(&daemon) < target {
            std::thread::yield_now();
        }
        daemon.end(libc::SIGKILL);
        commands.join().unwrap();
        daemon.start_again();

        let list = daemon.json("disk list");
        let expected = |list: &serde_json::Value, key: &str, kinds: &[&str]| {
            let named = |disk: &serde_json::Value| {
                let name = disk[key].as_str().unwrap().to_owned();
                kinds.iter().map(move |kind| format!("{name}.{kind}")).collect::<Vec<_>>()
            };
            let mut all: Vec<String> = list.as_array().unwrap().iter().flat_map(named).collect();
            all.sort();
            all
        };
        let disks = expected(&list, "name", &["img", "img.lease", "img.record"]);
        let removed = daemon.json("disk list --removed");
        let removed = expected(&removed, "id", &["img", "img.record"]);
        assert!(list.as_array().unwrap().iter().all(|disk| disk["state"] == "serving"), "{list}");
        let files = |directory: &str| -> Vec<String> {
            let files = std::fs::read_dir(daemon.dir().join(directory)).into_iter().flatten();
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.filter(|name| name != ".removed").collect();
            names.sort();
            names
        };
        // Records that the killed daemon left behind are made good beside the daemon's work.
        let until = Instant::now() + Duration::from_secs(60);
        let same = || (files("default"), files("default/.removed"));
        while same() != (disks.clone(), removed.clone()) && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(same(), (disks, removed));
    }
}

/// The daemon on a state directory that it refuses; what it prints.
fn refused(dir: &std::path::Path) -> String {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_headgate"))
        .arg("serve")
        .env("HEADGATE_STATE_DIR", dir)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while serve.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            serve.kill().unwrap();
            panic!("it serves");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = serve.wait_with_output().unwrap();
    let printed = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{printed}");
    printed
}

#[test]
fn a_damaged_or_missing_catalog_stops_the_start_and_is_mended_by_the_commands_that_are_named() {
    let mut daemon = Daemon::start(&[]);
    daemon.ok("disk create a --size 1M --limit 700 --datastore default");
    daemon.ok("disk create b --size 1M --datastore default");
    daemon.ok("disk remove b");
    for command in ["check", "restore", "rebuild", "create"] {
        let busy = daemon.run(&format!("catalog {command}"));
        assert_eq!(busy.code, 1);
        assert!(busy.err.contains("hint: stop the daemon first"), "{}", busy.err);
    }
    daemon.end(libc::SIGTERM);
    let dir = daemon.dir().to_owned();
    let catalog = dir.join("catalog.sqlite");
    let ok = |line: &str| {
        let printed = run(&dir, line);
        assert_eq!(printed.code, 0, "{line}: {}{}", printed.out, printed.err);
        printed.out
    };
    assert!(ok("catalog check").contains("1 disk(s)"));

    std::fs::write(&catalog, [0x5a; 30_000]).unwrap();
    let error = refused(&dir);
    assert!(error.contains("catalog.sqlite is damaged: "), "{error}");
    assert!(error.contains("headgate catalog restore"), "{error}");
    assert_eq!(run(&dir, "catalog check").code, 1);
    assert!(ok("catalog restore").contains("catalog.sqlite.aside-1"));
    daemon.start_again();
    assert_eq!(daemon.json("disk show a")["policy"]["limit"], 700);
    daemon.end(libc::SIGTERM);

    std::fs::remove_file(&catalog).unwrap();
    std::fs::remove_dir_all(dir.join("catalog.copies")).unwrap();
    let error = refused(&dir);
    assert!(error.contains("default has 1 image(s)"), "{error}");
    for command in ["headgate catalog rebuild", "headgate catalog create"] {
        assert!(error.contains(command), "{error}");
    }
    assert!(!catalog.exists(), "a start that was refused makes nothing");
    ok("catalog rebuild");
    daemon.start_again();
    assert_eq!(daemon.json("disk show a")["policy"]["limit"], 700);
    daemon.ok("disk restore b");
    daemon.ok("disk remove b --purge");
    daemon.end(libc::SIGTERM);

    std::fs::remove_file(&catalog).unwrap();
    ok("catalog create");
    daemon.start_again();
    assert_eq!(daemon.json("disk list"), serde_json::json!([]));
    assert!(dir.join("default/a.img").exists());
}

#[test]
fn removed_disks_are_purged_when_their_time_is_over() {
    let daemon = Daemon::start(&["--keep-removed-for", "0s"]);
    daemon.ok("disk create a --size 1M --datastore default");
    let removed = daemon.ok("disk remove a");
    assert!(removed.contains("removed with its content"), "{removed}");
    assert!(!daemon.dir().join("default/.removed").exists());
    let mut daemon = Daemon::start(&["--keep-removed-for", "1d"]);
    daemon.ok("disk create a --size 1M --datastore default");
    assert!(daemon.ok("disk remove a").contains("headgate disk restore a"));
    let kept = daemon.json("disk list --removed");
    let image = format!("default/.removed/{}.img", kept[0]["id"].as_str().unwrap());
    assert!(daemon.dir().join(&image).exists());
    let shown = daemon.ok("datastore show default");
    assert!(shown.lines().any(|l| l.starts_with("removed:") && l.contains("1 disk(s)")), "{shown}");
    daemon.end(libc::SIGTERM);
    daemon.start_with(&["--keep-removed-for", "1s"]);
    let until = Instant::now() + Duration::from_secs(120);
    while daemon.dir().join(&image).exists() {
        assert!(Instant::now() < until, "it is not purged");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_completion_script_into_a_pipe_that_nobody_reads_is_no_failure() {
    let mut child = std::process::Command::new(crate::support::HEADGATE)
        .args(["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.is_empty(), "{said}");
}

/// The longest run of reads of one disk, in the order in which the storage got them.
fn longest_run(daemon: &Daemon) -> usize {
    let trace = daemon.ok("datastore trace array -");
    let disks: Vec<&str> = trace
        .lines()
        .filter(|line| line.contains(",R,"))
        .filter_map(|line| {
            ["a", "b"].into_iter().find(|disk| line.contains(&format!(",{disk},R,")))
        })
        .collect();
    assert_eq!(disks.len(), 600, "{trace}");
    // While both have requests queued: not at the beginning, not at the end.
    disks[50..500].chunk_by(|one, next| one == next).map(<[&str]>::len).max().unwrap()
}

#[test]
fn near_requests_go_back_to_back_where_batches_are_set() {
    let mut daemon = Daemon::start(&[]);
    daemon.ok("datastore add array --emulated rate=2000,depth=4 --queue-depth 4 --batch 8");
    assert_eq!(daemon.json("datastore show array")["batch"], "8,span=4M");
    for disk in ["a", "b"] {
        daemon.ok(&format!("disk create {disk} --size 64M --datastore array"));
    }
    let uri = |disk: &str| {
        format!("nbd+unix:///{disk}?socket={}", daemon.dir().join("nbd.sock").display())
    };
    let load = format!("load {} {} --sequential --depth 64 --ios 300", uri("a"), uri("b"));
    let mut runs = Vec::new();
    for batch in ["8", "3,span=1M", "4,span=8K", "none"] {
        daemon.ok(&format!("datastore set array --batch {batch} --layer trace=2000"));
        daemon.ok(&load);
        runs.push(longest_run(&daemon));
        daemon.ok("datastore set array --layer none");
    }
    // Two of 4 KiB each start within 8 KiB of the first.
    assert_eq!(runs[..3], [8, 3, 2]);
    assert!(runs[3] <= 2, "{runs:?}");

    daemon.ok("datastore set array --batch 4,span=64K");
    daemon.restart(libc::SIGKILL);
    assert!(daemon.ok("datastore show array").contains("batches:      4,span=64K\n"));
    daemon.ok("datastore add plain --emulated rate=1000 --scheduler sfq");
    for (line, says) in [
        ("datastore set array --batch 9", "a batch must be 2 to 8 requests, not 9"),
        ("datastore set array --batch 4,span=1K", "within 4 KiB to 1 GiB of each other, not 1 KiB"),
        ("datastore set array --batch many", "such as 8,span=4M"),
        ("datastore set plain --batch 8", "expected: mclock: it knows where requests lie"),
        (
            "datastore add more --emulated null --scheduler fifo --batch 8",
            "scheduler fifo sends no",
        ),
    ] {
        let printed = daemon.run(line);
        assert_eq!(printed.code, 2, "{line}: {}", printed.err);
        assert!(printed.err.contains(says), "{line}: {}", printed.err);
    }
    assert_eq!(daemon.json("datastore show array")["batch"], "4,span=64K");
}
