//! Disks move between devices whose leases are in a real etcd; a lease is lost on the way.

use crate::fencing::{make_node, signal};
use anyhow::{Context, ensure};
use headgate_lab::etcd::Etcd;
use headgate_lab::headgate::Headgate;
use headgate_lab::loop_device::Loop;
use headgate_lab::nbd::{CMD_FLUSH, CMD_WRITE, Client};
use headgate_lab::writer::{Progress, Writer};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const SIZE: u64 = 16 << 20;
const BLOCK: usize = 4096;
const BLOCKS: u64 = SIZE / BLOCK as u64;
const NAMES: [&str; 2] = ["left", "right"];

/// Two hosts with one etcd, and two devices that both of them reach.
struct Site<'l> {
    lab: &'l Lab,
    etcd: Etcd,
    devices: [Loop; 2],
    hosts: [Headgate; 2],
}

impl<'l> Site<'l> {
    /// `None`, aloud, where there are no loop devices.
    fn start(lab: &'l Lab) -> anyhow::Result<Option<Site<'l>>> {
        let mut devices = Vec::new();
        for name in NAMES {
            let file = lab.dir().join(format!("{name}.device"));
            std::fs::File::create(&file)?.set_len(SIZE)?;
            devices.extend(Loop::attach(&file));
        }
        let Ok(devices) = <[Loop; 2]>::try_from(devices) else {
            eprintln!("SKIPPED: no loop devices here");
            return Ok(None);
        };
        let etcd = Etcd::start(lab)?;
        let start = |name| Headgate::start_as(lab, name, &[], &["--etcd", &etcd.url()]);
        let hosts = [start("one")?, start("two")?];
        Ok(Some(Site { lab, etcd, devices, hosts }))
    }

    /// Datastores on both devices, by nodes of this host's own: locks on one do not reach the other
    /// host, as they would not on two machines. The path is the same, for the lease is by that.
    fn add_datastores(&self, host: usize) -> anyhow::Result<()> {
        for (name, device) in NAMES.into_iter().zip(&self.devices) {
            let node = make_node(self.lab, name, &device.0)?;
            let node = node.display().to_string();
            self.hosts[host].command(&["datastore", "add", name, "--block", &node])?;
        }
        Ok(())
    }

    /// Whether another host can have a device's disk without a word of force.
    fn is_free(&self, host: usize, datastore: &str) -> anyhow::Result<bool> {
        let host = &self.hosts[host];
        let create = ["disk", "create", "probe", "--datastore", datastore, "--force"];
        let created = host.command(&create);
        match created {
            Ok(_) => {
                host.command(&["disk", "remove", "probe", "--yes", "--purge"])?;
                Ok(true)
            }
            Err(e) => {
                let said = format!("{e:#}");
                ensure!(said.contains("serves") || said.contains("lease"), "{said}");
                Ok(false)
            }
        }
    }
}

fn place(host: &Headgate, disk: &str) -> anyhow::Result<String> {
    Ok(host.json(&["disk", "show", disk])?["datastore"].as_str().unwrap_or_default().to_owned())
}

/// The move of a disk as it is told, if it is there still.
fn move_of(host: &Headgate, disk: &str) -> anyhow::Result<Option<serde_json::Value>> {
    let moves = host.json(&["disk", "moves"])?;
    let all = moves.as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().find(|one| one["disk"] == disk))
}

fn wait_for_end(host: &Headgate, disk: &str) -> anyhow::Result<()> {
    wait_for("the move should be over", PATIENCE, || {
        let found = move_of(host, disk)?;
        Ok(found.is_none_or(|one| one["state"] == "ended").then_some(()))
    })
}

fn wait_for_more(progress: &Progress) -> anyhow::Result<()> {
    let before = progress.flushes.load(Ordering::Relaxed);
    wait_for("the client should get on", PATIENCE, || {
        Ok((progress.flushes.load(Ordering::Relaxed) > before + 3).then_some(()))
    })
}

/// A writer on a disk of a host, until the work is done.
fn beside_a_writer<T>(
    writer: Writer,
    work: impl FnOnce(&Progress) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let progress = writer.progress();
    thread::scope(|scope| {
        let writer = scope.spawn(|| writer.run());
        let done = work(&progress);
        progress.stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer does not panic")?;
        done
    })
}

#[test]
fn a_disk_moves_between_devices_and_its_lease_in_etcd_with_it() {
    with_lab(&["losetup", "mknod"], |lab| {
        let Some(mut site) = Site::start(lab)? else { return Ok(()) };
        site.add_datastores(0)?;
        site.add_datastores(1)?;
        site.hosts[0].command(&["disk", "create", "db", "--size=16M"])?;
        let writer = Writer::new(site.hosts[0].nbd_socket(), "db", 1, BLOCKS);
        beside_a_writer(writer, |progress| {
            for to in ["left", "right", "left", "default", "right"] {
                let from = place(&site.hosts[0], "db")?;
                // From a device to a device, too: the target's lease is held while it is copied.
                let pace = ["--move-shares=1000000", "--move-bandwidth=8M", "--detach"];
                let words = ["disk", "migrate", "db", "--force", "--to", to];
                site.hosts[0].command_for(PATIENCE, &[&words[..], &pace].concat())?;
                for taken in [from.as_str(), to].into_iter().filter(|at| *at != "default") {
                    ensure!(!site.is_free(1, taken)?, "'{taken}' is free, and db is copied there");
                }
                wait_for_end(&site.hosts[0], "db")?;
                ensure!(place(&site.hosts[0], "db")? == to, "db did not go to {to}");
                if from != "default" {
                    ensure!(site.is_free(1, &from)?, "the lease of '{from}' is kept");
                }
                if to != "default" {
                    ensure!(!site.is_free(1, to)?, "the lease of '{to}' is nobody's");
                }
                wait_for_more(progress)?;
            }
            // Killed in the middle of a copy from a device to a device.
            let slow = ["disk", "migrate", "db", "--to=left", "--force", "--detach"];
            site.hosts[0].command(&[&slow[..], &["--move-bandwidth=1M"]].concat())?;
            wait_for_more(progress)?;
            site.hosts[0].kill()?;
            site.hosts[0].start_again()?;
            wait_for_more(progress)?;
            ensure!(place(&site.hosts[0], "db")? == "right");
            wait_for_end(&site.hosts[0], "db")?;
            wait_for("the lease of the copy should be given back", PATIENCE, || {
                Ok(site.is_free(1, "left")?.then_some(()))
            })
        })?;
        site.hosts.iter_mut().try_for_each(Server::stop)
    });
}

#[test]
fn a_copy_whose_lease_runs_out_ends_the_move_and_its_disk_goes_on() {
    with_lab(&["losetup", "mknod"], |lab| {
        let Some(mut site) = Site::start(lab)? else { return Ok(()) };
        site.add_datastores(0)?;
        let one = &site.hosts[0];
        one.command(&["disk", "create", "db", "--size=16M"])?;
        beside_a_writer(Writer::new(one.nbd_socket(), "db", 2, BLOCKS), |progress| {
            let slow = ["--move-bandwidth=256K", "--detach"];
            let words = ["disk", "migrate", "db", "--to=left"];
            one.command(&[&words[..], &slow].concat())?;
            wait_for_more(progress)?;
            // The copy's device may be another host's as soon as the term is over. The disk is in a
            // directory, and needs no etcd.
            signal("-STOP", site.etcd.pid())?;
            wait_for("the move should end without etcd", PATIENCE, || {
                let found = move_of(one, "db")?;
                let copies = found.is_some_and(|one| {
                    !["ended", "cleaning"].contains(&one["state"].as_str().unwrap_or_default())
                });
                Ok((!copies).then_some(()))
            })?;
            wait_for_more(progress)?;
            ensure!(place(one, "db")? == "default");
            ensure!(one.json(&["disk", "show", "db"])?["state"] == "serving");
            signal("-CONT", site.etcd.pid())?;
            wait_for_end(one, "db")?;
            one.command_for(PATIENCE, &[&words[..], &["--move-shares=1000000"]].concat())?;
            ensure!(place(one, "db")? == "left");
            wait_for_more(progress)
        })?;
        site.hosts.iter_mut().try_for_each(Server::stop)
    });
}

/// Writes one byte over all of a disk, or says that it cannot.
fn fill(client: &mut Client, byte: u8) -> anyhow::Result<()> {
    for block in 0..BLOCKS {
        let (at, data) = (block * BLOCK as u64, [byte; BLOCK]);
        let written = client.ask((CMD_WRITE, 0), at, BLOCK as u32, &data)?;
        ensure!(written == Some(0), "block {block}: {written:?}");
    }
    ensure!(client.ask((CMD_FLUSH, 0), 0, 0, &[])? == Some(0));
    Ok(())
}

fn holds(client: &mut Client, byte: u8) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for block in 0..BLOCKS {
        if client.read(block * BLOCK as u64, BLOCK as u32)? != [byte; BLOCK] {
            wrong.push(block);
        }
    }
    ensure!(wrong.is_empty(), "others wrote blocks {wrong:?}");
    Ok(())
}

impl Site<'_> {
    /// The first host's disk is full of ones, and most of it copied; then that host stands still.
    /// The second takes what is on the device `left`, and fills it with twos.
    fn take_left_from_the_first(&self, from: &str, to: &str) -> anyhow::Result<[Client; 2]> {
        let [one, two] = &self.hosts;
        let create = ["disk", "create", "db", "--size=16M", "--datastore", from];
        one.command(&create)?;
        let mut old = Client::connect(one.nbd_socket(), "db")?;
        fill(&mut old, 1)?;
        let slow = ["--move-bandwidth=4M", "--detach", "--to", to];
        one.command(&[&["disk", "migrate", "db"][..], &slow].concat())?;
        wait_for("half of it should be copied", PATIENCE, || {
            let found = move_of(one, "db")?.context("there is no move")?;
            Ok((found["copied"].as_u64() > Some(SIZE / 2)).then_some(()))
        })?;
        signal("-STOP", one.pid())?;
        self.add_datastores(1)?;
        let take = ["disk", "takeover", "db", "--datastore=left", "--evict"];
        two.command_for(PATIENCE, &take)?;
        let mut new = Client::connect(two.nbd_socket(), "db")?;
        fill(&mut new, 2)?;
        signal("-CONT", one.pid())?;
        Ok([old, new])
    }
}

#[test]
fn a_disk_that_is_taken_while_it_moves_does_not_go_on_from_its_copy() {
    with_lab(&["losetup", "mknod"], |lab| {
        let Some(mut site) = Site::start(lab)? else { return Ok(()) };
        site.add_datastores(0)?;
        let [mut old, mut new] = site.take_left_from_the_first("left", "default")?;
        let one = &site.hosts[0];
        wait_for("the first host should notice", PATIENCE, || {
            Ok((one.json(&["disk", "show", "db"])?["state"] != "serving").then_some(()))
        })?;
        // Nobody knows what the copy lacks: it must not become the disk.
        ensure!(place(one, "db")? == "left", "the copy became the disk");
        ensure!(fill(&mut old, 3).is_err(), "the first host writes still");
        holds(&mut new, 2)?;
        ensure!(place(one, "db")? == "left", "the copy became the disk");
        site.hosts.iter_mut().try_for_each(Server::stop)
    });
}

#[test]
fn a_copy_that_is_taken_is_written_no_more_and_its_disk_goes_on() {
    with_lab(&["losetup", "mknod"], |lab| {
        let Some(mut site) = Site::start(lab)? else { return Ok(()) };
        site.add_datastores(0)?;
        let [mut old, mut new] = site.take_left_from_the_first("default", "left")?;
        let one = &site.hosts[0];
        fill(&mut old, 3)?;
        wait_for_end(one, "db")?;
        holds(&mut new, 2)?;
        holds(&mut old, 3)?;
        ensure!(place(one, "db")? == "default");
        site.hosts.iter_mut().try_for_each(Server::stop)
    });
}
