//! Who divides the storage, and how it is told to.

use crate::question::{Question, Tenant};
use crate::stage::{PLACES, SHARED, tenant_disk};

/// A scheduler or controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Contender {
    /// No scheduler: requests take the places of the device's queue as they come.
    None,
    /// mq-deadline, with IO priorities.
    MqDeadline,
    /// BFQ, with io.bfq.weight.
    Bfq,
    /// The same without its raised weights for new and interactive processes.
    BfqPlain,
    /// blk-throttle: io.max.
    Throttle,
    /// io.cost, with io.weight.
    IoCost,
    /// Headgate: each tenant has a disk, and the guest no scheduler.
    Headgate,
    /// The same with a window of 8 requests instead of 32.
    HeadgateNarrow,
}

impl Contender {
    /// All of them, in the order of the table.
    pub const ALL: [Contender; 8] = [
        Contender::None,
        Contender::MqDeadline,
        Contender::Bfq,
        Contender::BfqPlain,
        Contender::Throttle,
        Contender::IoCost,
        Contender::Headgate,
        Contender::HeadgateNarrow,
    ];

    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Contender::None => "none",
            Contender::MqDeadline => "mq-deadline, IO priorities",
            Contender::Bfq => "BFQ, io.bfq.weight",
            Contender::BfqPlain => "BFQ, low_latency off",
            Contender::Throttle => "blk-throttle, io.max",
            Contender::IoCost => "io.cost, io.weight",
            Contender::Headgate => "Headgate",
            Contender::HeadgateNarrow => "Headgate, --queue-depth 8",
        }
    }

    /// The window in requests, where Headgate divides.
    pub fn window(self) -> Option<u32> {
        match self {
            Contender::Headgate => Some(PLACES),
            Contender::HeadgateNarrow => Some(8),
            _ => None,
        }
    }

    /// The disk of the guest that a tenant reads.
    pub fn disk(self, tenant: usize) -> String {
        match self.window() {
            Some(_) => tenant_disk(tenant),
            None => SHARED.to_owned(),
        }
    }

    /// fio's options that say how urgent a tenant is.
    pub fn priority(self, tenant: &Tenant) -> &'static str {
        match self {
            Contender::MqDeadline => match tenant.weight {
                // Real time, best effort, idle: the scheduler tells three classes apart.
                4.. => "prioclass=1",
                2..=3 => "prioclass=2",
                _ => "prioclass=3",
            },
            _ => "",
        }
    }

    /// The script that sets it up in the guest. Whatever was set before is off.
    pub fn script(self, question: Question, rate: u32) -> String {
        let tenants = question.tenants();
        let each = |line: &dyn Fn(&Tenant) -> String| -> String {
            tenants
                .iter()
                .enumerate()
                .map(|(number, tenant)| format!("{} >$cgroup/t{number}/$file\n", line(tenant)))
                .collect()
        };
        let own = match self {
            Contender::None | Contender::Headgate | Contender::HeadgateNarrow => String::new(),
            Contender::MqDeadline => "echo mq-deadline >$queue/scheduler\n".to_owned(),
            Contender::Bfq | Contender::BfqPlain => format!(
                "echo bfq >$queue/scheduler\necho {} >$queue/iosched/low_latency\n\
                 file=io.bfq.weight\n{}",
                u8::from(self == Contender::Bfq),
                each(&|tenant| format!("echo {}", tenant.weight * 100)),
            ),
            Contender::Throttle => {
                // What is reserved for others is kept free; the rest is divided.
                let reserved: u32 = tenants.iter().map(|tenant| tenant.reservation).sum();
                let others = || tenants.iter().filter(|tenant| tenant.reservation == 0);
                let weights: u32 = others().map(|tenant| tenant.weight).sum();
                let most = |tenant: &Tenant| match tenant.reservation {
                    0 => (rate.saturating_sub(reserved) * tenant.weight / weights).to_string(),
                    _ => "max".to_owned(),
                };
                format!(
                    "file=io.max\n{}",
                    each(&|tenant| format!("echo \"$device riops={}\"", most(tenant))),
                )
            }
            Contender::IoCost => format!(
                "{}\nfile=io.weight\n{}",
                io_cost(rate),
                each(&|tenant| format!("echo {}", tenant.weight * 100)),
            ),
        };
        format!("{RESET}\n{own}")
    }
}

/// The model is exact: a read costs one part in `rate` of a second whatever its place, and next to
/// nothing for its size. The rate follows the latency between a half and the whole of the model's:
/// a tenth of the requests may take longer than 25, of which the device has 32.
fn io_cost(rate: u32) -> String {
    let micros = 25_000_000 / u64::from(rate);
    format!(
        "echo \"$device ctrl=user model=linear rbps=100000000000 rseqiops={rate} \
         rrandiops={rate} wbps=100000000000 wseqiops={rate} wrandiops={rate}\" \
         >$cgroup/io.cost.model\n\
         echo \"$device enable=1 ctrl=user rpct=90 rlat={micros} wpct=90 wlat={micros} min=50 \
         max=100\" >$cgroup/io.cost.qos"
    )
}

/// The guest's script before each run: groups, and no controller.
const RESET: &str = "set -e
cgroup=/sys/fs/cgroup
queue=/sys/block/vda/queue
device=$(cat /sys/block/vda/dev)
if [ ! -e $cgroup/cgroup.procs ]; then
  mount -t cgroup2 none $cgroup
  echo +io >$cgroup/cgroup.subtree_control
  insmod $(find /kernel /lib -name bfq.ko | head -n 1)
fi
for disk in /sys/block/vd*; do echo none >$disk/queue/scheduler; done
echo \"$device enable=0\" >$cgroup/io.cost.qos
for group in t0 t1 t2 t3; do
  [ ! -d $cgroup/$group ] || rmdir $cgroup/$group
  mkdir $cgroup/$group
done";
