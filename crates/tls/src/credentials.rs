//! The certificates of a directory, in the layout that QEMU, libnbd and nbdkit share.
//!
//! | file | what |
//! |---|---|
//! | `ca-cert.pem` | the authorities that peers' certificates have to come from |
//! | `ca-crl.pem` | what they revoked; may be absent |
//! | `server-cert.pem`, `server-key.pem` | what this host shows to clients |
//! | `client-cert.pem`, `client-key.pem` | what it shows to servers |
//! | `allow.toml` | which client may open what ([`Rules`]); may be absent: then all may open all |

use crate::allow::{ApiRights, Bounds, Right, Rules};
use crate::error::CredentialsError;
use crate::peer::Peer;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The authorities' certificates.
pub const CA_CERT: &str = "ca-cert.pem";
/// What the authorities revoked.
pub const CA_CRL: &str = "ca-crl.pem";
/// The rules.
pub const ALLOW: &str = "allow.toml";

/// One side's certificate and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Of who is connected to.
    Server,
    /// Of who connects.
    Client,
    /// Of who is connected to, and shows the same certificate where it connects, as an etcd server
    /// does.
    Both,
}

impl Role {
    /// The files of its certificate and of its key.
    pub fn files(self) -> [&'static str; 2] {
        match self {
            Role::Server | Role::Both => ["server-cert.pem", "server-key.pem"],
            Role::Client => ["client-cert.pem", "client-key.pem"],
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What a server needs, as its files were when it was read.
#[derive(Debug)]
pub struct ServerCredentials {
    pub(crate) config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    rules: Option<Rules>,
}

impl ServerCredentials {
    /// Reads a directory. Clients without a certificate of the authorities are refused.
    ///
    /// # Errors
    /// A file is missing or malformed, or they do not fit each other.
    pub fn read(dir: &Path) -> Result<ServerCredentials, CredentialsError> {
        let provider = provider();
        let roots = Arc::new(roots(dir)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(revoked(dir)?)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()
            .map_err(|e| no_authority(dir, &e))?;
        let (chain, key) = own(dir, Role::Server)?;
        let unusable = |source| CredentialsError::Unusable { dir: dir.into(), source };
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        Ok(ServerCredentials { config: Arc::new(config), verifier, rules: rules(dir)? })
    }

    /// What a peer may do with a disk: nothing, once its certificate has expired or was revoked.
    pub fn right(&self, peer: &Peer, disk: &str) -> Right {
        let Some((own, others)) = peer.chain().split_first() else { return Right::None };
        if self.verifier.verify_client_cert(own, others, UnixTime::now()).is_err() {
            return Right::None;
        }
        self.rules.as_ref().map_or(Right::Write, |rules| rules.right(peer.names(), disk))
    }

    /// What a peer may do over the API: nothing, once its certificate has expired or was revoked,
    /// and where no rule gives it a role.
    pub fn api(&self, peer: &Peer) -> ApiRights {
        let now = UnixTime::now();
        let holds = |(own, others): (&CertificateDer<'_>, &[_])| {
            self.verifier.verify_client_cert(own, others, now).is_ok()
        };
        let rules = self.rules.as_ref().filter(|_| peer.chain().split_first().is_some_and(holds));
        rules.map(|rules| rules.api(peer.names())).unwrap_or_default()
    }

    /// For a handshake by other means than [`accept`](crate::accept).
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// What a peer may have a disk promised; `None`: nothing, also where there are no rules.
    /// O(rules).
    pub fn bounds(&self, peer: &Peer, disk: &str) -> Option<Bounds> {
        self.rules.as_ref()?.bounds(peer.names(), disk)
    }
}

/// What a client needs, as its files were when it was read.
#[derive(Clone, Debug)]
pub struct ClientCredentials {
    pub(crate) config: Arc<ClientConfig>,
}

impl ClientCredentials {
    /// Reads a directory. A server without a certificate of the authorities for its name is
    /// refused.
    ///
    /// # Errors
    /// A file is missing or malformed, or they do not fit each other.
    pub fn read(dir: &Path) -> Result<ClientCredentials, CredentialsError> {
        ClientCredentials::build(dir, Some(own(dir, Role::Client)?))
    }

    /// Reads a directory that may be without `client-cert.pem` and `client-key.pem`: then servers
    /// are shown no certificate. One of the two alone is an error.
    ///
    /// # Errors
    /// A file is missing or malformed, or they do not fit each other.
    pub fn read_optional(dir: &Path) -> Result<ClientCredentials, CredentialsError> {
        let is_absent = |name: &str| {
            let found = fs::symlink_metadata(dir.join(name));
            found.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        };
        let own = match Role::Client.files().into_iter().all(is_absent) {
            true => None,
            false => Some(own(dir, Role::Client)?),
        };
        ClientCredentials::build(dir, own)
    }

    /// For a handshake by other means than [`connect`](crate::connect).
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    fn build(dir: &Path, own: Option<Own>) -> Result<ClientCredentials, CredentialsError> {
        let provider = provider();
        let roots = Arc::new(roots(dir)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(revoked(dir)?)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()
            .map_err(|e| no_authority(dir, &e))?;
        let unusable = |source| CredentialsError::Unusable { dir: dir.into(), source };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_webpki_verifier(verifier);
        let config = match own {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).map_err(unusable)?,
            None => config.with_no_client_auth(),
        };
        Ok(ClientCredentials { config: Arc::new(config) })
    }
}

/// A name as certificates have it; an address stands for itself. `None`: it is neither.
pub fn server_name(host: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(host).ok().map(|name| name.to_owned())
}

/// What tells that a file is another one: when it was changed, its size and its number.
type Stamp = Option<(i64, i64, u64, u64)>;

/// The files of a server's directory as they were at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamps([Stamp; 5]);

impl Stamps {
    pub(crate) fn of(dir: &Path) -> Stamps {
        let [certificate, key] = Role::Server.files();
        Stamps([CA_CERT, CA_CRL, certificate, key, ALLOW].map(|name| {
            let found = fs::metadata(dir.join(name)).ok()?;
            Some((found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
        }))
    }
}

fn no_authority(dir: &Path, why: &dyn fmt::Display) -> CredentialsError {
    CredentialsError::Authority { path: dir.join(CA_CERT), why: why.to_string() }
}

fn roots(dir: &Path) -> Result<RootCertStore, CredentialsError> {
    let path = dir.join(CA_CERT);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&path, "the authorities' certificates")? {
        roots
            .add(certificate)
            .map_err(|e| CredentialsError::Authority { path: path.clone(), why: e.to_string() })?;
    }
    Ok(roots)
}

fn revoked(dir: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, CredentialsError> {
    let path = dir.join(CA_CRL);
    let expected = "list of revoked certificates";
    let Some(bytes) = read_if_there(&path, expected)? else { return Ok(Vec::new()) };
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let lists = lists.map_err(|e| e.to_string());
    match lists {
        Ok(lists) if !lists.is_empty() => Ok(lists),
        other => Err(CredentialsError::Content { path, expected, why: none_of(other) }),
    }
}

/// A certificate, with those behind it, and its key.
type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn own(dir: &Path, role: Role) -> Result<Own, CredentialsError> {
    let [certificate, key] = role.files();
    let chain = certificates(&dir.join(certificate), "certificate")?;
    let (path, expected) = (dir.join(key), "private key");
    let bytes = read(&path, expected)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|e| CredentialsError::Content {
        path: path.clone(),
        expected,
        why: e.to_string(),
    })?;
    if fs::metadata(&path).is_ok_and(|found| found.mode() & 0o007 != 0) {
        tracing::warn!(key = %path.display(), "everybody may read the private key: chmod o= it");
    }
    Ok((chain, key))
}

fn certificates(
    path: &Path,
    expected: &'static str,
) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let bytes = read(path, expected)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|e| e.to_string());
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        other => {
            Err(CredentialsError::Content { path: path.into(), expected, why: none_of(other) })
        }
    }
}

fn none_of<T>(found: Result<Vec<T>, String>) -> String {
    found.err().unwrap_or_else(|| "there is none in it".into())
}

fn rules(dir: &Path) -> Result<Option<Rules>, CredentialsError> {
    let path = dir.join(ALLOW);
    let Some(bytes) = read_if_there(&path, "rules")? else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|_| "expected UTF-8".to_owned());
    let rules = text.and_then(|text| Rules::parse(&text));
    rules.map(Some).map_err(|why| CredentialsError::Rules { path, why })
}

fn read(path: &Path, expected: &'static str) -> Result<Vec<u8>, CredentialsError> {
    let failed = |source| CredentialsError::Read { path: path.into(), expected, source };
    fs::read(path).map_err(failed)
}

fn read_if_there(path: &Path, expected: &'static str) -> Result<Option<Vec<u8>>, CredentialsError> {
    match read(path, expected) {
        Err(CredentialsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// The credentials of a directory, which are read again when its files have changed.
#[derive(Debug)]
pub struct ServerDirectory {
    dir: PathBuf,
    stamps: Stamps,
    now: Arc<ServerCredentials>,
}

/// What became of files that were looked at again.
#[derive(Debug)]
pub enum Look {
    /// They are the same.
    Same,
    /// They have changed, and the new ones hold.
    Changed,
    /// They have changed and cannot be used. The old ones hold; they are tried again when they
    /// have changed once more.
    Unusable(CredentialsError),
}

impl ServerDirectory {
    /// Reads a directory.
    ///
    /// # Errors
    /// As [`ServerCredentials::read`].
    pub fn open(dir: &Path) -> Result<ServerDirectory, CredentialsError> {
        let stamps = Stamps::of(dir);
        let now = Arc::new(ServerCredentials::read(dir)?);
        Ok(ServerDirectory { dir: dir.into(), stamps, now })
    }

    /// Those that hold.
    pub fn now(&self) -> Arc<ServerCredentials> {
        self.now.clone()
    }

    /// Reads the files again if they have changed.
    pub fn look(&mut self) -> Look {
        let stamps = Stamps::of(&self.dir);
        if stamps == self.stamps {
            return Look::Same;
        }
        self.stamps = stamps;
        match ServerCredentials::read(&self.dir) {
            Ok(now) => {
                self.now = Arc::new(now);
                Look::Changed
            }
            Err(error) => Look::Unusable(error),
        }
    }
}
