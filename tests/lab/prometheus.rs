//! A real Prometheus that scrapes daemons, and its checker.

use crate::process::{Process, run};
use crate::{Lab, cache_dir, tools, wait_for};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// What is in `contrib`.
pub fn contrib(path: &str) -> PathBuf {
    crate::workspace().join("contrib").join(path)
}

/// An address of this machine that nobody listens at.
///
/// # Errors
/// The machine has none.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// One of its programs: of the system, or where `tests/install` put it.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let unpacked = cache_dir().join("prometheus/usr/bin").join(name);
    let found = tools::find(name).or_else(|| unpacked.is_file().then_some(unpacked));
    found.with_context(|| format!("there is no {name}: run tests/install"))
}

/// Runs `promtool` with these arguments.
///
/// # Errors
/// What it found wrong.
pub fn promtool(arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program("promtool")?);
    command.args(arguments);
    run(command, MINUTE)
}

/// Has `promtool` check the metrics at an address, in the text format.
///
/// # Errors
/// What it found wrong.
pub fn check_metrics(address: SocketAddr) -> anyhow::Result<()> {
    let script = "curl -sf -H 'Accept: text/plain' \"http://$1/metrics\" | \"$0\" check metrics";
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", script]).arg(program("promtool")?);
    command.arg(address.to_string());
    run(command, MINUTE).map(drop)
}

/// A running server that scrapes and evaluates each second.
pub struct Prometheus {
    address: SocketAddr,
    process: Process,
}

impl Prometheus {
    /// Starts one that scrapes these daemons, by name, and evaluates these rules.
    ///
    /// # Errors
    /// It does not start, or finds its configuration wrong.
    pub fn start(
        lab: &Lab,
        daemons: &[(&str, SocketAddr)],
        rules: &Path,
    ) -> anyhow::Result<Prometheus> {
        let dir = lab.subdir("prometheus")?;
        let config = dir.join("prometheus.yml");
        let targets: String = daemons
            .iter()
            .map(|(name, address)| {
                format!("      - {{targets: ['{address}'], labels: {{instance: {name}}}}}\n")
            })
            .collect();
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\nscrape_configs:\n  - job_name: headgate\n    static_configs:\n\
             {targets}",
            rules.display()
        );
        std::fs::write(&config, text)?;
        promtool(&["check", "config", &config.display().to_string()])?;
        let address = free_address()?;
        let mut command = Command::new(program("prometheus")?);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let process = Process::spawn("prometheus", command, &dir.join("log"))?;
        let mut server = Prometheus { address, process };
        wait_for("every daemon should be scraped", MINUTE, || {
            server.process.ensure_running()?;
            let scraped = server.query("up == 1").unwrap_or_default();
            Ok((scraped.len() == daemons.len()).then_some(()))
        })?;
        Ok(server)
    }

    fn get(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "30", "--get"]);
        for (name, value) in query {
            command.arg("--data-urlencode").arg(format!("{name}={value}"));
        }
        command.arg(format!("http://{}/api/v1/{path}", self.address));
        let said = run(command, MINUTE)?;
        let answer: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        ensure!(answer["status"] == "success", "{path} {query:?}: {said}");
        Ok(answer["data"].clone())
    }

    /// The series that an expression gives now.
    ///
    /// # Errors
    /// It is no expression, or the server is gone.
    pub fn query(&self, expression: &str) -> anyhow::Result<Vec<Value>> {
        let data = self.get("query", &[("query", expression)])?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// The names of all metrics that it has seen.
    ///
    /// # Errors
    /// The server is gone.
    pub fn names(&self) -> anyhow::Result<Vec<String>> {
        let data = self.get("label/__name__/values", &[])?;
        serde_json::from_value(data).context("a list of names")
    }

    /// The alerts that fire, with their labels and values.
    ///
    /// # Errors
    /// The server is gone.
    pub fn alerts(&self) -> anyhow::Result<Vec<Value>> {
        let data = self.get("alerts", &[])?;
        let alerts = data["alerts"].as_array().context("a list of alerts")?;
        Ok(alerts.iter().filter(|alert| alert["state"] == "firing").cloned().collect())
    }

    /// Which alerts fire, and for what: their names and labels.
    ///
    /// # Errors
    /// The server is gone.
    pub fn firing(&self) -> anyhow::Result<Vec<(String, Value)>> {
        let fires = self.alerts()?;
        let told = fires.iter().map(|alert| {
            let labels = alert["labels"].clone();
            let name = labels["alertname"].as_str().context("an alert without a name")?;
            Ok((name.to_owned(), labels))
        });
        told.collect()
    }
}
