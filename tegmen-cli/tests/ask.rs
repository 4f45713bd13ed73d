//! `tegmen get` and its like: what they show of a server.
#![cfg(unix)]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::process::{Command, Output};
use works::{Scene, Server};

fn tegmen(scene: &Scene, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments).current_dir(&scene.0).output().unwrap()
}

/// The exit code, and what was said on standard error.
fn outcome(scene: &Scene, arguments: &[&str]) -> (i32, String) {
    let output = tegmen(scene, arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_body_of_the_longest_size_is_taken_on_any_number_of_cores() {
    let scene = Scene::new("ask-cores");
    let options = ["--value", "/v=1", "--plain", "--no-secure", "--quiet", "--shards", "64"];
    let server = Server::start(&scene.0, &options, 1);
    std::fs::write(scene.0.join("body"), vec![b'x'; 1 << 20]).unwrap();
    let uri = format!("coap://{}/v", server.addresses[0]);
    assert_eq!(outcome(&scene, &["put", &uri, "--file", "body"]), (0, "2.04 Changed\n".to_owned()));
}
