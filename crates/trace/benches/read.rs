//! How fast traces are read, characterised and written: `cargo bench -p headgate-trace`.

use flate2::Compression;
use flate2::write::GzEncoder;
use headgate_trace::{Characteriser, CsvWriter, Format, Options, TraceReader};
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

const REQUESTS: u64 = 1_000_000;
const ROUNDS: usize = 7;

/// Median, least and greatest millions of requests per second.
fn measure(mut work: impl FnMut()) -> (f64, f64, f64) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            #[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
            let start = Instant::now();
            work();
            REQUESTS as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1])
}

fn print(what: &str, bytes: usize, (median, least, greatest): (f64, f64, f64)) {
    let bandwidth = bytes as f64 / (REQUESTS as f64 / (median * 1e6)) / 1e6;
    println!(
        "{what:<28} {median:>7.2} M requests/s  ({least:.2} to {greatest:.2}), {bandwidth:>6.0} MB/s"
    );
}

fn mixed(i: u64) -> u64 {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

/// Random requests of 4 to 64 KiB over 32 GiB, a third of them sequential.
fn lines(format: Format) -> Vec<u8> {
    let mut text = String::new();
    let mut binary = Vec::new();
    let mut next = 0;
    match format {
        Format::Csv => text.push_str("at_ns,disk,op,offset,bytes,latency_ns\n"),
        Format::CsvUs => text.push_str("ts_us,dev,op,offset,len\n"),
        _ => {}
    }
    for i in 0..REQUESTS {
        let sectors = 8 << (mixed(i) % 5);
        let sector = if i.is_multiple_of(3) { next } else { (mixed(i + 7) % (1 << 23)) << 3 };
        next = sector + sectors;
        let (offset, bytes) = (sector * 512, sectors * 512);
        let (micros, read) = (i * 50, !mixed(i + 3).is_multiple_of(3));
        let letter = if read { 'R' } else { 'W' };
        let _ = match format {
            Format::Csv => {
                writeln!(
                    text,
                    "{},vda,{letter},{offset},{bytes},{}",
                    micros * 1_000,
                    900_000 + mixed(i) % 1_000_000
                )
            }
            Format::CsvUs => writeln!(text, "{micros}.0,0,{letter},{offset},{bytes}"),
            Format::Msr => {
                let kind = if read { "Read" } else { "Write" };
                writeln!(
                    text,
                    "{},hm,0,{kind},{offset},{bytes},{}",
                    128_166_385_295_514_663 + micros * 10,
                    9_000 + mixed(i) / 100
                )
            }
            Format::Systor => {
                writeln!(
                    text,
                    "{}.{:06}000,0.000806000,{letter},0,{offset},{bytes}",
                    1_456_095_145 + micros / 1_000_000,
                    micros % 1_000_000
                )
            }
            Format::Blkparse => {
                let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
                writeln!(
                    text,
                    "  8,0    1 {i:>8} {seconds:>5}.{rest:06}000   697  Q   {letter} {sector} + {sectors} [fio]"
                )
            }
            Format::Disksim => writeln!(
                text,
                "{}.{:03} 0 {sector} {sectors} {}",
                micros / 1_000,
                micros % 1_000,
                u8::from(read)
            ),
            Format::Fiu => {
                writeln!(
                    text,
                    "{} 4253 nfsd {sector} {sectors} {letter} 6 0 88b93b628d84082186026d9da044f173",
                    micros * 1_000
                )
            }
            Format::Tencent => writeln!(
                text,
                "{},{sector},{sectors},{},{}",
                micros / 1_000_000,
                u8::from(!read),
                1_000 + mixed(i) % 2_000
            ),
            Format::Vscsi => {
                binary.extend_from_slice(&(i as u32).to_le_bytes());
                binary.extend_from_slice(&(bytes as u32).to_le_bytes());
                binary.extend_from_slice(&1u32.to_le_bytes());
                binary.extend_from_slice(&if read { 0x28u16 } else { 0x2a }.to_le_bytes());
                binary.extend_from_slice(&0x0100u16.to_le_bytes());
                binary.extend_from_slice(&sector.to_le_bytes());
                binary.extend_from_slice(&micros.to_le_bytes());
                Ok(())
            }
        };
    }
    if binary.is_empty() { text.into_bytes() } else { binary }
}

fn read(input: &[u8]) -> u64 {
    TraceReader::new(input, Options::default())
        .unwrap()
        .map(|record| record.unwrap().bytes.0)
        .fold(0, u64::wrapping_add)
}

fn main() {
    for format in Format::ALL {
        let input = lines(format);
        assert_eq!(TraceReader::new(&input[..], Options::default()).unwrap().format(), format);
        print(
            &format!("read {format}"),
            input.len(),
            measure(|| _ = black_box(read(black_box(&input)))),
        );
    }
    let input = lines(Format::Csv);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&input).unwrap();
    let packed = encoder.finish().unwrap();
    print("read csv, gzip", input.len(), measure(|| _ = black_box(read(black_box(&packed)))));
    for format in [Format::Csv, Format::Tencent] {
        let input = lines(format);
        let characterise = || {
            let mut reader = TraceReader::new(&input[..], Options::default()).unwrap();
            let mut characteriser = Characteriser::new();
            reader.by_ref().for_each(|record| characteriser.push(&record.unwrap()));
            black_box(characteriser.finish(reader.disks()));
        };
        print(&format!("read and characterise {format}"), input.len(), measure(characterise));
    }
    let convert = || {
        let mut reader = TraceReader::new(&input[..], Options::default()).unwrap();
        let mut writer = CsvWriter::new(Vec::with_capacity(input.len())).unwrap();
        while let Some(record) = reader.next() {
            let record = record.unwrap();
            writer.write(&record, reader.disks().name(record.disk)).unwrap();
        }
        black_box(writer.finish().unwrap());
    };
    print("read csv and write csv", input.len(), measure(convert));
}
