//! Where etcd is, and how it is reached.

use super::Config;
use headgate_cluster::{Endpoint, Servers, ServersError};
use std::path::PathBuf;

/// Arguments of `headgate serve`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct EtcdArgs {
    /// etcd servers that hold leases and congestion boards, comma-separated: http://HOST:PORT or,
    /// all of them, https://HOST:PORT
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<Endpoint>,
    /// Certificates for etcd at https://: the authority to believe, ca-cert.pem, and, if they are
    /// there, what etcd is shown, client-cert.pem and client-key.pem. Read again for each
    /// connection
    #[arg(long, value_name = "DIR")]
    etcd_tls: Option<PathBuf>,
    /// File with USER:PASSWORD of a user of etcd in its first line. Read again each time that etcd
    /// is to know it
    #[arg(long, value_name = "FILE")]
    etcd_credentials: Option<PathBuf>,
}

impl EtcdArgs {
    /// The servers, if there are any; what is not said here the configuration says.
    pub(super) fn servers(&self, config: &Config) -> Result<Option<Servers>, ServersError> {
        let endpoints = if self.etcd.is_empty() { &config.etcd } else { &self.etcd };
        let tls = self.etcd_tls.as_ref().or(config.etcd_tls.as_ref());
        let login = self.etcd_credentials.as_ref().or(config.etcd_credentials.as_ref());
        if endpoints.is_empty() && tls.is_none() && login.is_none() {
            return Ok(None);
        }
        Servers::new(endpoints.clone(), tls.cloned(), login.cloned()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn servers(args: &EtcdArgs, config: &str) -> Result<Option<Servers>, String> {
        let config = toml::from_str(config).map_err(|e| e.to_string())?;
        args.servers(&config).map_err(|e| e.to_string())
    }

    fn args(etcd: &[&str]) -> EtcdArgs {
        let etcd = etcd.iter().map(|text| text.parse().unwrap()).collect();
        EtcdArgs { etcd, etcd_tls: None, etcd_credentials: None }
    }

    #[test]
    fn arguments_come_before_the_configuration() {
        assert_eq!(servers(&args(&[]), "").unwrap(), None);
        let found = servers(&args(&["http://a"]), "etcd = \"https://b\"").unwrap().unwrap();
        assert_eq!(found.endpoints()[0].to_string(), "http://a:2379");
        let found = servers(&args(&[]), "etcd = \"http://b, http://c\"").unwrap().unwrap();
        assert_eq!(found.endpoints().len(), 2);
    }

    #[test]
    fn files_without_servers_and_servers_without_files_are_refused() {
        for (given, config, words) in [
            (&[][..], "etcd-tls = \"/x\"", "no etcd server is named"),
            (&[], "etcd-credentials = \"/x\"", "no etcd server is named"),
            (&["https://a"], "", "give --etcd-tls DIR"),
            (&["http://a"], "etcd-tls = \"/x\"", "would be reached without TLS"),
            (&["http://a"], "etcd-credentials = \"/nonexistent/x\"", "/nonexistent/x"),
        ] {
            let error = servers(&args(given), config).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn all_that_is_read_later_is_known_before_the_daemon_is_confined() {
        let dir = tempfile::tempdir().unwrap();
        let login = dir.path().join("login");
        fs::write(&login, "hg:secret").unwrap();
        let given = EtcdArgs { etcd_credentials: Some(login), ..args(&["http://127.0.0.1"]) };
        let found = servers(&given, "").unwrap().unwrap();
        assert_eq!(found.directories(), [dir.path()]);
    }
}
