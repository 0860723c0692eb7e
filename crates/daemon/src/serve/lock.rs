use headgate_control::{StateDir, StateDirError, StateDirLock};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How long one waits between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// So many pauses: 5 s. What a killed daemon had under way at its storage ends within that, or the
/// storage hangs.
const PAUSES: u32 = 50;

/// How long a daemon may take to answer that it serves.
const ANSWER: Duration = Duration::from_secs(1);

/// Becomes the directory's only daemon. A daemon that ends has a little time for it; one that
/// serves has none to give.
pub(super) fn lock(dir: &StateDir) -> Result<StateDirLock, StateDirError> {
    let mut wait = Wait::default();
    dir.lock_or(|held| {
        if wait.pauses == 0 && answers(&dir.api_socket(), held) {
            return ControlFlow::Break(());
        }
        let next = wait.next(held);
        if next.is_continue() {
            thread::sleep(PAUSE);
        }
        next
    })
}

/// Whether the process that has the lock answers on the API's socket: one that was killed has its
/// number and its sockets until the kernel has taken it apart, and answers nothing.
fn answers(socket: &Path, held: &StateDirError) -> bool {
    let StateDirError::Locked { pid: Some(pid), .. } = held else { return false };
    let ask = || -> io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if u32::try_from(peer.pid.as_raw_nonzero().get()) != Ok(*pid) {
            return Ok(false);
        }
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        stream.write_all(b"GET /v1/rules HTTP/1.0\r\nHost: headgate\r\n\r\n")?;
        let mut start = [0; 5];
        stream.read_exact(&mut start)?;
        Ok(start == *b"HTTP/")
    };
    ask().unwrap_or(false)
}

/// How often one has waited.
#[derive(Debug, Default)]
struct Wait {
    pauses: u32,
}

impl Wait {
    fn next(&mut self, held: &StateDirError) -> ControlFlow<()> {
        if self.pauses == 0 {
            tracing::info!("{held}: waiting up to {:?} for its end", PAUSE * PAUSES);
        }
        if self.pauses == PAUSES {
            return ControlFlow::Break(());
        }
        self.pauses += 1;
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::sync::{Arc, Mutex};
    use tracing::subscriber::with_default;

    #[test]
    fn one_waits_a_bounded_time_and_says_so_once() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let write = {
            let lines = lines.clone();
            move || Writer(lines.clone())
        };
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(write).finish();
        let held = StateDirError::Locked { root: "/x".into(), pid: Some(7) };
        let mut wait = Wait::default();
        let tries =
            with_default(log, || (0..).take_while(|_| wait.next(&held).is_continue()).count());
        assert_eq!(tries, PAUSES as usize);
        let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("(process 7)") && text.contains("up to 5s"), "{text}");
    }

    #[test]
    fn only_the_process_with_the_lock_that_answers_serves() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let held = |pid| StateDirError::Locked { root: "/x".into(), pid };
        let me = Some(std::process::id());
        assert!(!answers(&socket, &held(me)), "nobody is there");
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(!answers(&socket, &held(me)), "a killed one accepts, and says nothing");
        thread::scope(|scope| {
            scope.spawn(|| {
                // The first is what was asked in vain.
                for _ in 0..2 {
                    let (mut stream, _) = listener.accept().unwrap();
                    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
                }
            });
            assert!(answers(&socket, &held(me)));
        });
        assert!(!answers(&socket, &held(None)));
        assert!(!answers(&socket, &held(Some(1))), "another process answers");
    }

    struct Writer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
