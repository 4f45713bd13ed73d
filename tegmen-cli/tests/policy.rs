//! Tests `tegmen policy`.

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const POLICY: &str = r#"[[rule]]
name = "displays read"
subject = ["display-*", "tag:display"]
publisher = "tag:kitchen"
allow = "read /temp"

[[test]]
subject = "display-3"
publisher = ["oven", "tag:kitchen"]
request = "GET /temp"
expect = "allow"
by = "displays read"
"#;

/// A directory that is removed when the test ends.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-policy-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// Runs a command. Returns its exit code, and its text on standard output and standard error.
    fn tegmen(&self, arguments: &str) -> (i32, String) {
        let run = Command::new(env!("CARGO_BIN_EXE_tegmen"))
            .arg("policy")
            .args(arguments.split(' '))
            .current_dir(&self.0)
            .output()
            .unwrap();
        let text = [run.stdout, run.stderr].concat();
        (run.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    fn json(&self, arguments: &str) -> (i32, Value) {
        let (code, text) = self.tegmen(&format!("{arguments} --json"));
        (code, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_policy_is_tested() {
    let dir = Dir::new("test");
    dir.write("p.toml", POLICY);
    assert_eq!(dir.tegmen("test p.toml"), (0, "1 rules, 1 of 1 tests passed\n".to_owned()));
    dir.write("p.toml", &POLICY.replace("/temp\"\n\n", "/door\"\n\n"));
    let (code, text) = dir.tegmen("test p.toml");
    assert_eq!(code, 1);
    assert!(text.starts_with("p.toml:7: GET /temp by display-3 at oven tag:kitchen: the test expects allow"), "{text}");
    let (code, object) = dir.json("test p.toml");
    assert_eq!((code, &object["failed"][0]["line"]), (1, &Value::from(7)));
    dir.write("p.toml", &POLICY.replace("read /temp", "reed /temp"));
    let (code, text) = dir.tegmen("test p.toml");
    assert_eq!(code, 2);
    assert!(text.starts_with("tegmen: p.toml:5: allow: a method (GET, POST"), "{text}");
    let (code, text) = dir.tegmen("test missing.toml");
    assert!(code == 2 && text.contains("missing.toml cannot be read"), "{text}");
}

#[test]
fn a_decision_is_explained() {
    let dir = Dir::new("explain");
    dir.write("p.toml", POLICY);
    let explain = |rest: &str| format!("explain p.toml --publisher oven --publisher tag:kitchen {rest}");
    let (code, text) = dir.tegmen(&explain("--subject display-3 GET /temp"));
    assert_eq!(code, 0);
    assert!(
        text.contains(
            "allowed: by p.toml:1 \"displays read\": allow display-*, tag:display at tag:kitchen: read /temp"
        ),
        "{text}"
    );
    let (code, object) = dir.json(&explain("--subject lamp GET /temp"));
    assert_eq!(code, 3);
    assert_eq!((&object["code"], &object["near"][0]["part"]), (&Value::from("no-rule"), &Value::from("subject")));
    for wrong in [
        "--subject a --subject b GET /temp",
        "--subject a read /temp",
        "--subject a GET /temp*",
        "--subject a GET temp",
    ] {
        assert_eq!(dir.tegmen(&explain(wrong)).0, 2, "{wrong}");
    }
}

#[test]
fn two_policies_are_compared() {
    let dir = Dir::new("diff");
    dir.write("old.toml", POLICY);
    dir.write("new.toml", &POLICY.replace("read /temp", "GET /temp"));
    let (code, text) = dir.tegmen("diff old.toml new.toml");
    assert_eq!(code, 0);
    assert!(text.contains("\n  now refused: FETCH /temp by display-3 at oven tag:kitchen\n"), "{text}");
    let (_, object) = dir.json("diff old.toml new.toml");
    assert_eq!((&object["complete"], &object["changes"][0]["now"]), (&Value::from(true), &Value::from("deny")));
    assert_eq!(dir.tegmen("diff old.toml old.toml"), (0, "The policies decide alike.\n".to_owned()));
}
