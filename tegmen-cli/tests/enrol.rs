//! Tests `tegmen device expect` of an operator, and `tegmen enrol` of a device, with an access control server of
//! `tegmen serve`.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/operator.rs"]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use operator::{OPTIONS, furnish, secret};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_host::x509::sha256;
use tegmen_host::x509::signer::{Signer as _, SoftwareKey};
use works::{Scene, Server};

/// Runs a command. Returns its exit code and its output.
fn tegmen(dir: &Path, arguments: &str) -> (i32, String) {
    let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let output = tegmen.args(arguments.split(' ')).current_dir(dir).output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.code().unwrap(), text)
}

fn succeeds(dir: &Path, arguments: &str) -> String {
    let (code, text) = tegmen(dir, arguments);
    assert_eq!(code, 0, "{arguments}: {text}");
    text
}

fn fails(dir: &Path, arguments: &str, words: &str) {
    let (code, text) = tegmen(dir, arguments);
    assert!(code == 1 && text.contains(words), "{arguments}: {code}: {text}");
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_device_enrols_once_with_its_one_time_key() {
    let scene = Scene::new("enrol");
    let dir = scene.0.as_path();
    furnish(dir);
    for name in ["server.pem", "panel.pem", "admin.key"] {
        secret(dir, name, &rcgen::KeyPair::generate().unwrap().serialize_pem());
    }
    let key = rcgen::KeyPair::from_pem(&std::fs::read_to_string(dir.join("admin.key")).unwrap()).unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(dir.join("admin.pem"), certificate.pem()).unwrap();
    let admin = "--admin 127.0.0.1:0 --admin-cert admin.pem --admin-cert-key admin.key --bootstrap bootstrap";
    let options = format!("{OPTIONS} {admin} --cert-key server.pem");
    let server = Server::start(dir, &options.split(' ').collect::<Vec<_>>(), 2);
    let at = format!("--server https://localhost:{} --ca admin.pem --key-file", server.addresses[1].port());
    let scopes = "--scope keys:write --scope devices:read --scope devices:write";
    succeeds(dir, &format!("key create root {scopes} --output root.key {at} bootstrap"));
    let at = format!("{at} root.key");
    let uri = format!("coaps://{}", server.addresses[0]);

    succeeds(dir, &format!("device expect panel --tag display --kind public-key --output panel.enrol {at}"));
    assert_eq!(dir.join("panel.enrol").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let shown = succeeds(dir, &format!("device expected {at}"));
    assert!(shown.starts_with("panel tag:display: public-key, until "), "{shown}");
    let one_time = std::fs::read_to_string(dir.join("panel.enrol")).unwrap();
    let digits = one_time.split_once(';').unwrap().1;
    for file in ["access.db", "access.db-wal", "audit.log"] {
        let content = std::fs::read(dir.join(file)).unwrap_or_default();
        assert!(!has(&content, digits.as_bytes()) && !has(&content, &from_hex(digits).unwrap()), "{file}");
    }

    // Another key opens no session, and another kind of proof is none that the operator meant.
    let other = if digits.ends_with('0') { "1" } else { "0" };
    secret(dir, "other.enrol", &format!("{}{other}", &one_time[..one_time.len() - 1]));
    fails(dir, &format!("enrol {uri} --key-file other.enrol --private-key panel.pem"), "is refused after its use");
    secret(dir, "panel.secret", &"a1".repeat(32));
    fails(dir, &format!("enrol {uri} --key-file panel.enrol --protokey panel.secret"), "4.03");
    let enrol = format!("enrol {uri} --key-file panel.enrol --private-key panel.pem");
    assert!(succeeds(dir, &enrol).contains("registered as panel, with a public-key"));
    fails(dir, &enrol, "is refused after its use");
    assert_eq!(succeeds(dir, &format!("device expected {at}")), "");
    let shown = succeeds(dir, &format!("device show panel {at}"));
    assert!(shown.starts_with("panel tag:display: public-key "), "{shown}");
    // The device has the rights of one now.
    let server_key = SoftwareKey::from_file(&dir.join("server.pem")).unwrap();
    let proof = format!("--cert-key panel.pem --server-key {}", to_hex(&sha256(server_key.public_key())));
    succeeds(dir, &format!("get {uri}/revoke/trl {proof} --output list.cbor"));

    succeeds(dir, &format!("device expect lamp2 --kind protokey --output lamp.enrol {at}"));
    succeeds(dir, &format!("device withdraw lamp2 {at}"));
    fails(dir, &format!("enrol {uri} --key-file lamp.enrol --protokey panel.secret"), "is refused after its use");
    fails(dir, &format!("device withdraw lamp2 {at}"), "(no-one-time-key)");
    fails(dir, &format!("device expect panel --kind protokey --output again.enrol {at}"), "(name-taken)");
    assert!(!dir.join("again.enrol").exists());

    // Resource servers register the keys of their tokens.
    secret(dir, "hob.key", &"b2".repeat(32));
    secret(dir, "short.key", &"b2".repeat(16));
    for kind in ["oscore", "edhoc"] {
        succeeds(dir, &format!("device expect {kind}-hob --tag hob --kind {kind} --output {kind}.enrol {at}"));
        let enrol = format!("enrol {uri} --key-file {kind}.enrol --{kind}");
        let (code, text) = tegmen(dir, &format!("{enrol} short.key"));
        assert!(code == 2 && text.contains(&format!("--{kind}: ")) && text.contains("32 bytes"), "{code}: {text}");
        let text = succeeds(dir, &format!("{enrol} hob.key"));
        assert!(text.contains(&format!("registered as {kind}-hob, with a {kind}")), "{text}");
        let shown = succeeds(dir, &format!("device show {kind}-hob {at}"));
        assert!(shown.starts_with(&format!("{kind}-hob tag:hob: {kind}")), "{shown}");
    }
    server.end();
    let log = std::fs::read_to_string(dir.join("audit.log")).unwrap();
    for code in ["\"expected\"", "\"other-kind\"", "\"enrolled\"", "\"withdrawn\""] {
        assert!(log.contains(code), "{code}: {log}");
    }
}
