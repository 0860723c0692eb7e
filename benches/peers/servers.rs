//! The servers: how each is started on the file.

use crate::states::{Side, State};
use anyhow::{Context, ensure};
use headgate_lab::nbd::Handshake;
use headgate_lab::process::{Process, run};
use headgate_lab::tls::{certificates, issue};
use headgate_lab::{headgate, tools, wait_for};
use std::env;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const START: Duration = Duration::from_secs(30);
const DATASTORE: &str = "bench";
const DISK: &str = "bench";
/// The scheduler has all its work to do: no limit that binds, but one to be kept.
const POLICY: [&str; 9] = [
    DISK,
    "--datastore",
    DATASTORE,
    "--reservation",
    "1000",
    "--limit",
    "100000000",
    "--shares",
    "500",
];

/// How clients reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// NBD over a unix socket.
    Nbd,
    /// vhost-user-blk.
    VhostUser,
    /// NBD over TCP.
    Tcp,
    /// NBD over TLS, where both sides show a certificate.
    Tls,
}

/// A server and a way to reach it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Headgate's NBD server.
    HeadgateNbd,
    /// qemu-nbd.
    QemuNbd,
    /// qemu-storage-daemon's NBD server.
    StorageDaemonNbd,
    /// nbdkit's file plugin, or its null plugin.
    NbdkitFile,
    /// Headgate's vhost-user-blk.
    HeadgateVhost,
    /// qemu-storage-daemon's vhost-user-blk.
    StorageDaemonVhost,
    /// The NBD server of another build of Headgate.
    OtherNbd,
    /// vhost-user-blk of another build of Headgate.
    OtherVhost,
    /// Headgate's NBD server over TCP.
    HeadgateTcp,
    /// nbdkit over TCP.
    NbdkitTcp,
    /// qemu-nbd over TCP.
    QemuNbdTcp,
    /// Headgate's NBD server over TLS.
    HeadgateTls,
    /// nbdkit over TLS.
    NbdkitTls,
    /// qemu-nbd over TLS.
    QemuNbdTls,
}

/// Names the other build of Headgate: one to compare with.
const OTHER: &str = "HEADGATE_OTHER_BIN";

/// Which build of Headgate. Each has a state directory and an image of its own: an older one may
/// refuse what a newer one wrote.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    This,
    Other,
}

impl Build {
    fn program(self) -> anyhow::Result<PathBuf> {
        match self {
            Build::This => headgate::binary(),
            Build::Other => env::var_os(OTHER).map(PathBuf::from).context("no other build"),
        }
    }

    fn state(self, dir: &Path) -> PathBuf {
        dir.join(if self == Build::This { "state" } else { "other" })
    }

    fn images(self, dir: &Path) -> PathBuf {
        dir.join(if self == Build::This { "images" } else { "other-images" })
    }

    fn nbd(self, dir: &Path) -> PathBuf {
        self.state(dir).join("nbd.sock")
    }

    fn serve(self, dir: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(self.program()?);
        command.arg("serve").arg("--state-dir").arg(self.state(dir));
        Ok(command)
    }
}

/// What is behind all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// A file.
    File,
    /// Nothing: reads are zeroes, writes vanish.
    Null,
}

/// What all serve: a file, which is the image of a Headgate disk, or nothing of a size.
pub enum Storage {
    /// The image.
    File(PathBuf),
    /// Bytes of nothing.
    Null(u64),
}

impl Storage {
    /// Creates the disk, and fills its image, if it has one, with bytes that no layer can compress
    /// or leave out.
    pub fn prepare(dir: &Path, size: u64, backend: Backend) -> anyhow::Result<Storage> {
        let [authority, own] = ["authority", "tls"].map(|name| dir.join(name));
        certificates(&["init", &authority.to_string_lossy()])?;
        issue(&authority, "server", "127.0.0.1", &own)?;
        issue(&authority, "client", "client.example", &own)?;
        if env::var_os(OTHER).is_some() {
            Storage::prepare_for(Build::Other, dir, size, backend)?;
        }
        Storage::prepare_for(Build::This, dir, size, backend)
    }

    fn prepare_for(
        build: Build,
        dir: &Path,
        size: u64,
        backend: Backend,
    ) -> anyhow::Result<Storage> {
        let images = build.images(dir);
        std::fs::create_dir(&images)?;
        let mut daemon = launch("headgate", build.serve(dir)?, dir)?;
        wait_for("headgate should greet NBD clients", START, || {
            Ok(Handshake::connect(&build.nbd(dir)).ok())
        })?;
        let command = |arguments: &[&str]| {
            let mut command = Command::new(build.program()?);
            command.args(arguments).env("HEADGATE_STATE_DIR", build.state(dir));
            run(command, START)
        };
        let path = images.to_string_lossy().into_owned();
        let storage = match backend {
            Backend::File => ["--dir", &path],
            Backend::Null => ["--emulated", "null"],
        };
        let fixed = ["--capacity", "1000000", "--queue-depth", "128"];
        command(&[&["datastore", "add", DATASTORE][..], &storage, &fixed].concat())?;
        let size_text = size.to_string();
        command(&[&["disk", "create", "--size", &size_text][..], &POLICY].concat())?;
        daemon.terminate(START)?;
        if backend == Backend::Null {
            return Ok(Storage::Null(size));
        }
        let mut entries = std::fs::read_dir(&images)?.collect::<Result<Vec<_>, _>>()?;
        entries.retain(|e| e.metadata().is_ok_and(|m| m.len() == size));
        let image = entries.pop().context("no image in the datastore's directory")?.path();
        ensure!(entries.is_empty(), "more than one image in {}", images.display());
        let mut random = std::fs::File::open("/dev/urandom")?;
        let mut file = std::fs::File::options().write(true).open(&image)?;
        std::io::copy(&mut std::io::Read::take(&mut random, size), &mut file)?;
        file.flush()?;
        file.sync_all()?;
        Ok(Storage::File(image))
    }

    /// As QEMU's tools name it.
    fn blockdev(&self) -> String {
        match self {
            Storage::File(image) => {
                format!(
                    "driver=file,filename={},cache.direct=on,aio=io_uring,discard=unmap",
                    image.display()
                )
            }
            // Without read-zeroes the peer leaves the reader's buffer as it was, which a guest must
            // not be shown.
            Storage::Null(size) => format!("driver=null-co,size={size},read-zeroes=on"),
        }
    }
}

/// A server that runs and serves.
pub struct Running {
    process: Process,
    /// What a client is told: an NBD URI or the path of a vhost-user socket.
    pub target: String,
}

impl Running {
    /// CPU seconds that the server and its children have used.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        tree_cpu_seconds(self.process.id())
    }

    /// The server's process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends the server in good order: the next one needs the lock on the file.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.process.terminate(START)
    }
}

fn tree_cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field, the name, may hold spaces; it ends with the last parenthesis.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |n: usize| -> anyhow::Result<f64> {
        Ok(after_name.split_whitespace().nth(n - 3).context("a short /proc/PID/stat")?.parse()?)
    };
    // SAFETY: sysconf reads a constant of the system; it has no preconditions.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let mut seconds = (field(14)? + field(15)?) / ticks_per_second;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            seconds += tree_cpu_seconds(child.parse()?)?;
        }
    }
    Ok(seconds)
}

impl Contender {
    /// All of them, Headgate first of each way.
    pub const ALL: [Contender; 14] = [
        Contender::HeadgateNbd,
        Contender::QemuNbd,
        Contender::StorageDaemonNbd,
        Contender::NbdkitFile,
        Contender::HeadgateVhost,
        Contender::StorageDaemonVhost,
        Contender::OtherNbd,
        Contender::OtherVhost,
        Contender::HeadgateTcp,
        Contender::NbdkitTcp,
        Contender::QemuNbdTcp,
        Contender::HeadgateTls,
        Contender::NbdkitTls,
        Contender::QemuNbdTls,
    ];

    /// As in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Contender::HeadgateNbd => "headgate NBD",
            Contender::QemuNbd => "qemu-nbd",
            Contender::StorageDaemonNbd => "qemu-storage-daemon NBD",
            Contender::NbdkitFile => "nbdkit",
            Contender::HeadgateVhost => "headgate vhost-user-blk",
            Contender::StorageDaemonVhost => "qemu-storage-daemon vhost-user-blk",
            Contender::OtherNbd => "other build NBD",
            Contender::OtherVhost => "other build vhost-user-blk",
            Contender::HeadgateTcp => "headgate TCP",
            Contender::NbdkitTcp => "nbdkit TCP",
            Contender::QemuNbdTcp => "qemu-nbd TCP",
            Contender::HeadgateTls => "headgate TLS",
            Contender::NbdkitTls => "nbdkit TLS",
            Contender::QemuNbdTls => "qemu-nbd TLS",
        }
    }

    /// Which build of Headgate it is, if it is one.
    fn build(self) -> Option<Build> {
        match self {
            Contender::HeadgateNbd
            | Contender::HeadgateVhost
            | Contender::HeadgateTcp
            | Contender::HeadgateTls => Some(Build::This),
            Contender::OtherNbd | Contender::OtherVhost => Some(Build::Other),
            _ => None,
        }
    }

    /// How clients reach it.
    pub fn way(self) -> Way {
        match self {
            Contender::HeadgateVhost | Contender::StorageDaemonVhost | Contender::OtherVhost => {
                Way::VhostUser
            }
            Contender::HeadgateTcp | Contender::NbdkitTcp | Contender::QemuNbdTcp => Way::Tcp,
            Contender::HeadgateTls | Contender::NbdkitTls | Contender::QemuNbdTls => Way::Tls,
            _ => Way::Nbd,
        }
    }

    /// Is it ours?
    pub fn is_headgate(self) -> bool {
        self.build() == Some(Build::This)
    }

    /// Is its program here?
    pub fn installed(self) -> bool {
        match self {
            _ if self.is_headgate() => true,
            Contender::OtherNbd | Contender::OtherVhost => env::var_os(OTHER).is_some(),
            Contender::QemuNbd | Contender::QemuNbdTcp | Contender::QemuNbdTls => {
                tools::find("qemu-nbd").is_some()
            }
            Contender::StorageDaemonNbd | Contender::StorageDaemonVhost => {
                tools::find("qemu-storage-daemon").is_some()
            }
            _ => tools::find("nbdkit").is_some(),
        }
    }

    /// Starts the server and waits until it can be reached.
    pub fn start(self, dir: &Path, storage: &Storage, state: State) -> anyhow::Result<Running> {
        let socket = self.socket(dir);
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let address = format!("127.0.0.1:{port}");
        let command = state.place(Side::Server, self.command(dir, storage, &port)?);
        let mut process = launch(self.name(), command, dir)?;
        wait_for(self.name(), START, || {
            process.ensure_running()?;
            Ok(match self.way() {
                Way::Nbd => Handshake::connect(&socket).is_ok().then_some(()),
                Way::VhostUser => UnixStream::connect(&socket).is_ok().then_some(()),
                Way::Tcp | Way::Tls => TcpStream::connect(&address).is_ok().then_some(()),
            })
        })?;
        let target = match self.way() {
            Way::Nbd => format!("nbd+unix:///{DISK}?socket={}", socket.display()),
            Way::VhostUser => socket.display().to_string(),
            Way::Tcp => format!("nbd://{address}/{DISK}"),
            Way::Tls => {
                let tls = dir.join("tls");
                format!("nbds://{address}/{DISK}?tls-certificates={}", tls.display())
            }
        };
        Ok(Running { process, target })
    }

    /// What one would type.
    pub fn command_line(self, dir: &Path, storage: &Storage) -> Vec<String> {
        let Ok(command) = self.command(dir, storage, "PORT") else { return Vec::new() };
        let words: Vec<String> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().replace(&*dir.to_string_lossy(), "DIR"))
            .map(|word| if word.ends_with("/headgate") { "headgate".to_owned() } else { word })
            .collect();
        let server = words.join(" ");
        if self.build().is_some() {
            vec![server, format!("headgate disk create {}", POLICY.join(" "))]
        } else {
            vec![server]
        }
    }

    fn socket(self, dir: &Path) -> PathBuf {
        match self {
            Contender::HeadgateNbd => Build::This.nbd(dir),
            Contender::OtherNbd => Build::Other.nbd(dir),
            Contender::HeadgateVhost => vhost(Build::This, dir),
            Contender::OtherVhost => vhost(Build::Other, dir),
            _ => dir.join("peer.sock"),
        }
    }

    fn command(self, dir: &Path, storage: &Storage, port: &str) -> anyhow::Result<Command> {
        let tls = dir.join("tls").display().to_string();
        if let Some(build) = self.build() {
            let mut command = build.serve(dir)?;
            if matches!(self.way(), Way::Tcp | Way::Tls) {
                command.args(["--nbd-listen", &format!("127.0.0.1:{port}")]);
            }
            if self.way() == Way::Tls {
                command.args(["--nbd-tls", &tls]);
            }
            return Ok(command);
        }
        let socket = self.socket(dir).display().to_string();
        let fixed = match (self, storage) {
            (
                Contender::QemuNbd | Contender::QemuNbdTcp | Contender::QemuNbdTls,
                Storage::File(_),
            ) => {
                "qemu-nbd --persistent --shared=8 --format=raw --cache=none --aio=io_uring --discard=unmap"
            }
            (
                Contender::QemuNbd | Contender::QemuNbdTcp | Contender::QemuNbdTls,
                Storage::Null(_),
            ) => "qemu-nbd --persistent --shared=8 --image-opts",
            (Contender::StorageDaemonNbd | Contender::StorageDaemonVhost, _) => {
                "qemu-storage-daemon"
            }
            (_, Storage::File(_)) => "nbdkit --foreground --exit-with-parent file",
            (_, Storage::Null(_)) => "nbdkit --foreground --exit-with-parent null",
        };
        let mut words: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
        let blockdev = ["--blockdev".to_owned(), format!("{},node-name=f", storage.blockdev())];
        match self {
            Contender::QemuNbd | Contender::QemuNbdTcp | Contender::QemuNbdTls => {
                words.push(format!("--export-name={DISK}"));
                match self.way() {
                    Way::Tcp | Way::Tls => {
                        words.extend(["--bind=127.0.0.1".into(), format!("--port={port}")]);
                    }
                    _ => words.push(format!("--socket={socket}")),
                }
                if self.way() == Way::Tls {
                    let object = "tls-creds-x509,id=tls,endpoint=server,verify-peer=on";
                    words.extend(["--object".into(), format!("{object},dir={tls}")]);
                    words.push("--tls-creds=tls".into());
                }
                words.push(match storage {
                    Storage::File(image) => image.display().to_string(),
                    Storage::Null(_) => storage.blockdev(),
                });
            }
            Contender::StorageDaemonNbd => {
                words.extend(blockdev);
                words.extend(["--nbd-server".into(), format!("addr.type=unix,addr.path={socket}")]);
                words.extend([
                    "--export".into(),
                    format!("type=nbd,id=e,node-name=f,name={DISK},writable=on"),
                ]);
            }
            Contender::StorageDaemonVhost => {
                words.extend(blockdev);
                let options = "type=vhost-user-blk,id=e,node-name=f,writable=on,num-queues=4";
                words.extend([
                    "--export".into(),
                    format!("{options},addr.type=unix,addr.path={socket}"),
                ]);
            }
            Contender::NbdkitFile | Contender::NbdkitTcp | Contender::NbdkitTls => {
                match self.way() {
                    Way::Tcp | Way::Tls => {
                        words.splice(1..1, ["--ipaddr=127.0.0.1".into(), format!("--port={port}")]);
                    }
                    _ => words.insert(1, format!("--unix={socket}")),
                }
                if self.way() == Way::Tls {
                    let certificates = format!("--tls-certificates={tls}");
                    let required = ["--tls=require".into(), "--tls-verify-peer".into()];
                    words.splice(1..1, required.into_iter().chain([certificates]));
                }
                match storage {
                    Storage::File(image) => {
                        words.extend([image.display().to_string(), "cache=none".into()])
                    }
                    Storage::Null(size) => words.push(size.to_string()),
                }
            }
            _ => {}
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Ok(command)
    }
}

fn vhost(build: Build, dir: &Path) -> PathBuf {
    build.state(dir).join(format!("vhost/{DISK}.sock"))
}

fn launch(name: &str, command: Command, dir: &Path) -> anyhow::Result<Process> {
    let _ = std::fs::remove_file(dir.join("peer.sock"));
    Process::spawn(name, command, &dir.join("log"))
}
