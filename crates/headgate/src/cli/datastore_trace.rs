//! `datastore trace`: what a trace layer has kept, as a file in our own trace format.

use super::CliError;
use super::output::warnings;
use super::write_file::write_file;
use headgate_api::client::Client;
use headgate_api::trace::{TracePart, TracedOp, TracedRequest};
use headgate_model::Name;
use headgate_trace::{CsvWriter, DiskId, Kind, Record};
use headgate_units::{Bytes, Nanos};
use std::io::{self, Write};
use std::path::Path;

/// Fetches the trace of a datastore, a part at a time, and writes it to `file` or, for `-`, to
/// `out`.
pub(super) fn write(
    client: &Client,
    datastore: &Name,
    file: &Path,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let trace = fetch(client, datastore)?;
    let csv = csv(&trace.requests).map_err(CliError::Print)?;
    if file == Path::new("-") {
        out.write_all(&csv)?;
    } else {
        write_file(file, &csv)?;
    }
    let dropped = trace.recorded.saturating_sub(trace.requests.len() as u64);
    if dropped > 0 {
        warnings(&[format!(
            "{dropped} of {} requests are not in the trace: the layer keeps the last ones, and none \
             of disks that were closed",
            trace.recorded
        )]);
    }
    Ok(())
}

/// All that was kept when this began, in the order of submission.
fn fetch(client: &Client, datastore: &Name) -> Result<TracePart, CliError> {
    let part = |from: u64| -> Result<TracePart, CliError> {
        Ok(client.get(&format!("/v1/datastores/{datastore}/trace?from={from}"))?)
    };
    let mut whole = part(0)?;
    while whole.next < whole.recorded {
        let next = part(whole.next)?;
        whole.next = next.next;
        whole.requests.extend(next.requests);
    }
    // Those that came while this went on are in the next trace.
    whole.requests.retain(|request| request.serial < whole.recorded);
    whole.requests.sort_by_key(|request| (request.at_ns, request.serial));
    Ok(whole)
}

fn csv(requests: &[TracedRequest]) -> io::Result<Vec<u8>> {
    let mut csv = CsvWriter::new(Vec::new())?;
    let start = requests.first().map_or(0, |first| first.at_ns);
    // A question about a range moves nothing.
    let moves = |r: &&TracedRequest| r.op == TracedOp::Flush || r.bytes > Bytes(0);
    for request in requests.iter().filter(moves) {
        let record = Record {
            at: Nanos(request.at_ns - start),
            kind: match request.op {
                TracedOp::Read => Kind::Read,
                TracedOp::Write => Kind::Write,
                TracedOp::Flush => Kind::Flush,
                TracedOp::Discard => Kind::Discard,
            },
            offset: request.offset,
            bytes: request.bytes,
            disk: DiskId::FIRST,
            latency: Some(Nanos(request.latency_ns)),
        };
        csv.write(&record, &request.disk)?;
    }
    csv.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_trace::{Options, TraceReader};

    #[test]
    fn what_is_written_is_what_the_reader_of_traces_reads() {
        let request = |serial, at_ns, op, offset, bytes| TracedRequest {
            serial,
            disk: "db0".into(),
            at_ns,
            op,
            offset,
            bytes: Bytes(bytes),
            latency_ns: 70,
            error: None,
        };
        let requests = [
            request(4, 1_000, TracedOp::Read, 4096, 512),
            request(3, 1_200, TracedOp::Flush, 0, 0),
            request(5, 1_300, TracedOp::Write, 0, 8192),
            request(6, 1_400, TracedOp::Read, 4096, 0),
        ];
        let text = csv(&requests).unwrap();
        let reader = TraceReader::new(&text[..], Options::default()).unwrap();
        let read: Vec<Record> = reader.map(Result::unwrap).collect();
        let seen: Vec<_> = read.iter().map(|r| (r.at.0, r.kind, r.offset, r.bytes.0)).collect();
        let expected =
            [(0, Kind::Read, 4096, 512), (200, Kind::Flush, 0, 0), (300, Kind::Write, 0, 8192)];
        assert_eq!(seen, expected);
        assert!(read.iter().all(|record| record.latency == Some(Nanos(70))));
    }
}
