//! What operators do about disks that hold requests for their storage's trouble.

use crate::{Control, ControlError};
use headgate_api::types::Disk;
use headgate_model::{HoldSample, Name};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the end of a try is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(50);

impl Control {
    /// Has a disk that holds requests try one of them now, and waits up to three seconds for what
    /// becomes of it. If the storage takes it, all go on.
    ///
    /// # Errors
    /// [`ControlError::Missing`], or [`ControlError::Busy`] where it holds none, or the storage is
    /// in trouble still; or a shard that does not answer.
    pub fn resume_disk(&self, name: &Name) -> Result<Disk, ControlError> {
        if let Some(reason) = self.model().disk(name)?.service.reason() {
            let (name, reason) = (name.clone(), reason.to_owned());
            return Err(ControlError::DiskFailed { name, reason });
        }
        let Some(before) = self.hold_of(name)? else {
            return Err(ControlError::Busy {
                error: format!("disk '{name}' holds no requests"),
                hint: format!("see 'headgate disk show {name}'"),
            });
        };
        self.plane.resume_disk(name)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let hold = match self.hold_of(name)? {
                None => return self.disk(name),
                Some(hold) => hold,
            };
            let HoldSample { since, error, requests, tries } = &hold;
            let failed = *since != before.since || *tries > before.tries;
            if !failed && Instant::now() < deadline {
                sleep(LOOK);
                continue;
            }
            let what = match failed {
                true => format!("it was tried, and failed: {error}"),
                false => "its storage has not answered yet".into(),
            };
            let plural = if *requests == 1 { "" } else { "s" };
            return Err(ControlError::Busy {
                error: format!("disk '{name}' still holds {requests} request{plural}: {what}"),
                hint: format!(
                    "repair the storage, or make room on it; 'headgate disk set {name} --werror \
                     report --rerror report' has the requests fail"
                ),
            });
        }
    }

    fn hold_of(&self, name: &Name) -> Result<Option<HoldSample>, ControlError> {
        Ok(self.live()?.remove(name).and_then(|live| live.trouble.hold))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use crate::{ControlError, ErrorKind};
    use headgate_api::health::HealthStatus;
    use headgate_api::trouble::TroubleState;
    use headgate_model::Name;
    use serde_json::json;

    #[test]
    fn a_disk_that_holds_is_told_of_and_resumed_when_the_storage_is_well() {
        let bench = Bench::new();
        let disk = json!({"name": "a", "size": 4096, "datastore": "array"});
        bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
        let name: Name = "a".parse().unwrap();
        let refused = |error: ControlError| (error.kind(), error.to_string());
        assert_eq!(
            refused(bench.control.resume_disk(&name).unwrap_err()),
            (ErrorKind::Conflict, "disk 'a' holds no requests".into())
        );
        bench.plane.hold("a");
        let health = bench.control.health();
        assert_eq!(health.status, HealthStatus::Degraded);
        assert!(health.failed[0].starts_with("disk 'a': held: no space left; 3 requests"));
        let trouble = bench.control.disk(&name).unwrap().trouble.unwrap();
        assert_eq!((trouble.state, trouble.requests), (TroubleState::Held, 3));
        bench.plane.break_down("storage");
        assert_eq!(
            refused(bench.control.resume_disk(&name).unwrap_err()),
            (
                ErrorKind::Conflict,
                "disk 'a' still holds 3 requests: it was tried, and failed: no space left".into()
            )
        );
        bench.plane.repair();
        assert_eq!(bench.control.resume_disk(&name).unwrap().trouble, None);
        assert_eq!(bench.control.health().status, HealthStatus::Ok);
    }
}
