//! A daemon of this build over a state directory of its own.

use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

pub const HEADGATE: &str = env!("CARGO_BIN_EXE_headgate");

/// A running daemon; killed when dropped.
pub struct Daemon {
    dir: tempfile::TempDir,
    child: Child,
}

/// What a command printed.
pub struct Printed {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Daemon {
    pub fn start(arguments: &[&str]) -> Daemon {
        // Short, because the sockets' paths are limited.
        let dir = tempfile::Builder::new().prefix("hg").tempdir_in("/tmp").unwrap();
        let child = spawn(dir.path(), serve(dir.path(), arguments));
        Daemon { dir, child }
    }

    /// A daemon that may not ask its kernel for real-time IO.
    pub fn start_without_privileges() -> Daemon {
        let dir = tempfile::Builder::new().prefix("hg").tempdir_in("/tmp").unwrap();
        let mut command = serve(dir.path(), &[]);
        let drop_privileges = || {
            for capability in [CAP_SYS_ADMIN, CAP_SYS_NICE] {
                // SAFETY: numbers only. Fails for who has no privileges to lose.
                unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls only.
        unsafe { command.pre_exec(drop_privileges) };
        let child = spawn(dir.path(), command);
        Daemon { dir, child }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the daemon with this signal, answers its exit status, and starts it again.
    pub fn restart(&mut self, signal: i32) -> Option<i32> {
        let code = self.end(signal);
        self.start_again();
        code
    }

    /// What the API has at this path; `None` when that is an error.
    pub fn json_of(&self, path: &str) -> Option<serde_json::Value> {
        let (status, body) = self.http("GET", path, "");
        (status == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    /// Status and body of a request to the API.
    pub fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(self.dir.path().join("headgate.sock")).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Starts the daemon again after [`Daemon::end`].
    pub fn start_again(&mut self) {
        self.start_with(&[]);
    }

    /// The same with these arguments.
    pub fn start_with(&mut self, arguments: &[&str]) {
        self.child = spawn(self.dir.path(), serve(self.dir.path(), arguments));
    }

    pub fn end(&mut self, signal: i32) -> Option<i32> {
        // SAFETY: a signal to a child that was not waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
        self.child.wait().unwrap().code()
    }

    /// Runs a command line, words separated by spaces.
    pub fn run(&self, line: &str) -> Printed {
        run(self.dir.path(), line)
    }

    /// Runs a command line that must succeed, and answers its output.
    pub fn ok(&self, line: &str) -> String {
        let printed = self.run(line);
        assert_eq!(printed.code, 0, "headgate {line}: {}{}", printed.out, printed.err);
        printed.out
    }

    pub fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CAP_SYS_ADMIN: libc::c_ulong = 21;
const CAP_SYS_NICE: libc::c_ulong = 23;

fn serve(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(HEADGATE);
    command.arg("serve").args(arguments).env("HEADGATE_STATE_DIR", dir).env("RUST_LOG", "warn");
    command
}

/// Starts a daemon and waits until it says that it is ready.
fn spawn(dir: &Path, mut command: Command) -> Child {
    let path: PathBuf = dir.join("notify");
    let _ = std::fs::remove_file(&path);
    let notify = UnixDatagram::bind(&path).unwrap();
    notify.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let child = command.env("NOTIFY_SOCKET", &path).stdout(Stdio::null()).spawn().unwrap();
    let mut heard = [0; 64];
    let len = notify.recv(&mut heard).expect("the daemon did not become ready");
    assert_eq!(&heard[..len], b"READY=1");
    child
}

pub fn run(dir: &Path, line: &str) -> Printed {
    let mut command = Command::new(HEADGATE);
    command.args(line.split_whitespace()).env("HEADGATE_STATE_DIR", dir).env("COLUMNS", "100");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Printed { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
}

/// Runs a client that may not be installed; `None`, aloud, when it is not.
pub fn client(program: &str, arguments: &[&str]) -> Option<Printed> {
    match Command::new(program).args(arguments).output() {
        Ok(Output { status, stdout, stderr }) => Some(Printed {
            code: status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&stdout).into_owned(),
            err: String::from_utf8_lossy(&stderr).into_owned(),
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: {program} is not installed");
            None
        }
        Err(e) => panic!("{program}: {e}"),
    }
}
