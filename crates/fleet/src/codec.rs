//! Numbers, texts and lists as bytes.
//!
//! A number is 7 bits a byte, the lowest first, the highest bit set in all but the last. A text is
//! its length and its bytes. A record is its length and its fields: whoever knows fewer fields than
//! were written skips the rest.

use crate::text;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use thiserror::Error;

/// Why bytes are no part of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PartError {
    /// It is longer than any part.
    #[error("{0} bytes, where a part has {max} at most", max = crate::PART_MAX)]
    TooLong(usize),
    /// It begins otherwise.
    #[error("it is no summary of a host")]
    Foreign,
    /// It is of another version.
    #[error("it is a summary of version {0}, and this daemon reads version {known}", known = crate::VERSION)]
    Version(u8),
    /// It ends too early.
    #[error("it ends in the middle of a value")]
    Short,
    /// There is something behind it.
    #[error("there is something behind its end")]
    Trailing,
    /// A value that no host writes.
    #[error("its {0} is out of range")]
    Value(&'static str),
}

/// What becomes bytes and comes back from them.
pub(crate) trait Coded: Sized {
    fn put(&self, to: &mut Writer);

    /// Reads what was written; everything is checked.
    fn get(from: &mut Reader<'_>) -> Result<Self, PartError>;
}

#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// 0 for none, else one more.
    pub(crate) fn maybe(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number.saturating_add(1)));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    /// Empty for none.
    pub(crate) fn maybe_text(&mut self, text: Option<&str>) {
        self.text(text.unwrap_or(""));
    }

    pub(crate) fn record(&mut self, record: &impl Coded) {
        let mut inner = Writer::default();
        record.put(&mut inner);
        self.number(inner.0.len() as u64);
        self.bytes(&inner.0);
    }

    pub(crate) fn list(&mut self, list: &[impl Coded]) {
        self.number(list.len() as u64);
        list.iter().for_each(|one| self.record(one));
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], PartError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(PartError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn sixteen(&mut self) -> Result<[u8; 16], PartError> {
        let mut sixteen = [0; 16];
        sixteen.copy_from_slice(self.take(16)?);
        Ok(sixteen)
    }

    /// A number as it is written: in as few bytes as it needs.
    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, PartError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part || (byte == 0 && shift > 0) {
                return Err(PartError::Value(what));
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(PartError::Value(what))
    }

    pub(crate) fn up_to(&mut self, what: &'static str, most: u64) -> Result<u64, PartError> {
        self.number(what).and_then(|n| if n <= most { Ok(n) } else { Err(PartError::Value(what)) })
    }

    /// A number of which there may be none.
    pub(crate) fn maybe(&mut self, what: &'static str) -> Result<Option<u64>, PartError> {
        Ok(self.number(what)?.checked_sub(1))
    }

    /// A text that can be printed.
    pub(crate) fn text(&mut self, what: &'static str, most: usize) -> Result<String, PartError> {
        let length = self.up_to(what, most as u64)?;
        let bytes = self.take(length as usize)?;
        let text = core::str::from_utf8(bytes).map_err(|_| PartError::Value(what))?;
        if text::is_plain(text) { Ok(text.to_owned()) } else { Err(PartError::Value(what)) }
    }

    pub(crate) fn maybe_text(
        &mut self,
        what: &'static str,
        most: usize,
    ) -> Result<Option<String>, PartError> {
        Ok(Some(self.text(what, most)?).filter(|text| !text.is_empty()))
    }

    /// The name of a disk, a datastore or a machine.
    pub(crate) fn name(&mut self, what: &'static str) -> Result<String, PartError> {
        self.maybe_name(what)?.ok_or(PartError::Value(what))
    }

    pub(crate) fn maybe_name(&mut self, what: &'static str) -> Result<Option<String>, PartError> {
        let name = self.maybe_text(what, text::NAME_MAX)?;
        match &name {
            Some(name) if !text::is_name(name) => Err(PartError::Value(what)),
            _ => Ok(name),
        }
    }

    /// A record. What it has behind the fields that are known here is of a later time.
    pub(crate) fn record<T: Coded>(&mut self) -> Result<T, PartError> {
        let length = self.up_to("length", crate::PART_MAX as u64)?;
        T::get(&mut Reader(self.take(length as usize)?))
    }

    pub(crate) fn list<T: Coded>(
        &mut self,
        what: &'static str,
        most: usize,
    ) -> Result<Vec<T>, PartError> {
        let count = self.up_to(what, most as u64)?;
        (0..count).map(|_| self.record()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back_and_in_one_way_only(number: u64, noise in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut to = Writer::default();
            to.number(number);
            let bytes = to.finish();
            let mut from = Reader::new(&bytes);
            prop_assert_eq!(from.number("n"), Ok(number));
            prop_assert!(from.is_empty());
            let mut from = Reader::new(&noise);
            if let Ok(read) = from.number("n") {
                let mut again = Writer::default();
                again.number(read);
                let again = again.finish();
                prop_assert_eq!(&noise[..again.len()], &again[..]);
            }
        }
    }

    #[test]
    fn a_text_that_cannot_be_printed_is_none() {
        for (bytes, error) in [
            (&b"\x03ab"[..], PartError::Short),
            (b"\x02a\x1b", PartError::Value("t")),
            (b"\x02\xff\xff", PartError::Value("t")),
            (b"\x09aaaaaaaaa", PartError::Value("t")),
        ] {
            assert_eq!(Reader::new(bytes).text("t", 8), Err(error));
        }
    }
}
