//! Arguments of `headgate load` and `headgate trace replay`, and the plan that they describe.

use crate::error::LoadError;
use crate::link::DataUse;
use crate::nbd::ReplyStyle;
use crate::pace::{Arrivals, BurstStart, Bursts};
use crate::target::{Reach, Target, resolve};
use crate::workload::{Given, Mix, Order, Priority, Span, Streams, Weighted};
use clap::Args;
use headgate_units::{Bytes, Nanos};
use std::path::PathBuf;
use std::str::FromStr;

/// Largest request: what QEMU's servers take.
const MAX_BLOCK: u64 = 32 << 20;
/// Most slots of one connection or queue: what fits the largest ring with indirect descriptors.
const MAX_DEPTH: u64 = 1024;
/// Bytes of the unit that `--verify` judges, unless requests are smaller.
const VERIFY_BLOCK: u32 = 4096;

/// Arguments of `headgate load`: loads disks of NBD servers and vhost-user-blk devices.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// Disks to load: nbd+unix:///NAME?socket=PATH, nbd://HOST[:PORT]/NAME, over TLS
    /// nbds://HOST[:PORT]/NAME?tls-certificates=DIR, or the path of a vhost-user-blk socket
    // `[:PORT]` is help text, not a link.
    #[allow(rustdoc::broken_intra_doc_links)]
    #[arg(required = true, value_name = "URI|SOCKET")]
    pub targets: Vec<Target>,

    /// Outstanding requests per connection (NBD) or queue (vhost-user-blk), 1 to 1024
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_DEPTH))]
    pub depth: u64,

    /// Connections to each NBD target, 1 to 64
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub connections: u64,

    /// Queues of each vhost-user-blk target, 1 to 64
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub queues: u64,

    /// Share of reads, 0 to 100; the rest are writes, which OVERWRITE the disk
    #[arg(long, default_value_t = 100, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub read_percent: u64,

    /// Share of write-zeroes among the requests that are not reads, 0 to 100
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub write_zeroes_percent: u64,

    /// Size of requests in bytes, a multiple of 512 up to 32M, or several with weights, such as
    /// 4k:70,64k:30
    #[arg(long, default_value = "4k", value_name = "SIZES")]
    pub block_size: Weighted<Bytes>,

    /// Length of the load [default: 10, or no bound with --ios]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<Seconds>,

    /// Requests to send to each target [default: no bound]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ios: Option<u64>,

    /// Time to load before counting starts
    #[arg(long, default_value = "0", value_name = "SECONDS")]
    pub warmup: Seconds,

    /// Access random offsets (the default)
    #[arg(long, conflicts_with = "sequential")]
    pub random: bool,

    /// Access offsets in ascending order
    #[arg(long)]
    pub sequential: bool,

    /// Range of the disk in bytes to access, such as 0-1G [default: the whole disk]
    #[arg(long, value_name = "FROM-TO")]
    pub offset_range: Option<ByteRange>,

    /// Open loop: requests to start per second, whatever is outstanding, 1 to 10000000
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,

    /// Open loop: start bursts of N requests, MS milliseconds apart
    #[arg(long, value_name = "N/MS", conflicts_with = "rate")]
    pub bursts: Option<Bursts>,

    /// Hold a burst until the burst before it is answered
    #[arg(long, requires = "bursts")]
    pub burst_wait: bool,

    /// IO priority of requests (vhost-user-blk only), or several with weights, such as
    /// rt/0:20,be/4:80: none, rt/0 to rt/7, be/0 to be/7, idle, or Headgate's own fine/1 to
    /// fine/254; 'each' uses every value that a guest can write, in a mixed order
    #[arg(long, default_value = "none", value_name = "PRIORITIES")]
    pub priority: Weighted<Given>,

    /// Send each --priority as its own stream, with its part of --depth by weight, and report it
    /// separately
    #[arg(long, conflicts_with_all = ["rate", "bursts", "hostile"])]
    pub streams: bool,

    /// Writes between two flushes; 0 for none
    #[arg(long, default_value_t = 0, value_name = "WRITES")]
    pub flush_every: u64,

    /// Share of writes with FUA, 0 to 100
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub fua_percent: u64,

    /// Write a pattern, check every read, and check the whole range at the end
    #[arg(long)]
    pub verify: bool,

    /// File that records what was written and flushed; what an earlier run recorded there is
    /// checked first
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub journal: Option<PathBuf>,

    /// Time to try again to connect after a server died; 0 for not at all. With --verify, the whole
    /// range is checked afterwards
    #[arg(long, default_value = "0", value_name = "SECONDS")]
    pub reconnect: Seconds,

    /// Time without an answer after which a request failed; with --hostile, also the time that a
    /// server has to recover from an attack
    #[arg(long, default_value = "30", value_name = "SECONDS")]
    pub timeout: Seconds,

    /// Poll busily for completions, with one CPU per target
    #[arg(long)]
    pub spin: bool,

    /// Request structured replies from NBD servers
    #[arg(long)]
    pub structured_replies: bool,

    /// Send vhost-user-blk requests without indirect descriptors
    #[arg(long)]
    pub direct_descriptors: bool,

    /// Seed of the request sequence [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Attacks on the first target, whose data is OVERWRITTEN, while the others are loaded: 'all',
    /// or names of attacks, comma-separated; a flood lasts as long as --seconds says [default: 2]
    #[arg(long, value_name = "SCENARIO", value_delimiter = ',', conflicts_with = "ios")]
    pub hostile: Vec<String>,

    /// File that --hostile gives a vhost-user-blk server as guest memory, such as one on a file
    /// system that hangs [default: a new one in the directory for temporary files]
    #[arg(long, value_name = "FILE", requires = "hostile")]
    pub hostile_file: Option<PathBuf>,

    /// Server processes whose CPU time to report, too, comma-separated
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub server_pid: Vec<u32>,

    /// Allow servers on other machines
    #[arg(long)]
    pub allow_remote: bool,

    /// Print the report as JSON, with a series per second
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `headgate trace replay`: replays recorded requests on a disk at their times.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// Disk to replay on: nbd+unix:///NAME?socket=PATH, nbd://HOST[:PORT]/NAME, over TLS
    /// nbds://HOST[:PORT]/NAME?tls-certificates=DIR, or the path of a vhost-user-blk socket;
    /// recorded writes OVERWRITE it
    // `[:PORT]` is help text, not a link.
    #[allow(rustdoc::broken_intra_doc_links)]
    #[arg(value_name = "URI|SOCKET")]
    pub target: Target,

    /// Speed of the replay in percent of the recorded speed, 1 to 1000000
    #[arg(long, default_value_t = 100, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub speed: u64,

    /// Replay reads only
    #[arg(long)]
    pub reads_only: bool,

    /// Time after which the replay ends [default: at the end of the trace]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<Seconds>,

    /// Most outstanding requests per connection (NBD) or queue (vhost-user-blk), 1 to 1024; a
    /// request beyond them starts late, and its latency counts from when it was due
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_DEPTH))]
    pub depth: u64,

    /// Connections to an NBD target, 1 to 64
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub connections: u64,

    /// Queues of a vhost-user-blk target, 1 to 64
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub queues: u64,

    /// Time without an answer after which a request failed
    #[arg(long, default_value = "30", value_name = "SECONDS")]
    pub timeout: Seconds,

    /// Allow servers on other machines
    #[arg(long)]
    pub allow_remote: bool,

    /// Print the report as JSON, with a series per second
    #[arg(long)]
    pub json: bool,
}

/// Largest request of a replay; longer ones are split, as a kernel does.
const REPLAY_BLOCK: &str = "1M";

impl ReplayArgs {
    /// The equivalent load; options that a replay lacks have their command-line defaults.
    pub(crate) fn load(&self) -> Result<LoadArgs, LoadError> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            load: LoadArgs,
        }
        let line = ["replay", "--block-size", REPLAY_BLOCK, "--", "target"];
        let wrong = |e: clap::Error| LoadError::Usage(e.to_string());
        let mut load = <Line as clap::Parser>::try_parse_from(line).map_err(wrong)?.load;
        load.targets = vec![self.target.clone()];
        (load.depth, load.connections, load.queues) = (self.depth, self.connections, self.queues);
        load.read_percent = if self.reads_only { 100 } else { 0 };
        load.seconds = self.seconds;
        // The recording ends it.
        load.ios = Some(u64::MAX);
        load.timeout = self.timeout;
        load.allow_remote = self.allow_remote;
        load.json = self.json;
        Ok(load)
    }
}

/// A time in seconds on the command line, such as `10` or `0.5`; up to 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Nanos);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seconds, String> {
        let wrong =
            || format!("'{text}' is not a time in seconds such as 10 or 0.5, up to 1000000");
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().ok().filter(|s| *s <= 1_000_000).ok_or_else(wrong)?;
        let nanos: u64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
        Ok(Seconds(Nanos::from_secs(whole) + Nanos(nanos)))
    }
}

/// A range of bytes on the command line, such as `0-1G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub first: u64,
    /// First byte behind it.
    pub end: u64,
}

impl FromStr for ByteRange {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteRange, String> {
        let wrong = || format!("'{text}' is not a range FROM-TO of bytes such as 0-1G or 512M-1G");
        let (first, end) = text.split_once('-').ok_or_else(wrong)?;
        let first = first.parse::<Bytes>().map_err(|_| wrong())?.0;
        let end = end.parse::<Bytes>().map_err(|_| wrong())?.0;
        if first < end { Ok(ByteRange { first, end }) } else { Err(wrong()) }
    }
}

/// What is asked of targets that they cannot do.
fn check_targets(args: &LoadArgs) -> Result<(), LoadError> {
    let usage = |text: String| Err(LoadError::Usage(text));
    let nbd = args.targets.iter().find(|t| matches!(t, Target::Nbd(_)));
    if let Some(nbd) = nbd
        && args.priority.values().any(|p| p != Given::This(Priority(0)))
    {
        return usage(format!("--priority: NBD has no priorities, so {nbd} would not see them"));
    }
    for (i, target) in args.targets.iter().enumerate() {
        if args.targets[..i].contains(target) {
            return usage(format!("{target} is named twice; use --connections for more load"));
        }
        if let Target::Nbd(nbd) = target {
            let reach = if args.allow_remote { Reach::Anywhere } else { Reach::ThisMachine };
            resolve(&nbd.address, reach).map_err(|e| LoadError::Usage(e.to_string()))?;
        }
    }
    if args.journal.is_some() && args.targets.len() > 1 {
        return usage("--journal is for one disk; run one load per disk".into());
    }
    Ok(())
}

/// The checked arguments.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub mix: Mix,
    pub arrivals: Arrivals,
    pub seconds: Nanos,
    pub ios: u64,
    pub max_len: u32,
    /// Bytes of the unit to verify, when verifying.
    pub verify_block: Option<u32>,
    pub reach: Reach,
    pub style: ReplyStyle,
    pub seed: u64,
    pub streams: Option<Streams>,
}

impl Plan {
    pub(crate) fn new(args: &LoadArgs) -> Result<Plan, LoadError> {
        let usage = |text: String| Err(LoadError::Usage(text));
        let mut sizes = Vec::new();
        for size in args.block_size.values() {
            if size.0 == 0 || size.0 % 512 != 0 || size.0 > MAX_BLOCK {
                return usage(format!(
                    "--block-size {}: a multiple of 512 up to 32M was expected",
                    size.0
                ));
            }
            sizes.push(size.0 as u32);
        }
        let (smallest, largest) = (sizes.iter().copied().min(), sizes.iter().copied().max());
        let (smallest, max_len) = (smallest.unwrap_or(512), largest.unwrap_or(512));
        let verify_block = args.verify.then_some(smallest.min(VERIFY_BLOCK));
        if let Some(unit) = verify_block
            && sizes.iter().any(|size| size % unit != 0 || size % smallest != 0)
        {
            return usage(format!(
                "--verify judges units of {unit} bytes: every --block-size must be a multiple of the smallest"
            ));
        }
        check_targets(args)?;
        let seconds = match (args.seconds, args.ios) {
            (Some(seconds), _) => seconds.0,
            (None, Some(_)) => Nanos::MAX,
            (None, None) => Nanos::from_secs(10),
        };
        let arrivals = match (args.rate, args.bursts) {
            (Some(rate), _) => Arrivals::Rate(rate),
            (None, Some(bursts)) if args.burst_wait => {
                Arrivals::Bursts(bursts, BurstStart::WhenIdle)
            }
            (None, Some(bursts)) => Arrivals::Bursts(bursts, BurstStart::OnTime),
            (None, None) => Arrivals::Closed,
        };
        let streams = match args.streams {
            true => {
                Some(Streams::new(&args.priority, args.depth as usize).map_err(LoadError::Usage)?)
            }
            false => None,
        };
        Ok(Plan {
            mix: Mix {
                read_percent: args.read_percent,
                zero_percent: args.write_zeroes_percent,
                sizes: args.block_size.map(|b| b.0 as u32),
                priorities: args.priority.clone(),
                order: if args.sequential { Order::Sequential } else { Order::Random },
                flush_every: args.flush_every,
                fua_percent: args.fua_percent,
            },
            arrivals,
            seconds,
            ios: args.ios.unwrap_or(u64::MAX),
            max_len,
            verify_block,
            reach: if args.allow_remote { Reach::Anywhere } else { Reach::ThisMachine },
            style: if args.structured_replies {
                ReplyStyle::Structured
            } else {
                ReplyStyle::Simple
            },
            seed: args.seed.unwrap_or_else(crate::run::unrepeatable),
            streams,
        })
    }

    pub(crate) fn data(&self) -> DataUse {
        if self.verify_block.is_some() { DataUse::Checked } else { DataUse::Ignored }
    }

    /// The part of a disk of `size` bytes that is loaded.
    pub(crate) fn span(&self, args: &LoadArgs, size: u64) -> Result<Span, String> {
        match args.offset_range {
            None => Ok(Span { first: 0, end: size }),
            Some(range) if range.end <= size => Ok(Span { first: range.first, end: range.end }),
            Some(range) => {
                Err(format!("--offset-range ends at byte {}, the disk at {size}", range.end))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|e| e.to_string())?;
        Plan::new(&cli.load).map_err(|e| e.to_string())
    }

    #[test]
    fn what_cannot_be_done_is_refused_before_anything_is_touched() {
        for (line, hint) in [
            ("", "required"),
            ("http://x", "vhost-user-blk"),
            ("a --depth 0", "1..=1024"),
            ("a --block-size 100", "multiple of 512"),
            ("a --block-size 64M", "up to 32M"),
            ("a --block-size 4k:0", "weight 0"),
            ("a --block-size 3k,4k --verify", "multiple of the smallest"),
            ("a a", "named twice"),
            ("nbd://127.0.0.1/x --priority rt/0", "NBD has no priorities"),
            ("nbd://192.0.2.1/x", "--allow-remote"),
            ("a --rate 10 --bursts 1/1", "cannot be used with"),
            ("a --burst-wait", "--bursts"),
            ("a --journal f", "--verify"),
            ("a b --verify --journal f", "one disk"),
            ("a --random --sequential", "cannot be used with"),
            ("a --streams --depth 1 --priority rt/0,be/0", "leaves one"),
            ("a --seconds x", "such as 10 or 0.5"),
            ("a --offset-range 1G-0", "0-1G"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(hint), "'{line}': {error}");
        }
    }

    #[test]
    fn times_keep_their_fractions() {
        assert_eq!("0.5".parse(), Ok(Seconds(Nanos::from_millis(500))));
        assert_eq!("10".parse(), Ok(Seconds(Nanos::from_secs(10))));
        assert_eq!("1.000000001".parse(), Ok(Seconds(Nanos(1_000_000_001))));
        for text in ["", ".5", "1.", "-1", "1e3", "1000001", "1.0000000001"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_load_ends_by_time_or_by_number() {
        assert_eq!(plan("a").unwrap().seconds, Nanos::from_secs(10));
        let by_number = plan("a --ios 5").unwrap();
        assert_eq!((by_number.seconds, by_number.ios), (Nanos::MAX, 5));
        assert_eq!(plan("a --block-size 512 --verify").unwrap().verify_block, Some(512));
        assert_eq!(plan("a --block-size 64k,4k --verify").unwrap().verify_block, Some(4096));
    }
}
