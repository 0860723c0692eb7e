//! Constants of the load formula, fitted to what was measured.

use super::pools::{Images, Knowledge};
use super::{Control, ControlError};
use headgate_api::constants::{ConstantsFit, DeviceFit, FactorFit};
use headgate_api::placement::Outside;
use headgate_history::Samples;
use headgate_model::{Lookback, Name};
use headgate_placement::{Datastore, Measurement, Trait, fit_pool};

impl Control {
    /// The constants that fit best what disks did that were alone on their datastores, beside those
    /// of the rules. Changes nothing. O(n log n) for n intervals.
    ///
    /// # Errors
    /// When the look-back is longer than measurements are kept, or samples or file systems cannot
    /// be read.
    pub fn fit_constants(&self, since: Lookback) -> Result<ConstantsFit, ControlError> {
        if since > Lookback::WEEK {
            return Err(ControlError::invalid(
                format!("intervals of {since} are not kept: a fit goes by those of 7 days at most"),
                "a time of 1min to 7d",
            ));
        }
        let whole = self.pool(&Knowledge::Remembered(Images::Passed), None)?;
        let mut outside = whole.outside;
        let (mut names, mut measured): (Vec<Name>, Vec<Vec<Measurement>>) = Default::default();
        for datastore in &whole.pool.datastores {
            let Ok(name) = datastore.name.as_str().parse::<Name>() else { continue };
            match shares_with(datastore, &whole.pool.datastores) {
                Some(other) => outside.push(Outside {
                    datastore: name,
                    reason: format!(
                        "it shares its device with datastore '{}': whoever is alone on it may not \
                         be alone there",
                        other.name
                    ),
                }),
                None => {
                    measured.push(self.samples.measured(&name, since)?);
                    names.push(name);
                }
            }
        }
        let now = whole.pool.rules.constants;
        let fit = fit_pool(&now, &measured);
        let factors = Trait::ALL.into_iter().zip(fit.told).map(|(factor, told)| FactorFit {
            factor,
            intervals: told.ok(),
            kept: told.err().map(|untold| untold.to_string()),
        });
        let devices = names.into_iter().zip(&measured).zip(&fit.per_millisecond);
        let datastores = devices.map(|((datastore, measured), load)| DeviceFit {
            datastore,
            intervals: measured.len(),
            per_millisecond: load.map(|load| load.0),
        });
        Ok(ConstantsFit {
            since: since.to_string(),
            now,
            fitted: fit.constants,
            factors: factors.collect(),
            datastores: datastores.collect(),
            outside,
            error_now: fit.before,
            error_fitted: fit.after,
            no_gain: fit.gain().err().map(|why| why.to_string()),
        })
    }
}

/// Another datastore on the same device.
fn shares_with<'a>(datastore: &Datastore, all: &'a [Datastore]) -> Option<&'a Datastore> {
    let device = datastore.spindles.as_ref()?;
    let shares = |other: &&Datastore| other.spindles.as_ref() == Some(device);
    all.iter().filter(|other| other.name != datastore.name).find(shares)
}

// What is kept is what can be asked for.
const _: () = assert!(Samples::MEASURED_FOR.0 == Lookback::WEEK.nanos().0);
