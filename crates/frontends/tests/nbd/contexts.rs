//! Dirty bitmaps as metadata contexts, from the export to real clients.

use super::*;
use headgate_engine::ChangedBlocks;
use headgate_frontends::nbd::{Bitmap, Bitmaps};

const GRAIN: u32 = 64 << 10;

/// The disk `a` with bitmaps.
struct Snapshot {
    disks: Disks,
    bitmaps: Bitmaps,
}

impl Catalog for Snapshot {
    type Handle = Attach;

    fn list(&self) -> Vec<ExportName> {
        self.disks.list()
    }

    fn open(&self, name: &str) -> Result<Opened<Attach>, OpenError> {
        let Opened { name, export, description, handle } = self.disks.open(name)?;
        let handle = handle.with_bitmaps(&self.bitmaps);
        Ok(Opened { name, export, description, handle })
    }
}

/// One grain of the disk.
fn bitmap(name: &str, grain: usize) -> Bitmap {
    let mut bytes = vec![0; SIZE as usize / GRAIN as usize / 8];
    bytes[grain / 8] = 1 << (grain % 8);
    let changes = ChangedBlocks::from_bytes(Bytes(SIZE), &bytes).unwrap();
    Bitmap::new(name.parse().unwrap(), Arc::new(changes))
}

fn served(house: &House, rule: Arc<Rule>) -> (PathBuf, Bitmaps) {
    let bitmaps = Bitmaps::none();
    bitmaps.set(vec![bitmap("monday", 1), bitmap("tuesday", 5)]);
    let disks = Disks { engine: house.engine.clone(), disks: vec![("a".into(), house.disks[0])] };
    let path = house.dir.path().join("snapshot.sock");
    let snapshot = Snapshot { disks, bitmaps: bitmaps.clone() };
    house.server.open(&path, &Access::default(), Arc::new(snapshot), rule).unwrap();
    (path, bitmaps)
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

/// Asks, and returns the types and payloads of the answers up to the last one.
fn option(stream: &mut UnixStream, kind: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let head = [&b"IHAVEOPT"[..], &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes()];
    stream.write_all(&[&head.concat()[..], data].concat()).unwrap();
    let mut all = Vec::new();
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let (answer, mut payload) = (word(12), vec![0; word(16) as usize]);
        stream.read_exact(&mut payload).unwrap();
        all.push((answer, payload));
        if answer == 1 || answer >> 31 == 1 {
            return all;
        }
    }
}

/// A client with structured replies that has selected what there is of these bitmaps, and the
/// numbers of those.
fn select(socket: &Path, bitmaps: &[&str]) -> (UnixStream, Vec<u32>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    assert_eq!(option(&mut stream, 8, &[]), [(1, vec![])]);
    let mut data = string("a");
    data.extend((bitmaps.len() as u32).to_be_bytes());
    bitmaps.iter().for_each(|name| data.extend(string(&format!("qemu:dirty-bitmap:{name}"))));
    let mut answers = option(&mut stream, 10, &data);
    assert_eq!(answers.pop(), Some((1, vec![])));
    let id = |(_, payload): (u32, Vec<u8>)| u32::from_be_bytes(payload[..4].try_into().unwrap());
    (stream, answers.into_iter().map(id).collect())
}

/// The last word on the way into transmission.
fn go(stream: &mut UnixStream) -> u32 {
    option(stream, 7, &[string("a"), vec![0, 0]].concat()).pop().unwrap().0
}

/// The extents of the disk's first eight grains in one bitmap.
fn status(stream: &mut UnixStream) -> Vec<(u32, u32)> {
    stream.write_all(&request(7, 1, 0, 8 * GRAIN)).unwrap();
    let mut head = [0; 24];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5]);
    let mut extents = vec![0; u32::from_be_bytes(head[16..20].try_into().unwrap()) as usize - 4];
    stream.read_exact(&mut extents).unwrap();
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    extents.chunks(8).map(|e| (word(&e[..4]), word(&e[4..]))).collect()
}

fn one_grain(grain: u32) -> Vec<(u32, u32)> {
    vec![(grain * GRAIN, 0), (GRAIN, 1), ((7 - grain) * GRAIN, 0)]
}

#[test]
fn a_connection_keeps_the_bitmaps_that_it_negotiated() {
    let house = House::new();
    let (socket, bitmaps) = served(&house, anybody());
    let (mut old, ids) = select(&socket, &["tuesday"]);
    assert_eq!((ids, go(&mut old)), (vec![3], 1));
    assert_eq!(status(&mut old), one_grain(5));
    let (mut between, _) = select(&socket, &["tuesday"]);
    bitmaps.set(vec![bitmap("tuesday", 2), bitmap("wednesday", 6)]);
    assert_eq!(status(&mut old), one_grain(5));
    // Its number stands for another one now.
    assert!(go(&mut between) >> 31 == 1);
    let (mut new, ids) = select(&socket, &["monday", "wednesday"]);
    assert_eq!((ids, go(&mut new)), (vec![3], 1));
    assert_eq!(status(&mut new), one_grain(6));
    let (mut next, ids) = select(&socket, &["tuesday"]);
    assert_eq!((ids, go(&mut next)), (vec![2], 1));
    assert_eq!(status(&mut next), one_grain(2));
    bitmaps.set(Vec::new());
    assert_eq!(status(&mut next), one_grain(2));
    assert!(select(&socket, &["tuesday"]).1.is_empty());
}

#[test]
fn who_may_not_use_a_disk_learns_nothing_of_its_bitmaps() {
    let house = House::new();
    let (socket, _) = served(&house, Arc::new(|_: &str, _: &Caller| Right::None));
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    let answers = option(&mut stream, 9, &[string("a"), vec![0; 4]].concat());
    assert_eq!(answers.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [(1 << 31) + 6]);
}

#[test]
fn standard_clients_read_dirty_bitmaps() {
    let house = House::new();
    let (socket, _) = served(&house, anybody());
    let uri = format!("nbd+unix:///a?socket={}", socket.display());
    if let Some(list) = succeeds("nbdinfo", &["--json", &uri]) {
        for name in ["base:allocation", "qemu:dirty-bitmap:monday", "qemu:dirty-bitmap:tuesday"] {
            assert!(list.contains(name), "{list}");
        }
    }
    if let Some(map) = succeeds("nbdinfo", &["--map=qemu:dirty-bitmap:tuesday", &uri]) {
        let words: Vec<Vec<&str>> =
            map.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
        let expected =
            [["0", "327680", "0"], ["327680", "65536", "1"], ["393216", "66715648", "0"]];
        assert_eq!(words, expected, "{map}");
    }
    // QEMU shows a bitmap's clean parts as data, and its dirty ones as holes without it.
    let image = format!(
        "driver=nbd,server.type=unix,server.path={},export=a,x-dirty-bitmap=qemu:dirty-bitmap:monday",
        socket.display()
    );
    let arguments = ["map", "--output=json", "--image-opts", &image];
    if let Some(map) = succeeds("qemu-img", &arguments) {
        let dirty = "\"start\": 65536, \"length\": 65536";
        let line = map.lines().find(|line| line.contains(dirty));
        assert!(line.is_some_and(|line| line.contains("\"data\": false")), "{map}");
    }
}
