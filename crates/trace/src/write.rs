use crate::record::{Kind, Record};
use std::io::{self, Write};

/// The first line of our own format.
pub const CSV_HEADER: &str = "at_ns,disk,op,offset,bytes,latency_ns";

/// Writes requests in our own format ([`Format::Csv`](crate::Format::Csv)), which keeps all that a
/// [`Record`] has.
///
/// Wants a buffered writer: every request is a write of some 40 bytes.
#[derive(Debug)]
pub struct CsvWriter<W: Write> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<CsvWriter<W>> {
        writeln!(out, "{CSV_HEADER}")?;
        Ok(CsvWriter { out, line: Vec::with_capacity(96) })
    }

    /// Writes a request. `disk` is the name of its disk.
    ///
    /// # Errors
    /// Those of the writer; [`io::ErrorKind::InvalidInput`] for a name that could not be read back.
    pub fn write(&mut self, record: &Record, disk: &str) -> io::Result<()> {
        if disk.is_empty() || disk.trim() != disk || disk.contains([',', '\n', '\r']) {
            let error =
                format!("'{}' cannot be the name of a disk in a CSV file", disk.escape_debug());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let op = match record.kind {
            Kind::Read => b'R',
            Kind::Write => b'W',
            Kind::Flush => b'F',
            Kind::Discard => b'D',
        };
        let line = &mut self.line;
        line.clear();
        push_number(line, record.at.0);
        line.push(b',');
        line.extend_from_slice(disk.as_bytes());
        line.extend_from_slice(&[b',', op, b',']);
        push_number(line, record.offset);
        line.push(b',');
        push_number(line, record.bytes.0);
        line.push(b',');
        if let Some(latency) = record.latency {
            push_number(line, latency.0);
        }
        line.push(b'\n');
        self.out.write_all(line)
    }

    /// Writes out what is buffered and gives the writer back.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Several times as fast as `write!`, which counts with hundreds of millions of lines.
fn push_number(line: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 99, 100, u64::MAX] {
            let mut line = Vec::new();
            push_number(&mut line, number);
            assert_eq!(line, number.to_string().as_bytes());
        }
    }
}
