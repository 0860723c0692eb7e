//! A thread's alarm, which interrupts a system call that waits although it should not.
//!
//! Some calls wait only for somebody who means harm. To make each of them in a way that can never
//! wait costs every call; here it costs whom it is done to, once. While a thread makes such calls,
//! a timer of the kernel's sends it `SIGURG` every [`TICK`]. A call that waits ends with `EINTR`,
//! one that does not wait is over long before. A tick that finds no call, neither now nor since the
//! last one, stops the timer, so a thread that rests is left alone.
//!
//! `SIGURG`, because one that finds no handler is ignored. All that a thread waits for besides must
//! bear `EINTR`. See `docs/decisions/0079-writes-that-are-interrupted.md`.

use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence};

/// How long a call waits at the most, in nanoseconds: 4 ms.
const TICK: libc::c_long = 4_000_000;

/// What the handler sees. It runs on the thread itself, between any two instructions of it.
struct State {
    timer: AtomicPtr<libc::c_void>,
    runs: AtomicBool,
    /// Now. However often the thread is held up on its way into the call, the timer runs on.
    calls: AtomicBool,
    /// Since the last tick.
    called: AtomicBool,
}

/// The thread's timer.
enum Timer {
    Unknown,
    Made(Made),
    /// The kernel has none for this thread.
    Refused,
}

struct Made(libc::timer_t);

impl Drop for Made {
    fn drop(&mut self) {
        STATE.with(|state| state.runs.store(false, Ordering::Relaxed));
        // SAFETY: `create` made it, and nobody uses it after this thread.
        unsafe { libc::timer_delete(self.0) };
    }
}

thread_local! {
    // Neither is initialised nor dropped, so the handler may use it at any time.
    static STATE: State = const {
        State {
            timer: AtomicPtr::new(std::ptr::null_mut()),
            runs: AtomicBool::new(false),
            calls: AtomicBool::new(false),
            called: AtomicBool::new(false),
        }
    };
    static TIMER: Cell<Timer> = const { Cell::new(Timer::Unknown) };
}

/// Makes a call that ought not to wait, and has it interrupted after a tick or two if it does.
/// `None`: not called, for the thread can have no timer.
#[inline]
pub(super) fn guard<T>(call: impl FnOnce() -> T) -> Option<T> {
    STATE.with(|state| {
        state.calls.store(true, Ordering::Relaxed);
        state.called.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let runs = state.runs.load(Ordering::Relaxed) || start(state);
        let result = runs.then(call);
        compiler_fence(Ordering::SeqCst);
        state.calls.store(false, Ordering::Relaxed);
        result
    })
}

/// Starts the thread's timer; whether it has one.
#[cold]
fn start(state: &State) -> bool {
    let timer = match TIMER.replace(Timer::Unknown) {
        Timer::Unknown => create().map_or_else(refused, Timer::Made),
        known => known,
    };
    if let Timer::Made(made) = &timer {
        state.timer.store(made.0, Ordering::Relaxed);
        state.runs.store(true, Ordering::Relaxed);
        set_period(made.0, TICK);
    }
    TIMER.set(timer);
    state.runs.load(Ordering::Relaxed)
}

fn refused(error: io::Error) -> Timer {
    tracing::warn!(%error, "no timer: signals to front-ends take the slower way");
    Timer::Refused
}

/// A timer that does not run yet, for this thread.
fn create() -> io::Result<Made> {
    static HANDLER: OnceLock<Result<(), i32>> = OnceLock::new();
    HANDLER
        .get_or_init(|| install().map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL)))
        .map_err(io::Error::from_raw_os_error)?;
    // SAFETY: numbers and pointers, for which zero is a value.
    let (mut event, mut mask): (libc::sigevent, libc::sigset_t) = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGURG;
    event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
    let mut timer = std::ptr::null_mut();
    // SAFETY: all pointers name live values of this function's.
    unsafe {
        libc::sigemptyset(&raw mut mask);
        libc::sigaddset(&raw mut mask, libc::SIGURG);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const mask, std::ptr::null_mut());
        if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(Made(timer))
}

/// Has `SIGURG` interrupt calls, in the whole process.
fn install() -> io::Result<()> {
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int) = on_tick;
    action.sa_sigaction = handler as usize;
    // No SA_RESTART: calls shall end.
    // SAFETY: `on_tick` keeps to what a handler may do.
    match unsafe { libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The handler: atomics of this thread, and `timer_settime`, which handlers may call.
extern "C" fn on_tick(_signal: libc::c_int) {
    STATE.with(|state| {
        if !state.calls.load(Ordering::Relaxed)
            && !state.called.swap(false, Ordering::Relaxed)
            && state.runs.swap(false, Ordering::Relaxed)
        {
            let errno = Errno::from_io_error(&io::Error::last_os_error());
            set_period(state.timer.load(Ordering::Relaxed), 0);
            if let Some(errno) = errno {
                // SAFETY: the thread's own.
                unsafe { *libc::__errno_location() = errno.raw_os_error() };
            }
        }
    });
}

/// Has the timer tick so often, or not at all.
fn set_period(timer: libc::timer_t, nanos: libc::c_long) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanos };
    let period = libc::itimerspec { it_interval: time, it_value: time };
    // SAFETY: the timer is this thread's, and lives as long as it. It fails for none such only.
    unsafe { libc::timer_settime(timer, 0, &raw const period, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};

    /// Long enough for any machine.
    const FOR_EVER: Duration = Duration::from_secs(60);

    fn runs() -> bool {
        STATE.with(|state| state.runs.load(Ordering::Relaxed))
    }

    #[test]
    fn a_call_that_waits_is_interrupted_each_time() {
        let mut full = std::fs::File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        full.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        for _ in 0..3 {
            let waits = guard(|| rustix::io::write(&full, &1u64.to_ne_bytes()));
            assert_eq!(waits, Some(Err(Errno::INTR)));
        }
        let mut count = [0; 8];
        full.read_exact(&mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1, "nothing was added");
    }

    #[test]
    fn the_timer_runs_on_however_late_the_call_comes() {
        let full = std::fs::File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        (&full).write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        let late = || {
            // Some ticks pass by before the thread comes to its call.
            let since = Instant::now();
            while since.elapsed() < Duration::from_nanos(5 * TICK as u64) {
                std::hint::spin_loop();
            }
            rustix::io::write(&full, &1u64.to_ne_bytes())
        };
        assert_eq!(guard(late), Some(Err(Errno::INTR)));
    }

    #[test]
    fn a_thread_that_rests_is_left_alone_until_it_calls_again() {
        for _ in 0..3 {
            assert_eq!(guard(runs), Some(true));
            let since = Instant::now();
            while runs() {
                assert!(since.elapsed() < FOR_EVER, "the timer runs on");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn threads_that_end_take_their_timers_along() {
        // Far more than a process may have at once, which is what it may have of pending signals.
        let timers = || std::fs::read_to_string("/proc/self/timers").unwrap_or_default();
        for _ in 0..50 {
            let thread = std::thread::spawn(|| {
                assert_eq!(guard(runs), Some(true));
                rustix::thread::gettid().as_raw_nonzero().get()
            });
            let id = thread.join().unwrap();
            assert!(!timers().contains(&format!("tid.{id}")), "{}", timers());
        }
    }
}
