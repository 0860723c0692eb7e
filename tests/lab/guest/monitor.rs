//! QEMU's monitor: what an operator's tools do to a running machine, or to a storage daemon.

use crate::wait_for;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection that speaks QMP.
pub struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects once QEMU listens, and negotiates.
    ///
    /// # Errors
    /// Nobody listens in time, or what listens is no monitor.
    pub fn connect(socket: &Path) -> anyhow::Result<Monitor> {
        let stream = wait_for("QEMU should open its monitor", Duration::from_secs(20), || {
            Ok(UnixStream::connect(socket).ok())
        })?;
        let mut monitor = Monitor { stream: BufReader::new(stream) };
        monitor.next(Duration::from_secs(20)).context("no greeting")?;
        monitor.execute("qmp_capabilities", Duration::from_secs(20))?;
        Ok(monitor)
    }

    /// Runs a command without arguments, and waits for its result.
    ///
    /// # Errors
    /// It failed, or there was no answer in time.
    pub fn execute(&mut self, command: &str, within: Duration) -> anyhow::Result<Value> {
        self.execute_with(command, &json!({}), within)
    }

    /// Runs a command with arguments, and waits for its result.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute).
    pub fn execute_with(
        &mut self,
        command: &str,
        arguments: &Value,
        within: Duration,
    ) -> anyhow::Result<Value> {
        let message = json!({ "execute": command, "arguments": arguments });
        self.stream.get_mut().write_all(format!("{message}\n").as_bytes())?;
        loop {
            let said = self.next(within).with_context(|| format!("{command}: no answer"))?;
            // Events come in between.
            if said.get("event").is_none() {
                ensure!(said.get("error").is_none(), "{command}: {said}");
                return Ok(said["return"].clone());
            }
        }
    }

    fn next(&mut self, within: Duration) -> anyhow::Result<Value> {
        self.stream.get_ref().set_read_timeout(Some(within))?;
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "QEMU closed its monitor");
        Ok(serde_json::from_str(&line)?)
    }
}
