//! The simulator and the daemon agree: one scenario, run in virtual time and on an emulated
//! datastore under real clients.
//!
//! The scenario is `simulator.toml`, the mClock paper's Figure 6 (USENIX OSDI 2010). All that the
//! daemon is told comes out of the scenario as the simulator reads it: device, scheduler, cost
//! model, window, policies, clients, times. So what differs is what ought not to matter: threads,
//! sockets, the kernel, two frontends, the wall clock.

use anyhow::{Context, bail, ensure};
use headgate_devices::{DEFAULT_CAPACITY, ModelSpec};
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::load::{Client, DEPTH};
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::process::run;
use headgate_lab::{Lab, Server, wait_for, workspace};
use headgate_qos::Config;
use headgate_sim::{
    Datastore, Pattern, Scenario, Setup, Span, TimeDistribution, Variant, Vm, Workload,
    WorkloadKind,
};
use headgate_units::Nanos;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// How long the simulator may take for all variants.
const SIMULATING: Duration = Duration::from_secs(60);

/// By how much of the simulator's rate the daemon's may differ.
const RATE: f64 = 0.03;
const ARRAY: f64 = 0.03;

/// The part of the time for which the daemon may wait for a CPU at full pace, where an array is
/// driven: it does not make good what it was late, and is the less late the longer its requests
/// take. Waiting takes 4 to 6 % where nothing else runs. 9 % stolen by a hypervisor cost 1.5 % of
/// the rate, and 23 to 27 % cost 2 to 3 %.
const WAITING: f64 = 0.08;

/// A device that has one rate whatever it is asked.
#[test]
fn a_fixed_rate_is_divided_as_simulated() {
    agree(&["mclock", "sfq"], RATE);
}

/// An array whose rate comes out of the addresses, and of how many requests it is given at once.
#[test]
fn spindles_are_divided_as_simulated() {
    agree(&["array-mclock", "array-sfq"], ARRAY);
}

/// Limits that bind for the one VM and the other, alone and beside reservations.
#[test]
fn limits_bind_as_simulated() {
    agree(&["limits", "array-limits"], RATE);
}

/// Variant, window and VM.
type Key = (String, String, String);

/// Runs variants of the scenario in the simulator, and all at once on one daemon, each with a
/// datastore of its own.
fn agree(variants: &[&str], within: f64) {
    with_paced_lab(&["fio"], |lab, pace| {
        let text = std::fs::read_to_string(workspace().join("tests/measured/simulator.toml"))?;
        let text = at_pace(&text, pace)?;
        let file = lab.dir().join("simulator.toml");
        std::fs::write(&file, &text)?;
        let scenario = Scenario::parse("simulator.toml", &text)?;
        let simulated = simulate(&file, variants)?;
        let served = serve(lab, pace, &scenario, variants)?;
        ensure!(!served.is_empty(), "nothing was measured");
        let mut apart = Vec::new();
        for (key @ (variant, window, vm), served) in &served {
            let simulated =
                simulated.get(key).with_context(|| format!("{key:?} was not simulated"))?;
            let difference = served / simulated - 1.0;
            let line = format!(
                "{variant}, stage {window}, {vm}: simulated {simulated:.1}, served {served:.1}, {:+.2} %",
                difference * 100.0
            );
            eprintln!("  {line}");
            // No number at all differs, too.
            if difference.is_nan() || difference.abs() > within {
                apart.push(line);
            }
        }
        ensure!(apart.is_empty(), "more than {} % apart:\n{}", within * 100.0, apart.join("\n"));
        Ok(())
    });
}

/// The scenario on storage that is slower by this pace: rates and promises are divided by it, times
/// multiplied, and spindles move in slow motion. Its expectations are of full pace only.
fn at_pace(text: &str, pace: Pace) -> anyhow::Result<String> {
    if pace.factor() == 1 {
        return Ok(text.to_owned());
    }
    let (scenario, _expectations) = text.split_once("[[expect]]").context("no expectations")?;
    let rates = ["reservation = ", "limit\" = ", "rate="];
    let slower = rates.iter().try_fold(scenario.to_owned(), |text, key| {
        scaled(&text, key, |rate| pace.rate(rate).max(1))
    })?;
    let slower = slower.replace("array=10", &format!("array=10,slowdown={}", pace.factor()));
    // A window is `one = "3s..13s"`.
    let windows = ["one = \"", "two = \"", "three = \"", "four = \"", "five = \"", "s.."];
    let times = ["duration = \"", "start = \"", "latency="];
    times
        .iter()
        .chain(&windows)
        .try_fold(slower, |text, key| scaled(&text, key, |time| time * pace.factor()))
}

#[test]
fn a_slower_scenario_has_the_same_requests_in_more_time() {
    let text = std::fs::read_to_string(workspace().join("tests/measured/simulator.toml")).unwrap();
    let read = |text: &str| Scenario::parse("simulator.toml", text).unwrap();
    let (full, half) = (read(&text), read(&at_pace(&text, Pace::HALF).unwrap()));
    let promised = |vm: &Vm| vm.disks[0].policy.reservation().map_or(0, |iops| iops.get());
    for (name, rate) in [("limits", "rate=660,latency=10ms,depth=32"), ("array-sfq", "slowdown=2")]
    {
        let (full, half) = (full.variant(name).unwrap(), half.variant(name).unwrap());
        let device = half.setup.datastores[0].nodes[0].device.to_string();
        assert!(device.contains(rate), "{device}");
        assert_eq!(half.setup.duration.0, 2 * full.setup.duration.0);
        for (full, half) in full.setup.vms.iter().zip(&half.setup.vms) {
            assert_eq!(half.start.map(|start| start.0), full.start.map(|start| 2 * start.0));
            assert_eq!(promised(half), promised(full) / 2);
            assert_eq!(half.disks[0].size, full.disks[0].size);
            check_workload(half).unwrap();
        }
    }
    for (full, half) in full.spans.iter().zip(&half.spans) {
        assert_eq!((half.from.0, half.to.0), (2 * full.from.0, 2 * full.to.0));
    }
}

/// The text with the numbers that follow a key changed.
fn scaled(text: &str, key: &str, change: impl Fn(u32) -> u32) -> anyhow::Result<String> {
    let mut parts = text.split(key);
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        changed.push_str(key);
        if digits > 0 {
            changed.push_str(&change(part[..digits].parse()?).to_string());
        }
        changed.push_str(&part[digits..]);
    }
    Ok(changed)
}

/// What the program's simulator says, the mean over the seeds, in completions per second. Fails
/// where the scenario's own expectations do.
fn simulate(file: &Path, variants: &[&str]) -> anyhow::Result<BTreeMap<Key, f64>> {
    let mut command = Command::new(binary()?);
    command.args(["sim", "run", "--json"]).arg(file);
    command.args(variants.iter().flat_map(|variant| ["--variant", variant]));
    let said: Value = serde_json::from_str(&run(command, SIMULATING)?)?;
    let list = |value: &Value, what: &str| {
        value.as_array().cloned().with_context(|| format!("no {what} in the simulator's answer"))
    };
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a name is no text");
    let number = |value: &Value| value.as_f64().context("not a number in the simulator's answer");
    let seeds = list(&said["seeds"], "seeds")?.len() as f64;
    let mut rates = BTreeMap::new();
    for outcome in list(&said["outcomes"], "outcomes")? {
        for subject in list(&outcome["subjects"], "subjects")? {
            for window in list(&subject["windows"], "windows")? {
                let seconds = (number(&window["to"])? - number(&window["from"])?) / 1e9;
                let key =
                    (text(&outcome["variant"])?, text(&window["name"])?, text(&subject["name"])?);
                *rates.entry(key).or_default() +=
                    number(&window["counters"]["completed"])? / seconds / seeds;
            }
        }
    }
    Ok(rates)
}

/// A variant on the daemon.
struct Rig<'a> {
    variant: &'a Variant,
    /// In the order of the VMs.
    clients: Vec<Client>,
}

impl Rig<'_> {
    fn disk(&self, vm: &Vm) -> String {
        disk_name(self.variant, vm)
    }
}

fn disk_name(variant: &Variant, vm: &Vm) -> String {
    format!("{}-{}", variant.name, vm.name)
}

/// Lets the daemon serve the variants side by side, and real clients arrive as the scenario's VMs
/// do. Returns completions per second, stage by stage.
fn serve(
    lab: &Lab,
    pace: Pace,
    scenario: &Scenario,
    variants: &[&str],
) -> anyhow::Result<Vec<(Key, f64)>> {
    let mut daemon = Headgate::start(lab)?;
    let mut rigs = Vec::new();
    for name in variants {
        let variant = scenario.variant(name).with_context(|| format!("no variant {name}"))?;
        rigs.push(build(lab, &daemon, variant)?);
    }
    let setup = &rigs.first().context("no variants")?.variant.setup;
    let mut stages = Vec::new();
    for (index, vm) in setup.vms.iter().enumerate() {
        let from = vm.start.context("a VM that never starts")?;
        let until = setup.vms.get(index + 1).and_then(|next| next.start).unwrap_or(setup.duration);
        let mut inside = scenario.spans.iter().filter(|w| from <= w.from && w.to <= until);
        let window =
            inside.next().with_context(|| format!("no window after the start of {}", vm.name))?;
        stages.push((index, Duration::from_nanos((window.from - from).0), window));
    }
    ensure!(stages.len() == scenario.spans.len(), "windows that are no stages");
    let mut rates = Vec::new();
    for (index, settle, window) in stages {
        for rig in &mut rigs {
            let disk = rig.disk(&rig.variant.setup.vms[index]);
            rig.clients[index].start()?;
            wait_for("the newcomer should be served", Duration::from_secs(30), || {
                Ok((daemon.metrics()?.ops(&disk)? > 32.0).then_some(()))
            })?;
        }
        sleep(settle);
        rates.extend(measure(&daemon, pace, &rigs, index, window)?);
    }
    for Rig { variant, clients } in rigs {
        for (client, vm) in clients.into_iter().zip(&variant.setup.vms) {
            let said = client.stop()? as f64;
            let counted = daemon.metrics()?.ops(&disk_name(variant, vm))?;
            // What is under way when a client stops it need not count.
            let agree = (counted - said).abs() <= 64.0 + said / 100.0;
            ensure!(
                agree,
                "{} {}: the client counts {said} reads, the daemon {counted}",
                variant.name,
                vm.name
            );
        }
    }
    daemon.stop()?;
    Ok(rates)
}

/// The rates of all disks over a stage, in which the VMs up to `last` run.
fn measure(
    daemon: &Headgate,
    pace: Pace,
    rigs: &[Rig],
    last: usize,
    window: &Span,
) -> anyhow::Result<Vec<(Key, f64)>> {
    let device = |rig: &Rig| rig.variant.setup.datastores[0].nodes[0].device.clone();
    let premises = match rigs.iter().all(|rig| matches!(device(rig), ModelSpec::Rate(_))) {
        true => Premises::new(),
        false => Premises::new().prompt(WAITING * f64::from(pace.factor())),
    };
    let premises = rigs.iter().fold(premises, |premises, rig| {
        let active = &rig.variant.setup.vms[..=last];
        let premises = active.iter().fold(premises, |p, vm| p.backlog(&rig.disk(vm), DEPTH));
        match device(rig) {
            // Without a limit a disk takes all that there is.
            ModelSpec::Rate(spec) if active.iter().any(|vm| !is_limited(vm)) => {
                premises.busy(&rig.variant.name, spec.rate.get() as f64)
            }
            _ => premises,
        }
    });
    let length = Duration::from_nanos((window.to - window.from).0);
    let interval = premises.watch(daemon, length)?;
    let mut rates = Vec::new();
    for rig in rigs {
        for vm in &rig.variant.setup.vms[..=last] {
            let disk = rig.disk(vm);
            let key = (rig.variant.name.clone(), window.name.clone(), vm.name.clone());
            eprintln!("    {disk}: {:.2} outstanding", interval.outstanding(&disk)?);
            rates.push((key, interval.iops(&disk)?));
        }
    }
    Ok(rates)
}

fn is_limited(vm: &Vm) -> bool {
    vm.disks.iter().any(|disk| disk.policy.limit().is_some())
}

/// Makes the daemon's datastore and disks what the simulator's are, and clients for them, by turns
/// on one frontend and the other.
fn build<'a>(lab: &Lab, daemon: &Headgate, variant: &'a Variant) -> anyhow::Result<Rig<'a>> {
    let Setup { datastores, vms, timeline, .. } = &variant.setup;
    let [store] = &datastores[..] else { bail!("one datastore, not {}", datastores.len()) };
    ensure!(timeline.is_empty(), "nothing but arrivals happens here");
    let name = &variant.name;
    let arguments = datastore_arguments(store)?;
    let arguments = arguments.iter().map(String::as_str);
    daemon.command(&["datastore", "add", name].into_iter().chain(arguments).collect::<Vec<_>>())?;
    let mut clients = Vec::new();
    for (index, vm) in vms.iter().enumerate() {
        let disk = disk_name(variant, vm);
        let arguments = disk_arguments(vm)?;
        let arguments = arguments.iter().map(String::as_str);
        let head = ["disk", "create", &disk, "--datastore", name];
        daemon.command(&head.into_iter().chain(arguments).collect::<Vec<_>>())?;
        check_workload(vm)?;
        clients.push(match index % 2 {
            0 => Client::vhost(lab, daemon, &disk)?,
            _ => Client::nbd(lab, daemon, &disk)?,
        });
    }
    Ok(Rig { variant, clients })
}

fn datastore_arguments(store: &Datastore) -> anyhow::Result<Vec<String>> {
    let [node] = &store.nodes[..] else { bail!("{} nodes instead of one", store.nodes.len()) };
    ensure!(
        node.front.is_none() && store.rate_by_vms.is_empty() && store.noise.is_none(),
        "{}: an emulated device has one rate and nobody before it",
        store.name
    );
    ensure!(store.network == Nanos::ZERO, "{}: the daemon has its device at hand", store.name);
    let cost_model = store.config.cost_model;
    ensure!(
        store.capacity == DEFAULT_CAPACITY,
        "{}: the daemon's devices are of one capacity",
        store.name
    );
    ensure!(
        store.config == Config::for_hosts(cost_model),
        "{}: the daemon can be told the cost model only",
        store.name
    );
    Ok(vec![
        format!("--emulated={}", node.device),
        format!("--scheduler={}", store.scheduler),
        format!("--queue-depth={}", store.queue_depth),
        format!("--cost-model={cost_model}"),
    ])
}

fn disk_arguments(vm: &Vm) -> anyhow::Result<Vec<String>> {
    let [disk] = &vm.disks[..] else { bail!("{} has {} disks", vm.name, vm.disks.len()) };
    let policy = &disk.policy;
    let mut arguments = vec![
        // A reservation that the scheduler does not keep is what is compared.
        "--force".to_owned(),
        format!("--size={}", disk.size.0),
        format!("--shares={}", policy.shares().get()),
        format!("--burst={}", policy.burst().get()),
    ];
    arguments.extend(policy.reservation().map(|iops| format!("--reservation={iops}")));
    arguments.extend(policy.limit().map(|iops| format!("--limit={iops}")));
    ensure!(policy.limit_bandwidth().is_none(), "{}: a limit of bandwidth", vm.name);
    Ok(arguments)
}

/// The lab's clients do one thing: is it what the VM does?
fn check_workload(vm: &Vm) -> anyhow::Result<()> {
    use headgate_lab::load::READ;
    let [Workload { kind, pattern, .. }] = &vm.workloads[..] else {
        bail!("{}: one workload", vm.name)
    };
    ensure!(
        *kind == WorkloadKind::Closed { outstanding: DEPTH, think: TimeDistribution::ZERO },
        "{}: {kind:?} is not what clients do",
        vm.name
    );
    let Pattern { read, random, sizes, extent, .. } = pattern;
    let sizes: Vec<u64> = sizes.iter().map(|(size, _)| size.0).collect();
    ensure!(
        (*read, *random) == (100, 100) && sizes == [READ] && *extent == (0, vm.disks[0].size.0),
        "{}: {pattern:?} is not what clients ask for",
        vm.name
    );
    Ok(())
}
