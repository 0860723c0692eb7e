//! The servers of a cluster, and how they are reached.

use super::endpoint::{Endpoint, Scheme};
use super::login::{self, Login, LoginError};
use headgate_tls::{ClientCredentials, CredentialsError};
use std::path::{Path, PathBuf};
use thiserror::Error;
use tracing::warn;

/// The etcd servers of one cluster, and how they are reached: all over TLS or none, as a user of
/// etcd's or as nobody.
///
/// Certificates are read again for each connection, user and password each time that etcd is to
/// know them: new ones need no restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    endpoints: Vec<Endpoint>,
    certificates: Option<PathBuf>,
    login: Option<PathBuf>,
}

/// The servers cannot be reached as it was said.
#[derive(Debug, Error)]
pub enum ServersError {
    /// There is none.
    #[error(
        "no etcd server is named; expected --etcd URL,... (or the key 'etcd') beside --etcd-tls \
         and --etcd-credentials: name the servers, or leave those out"
    )]
    NoEndpoint,
    /// TLS is asked for, and nobody is to be believed.
    #[error(
        "{0} is reached over TLS only, and it was not said which authority to believe; give \
         --etcd-tls DIR (or the key 'etcd-tls') with the authority's certificate in \
         DIR/ca-cert.pem"
    )]
    NoCertificates(Endpoint),
    /// A server would be reached without TLS, beside certificates.
    #[error(
        "{0} would be reached without TLS, although --etcd-tls is given; expected https:// for \
         every server: write that, or leave --etcd-tls out"
    )]
    NoTls(Endpoint),
    /// The certificates cannot be used.
    #[error("the directory of --etcd-tls cannot be used: {0}")]
    Certificates(#[from] CredentialsError),
    /// There is no user and password.
    #[error("the file of --etcd-credentials cannot be used: {0}")]
    Login(#[from] LoginError),
}

impl ServersError {
    /// What the user can do, where the error does not say it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ServersError::Certificates(e) => e.hint(),
            _ => None,
        }
    }
}

impl Servers {
    /// These servers: over TLS if there is a directory of `certificates`, with `ca-cert.pem` in it
    /// and, if the servers demand one, `client-cert.pem` and `client-key.pem`; as the user in the
    /// file `login`, if there is one.
    ///
    /// # Errors
    /// Endpoints and certificates contradict each other, or a file is missing or malformed.
    pub fn new(
        endpoints: Vec<Endpoint>,
        certificates: Option<PathBuf>,
        login: Option<PathBuf>,
    ) -> Result<Servers, ServersError> {
        if endpoints.is_empty() {
            return Err(ServersError::NoEndpoint);
        }
        for endpoint in &endpoints {
            match (endpoint.scheme, &certificates) {
                (Scheme::Http, None) | (Scheme::Https, Some(_)) => {}
                (Scheme::Https, None) => {
                    return Err(ServersError::NoCertificates(endpoint.clone()));
                }
                (Scheme::Http, Some(_)) => return Err(ServersError::NoTls(endpoint.clone())),
            }
        }
        if let Some(dir) = &certificates {
            ClientCredentials::read_optional(dir)?;
        }
        if let Some(path) = &login {
            Login::read(path)?;
        }
        Ok(Servers { endpoints, certificates, login })
    }

    /// There is at least one.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The directories whose files are read whenever they are needed.
    pub fn directories(&self) -> Vec<PathBuf> {
        let beside = |path: &PathBuf| match path.parent() {
            Some(dir) if dir.as_os_str().is_empty() => PathBuf::from("."),
            Some(dir) => dir.to_owned(),
            None => path.clone(),
        };
        self.certificates.clone().into_iter().chain(self.login.as_ref().map(beside)).collect()
    }

    /// Says in the log who may learn the password.
    pub fn warn_of_risks(&self) {
        let Some(path) = &self.login else { return };
        if login::is_open_to_all(path) {
            warn!(file = %path.display(), "everybody may read the password for etcd: chmod o= it");
        }
        for endpoint in self.overheard() {
            warn!(%endpoint,
                "the password for etcd is sent without TLS: whoever is in between can read it");
        }
    }

    /// The servers to which others can hear the password go.
    fn overheard(&self) -> impl Iterator<Item = &Endpoint> {
        let is_told = self.login.is_some();
        self.endpoints
            .iter()
            .filter(move |one| is_told && one.scheme == Scheme::Http && !one.is_loopback())
    }

    pub(super) fn certificates(&self) -> Option<&Path> {
        self.certificates.as_deref()
    }

    pub(super) fn login(&self) -> Option<&Path> {
        self.login.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_tls::{Authority, Role};
    use std::fs;
    use std::time::Duration;

    fn endpoints(texts: &[&str]) -> Vec<Endpoint> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn wrong(texts: &[&str], certificates: Option<&Path>, login: Option<&Path>) -> String {
        let [certificates, login] = [certificates, login].map(|path| path.map(Path::to_owned));
        Servers::new(endpoints(texts), certificates, login).unwrap_err().to_string()
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_a_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let authority = dir.path().join("authority");
        Authority::create(&authority).unwrap();
        let tls = Some(authority.as_path());
        for (texts, certificates, words) in [
            (&[][..], tls, "no etcd server is named"),
            (&["https://a"], None, "https://a:2379 is reached over TLS only"),
            (&["http://b", "https://a"], None, "give --etcd-tls DIR"),
            (&["http://b"], tls, "http://b:2379 would be reached without TLS"),
            (&["https://a", "http://b"], tls, "leave --etcd-tls out"),
        ] {
            let error = wrong(texts, certificates, None);
            assert!(error.contains(words), "{error}");
        }
        Servers::new(endpoints(&["https://a", "https://b"]), Some(authority), None).unwrap();
        Servers::new(endpoints(&["http://a", "http://b"]), None, None).unwrap();
    }

    #[test]
    fn files_are_looked_at_before_they_are_needed() {
        let dir = tempfile::tempdir().unwrap();
        let (own, login) = (dir.path().join("own"), dir.path().join("login"));
        let error = wrong(&["https://a"], Some(&own), None);
        assert!(error.contains("--etcd-tls") && error.contains("ca-cert.pem"), "{error}");
        let authority = Authority::create(&dir.path().join("authority")).unwrap();
        let names = ["host.example".to_owned()];
        authority.issue(Role::Client, &names, Duration::from_secs(60), &own).unwrap();
        let error = wrong(&["https://a"], Some(&own), Some(&login));
        assert!(error.contains("--etcd-credentials") && error.contains("USER:PASSW"), "{error}");
        fs::write(&login, "hg:secret").unwrap();
        let servers = Servers::new(endpoints(&["https://a"]), Some(own.clone()), Some(login));
        let servers = servers.unwrap();
        assert_eq!(servers.directories(), [own.clone(), dir.path().to_owned()]);
        assert!(!format!("{servers:?}").contains("secret"));
        // Half a certificate is none.
        fs::remove_file(own.join("client-key.pem")).unwrap();
        let error = wrong(&["https://a"], Some(&own), None);
        assert!(error.contains("client-key.pem"), "{error}");
    }

    #[test]
    fn a_password_that_others_can_hear_is_noticed() {
        let login = tempfile::NamedTempFile::new().unwrap();
        fs::write(login.path(), "hg:secret").unwrap();
        let all = endpoints(&["http://10.0.0.1", "http://localhost", "http://etcd.example"]);
        for (login, heard) in [
            (
                Some(login.path().to_owned()),
                &["http://10.0.0.1:2379", "http://etcd.example:2379"][..],
            ),
            (None, &[]),
        ] {
            let servers = Servers::new(all.clone(), None, login).unwrap();
            let overheard: Vec<_> = servers.overheard().map(Endpoint::to_string).collect();
            assert_eq!(overheard, heard);
        }
    }
}
