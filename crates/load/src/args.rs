//! The command line, and what it means.

use crate::link::DataUse;
use crate::nbd::ReplyStyle;
use crate::pace::{Arrivals, BurstStart, Bursts};
use crate::run::LoadError;
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

/// Loads disks of NBD servers and vhost-user-blk devices, from the host's side.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// The disks: nbd+unix:///NAME?socket=PATH, nbd://HOST[:PORT]/NAME, or the path of a vhost-user-blk socket
    #[arg(required = true, value_name = "URI|SOCKET")]
    pub targets: Vec<Target>,

    /// Requests outstanding at once, per connection (NBD) or queue (vhost-user-blk)
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_DEPTH))]
    pub depth: u64,

    /// Connections to each NBD target
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub connections: u64,

    /// Queues of each vhost-user-blk target
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub queues: u64,

    /// Reads among the requests; the rest are writes, which OVERWRITE the disk
    #[arg(long, default_value_t = 100, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub read_percent: u64,

    /// Write-zeroes among the requests that are not reads
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub write_zeroes_percent: u64,

    /// Bytes of a request, or sizes with weights: 4k:70,64k:30
    #[arg(long, default_value = "4k", value_name = "SIZES")]
    pub block_size: Weighted<Bytes>,

    /// How long to load; 10 unless --ios is given
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<Seconds>,

    /// How many requests to each target
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ios: Option<u64>,

    /// Load for so long before counting
    #[arg(long, default_value = "0", value_name = "SECONDS")]
    pub warmup: Seconds,

    /// Visit places at random (the default)
    #[arg(long, conflicts_with = "sequential")]
    pub random: bool,

    /// Visit places one after the other
    #[arg(long)]
    pub sequential: bool,

    /// Touch only these bytes of the disk: 0-1G
    #[arg(long, value_name = "FROM-TO")]
    pub offset_range: Option<ByteRange>,

    /// Open loop: start so many requests per second, whatever is outstanding
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,

    /// Open loop: start N requests at once, every so many milliseconds
    #[arg(long, value_name = "N/MS", conflicts_with = "rate")]
    pub bursts: Option<Bursts>,

    /// A burst waits until the one before is answered
    #[arg(long, requires = "bursts")]
    pub burst_wait: bool,

    /// IO priority of the requests (vhost-user-blk only), or several with weights: rt/0:20,be/4:80. fine/1 to fine/254 are
    /// Headgate's own; 'each' writes every value that a guest can, in a mixed order
    #[arg(long, default_value = "none", value_name = "PRIORITIES")]
    pub priority: Weighted<Given>,

    /// Keep requests of different --priority apart: each has its part of --depth, by weight, and is reported by itself
    #[arg(long, conflicts_with_all = ["rate", "bursts", "hostile"])]
    pub streams: bool,

    /// A flush after so many writes
    #[arg(long, default_value_t = 0, value_name = "WRITES")]
    pub flush_every: u64,

    /// Writes with FUA
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub fua_percent: u64,

    /// Write a pattern and check what is read, everything in the end
    #[arg(long)]
    pub verify: bool,

    /// Keep what was written and flushed in this file, and check what an earlier run left there first
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub journal: Option<PathBuf>,

    /// When a server dies, call again for so long; with --verify, check everything then
    #[arg(long, default_value = "0", value_name = "SECONDS")]
    pub reconnect: Seconds,

    /// A request unanswered for so long is an error; with --hostile, also a server that does not get on after an attack
    #[arg(long, default_value = "30", value_name = "SECONDS")]
    pub timeout: Seconds,

    /// Busy polling: one CPU per target
    #[arg(long)]
    pub spin: bool,

    /// Ask NBD servers for structured replies
    #[arg(long)]
    pub structured_replies: bool,

    /// Lay vhost-user-blk requests down without indirect descriptors
    #[arg(long)]
    pub direct_descriptors: bool,

    /// Repeat the same requests; a random seed otherwise
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Break the rules against the first target, whose data is OVERWRITTEN, while loading the others: all, or names of
    /// scenarios
    #[arg(long, value_name = "SCENARIO", value_delimiter = ',', conflicts_with_all = ["ios", "seconds"])]
    pub hostile: Vec<String>,

    /// Also report the CPU time of these processes: the servers
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub server_pid: Vec<u32>,

    /// Allow servers on other machines
    #[arg(long)]
    pub allow_remote: bool,

    /// Print the report as JSON, with a series per second
    #[arg(long)]
    pub json: bool,
}

/// Replays recorded requests on a disk, at the times at which they were recorded, from the host's side.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// The disk: nbd+unix:///NAME?socket=PATH, nbd://HOST[:PORT]/NAME, or the path of a vhost-user-blk socket. Recorded writes
    /// OVERWRITE it
    #[arg(value_name = "URI|SOCKET")]
    pub target: Target,

    /// Replay so many percent as fast as recorded
    #[arg(long, default_value_t = 100, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub speed: u64,

    /// Leave out all but reads
    #[arg(long)]
    pub reads_only: bool,

    /// End after so long
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<Seconds>,

    /// Requests outstanding at most, per connection (NBD) or queue (vhost-user-blk); what is due beyond starts late, and
    /// its latency counts from when it was due
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_DEPTH))]
    pub depth: u64,

    /// Connections to an NBD target
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub connections: u64,

    /// Queues of a vhost-user-blk target
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub queues: u64,

    /// A request unanswered for so long is an error
    #[arg(long, default_value = "30", value_name = "SECONDS")]
    pub timeout: Seconds,

    /// Allow servers on other machines
    #[arg(long)]
    pub allow_remote: bool,

    /// Print the report as JSON, with a series per second
    #[arg(long)]
    pub json: bool,
}

/// Longer recorded requests are sent in parts, as a kernel does.
const REPLAY_BLOCK: &str = "1M";

impl ReplayArgs {
    /// The load that uses the disk as the replay does; its defaults are those of the command line.
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

/// A time on the command line: `10`, `0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Nanos);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seconds, String> {
        let wrong = || format!("'{text}' is not a time in seconds such as 10 or 0.5, up to 1000000");
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

/// A part of a disk on the command line: `0-1G`.
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

/// The arguments, checked.
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
                return usage(format!("--block-size {}: a multiple of 512 up to 32M was expected", size.0));
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
        let seconds = match (args.seconds, args.ios) {
            (Some(seconds), _) => seconds.0,
            (None, Some(_)) => Nanos::MAX,
            (None, None) => Nanos::from_secs(10),
        };
        let arrivals = match (args.rate, args.bursts) {
            (Some(rate), _) => Arrivals::Rate(rate),
            (None, Some(bursts)) if args.burst_wait => Arrivals::Bursts(bursts, BurstStart::WhenIdle),
            (None, Some(bursts)) => Arrivals::Bursts(bursts, BurstStart::OnTime),
            (None, None) => Arrivals::Closed,
        };
        let streams = match args.streams {
            true => Some(Streams::new(&args.priority, args.depth as usize).map_err(LoadError::Usage)?),
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
            style: if args.structured_replies { ReplyStyle::Structured } else { ReplyStyle::Simple },
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
            Some(range) => Err(format!("--offset-range ends at byte {}, the disk at {size}", range.end)),
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
