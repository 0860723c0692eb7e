use super::*;
use crate::content::Run;
use headgate_units::Bytes;
use proptest::prelude::*;
use std::sync::atomic::AtomicUsize;

const KIB: u64 = 1 << 10;

/// The call that fails, or at which the copy is cancelled.
#[derive(Clone, Copy, Debug)]
enum At {
    Never,
    Fail(usize),
    Cancel(usize),
}

/// Both sides in memory. Calls are counted across both.
struct Lab<'a> {
    control: &'a Control,
    at: At,
    calls: AtomicUsize,
    /// Bytes that reads and writes hold now, and the most that they held.
    held: AtomicU64,
    most: AtomicU64,
    data: Vec<u8>,
    runs: Vec<Run>,
    /// Whether the source says what it holds, or calls everything data.
    tells: bool,
    target: Mutex<Vec<u8>>,
    zeroed: AtomicU64,
    flushed: AtomicBool,
}

impl<'a> Lab<'a> {
    fn new(control: &'a Control, at: At, runs: &[(u64, bool)], tells: bool, behind: u64) -> Self {
        let mut data = Vec::new();
        let mut described = Vec::new();
        for &(len, is_data) in runs {
            let (from, content) = match is_data {
                true => (1 + data.len() % 250, Content::Data),
                false => (0, Content::Zeroes),
            };
            let step = usize::from(is_data);
            data.extend((0..len as usize).map(|n| (from + n * step) as u8));
            described.push(Run { len, content });
        }
        let size = (data.len() as u64).next_multiple_of(GRANULE) + behind * GRANULE;
        // A target that held something: what is not zeroed shows.
        let target = Mutex::new(vec![0xee; size as usize]);
        Lab {
            control,
            at,
            calls: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            most: AtomicU64::new(0),
            data,
            runs: described,
            tells,
            target,
            zeroed: AtomicU64::new(0),
            flushed: AtomicBool::new(false),
        }
    }

    fn call(&self) -> Result<(), ImageError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        match self.at {
            At::Fail(n) if n == call => Err(ImageError::BadRun(call as u64)),
            At::Cancel(n) if n == call => {
                self.control.cancel();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hold(&self, len: usize) {
        let now = self.held.fetch_add(len as u64, Ordering::SeqCst) + len as u64;
        self.most.fetch_max(now, Ordering::SeqCst);
        thread::yield_now();
        self.held.fetch_sub(len as u64, Ordering::SeqCst);
    }
}

impl Source for Lab<'_> {
    fn size(&self) -> Bytes {
        Bytes(self.data.len() as u64)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Vec<Run>, ImageError> {
        self.call()?;
        if !self.tells {
            return Ok(vec![Run { len, content: Content::Data }]);
        }
        let (mut begin, mut said) = (0, Vec::new());
        for run in &self.runs {
            let end = begin + run.len;
            if end > offset && said.len() < 3 {
                said.push(Run { len: end - begin.max(offset), ..*run });
            }
            begin = end;
        }
        Ok(said)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        self.call()?;
        assert!(into.len() <= CHUNK && offset.is_multiple_of(GRANULE));
        self.hold(into.len());
        into.copy_from_slice(&self.data[offset as usize..][..into.len()]);
        Ok(())
    }
}

struct Target<'a>(&'a Lab<'a>);

impl Sink for Target<'_> {
    fn size(&self) -> Bytes {
        Bytes(self.0.target.lock().unwrap().len() as u64)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        self.0.call()?;
        self.0.hold(bytes.len());
        assert!(offset.is_multiple_of(GRANULE) && (bytes.len() as u64).is_multiple_of(GRANULE));
        let mut target = self.0.target.lock().unwrap();
        let range = &mut target[offset as usize..][..bytes.len()];
        assert!(range.iter().all(|byte| *byte == 0xee), "written twice");
        range.copy_from_slice(bytes);
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ImageError> {
        self.0.call()?;
        assert!(offset.is_multiple_of(GRANULE) && len.is_multiple_of(GRANULE));
        let mut target = self.0.target.lock().unwrap();
        let range = &mut target[offset as usize..][..len as usize];
        assert!(range.iter().all(|byte| *byte == 0xee), "written twice");
        range.fill(0);
        self.0.zeroed.fetch_add(len, Ordering::SeqCst);
        Ok(())
    }

    fn flush(&self) -> Result<(), ImageError> {
        self.0.call()?;
        assert_eq!(self.0.held.load(Ordering::SeqCst), 0, "flushed while something is under way");
        self.0.flushed.store(true, Ordering::SeqCst);
        Ok(())
    }
}

fn maps() -> impl Strategy<Value = Vec<(u64, bool)>> {
    let len = prop_oneof![1u64..5000, (1u64..40).prop_map(|n| n * 4096), 500 * KIB..1500 * KIB];
    proptest::collection::vec((len, any::<bool>()), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the source holds and says of it, the target has the same bytes, then zeroes.
    #[test]
    fn the_target_has_the_sources_bytes(runs in maps(), tells: bool, behind in 0u64..5) {
        let control = Control::default();
        let lab = Lab::new(&control, At::Never, &runs, tells, behind);
        let copied = copy(&lab, &Target(&lab), &control).unwrap();
        let target = lab.target.lock().unwrap();
        let (same, rest) = target.split_at(lab.data.len());
        prop_assert!(same == lab.data);
        prop_assert!(rest.iter().all(|byte| *byte == 0));
        prop_assert!(lab.flushed.load(Ordering::SeqCst));
        prop_assert!(lab.most.load(Ordering::SeqCst) <= (JOBS * CHUNK) as u64);
        prop_assert_eq!(copied.written + copied.zeroes, target.len() as u64);
        prop_assert_eq!(copied.zeroes, lab.zeroed.load(Ordering::SeqCst));
        prop_assert_eq!(control.done(), target.len() as u64);
    }

    /// An error at any call, on either side, is the copy's error, and nothing is called durable.
    #[test]
    fn an_error_at_any_call_is_told(runs in maps(), tells: bool, call in 0usize..60) {
        let control = Control::default();
        let lab = Lab::new(&control, At::Fail(call), &runs, tells, 1);
        let end = copy(&lab, &Target(&lab), &control);
        if lab.calls.load(Ordering::SeqCst) > call {
            prop_assert!(matches!(end, Err(ImageError::BadRun(n)) if n == call as u64), "{end:?}");
            prop_assert!(!lab.flushed.load(Ordering::SeqCst));
        } else {
            prop_assert!(end.is_ok());
        }
    }

    /// A copy that is cancelled at any call does not say that it is whole, and begins little.
    #[test]
    fn a_cancelled_copy_says_so(runs in maps(), tells: bool, call in 0usize..60) {
        let control = Control::default();
        let lab = Lab::new(&control, At::Cancel(call), &runs, tells, 1);
        let end = copy(&lab, &Target(&lab), &control);
        let calls = lab.calls.load(Ordering::SeqCst);
        if calls > call {
            prop_assert!(matches!(end, Err(ImageError::Cancelled)), "{end:?}");
            // Each thread finishes its piece: one read, and 16 writes at most.
            prop_assert!(calls <= call + JOBS * 18, "{calls} calls");
        } else {
            prop_assert!(end.is_ok());
        }
    }
}

#[test]
fn a_target_that_is_too_small_is_refused_before_anything_is_done() {
    let control = Control::default();
    let lab = Lab::new(&control, At::Never, &[(9000, true)], true, 0);
    lab.target.lock().unwrap().truncate(4096);
    let end = copy(&lab, &Target(&lab), &control);
    assert!(matches!(end, Err(ImageError::TooSmall { needed: 9000, size: 4096 })), "{end:?}");
    assert_eq!(lab.calls.load(Ordering::SeqCst), 0);
}
