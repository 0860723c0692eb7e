//! Disks that get another size while their clients use them.

use crate::support::moving::{
    BOTH, Mover, SIZE, Shards, datastore, engine, file, open, ram, remote,
};
use crate::support::server::Server;
use crate::support::{Client, Message, PATIENCE, places};
use headgate_engine::port::Detach;
use headgate_engine::request::{Durability, IoError, Op};
use headgate_engine::{BackendSpec, CutOff, DiskId, Engine, EngineError, Image, ResizeError};
use headgate_units::Bytes;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

const MIB: u64 = 1 << 20;
const LARGER: u64 = 2 * SIZE;

fn emulated(model: &str) -> BackendSpec {
    BackendSpec::Emulated(model.parse().unwrap(), Bytes::from_gib(1))
}

/// A disk of every kind that has a size of its own, and the file that it lies in.
fn disks(engine: &Engine) -> Vec<(DiskId, Option<PathBuf>, Option<tempfile::TempDir>)> {
    let mut disks = Vec::new();
    for dir in places() {
        let path = dir.path().join("d.raw");
        let store = datastore(engine, "files", BackendSpec::Files, &[]);
        let disk = open(engine, store, file(&path));
        disks.push((disk, Some(path), Some(dir)));
    }
    let store = datastore(engine, "memory", BackendSpec::Memory, &[]);
    disks.push((open(engine, store, ram()), None, None));
    for model in ["rate=20000", "ssd=256M,dies=8"] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("d.raw");
        let store = datastore(engine, model, emulated(model), &[]);
        let disk = open(engine, store, file(&path));
        disks.push((disk, Some(path), Some(dir)));
    }
    disks
}

fn length(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

#[test]
fn a_disk_of_every_kind_grows_under_its_client() {
    let engine = engine(Shards::One);
    for (disk, path, _dir) in disks(&engine) {
        let client = Client::new(&engine, disk);
        let (tell, sizes) = channel();
        assert!(client.0.command(Box::new(Message::Sizes(tell))).is_ok());
        client.write(SIZE - 4096, &[1; 4096], 0).unwrap();
        assert_eq!(client.write(SIZE, &[2; 4096], 0), Err(IoError::Invalid));
        // Some are under way while it grows.
        let busy: Vec<_> =
            (0..64).map(|n| client.start(Op::Read, n * 4096, 4096, vec![0; 4096], 0)).collect();
        engine.resize_disk(disk, Bytes(LARGER), CutOff::Keep).unwrap();
        assert_eq!(sizes.recv_timeout(PATIENCE), Ok(LARGER));
        assert_eq!(engine.disk_info(disk).unwrap().size, LARGER);
        for answer in busy {
            answer.recv_timeout(PATIENCE).unwrap().0.unwrap();
        }
        assert!(client.read(SIZE, MIB as usize, 0) == vec![0; MIB as usize], "new and zeroes");
        client.write(LARGER - 65536, &[3; 65536], 0).unwrap();
        assert!(client.read(LARGER - 65536, 65536, 0) == [3; 65536]);
        assert!(client.read(SIZE - 4096, 4096, 0) == [1; 4096], "what was there is there");
        assert_eq!(client.write(LARGER, &[2; 4096], 0), Err(IoError::Invalid));
        assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
        if let Some(path) = path {
            assert_eq!(length(&path), LARGER);
        }
        assert_eq!(Client::new(&engine, disk).read(LARGER - 4096, 4096, 0), [3; 4096]);
    }
    engine.shutdown(PATIENCE).unwrap();
}

/// That it does not take, and what it says.
fn refusal(engine: &Engine, disk: DiskId, size: u64, cut_off: CutOff) -> String {
    let before = engine.disk_info(disk).unwrap().size;
    let error = engine.resize_disk(disk, Bytes(size), cut_off).unwrap_err();
    assert_eq!(engine.disk_info(disk).unwrap().size, before, "{error}");
    error.to_string()
}

#[test]
fn a_disk_shrinks_without_clients_and_keeps_data_unless_told() {
    let engine = engine(Shards::One);
    for (disk, path, _dir) in disks(&engine) {
        let client = Client::new(&engine, disk);
        client.write(SIZE - MIB, &[1; 4096], 0).unwrap();
        client.write(0, &[2; 4096], 0).unwrap();
        let said = refusal(&engine, disk, SIZE / 2, CutOff::Discard);
        assert!(said.starts_with("the disk has 1 clients"), "{said}");
        client.0.detach(Detach::Drain);
        assert!(client.0.wait_gone(PATIENCE));
        assert_eq!(
            refusal(&engine, disk, SIZE / 2, CutOff::Keep),
            "there is data behind 16 MiB, the first of it at 31 MiB"
        );
        if let Some(path) = &path {
            assert_eq!(length(path), SIZE);
        }
        // It is whole after a refusal.
        let client = Client::new(&engine, disk);
        assert!(client.read(SIZE - MIB, 4096, 0) == [1; 4096]);
        client.0.detach(Detach::Drain);
        assert!(client.0.wait_gone(PATIENCE));
        engine.resize_disk(disk, Bytes(SIZE / 2), CutOff::Discard).unwrap();
        if let Some(path) = &path {
            assert_eq!(length(path), SIZE / 2);
        }
        let client = Client::new(&engine, disk);
        assert_eq!(client.write(SIZE / 2, &[2; 4096], 0), Err(IoError::Invalid));
        assert!(client.read(0, 4096, 0) == [2; 4096]);
        // What was cut off does not come back.
        engine.resize_disk(disk, Bytes(SIZE), CutOff::Keep).unwrap();
        assert!(client.read(SIZE - MIB, MIB as usize, 0) == vec![0; MIB as usize]);
    }
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_disk_without_storage_has_any_size() {
    let engine = engine(Shards::One);
    let store = datastore(&engine, "null", BackendSpec::Null, &[]);
    let disk = open(&engine, store, Image::null(Bytes(SIZE)).unwrap());
    let client = Client::new(&engine, disk);
    engine.resize_disk(disk, Bytes(LARGER), CutOff::Keep).unwrap();
    client.write(LARGER - 4096, &[1; 4096], 0).unwrap();
    for size in [0, SIZE + 1, (16 << 40) + 4096, u64::MAX - 511] {
        let said = refusal(&engine, disk, size, CutOff::Discard);
        assert!(said.ends_with("is not whole blocks of 512, or more than 16 TiB"), "{said}");
    }
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_size_that_the_storage_refuses_was_never_the_disks() {
    let engine = engine(Shards::One);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("d.raw");
    let disk = open(&engine, datastore(&engine, "files", BackendSpec::Files, &[]), file(&path));
    let client = Client::new(&engine, disk);
    let (tell, sizes) = channel();
    assert!(client.0.command(Box::new(Message::Sizes(tell))).is_ok());
    let beyond = || client.start(Op::Write(Durability::Cached), SIZE, 4096, vec![1; 4096], 0);
    // One block more than ext4 keeps in a file.
    let size = Bytes(16 << 40);
    let over = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let answers: Vec<_> = (0..8).map(|_| beyond()).collect();
                for answer in answers {
                    assert_eq!(answer.recv_timeout(PATIENCE).unwrap().0, Err(IoError::Invalid));
                }
            }
        });
        let refused = (0..3_000).all(|_| match engine.resize_disk(disk, size, CutOff::Keep) {
            Err(EngineError::Resize(ResizeError::Io(_))) => !writer.is_finished(),
            Ok(()) => false,
            Err(other) => panic!("{other}"),
        });
        over.store(true, Ordering::Relaxed);
        writer.join().expect("no write beyond the end is done");
        refused
    });
    if !refused {
        return println!("SKIPPED: this file system takes files of {size}");
    }
    assert_eq!((length(&path), engine.disk_info(disk).unwrap().size), (SIZE, SIZE));
    assert!(sizes.try_iter().all(|told| told == SIZE), "another size was told");
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn an_emulated_drive_has_room_or_refuses() {
    let engine = engine(Shards::One);
    let store = datastore(&engine, "flash", emulated("ssd=96M,dies=4"), &[]);
    let dirs = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let [first, second] =
        [0, 1].map(|n: usize| open(&engine, store, file(&dirs[n].path().join("d.raw"))));
    // Its neighbour is behind it, so it lies elsewhere from now on, and its data goes along.
    let client = Client::new(&engine, first);
    client.write(MIB, &[5; 4096], 0).unwrap();
    engine.resize_disk(first, Bytes(SIZE + 8 * MIB), CutOff::Keep).unwrap();
    client.write(SIZE + 4 * MIB, &[6; 4096], 0).unwrap();
    assert!(client.read(MIB, 4096, 0) == [5; 4096]);
    let error = engine.resize_disk(second, Bytes(LARGER), CutOff::Keep).unwrap_err();
    assert!(matches!(error, EngineError::Place(_)), "{error}");
    assert_eq!(engine.disk_info(second).unwrap().size, SIZE);
    assert_eq!(length(&dirs[1].path().join("d.raw")), SIZE);
    // Where the first one was is room for the second.
    engine.resize_disk(second, Bytes(SIZE + 16 * MIB), CutOff::Keep).unwrap();
    Client::new(&engine, second).write(SIZE + 15 * MIB, &[7; 4096], 0).unwrap();
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_moving_disk_keeps_its_size_and_so_does_an_export() {
    for shards in BOTH {
        let engine = engine(shards);
        let [from, to] =
            ["from", "to"].map(|name| datastore(&engine, name, BackendSpec::Memory, &[]));
        let [source, target] = [from, to].map(|store| open(&engine, store, ram()));
        let client = Client::new(&engine, source);
        let mover = Mover::begin(&engine, source, target);
        for side in [source, target] {
            for size in [LARGER, SIZE / 2] {
                assert_eq!(
                    refusal(&engine, side, size, CutOff::Discard),
                    "the disk is being moved"
                );
            }
        }
        mover.finish();
        // Clients that hold on to the name of the source are served by the target.
        engine.resize_disk(target, Bytes(LARGER), CutOff::Keep).unwrap();
        client.write(LARGER - 4096, &[1; 4096], 0).unwrap();
        engine.shutdown(PATIENCE).unwrap();
    }
    let engine = engine(Shards::One);
    let server = Server::start(SIZE as usize);
    let disk = remote(&engine, "far", &server);
    let error = engine.resize_disk(disk, Bytes(LARGER), CutOff::Keep).unwrap_err();
    assert!(matches!(error, EngineError::Resize(ResizeError::Export)), "{error}");
    engine.shutdown(PATIENCE).unwrap();
}
