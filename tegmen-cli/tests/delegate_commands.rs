//! Tests the commands of an operator for delegated sessions. The test itself is the device, at a socket.
#![cfg(target_os = "linux")]

#[path = "works/commands.rs"]
mod commands;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../../tegmen-control/tests/delegations/loopback.rs"]
mod loopback;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/operator.rs"]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/process.rs"]
mod process;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/server_files.rs"]
mod server_files;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use commands::{ALL, OPTIONS, Operator};
use loopback::LiveDevice;
use process::wait;
use serde_json::Value;
use server_files::write_keys;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tegmen::secret::Secret;
use tegmen_host::hex::from_hex;
use works::{Scene, Server};

/// Runs a command of `tegmen ca`, and returns its output.
fn ca(scene: &Scene, arguments: &str) -> String {
    let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let made = tegmen.arg("ca").args(arguments.split(' ')).current_dir(&scene.0).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap()
}

/// Starts a server that delegates sessions. Its first API key is in the file root.key.
fn server(scene: &Scene) -> (Server, Operator<'_>) {
    write_keys(&scene.0);
    ca(scene, "init ca");
    let options: Vec<_> =
        OPTIONS.split(' ').chain(["--delegation-ca", "ca", "--delegation-trust", "ca/ca.pem"]).collect();
    let server = Server::start(&scene.0, &options, 2);
    let operator = Operator { dir: &scene.0, server: format!("https://localhost:{}", server.addresses[1].port()) };
    operator.succeeds("bootstrap", &format!("key create root {ALL} --output root.key"));
    (server, operator)
}

fn device_key(scene: &Scene, file: &str) -> Secret<32> {
    assert_eq!(scene.0.join(file).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let digits = std::fs::read_to_string(scene.0.join(file)).unwrap();
    Secret::new(from_hex(digits.trim()).unwrap().try_into().unwrap())
}

/// Imprints the device at this address. Returns the exit code and the output of the command.
fn imprint(operator: &Operator<'_>, address: &str, scope: &str, output: &str) -> (i32, String) {
    let mut command = operator.command("device imprint lamp.example --tag lamp");
    command.args(["--address", address, "--scope", scope, "--scope", "GET /temp", "--output", output]);
    let output = command.env("TEGMEN_KEY_FILE", "root.key").output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.code().unwrap(), text)
}

#[test]
fn an_operator_imprints_a_device_which_the_server_then_speaks_with() {
    let scene = Scene::new("delegate");
    let (_server, operator) = server(&scene);
    let device = LiveDevice::start();
    let address = device.address().to_string();
    let (code, said) = imprint(&operator, &address, "GET", "lamp.key");
    assert!(code == 1 && said.contains("a rule is") && said.contains("(invalid-device)"), "{code}: {said}");
    let (code, said) = imprint(&operator, &address, "GET /temp,PUT /light", "lamp.key");
    assert!(code == 0 && said.contains("Imprinted lamp.example, and wrote its device key to lamp.key"), "{said}");
    // The server made its certificate.
    let made = |file: &str| scene.0.join("ca/delegated").join(file).exists();
    assert!(made("lamp.example.pem") && made("lamp.example.key"));
    let (code, said) = imprint(&operator, &address, "GET /temp", "other.key");
    assert!(code == 1 && said.contains("(name-taken)") && !scene.0.join("other.key").exists(), "{said}");
    let device = device.provision(&device_key(&scene, "lamp.key"));
    let shown = wait("the first epoch", || {
        let shown = operator.succeeds("root.key", "delegation show lamp.example");
        shown.contains(": epoch 1, heard 2").then_some(shown)
    });
    assert!(!shown.contains("unreachable"), "{shown}");
    assert_eq!(operator.succeeds("root.key", "delegation list lamp.example"), "");
    let preview = operator.succeeds("root.key", "delegation reset lamp.example --preview");
    assert!(preview.starts_with("lamp.example would begin the epoch 2: 0 peers get another ticket"), "{preview}");
    assert!(operator.succeeds("root.key", "delegation devices").contains("lamp.example at 127.0.0.1:"));
    let reset = operator.succeeds("root.key", "delegation reset lamp.example --json");
    let reset: Value = serde_json::from_str(&reset).unwrap();
    assert_eq!((&reset["event"], &reset["epoch"]), (&"reset".into(), &1.into()));
    wait("the second epoch", || (device.ask(|lamp| lamp.epoch()) == 2).then_some(()));
    operator.fails("root.key", "delegation revoke lamp.example 1-0 x", 1, "(unknown-connection)");
    operator.fails("root.key", "delegation show valve.example", 1, "(unknown-device)");
}

#[test]
fn the_drill_gives_devices_other_keys() {
    let scene = Scene::new("delegate-drill");
    let (_server, operator) = server(&scene);
    let device = LiveDevice::start();
    let address = device.address().to_string();
    assert_eq!(imprint(&operator, &address, "PUT /light", "lamp.key").0, 0);
    let device = device.provision(&device_key(&scene, "lamp.key"));
    wait("the first epoch", || (device.ask(|lamp| lamp.epoch()) == 1).then_some(()));
    let certificate =
        || ["pem", "key"].map(|end| std::fs::read(scene.0.join(format!("ca/delegated/lamp.example.{end}"))));
    let (before, list) = (certificate().map(Result::unwrap), std::fs::read(scene.0.join("ca/crl.pem")).unwrap());
    let said = operator.succeeds("root.key", "delegation server-compromised lamp.example --output-dir keys");
    assert!(said.contains("lamp.example has another device key, in keys/lamp.example.key"), "{said}");
    // An intruder may have the key of its certificate, too.
    let after = certificate().map(Result::unwrap);
    assert!(before[0] != after[0] && before[1] != after[1], "another certificate, for another key");
    let of_lamp = |state: &str| {
        let all = ca(&scene, "list ca");
        let mut lines = all.lines().filter(|line| line.contains("lamp.example") && line.contains(state));
        (lines.next().map(|line| line.split(' ').next().unwrap().to_owned()), lines.next().is_none())
    };
    let (Some(revoked), true) = of_lamp("revoked") else { panic!("one revoked certificate") };
    assert!(matches!(of_lamp("valid"), (Some(_), true)));
    assert_ne!(list, std::fs::read(scene.0.join("ca/crl.pem")).unwrap(), "it is in the list of the CA");
    let named = format!("{revoked} of CN=Tegmen CA");
    assert!(said.contains(&named) && said.contains("is revoked in the CRL: copy crl.pem to every peer"), "{said}");
    let (old, new) = (device_key(&scene, "lamp.key"), device_key(&scene, "keys/lamp.example.key"));
    assert_ne!(old.expose(), new.expose());
    // The device has the old key still: the server does not reach it.
    wait("the failure", || {
        let shown = operator.succeeds("root.key", "delegation show lamp.example");
        (shown.contains("not reached yet") && shown.contains("unreachable since")).then_some(())
    });
    let text = std::fs::read_to_string(scene.0.join("audit.log")).unwrap();
    assert!(text.contains("the device lamp.example: 0 connections were reachable"), "{text}");
    assert!(!text.contains(std::fs::read_to_string(scene.0.join("lamp.key")).unwrap().trim()));
}

#[test]
fn a_device_resumes_a_session_at_a_server_elsewhere() {
    let scene = Scene::new("delegate-connect");
    let (_server, operator) = server(&scene);
    ca(&scene, "issue ca --name hub --dns hub.example");
    let options =
        "--value /x=1 --cert ca/hub.pem --cert-key ca/hub.key --client-ca ca/ca.pem --suites ecdhe-ecdsa-ccm8 --json";
    let hub = Server::start(&scene.0, &options.split(' ').collect::<Vec<_>>(), 1);
    let device = LiveDevice::start();
    assert_eq!(imprint(&operator, &device.address().to_string(), "PUT /light", "lamp.key").0, 0);
    let device = device.provision(&device_key(&scene, "lamp.key"));
    wait("the first epoch", || (device.ask(|lamp| lamp.epoch()) == 1).then_some(()));
    let at = format!("delegation connect lamp.example {}", hub.addresses[0]);
    operator.fails("root.key", &format!("{at} --server-name other.example"), 1, "(not-given)");
    let said = wait("a number", || {
        let (code, said) = operator.run("root.key", &format!("{at} --server-name hub.example"));
        (code == 0).then_some(said)
    });
    assert!(said.starts_with("lamp.example resumes a session at 127.0.0.1:"), "{said}");
    wait("a session", || (!device.seen().established.is_empty()).then_some(()));
    assert!(operator.succeeds("root.key", "delegation list lamp.example").contains("scope 255, by device"));
}
