//! A trace of any bytes, in a format that the first byte names or leaves to be found out: no panic,
//! times that never go back, ranges that end, every line accounted for.

use headgate_trace::{Characteriser, Format, Options, Tolerance, TraceReader};
use headgate_units::Nanos;

pub(super) fn run(input: &[u8]) {
    let Some((&how, trace)) = input.split_first() else { return };
    let tolerance = if how & 1 == 0 { Tolerance::Strict } else { Tolerance::Lenient };
    let format = Format::ALL.get(usize::from(how >> 4)).copied();
    let window = usize::from(how >> 1 & 7);
    let Ok(mut reader) = TraceReader::new(trace, Options { format, tolerance, window }) else {
        return;
    };
    let mut characteriser = Characteriser::new();
    let (mut last, mut given) = (Nanos::ZERO, 0);
    for record in reader.by_ref() {
        let Ok(record) = record else { break };
        assert!(record.at >= last);
        assert!(record.offset.checked_add(record.bytes.0).is_some());
        (last, given) = (record.at, given + 1);
        characteriser.push(&record);
    }
    let report = reader.report();
    assert_eq!(report.requests, given);
    if tolerance == Tolerance::Lenient {
        assert_eq!(
            report.lines,
            given + report.other_lines + report.malformed + report.out_of_order
        );
    }
    assert_eq!(characteriser.finish(reader.disks()).whole.requests, given);
}
