//! The labels of exports that are, or are to be, members of striped disks. Everything here blocks,
//! up to a deadline.

use super::connection::{RemoteError, dial, lease_of};
use super::offer::Offer;
use headgate_nbd::client::handshake::ReplyStyle;
use headgate_nbd::counters::Counting;
use headgate_nbd::uri::Uri;
use headgate_nbd_io::{ClientTls, Direct, Opened};
use headgate_stripe::{DATA_AT, LABEL_LEN, Label, LabelError};
use headgate_units::Bytes;
use std::io;
use std::time::{Duration, Instant};

/// What is known of an export that is, or is to be, a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its size.
    pub size: Bytes,
    /// Smallest unit of a request in bytes.
    pub block_size: u32,
    /// What it holds.
    pub content: MemberContent,
    /// Whether its server knows the counters and, with them, leases.
    pub counting: Counting,
}

/// What an export holds in front of where a member's data would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberContent {
    /// Zeroes.
    Nothing,
    /// A label.
    Labelled(Label),
    /// Something else.
    Other(LabelError),
}

/// How much is read at once.
const STEP: usize = 64 << 10;

/// Looks at an export.
///
/// # Errors
/// See [`RemoteError`].
pub fn look_at_member(
    uri: &Uri,
    patience: Duration,
    tls: &ClientTls,
) -> Result<Member, RemoteError> {
    let deadline = Instant::now() + patience;
    let mut opened = dial(uri, deadline, tls, ReplyStyle::Counted(None))?;
    let offer = offer(uri, &opened)?;
    let counting = opened.form.counting();
    let unread = |source: io::Error| {
        let (server, export) = (uri.server().to_string(), uri.export.clone());
        RemoteError::LabelUnread { server, export, source }
    };
    let mut direct = Direct::new(&mut opened, deadline);
    let end = DATA_AT.0.min(offer.size);
    let mut bytes = vec![0; STEP.min(offer.payload_max as usize)];
    let mut label = [0; LABEL_LEN];
    let (mut at, mut empty) = (0, true);
    while at < end {
        let len = bytes.len().min((end - at) as usize);
        let bytes = &mut bytes[..len];
        direct.read(at, bytes).map_err(unread)?;
        empty &= bytes.iter().all(|&byte| byte == 0);
        let of_label = LABEL_LEN.saturating_sub(at as usize).min(len);
        label[LABEL_LEN.min(at as usize)..][..of_label].copy_from_slice(&bytes[..of_label]);
        at += len as u64;
    }
    let content = match Label::from_bytes(&label) {
        _ if empty => MemberContent::Nothing,
        Ok(label) => MemberContent::Labelled(label),
        Err(why) => MemberContent::Other(why),
    };
    Ok(Member { size: Bytes(offer.size), block_size: offer.block_size, content, counting })
}

/// Labels an export, durably. Where its server knows leases, the label's is shown to it first: the
/// connections of those before it have ended then.
///
/// # Errors
/// See [`RemoteError`].
pub fn label_member(
    uri: &Uri,
    patience: Duration,
    tls: &ClientTls,
    label: &Label,
) -> Result<(), RemoteError> {
    let deadline = Instant::now() + patience;
    let mut opened = dial(uri, deadline, tls, ReplyStyle::Counted(lease_of(label)))?;
    let offer = offer(uri, &opened)?;
    let mut direct = Direct::new(&mut opened, deadline);
    let bytes = label.to_bytes();
    let step = bytes.len().min(offer.payload_max as usize);
    let mut write = || {
        for (at, part) in (0..).step_by(step).zip(bytes.chunks(step)) {
            direct.write(at, part)?;
        }
        if offer.flush() { direct.flush() } else { Ok(()) }
    };
    write().map_err(|source| RemoteError::NotLabelled {
        server: uri.server().to_string(),
        export: uri.export.clone(),
        source,
    })
}

fn offer(uri: &Uri, opened: &Opened) -> Result<Offer, RemoteError> {
    Offer::check(opened.info, opened.form).map_err(|why| RemoteError::Unusable {
        server: uri.server().to_string(),
        export: uri.export.clone(),
        why,
    })
}
