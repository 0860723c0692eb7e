//! How virtual machines attach a disk: NBD URIs, QEMU arguments, libvirt XML.

use headgate_api::types::Attachment;
use headgate_model::Name;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// Where NBD is served over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdTcp {
    /// The address.
    pub address: SocketAddr,
    /// How.
    pub security: Security,
}

/// How NBD is served over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// To whoever reaches the address.
    Plain,
    /// Over TLS only.
    Tls,
}

impl NbdTcp {
    fn uri(self, disk: &Name) -> String {
        let scheme = match self.security {
            Security::Plain => "nbd",
            Security::Tls => "nbds",
        };
        format!("{scheme}://{}/{disk}", self.address)
    }
}

/// The NBD URI of a disk on the daemon's unix socket.
pub fn nbd_unix_uri(disk: &Name, socket: &Path) -> String {
    format!("nbd+unix:///{disk}?socket={}", percent_encoded(&socket.to_string_lossy()))
}

/// All ways to a disk.
pub fn attachment(
    disk: &Name,
    nbd_socket: &Path,
    nbd_tcp: Option<NbdTcp>,
    vhost_socket: &Path,
) -> Attachment {
    let socket = vhost_socket.to_string_lossy();
    Attachment {
        nbd_uri: nbd_unix_uri(disk, nbd_socket),
        nbd_tcp_uri: nbd_tcp.map(|tcp| tcp.uri(disk)),
        qemu: qemu(disk, &socket),
        libvirt: libvirt(&socket),
        vhost_socket: socket.into_owned(),
        vhost_obstacle: None,
        nbd_obstacle: None,
    }
}

/// The daemon reads and writes the guest's memory itself, so that memory must be shared;
/// `reconnect` carries the guest over a restart of the daemon. Without `num-queues` the guest gets
/// a queue per CPU.
fn qemu(disk: &Name, socket: &str) -> Vec<String> {
    // QEMU's option parser takes a doubled comma for a comma.
    let socket = socket.replace(',', ",,");
    [
        "-m".into(),
        "1G".into(),
        "-object".into(),
        "memory-backend-memfd,id=headgate-memory,size=1G,share=on".into(),
        "-machine".into(),
        "memory-backend=headgate-memory".into(),
        "-chardev".into(),
        format!("socket,id=headgate-{disk},path={socket},reconnect=1"),
        "-device".into(),
        format!("vhost-user-blk-pci,id=disk-{disk},chardev=headgate-{disk}"),
    ]
    .to_vec()
}

fn libvirt(socket: &str) -> String {
    let socket = xml_escaped(socket);
    format!(
        "<!-- in <domain>: the daemon reads and writes the guest's memory itself -->\n\
         <memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n</memoryBacking>\n\
         <!-- in <devices> -->\n\
         <disk type='vhostuser' device='disk'>\n  <driver name='qemu' type='raw'/>\n  \
         <source type='unix' path='{socket}'>\n    <reconnect enabled='yes' timeout='1'/>\n  </source>\n  \
         <target dev='vda' bus='virtio'/>\n</disk>\n"
    )
}

/// The arguments as a shell takes them, one option per line.
pub fn shell_lines(arguments: &[String]) -> String {
    let mut text = String::new();
    for (i, argument) in arguments.iter().enumerate() {
        match (i, argument.starts_with('-')) {
            (0, _) => {}
            (_, true) => text.push_str(" \\\n  "),
            (_, false) => text.push(' '),
        }
        text.push_str(&shell_quoted(argument));
    }
    text
}

fn shell_quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_=,./:+@%".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Text as it may stand in a URI.
pub fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~/".contains(&b) {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

fn xml_escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_survive_every_syntax() {
        let name: Name = "db.0".parse().unwrap();
        let a =
            attachment(&name, Path::new("/a b&c/nbd.sock"), None, Path::new("/it's,<x>/v.sock"));
        assert_eq!(a.nbd_uri, "nbd+unix:///db.0?socket=/a%20b%26c/nbd.sock");
        assert!(
            a.qemu.iter().any(|q| q.contains("path=/it's,,<x>/v.sock,reconnect=1")),
            "{:?}",
            a.qemu
        );
        assert!(a.libvirt.contains("path='/it&apos;s,&lt;x&gt;/v.sock'"), "{}", a.libvirt);
        assert!(
            shell_lines(&a.qemu).contains(r"path=/it'\''s,,<x>/v.sock"),
            "{}",
            shell_lines(&a.qemu)
        );
    }

    #[test]
    fn the_command_line_reads_one_option_per_line() {
        let arguments = ["-m", "1G", "-device", "x"].map(str::to_owned);
        assert_eq!(shell_lines(&arguments), "-m 1G \\\n  -device x");
    }
}
