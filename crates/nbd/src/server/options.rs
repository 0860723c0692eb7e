//! The data of options, taken apart. Every length in it comes from the client.

use crate::wire::{BASE_ALLOCATION, MAX_STRING};

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
    /// Queries in the data.
    pub queries: u32,
    /// One of them names [`BASE_ALLOCATION`].
    pub names_allocation: Mention,
    /// One of them is the wildcard `base:`.
    pub names_namespace: Mention,
}

/// Whether a query was in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mention {
    /// It was not.
    No,
    /// It was.
    Yes,
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

/// Reads the data of the two options on metadata contexts. Queries of other namespaces are passed
/// over, as they must be.
pub fn meta_request(data: &[u8]) -> Result<MetaRequest<'_>, Malformed> {
    let mut rest = Fields(data);
    let name = rest.string()?;
    let queries = rest.u32()?;
    let mut request =
        MetaRequest { name, queries, names_allocation: Mention::No, names_namespace: Mention::No };
    for _ in 0..queries {
        let query = rest.string()?;
        if query == BASE_ALLOCATION {
            request.names_allocation = Mention::Yes;
        } else if query == "base:" {
            request.names_namespace = Mention::Yes;
        } else if !query.contains(':') {
            return Err(Malformed("a metadata query is NAMESPACE:NAME, as in base:allocation"));
        }
    }
    rest.end()?;
    Ok(request)
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
