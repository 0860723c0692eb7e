//! Rules broken on purpose: what does the server do, and does anybody else notice.
//!
//! The first target is attacked, one scenario after the other. The other targets, and over NBD a
//! second connection to the attacked one, are loaded as the arguments say all the while: *they must
//! see no error*, and a new connection to the attacked target must be served after every scenario.
//! What the attacker itself sees is reported, not judged: an error, a hang-up and silence are all
//! fair.
//!
//! Floods are what a client may do, done as often as it goes: they find out whether its disk's
//! limit holds. How much others get beside one is for whoever runs the server to judge, by the
//! server's own counters.
//!
//! The first failure ends the attacks. They overwrite the attacked disk.

mod nbd;
mod nbd_floods;
mod scenario;
mod vhost;
mod vhost_events;
mod vhost_floods;
mod vhost_memory;
mod vhost_rig;

pub use crate::reaction::{Reaction, ScenarioReport};

use crate::args::{LoadArgs, Plan};
use crate::control::Control;
use crate::error::LoadError;
use crate::report::Report;
use crate::run::load_targets;
use crate::target::Target;
use headgate_nbd::uri::{Address, Security};
use rustix::fs::{Mode, OFlags};
use scenario::{Attack, NbdVictim, Scenario};
use std::fs::File;
use std::io::IsTerminal;
use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Period of the checks of their progress.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long a flood lasts.
const FLOOD: Duration = Duration::from_secs(2);

/// Runs the scenarios that `--hostile` names.
///
/// # Errors
/// A name that is no attack on the target's protocol, no other target that has to be served, or no
/// target.
pub(crate) fn run(args: &LoadArgs, control: &Control) -> Result<Report, LoadError> {
    let plan = Plan::new(args)?;
    let Some(victim) = args.targets.first() else {
        return Err(LoadError::Usage("--hostile needs a target".into()));
    };
    match victim {
        Target::Nbd(target) => {
            if matches!(&target.address, Address::Tcp { security: Security::Tls(_), .. }) {
                let why = "--hostile attacks without TLS: give it nbd:// or nbd+unix://";
                return Err(LoadError::Usage(why.into()));
            }
            let victim = NbdVictim { target: target.clone(), reach: plan.reach };
            let all = [nbd::RULE_BREAKERS, nbd_floods::FLOODS];
            run_scenarios(args, control, &all, &victim, nbd::probe)
        }
        Target::VhostUserBlk(path) => {
            let all = [
                vhost::RULE_BREAKERS,
                vhost_events::RULE_BREAKERS,
                vhost_memory::RULE_BREAKERS,
                vhost_floods::FLOODS,
                vhost_memory::FLOODS,
            ];
            run_scenarios::<Path>(args, control, &all, path, vhost::probe)
        }
    }
}

fn choose<'a, V: ?Sized>(
    args: &LoadArgs,
    all: &[&'a [Scenario<V>]],
) -> Result<Vec<&'a Scenario<V>>, LoadError> {
    if args.hostile.iter().any(|name| name == "all") {
        return Ok(all.iter().copied().flatten().collect());
    }
    let find = |name: &String| {
        all.iter().copied().flatten().find(|s| s.name == name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().copied().flatten().map(|s| s.name).collect();
            LoadError::Usage(format!(
                "--hostile {name}: expected all, or some of {}",
                names.join(", ")
            ))
        })
    };
    args.hostile.iter().map(find).collect()
}

fn innocents(args: &LoadArgs) -> Result<LoadArgs, LoadError> {
    let mut innocent = args.clone();
    innocent.hostile.clear();
    if let Some(Target::VhostUserBlk(path)) = args.targets.first() {
        innocent.targets.remove(0);
        if innocent.targets.is_empty() {
            return Err(LoadError::Usage(format!(
                "--hostile: {} takes one connection; name a second disk of the server for the innocent client",
                path.display()
            )));
        }
    } else if args.verify && args.targets.len() > 1 {
        // Attacks overwrite the attacked disk; the others can be verified.
        innocent.targets.remove(0);
    }
    // They are stopped when the attacks are over.
    innocent.ios = Some(u64::MAX);
    innocent.seconds = None;
    Ok(innocent)
}

fn run_scenarios<V: Sync + ?Sized>(
    args: &LoadArgs,
    control: &Control,
    all: &[&[Scenario<V>]],
    victim: &V,
    probe: fn(&V) -> Result<(), String>,
) -> Result<Report, LoadError> {
    let chosen = choose(args, all)?;
    let innocent = innocents(args)?;
    let flood = args.seconds.map_or(FLOOD, |seconds| seconds.0.into());
    std::thread::scope(|scope| {
        let load = scope.spawn(|| load_targets(&innocent, control));
        let mut reports = Vec::new();
        for scenario in chosen {
            if control.is_stopped() || load.is_finished() {
                break;
            }
            let attacked = match scenario.attack {
                Attack::Once(attack) => attack(victim),
                Attack::Bringing(attack) => brought(args).and_then(|file| attack(victim, &file)),
                Attack::Flood(attack) => attack(victim, flood),
            };
            let (reactions, mut failure) = match attacked {
                Ok(reactions) => (kinds(reactions), None),
                Err(e) => (Vec::new(), Some(format!("the attack could not begin: {e}"))),
            };
            failure = failure.or_else(|| {
                aftermath(control, &load, args.timeout.0.into(), || probe(victim)).err()
            });
            let report = ScenarioReport {
                scenario: scenario.name.into(),
                about: scenario.about.into(),
                reactions,
                failure,
            };
            if !args.json && std::io::stderr().is_terminal() {
                eprintln!("{}", report.scenario);
            }
            let failed = report.failure.is_some();
            reports.push(report);
            if failed {
                // Whatever follows would be the fault of this one.
                break;
            }
        }
        control.stop();
        let report = load.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        report.map(|report| Report { hostile: reports, ..report })
    })
}

/// The file for an attack that brings one: `--hostile-file`, or one without a name.
fn brought(args: &LoadArgs) -> Result<File, String> {
    let opened = match &args.hostile_file {
        Some(path) => File::options().read(true).write(true).open(path),
        None => {
            let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
            rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)
                .map(File::from)
                .map_err(Into::into)
        }
    };
    opened.map_err(|e| match &args.hostile_file {
        Some(path) => format!("--hostile-file {}: {e}", path.display()),
        None => format!("no file in {}: {e}", std::env::temp_dir().display()),
    })
}

/// Each reaction once, in order of appearance.
fn kinds(reactions: Vec<Reaction>) -> Vec<Reaction> {
    let mut seen = Vec::new();
    for reaction in reactions {
        if !seen.contains(&reaction) {
            seen.push(reaction);
        }
    }
    seen
}

/// Checks that the other targets are served after the attack.
fn aftermath<T>(
    control: &Control,
    load: &ScopedJoinHandle<'_, T>,
    patience: Duration,
    probe: impl Fn() -> Result<(), String>,
) -> Result<(), String> {
    let deadline = Instant::now() + patience;
    loop {
        match probe() {
            Ok(()) => break,
            Err(e) if Instant::now() > deadline => {
                return Err(format!("new clients are not served: {e}"));
            }
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
    let before = control.ios();
    while control.ios() <= before {
        if control.errors() > 0 {
            return Err("the innocent client got an error".into());
        }
        if load.is_finished() {
            return Err("the innocent client was thrown out".into());
        }
        if Instant::now() > deadline {
            return Err("the innocent client is no longer served".into());
        }
        if control.is_interrupted() {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
