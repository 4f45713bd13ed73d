//! Tests a Group OSCORE group with processes: the Group Manager is a server with a store, and the members join it, talk
//! over IPv4 multicast, follow its new keys, and refuse a member that it evicted.
#![cfg(target_os = "linux")]

#[path = "works/commands.rs"]
mod commands;
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
use operator::secret;
use process::wait;
use serde_json::Value;
use server_files::write_keys;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use works::{Scene, Server};

const POLICY: &str = r#"[[rule]]
subject = ["switch", "attic", "hall", "porch", "display"]
publisher = "controller"
allow = "POST /ace-group/lights"

[[rule]]
subject = ["switch", "attic"]
publisher = "controller"
allow = "POST /ace-group/lights/requester"

[[rule]]
subject = ["hall", "porch"]
publisher = "controller"
allow = "POST /ace-group/lights/responder"

[[rule]]
subject = "gateway"
publisher = "controller"
allow = "POST /ace-group/lights/verifier"
"#;
const GROUP: &str = "239.255.79.1%127.0.0.1";
const PORT: &str = "20793";
/// The multicast address of messages that a test captures.
const CAPTURED: &str = "239.255.79.2";
const HALL: &str = "127.0.0.2";
const PORCH: &str = "127.0.0.3";
/// The address of a monitor.
const DISPLAY: &str = "127.0.0.4";

/// Starts the Group Manager at this port of 127.0.0.1.
fn manager<'s>(scene: &'s Scene, port: &str) -> (Server, Operator<'s>) {
    let listen = ["serve", "--listen", "127.0.0.1", "--port", port, "--plain-port", "0"];
    let options = format!("{OPTIONS} --group-controller controller --policy policy.toml");
    let options: Vec<&str> = listen.into_iter().chain(options.split(' ')).collect();
    let server = Server::spawn(&scene.0, &options, 2);
    let operator = Operator { dir: &scene.0, server: format!("https://localhost:{}", server.addresses[1].port()) };
    (server, operator)
}

/// Starts a lamp at this address.
fn lamp(dir: &Path, name: &str, address: &str) -> Server {
    let credentials = format!("{name}.toml");
    let options = ["--no-secure", "--value", "/on=no", "--leisure", "1", "--plain-port", PORT, "--group", GROUP];
    let own = ["serve", "--oscore", name, "--member-credentials", &credentials, "--listen", address];
    Server::spawn(dir, &[own.as_slice(), &options].concat(), 1)
}

/// Runs `tegmen` with these arguments. Returns its exit code, and its output.
fn run(dir: &Path, arguments: &str) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments.split_whitespace()).current_dir(dir).output();
    let output = output.unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.code(), text)
}

/// Runs `tegmen` with these arguments. Returns true if it succeeds, and its output.
fn tegmen(dir: &Path, arguments: &str) -> (bool, String) {
    let (code, text) = run(dir, arguments);
    (code == Some(0), text)
}

fn succeeds(dir: &Path, arguments: &str) -> String {
    let (is_done, text) = tegmen(dir, arguments);
    assert!(is_done, "{arguments}: {text}");
    text
}

/// Sends a request in the group mode.
fn put(dir: &Path, member: &str, value: &str) {
    tegmen(dir, &format!("put --oscore {member} --group-wait 2 coap://{GROUP}:{PORT}/on {value}"));
}

/// Returns the value of a lamp, in the pairwise mode.
fn get(dir: &Path, member: &str, (lamp, address): (&str, &str)) -> Option<String> {
    let (is_done, text) = tegmen(dir, &format!("get --oscore {member} --member {lamp} coap://{address}:{PORT}/on"));
    is_done.then_some(text)
}

/// Sends a request in the group mode until both lamps have the value. The first request of a member under new keys is
/// answered with a challenge.
fn switches(dir: &Path, member: &str, value: &str) {
    wait(value, || {
        put(dir, member, value);
        let has_it = |lamp| get(dir, member, lamp).is_some_and(|text| text.trim() == value);
        (has_it(("hall", HALL)) && has_it(("porch", PORCH))).then_some(())
    });
}

/// Starts the Group Manager, and adds these devices. The credentials of a device are in a file with its name.
fn manager_with<'s>(scene: &'s Scene, devices: &[&str]) -> (Server, Operator<'s>) {
    let dir = &scene.0;
    write_keys(dir);
    std::fs::write(dir.join("policy.toml"), POLICY).unwrap();
    secret(dir, "device.key", &"07".repeat(16));
    let (server, operator) = manager(scene, "0");
    operator.succeeds("bootstrap", &format!("key create root {ALL} --output root.key"));
    for device in devices {
        operator.succeeds("root.key", &format!("device add {device} --kind shared-key --secret-file device.key"));
        let key = "07".repeat(16);
        secret(dir, &format!("{device}.toml"), &format!("[[psk]]\nidentity = \"{device}\"\nkey = \"{key}\"\n"));
    }
    (server, operator)
}

/// Sends a request in the group mode to the multicast address that `socket` receives. Returns the datagram in
/// hexadecimal digits.
fn captured(dir: &Path, socket: &UdpSocket, value: &str) -> String {
    let port = socket.local_addr().unwrap().port();
    tegmen(dir, &format!("put --oscore switch --group-wait 0.2 coap://{CAPTURED}%127.0.0.1:{port}/on {value}"));
    let mut datagram = [0; 1500];
    let len = socket.recv(&mut datagram).unwrap();
    datagram[..len].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_gateway_verifies_captured_messages_and_is_no_member() {
    let scene = Scene::new("oscore-verifier");
    let dir = &scene.0;
    let (server, operator) = manager_with(&scene, &["switch", "hall", "gateway"]);
    operator.succeeds("root.key", "group create lights --oscore --address 239.255.79.1:20793");
    let uri = format!("coaps://127.0.0.1:{}/ace-group/lights", server.addresses[0].port());
    let join = |name: &str, roles: &str| {
        format!("group join {uri} --group-oscore --state {name} --credentials {name}.toml {roles}")
    };
    succeeds(dir, &join("switch", "--send --no-listen"));
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.join_multicast_v4(&CAPTURED.parse().unwrap(), &Ipv4Addr::LOCALHOST).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (code, silent) = run(dir, &format!("put --oscore switch --group-wait 0.1 coap://{CAPTURED}%127.0.0.1/on zero"));
    assert!(code == Some(1) && silent.contains("has no other member of the group"), "{silent}");
    let messages = [captured(dir, &socket, "one"), captured(dir, &socket, "two")];
    let verify = |messages: &[String], options: &str| {
        std::fs::write(dir.join("messages.txt"), messages.join("\n")).unwrap();
        tegmen(dir, &format!("group verify {uri} --file messages.txt --credentials gateway.toml {options}"))
    };
    let (is_done, text) = verify(&messages, "");
    assert!(is_done && text.contains("members that sign messages: 1."), "{text}");
    for number in 1..=2 {
        let line = format!("{number}: request of switch, Sender ID 00: the signature is valid");
        assert!(text.lines().any(|found| found == line), "{text}");
    }
    let mut forged = messages.clone();
    let last = forged[0].pop().unwrap();
    forged[0].push(if last == '0' { '1' } else { '0' });
    let (is_done, text) = verify(&forged, "--json");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!is_done, "one message is not verified: {text}");
    let results: Vec<_> = lines.iter().filter_map(|line| line["verified"].as_bool()).collect();
    assert_eq!(results, [false, true], "{text}");
    assert_eq!((&lines[2]["member"], &lines[2]["sender_id"]), (&"switch".into(), &"00".into()));
    let (is_done, text) = verify(&["no digits".to_owned()], "");
    assert!(!is_done && text.contains("message 1 is not in hexadecimal digits"), "{text}");
    let (is_done, text) = verify(&["0".repeat(140_000)], "");
    assert!(!is_done && text.contains("message 1 is longer than a datagram"), "{text}");

    // The gateway joins nothing, a member verifies nothing, and the verifier has no keys of an earlier epoch.
    let (is_done, refused) = tegmen(dir, &join("gateway", "--monitor"));
    assert!(!is_done && refused.contains("the policy does not allow"), "{refused}");
    let (is_done, refused) = tegmen(dir, &format!("group verify {uri} --file messages.txt --credentials switch.toml"));
    assert!(!is_done && refused.contains("there is no group lights, this device is a member of it, or"), "{refused}");
    succeeds(dir, &join("hall", ""));
    let (is_done, text) = verify(&messages, "");
    assert!(!is_done && text.contains("1: not verified: it is of another group, or of other keys"), "{text}");
}

#[test]
fn members_join_talk_follow_the_group_manager_and_refuse_an_evicted_member() {
    let scene = Scene::new("oscore-groups");
    let dir = &scene.0;
    let (server, operator) = manager_with(&scene, &["switch", "attic", "hall", "porch", "display"]);
    let created = operator.succeeds("root.key", "group create lights --oscore --address 239.255.79.1:20793");
    assert!(created.contains("Group OSCORE ccm-8 signatures ed25519 Group Identifier"), "{created}");

    let port = server.addresses[0].port().to_string();
    let uri = format!("coaps://127.0.0.1:{port}/ace-group/lights");
    let join = |name: &str, roles: &str| {
        tegmen(dir, &format!("group join {uri} --group-oscore --state {name} --credentials {name}.toml {roles}"))
    };
    let (code, refused) =
        run(dir, &format!("group join coaps://127.0.0.1:{port}/ace-group/lights --state hall --oscore hall"));
    assert!(code == Some(2) && refused.contains("not supported"), "{refused}");
    let (code, refused) = run(dir, "group update --state nosuch --credentials hall.toml");
    assert!(code == Some(2) && refused.contains("tegmen group join --group-oscore"), "{refused}");
    let (is_done, refused) = join("hall", "--send");
    assert!(!is_done && refused.contains("the policy does not allow"), "{refused}");
    let (is_done, refused) = tegmen(dir, &format!("group join {uri} --state hall --credentials hall.toml"));
    assert!(!is_done && refused.contains("with --group-oscore, or without it"), "{refused}");
    // The hall observes the group, and the Group Manager sends requests to the porch.
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let of_porch = format!("--control-port {free}");
    for (name, roles) in
        [("hall", ""), ("porch", &of_porch), ("switch", "--send --no-listen"), ("attic", "--send --no-listen")]
    {
        let (is_done, joined) = join(name, roles);
        assert!(is_done && joined.contains("Member of the Group OSCORE group lights"), "{joined}");
    }
    let (is_done, joined) = join("display", "--monitor");
    assert!(is_done && joined.trim_end().ends_with(", monitor."), "{joined}");
    assert!(succeeds(dir, "oscore show display").contains("sender_id     none (monitor)"));
    let (is_done, refused) = tegmen(dir, &format!("put --oscore display coap://{GROUP}:{PORT}/on none"));
    assert!(!is_done && refused.contains("this member is a monitor"), "{refused}");
    let shown = operator.succeeds("root.key", "group show lights");
    assert!(
        shown.contains("hall: responder, Sender ID 00,") && shown.contains("attic: requester, Sender ID 03,"),
        "{shown}"
    );
    let mut lamps = [lamp(dir, "hall", HALL), lamp(dir, "porch", PORCH)];
    let mut display = lamp(dir, "display", DISPLAY);
    // The hall missed the joins of the others. The porch missed those of the switch and of the attic.
    lamps.iter_mut().for_each(|lamp| lamp.wait_for("new keys"));

    let update = |name: &str| tegmen(dir, &format!("group update --state {name} --credentials {name}.toml"));
    assert!(update("switch").0);
    let (_, asked) = tegmen(dir, &format!("put --oscore switch --group-wait 2 coap://{GROUP}:{PORT}/on zero"));
    assert!(asked.contains("hall") && asked.contains("porch") && !asked.contains("display"), "{asked}");
    // The monitor processes the first request of a member under new keys at once, and answers nothing.
    display.wait_for("(lights/switch) PUT /on: 2.04");
    switches(dir, "switch", "one");
    operator.succeeds("root.key", "group rekey lights");
    // The rekeying message comes before any message under the new keys.
    lamps.iter_mut().for_each(|lamp| lamp.wait_for("new keys"));
    display.wait_for("new keys");
    assert!(update("switch").0);
    switches(dir, "switch", "two");
    display.wait_for("(lights/switch) PUT /on: 2.04");

    operator.succeeds("root.key", "group remove lights switch");
    operator.fails("root.key", "group remove lights switch", 1, "(unknown-member)");
    lamps.iter_mut().for_each(|lamp| lamp.wait_for("new keys"));
    let (is_done, evicted) = update("switch");
    assert!(!is_done && evicted.contains("does not know this member"), "{evicted}");
    assert!(update("attic").0);
    switches(dir, "attic", "three");
    put(dir, "switch", "four");
    for lamp in [("hall", HALL), ("porch", PORCH)] {
        assert_eq!(get(dir, "switch", lamp), None, "the evicted member gets no answer");
        assert_eq!(get(dir, "attic", lamp).as_deref().map(str::trim), Some("three"), "its request is refused");
    }

    // The Group Manager is killed, and starts again.
    let epoch = |operator: &Operator<'_>| {
        let shown: Value = serde_json::from_str(&operator.succeeds("root.key", "group show lights --json")).unwrap();
        (shown["epoch"].clone(), shown["gid"].clone())
    };
    let before = epoch(&operator);
    drop(server);
    let (_server, operator) = manager(&scene, &port);
    assert_eq!(epoch(&operator), before);
    operator.succeeds("root.key", "group rekey lights");
    assert_ne!(epoch(&operator).1, before.1);
    assert!(update("attic").0);
    switches(dir, "attic", "five");

    // The attic gets another key pair, and keeps its Sender ID. A running server keeps its key pair.
    let renewed = succeeds(dir, "group renew-key --state attic --credentials attic.toml");
    assert!(renewed.contains("New key pair of the Group OSCORE group lights") && renewed.contains("Sender ID 03"));
    switches(dir, "attic", "six");
    let (code, refused) = run(dir, "group renew-key --state hall --credentials hall.toml");
    assert!(code == Some(2) && refused.contains("another process"), "{refused}");
    drop(display);
    let (code, refused) = run(dir, "group renew-key --state display --credentials display.toml");
    assert!(code == Some(2) && refused.contains("this member is a monitor"), "{refused}");
    // It was killed, so it does not know which requests of this epoch are new.
    lamp(dir, "display", DISPLAY).wait_for("`tegmen group rekey lights`");
    let file = dir.join("attic/context.toml");
    let context = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, context.replace("roles = 2\n", "")).unwrap();
    let (code, refused) = run(dir, "group renew-key --state attic --credentials attic.toml");
    assert!(code == Some(2) && refused.contains("does not contain the roles"), "{refused}");
    succeeds(dir, "group leave --state attic --credentials attic.toml");
    assert!(!dir.join("attic/context.toml").exists());
    let mut joins = (0..5).map(|_| join("attic", "--send --no-listen"));
    let (_, refused) = joins.find(|(is_done, _)| !is_done).expect("it joins too often");
    assert!(refused.contains("(4.29)") && refused.contains("run the command again in"), "{refused}");
}
