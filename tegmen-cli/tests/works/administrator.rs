//! The administrator of a server, who uses its HTTPS interface.

use crate::operator::secret;
use crate::process::wait;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// A client of the HTTPS interface of one server. It runs `curl`. The file `key` in the parent directory of `dir`
/// contains the API key.
#[derive(Clone)]
pub(crate) struct Administrator {
    pub(crate) dir: PathBuf,
    /// The IP address of the HTTPS interface. Its port is 8443.
    pub(crate) address: String,
}

/// An answer of the server to the administrator.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// The revision in the entity tag of the answer; `None` without an entity tag.
    pub(crate) revision: Option<u64>,
}

impl Administrator {
    /// Makes the first API key with the bootstrap token of the server.
    pub(crate) fn make_key(&self, scopes: &[&str]) {
        let file = self.dir.join("bootstrap");
        let token = wait("bootstrap token", || std::fs::read_to_string(&file).ok().filter(|token| !token.is_empty()));
        let key = serde_json::json!({ "name": "root", "scopes": scopes, "expires": in_an_hour() }).to_string();
        let made = wait("key", || {
            self.ask_with(token.trim(), "POST", "/v1/keys", Some(&key)).filter(|made| made.status == 201)
        });
        secret(self.dir.parent().unwrap(), "key", made.body["key"].as_str().unwrap());
    }

    /// Sends a request. Returns the answer; `None` if there is none.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Answer> {
        let key = std::fs::read_to_string(self.dir.parent().unwrap().join("key")).unwrap();
        self.ask_with(&key, method, path, body.map(Value::to_string).as_deref())
    }

    fn ask_with(&self, key: &str, method: &str, path: &str, body: Option<&str>) -> Option<Answer> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--max-time", "8", "--cacert", "admin.pem", "--request", method]);
        curl.args(["--resolve", &format!("localhost:8443:{}", self.address), "--header", "if-match: *"]);
        curl.args(["--header", &format!("authorization: Bearer {key}")]);
        curl.args(["--write-out", "\n%header{etag}\n%{http_code}"]);
        if let Some(body) = body {
            curl.args(["--data", body]);
        }
        let output = curl.arg(format!("https://localhost:8443{path}")).current_dir(&self.dir).output();
        let output = output.unwrap_or_else(|error| panic!("curl: {error}; type: sudo apt-get install curl"));
        let text = String::from_utf8(output.stdout).unwrap();
        let (text, status) = text.rsplit_once('\n')?;
        let (body, tag) = text.rsplit_once('\n')?;
        let status = status.parse().ok().filter(|status| *status != 0 && output.status.success())?;
        let revision = tag.trim_matches('"').parse().ok();
        Some(Answer { status, body: serde_json::from_str(body).unwrap_or_default(), revision })
    }
}

/// Returns the time an hour from now, in seconds since 1970.
pub(crate) fn in_an_hour() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + 3600
}
