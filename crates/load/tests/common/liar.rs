//! An NBD server in this process, honest unless told otherwise, that dies and comes back on
//! command.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub const SECTOR: usize = 512;
pub const SIZE: usize = 1 << 20;

/// What the server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Nothing.
    None,
    /// A death takes back the oldest of the writes that the last flush covered.
    LoseFlushed,
    /// The first write is done but for its last sector.
    Tear,
    /// Reads return what the block held before its last write, until a flush.
    ReadStale,
    /// The third write goes to the block beside its own.
    Misplace,
    /// One bit of every read is turned.
    Damage,
    /// Writes fail, and are done all the same.
    FailButWrite,
}

/// What the threads share.
pub struct Disk {
    /// What reads see.
    cache: Vec<u8>,
    /// What survives a death.
    stable: Vec<u8>,
    /// What each write since the last flush replaced.
    before: VecDeque<(usize, Vec<u8>)>,
    previous: BTreeMap<usize, Vec<u8>>,
    last_flushed: Option<(usize, Vec<u8>)>,
    lie: Lie,
    writes: u64,
    /// Requests until the server dies, when it is to die.
    fuse: Option<u64>,
    pub deaths: u64,
}

impl Disk {
    fn write(&mut self, at: usize, data: &[u8], fua: bool) -> u32 {
        self.writes += 1;
        let mut at = at;
        let mut len = data.len();
        match self.lie {
            Lie::Tear if self.writes == 1 => len -= SECTOR,
            Lie::Misplace if self.writes == 3 => at = (at + data.len()) % SIZE,
            _ => {}
        }
        let old = self.cache[at..at + len].to_vec();
        self.previous.insert(at, old.clone());
        self.before.push_back((at, old));
        self.cache[at..at + len].copy_from_slice(&data[..len]);
        if fua {
            self.stable[at..at + len].copy_from_slice(&data[..len]);
        }
        if self.lie == Lie::FailButWrite { 5 } else { 0 }
    }

    fn flush(&mut self) {
        self.stable.copy_from_slice(&self.cache);
        self.last_flushed = self.before.pop_front().or(self.last_flushed.take());
        self.before.clear();
        self.previous.clear();
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut data = self.cache[at..at + len].to_vec();
        match self.lie {
            Lie::ReadStale => {
                for (from, old) in self.previous.range(at..at + len) {
                    let end = (from - at + old.len()).min(len);
                    data[from - at..end].copy_from_slice(&old[..end - (from - at)]);
                }
            }
            Lie::Damage => data[len / 2 + 100] ^= 1,
            _ => {}
        }
        data
    }

    /// Death: the cache is gone. Every other write since the last flush is kept, which is legal.
    fn die(&mut self) {
        self.deaths += 1;
        let kept: Vec<usize> = self.before.iter().step_by(2).map(|(at, _)| *at).collect();
        for at in kept {
            let block = self.cache[at..at + 4096].to_vec();
            self.stable[at..at + 4096].copy_from_slice(&block);
        }
        if let (Lie::LoseFlushed, Some((at, old))) = (self.lie, self.last_flushed.take()) {
            self.stable[at..at + old.len()].copy_from_slice(&old);
        }
        self.cache.copy_from_slice(&self.stable);
        self.before.clear();
        self.previous.clear();
    }
}

pub struct Liar {
    pub socket: PathBuf,
    pub disk: Arc<Mutex<Disk>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Liar {
    /// Serves one connection after the other. With `fuse`, every connection dies after that many
    /// requests.
    pub fn start(dir: &std::path::Path, lie: Lie, fuse: Option<u64>) -> Liar {
        let socket = dir.join("liar.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let disk = Arc::new(Mutex::new(Disk {
            cache: vec![0; SIZE],
            stable: vec![0; SIZE],
            before: VecDeque::new(),
            previous: BTreeMap::new(),
            last_flushed: None,
            lie,
            writes: 0,
            fuse,
            deaths: 0,
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (disk, stop) = (Arc::clone(&disk), Arc::clone(&stop));
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    // A client that hangs up ends its connection, no more.
                    let _ = serve(stream.unwrap(), &disk);
                }
            })
        };
        Liar { socket, disk, stop, thread: Some(thread) }
    }

    /// No more deaths.
    pub fn live_on(&self) {
        self.disk.lock().unwrap().fuse = None;
    }

    pub fn deaths(&self) -> u64 {
        self.disk.lock().unwrap().deaths
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&self.socket);
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            assert!(outcome.is_ok() || std::thread::panicking(), "the server thread panicked");
        }
    }
}

fn serve(mut stream: UnixStream, disk: &Mutex<Disk>) -> std::io::Result<()> {
    handshake(&mut stream)?;
    let mut served = 0;
    loop {
        let mut head = [0; 28];
        stream.read_exact(&mut head)?;
        let flags = u16::from_be_bytes([head[4], head[5]]);
        let command = u16::from_be_bytes([head[6], head[7]]);
        let at = u64::from_be_bytes(head[16..24].try_into().unwrap()) as usize;
        let len = u32::from_be_bytes(head[24..28].try_into().unwrap()) as usize;
        let mut data = vec![0; if command == 1 { len } else { 0 }];
        stream.read_exact(&mut data)?;
        served += 1;
        let mut disk = disk.lock().unwrap();
        let dies = disk.fuse.is_some_and(|fuse| served > fuse);
        let (mut error, mut answer) = (0u32, Vec::new());
        match command {
            0 => answer = disk.read(at, len),
            1 => error = disk.write(at, &data, flags & 1 != 0),
            2 => return Ok(()),
            3 => disk.flush(),
            6 => error = disk.write(at, &vec![0; len], flags & 1 != 0),
            _ => error = 22,
        }
        if dies {
            // After the request was carried out, before it is answered.
            disk.die();
            return Ok(());
        }
        drop(disk);
        let mut reply = 0x6744_6698u32.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(&head[8..16]);
        reply.extend(answer);
        stream.write_all(&reply)?;
    }
}

fn handshake(stream: &mut UnixStream) -> std::io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    stream.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let mut data = vec![0; u32::from_be_bytes(head[12..16].try_into().unwrap()) as usize];
        stream.read_exact(&mut data)?;
        let reply = |kind: u32, data: &[u8]| {
            let mut reply = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
            reply.extend(&head[8..12]);
            reply.extend(kind.to_be_bytes());
            reply.extend((data.len() as u32).to_be_bytes());
            reply.extend(data);
            reply
        };
        if head[8..12] == 7u32.to_be_bytes() {
            let mut export = vec![0, 0];
            export.extend((SIZE as u64).to_be_bytes());
            // Flags, flush, FUA, write-zeroes, multi-conn.
            export.extend(0b1_0100_1101u16.to_be_bytes());
            stream.write_all(&reply(3, &export))?;
            return stream.write_all(&reply(1, &[]));
        }
        stream.write_all(&reply(0x8000_0001, &[]))?;
    }
}
