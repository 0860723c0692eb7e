//! Disks that another host created or served.

use super::common::Print;
use super::error::CliError;
use super::policy::PolicyArgs;
use super::values::{self, Word, force};
use clap::Args;
use headgate_api::client::Client;
use headgate_api::leases::{DiskTakeover, ImageFormat};
use headgate_api::types::{Changed, Disk};
use headgate_model::Name;
use hyper::Method;

const FORMATS: &[Word<ImageFormat>] = &[Word("raw", ImageFormat::Raw, "Byte by byte")];

/// Arguments of `disk takeover`.
#[derive(Debug, Args)]
pub(super) struct Takeover {
    /// Name of the disk
    name: Name,
    /// Datastore with the image, for a disk that is not known here [default: default]
    #[arg(long, value_name = "DATASTORE")]
    datastore: Option<Name>,
    /// Virtual machine that the disk belongs to, for a disk that is not known here
    #[arg(long, value_name = "VM")]
    vm: Option<Name>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Serve the disk even if its reservation overbooks the datastore. With --evict also where the
    /// servers of a striped disk cannot end the other host's connections: see first that it has
    /// stopped
    #[arg(long)]
    force: bool,
    /// Take the disk from the host that holds its lease, in etcd or on the labels of its exports,
    /// and wait until that host has certainly stopped serving it
    #[arg(long)]
    evict: bool,
    /// Serve the bytes of the image as they are, although they look like another format, such as
    /// qcow2
    #[arg(long, value_parser = values::one_of(FORMATS))]
    format: Option<ImageFormat>,
    #[command(flatten)]
    pub(super) print: Print,
}

impl Takeover {
    pub(super) fn run(self, client: &Client) -> Result<Changed<Disk>, CliError> {
        let path = format!("/v1/disks/{}/takeover", self.name);
        Ok(client.send(Method::POST, &path, &self.request())?)
    }

    fn request(self) -> DiskTakeover {
        DiskTakeover {
            datastore: self.datastore,
            vm: self.vm,
            policy: self.policy.policy_if_given(),
            force: force(self.force),
            evict: force(self.evict),
            format: self.format.unwrap_or_default(),
        }
    }
}
