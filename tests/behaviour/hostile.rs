//! A hostile client gets a clear error or is hung up on; nobody else notices.
//!
//! Each attack runs while an innocent client works on another disk of the same server and checks
//! all its data.

use headgate_lab::headgate::Headgate;
use headgate_lab::nbd::{self, Client, Handshake, OptionReply};
use headgate_lab::peer::{QEMU_STORAGE_DAEMON, StorageDaemon};
use headgate_lab::writer::Writer;
use headgate_lab::{DiskSpec, Server, wait_for, with_lab};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const SIZE_MIB: u64 = 16;
const SIZE: u64 = SIZE_MIB << 20;

/// An attack on a server whose disk "victim" may be ruined; an error means that the server did
/// wrong.
type Attack = (&'static str, fn(&dyn Server) -> anyhow::Result<()>);

const NBD_ATTACKS: &[Attack] = &[
    ("an unknown export is refused by name", unknown_export),
    ("an unknown export by the old option ends the connection", unknown_export_by_the_old_option),
    ("strange export names are refused", strange_names),
    ("an unknown option is unsupported", unknown_option),
    ("an option of four gigabytes is not waited for", huge_option),
    ("a name longer than its option is invalid", name_longer_than_option),
    ("a list with data is invalid", list_with_data),
    ("thousands of meta context queries are answered or refused", many_contexts),
    ("wrong magic numbers end the connection", wrong_magics),
    ("unknown handshake flags end the connection", unknown_flags),
    ("requests beyond the end fail by themselves", beyond_the_end),
    ("misaligned requests are served or refused, nothing else", misaligned),
    ("requests of no length harm nobody", no_length),
    ("a read of four gigabytes is refused", huge_read),
    ("a write of four gigabytes is refused", huge_write),
    ("unknown commands and flags are invalid", unknown_commands),
    ("a client may stop in the middle of anything", stops_in_the_middle),
    ("a client may stop reading", stops_reading),
    ("hundreds of idle connections are borne", idle_connections),
    ("noise ends the connection", noise),
];

const VHOST_ATTACKS: &[Attack] = &[
    ("noise on a vhost-user socket ends that connection", vhost_noise),
    ("a vhost-user message of four gigabytes is not waited for", vhost_huge_message),
    ("a vhost-user front-end may stop in the middle of a message", vhost_half_message),
    ("a second front-end does not disturb the first", vhost_second_front_end),
];

fn withstands(server: &mut dyn Server, attacks: &[Attack]) -> anyhow::Result<()> {
    let innocent = Writer::new(server.nbd_socket(), "innocent", 3, SIZE / 4096);
    let progress = innocent.progress();
    let attacked = thread::scope(|scope| {
        let innocent = scope.spawn(|| innocent.run());
        let outcome: anyhow::Result<()> = attacks.iter().try_for_each(|(name, attack)| {
            attack(server).map_err(|e| e.context(*name))?;
            let flushes = progress.flushes.load(Ordering::Relaxed);
            wait_for("the innocent client should get on", PATIENCE, || {
                anyhow::ensure!(
                    !innocent.is_finished(),
                    "the innocent client failed after: {name}"
                );
                Ok((progress.flushes.load(Ordering::Relaxed) > flushes + 1).then_some(()))
            })?;
            eprintln!("{}: {name}", server.name());
            Ok(())
        });
        progress.stop.store(true, Ordering::Relaxed);
        innocent.join().expect("the writer does not panic")?;
        outcome
    });
    attacked?;
    anyhow::ensure!(
        progress.crashes.load(Ordering::Relaxed) == 0,
        "the innocent client was hung up on"
    );
    let mut victim = Client::connect(server.nbd_socket(), "victim")?;
    victim.read(0, 4096)?;
    drop(victim);
    server.stop()
}

fn greeted(server: &dyn Server) -> anyhow::Result<Handshake> {
    let mut handshake = Handshake::connect(server.nbd_socket())?;
    handshake.flags(nbd::CLIENT_FLAGS)?;
    Ok(handshake)
}

/// Sends an option and returns the answer; a server may also hang up.
fn option(server: &dyn Server, option: u32, data: &[u8]) -> anyhow::Result<Option<OptionReply>> {
    let mut handshake = greeted(server)?;
    handshake.option(option, data.len() as u32, data)?;
    handshake.reply()
}

fn expect_kind(reply: Option<OptionReply>, kinds: &[u32]) -> anyhow::Result<()> {
    anyhow::ensure!(
        reply.as_ref().is_none_or(|r| kinds.contains(&r.kind)),
        "answered with {reply:x?}"
    );
    Ok(())
}

fn unknown_export(server: &dyn Server) -> anyhow::Result<()> {
    let mut handshake = greeted(server)?;
    let request = nbd::go_request(b"nobody");
    handshake.option(nbd::OPT_GO, request.len() as u32, &request)?;
    let reply = handshake.reply()?.ok_or_else(|| anyhow::anyhow!("hung up instead of an error"))?;
    anyhow::ensure!(reply.kind == nbd::REP_ERR_UNKNOWN, "answered with {reply:x?}");
    // The same connection may go on with a name that exists.
    handshake.option(nbd::OPT_GO, 6 + 6, &nbd::go_request(b"victim"))?;
    let reply = handshake.reply()?;
    anyhow::ensure!(
        reply.as_ref().is_some_and(|r| r.kind == nbd::REP_INFO),
        "answered with {reply:x?}"
    );
    Ok(())
}

fn unknown_export_by_the_old_option(server: &dyn Server) -> anyhow::Result<()> {
    let mut handshake = greeted(server)?;
    handshake.option(nbd::OPT_EXPORT_NAME, 6, b"nobody")?;
    anyhow::ensure!(handshake.reply()?.is_none(), "an answer where the protocol has none");
    Ok(())
}

fn strange_names(server: &dyn Server) -> anyhow::Result<()> {
    let long = vec![b'x'; 4096];
    let too_long = vec![b'x'; 8000];
    for name in [&b""[..], b"victim\0", b"../victim", b"\xff\xfe\xfd", b"%s%n", &long, &too_long] {
        let reply = option(server, nbd::OPT_GO, &nbd::go_request(name))?;
        anyhow::ensure!(
            reply.as_ref().is_none_or(|r| r.kind >> 31 == 1),
            "{name:?} answered with {reply:x?}"
        );
    }
    Ok(())
}

fn unknown_option(server: &dyn Server) -> anyhow::Result<()> {
    for number in [0, 2_000, 0xdead_beef, u32::MAX] {
        expect_kind(
            option(server, number, b"anything")?,
            &[nbd::REP_ERR_UNSUP, nbd::REP_ERR_INVALID],
        )?;
    }
    Ok(())
}

fn huge_option(server: &dyn Server) -> anyhow::Result<()> {
    for number in [nbd::OPT_GO, nbd::OPT_EXPORT_NAME, nbd::OPT_SET_META_CONTEXT, 77] {
        let mut handshake = greeted(server)?;
        handshake.option(number, u32::MAX, b"begin")?;
        // A server that skips what it cannot hold waits for the rest: then it is our turn to leave.
        handshake.stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        if let Ok(Some(reply)) = handshake.reply() {
            anyhow::ensure!(reply.kind >> 31 == 1, "answered with {reply:x?}");
        }
    }
    Ok(())
}

fn name_longer_than_option(server: &dyn Server) -> anyhow::Result<()> {
    for length in [7_u32, 4096, u32::MAX] {
        let mut data = nbd::go_request(b"victim");
        data[..4].copy_from_slice(&length.to_be_bytes());
        expect_kind(option(server, nbd::OPT_GO, &data)?, &[nbd::REP_ERR_INVALID])?;
    }
    // More information requests announced than sent.
    let mut data = nbd::go_request(b"victim");
    let at = data.len() - 2;
    data[at..].copy_from_slice(&u16::MAX.to_be_bytes());
    expect_kind(option(server, nbd::OPT_GO, &data)?, &[nbd::REP_ERR_INVALID])
}

fn list_with_data(server: &dyn Server) -> anyhow::Result<()> {
    expect_kind(option(server, nbd::OPT_LIST, b"surplus")?, &[nbd::REP_ERR_INVALID])
}

fn many_contexts(server: &dyn Server) -> anyhow::Result<()> {
    let mut data = 6_u32.to_be_bytes().to_vec();
    data.extend(b"victim");
    data.extend(5000_u32.to_be_bytes());
    for _ in 0..5000 {
        data.extend(4_u32.to_be_bytes());
        data.extend(b"a:bc");
    }
    let mut handshake = greeted(server)?;
    // A server may hang up before it has read it all.
    let _ = handshake.option(nbd::OPT_SET_META_CONTEXT, data.len() as u32, &data);
    handshake.reply().map(drop)
}

fn wrong_magics(server: &dyn Server) -> anyhow::Result<()> {
    let mut handshake = greeted(server)?;
    handshake.stream.write_all(&[0x55; 16])?;
    anyhow::ensure!(
        handshake.reply()?.is_none_or(|r| r.kind >> 31 == 1),
        "accepted an option of a wrong magic number"
    );
    let mut victim = Client::connect(server.nbd_socket(), "victim")?;
    victim.stream.write_all(&[0x55; 28])?;
    match victim.reply()? {
        None | Some((nbd::EINVAL, _)) => Ok(()),
        Some(reply) => {
            anyhow::bail!("a request of a wrong magic number was answered with {reply:?}")
        }
    }
}

fn unknown_flags(server: &dyn Server) -> anyhow::Result<()> {
    let mut handshake = Handshake::connect(server.nbd_socket())?;
    handshake.flags(u32::MAX)?;
    // The server may have hung up by now.
    let _ = handshake.option(nbd::OPT_LIST, 0, &[]);
    anyhow::ensure!(handshake.reply()?.is_none(), "accepted handshake flags that do not exist");
    Ok(())
}

fn beyond_the_end(server: &dyn Server) -> anyhow::Result<()> {
    let mut victim = Client::connect(server.nbd_socket(), "victim")?;
    let data = [7; 4096];
    let commands: [(u16, &[u8]); 4] = [
        (nbd::CMD_READ, &[]),
        (nbd::CMD_WRITE, &data),
        (nbd::CMD_TRIM, &[]),
        (nbd::CMD_WRITE_ZEROES, &[]),
    ];
    for (command, data) in commands {
        for offset in [SIZE, SIZE - 512, SIZE + 4096, u64::MAX, u64::MAX - 4095, 1 << 63] {
            let error = victim.ask((command, 0), offset, 4096, data)?;
            let fitting = matches!(error, Some(nbd::EINVAL | nbd::ENOSPC));
            anyhow::ensure!(fitting, "command {command} at {offset} was answered with {error:?}");
        }
    }
    // The connection has kept step: what it reads is what is there.
    anyhow::ensure!(
        victim.read(SIZE - 4096, 4096)?.iter().all(|b| *b == 0),
        "a refused write left something"
    );
    Ok(())
}

fn misaligned(server: &dyn Server) -> anyhow::Result<()> {
    let mut victim = Client::connect(server.nbd_socket(), "victim")?;
    for (offset, length) in [(1, 512), (0, 1), (511, 2), (513, 4095)] {
        match victim.ask((nbd::CMD_WRITE, 0), offset, length, &vec![9; length as usize])? {
            Some(0) => {
                let back = victim.read(offset, length)?;
                anyhow::ensure!(
                    back.iter().all(|b| *b == 9),
                    "{length} bytes at {offset} were not kept"
                );
            }
            Some(nbd::EINVAL) => {}
            other => anyhow::bail!("{length} bytes at {offset}: {other:?}"),
        }
    }
    Ok(())
}

fn no_length(server: &dyn Server) -> anyhow::Result<()> {
    let mut victim = Client::connect(server.nbd_socket(), "victim")?;
    for command in [nbd::CMD_READ, nbd::CMD_WRITE, nbd::CMD_TRIM, nbd::CMD_WRITE_ZEROES] {
        let error = victim.ask((command, 0), 4096, 0, &[])?;
        anyhow::ensure!(matches!(error, Some(0 | nbd::EINVAL)), "command {command}: {error:?}");
    }
    victim.read(0, 512).map(drop)
}

fn huge_read(server: &dyn Server) -> anyhow::Result<()> {
    for length in [u32::MAX, 1 << 31, (SIZE as u32) + 512] {
        let mut victim = Client::connect(server.nbd_socket(), "victim")?;
        let error = victim.ask((nbd::CMD_READ, 0), 0, length, &[])?;
        anyhow::ensure!(error != Some(0), "{length} bytes promised of a disk of {SIZE}");
    }
    Ok(())
}

fn huge_write(server: &dyn Server) -> anyhow::Result<()> {
    let mut victim = Client::connect(server.nbd_socket(), "victim")?;
    victim.send((nbd::CMD_WRITE, 0), 1, 0, u32::MAX, &[1; 65536])?;
    victim.stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    // Nothing, if the server skips the rest; otherwise an error or a hang-up.
    if let Ok(Some((0, _))) = victim.reply() {
        anyhow::bail!("four gigabytes acknowledged after 64 KiB");
    }
    Ok(())
}

fn unknown_commands(server: &dyn Server) -> anyhow::Result<()> {
    let mut victim = Client::connect(server.nbd_socket(), "victim")?;
    for command in [8, 77, u16::MAX] {
        let error = victim.ask((command, 0), 0, 0, &[])?;
        anyhow::ensure!(error == Some(nbd::EINVAL), "command {command}: {error:?}");
    }
    let error = victim.ask((nbd::CMD_READ, 0x8000), 0, 512, &[])?;
    anyhow::ensure!(error == Some(nbd::EINVAL), "unknown flag: {error:?}");
    Ok(())
}

fn stops_in_the_middle(server: &dyn Server) -> anyhow::Result<()> {
    drop(Handshake::connect(server.nbd_socket())?);
    Handshake::connect(server.nbd_socket())?.stream.write_all(&[0, 0])?;
    greeted(server)?.stream.write_all(b"IHAVE")?;
    greeted(server)?.option(nbd::OPT_GO, 12, b"\0\0")?;
    Client::connect(server.nbd_socket(), "victim")?
        .stream
        .write_all(&nbd::REQUEST_MAGIC.to_be_bytes())?;
    let mut victim = Client::connect(server.nbd_socket(), "victim")?;
    victim.send((nbd::CMD_WRITE, 0), 1, 0, 65536, &[1; 1000])?;
    drop(victim);
    // Replies that nobody takes any more.
    for _ in 0..20 {
        let mut victim = Client::connect(server.nbd_socket(), "victim")?;
        for handle in 0..16 {
            victim.send((nbd::CMD_READ, 0), handle, 0, 1 << 20, &[])?;
        }
    }
    Ok(())
}

fn stops_reading(server: &dyn Server) -> anyhow::Result<()> {
    let mut victim = Client::connect(server.nbd_socket(), "victim")?;
    victim.stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    // Until the server, its replies stuck, takes no more requests either; bounded, should it take
    // them all.
    let stuck = (0..200_000)
        .any(|handle| victim.send((nbd::CMD_READ, 0), handle, 0, 1 << 20, &[]).is_err());
    anyhow::ensure!(stuck, "the server queues replies without bound");
    // Another client of the same disk is served meanwhile.
    Client::connect(server.nbd_socket(), "victim")?.read(0, 4096)?;
    Ok(())
}

fn idle_connections(server: &dyn Server) -> anyhow::Result<()> {
    // A server may refuse some; it must not refuse the next client after they have left.
    let idle: Vec<UnixStream> =
        (0..300).map_while(|_| UnixStream::connect(server.nbd_socket()).ok()).collect();
    drop(idle);
    Client::connect(server.nbd_socket(), "victim")?.read(0, 4096).map(drop)
}

fn noise(server: &dyn Server) -> anyhow::Result<()> {
    for seed in 0..50 {
        let bytes = random_bytes(seed, 4096);
        let mut handshake = greeted(server)?;
        // The server may hang up at any byte.
        let _ = handshake.stream.write_all(&bytes);
        let mut victim = Client::connect(server.nbd_socket(), "victim")?;
        let _ = victim.stream.write_all(&bytes);
        let _ = victim.stream.shutdown(std::net::Shutdown::Write);
        victim.stream.read_to_end(&mut Vec::new()).or_else(reset_is_an_end)?;
    }
    Ok(())
}

fn vhost_noise(server: &dyn Server) -> anyhow::Result<()> {
    for seed in 0..20 {
        let mut stream = vhost(server)?;
        let _ = stream.write_all(&random_bytes(seed, 512));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.read_to_end(&mut Vec::new()).or_else(reset_is_an_end)?;
    }
    Ok(())
}

fn vhost_huge_message(server: &dyn Server) -> anyhow::Result<()> {
    let mut stream = vhost(server)?;
    // VHOST_USER_GET_CONFIG, version 1, of four gigabytes.
    let header = [24_u32.to_le_bytes(), 1_u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
    stream.write_all(&header)?;
    let _ = stream.write_all(&[0; 4096]);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    stream.read_to_end(&mut Vec::new()).or_else(reset_is_an_end)?;
    Ok(())
}

fn vhost_half_message(server: &dyn Server) -> anyhow::Result<()> {
    let mut stream = vhost(server)?;
    stream.write_all(&[1, 0, 0, 0, 1, 0])?;
    drop(stream);
    // The next front-end is served.
    vhost_features(&mut vhost(server)?)
}

fn vhost_second_front_end(server: &dyn Server) -> anyhow::Result<()> {
    let mut first = vhost(server)?;
    vhost_features(&mut first)?;
    let mut second = vhost(server)?;
    second.set_read_timeout(Some(Duration::from_millis(200)))?;
    anyhow::ensure!(vhost_features(&mut second).is_err(), "two front-ends are served at once");
    vhost_features(&mut first)?;
    drop((first, second));
    vhost_features(&mut vhost(server)?)
}

/// Asks VHOST_USER_GET_FEATURES, which is answered with eight bytes.
fn vhost_features(stream: &mut UnixStream) -> anyhow::Result<()> {
    stream.write_all(&[1_u32.to_le_bytes(), 1_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat())?;
    let mut answer = [0; 20];
    stream.read_exact(&mut answer)?;
    anyhow::ensure!(answer[8..12] == 8_u32.to_le_bytes(), "no features: {answer:?}");
    Ok(())
}

fn vhost(server: &dyn Server) -> anyhow::Result<UnixStream> {
    let stream = UnixStream::connect(server.vhost_socket("victim"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn reset_is_an_end(error: std::io::Error) -> std::io::Result<usize> {
    match error.kind() {
        std::io::ErrorKind::ConnectionReset => Ok(0),
        _ => Err(error),
    }
}

fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    (0..count as u64).map(|i| headgate_lab::ledger::splitmix(seed << 32 | i) as u8).collect()
}

fn disks() -> [DiskSpec; 2] {
    [DiskSpec::mib("innocent", SIZE_MIB), DiskSpec::mib("victim", SIZE_MIB)]
}

#[test]
fn a_peer_withstands_hostile_nbd_clients() {
    with_lab(&[QEMU_STORAGE_DAEMON], |lab| {
        withstands(&mut StorageDaemon::start(lab, &disks())?, NBD_ATTACKS)
    });
}

#[test]
fn a_peer_withstands_hostile_front_ends() {
    with_lab(&[QEMU_STORAGE_DAEMON], |lab| {
        withstands(&mut StorageDaemon::start(lab, &disks())?, VHOST_ATTACKS)
    });
}

#[test]
fn the_daemon_withstands_hostile_nbd_clients() {
    with_lab(&[], |lab| withstands(&mut Headgate::with_disks(lab, &disks())?, NBD_ATTACKS));
}

#[test]
fn the_daemon_withstands_hostile_front_ends() {
    with_lab(&[], |lab| withstands(&mut Headgate::with_disks(lab, &disks())?, VHOST_ATTACKS));
}

/// Attacks the daemon with all of the load generator's scenarios while it loads another disk, which
/// must see no error.
fn withstands_the_load_generator(daemon: &mut Headgate, target: &str) -> anyhow::Result<()> {
    let innocent = daemon.nbd_uri("innocent");
    let said = daemon
        .command_for(Duration::from_secs(180), &["load", target, &innocent, "--hostile", "all"])?;
    eprintln!("{said}");
    daemon.ensure_running()?;
    daemon.stop()
}

#[test]
fn the_daemon_withstands_hostile_drivers() {
    with_lab(&[], |lab| {
        let mut daemon = Headgate::with_disks(lab, &disks())?;
        let socket = daemon.vhost_socket("victim").display().to_string();
        withstands_the_load_generator(&mut daemon, &socket)
    });
}

#[test]
fn the_daemon_withstands_the_load_generators_nbd_attacks() {
    with_lab(&[], |lab| {
        let mut daemon = Headgate::with_disks(lab, &disks())?;
        let uri = daemon.nbd_uri("victim");
        withstands_the_load_generator(&mut daemon, &uri)
    });
}
