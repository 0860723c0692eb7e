//! A small authority of one's own: enough for a laboratory or a rack, where no other is at hand.
//!
//! Its directory has `ca-cert.pem` and `ca-key.pem`, and two lists: of what it issued, and of what
//! of that it revoked. Whoever can read the key can make certificates for everything.

use crate::credentials::{CA_CERT, CA_CRL, Role, server_name};
use crate::error::AuthorityError;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber,
};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const CA_KEY: &str = "ca-key.pem";
/// A line for each certificate: its number, its role, its names.
const ISSUED: &str = "issued";
/// A line for each certificate that is not to be believed any more: its number.
const REVOKED: &str = "revoked";

/// For how long the authority and its lists hold.
const YEARS_30: Duration = Duration::from_secs(30 * 366 * 86_400);
/// Clocks of hosts differ.
const EARLIER: Duration = Duration::from_secs(3600);

/// An authority whose key is at hand.
pub struct Authority {
    dir: PathBuf,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes one in this directory, which is made, too.
    ///
    /// # Errors
    /// There is one already, or the directory cannot be written.
    pub fn create(dir: &Path) -> Result<Authority, AuthorityError> {
        make(dir)?;
        let failed = |source| AuthorityError::Certificate { names: "itself".into(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let params = params(&key);
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        // The key first: it says whether there is one already.
        write_new(&dir.join(CA_KEY), &key.serialize_pem(), Secrecy::Secret)?;
        write_new(&dir.join(CA_CERT), &certificate, Secrecy::Public)?;
        Ok(Authority { dir: dir.into(), certificate, issuer: Issuer::new(params, key) })
    }

    /// Opens the one of this directory.
    ///
    /// # Errors
    /// There is none, or its files are damaged.
    pub fn open(dir: &Path) -> Result<Authority, AuthorityError> {
        let (key, certificate) = (dir.join(CA_KEY), dir.join(CA_CERT));
        let [key_text, text] = [read(&key)?, read(&certificate)?];
        let pair = KeyPair::from_pem(&key_text)
            .map_err(|source| AuthorityError::Authority { path: key, source })?;
        let issuer = Issuer::new(params(&pair), pair);
        Ok(Authority { dir: dir.into(), certificate: text, issuer })
    }

    /// Makes a certificate for a host with these names, of DNS or addresses, that holds for so
    /// long, and writes it with its key and the authority's certificate to `out`.
    ///
    /// # Errors
    /// A name is malformed, there are certificates already, or `out` cannot be written.
    pub fn issue(
        &self,
        role: Role,
        names: &[String],
        valid: Duration,
        out: &Path,
    ) -> Result<(), AuthorityError> {
        let failed = |source| AuthorityError::Certificate { names: names.join(", "), source };
        if let Some(name) = names.iter().find(|name| server_name(name).is_none()) {
            return Err(AuthorityError::Name(name.clone()));
        }
        let mut params = CertificateParams::new(names).map_err(failed)?;
        let name = names.first().map_or("", String::as_str);
        // There is a common name in it otherwise.
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(title(role), name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let (server, client) =
            (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
        params.extended_key_usages = match role {
            Role::Server => vec![server],
            Role::Client => vec![client],
            Role::Both => vec![server, client],
        };
        params.use_authority_key_identifier_extension = true;
        let now = SystemTime::now();
        params.not_before = (now - EARLIER).into();
        params.not_after = (now + valid).into();
        let number = number().map_err(|source| file(Path::new("/dev/urandom"), source))?;
        params.serial_number = Some(SerialNumber::from_slice(&number));
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        make(out)?;
        // What is not in the list cannot be revoked.
        let word = match role {
            Role::Server => "server",
            Role::Client => "client",
            Role::Both => "both",
        };
        let line = format!("{} {word} {}\n", hex(&number), names.join(" "));
        append(&self.dir.join(ISSUED), &line)?;
        let [certificate_file, key_file] = role.files();
        write_new(&out.join(key_file), &key.serialize_pem(), Secrecy::Secret)?;
        write_new(&out.join(certificate_file), &certificate.pem(), Secrecy::Public)?;
        let ca = out.join(CA_CERT);
        match read(&ca) {
            Ok(there) if there == self.certificate => Ok(()),
            Ok(_) => Err(AuthorityError::Exists(ca)),
            Err(_) => write_new(&ca, &self.certificate, Secrecy::Public),
        }
    }

    /// Revokes all certificates with this name, and writes the list of all that are revoked to
    /// `ca-crl.pem` in the authority's directory. Returns how many there were.
    ///
    /// # Errors
    /// The directory cannot be read or written.
    pub fn revoke(&self, name: &str) -> Result<usize, AuthorityError> {
        let issued = read_if_there(&self.dir.join(ISSUED))?;
        let before = read_if_there(&self.dir.join(REVOKED))?;
        let has_name = |line: &&str| line.split(' ').skip(2).any(|one| one == name);
        let numbers: Vec<&str> =
            issued.lines().filter(has_name).filter_map(|line| line.split(' ').next()).collect();
        let new: Vec<&str> =
            numbers.iter().copied().filter(|one| !before.lines().any(|old| old == *one)).collect();
        append(
            &self.dir.join(REVOKED),
            &new.iter().map(|one| format!("{one}\n")).collect::<String>(),
        )?;
        let list = self.revocation_list(before.lines().chain(new.iter().copied()))?;
        let path = self.dir.join(CA_CRL);
        let next = path.with_extension("new");
        fs::write(&next, list).map_err(|source| file(&next, source))?;
        fs::rename(&next, &path).map_err(|source| file(&path, source))?;
        Ok(numbers.len())
    }

    fn revocation_list<'a>(
        &self,
        numbers: impl Iterator<Item = &'a str>,
    ) -> Result<String, AuthorityError> {
        let now = SystemTime::now();
        let revoked = |number: &str| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&unhex(number)),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        };
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let params = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: (now + YEARS_30).into(),
            crl_number: SerialNumber::from_slice(&since.as_nanos().to_be_bytes()[7..]),
            issuing_distribution_point: None,
            revoked_certs: numbers.map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).and_then(|list| list.pem());
        list.map_err(|source| AuthorityError::Certificate { names: CA_CRL.into(), source })
    }
}

/// What is known of an authority with this key: its name, above all, by which what it issued refers
/// to it.
fn params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let id = hex(&params.key_identifier(key));
    let name = format!("Headgate authority {}", &id[..id.len().min(12)]);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + YEARS_30).into();
    params
}

/// What the subject of a certificate says its name as. The names that count are elsewhere in it.
fn title(role: Role) -> DnType {
    match role {
        // An etcd that has users turns away from its gateway whose certificate has a common name.
        Role::Client => DnType::OrganizationalUnitName,
        Role::Server | Role::Both => DnType::CommonName,
    }
}

/// Positive, as numbers of certificates are.
fn number() -> io::Result<[u8; 16]> {
    let mut number = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut number)?;
    number[0] = number[0] & 0x7f | 0x40;
    Ok(number)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect()
}

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secrecy {
    Public,
    /// Its owner.
    Secret,
}

fn file(path: &Path, source: io::Error) -> AuthorityError {
    AuthorityError::File { path: path.into(), source }
}

fn make(dir: &Path) -> Result<(), AuthorityError> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(|source| file(dir, source))
}

fn read(path: &Path) -> Result<String, AuthorityError> {
    fs::read_to_string(path).map_err(|source| file(path, source))
}

fn read_if_there(path: &Path) -> Result<String, AuthorityError> {
    match fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|source| file(path, source)),
    }
}

fn write_new(path: &Path, text: &str, secrecy: Secrecy) -> Result<(), AuthorityError> {
    let mode = match secrecy {
        Secrecy::Public => 0o644,
        Secrecy::Secret => 0o600,
    };
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => AuthorityError::Exists(path.into()),
        _ => file(path, source),
    })
}

fn append(path: &Path, text: &str) -> Result<(), AuthorityError> {
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|source| file(path, source))
}
