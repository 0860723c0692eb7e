//! The simulator and the daemon agree: one scenario, run in virtual time and on an emulated datastore under real clients.
//!
//! The scenario is `simulator.toml`, the mClock paper's Figure 6 (USENIX OSDI 2010). All that the daemon is told comes out
//! of the scenario as the simulator reads it: device, scheduler, cost model, window, policies, clients, times. So what
//! differs is what ought not to matter: threads, sockets, the kernel, two frontends, the wall clock.

use anyhow::{Context, bail, ensure};
use headgate_devices::DEFAULT_CAPACITY;
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::load::Client;
use headgate_lab::process::run;
use headgate_lab::{Lab, Server, wait_for, with_lab, workspace};
use headgate_qos::Config;
use headgate_sim::{Datastore, Pattern, Scenario, Setup, Span, Variant, Vm, Window, Workload, WorkloadKind};
use headgate_units::Nanos;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// How long the simulator may take for all variants.
const SIMULATING: Duration = Duration::from_secs(60);

/// By how much of the simulator's rate the daemon's may differ.
const RATE: f64 = 0.03;
const ARRAY: f64 = 0.03;

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

/// Runs variants of the scenario in the simulator, and all at once on one daemon, each with a datastore of its own.
fn agree(variants: &[&str], within: f64) {
    with_lab(&["fio"], |lab| {
        let text = std::fs::read_to_string(scenario_file())?;
        let scenario = Scenario::parse("simulator.toml", &text)?;
        let simulated = simulate(variants)?;
        let served = serve(lab, &scenario, variants)?;
        ensure!(!served.is_empty(), "nothing was measured");
        let mut apart = Vec::new();
        for (key @ (variant, window, vm), served) in &served {
            let simulated = simulated.get(key).with_context(|| format!("{key:?} was not simulated"))?;
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

fn scenario_file() -> PathBuf {
    workspace().join("tests/simulator.toml")
}

/// What the program's simulator says, the mean over the seeds, in completions per second. Fails where the scenario's own
/// expectations do.
fn simulate(variants: &[&str]) -> anyhow::Result<BTreeMap<Key, f64>> {
    let mut command = Command::new(binary()?);
    command.args(["sim", "run", "--json"]).arg(scenario_file());
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
                let key = (text(&outcome["variant"])?, text(&window["name"])?, text(&subject["name"])?);
                *rates.entry(key).or_default() += number(&window["counters"]["completed"])? / seconds / seeds;
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

/// Lets the daemon serve the variants side by side, and real clients arrive as the scenario's VMs do. Returns completions per
/// second, stage by stage.
fn serve(lab: &Lab, scenario: &Scenario, variants: &[&str]) -> anyhow::Result<Vec<(Key, f64)>> {
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
        let mut inside = scenario.windows.iter().filter(|w| from <= w.from && w.to <= until);
        let window = inside.next().with_context(|| format!("no window after the start of {}", vm.name))?;
        stages.push((index, Duration::from_nanos((window.from - from).0), window));
    }
    ensure!(stages.len() == scenario.windows.len(), "windows that are no stages");
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
        rates.extend(measure(&daemon, &rigs, index, window)?);
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
fn measure(daemon: &Headgate, rigs: &[Rig], last: usize, window: &Window) -> anyhow::Result<Vec<(Key, f64)>> {
    let (from, to) = daemon.measure_quietly(|| {
        let from = daemon.metrics()?;
        sleep(Duration::from_nanos((window.to - window.from).0));
        Ok((from, daemon.metrics()?))
    })?;
    let seconds = (to.at - from.at).as_secs_f64();
    let mut rates = Vec::new();
    for rig in rigs {
        for vm in &rig.variant.setup.vms[..=last] {
            let disk = rig.disk(vm);
            let key = (rig.variant.name.clone(), window.name.clone(), vm.name.clone());
            rates.push((key, (to.ops(&disk)? - from.ops(&disk)?) / seconds));
        }
    }
    Ok(rates)
}

/// Makes the daemon's datastore and disks what the simulator's are, and clients for them, by turns on one frontend and the other.
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
    ensure!(store.capacity == DEFAULT_CAPACITY, "{}: the daemon's devices are of one capacity", store.name);
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
    use headgate_lab::load::{DEPTH, READ};
    let [Workload { kind, pattern, .. }] = &vm.workloads[..] else { bail!("{}: one workload", vm.name) };
    ensure!(
        *kind == WorkloadKind::Closed { outstanding: DEPTH, think: Span::ZERO },
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
