//! What a change would have done, asked of a daemon under the load of real clients: it comes true
//! when the change is made, it is on the page, and without a record there is no answer.

use super::page;
use anyhow::{Context as _, ensure};
use headgate_lab::browser::{Browser, CHROMIUM};
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::prometheus::free_address;
use headgate_lab::sample::Sample;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// What the storage does, in requests per second.
const RATE: f64 = 400.0;

/// What is asked for.
const RESERVATION: f64 = 240.0;

/// A disk of a quarter of another's shares, and clients that keep requests outstanding on both.
fn flooded(lab: &Lab, words: &[&str]) -> anyhow::Result<(Headgate, [Process; 2])> {
    let daemon = Headgate::start_as(lab, "state", &[], words)?;
    let device = format!("rate={RATE},service=exponential");
    let array = ["datastore", "add", "array", "--emulated", &device, "--queue-depth=8"];
    daemon.command(&[&array[..], &["--capacity=400"]].concat())?;
    for (disk, shares) in [("victim", "1000"), ("flooder", "4000")] {
        let made = ["disk", "create", disk, "--size=64M", "--datastore=array", "--shares", shares];
        daemon.command(&made)?;
    }
    let start = |disk: &str, depth| load(lab.dir(), disk, &daemon.nbd_uri(disk), depth);
    let clients = [start("flooder", 32)?, start("victim", 12)?];
    Ok((daemon, clients))
}

/// Asks until so much of the load was recorded that there is an answer, of whole minutes.
fn ask(daemon: &Headgate, words: &[&str]) -> anyhow::Result<Value> {
    wait_for("a minute should be recorded", 4 * MINUTE, || {
        let answer = daemon.json(&[&["what-if"], words].concat());
        let enough = |answer: &Value| answer["recorded_seconds"].as_f64() > Some(45.0);
        Ok(answer.ok().filter(enough))
    })
}

fn number(value: &Value, path: &str) -> anyhow::Result<f64> {
    let found = path.split('/').try_fold(value, |at, name| at.get(name));
    found.and_then(Value::as_f64).with_context(|| format!("no {path} in {value}"))
}

fn of_disk<'a>(answer: &'a Value, disk: &str) -> anyhow::Result<&'a Value> {
    let mut disks = answer["disks"].as_array().into_iter().flatten();
    disks.find(|one| one["disk"] == disk).with_context(|| format!("no {disk} in {answer}"))
}

/// The part of what both disks receive that one of them does, over some seconds.
fn part_of_victim(daemon: &Headgate) -> anyhow::Result<f64> {
    let before = Sample::read(daemon)?;
    std::thread::sleep(Duration::from_secs(20));
    let now = Sample::read(daemon)?;
    let got =
        |disk: &str| -> anyhow::Result<f64> { Ok(now.phases(disk)?[0] - before.phases(disk)?[0]) };
    Ok(got("victim")? / (got("victim")? + got("flooder")?))
}

#[test]
fn what_is_foretold_of_a_reservation_comes_true_when_it_is_set() {
    with_lab(&[], |lab| {
        let (daemon, clients) = flooded(lab, &[])?;
        let answer = ask(&daemon, &["victim", "--reservation=240"])?;
        println!("{answer:#}");
        let (victim, flooder) = (of_disk(&answer, "victim")?, of_disk(&answer, "flooder")?);
        ensure!(
            victim["load"].as_str().is_some_and(|load| load.starts_with("keeps 1")),
            "{victim}"
        );
        ensure!(answer["deviation"]["trust"] != "poor", "{}", answer["deviation"]);
        let of = |disk: &Value, which: &str| number(disk, &format!("{which}/normalised_iops"));
        let part = |which: &str| -> anyhow::Result<f64> {
            Ok(of(victim, which)? / (of(victim, which)? + of(flooder, which)?))
        };
        // As its shares have it, and as the reservation does.
        ensure!((part("recorded")? - 0.2).abs() < 0.03, "{}", part("recorded")?);
        let foretold = of(victim, "after")?;
        ensure!((foretold - RESERVATION).abs() < 0.05 * RESERVATION, "{foretold}");
        let p99 = |which: &str| number(victim, &format!("{which}/total_micros/p99"));
        ensure!(p99("after")? < 0.7 * p99("before")?, "{victim}");

        daemon.command(&["disk", "set", "victim", "--reservation=240"])?;
        let (measured, foretold) = (part_of_victim(&daemon)?, part("after")?);
        // What the answer says that it is off by, and what 20 s are off by.
        let off = number(&answer, "deviation/iops_percent")? / 100.0 + 0.04;
        println!("foretold {foretold:.3}, measured {measured:.3}, within {off:.3}");
        ensure!((measured - foretold).abs() <= off, "{measured} is not {foretold}");
        ensure!((part("before")? - measured).abs() > 0.2, "nothing has changed");

        let text = daemon.command(&["what-if", "flooder", "--limit=100", "--since=2min"])?;
        for words in ["trust in rates: ", "DISK", "victim", "flooder", "those of now"] {
            ensure!(text.contains(words), "{words}: {text}");
        }
        // Nothing was changed by asking.
        let kept: Value = serde_json::from_str(&daemon.get("/v1/disks/flooder")?)?;
        ensure!(kept["policy"]["limit"].is_null(), "{kept}");
        clients.into_iter().try_for_each(end)
    });
}

#[test]
fn a_daemon_without_a_record_says_that_it_has_no_answer() {
    with_lab(&[], |lab| {
        let daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "idle", "--size=16M"])?;
        let refused = |words: &[&str]| -> anyhow::Result<(Option<i32>, String)> {
            let mut command = Command::new(headgate::binary()?);
            command.arg("what-if").args(words).env("HEADGATE_STATE_DIR", daemon.state_dir());
            let done = run_to_end(command, MINUTE)?;
            Ok((done.status.code(), done.stderr))
        };
        for (words, code, said) in [
            (&["idle", "--reservation=800"][..], 1, "0 requests are recorded"),
            (&["idle", "--reservation=800"], 1, "history has nothing of datastore 'default'"),
            (&["nobody", "--reservation=800"], 1, "there is no disk 'nobody'"),
            (&["idle"], 2, "nothing to change"),
            (&["idle", "--limit=5", "--since=60d"], 2, "60d"),
            (&["idle", "--limit=5", "--since=7d"], 2, "at most 24 h"),
            (&["idle", "--limit=5", "--since=2020-01-01", "--until=2020-01-02"], 1, "too long ago"),
        ] {
            let (status, text) = refused(words)?;
            ensure!(status == Some(code) && text.contains(said), "{words:?}: {status:?} {text}");
        }
        Ok(())
    });
}

#[test]
fn the_page_simulates_a_change_by_keyboard_and_on_a_telephone() {
    with_lab(&[CHROMIUM], |lab| {
        let address = free_address()?;
        let words = page::served_at(lab, address)?;
        let (mut daemon, clients) = flooded(lab, &words.each_ref().map(String::as_str))?;
        let mut browser = Browser::start(lab)?;
        page::open(&mut browser, address, "disks")?;
        browser.wait_text("#disk-table", |text| text.contains("flooder"))?;
        let choose = "[...document.querySelectorAll('#disk-table tbody button')] \
                      .find((one) => one.innerText === 'victim').click()";
        browser.evaluate(choose)?;
        browser.wait_text("#what-if", |text| text.contains("What if I set this?"))?;
        // Nothing typed, and what is no number.
        let focus = "document.querySelector('#what-if input[name=reservation]').focus()";
        let kind = |value: &str| {
            format!("document.querySelector('#what-if input[name=reservation]').value = '{value}'")
        };
        browser.evaluate(focus)?;
        browser.press("Enter")?;
        browser.wait_text("#what-if-answer", |text| text.contains("Type a number"))?;
        browser.evaluate(&kind("many"))?;
        browser.press("Enter")?;
        browser.wait_text("#what-if-answer", |text| text.contains("many"))?;
        browser.evaluate(&kind("240"))?;
        wait_for("there should be an answer", 4 * MINUTE, || {
            browser.press("Enter")?;
            let text = browser.wait_text("#what-if-answer", |text| {
                !text.is_empty() && !text.contains("Simulating")
            })?;
            Ok(text.contains("Trust in rates:").then_some(()))
        })?;
        let rows = "[...document.querySelectorAll('#what-if tbody tr')] \
                    .map((row) => [...row.cells].map((cell) => cell.innerText))";
        let rows: Vec<Vec<String>> = serde_json::from_value(browser.evaluate(rows)?)?;
        ensure!(rows.len() == 2 && rows[0][0] == "victim" && rows[1][0] == "flooder", "{rows:?}");
        let rate = |row: usize, at: usize| -> anyhow::Result<f64> { Ok(rows[row][at].parse()?) };
        ensure!((rate(0, 3)? - RESERVATION).abs() < 0.1 * RESERVATION, "{rows:?}");
        ensure!(rate(0, 2)? < 0.5 * RESERVATION && rate(1, 3)? < rate(1, 2)?, "{rows:?}");
        ensure!(browser.text("#what-if .notes")?.contains("those of now"));
        browser.resize(400, 800)?;
        let too_wide = "document.documentElement.scrollWidth > innerWidth";
        ensure!(browser.evaluate(too_wide)? == false, "it is too wide");
        ensure!(browser.text("#what-if-answer")?.contains("Trust in rates:"));
        browser.ensure_content()?;
        clients.into_iter().try_for_each(end)?;
        daemon.stop()
    });
}
