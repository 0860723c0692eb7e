//! A real browser, headless Chromium, driven over its debugging pipe (Chrome DevTools Protocol).

use crate::process::{Process, run};
use crate::{Lab, wait_for};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::Duration;

/// The program.
pub const CHROMIUM: &str = "chromium";

const MINUTE: Duration = Duration::from_secs(60);

/// What a page looks like to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Dark letters.
    Light,
    /// Light letters.
    Dark,
}

/// A browser with one page.
pub struct Browser {
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    calls: u64,
    /// What the page said was wrong: exceptions, refused files, broken policies.
    complaints: Vec<String>,
    process: Process,
}

impl Browser {
    /// Starts one on an empty page, 1440 by 900 points.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(lab: &Lab) -> anyhow::Result<Browser> {
        let dir = lab.subdir("browser")?;
        let (there, back) = (dir.join("to"), dir.join("from"));
        let mut pipes = Command::new("mkfifo");
        pipes.arg(&there).arg(&back);
        run(pipes, MINUTE)?;
        // The protocol is spoken over the descriptors 3 and 4. Root has no sandbox in Chromium.
        let script = "exec \"$0\" --headless=new --no-sandbox --disable-gpu --no-first-run \
                      --disable-dev-shm-usage --remote-debugging-pipe --user-data-dir=\"$1\" \
                      about:blank 3<\"$2\" 4>\"$3\"";
        let mut command = Command::new("bash");
        command.args(["-c", script, CHROMIUM]).arg(dir.join("profile")).arg(&there).arg(&back);
        let mut process = Process::spawn(CHROMIUM, command, &dir.join("log"))?;
        // Each end waits for the other to be opened; a browser that is not there opens none.
        process.ensure_running()?;
        let to = File::options().write(true).open(&there)?;
        let from = BufReader::new(File::open(&back)?);
        let mut browser =
            Browser { to, from, session: None, calls: 0, complaints: Vec::new(), process };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        browser.resize(1440, 900)?;
        Ok(browser)
    }

    fn call(&mut self, method: &str, parameters: &Value) -> anyhow::Result<Value> {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut line = serde_json::to_vec(&message)?;
        line.push(0);
        self.to.write_all(&line)?;
        loop {
            let mut line = Vec::new();
            self.from.read_until(0, &mut line)?;
            if line.pop() != Some(0) {
                self.process.ensure_running()?;
                bail!("the browser has hung up");
            }
            let answer: Value = serde_json::from_slice(&line)?;
            self.listen(&answer);
            if answer["id"] == self.calls {
                ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return Ok(answer["result"].clone());
            }
        }
    }

    fn listen(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(parameters["exceptionDetails"].to_string());
            }
            // A daemon that is gone is told by the browser, too.
            Some("Log.entryAdded") if parameters["entry"]["source"] != "network" => {
                self.complaints.push(parameters["entry"].to_string());
            }
            _ => {}
        }
    }

    /// Fails with what the page said was wrong since it was opened.
    ///
    /// # Errors
    /// That.
    pub fn ensure_content(&self) -> anyhow::Result<()> {
        ensure!(self.complaints.is_empty(), "the page complains: {:#?}", self.complaints);
        Ok(())
    }

    /// Opens an address.
    ///
    /// # Errors
    /// The browser is gone.
    pub fn open(&mut self, address: &str) -> anyhow::Result<()> {
        self.call("Page.navigate", &json!({ "url": address })).map(drop)
    }

    /// How large the page may be, in points. A narrow one is a telephone's.
    ///
    /// # Errors
    /// The browser is gone.
    pub fn resize(&mut self, width: u32, height: u32) -> anyhow::Result<()> {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Which colours its reader likes.
    ///
    /// # Errors
    /// The browser is gone.
    pub fn prefer(&mut self, scheme: Scheme) -> anyhow::Result<()> {
        let value = match scheme {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call("Emulation.setEmulatedMedia", &features).map(drop)
    }

    /// Presses a key, by its name in events of keyboards.
    ///
    /// # Errors
    /// The browser is gone.
    pub fn press(&mut self, key: &str) -> anyhow::Result<()> {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "code": key });
            if key == "Enter" && kind == "keyDown" {
                // Without a text it does nothing in a form.
                event["text"] = "\r".into();
            }
            self.call("Input.dispatchKeyEvent", &event)?;
        }
        Ok(())
    }

    /// What an expression gives in the page.
    ///
    /// # Errors
    /// It throws.
    pub fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        let what = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let result = self.call("Runtime.evaluate", &what)?;
        ensure!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        Ok(result["result"]["value"].clone())
    }

    /// The text that a reader sees in what a selector finds; empty where that is
    /// nothing, or hidden.
    ///
    /// # Errors
    /// The browser is gone.
    pub fn text(&mut self, selector: &str) -> anyhow::Result<String> {
        let found = format!(
            "((one) => one?.checkVisibility() ? one.innerText : '')(document.querySelector({}))",
            json!(selector)
        );
        let text = self.evaluate(&found)?;
        Ok(text.as_str().context("no text")?.to_owned())
    }

    /// Waits until what a selector finds has a text that fits.
    ///
    /// # Errors
    /// It has not, within a minute: with the text.
    pub fn wait_text(
        &mut self,
        selector: &str,
        fits: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let mut last = String::new();
        let found = wait_for(selector, MINUTE, || {
            last = self.text(selector)?;
            Ok(fits(&last).then(|| last.clone()))
        });
        found.with_context(|| format!("its text is {last:?}"))
    }

    /// Clicks what a selector finds.
    ///
    /// # Errors
    /// It finds nothing.
    pub fn click(&mut self, selector: &str) -> anyhow::Result<()> {
        self.evaluate(&format!("document.querySelector({}).click()", json!(selector))).map(drop)
    }
}
