//! Whatever the bytes: no panic, order kept, lines accounted for, and our own format keeps
//! everything.

use flate2::Compression;
use flate2::write::GzEncoder;
use headgate_trace::{
    Characteriser, CsvWriter, Format, Kind, Options, Report, Tolerance, TraceReader,
};
use headgate_units::Nanos;
use proptest::prelude::*;
use std::io::Write;

/// Reads all there is and checks what must hold for any input.
fn check(input: &[u8], options: Options) -> Option<Report> {
    let mut reader = TraceReader::new(input, options).ok()?;
    let mut characteriser = Characteriser::new();
    let (mut last, mut given) = (Nanos::ZERO, 0);
    while let Some(record) = reader.next() {
        let Ok(record) = record else {
            assert!(reader.next().is_none(), "there is nothing after an error");
            break;
        };
        assert!(record.at >= last, "times go on");
        assert!(record.offset.checked_add(record.bytes.0).is_some());
        assert_eq!(record.bytes.0 == 0, record.kind == Kind::Flush);
        assert!(record.disk.index() < reader.disks().len());
        (last, given) = (record.at, given + 1);
        characteriser.push(&record);
    }
    let report = reader.report().clone();
    assert_eq!(report.requests, given);
    let out = report.malformed + report.out_of_order;
    assert_eq!(out == 0, report.first_problem.is_none());
    if options.tolerance == Tolerance::Lenient {
        assert_eq!(report.lines, given + report.other_lines + out, "{report:?}");
    } else {
        assert_eq!(out, 0);
    }
    let character = characteriser.finish(reader.disks());
    assert_eq!(character.whole.requests, given);
    assert_eq!(character.disks.iter().map(|disk| disk.profile.requests).sum::<u64>(), given);
    Some(report)
}

fn formats() -> impl Strategy<Value = Option<Format>> {
    prop_oneof![Just(None), prop::sample::select(Format::ALL.to_vec()).prop_map(Some)]
}

fn options() -> impl Strategy<Value = Options> {
    (formats(), prop_oneof![Just(Tolerance::Strict), Just(Tolerance::Lenient)], 0usize..20)
        .prop_map(|(format, tolerance, window)| Options { format, tolerance, window })
}

/// A word that some format knows, or a number at the edge.
fn word() -> impl Strategy<Value = String> {
    let known = [
        "R",
        "W",
        "F",
        "D",
        "Read",
        "Write",
        "Q",
        "C",
        "FWS",
        "N",
        "+",
        "8,0",
        "8:0",
        "hm",
        "[x]",
        "#",
        "CPU0",
        "0",
        "1",
        "512",
        "4096",
        "-1",
        "0.5",
        "1e9",
        "18446744073709551615",
        "18446744073709551616",
        "128166385295514663",
        "at_ns,disk,op,offset,bytes,latency_ns",
        "ts_us,dev,op,offset,len",
        "Timestamp,Response",
        "",
        "é",
        "nan",
    ];
    prop_oneof![
        4 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        3 => (0u64..5_000).prop_map(|n| n.to_string()),
        1 => "\\PC{0,6}",
    ]
}

/// Lines of such words, with the separators of all formats.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let line =
        (prop::collection::vec(word(), 0..10), prop::sample::select(vec![",", " ", "\t", "  "]));
    prop::collection::vec(line.prop_map(|(words, separator)| words.join(separator)), 0..30)
        .prop_map(|lines| lines.join("\n").into_bytes())
}

/// Mostly good lines of one format.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let fields = (0u64..3_000, 0u64..1 << 20, 0u64..300, any::<bool>(), 0u8..3);
    (prop::sample::select(Format::ALL.to_vec()), prop::collection::vec(fields, 1..40)).prop_map(
        |(format, all)| {
            let mut text = match format {
                Format::Csv => b"at_ns,disk,op,offset,bytes,latency_ns\n".to_vec(),
                _ => Vec::new(),
            };
            for (at, place, size, read, disk) in all {
                let letter = if read { 'R' } else { 'W' };
                let line = match format {
                    Format::Csv => format!("{at},d{disk},{letter},{place},{size},{at}"),
                    Format::CsvUs => format!("{at}.5,{disk},{letter},{place},{size}"),
                    Format::Msr => {
                        format!(
                            "{at},h,{disk},{},{place},{size},7",
                            if read { "Read" } else { "Write" }
                        )
                    }
                    Format::Systor => format!("{at}.25,0.5,{letter},{disk},{place},{size}"),
                    Format::Blkparse => {
                        format!("8,{disk} 0 1 {at}.000001 9 Q {letter}S {place} + {size} [a]")
                    }
                    Format::Disksim => format!("{at}.75 {disk} {place} {size} {}", u8::from(read)),
                    Format::Fiu => format!("{at} 1 a b {place} {size} {letter} 8 {disk} 00ff"),
                    Format::Tencent => format!("{at},{place},{size},{},{disk}", u8::from(!read)),
                    Format::Vscsi => {
                        text.extend(
                            [1u32.to_le_bytes(), (size as u32).to_le_bytes(), 1u32.to_le_bytes()]
                                .concat(),
                        );
                        text.extend(if read { [0x28, 0, 0, 1] } else { [0x2a, 0, 0, 1] });
                        text.extend([place.to_le_bytes(), at.to_le_bytes()].concat());
                        continue;
                    }
                };
                text.extend(line.bytes());
                text.push(b'\n');
            }
            text
        },
    )
}

proptest! {
    #[test]
    fn any_bytes(input in prop::collection::vec(any::<u8>(), 0..600), options in options()) {
        check(&input, options);
    }

    #[test]
    fn any_words(input in text(), options in options()) {
        check(&input, options);
    }

    #[test]
    fn plausible_traces_with_damage(
        mut input in plausible(),
        options in options(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        for (at, byte) in damage {
            let at = at.index(input.len());
            input[at] = byte;
        }
        input.truncate(end.index(input.len()) + 1);
        check(&input, options);
    }

    #[test]
    fn compressed_traces_with_damage(
        input in plausible(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        end in any::<prop::sample::Index>(),
        options in options(),
    ) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&input).unwrap();
        let mut packed = encoder.finish().unwrap();
        for (at, byte) in damage {
            let at = at.index(packed.len());
            packed[at] = byte;
        }
        packed.truncate(end.index(packed.len()) + 1);
        check(&packed, options);
    }

    #[test]
    fn plausible_traces_are_read_and_survive_conversion(input in plausible()) {
        let options = Options { tolerance: Tolerance::Lenient, ..Options::default() };
        // Of nothing but requests without bytes nothing can be told.
        let Ok(mut reader) = TraceReader::new(&input[..], options) else { return Ok(()) };
        let (mut all, mut writer) = (Vec::new(), CsvWriter::new(Vec::new()).unwrap());
        while let Some(record) = reader.next() {
            let record = record.unwrap();
            writer.write(&record, reader.disks().name(record.disk)).unwrap();
            all.push((reader.disks().name(record.disk).to_owned(), record.at, record.kind, record.offset, record.bytes, record.latency));
        }
        let written = writer.finish().unwrap();
        let mut again = TraceReader::new(&written[..], Options::default()).unwrap();
        let mut read = Vec::new();
        while let Some(record) = again.next() {
            let record = record.unwrap();
            read.push((again.disks().name(record.disk).to_owned(), record.at, record.kind, record.offset, record.bytes, record.latency));
        }
        prop_assert_eq!(all, read);
    }
}
