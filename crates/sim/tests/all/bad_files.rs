//! What is said of scenario files that are none.

use headgate_sim::Scenario;

/// A good file, line by line.
const GOOD: [&str; 16] = [
    "name = 'good'",
    "title = 'A good file'",
    "duration = '60s'",
    "seeds = [1, 2]",
    "windows = { steady = '10s..60s' }",
    "[[datastore]]",
    "name = 'lun'",
    "device = 'rate=1000,latency=1ms'",
    "[[vm]]",
    "name = 'VM1'",
    "disk = [{ shares = 1000 }]",
    "workload = [{ kind = 'closed', outstanding = 32 }]",
    "[[expect]]",
    "of = 'VM1'",
    "measure = 'iops'",
    "at-least = 900",
];

/// What is said with line `line` (from 1) replaced.
fn said(line: usize, replacement: &str) -> String {
    let mut lines = GOOD.map(str::to_owned);
    lines[line - 1] = replacement.to_owned();
    match Scenario::parse("f.toml", &lines.join("\n")) {
        Ok(_) => "nothing".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_good_file_is_good() {
    assert_eq!(said(1, GOOD[0]), "nothing");
}

#[test]
fn every_kind_of_mistake_is_named_with_its_place() {
    let cases = [
        // Hosts' windows.
        (
            8,
            "device = 'rate=1000'\nissue-window = { law = 'printed' }",
            "9:24: there is no choice 'printed' here; there is 'product', 'slots', 'published', 'fixed'",
        ),
        (
            8,
            "device = 'rate=1000'\nissue-window = { threshold = '5us' }",
            "9:30: the latency threshold must be 10 us to 10 s, not 5.00 us; write such a value",
        ),
        (
            8,
            "device = 'rate=1000'\nissue-window = { step = '101%' }",
            "9:25: a part of a whole is 100% at most; write such a percentage",
        ),
        (
            8,
            "device = 'rate=1000'\nissue-window = { excess = '51%' }",
            "9:27: the gain of a window must be an excess of 1 to 50 per cent, not 510000 millionths; write such a value",
        ),
        (
            8,
            "device = 'rate=1000'\nissue-window = { min = 9, max = 8.5 }",
            "9:24: a window's bounds must be 0.01 <= min <= max <= 65536, not 9.00 and 8.50; write such a value",
        ),
        (
            8,
            "device = 'rate=1000'\nissue-window = { min = 0 }",
            "9:24: 0 is not a window; write 0.01 to 65536 requests",
        ),
        (
            8,
            "device = 'rate=1000'\nissue-window = { law = 'published', shares-per-slot = 0 }",
            "9:55: 0 is not a number of shares for a slot; write a whole number from 1 to 4294967295",
        ),
        (
            15,
            "measure = 'issue-window'",
            "14:6: there is no host with VMs at a datastore that has an issue-window 'VM1'; there is nothing",
        ),
        (
            16,
            "settles-within = '0%'\nat-most = '20s'",
            "16:18: how near is above 0% and 100% at most; write such a percentage",
        ),
        (
            16,
            "settles-within = '5%'\nevery = '1s'\nat-most = '20s'",
            "16:18: 'settles-within' works for sums and means only, without 'per' and 'every'; remove it",
        ),
        // Not TOML, or not these keys.
        (
            2,
            "title = 'A good file",
            "2:21: this is not TOML: invalid literal string, expected '''; see https://toml.io for how it is written",
        ),
        (
            2,
            "title = 'a'\ntitle = 'b'",
            "3:1: this key was written before in the same table; keep one of the two",
        ),
        (
            2,
            "titel = 'A good file'",
            "2:1: there is no key 'titel' here; did you mean 'title'? There is 'name', 'title', 'about', 'source', 'duration', 'interval', 'seeds', 'full-seeds', 'traces', 'histograms', 'windows', 'datastore', 'host', 'vm', 'type', 'pool', 'tide', 'sweep', 'event', 'variant', 'expect', 'sensitivity'",
        ),
        (2, "", "1:1: the key 'title' is missing here; add it"),
        (
            3,
            "duration = 60",
            "3:12: this is the integer '60'; write a time with a unit (ns, us, ms, s, m, h, d), such as '250ms' or '1.5s'",
        ),
        (4, "seeds = [1, -2]", "4:13: this is the integer '-2'; write a whole number, 0 or more"),
        // Values.
        (
            3,
            "duration = '60'",
            "3:12: '60' is not a time with a unit (ns, us, ms, s, m, h, d), such as '250ms' or '1.5s'; write such a time",
        ),
        (3, "duration = '0s'", "3:12: the duration cannot be zero; write a time above it"),
        (
            5,
            "windows = { steady = '60s..10s' }",
            "5:22: the stretch '60s..10s' has no length; write the earlier time first",
        ),
        (
            5,
            "windows = { steady = '10s..70s' }",
            "5:22: the window 'steady' ends after the run, which lasts 60.00 s; end it earlier",
        ),
        (
            8,
            "device = 'rate=1000,latency=1'",
            "8:10: latency='1' does not fit the device model; latency is a time from 0s to 100s with a unit, such as 5ms or 250us",
        ),
        (
            8,
            "device = 'raid=5'",
            "8:10: 'raid=5' is not a device model; write rate=IOPS[,latency=TIME][,depth=N][,service=constant|exponential|pareto][,seed=N][,stragglers=N:TIME][,stall=TIME/PERIOD], array=SPINDLES[,raid=0|5][,disk=fc15k|sata7k][,unit=SIZE][,cache=SIZE][,power=battery|volatile][,readahead=SIZE][,elevator=N][,ageing=TIME|passes][,slowdown=N][,seed=N], ssd[=SIZE][,op=PERCENT][,isolation=none|static|dynamic][,aged=yes|full|no] and more, or null",
        ),
        (
            8,
            "device = 'rate=1000'\nqueue-depth = 0",
            "9:15: 0 is not a queue depth; write a whole number from 1 to 65536",
        ),
        (
            8,
            "device = 'rate=1000'\ncost-model = 'affine'",
            "9:14: 'affine' is not a cost model; write unit (every request is one IO), affine=SIZE (1 + size/SIZE, the paper's, with 300K), chunks=SIZE (size/SIZE, one at least), or learned or learned=SIZE (what the device does, beginning with affine=SIZE), SIZE being 512 or more",
        ),
        (
            8,
            "device = 'rate=1000'\nlead = 1",
            "9:8: the lead must be 2 to 1024 IOs, not 1; write such a value",
        ),
        (
            8,
            "device = 'null'\nnoise = { within = '5%', every = '1s' }",
            "9:9: noise needs devices 'rate=...', and 'null' is not one; change the one or the other",
        ),
        (
            8,
            "scheduler = 'mclok'",
            "8:13: there is no choice 'mclok' here; did you mean 'mclock'? There is 'mclock', 'sfq', 'fifo'",
        ),
        (
            10,
            "name = 'my vm'",
            "10:8: 'my vm' cannot be the name of a VM; write 1 to 64 letters, digits, - and _",
        ),
        (10, "name = 'lun'", "10:8: the name 'lun' is used twice; give each its own"),
        (
            11,
            "disk = [{ shares = 0 }]",
            "11:20: 0 is not a number of shares; write a whole number from 1 to 1000000",
        ),
        (
            11,
            "disk = [{ reservation = 500, limit = 400 }]",
            "11:25: a reservation of 500 IOPS is above the limit of 400 IOPS: lower the one or raise the other",
        ),
        (
            11,
            "disk = [{ reservation = 500, limit-read = 400, limit-write = 99 }]",
            "11:25: a reservation of 500 IOPS is above the limits of 400 IOPS for reads and 99 IOPS for writes together: lower the one or raise the others",
        ),
        (
            11,
            "disk = [{ limit-bandwidth = '50X' }]",
            "11:29: '50X' is not a bandwidth; write bytes per second such as '50M' or '1.5G', or 'none'",
        ),
        (
            11,
            "disk = [{ limit = 50, limit-mode = 'hard' }]",
            "11:36: there is no choice 'hard' here; there is 'strict', 'soft'",
        ),
        (
            11,
            "disk = [{ limit = 50, limit-peak = 50 }]",
            "11:36: a peak of 50 IOPS must be above the limit of 50 IOPS, and at most 500 times it",
        ),
        (
            11,
            "disk = [{ limit = 50, limit-peak = 60, limit-peak-time = 0 }]",
            "11:58: a peak lasts for 1 to 3600 seconds, not 0; write a number in that range",
        ),
        (
            11,
            "disk = [{ latency-target = 'p99=5ms' }]",
            "11:28: a latency target of p99=5ms needs a reservation: without one, how long a request waits is up to other disks",
        ),
        (
            11,
            "disk = [{ reservation = 5, latency-target = '5ms' }]",
            "11:45: '5ms' is no latency target; write pN=TIME, such as p99=5ms: N per cent of the requests are to take no longer; or 'none'",
        ),
        (
            11,
            "disk = [{ burst = 300 }]",
            "11:19: a burst credit must be 0 to 256 IOs, not 300; write a number in that range",
        ),
        (
            11,
            "disk = [{ datastore = 'luna' }]",
            "11:23: there is no datastore 'luna'; did you mean 'lun'? There is 'lun'",
        ),
        (
            11,
            "disk = [{ elevator-depth = 8 }]",
            "11:28: 'elevator-depth' means nothing without 'elevator'; add elevator = 'noop'",
        ),
        (
            11,
            "disk = [{ elevator = 'noop', elevator-depth = 0 }]",
            "11:47: 0 is not a queue depth behind an IO scheduler; write a whole number from 1 to 1024",
        ),
        (11, "disk = []", "10:8: the VM has no disk; add disk = [{}] or a [[vm.disk]]"),
        (
            12,
            "workload = [{ kind = 'clsoed' }]",
            "12:22: there is no choice 'clsoed' here; did you mean 'closed'? There is 'closed', 'burst', 'open', 'on-off', 'oltp', 'replay'",
        ),
        (12, "workload = [{ kind = 'open' }]", "12:22: kind = 'open' needs 'rate'; add rate = 500"),
        (
            12,
            "workload = [{ kind = 'closed', rate = 5 }]",
            "12:39: 'rate' means nothing for kind = 'closed', only for 'open'; remove it or change 'kind'",
        ),
        (
            12,
            "workload = [{ kind = 'closed', size = '100M' }]",
            "12:39: a request is 512 bytes to 64 MiB, not 100 MiB; write such a size",
        ),
        (
            12,
            "workload = [{ kind = 'closed', read = '110%' }]",
            "12:39: 110% does not fit here; write a whole percentage from 0% to 100%",
        ),
        (
            12,
            "workload = [{ kind = 'closed', extent = '20G' }]",
            "12:41: the part of the disk from 0 B on of 20 GiB does not lie in its 10 GiB or is too small for a request; make it fit",
        ),
        (
            12,
            "workload = [{ kind = 'closed' }]\n[[event]]\nat = '70s'\ndo = 'stop'\nvm = 'VM1'",
            "14:6: this happens after the end, which is at 60.00 s; set it earlier",
        ),
        (
            12,
            "workload = [{ kind = 'closed' }]\n[[event]]\nat = '7s'\ndo = 'stop'\nvm = 'VM2'",
            "16:6: there is no vm 'VM2'; did you mean 'VM1'? There is 'VM1'",
        ),
        (
            12,
            "workload = [{ kind = 'closed' }]\n[[event]]\nat = '7s'\ndo = 'stop'\nrate = 7",
            "16:8: 'rate' means nothing for do = 'stop', only for 'rate'; remove it or change 'do'",
        ),
        (
            8,
            "device = 'null'",
            "12:22: this work never lets time pass on a device 'null'; add think time, a network or another device",
        ),
        // Keys that depend on other keys.
        (
            8,
            "device = 'rate=1000'\nbatch-span = '1M'",
            "9:14: 'batch-span' means nothing without 'batch'; add batch = 8",
        ),
        (
            11,
            "disk = [{ pinned = true }]",
            "11:20: 'pinned' means nothing without a pool; remove it, or add a [pool]",
        ),
        (
            11,
            "disk = [{ weights = [1] }]",
            "11:21: 'weights' means nothing for route = 'uniform', only for 'weighted'; remove it or change 'route'",
        ),
        (14, "of = 'VM1'\neach = ['VM1']", "15:8: 'of' and 'each' exclude each other; keep one"),
        (
            16,
            "at-least = 900\nwithin = '5%'",
            "17:10: 'within' means nothing without 'equals' or 'water-fill'; add equals or water-fill",
        ),
        // Variants.
        (
            12,
            "workload = [{ kind = 'closed' }]\n[[variant]]\nname = 'a'\nset = { 'datastore.lum.scheduler' = 'sfq' }",
            "15:9: 'datastore.lum.scheduler' leads nowhere: there is no 'lum'; did you mean 'lun'? There is 'lun'",
        ),
        (
            12,
            "workload = [{ kind = 'closed' }]\n[[variant]]\nname = 'a'\n[[variant]]\nname = 'b'\nset = { 'datastore.lun.schedular' = 'sfq' }",
            "17:9: there is no key 'schedular' here; did you mean 'scheduler'? There is 'name', 'device', 'capacity', 'scheduler', 'queue-depth', 'issue-window', 'cost-model', 'batch', 'batch-span', 'floor', 'debt-bound', 'debt-horizon', 'lead', 'anticipation', 'limit-slack', 'plug', 'narrow-window', 'network', 'coordination', 'stripe', 'rate-by-vms', 'noise', 'class', 'spindles', 'node' (in variant 'b')",
        ),
        (
            12,
            "workload = [{ kind = 'closed' }]\n[[variant]]\nname = 'a'\neach = [1, 2]",
            "14:8: the variants of 'a' would all have the same name; write {} where the value goes",
        ),
        (
            12,
            "workload = [{ kind = 'closed' }]\n[[variant]]\nname = 'a'\n[[variant]]\nname = 'a'",
            "16:8: there are two variants 'a'; give each a name of its own",
        ),
        // Expectations.
        (
            14,
            "of = 'VM2'",
            "14:6: there is no VM, disk, workload, datastore, node or host 'VM2'; did you mean 'VM1'? There is 'VM1', 'lun'",
        ),
        (
            14,
            "of = 'VM1'\nwindow = 'stedy'",
            "15:10: there is no window 'stedy'; did you mean 'steady'? There is 'steady'",
        ),
        (14, "", "13:1: it is not said of what; add of = 'VM1'"),
        (
            15,
            "measure = 'latency'",
            "16:12: this does not fit what is measured; write a time with a unit, such as '30ms'",
        ),
        (
            16,
            "equals = 900",
            "13:1: no measure is ever exactly equal; add within = '5%' or slack = 10",
        ),
        (16, "", "13:1: nothing is expected here; add equals, water-fill, at-least or at-most"),
        (
            16,
            "at-least = 900\nevery = '1500ms'",
            "17:9: 1.50 s is not a multiple of the recorded interval, 1.00 s; change one of them",
        ),
        (
            16,
            "at-least = 900\nat-most = 800",
            "17:11: at-most is below at-least, so nothing can hold; raise the one or lower the other",
        ),
    ];
    for (line, replacement, expected) in cases {
        let got = said(line, replacement);
        assert_eq!(got, format!("f.toml:{expected}"), "line {line}: {replacement}");
    }
}
