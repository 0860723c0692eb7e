//! The data of options, taken apart. Every length in it comes from the client.

use crate::wire::{BASE_ALLOCATION, DIRTY_BITMAP, MAX_STRING};

/// What was wrong with an option's data; the text goes to the client's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export.
    pub name: &'a str,
}

/// `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// The export.
    pub name: &'a str,
    /// What it asks for.
    pub queries: Queries<'a>,
}

/// What a query of a client is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query<'a> {
    /// All of `base:`.
    Base,
    /// `base:allocation`.
    BaseAllocation,
    /// All of `qemu:`, or all of `qemu:dirty-bitmap:`. We have nothing else there.
    Bitmaps,
    /// The bitmap of this name.
    Bitmap(&'a str),
    /// What no export has.
    Unknown,
}

impl Query<'_> {
    /// `None`: the text is no query, for it has no namespace.
    pub fn parse(text: &str) -> Option<Query<'_>> {
        match text {
            "base:" => return Some(Query::Base),
            BASE_ALLOCATION => return Some(Query::BaseAllocation),
            "qemu:" | DIRTY_BITMAP => return Some(Query::Bitmaps),
            _ => {}
        }
        if let Some(name) = text.strip_prefix(DIRTY_BITMAP) {
            return Some(Query::Bitmap(name));
        }
        text.contains(':').then_some(Query::Unknown)
    }
}

/// The queries of a request, in their order. They have been read before, and are well formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queries<'a> {
    left: u32,
    rest: &'a [u8],
}

impl Queries<'_> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for Queries<'a> {
    type Item = Query<'a>;

    fn next(&mut self) -> Option<Query<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut rest = Fields(self.rest);
        let query = Query::parse(rest.string().ok()?);
        self.rest = rest.0;
        query
    }
}

/// An export's name as the whole of an option's data.
pub fn export_name(data: &[u8]) -> Result<&str, Malformed> {
    text(data)
}

/// Reads the data of `NBD_OPT_INFO` and `NBD_OPT_GO`. Which information the client asks for does
/// not matter: it gets all.
pub fn info_request(data: &[u8]) -> Result<InfoRequest<'_>, Malformed> {
    let mut rest = Fields(data);
    let name = rest.string()?;
    let count = rest.u16()?;
    rest.take(usize::from(count) * 2)?;
    rest.end()?;
    Ok(InfoRequest { name })
}

/// Reads the data of the two options on metadata contexts. O(bytes), before anything is looked up.
pub fn meta_request(data: &[u8]) -> Result<MetaRequest<'_>, Malformed> {
    let mut rest = Fields(data);
    let name = rest.string()?;
    let count = rest.u32()?;
    let queries = Queries { left: count, rest: rest.0 };
    for _ in 0..count {
        if Query::parse(rest.string()?).is_none() {
            return Err(Malformed("a metadata query is NAMESPACE:NAME, as in base:allocation"));
        }
    }
    rest.end()?;
    Ok(MetaRequest { name, queries })
}

/// The unread part of an option's data.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(Malformed("the option's data is shorter than it says"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn string(&mut self) -> Result<&'a str, Malformed> {
        let len = self.u32()? as usize;
        text(self.take(len)?)
    }

    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed("the option's data is longer than it says"))
        }
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > MAX_STRING {
        return Err(Malformed("a name or query is longer than 4096 bytes"));
    }
    match core::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(Malformed("a name or query is UTF-8 without NUL")),
    }
}
