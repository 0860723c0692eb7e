//! By how much costs are charged too high and too low, to find out what they are.

use super::class::IoClass;
use super::factors::TERMS;
use super::fit::{Device, Fit};
use super::stretch::Sample;

/// The most.
const LARGEST: f64 = 1.0 / 8.0;

/// Below this it is not worth it.
const SMALLEST: f64 = 1.0 / 128.0;

/// Sizes of a class vary enough to tell bytes from requests if their variance is more than this
/// part of the square of their mean.
const SIZES_VARY: f64 = 1.0 / 4.0;

/// Factors that change with each stretch.
#[derive(Clone, Debug)]
pub(super) struct Variation {
    state: u64,
    factors: [f64; TERMS],
}

impl Variation {
    pub(super) fn new() -> Variation {
        Variation { state: 0, factors: [1.0; TERMS] }
    }

    /// What the cost of a request without its bytes is multiplied by.
    pub(super) fn of_request(&self, class: usize) -> f64 {
        self.factors[2 * class]
    }

    /// What the cost of its bytes is.
    pub(super) fn of_byte(&self, class: usize) -> f64 {
        self.factors[2 * class + 1]
    }

    /// A number that follows from how many stretches there were: Steele, Lea, Flood: *Fast
    /// Splittable Pseudorandom Number Generators*, OOPSLA 2014.
    pub(super) fn random(&self) -> u64 {
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws the next signs. Where the device has changed, all is uncertain again.
    pub(super) fn next(&mut self, fit: &mut Fit, sent: &Sample, device: Device) {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let random = self.random() >> 32;
        let mut signs = [0.0; TERMS];
        for class in 0..IoClass::COUNT {
            let sign = |bit: usize| if random >> bit & 1 == 0 { 1.0 } else { -1.0 };
            let turned = if sizes_vary(sent, class) { sign(IoClass::COUNT + class) } else { 1.0 };
            signs[2 * class] = sign(class);
            signs[2 * class + 1] = sign(class) * turned;
        }
        if fit.doubt(&signs).is_none() {
            // All that is sent has one sign: the class that has most of the time gets the other.
            let most = (1..IoClass::COUNT).fold(0, |most, class| {
                if fit.share(class) > fit.share(most) { class } else { most }
            });
            (signs[2 * most], signs[2 * most + 1]) = (-signs[2 * most], -signs[2 * most + 1]);
        }
        if device == Device::Changed {
            fit.doubt_again(&signs, LARGEST * LARGEST);
        }
        let doubt = fit.doubt(&signs).unwrap_or(0.0);
        let mut size = LARGEST;
        while size >= SMALLEST && size * size > doubt {
            size /= 2.0;
        }
        let size = if size < SMALLEST { 0.0 } else { size };
        self.factors = signs.map(|sign| if sign > 0.0 { 1.0 + size } else { 1.0 / (1.0 + size) });
    }
}

fn sizes_vary(sent: &Sample, class: usize) -> bool {
    let requests = f64::from(sent.requests[class].max(1));
    let mean = sent.bytes[class] as f64 / 4_096.0 / requests;
    let square = sent.squares[class] as f64 / requests;
    square - mean * mean > SIZES_VARY * mean * mean
}
