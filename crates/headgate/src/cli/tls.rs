//! `headgate tls`: a small authority for TLS, where no other is at hand.

use super::error::CliError;
use clap::Subcommand;
use headgate_tls::{Authority, Role};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, Subcommand)]
pub(super) enum Tls {
    /// Make an authority: a key that certificates are signed with
    #[command(after_help = "Example:\n  headgate tls init /root/headgate-authority")]
    Init {
        /// Its directory, which is made; keep it away from the hosts that it makes certificates for
        #[arg(value_name = "DIR")]
        authority: PathBuf,
    },
    /// Make a certificate for a host
    #[command(
        after_help = "Examples:\n  headgate tls issue server --authority /root/headgate-authority \
        --name node1.example --name 10.0.0.1 --out node1\n  headgate tls issue client \
        --authority /root/headgate-authority --name gw1.example --out gw1"
    )]
    Issue {
        /// Whether the host is connected to, or connects
        #[command(subcommand)]
        role: Issued,
    },
    /// Revoke a host's certificates, and write the list of all that are revoked
    #[command(
        after_help = "The list is ca-crl.pem in the authority's directory. A daemon believes it \
        once it is in the directory of --nbd-tls.\n\nExample:\n  headgate tls revoke gw1.example \
        --authority /root/headgate-authority"
    )]
    Revoke {
        /// A name that the certificates have
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Issued {
    /// server-cert.pem and server-key.pem, for a host that is connected to
    Server(Certificate),
    /// client-cert.pem and client-key.pem, for a host that connects
    Client(Certificate),
    /// server-cert.pem and server-key.pem, for a host that also connects with them, as etcd does
    Both(Certificate),
}

#[derive(Debug, clap::Args)]
pub(super) struct Of {
    /// The authority's directory, as 'headgate tls init' made it
    #[arg(long, value_name = "DIR")]
    authority: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(super) struct Certificate {
    #[command(flatten)]
    of: Of,
    /// A name or an address of the host, by which it is connected to or known in allow.toml; may be
    /// repeated
    #[arg(long = "name", value_name = "NAME", required = true)]
    names: Vec<String>,
    /// For how many days the certificate holds, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 825,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    days: u32,
    /// The directory for the certificate, its key and the authority's certificate; it is made
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Tls {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), CliError> {
        match self {
            Tls::Init { authority } => {
                Authority::create(&authority)?;
                writeln!(
                    out,
                    "made an authority in {}: whoever reads ca-key.pem there can be any host",
                    authority.display()
                )?;
            }
            Tls::Issue { role } => {
                let (role, Certificate { of, names, days, out: to }) = match role {
                    Issued::Server(certificate) => (Role::Server, certificate),
                    Issued::Client(certificate) => (Role::Client, certificate),
                    Issued::Both(certificate) => (Role::Both, certificate),
                };
                Authority::open(&of.authority)?.issue(role, &names, DAY * days, &to)?;
                let [certificate, key] = role.files();
                writeln!(out, "made {certificate} and {key} in {}", to.display())?;
            }
            Tls::Revoke { name, of } => {
                let count = Authority::open(&of.authority)?.revoke(&name)?;
                if count == 0 {
                    return Err(CliError::NoCertificate(name));
                }
                let list = of.authority.join(headgate_tls::CA_CRL);
                writeln!(
                    out,
                    "revoked {count} certificate(s) of {name}: now copy {} to the directories of \
                     --nbd-tls",
                    list.display()
                )?;
            }
        }
        Ok(())
    }
}
