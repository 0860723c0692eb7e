//! What is measured runs before other work of the machine.

use std::io;
use std::sync::{Mutex, PoisonError};

/// While this lives, the calling thread and all that it starts run before other work of the
/// machine.
///
/// Linux divides CPUs among sessions first where it groups tasks by them (`sched_autogroup`), so
/// the session has to come first as well as the thread.
pub(crate) struct First {
    nice: libc::c_int,
}

/// The priority of what is measured, as `nice` understands it.
const FIRST: libc::c_int = -15;
const SESSION: &str = "/proc/self/autogroup";

/// The session has one priority for all tests of this process.
struct Session {
    /// How many of them want it to come first.
    users: u32,
    /// Its priority before; `None` where tasks are not grouped.
    nice: Option<String>,
}

static RAISED: Mutex<Session> = Mutex::new(Session { users: 0, nice: None });

impl First {
    /// Where that is not allowed, what is measured takes its chance with the rest.
    pub(crate) fn new() -> First {
        // SAFETY: reads a number of the calling thread.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        if let Err(error) = set_nice(FIRST).and(Session::raise()) {
            eprintln!("  what is measured runs at the priority of all else: {error}");
        }
        First { nice }
    }
}

impl Drop for First {
    fn drop(&mut self) {
        // What was not raised needs no way back.
        let _ = set_nice(self.nice);
        Session::lower();
    }
}

impl Session {
    fn raise() -> io::Result<()> {
        let mut session = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
        session.users += 1;
        if session.users > 1 {
            return Ok(());
        }
        // "/autogroup-123 nice 0"
        let text = std::fs::read_to_string(SESSION).ok();
        session.nice = text.and_then(|text| Some(text.trim().rsplit_once(' ')?.1.to_owned()));
        match session.nice {
            Some(_) => std::fs::write(SESSION, FIRST.to_string()),
            None => Ok(()),
        }
    }

    fn lower() {
        let mut session = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
        session.users -= 1;
        if session.users == 0
            && let Some(nice) = session.nice.take()
        {
            let _ = std::fs::write(SESSION, nice);
        }
    }
}

fn set_nice(nice: libc::c_int) -> io::Result<()> {
    // SAFETY: sets a number of the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
