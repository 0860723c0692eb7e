//! The text form of a drive.

use super::spec::{SsdAge, SsdIsolation, SsdRating, SsdSpec, SsdTargets, SsdVictims, Switch};
use crate::options::{
    ModelSpecError, Options, by_name, name_of, parse_latency, write_latency, write_size,
};
use alloc::borrow::ToOwned;
use alloc::format;
use core::fmt;
use headgate_flash::Utilisation;
use headgate_units::{Bytes, Iops};

pub(crate) const KNOWN: &str = "op, isolation, aged, rated, targets, hysteresis, victims, buffer, background, copyback, channels, dies, planes, \
    block, page, read, program, erase, transfer and seed";
const SOUGHT: &str = "sought";
const DEFAULT_SIZE: Bytes = Bytes::from_gib(2);

const ISOLATIONS: [(&str, SsdIsolation); 3] = [
    ("none", SsdIsolation::None),
    ("static", SsdIsolation::Static),
    ("dynamic", SsdIsolation::Dynamic),
];
const VICTIMS: [(&str, SsdVictims); 3] = [
    ("greedy", SsdVictims::Greedy),
    ("cost-benefit", SsdVictims::CostBenefit),
    ("fifo", SsdVictims::Fifo),
];
const TARGETS: [(&str, SsdTargets); 2] =
    [("measured", SsdTargets::Measured), ("published", SsdTargets::Published)];
const AGES: [(&str, SsdAge); 3] =
    [("no", SsdAge::New), ("full", SsdAge::Full), ("yes", SsdAge::Aged)];
const SWITCHES: [(&str, Switch); 2] = [("yes", Switch::Yes), ("no", Switch::No)];

pub(crate) fn parse(size: Option<&str>, mut options: Options) -> Result<SsdSpec, ModelSpecError> {
    let bytes = |text: &str| text.parse::<Bytes>().ok();
    let size = match size {
        None => DEFAULT_SIZE,
        Some(text) => bytes(text).ok_or_else(|| ModelSpecError::BadValue {
            option: "ssd",
            given: text.to_owned(),
            expected: "the size of the drive, such as 2G".to_owned(),
        })?,
    };
    let mut spec = SsdSpec::unchecked(size);
    let number = |text: &str| text.parse::<u32>().ok();
    let switch = |text: &str| by_name(&SWITCHES, text);
    let time = "a time from 0s to 100s with a unit, such as 200us";
    options.set("op", &mut spec.over, parse_percent, "a percentage of the size, such as 15%")?;
    options.set(
        "isolation",
        &mut spec.isolation,
        |text| by_name(&ISOLATIONS, text),
        "none, static or dynamic",
    )?;
    options.set("aged", &mut spec.aged, |text| by_name(&AGES, text), "yes, full or no")?;
    options.set(
        "rated",
        &mut spec.rated,
        |text| match text {
            SOUGHT => Some(SsdRating::Sought),
            text => text.parse::<Iops>().ok().map(SsdRating::Given),
        },
        "page writes per second, such as 1000, or 'sought'",
    )?;
    options.set(
        "targets",
        &mut spec.targets,
        |text| by_name(&TARGETS, text),
        "measured or published",
    )?;
    let utilisation = |text: &str| {
        parse_percent(text).filter(|&part| part <= 1_000_000).map(Utilisation::from_millionths)
    };
    options.set(
        "hysteresis",
        &mut spec.hysteresis,
        utilisation,
        "a percentage from 0% to 100%, such as 0.5%",
    )?;
    options.set(
        "victims",
        &mut spec.victims,
        |text| by_name(&VICTIMS, text),
        "greedy, cost-benefit or fifo",
    )?;
    options.set("buffer", &mut spec.buffer, bytes, "a size such as 1M, or 0 for none")?;
    options.set("background", &mut spec.background, switch, "yes or no")?;
    options.set("copyback", &mut spec.copyback, switch, "yes or no")?;
    options.set("dies", &mut spec.dies, number, "a whole number from 1 to 64")?;
    spec.channels = spec.dies.min(spec.channels);
    options.set(
        "channels",
        &mut spec.channels,
        number,
        "a whole number from 1 to the number of dies",
    )?;
    options.set("planes", &mut spec.planes, number, "a whole number from 1 to 16")?;
    options.set("block", &mut spec.block, number, "a whole number of pages from 2 to 4096")?;
    options.set("page", &mut spec.page, bytes, "a size such as 4K")?;
    options.set("read", &mut spec.times.read, parse_latency, time)?;
    options.set("program", &mut spec.times.program, parse_latency, time)?;
    options.set("erase", &mut spec.times.erase, parse_latency, time)?;
    options.set("transfer", &mut spec.times.transfer, parse_latency, time)?;
    options.set(
        "seed",
        &mut spec.seed,
        |text| text.parse().ok(),
        "a whole number from 0 to 18446744073709551615",
    )?;
    options.finish()?;
    Ok(spec.checked()?)
}

pub(crate) fn write(f: &mut fmt::Formatter<'_>, spec: &SsdSpec) -> fmt::Result {
    f.write_str("ssd=")?;
    write_size(f, spec.size)?;
    f.write_str(",op=")?;
    write_percent(f, spec.over)?;
    write!(
        f,
        ",isolation={},aged={}",
        name_of(&ISOLATIONS, &spec.isolation),
        name_of(&AGES, &spec.aged)
    )?;
    match spec.rated {
        SsdRating::Sought => write!(f, ",rated={SOUGHT}")?,
        SsdRating::Given(rated) => write!(f, ",rated={rated}")?,
    }
    write!(f, ",targets={},hysteresis=", name_of(&TARGETS, &spec.targets))?;
    write_percent(f, spec.hysteresis.millionths())?;
    write!(f, ",victims={},buffer=", name_of(&VICTIMS, &spec.victims))?;
    write_size(f, spec.buffer)?;
    let (background, copyback) =
        (name_of(&SWITCHES, &spec.background), name_of(&SWITCHES, &spec.copyback));
    write!(
        f,
        ",background={background},copyback={copyback},dies={},channels={}",
        spec.dies, spec.channels
    )?;
    write!(f, ",planes={},block={},page=", spec.planes, spec.block)?;
    write_size(f, spec.page)?;
    let times = spec.times;
    for (name, time) in [
        ("read", times.read),
        ("program", times.program),
        ("erase", times.erase),
        ("transfer", times.transfer),
    ] {
        write!(f, ",{name}=")?;
        write_latency(f, time)?;
    }
    write!(f, ",seed={}", spec.seed)
}

/// A percentage with up to four decimals, in millionths.
fn parse_percent(text: &str) -> Option<u32> {
    let text = text.strip_suffix('%')?;
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || decimals.len() > 4 || !digits(decimals) {
        return None;
    }
    let fraction: u32 = format!("{decimals:0<4}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(fraction)
}

fn write_percent(f: &mut fmt::Formatter<'_>, millionths: u32) -> fmt::Result {
    let (whole, fraction) = (millionths / 10_000, format!("{:04}", millionths % 10_000));
    match fraction.trim_end_matches('0') {
        "" => write!(f, "{whole}%"),
        fraction => write!(f, "{whole}.{fraction}%"),
    }
}
