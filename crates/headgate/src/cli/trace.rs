//! `headgate trace`: analyses, replays and converts block traces.

use super::common::Print;
use super::error::CliError;
use super::load::print_load;
use super::output::{Align, Table, description, json, warnings};
use clap::{Args, Subcommand};
use headgate_daemon::serve::signals::Signals;
use headgate_load::ReplayArgs;
use headgate_load::replay::{Asked, Recorded, Recording};
use headgate_stats::Percentiles;
use headgate_trace::{
    Character, Characteriser, CsvWriter, DiskProfile, Format, Kind, Options, Outstanding, Profile,
    Quantiles, Report, Sizes, Tolerance, TraceReader, Unknown,
};
use headgate_units::{Bytes, Nanos};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Stands for standard input, and output.
const STANDARD: &str = "-";
/// How many requests pass between two messages of the progress bar.
const BETWEEN_MESSAGES: u64 = 1 << 16;

/// Commands on block traces.
#[derive(Debug, Subcommand)]
pub(super) enum Trace {
    /// Print statistics of a trace: rates, sizes, mix, randomness, outstanding IOs, footprint
    #[command(after_help = "Examples:\n  headgate trace stat hm_0.csv.gz\n  \
                            xz -dc trace.vscsi.xz | headgate trace stat - --json\n\n\
                            Formats: csv (our own), csv-us, vscsi, msr, systor, blkparse, disksim, fiu, tencent; gzip is unpacked.")]
    Stat {
        #[command(flatten)]
        input: Input,
        /// Most disks to list, busiest first
        #[arg(long, value_name = "N", default_value_t = 20)]
        disks: usize,
        #[command(flatten)]
        print: Print,
    },
    /// Replay a trace on a disk of any NBD or vhost-user-blk server at the recorded times
    #[command(
        after_help = "Example:\n  headgate trace replay web.csv.gz --disk web_1 --speed 200 \\\n    \
                            \"$(headgate disk attach db0 --nbd)\""
    )]
    Replay {
        #[command(flatten)]
        input: Input,
        /// Disk of the trace to replay [default: all of them, on the one target]
        #[arg(long)]
        disk: Option<String>,
        #[command(flatten)]
        replay: Box<ReplayArgs>,
    },
    /// Convert a trace to Headgate's own CSV format
    #[command(after_help = "Example:\n  headgate trace convert sdb.blkparse sdb.csv\n\n\
                            Columns: at_ns,disk,op,offset,bytes,latency_ns. op is R, W, F (flush) or D (discard).")]
    Convert {
        #[command(flatten)]
        input: Input,
        /// File to write, which must not exist; '-' for standard output
        output: PathBuf,
    },
}

/// A trace and how to read it.
#[derive(Debug, Args)]
pub(super) struct Input {
    /// Trace file; '-' for standard input
    file: PathBuf,
    /// Format of the trace [default: detected from the first lines]
    #[arg(long)]
    format: Option<Format>,
    /// Skip lines or records that cannot be read, and report how many
    #[arg(long)]
    lenient: bool,
    /// Requests held to sort them by time, 0 to 16777216
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(..=1 << 24))]
    window: u32,
}

/// What `trace stat --json` prints.
#[derive(Serialize)]
struct Statistics<'a> {
    report: &'a Report,
    #[serde(flatten)]
    character: &'a Character,
}

impl Trace {
    pub(super) fn print(&self) -> Option<Print> {
        match self {
            Trace::Stat { print, .. } => Some(*print),
            Trace::Replay { replay, .. } => Some(Print { json: replay.json }),
            Trace::Convert { .. } => None,
        }
    }

    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), CliError> {
        match self {
            Trace::Stat { input, disks, print } => {
                let mut characteriser = Characteriser::new();
                let reader = input.read(|record, _| {
                    characteriser.push(record);
                    Ok(())
                })?;
                let (report, character) = (reader.report(), characteriser.finish(reader.disks()));
                if print.json {
                    return Ok(json(out, &Statistics { report, character: &character })?);
                }
                out.write_all(describe(report, &character).as_bytes())?;
                if character.disks.len() > 1 {
                    out.write_all(table(&character, disks).as_bytes())?;
                }
                Ok(())
            }
            Trace::Replay { input, disk, replay } => {
                let report = headgate_load::replay(&replay, input.recording(disk)?)?;
                print_load(out, &report, Print { json: replay.json })
            }
            Trace::Convert { input, output } => {
                let report = match output == Path::new(STANDARD) {
                    true => convert(&input, out)?,
                    false => convert_to_file(&input, &output)?,
                };
                warnings(&left_out(&report));
                Ok(())
            }
        }
    }
}

impl Input {
    fn options(&self) -> Options {
        let tolerance = if self.lenient { Tolerance::Lenient } else { Tolerance::Strict };
        Options { format: self.format, tolerance, window: self.window as usize }
    }

    /// The requests, or those of one disk, for a replay.
    fn recording(&self, disk: Option<String>) -> Result<Recording, CliError> {
        let input: Box<dyn Read + Send> = if self.file == Path::new(STANDARD) {
            Box::new(io::stdin())
        } else {
            let cannot = |source| CliError::File { file: self.file.clone(), doing: "read", source };
            Box::new(File::open(&self.file).map_err(cannot)?)
        };
        let failed = |error| CliError::Trace { file: self.file.clone(), error };
        let mut reader = TraceReader::new(input, self.options()).map_err(failed)?;
        let mut found = disk.is_none();
        let mut ended = false;
        Ok(Box::new(std::iter::from_fn(move || {
            while let Some(record) = reader.next() {
                let record = match record {
                    Ok(record) => record,
                    Err(e) => return Some(Err(e.to_string())),
                };
                if disk.as_deref().is_some_and(|wanted| wanted != reader.disks().name(record.disk))
                {
                    continue;
                }
                found = true;
                let asked = match record.kind {
                    Kind::Read => Asked::Read,
                    Kind::Write => Asked::Write,
                    Kind::Flush => Asked::Flush,
                    Kind::Discard => Asked::Discard,
                };
                return Some(Ok(Recorded {
                    at: record.at,
                    asked,
                    offset: record.offset,
                    bytes: record.bytes.0,
                }));
            }
            if found || std::mem::replace(&mut ended, true) {
                return None;
            }
            let known: Vec<&str> = reader.disks().names().take(20).collect();
            let wanted = disk.as_deref().unwrap_or_default();
            Some(Err(format!(
                "the trace has no disk '{wanted}'; its disks are {}",
                known.join(", ")
            )))
        })))
    }

    /// Gives all requests to `take`, with a progress bar where somebody sees it.
    fn read(
        &self,
        mut take: impl FnMut(&headgate_trace::Record, &str) -> Result<(), CliError>,
    ) -> Result<TraceReader<Box<dyn Read>>, CliError> {
        let name = self.file.display();
        let cannot = |source| CliError::File { file: self.file.clone(), doing: "read", source };
        let bar = ProgressBar::no_length();
        let input: Box<dyn Read> = if self.file == Path::new(STANDARD) {
            Box::new(bar.wrap_read(io::stdin()))
        } else {
            let file = File::open(&self.file).map_err(cannot)?;
            let metadata = file.metadata().map_err(cannot)?;
            if metadata.is_dir() {
                return Err(CliError::Usage(format!("{name} is a directory, expected a trace")));
            }
            if metadata.is_file() {
                bar.set_length(metadata.len());
            }
            Box::new(bar.wrap_read(file))
        };
        let template = match bar.length() {
            Some(_) => "{msg:>24} {wide_bar} {percent:>3} % {bytes_per_sec} {elapsed}",
            None => "{msg:>24} {bytes} {bytes_per_sec} {elapsed}",
        };
        // The template is a constant, and its mistakes would show in every run.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let failed = |error| CliError::Trace { file: self.file.clone(), error };
        let mut reader = TraceReader::new(input, self.options()).map_err(failed)?;
        while let Some(record) = reader.next() {
            let record = record.map_err(failed)?;
            take(&record, reader.disks().name(record.disk))?;
            let requests = reader.report().requests;
            if requests.is_multiple_of(BETWEEN_MESSAGES) {
                bar.set_message(format!("{requests} requests"));
            }
        }
        bar.finish_and_clear();
        Ok(reader)
    }
}

fn convert(input: &Input, out: &mut dyn Write) -> Result<Report, CliError> {
    let mut writer = CsvWriter::new(BufWriter::new(out))?;
    let reader = input.read(|record, disk| Ok(writer.write(record, disk)?))?;
    writer.finish()?;
    Ok(reader.report().clone())
}

/// A file that is not finished is removed, also when a signal ends the conversion.
fn convert_to_file(input: &Input, output: &Path) -> Result<Report, CliError> {
    let cannot = |source| CliError::File { file: output.to_owned(), doing: "write", source };
    let signals = Signals::catch().map_err(CliError::Print)?;
    let mut file = File::create_new(output).map_err(cannot)?;
    // The first to take the lock decides whether the file is finished.
    let unfinished = Arc::new(Mutex::new(Some(output.to_owned())));
    let remove = unfinished.clone();
    // Not in the loop that reads: standard input may keep it waiting for ever.
    std::thread::spawn(move || {
        signals.wait();
        if let Some(file) = remove.lock().ok().and_then(|mut file| file.take()) {
            let removed = std::fs::remove_file(&file);
            eprintln!(
                "error: stopped: {} is {}",
                file.display(),
                if removed.is_ok() { "removed" } else { "not complete" }
            );
            std::process::exit(1);
        }
    });
    let result = convert(input, &mut file).map_err(|error| match error {
        CliError::Print(source) => cannot(source),
        error => error,
    });
    let mine = unfinished.lock().ok().and_then(|mut file| file.take());
    if let (Err(_), Some(file)) = (&result, mine) {
        std::fs::remove_file(file).map_err(cannot)?;
    }
    result
}

/// Warnings about lines that a lenient reading skipped.
fn left_out(report: &Report) -> Vec<String> {
    let mut all = Vec::new();
    let out = report.malformed + report.out_of_order;
    if out > 0 {
        let first = report.first_problem.as_deref().unwrap_or_default();
        all.push(format!("{out} lines of {} were left out; the first: {first}", report.lines));
    }
    all.extend(report.cut_short.clone());
    all
}

fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "-".into(), |fraction| format!("{:.1} %", fraction * 100.0))
}

fn by_interval(interval: Nanos, quantiles: Option<Quantiles>) -> String {
    quantiles.map_or_else(String::new, |Quantiles { p10, p50, p90 }| {
        format!(
            "; by intervals of {} s: p10 {p10} %, p50 {p50} %, p90 {p90} %",
            interval.0 / 1_000_000_000
        )
    })
}

fn sizes(sizes: Option<Sizes>) -> Option<String> {
    let Sizes { mean, p50, p90, p99, max } = sizes?;
    Some(format!("mean {mean}, p50 {p50}, p90 {p90}, p99 {p99}, largest {max}"))
}

fn latency(latency: Option<Percentiles>) -> Option<String> {
    let Percentiles { mean, p50, p90, p99, p999 } = latency?;
    Some(format!("mean {mean}, p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}"))
}

fn outstanding(profile: &Profile) -> String {
    match (&profile.outstanding, profile.outstanding_unknown) {
        (Some(Outstanding { mean_over_time, p50, p90, p99, max }), _) => {
            format!(
                "mean {mean_over_time:.2}; found on arrival: p50 {p50}, p90 {p90}, p99 {p99}, most {max}"
            )
        }
        (None, Some(Unknown::Incredible)) => {
            "unknown: the latencies would have more than a million outstanding".into()
        }
        (None, Some(Unknown::NoRequests)) => "unknown: there are no requests".into(),
        (None, _) => "unknown: the trace has no completion times, or not for all requests".into(),
    }
}

/// The four traits that BASIL's model takes, each at its 90th percentile.
fn traits(profile: &Profile) -> String {
    let outstanding = profile
        .outstanding
        .map_or_else(|| "unknown".into(), |outstanding| outstanding.p90.to_string());
    let size = profile.sizes.map_or_else(|| "-".into(), |sizes| sizes.p90.to_string());
    let percent = |quantiles: Option<Quantiles>| {
        quantiles.map_or_else(|| "-".into(), |q| format!("{} %", q.p90))
    };
    let (reads, random) = (percent(profile.read_percent), percent(profile.random_percent));
    format!("outstanding {outstanding}, size {size}, reads {reads}, random {random}")
}

fn rate(profile: &Profile) -> String {
    match (profile.iops, profile.bytes_per_sec) {
        (Some(iops), Some(bandwidth)) => format!(
            "{iops:.1} IOPS, {:.2} MiB/s; busiest second {} IOPS",
            bandwidth / f64::from(1 << 20),
            profile.peak_iops
        ),
        _ => "unknown: the trace has no duration".into(),
    }
}

fn describe(report: &Report, character: &Character) -> String {
    let Character { whole, interval, disks } = character;
    let Profile { reads, writes, discards, .. } = whole;
    let overwrites = (whole.written_footprint.0 > 0).then(|| {
        format!(", {:.1} times over", writes.bytes as f64 / whole.written_footprint.0 as f64)
    });
    let left_out = left_out(report);
    description(&[
        ("format", Some(report.format.to_string())),
        ("disks", Some(disks.len().to_string())),
        (
            "requests",
            Some(format!(
                "{}: {} reads ({}), {} writes ({}), {} flushes, {} discards ({})",
                whole.requests,
                reads.requests,
                Bytes(reads.bytes),
                writes.requests,
                Bytes(writes.bytes),
                whole.flushes,
                discards.requests,
                Bytes(discards.bytes)
            )),
        ),
        ("duration", Some(format!("{:.3} s", whole.duration.as_secs_f64()))),
        ("rate", Some(rate(whole))),
        ("size", sizes(whole.sizes)),
        ("reads' size", sizes(whole.read_sizes)),
        ("writes' size", sizes(whole.write_sizes)),
        ("reads", Some(percent(whole.read_fraction) + &by_interval(*interval, whole.read_percent))),
        (
            "random",
            Some(percent(whole.random_fraction) + &by_interval(*interval, whole.random_percent)),
        ),
        ("sequential", Some(percent(whole.sequential_fraction))),
        (
            "footprint",
            Some(format!(
                "{}, of that written {}{}",
                whole.footprint,
                whole.written_footprint,
                overwrites.unwrap_or_default()
            )),
        ),
        ("outstanding", Some(outstanding(whole))),
        ("p90 for BASIL", Some(traits(whole))),
        ("reads' latency", latency(whole.read_latency)),
        ("writes' latency", latency(whole.write_latency)),
        (
            "reordered",
            (report.reordered > 0)
                .then(|| format!("{} requests came after a later one", report.reordered)),
        ),
        ("left out", (!left_out.is_empty()).then(|| left_out.join("; "))),
    ])
}

fn table(character: &Character, most: usize) -> String {
    let mut busiest: Vec<&DiskProfile> = character.disks.iter().collect();
    busiest.sort_by_key(|disk| std::cmp::Reverse(disk.profile.requests));
    let mut table = Table::new(&[
        ("DISK", Align::Left),
        ("REQUESTS", Align::Right),
        ("IOPS", Align::Right),
        ("BUSIEST S", Align::Right),
        ("READS", Align::Right),
        ("RANDOM", Align::Right),
        ("SIZE P50", Align::Right),
        ("SIZE P90", Align::Right),
        ("OIO P90", Align::Right),
        ("FOOTPRINT", Align::Right),
        ("WRITTEN", Align::Right),
    ]);
    let dash = || "-".to_owned();
    for DiskProfile { disk, profile } in busiest.iter().take(most) {
        table.row(vec![
            disk.clone(),
            profile.requests.to_string(),
            profile.iops.map_or_else(dash, |iops| format!("{iops:.1}")),
            profile.peak_iops.to_string(),
            percent(profile.read_fraction),
            percent(profile.random_fraction),
            profile.sizes.map_or_else(dash, |sizes| sizes.p50.to_string()),
            profile.sizes.map_or_else(dash, |sizes| sizes.p90.to_string()),
            profile.outstanding.map_or_else(dash, |outstanding| outstanding.p90.to_string()),
            profile.footprint.to_string(),
            profile.written_footprint.to_string(),
        ]);
    }
    let mut text = format!("\n{}", table.render());
    if busiest.len() > most {
        text.push_str(&format!(
            "and {} more disks: --disks N, or all of them with --json\n",
            busiest.len() - most
        ));
    }
    text
}
