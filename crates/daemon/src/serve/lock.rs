use headgate_control::{StateDir, StateDirError, StateDirLock};
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

/// How long one waits between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// So many pauses: 5 s. What a killed daemon had under way at its storage ends within that, or the
/// storage hangs.
const PAUSES: u32 = 50;

/// Becomes the directory's only daemon. A daemon that ends has a little time for it.
pub(super) fn lock(dir: &StateDir) -> Result<StateDirLock, StateDirError> {
    let mut wait = Wait::default();
    dir.lock_or(|held| {
        let next = wait.next(held);
        if next.is_continue() {
            thread::sleep(PAUSE);
        }
        next
    })
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
    use std::io;
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
