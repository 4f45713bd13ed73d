//! Tests notifications to all observers of a resource together, with processes and multicast on the loopback interface.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::path::Path;
use std::process::{Command, Output};
use works::{Scene, Server};

fn tegmen(dir: &Path, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments.split(' ')).current_dir(dir).output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// Starts two observers, changes the value, and waits until both observers have the new value.
fn both_get_the_change(dir: &Path, observe: [&str; 2], put: &str) {
    let mut observers = observe.map(|arguments| Server::spawn(dir, &arguments.split(' ').collect::<Vec<_>>(), 0));
    for observer in &mut observers {
        observer.wait_for("no");
    }
    assert!(tegmen(dir, put).status.success());
    for observer in &mut observers {
        observer.wait_for("yes");
        assert!(observer.process.wait().unwrap().success());
    }
}

#[test]
fn observers_in_clear_permit_notifications_to_a_group() {
    let scene = Scene::new("multicast-clear");
    let dir = &scene.0;
    let options = ["--no-secure", "--plain", "--value", "/on=no", "--group-observation"];
    let server = Server::start(dir, &[&options[..], &["coap://239.255.79.4%127.0.0.1:20797/on"]].concat(), 1);
    let uri = format!("coap://{}/on", server.addresses[0]);
    let observe = format!("observe --multicast-in-clear --count 2 {uri}");
    both_get_the_change(dir, [&observe, &observe], &format!("put {uri} yes"));
    let refused = tegmen(dir, &format!("observe --count 1 {uri}"));
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("--multicast-in-clear"), "{}", text(&refused));
}

#[test]
fn members_of_an_oscore_group_get_protected_notifications() {
    let scene = Scene::new("multicast-oscore");
    let dir = &scene.0;
    assert!(tegmen(dir, "oscore new-group lights switch hall porch").status.success());
    let options = ["--oscore", "lights/hall", "--no-secure", "--value", "/on=no", "--group-observation"];
    let server = Server::start(dir, &[&options[..], &["lights=coap://239.255.79.5%127.0.0.1:20798/on"]].concat(), 1);
    let address = server.addresses[0];
    let observe = ["switch", "porch"]
        .map(|member| format!("observe --oscore lights/{member} --member hall --count 2 coap://{address}/on"));
    // The observers use the directories of all other members, so no process is left that could change the value.
    let mut observers = observe.map(|arguments| Server::spawn(dir, &arguments.split(' ').collect::<Vec<_>>(), 0));
    for observer in &mut observers {
        observer.wait_for("no");
    }
    let refused = tegmen(dir, &format!("observe --multicast-in-clear --count 1 coap://{address}/on"));
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    // The end of the server ends the observations.
    server.end();
    for observer in &mut observers {
        assert_eq!(observer.process.wait().unwrap().code(), Some(1));
    }
}

#[test]
fn mistakes_in_the_settings_are_named() {
    let scene = Scene::new("multicast-mistakes");
    for (options, expected) in [
        ("--no-secure --oscore none --group-observation coap://239.255.79.6/on", "it needs --plain"),
        ("--plain --no-secure --group-observation lights=coap://239.255.79.6/on", "it needs --oscore"),
        ("--plain --no-secure --value /of=1 --group-observation coap://239.255.79.6/on", "/on is no resource"),
        ("--plain --no-secure --group-observation coap://10.0.0.7/on", "not a multicast address"),
    ] {
        let output = tegmen(&scene.0, &format!("serve --check-config {options}"));
        assert!(!output.status.success() && text(&output).contains(expected), "{options}: {}", text(&output));
    }
}
