//! Tests `tegmen audit`.

use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tegmen_control::audit::{AuditBounds, AuditLog, Kind, Record};
use tegmen_host::x509::signer::SoftwareKey;

/// A directory that is removed when the test ends.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a log of four lines, and a signed head of the log.
fn log(file: &Path) {
    let pair = rcgen::KeyPair::generate().unwrap();
    let key = SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).unwrap();
    let log = AuditLog::open(file, Arc::new(key), AuditBounds::default()).unwrap();
    for code in ["one", "two", "three"] {
        log.note(Record { kind: Kind::Refusal, who: "oven".into(), code, message: "refused".into() });
    }
}

fn verify(dir: &Path, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let run =
        command.args(["audit", "verify", "--json", "audit.log"]).args(arguments).current_dir(dir).output().unwrap();
    let text = if run.stdout.is_empty() { run.stderr } else { run.stdout };
    (run.status.code(), serde_json::from_slice(&text).unwrap_or_default())
}

#[test]
fn the_first_line_that_was_touched_is_named() {
    let dir = Dir(std::env::temp_dir().join(format!("tegmen-audit-cli-{}", std::process::id())));
    std::fs::create_dir_all(&dir.0).unwrap();
    let file = dir.0.join("audit.log");
    log(&file);
    let head = ["--head", "audit.log.head"];
    let (code, whole) = verify(&dir.0, &head);
    assert_eq!((code, &whole["lines"], &whole["signed"]), (Some(0), &json!(4), &json!(4)), "{whole}");
    let key = whole["key"].as_str().unwrap();
    assert_eq!(verify(&dir.0, &[&head[..], &["--key", key]].concat()).0, Some(0));
    assert_eq!(verify(&dir.0, &[&head[..], &["--key", &"00".repeat(32)]].concat()).0, Some(2), "another key signed");

    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"two\"", "\"too\"")).unwrap();
    let (code, broken) = verify(&dir.0, &head);
    assert_eq!((code, &broken["broken"]["line"]), (Some(1), &json!(3)), "{broken}");
    // Without the head, nobody can see that the end is missing.
    let cut: String = text.split_inclusive('\n').take(3).collect();
    std::fs::write(&file, cut).unwrap();
    assert_eq!(verify(&dir.0, &[]).0, Some(0));
    let (code, broken) = verify(&dir.0, &head);
    assert_eq!((code, &broken["broken"]["line"]), (Some(1), &json!(4)), "{broken}");
}
