//! A device of a rate as the command line and the catalog write it.

use crate::layer::{LayerSpec, Stall, Stragglers, parse_stragglers};
use crate::options::{ModelSpecError, Options, parse_latency, write_latency};
use crate::service::ServiceTime;
use crate::{DeviceModel, FixedRate, Layered};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use headgate_units::{Iops, Nanos};

const DEFAULT_LATENCY: Nanos = Nanos::from_micros(100);
const DEFAULT_DEPTH: NonZeroU32 = NonZeroU32::new(1024).unwrap();
const MAX_DEPTH: u32 = 65_536;

/// The options of `rate=`, for errors.
const KNOWN: &str = "latency, depth, service, seed, stragglers and stall";

/// A [`FixedRate`] and the layers that its text may put on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSpec {
    /// Requests per second, in the mean.
    pub rate: Iops,
    /// Least service time of one request.
    pub latency: Nanos,
    /// Requests in service at once.
    pub depth: NonZeroU32,
    /// How the times between completions vary.
    pub service: ServiceTime,
    /// A layer of stragglers on the device: an older spelling of [`LayerSpec::Stragglers`].
    pub stragglers: Option<Stragglers>,
    /// A layer of stalls on the device and its stragglers: [`LayerSpec::Stall`].
    pub stall: Option<Stall>,
}

impl RateSpec {
    /// A device of a constant rate, with 100 us of latency, 1,024 requests in service and no
    /// layers.
    pub fn new(rate: Iops) -> RateSpec {
        RateSpec {
            rate,
            latency: DEFAULT_LATENCY,
            depth: DEFAULT_DEPTH,
            service: ServiceTime::Constant,
            stragglers: None,
            stall: None,
        }
    }

    /// The device with nothing in it and without the layers.
    pub fn device(&self) -> FixedRate {
        FixedRate::new(self.rate, self.latency, self.depth).with_service(self.service)
    }

    /// The layers on the device, outermost first.
    pub fn layers(&self) -> Vec<LayerSpec> {
        let stall = self.stall.map(LayerSpec::Stall);
        stall.into_iter().chain(self.stragglers.map(LayerSpec::Stragglers)).collect()
    }

    /// The device with its layers.
    pub(crate) fn build(&self) -> Box<dyn DeviceModel + Send> {
        let layers = self.layers();
        if layers.is_empty() {
            return Box::new(self.device());
        }
        Box::new(Layered::new(&layers, self.device()))
    }

    pub(crate) fn parse(rate: &str, rest: Option<&str>) -> Result<RateSpec, ModelSpecError> {
        let mut options = Options::split("rate", KNOWN, rest)?;
        let rate = rate.parse::<Iops>().map_err(|_| ModelSpecError::BadValue {
            option: "rate",
            given: rate.to_owned(),
            expected: "a whole number of requests per second from 1 to 1000000000".to_owned(),
        })?;
        let mut spec = RateSpec::new(rate);
        let time = "a time from 0s to 100s with a unit, such as 5ms or 250us";
        options.set("latency", &mut spec.latency, parse_latency, time)?;
        options.set("depth", &mut spec.depth, parse_depth, "a whole number from 1 to 65536")?;
        spec.service = parse_service(&mut options)?;
        spec.stragglers = options.take("stragglers", parse_stragglers, Stragglers::FORM)?;
        spec.stall = options.take("stall", Stall::parse, Stall::FORM)?;
        options.finish()?;
        Ok(spec)
    }
}

fn parse_depth(text: &str) -> Option<NonZeroU32> {
    text.parse().ok().filter(|depth: &NonZeroU32| depth.get() <= MAX_DEPTH)
}

/// `service` and the `seed` that only random times have.
fn parse_service(options: &mut Options<'_>) -> Result<ServiceTime, ModelSpecError> {
    let number = "a whole number from 0 to 18446744073709551615";
    let seed = options.take("seed", |text| text.parse::<u64>().ok(), number)?;
    let named = |name: &str| ServiceTime::named(name, seed.unwrap_or(ServiceTime::DEFAULT_SEED));
    let names = "constant, exponential or pareto";
    let service = options.take("service", named, names)?.unwrap_or_default();
    match (service, seed) {
        (ServiceTime::Constant, Some(seed)) => Err(ModelSpecError::BadValue {
            option: "seed",
            given: format!("{seed}"),
            expected: "only for service=exponential and service=pareto".to_owned(),
        }),
        _ => Ok(service),
    }
}

/// Writes service, stragglers and stall only where they are not the default.
impl fmt::Display for RateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rate={},latency=", self.rate)?;
        write_latency(f, self.latency)?;
        write!(f, ",depth={}", self.depth)?;
        if self.service != ServiceTime::Constant {
            write!(f, ",service={}", self.service)?;
        }
        if let Some(stragglers) = self.stragglers {
            write!(f, ",stragglers={stragglers}")?;
        }
        if let Some(stall) = self.stall {
            write!(f, ",stall={stall}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::ModelSpec;

    fn error_of(text: &str) -> String {
        text.parse::<ModelSpec>().unwrap_err().to_string()
    }

    #[test]
    fn random_service_and_stalls_print_what_parses_back() {
        for (text, printed) in [
            ("rate=5,service=constant", "rate=5,latency=100us,depth=1024"),
            (
                "rate=2000,service=exponential",
                "rate=2000,latency=100us,depth=1024,service=exponential,seed=1",
            ),
            (
                "rate=2000,seed=0,service=pareto,depth=1,stall=1s/5s",
                "rate=2000,latency=100us,depth=1,service=pareto,seed=0,stall=1s/5s",
            ),
            (
                "rate=9,stall=20ms/500ms,stragglers=3:1ms,latency=0s",
                "rate=9,latency=0s,depth=1024,stragglers=3:1ms,stall=20ms/500ms",
            ),
        ] {
            let spec: ModelSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), printed);
            assert_eq!(printed.parse(), Ok(spec));
        }
    }

    #[test]
    fn errors_say_what_would_fit() {
        assert_eq!(
            error_of("rate=5,service=normal"),
            "service='normal' does not fit the device model; service is constant, exponential or pareto"
        );
        assert_eq!(
            error_of("rate=5,seed=3"),
            "seed='3' does not fit the device model; seed is only for service=exponential and service=pareto"
        );
        assert_eq!(
            error_of("rate=5,stall=5s/5s"),
            "stall='5s/5s' does not fit the device model; stall is TIME/PERIOD, a time at the end of \
             each period of up to 100s, such as 1s/5s"
        );
        for text in ["rate=5,service=pareto,seed=-1", "rate=5,stall=0s/1s", "rate=5,stall=1s"] {
            assert!(text.parse::<ModelSpec>().is_err(), "{text}");
        }
    }
}
