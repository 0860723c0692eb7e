//! The daemon's counters, read as Prometheus reads them.

use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// All metrics at one instant.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// When they were read.
    pub at: Instant,
    text: String,
}

impl Metrics {
    /// Reads `/metrics` over the API socket.
    pub fn scrape(socket: &Path) -> anyhow::Result<Metrics> {
        let text = get(socket, "/metrics")?;
        Ok(Metrics { at: Instant::now(), text })
    }

    /// The value of a metric of a disk, such as `headgate_disk_read_ops_total`.
    pub fn of_disk(&self, metric: &str, disk: &str) -> anyhow::Result<f64> {
        let first = self.each_of_disk(metric, disk).next();
        first.with_context(|| format!("no {metric} of disk {disk} in\n{}", self.text))?
    }

    /// The values of a metric of a disk, one for each of what else it is told apart by.
    fn each_of_disk(&self, metric: &str, disk: &str) -> impl Iterator<Item = anyhow::Result<f64>> {
        let label = format!("disk=\"{disk}\"");
        let lines = self.text.lines().filter(move |line| {
            line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{'))
                && line.contains(&label)
        });
        lines.map(|line| {
            let value = line.rsplit(' ').next().unwrap_or_default();
            value.parse().with_context(|| format!("not a number: {line}"))
        })
    }

    /// The sum of a metric of a disk over all else that it is told apart by, such as directions.
    ///
    /// # Errors
    /// There is no such metric of this disk.
    pub fn sum_of_disk(&self, metric: &str, disk: &str) -> anyhow::Result<f64> {
        let values = self.each_of_disk(metric, disk).collect::<anyhow::Result<Vec<f64>>>()?;
        ensure!(!values.is_empty(), "no {metric} of disk {disk} in\n{}", self.text);
        Ok(values.iter().sum())
    }

    /// The sum of a metric over all that it is told apart by, where these labels are among it.
    ///
    /// # Errors
    /// There is no such metric.
    pub fn sum(&self, metric: &str, labels: &[&str]) -> anyhow::Result<f64> {
        let values = self.text.lines().filter(|line| {
            line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{'))
                && labels.iter().all(|label| line.contains(label))
        });
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse().ok());
        let values: Option<Vec<f64>> = values.map(value).collect();
        let values = values.with_context(|| format!("{metric} is no number in\n{}", self.text))?;
        ensure!(!values.is_empty(), "no {metric} with {labels:?} in\n{}", self.text);
        Ok(values.iter().sum())
    }

    /// The value of a metric without labels, such as `headgate_leases_lost_total`.
    pub fn plain(&self, metric: &str) -> anyhow::Result<f64> {
        let mut values = self.text.lines().filter_map(|line| {
            let rest = line.strip_prefix(metric)?;
            rest.strip_prefix("{}").unwrap_or(rest).strip_prefix(' ')
        });
        let value = values.next().with_context(|| format!("no {metric} in\n{}", self.text))?;
        value.parse().with_context(|| format!("not a number: {value}"))
    }

    /// Reads and writes of a disk since the daemon started.
    pub fn ops(&self, disk: &str) -> anyhow::Result<f64> {
        Ok(self.of_disk("headgate_disk_read_ops_total", disk)?
            + self.of_disk("headgate_disk_write_ops_total", disk)?)
    }
}

/// Reads a path of the API.
pub fn get(socket: &Path, path: &str) -> anyhow::Result<String> {
    let (status, body) = answer(socket, path)?;
    ensure!(status == "200", "GET {path}: {status} {body}");
    Ok(body)
}

/// What the API answers at a path: the status, and the body.
pub fn answer(socket: &Path, path: &str) -> anyhow::Result<(String, String)> {
    let mut stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // HTTP/1.0: the body ends with the connection and is not chunked.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the HTTP header")?;
    let status = head.split_whitespace().nth(1).context("no status")?;
    Ok((status.to_owned(), body.to_owned()))
}
