//! The driver for stable Rust: what it says of an input, and that it stops.

use headgate_fuzz::Target;
use headgate_fuzz::drive::{Count, Until, drive};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic counts in whichever thread it happens: also one that another test makes.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A driver that reports nothing would be as good as none: a target that is told a wrong thing must
/// fail, and leave the input behind.
#[test]
fn an_input_that_breaks_a_promise_fails_the_run_and_is_kept() {
    let _alone = alone();
    let found = tempfile::tempdir().unwrap();
    let broken = Target::new("broken", 8, |input| {
        assert!(!input.contains(&b'x'), "x");
    });
    let mut count = Count::default();
    let mut drive = |target: &Target| {
        let until = Until::Mutations(100_000);
        drive(target, until, 1, found.path(), &AtomicBool::new(false), &mut count).unwrap_err()
    };
    let error = drive(&broken);
    assert!(error.to_string().contains("made it panic"), "{error}");
    let kept = headgate_fuzz::corpus::pack(found.path()).unwrap();
    assert!(kept.len() == 1 && kept[0].contains(&b'x'), "{kept:?}");
    let elsewhere = Target::new("elsewhere", 8, |input| {
        if input.contains(&b'x') {
            let thread = std::thread::spawn(|| panic!("nobody looks at this"));
            assert!(thread.join().is_err());
        }
    });
    let error = drive(&elsewhere);
    assert!(error.to_string().contains("in another thread"), "{error}");
    // What was fed until then, and the empty input of each run.
    assert!(count.kept == 2 && count.mutations >= 2, "{count:?}");
}

#[test]
fn a_run_that_is_stopped_feeds_no_more_and_counts_what_it_fed() {
    let _alone = alone();
    static STOP: AtomicBool = AtomicBool::new(false);
    let stopping = Target::new("stopping", 8, |input| {
        if !input.is_empty() {
            STOP.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let (found, mut count) = (tempfile::tempdir().unwrap(), Count::default());
    drive(&stopping, Until::Mutations(100_000), 1, found.path(), &STOP, &mut count).unwrap();
    assert!(count.kept == 1 && count.mutations < 100, "{count:?}");
    let before = count.executions();
    drive(&stopping, Until::Mutations(100_000), 1, found.path(), &STOP, &mut count).unwrap();
    assert_eq!(count.executions(), before);
}
