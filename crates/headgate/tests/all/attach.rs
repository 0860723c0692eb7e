//! What `disk attach` prints works as printed.

use crate::support::{Daemon, client};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn qemu_takes_the_printed_command_line() {
    let daemon = Daemon::start(&[]);
    daemon.ok("disk create 0db --size 64M");
    if client("qemu-system-x86_64", &["--version"]).is_none() {
        return;
    }
    let arguments = daemon.ok("disk attach 0db --qemu");
    // Pasted into a shell, as an operator does.
    let line = format!(
        "exec qemu-system-x86_64 -accel tcg -display none -nodefaults -S -monitor stdio {arguments}"
    );
    let mut qemu = Command::new("sh")
        .args(["-c", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    qemu.stdin.take().unwrap().write_all(b"info qtree\nquit\n").unwrap();
    let output = qemu.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{line}: {said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("dev: vhost-user-blk-pci, id \"disk-0db\""), "{said}");
}

#[test]
fn libvirt_takes_the_printed_xml() {
    let daemon = Daemon::start(&[]);
    daemon.ok("disk create db0 --size 64M");
    let xml = daemon.ok("disk attach db0 --libvirt");
    let (memory, disk) = xml.split_once("<!-- in <devices> -->").unwrap();
    let memory = memory.split_once("-->").unwrap().1;
    let domain = format!(
        "<domain type='qemu'><name>x</name><memory unit='GiB'>1</memory>{memory}<vcpu>2</vcpu>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{disk}</devices></domain>"
    );
    let file = daemon.dir().join("domain.xml");
    std::fs::write(&file, domain).unwrap();
    let Some(checked) = client("virt-xml-validate", &[file.to_str().unwrap(), "domain"]) else {
        return;
    };
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
}

#[test]
fn nbd_clients_take_the_printed_uri() {
    let daemon = Daemon::start(&[]);
    daemon.ok("disk create db0 --size 64M");
    let uri = daemon.ok("disk attach db0 --nbd");
    let Some(size) = client("nbdinfo", &["--size", uri.trim()]) else { return };
    assert_eq!(size.out.trim(), (64 << 20).to_string(), "{}", size.err);
}
