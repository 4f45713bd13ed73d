//! Groups whose files `tegmen oscore new-group` made. aiocoap uses the files of one member, and `tegmen serve` and
//! `tegmen get` use the files of the other member.

use super::{Protection, name_of};
use crate::cell::{Check, LOOPBACK, Scene, free_port};
use crate::ours::{ask, start_ask};
use crate::peers::Built;
use crate::process::Process;
use serde_json::{Value, json};
use std::path::Path;
use tegmen::crypto::Curve;

/// Makes a group of the members `ours` and `theirs`. Returns the path of a file that describes the group for aiocoap.
fn new_group(scene: &Scene, (curve, aead, group): Protection) -> Result<std::path::PathBuf, String> {
    let word = if curve == Curve::Ed25519 { "ed25519" } else { "p256" };
    let mut made = scene.tegmen(&["oscore", "new-group", "lights", "ours", "theirs", "--curve", word])?;
    made.await_end()?;
    let read = |name: &str| {
        let file = scene.directory().join("lights").join(name).join("context.toml");
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    };
    let (ours, theirs) = (read("ours")?, read("theirs")?);
    // The keys of the member itself come before those of the others.
    let text = |file: &str, key: &str| {
        let value = file.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
        value.unwrap_or_default().to_owned()
    };
    let member = |file: &str| json!({ "credential": text(file, "credential"), "private": text(file, "private_key") });
    let (us, other) = (text(&theirs, "sender_id"), text(&ours, "sender_id"));
    let shared = "09";
    let mut members = serde_json::Map::new();
    for (id, keys) in [(&us, member(&theirs)), (&other, member(&ours)), (&shared.to_owned(), json!({}))] {
        members.insert(id.clone(), keys);
    }
    let known: Value = json!({
        "group": {
            "curve": if curve == Curve::Ed25519 { "Ed25519" } else { "P-256" },
            "aead": name_of(aead), "group_encryption": name_of(group), "gid": text(&ours, "group_id"),
            "master_secret": text(&ours, "master_secret"), "master_salt": text(&ours, "master_salt"),
            "group_manager_credential": text(&ours, "group_manager_credential"),
        },
        "members": members, "us": us, "other": other, "deterministic": shared,
    });
    scene.file("group-commands.json", known.to_string())
}

fn start(scene: &Scene, peer: &Built, role: &str, group: &Path, words: &[&str]) -> Result<Process, String> {
    let mut command = peer.command()?;
    command.arg(role).arg(group).args(words);
    scene.start_command(command)
}

/// Checks requests of aiocoap to `tegmen serve` in the group mode and in the pairwise mode of Group OSCORE.
pub(super) fn answers(scene: &Scene, peer: &Built, protection: Protection) -> Check {
    let (group, port) = (new_group(scene, protection)?, free_port()?.to_string());
    let words = ["serve", "--oscore", "lights/ours", "--no-secure", "--listen", "127.0.0.1", "--plain-port", &port];
    let server = scene.tegmen(&[&words[..], &["--value", "/v=hello"]].concat())?;
    server.await_output("listening", 0)?;
    let uri = format!("coap://{LOOPBACK}:{port}/v");
    for (mode, words, expected) in [
        ("pairwise", vec!["get", &uri], "2.05 hello"),
        ("group", vec!["get", &uri], "2.05 hello"),
        ("pairwise", vec!["put", &uri, "new"], "2.04 "),
        ("group", vec!["put", &uri, "newer"], "2.04 "),
        ("group", vec!["get", &uri], "2.05 newer"),
    ] {
        let mut client = start(scene, peer, "client", &group, &[&[mode], words.as_slice()].concat())?;
        client.await_output(expected, 0)?;
        client.await_end()?;
    }
    server.await_output("(lights/theirs) PUT /v: 2.04", 0)?;
    // A client that is no member.
    let refused = ask(scene, &["get", &uri], None)?;
    if refused.code != "4.01" {
        return Err(format!("{} for a request in clear", refused.code).into());
    }
    Ok(())
}

/// Checks requests of `tegmen get` and `tegmen put` to aiocoap in the pairwise mode.
pub(super) fn asks(scene: &Scene, peer: &Built, protection: Protection) -> Check {
    let (group, port) = (new_group(scene, protection)?, free_port()?.to_string());
    let server = start(scene, peer, "server", &group, &["127.0.0.1", &port, "pairwise"])?;
    server.await_output("listening", 0)?;
    let uri = format!("coap://{LOOPBACK}:{port}/v");
    let ours = ["--oscore", "lights/ours"];
    for (words, code, payload) in [
        (vec!["get", &uri], "2.05", "hello"),
        (vec!["put", &uri, "new"], "2.04", ""),
        (vec!["get", &uri, "--member", "theirs"], "2.05", "new"),
    ] {
        let answer = ask(scene, &[words.as_slice(), &ours].concat(), None)?;
        if (answer.code.as_str(), answer.payload.as_str()) != (code, payload) {
            return Err(format!("{} {:?} instead of {code} {payload:?}", answer.code, answer.payload).into());
        }
    }
    let failure = start_ask(scene, &["get", &uri, "--oscore", "lights/ours", "--member", "cellar"], None)?.failure()?;
    if !failure.contains("the group has no member cellar") {
        return Err(failure.into());
    }
    Ok(())
}
