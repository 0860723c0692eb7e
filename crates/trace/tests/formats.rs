//! Small traces of every format, made by hand: what is found in them, in which order, and what is
//! wrong with bad ones.

use flate2::Compression;
use flate2::write::GzEncoder;
use headgate_trace::{
    CsvWriter, Format, Kind, Options, Record, Report, Tolerance, TraceError, TraceReader,
};
use std::io::Write;

const MSR: &str = "\
128166372003061629,web,1,Read,7014609920,24576,41286
128166372016382155,web,1,Write,2517331968,8192,13491
128166372016853767,web,0,Read,1317441536,4096,1121
";
const SYSTOR: &str = "\
Timestamp,Response,IOType,LUN,Offset,Size
1455600010.000500000,0.000100000,R,4,8192,4096
1455600010.000000000,0.000900000,W,4,4096,4096
1455600010.000800000,,R,6,0,65536
";
const BLKPARSE: &str = "\
Input file sdb.blktrace.0 added
  8,16   0        1     0.000000000  1203  Q   R 5120 + 16 [fio]
  8,16   0        2     0.000003100  1203  D   R 5120 + 16 [fio]
  8,16   0        3     0.000350000     0  C   R 5120 + 16 [0]
  8,16   0        4     0.000400000  1203  Q FWS [fio]
  8,16   0        5     0.000500000  1203  Q   D 0 + 2048 [fstrim]
  8,16   0        6     0.000600000  1203  Q  WS 5136 + 8 [fio]
CPU0 (sdb):
 Reads Queued:           1,        8KiB  Writes Queued:           1,        4KiB
";
const DISKSIM: &str = "0.000000 0 1024 8 1\n1.250000 0 1032 8 1\n2.500000 1 0 128 0\n";
const FIU: &str = "\
5000000 812 pdflush 90024 8 W 6 0 00112233445566778899aabbccddeeff
5042000 812 pdflush 90032 8 W 6 0 00112233445566778899aabbccddeeff
7000000 913 imapd helper 16 8 R 8 1 00112233445566778899aabbccddeeff
";
const TENCENT: &str =
    "1538323200,2048,8,1,1058\n1538323199,4096,128,0,1063\n1538323200,0,16,0,1058\n";
const CSV_US: &str = "ts_us,dev,op,offset,len\n0.0,6:0,W,4096,4096\n46.1,6:0,R,0,8192\n";
const CSV: &str = "\
at_ns,disk,op,offset,bytes,latency_ns
5,vda,R,0,4096,100
17,vdb,F,0,0,
18,vda,D,1048576,65536,2000
";

fn vscsi(version: u16) -> Vec<u8> {
    let mut all = Vec::new();
    for (command, length, sector, micros) in [
        (0x2au16, 512u32, 1u64, 1_000_000u64),
        (0x28, 65_536, 4_096, 1_000_250),
        (0x12, 36, 0, 1_000_300),
        (0x35, 0, 0, 1_000_400),
    ] {
        let mut record = Vec::new();
        if version == 0x0200 {
            record.extend(command.to_le_bytes());
            record.extend(version.to_le_bytes());
        }
        record.extend(7u32.to_le_bytes());
        record.extend(length.to_le_bytes());
        record.extend(1u32.to_le_bytes());
        if version == 0x0100 {
            record.extend(command.to_le_bytes());
            record.extend(version.to_le_bytes());
        }
        record.extend(sector.to_le_bytes());
        record.extend(micros.to_le_bytes());
        if version == 0x0200 {
            record.extend(55u64.to_le_bytes());
        }
        all.extend(record);
    }
    all
}

type Seen = (u64, Kind, u64, u64, String, Option<u64>);

fn seen(record: &Record, name: &str) -> Seen {
    let latency = record.latency.map(|latency| latency.0);
    (record.at.0, record.kind, record.offset, record.bytes.0, name.to_owned(), latency)
}

fn read_with(input: &[u8], options: Options) -> Result<(Vec<Seen>, Report), TraceError> {
    let mut reader = TraceReader::new(input, options)?;
    let mut all = Vec::new();
    while let Some(record) = reader.next() {
        let record = record?;
        all.push(seen(&record, reader.disks().name(record.disk)));
    }
    Ok((all, reader.report().clone()))
}

fn read(input: &[u8]) -> (Vec<Seen>, Report) {
    read_with(input, Options::default()).unwrap()
}

fn request(at: u64, kind: Kind, offset: u64, bytes: u64, disk: &str, latency: Option<u64>) -> Seen {
    (at, kind, offset, bytes, disk.to_owned(), latency)
}

#[test]
fn every_format_is_recognised_and_read() {
    use Kind::{Discard, Flush, Read, Write};
    let cases: Vec<(Format, &[u8], Vec<Seen>)> = vec![
        (
            Format::Msr,
            MSR.as_bytes(),
            vec![
                request(0, Read, 7_014_609_920, 24_576, "web_1", Some(4_128_600)),
                request(1_332_052_600, Write, 2_517_331_968, 8_192, "web_1", Some(1_349_100)),
                request(1_379_213_800, Read, 1_317_441_536, 4_096, "web_0", Some(112_100)),
            ],
        ),
        (
            Format::Systor,
            SYSTOR.as_bytes(),
            vec![
                request(0, Write, 4_096, 4_096, "4", Some(900_000)),
                request(500_000, Read, 8_192, 4_096, "4", Some(100_000)),
                request(800_000, Read, 0, 65_536, "6", None),
            ],
        ),
        (
            Format::Blkparse,
            BLKPARSE.as_bytes(),
            vec![
                request(0, Read, 2_621_440, 8_192, "8:16", None),
                request(400_000, Flush, 0, 0, "8:16", None),
                request(500_000, Discard, 0, 1 << 20, "8:16", None),
                request(600_000, Write, 2_629_632, 4_096, "8:16", None),
            ],
        ),
        (
            Format::Disksim,
            DISKSIM.as_bytes(),
            vec![
                request(0, Read, 524_288, 4_096, "0", None),
                request(1_250_000, Read, 528_384, 4_096, "0", None),
                request(2_500_000, Write, 0, 65_536, "1", None),
            ],
        ),
        (
            Format::Fiu,
            FIU.as_bytes(),
            vec![
                request(0, Write, 46_092_288, 4_096, "6:0", None),
                request(42_000, Write, 46_096_384, 4_096, "6:0", None),
                request(2_000_000, Read, 8_192, 4_096, "8:1", None),
            ],
        ),
        (
            Format::Tencent,
            TENCENT.as_bytes(),
            vec![
                request(0, Read, 2_097_152, 65_536, "1063", None),
                request(1_000_000_000, Write, 1_048_576, 4_096, "1058", None),
                request(1_000_000_000, Read, 0, 8_192, "1058", None),
            ],
        ),
        (
            Format::CsvUs,
            CSV_US.as_bytes(),
            vec![
                request(0, Write, 4_096, 4_096, "6:0", None),
                request(46_100, Read, 0, 8_192, "6:0", None),
            ],
        ),
        (
            Format::Csv,
            CSV.as_bytes(),
            vec![
                request(0, Read, 0, 4_096, "vda", Some(100)),
                request(12, Flush, 0, 0, "vdb", None),
                request(13, Discard, 1 << 20, 65_536, "vda", Some(2_000)),
            ],
        ),
    ];
    for (format, input, expected) in cases {
        let (all, report) = read(input);
        assert_eq!((report.format, &all), (format, &expected));
        assert_eq!(report.requests, expected.len() as u64);
        // Named, it is read the same; and compressed.
        let named = Options { format: Some(format), ..Options::default() };
        assert_eq!(read_with(input, named).unwrap().0, expected);
        assert_eq!(read(&gzip(input)).0, expected);
    }
    for version in [0x0100, 0x0200] {
        let (all, report) = read(&vscsi(version));
        assert_eq!(report.format, Format::Vscsi);
        assert_eq!(
            all,
            [
                request(0, Write, 512, 512, "0", None),
                request(250_000, Read, 2 << 20, 65_536, "0", None),
                request(400_000, Flush, 0, 0, "0", None)
            ]
        );
        assert_eq!((report.lines, report.other_lines), (4, 1));
    }
}

fn gzip(input: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(input).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_format_converts_to_ours_without_loss() {
    for input in [
        MSR.as_bytes(),
        SYSTOR.as_bytes(),
        BLKPARSE.as_bytes(),
        FIU.as_bytes(),
        CSV.as_bytes(),
        &vscsi(0x0100),
    ] {
        let mut reader = TraceReader::new(input, Options::default()).unwrap();
        let mut writer = CsvWriter::new(Vec::new()).unwrap();
        while let Some(record) = reader.next() {
            let record = record.unwrap();
            writer.write(&record, reader.disks().name(record.disk)).unwrap();
        }
        let written = writer.finish().unwrap();
        let (again, report) = read(&written);
        assert_eq!(report.format, Format::Csv);
        assert_eq!(again, read(input).0);
    }
}

fn strict_error(input: &[u8]) -> String {
    read_with(input, Options::default()).unwrap_err().to_string()
}

#[test]
fn mistakes_end_a_strict_reading_with_their_line_and_are_counted_by_a_lenient_one() {
    let bad = CSV.replace("17,vdb,F", "-17,vdb,F");
    assert_eq!(
        strict_error(bad.as_bytes()),
        "line 3: at_ns is '-17', expected a whole number from 0 to 18446744073709551615"
    );
    let lenient = Options { tolerance: Tolerance::Lenient, ..Options::default() };
    let (all, report) = read_with(bad.as_bytes(), lenient).unwrap();
    assert_eq!((all.len(), report.malformed, report.lines), (2, 1, 4));
    assert!(report.first_problem.unwrap().starts_with("line 3: at_ns is '-17'"));
}

#[test]
fn what_precedes_a_mistake_is_given_out_first() {
    let bad = format!("{CSV}nonsense\n99,vda,R,0,1,\n");
    let mut reader = TraceReader::new(bad.as_bytes(), Options::default()).unwrap();
    let results: Vec<_> = reader.by_ref().map(|result| result.map(|record| record.at.0)).collect();
    assert!(matches!(results.as_slice(), [Ok(0), Ok(12), Ok(13), Err(_)]), "{results:?}");
    assert!(reader.next().is_none());
}

#[test]
fn times_are_sorted_within_the_window_and_no_further() {
    let mut text = String::from("at_ns,disk,op,offset,bytes,latency_ns\n");
    for at in [30, 10, 20, 50, 40, 5] {
        text.push_str(&format!("{at},a,R,0,1,\n"));
    }
    let times = |all: Vec<Seen>| all.into_iter().map(|seen| seen.0).collect::<Vec<_>>();
    let (all, report) = read(text.as_bytes());
    assert_eq!((times(all), report.reordered), (vec![0, 5, 15, 25, 35, 45], 4));
    let narrow = Options { window: 2, ..Options::default() };
    let error = read_with(text.as_bytes(), narrow).unwrap_err().to_string();
    assert_eq!(
        error,
        "line 7: issued 0.000000025 s before a request more than 2 requests ahead of it"
    );
    let lenient = Options { tolerance: Tolerance::Lenient, ..narrow };
    let (all, report) = read_with(text.as_bytes(), lenient).unwrap();
    assert_eq!((times(all), report.out_of_order), (vec![0, 10, 20, 30, 40], 1));
}

#[test]
fn a_trace_cut_short_says_so() {
    let packed = gzip(MSR.repeat(2_000).as_bytes());
    let cut = &packed[..packed.len() / 2];
    let error = read_with(
        cut,
        Options { window: 0, tolerance: Tolerance::Strict, format: Some(Format::Msr) },
    );
    // Repeated lines go back in time, so with no window that comes first.
    assert!(matches!(error, Err(TraceError::OutOfOrder { .. })), "{error:?}");
    let one_day = (0..40_000u64)
        .map(|i| format!("{i}.5 0 {} 8 1\n", i * 7_919 % 1_000_003))
        .collect::<String>();
    let packed = gzip(one_day.as_bytes());
    for end in [packed.len() / 2, packed.len() - 1, 30] {
        let error = strict_error(&packed[..end]);
        assert!(
            error.contains("cut short or damaged after") && error.contains("ends in the middle"),
            "{error}"
        );
    }
    let lenient = Options { tolerance: Tolerance::Lenient, ..Options::default() };
    let (all, report) = read_with(&packed[..packed.len() / 2], lenient).unwrap();
    assert!((1..40_000).contains(&all.len()), "{}", all.len());
    assert_eq!(report.malformed, 0);
    assert!(report.cut_short.unwrap().contains("the gzip stream ends in the middle"));
    let mut damaged = packed.clone();
    damaged[packed.len() / 2..].iter_mut().for_each(|byte| *byte ^= 0x55);
    assert!(strict_error(&damaged).contains("cut short or damaged"));
    let records = vscsi(0x0100);
    assert_eq!(
        strict_error(&records[..records.len() - 5]),
        "the trace is cut short or damaged after record 3: 27 bytes are left, a record has 32"
    );
}

#[test]
fn what_is_no_trace_is_named_with_advice() {
    let error = |input: &[u8]| {
        let error = TraceReader::new(input, Options::default()).err().unwrap();
        format!("{error}; {}", error.hint())
    };
    assert!(error(b"").starts_with("the trace is empty"));
    let unknown = error(b"once upon a time\nthere was \x1b[2J a trace\n");
    assert!(unknown.contains("it begins with 'once upon a time'; name the format"), "{unknown}");
    assert!(unknown.contains("csv, csv-us, vscsi, msr"), "{unknown}");
    assert!(error(b"\xfd7zXZ\0\0\0").contains("compressed with xz; unpack it first: xz -dc FILE"));
    let mut tar = vec![0u8; 512];
    tar[257..262].copy_from_slice(b"ustar");
    assert!(error(&tar).contains("a tar archive"));
    assert!(
        "cvs".parse::<Format>().unwrap_err().to_string().contains("expected one of csv, csv-us")
    );
}

#[test]
fn the_first_lines_may_hold_a_mistake() {
    let lenient = Options { tolerance: Tolerance::Lenient, ..Options::default() };
    let text = format!("garbage\n{MSR}");
    let (all, report) = read_with(text.as_bytes(), lenient).unwrap();
    assert_eq!((report.format, all.len(), report.malformed), (Format::Msr, 3, 1));
    assert!(strict_error(text.as_bytes()).starts_with("line 1: the line is 'garbage'"));
}
