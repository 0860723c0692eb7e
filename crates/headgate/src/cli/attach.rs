//! `disk attach`: how machines get at a disk.

use super::common::Print;
use super::error::CliError;
use super::output::{json, warnings};
use clap::Args;
use headgate_api::client::Client;
use headgate_api::types::Attachment;
use headgate_control::attach::{percent_encoded, shell_lines};
use headgate_model::Name;
use std::io::Write;

/// Arguments of `disk attach`.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Attach {
    /// Name of the disk
    name: Name,
    #[command(flatten)]
    form: Form,
    /// Warn about sockets that this user may not connect to [default: that of 'vm set
    /// --socket-user'; for libvirt its own, libvirt-qemu or qemu]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    pub(super) print: Print,
}

/// The users that libvirt runs QEMU as: on Debian and on Red Hat.
const LIBVIRT_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];

#[derive(Debug, Args)]
#[group(multiple = false)]
struct Form {
    /// Print the QEMU arguments only
    #[arg(long)]
    qemu: bool,
    /// Print the libvirt XML only
    #[arg(long)]
    libvirt: bool,
    /// Print the NBD URI only
    #[arg(long)]
    nbd: bool,
}

impl Attach {
    pub(super) fn run(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        let (path, form) = (format!("/v1/disks/{}/attachment", self.name), self.form);
        let for_user = |user: &str| format!("{path}?user={}", percent_encoded(user));
        let asked = self.user.as_deref().map_or(path.clone(), for_user);
        let attachment: Attachment = client.get(&asked)?;
        if self.print.json {
            return Ok(json(out, &attachment)?);
        }
        out.write_all(form.render(&attachment).as_bytes())?;
        warnings(&form.obstacles(&attachment));
        let libvirt = LIBVIRT_USERS.iter().find(|user| headgate_access::user(user).is_ok());
        if let (true, None, Some(user)) = (form.is_for_libvirt(), &self.user, libvirt) {
            let attachment: Attachment = client.get(&for_user(user))?;
            warnings(&attachment.vhost_obstacle.map(for_libvirt).into_iter().collect::<Vec<_>>());
        }
        Ok(())
    }
}

/// What a user of libvirt is told.
fn for_libvirt(obstacle: String) -> String {
    format!(
        "libvirt's {obstacle}: QEMU would wait for ever; let them in with 'headgate vm set VM \
         --socket-user USER', or 'headgate serve --socket-group GROUP'"
    )
}

impl Form {
    fn is_for_libvirt(&self) -> bool {
        !self.qemu && !self.nbd
    }

    /// What keeps the user that was asked about from the sockets that are printed.
    fn obstacles(&self, attachment: &Attachment) -> Vec<String> {
        let vhost = attachment.vhost_obstacle.as_ref().filter(|_| !self.nbd);
        let nbd = attachment.nbd_obstacle.as_ref().filter(|_| !self.qemu && !self.libvirt);
        vhost.into_iter().chain(nbd).cloned().collect()
    }

    fn render(&self, attachment: &Attachment) -> String {
        let qemu = format!("{}\n", shell_lines(&attachment.qemu));
        let nbd = format!("{}\n", attachment.nbd_uri);
        match self {
            Form { qemu: true, .. } => qemu,
            Form { libvirt: true, .. } => attachment.libvirt.clone(),
            Form { nbd: true, .. } => nbd,
            _ => {
                let tcp = attachment
                    .nbd_tcp_uri
                    .as_ref()
                    .map(|uri| format!("{uri}\n"))
                    .unwrap_or_default();
                format!(
                    "# NBD: qemu-img, qemu-io, nbdcopy, fio --ioengine=nbd\n{nbd}{tcp}\n\
                     # QEMU, vhost-user-blk (size= is the guest's memory, the same as -m)\n{qemu}\n\
                     # libvirt, vhost-user-blk\n{}",
                    attachment.libvirt
                )
            }
        }
    }
}
