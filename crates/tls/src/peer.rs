//! Who is at the other end, as its certificate says.

use rustls::pki_types::CertificateDer;
use std::fmt;

/// A peer whose certificate was verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    names: Vec<String>,
    chain: Vec<CertificateDer<'static>>,
}

impl Peer {
    /// The peer with this certificate, which others behind it lead to an authority. A handshake has
    /// verified that.
    pub fn of(chain: &[CertificateDer<'static>]) -> Peer {
        let names = chain.first().map(names).unwrap_or_default();
        Peer { names, chain: chain.to_vec() }
    }

    /// The DNS names in its certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names.as_slice() {
            [] => f.write_str("a peer without a DNS name in its certificate"),
            names => f.write_str(&names.join(", ")),
        }
    }
}

fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    // Nobody gets here whose certificate cannot be read: it was verified.
    let read = webpki::EndEntityCert::try_from(certificate);
    read.map(|read| read.valid_dns_names().map(str::to_owned).collect()).unwrap_or_default()
}
