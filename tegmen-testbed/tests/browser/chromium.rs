//! Controls a headless chromium over two pipes. They carry the DevTools protocol: each message is a JSON object and a
//! zero byte.
//!
//! The windows of chromium are at least 500 pixels wide, so the width of a phone is emulated.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Maximum number of attempts to start chromium. Some starts never end, whatever the page is.
const STARTS: usize = 3;

/// True if chromium is installed.
pub(crate) fn is_installed() -> bool {
    Command::new("chromium").arg("--version").output().is_ok()
}

/// The width of a screen, and the color scheme that its user has chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) dark: bool,
}

/// Opens a page on each of the screens, and runs `script` in it. Returns the results of the script, and the messages on
/// the console.
pub(crate) fn on_screens(page: &Path, screens: &[Screen], script: &str) -> Vec<(Value, Vec<String>)> {
    for start in 0..STARTS {
        let mut chromium = Chromium::start(&page.with_file_name(format!("profile-{start}")));
        let on = |screen: &Screen| chromium.open(page, *screen, script);
        if let Some(results) = screens.iter().map(on).collect() {
            return results;
        }
        println!("chromium ended early");
    }
    panic!("chromium did not open {} in {STARTS} starts of two minutes each", page.display());
}

struct Chromium {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    last: u64,
    console: Vec<String>,
}

impl Chromium {
    fn start(profile: &Path) -> Self {
        let command = "exec timeout --kill-after 5 120 chromium --headless --no-sandbox --disable-gpu --remote-debugging-pipe \
                       --user-data-dir=\"$0\" 3<&0 4>&1 >/dev/null 2>&1";
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).arg(profile).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = shell.spawn().expect("a shell");
        let requests = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, requests, answers, last: 0, console: Vec::new() }
    }

    /// Opens a page in a new tab, and runs `script` in it. Returns `None` if chromium has ended.
    fn open(&mut self, page: &Path, screen: Screen, script: &str) -> Option<(Value, Vec<String>)> {
        let tab = self.ask(None, "Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": tab["targetId"], "flatten": true });
        let session = self.ask(None, "Target.attachToTarget", attach)?["sessionId"].as_str()?.to_owned();
        let session = Some(session.as_str());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.ask(session, domain, json!({}))?;
        }
        let size = json!({ "width": screen.width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.ask(session, "Emulation.setDeviceMetricsOverride", size)?;
        let scheme = json!({ "name": "prefers-color-scheme", "value": if screen.dark { "dark" } else { "light" } });
        self.ask(session, "Emulation.setEmulatedMedia", json!({ "features": [scheme] }))?;
        self.console.clear();
        let url = format!("file://{}", page.display());
        self.ask(session, "Page.navigate", json!({ "url": url }))?;
        // A promise that is kept when the page and its fonts are loaded.
        let loaded =
            "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))";
        let expression = format!("{loaded}.then(() => document.fonts.ready).then(() => ({script}))");
        let evaluate = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.ask(session, "Runtime.evaluate", evaluate)?;
        assert!(result["exceptionDetails"].is_null(), "{result}");
        Some((result["result"]["value"].clone(), std::mem::take(&mut self.console)))
    }

    /// Sends a request to chromium, and waits for its answer.
    fn ask(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Option<Value> {
        self.last += 1;
        let mut request = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).ok()?;
        loop {
            let mut message = Vec::new();
            self.answers.read_until(0, &mut message).ok()?;
            message.pop()?;
            let mut message: Value = serde_json::from_slice(&message).ok()?;
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return Some(message["result"].take());
            }
            if let Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") =
                message["method"].as_str()
            {
                self.console.push(message["params"].to_string());
            }
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.ask(None, "Browser.close", json!({}));
        let _ = self.process.wait();
    }
}
