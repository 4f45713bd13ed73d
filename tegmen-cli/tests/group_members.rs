//! Tests members of a group as processes. The members join at the controller of a server. Then a switch sends requests
//! to the lamps over IPv4 multicast.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
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

use commands::{ALL, Operator};
use operator::{SHARED_KEY, furnish, runtime, secret, with_state};
use process::wait;
use serde_json::Value;
use server_files::write_keys;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::group::{Controller, GroupConfig};
use tegmen_control::state::{Credential, NewDevice};
use tegmen_host::digest::sha256;
use tegmen_host::image::ImageId;
use tegmen_host::x509::signer::SignatureScheme;
use tegmen_store::{Database, Options, SealingKey};
use works::{Scene, Server};

const CONTROLLER: &str = "serve --listen 127.0.0.1 --port 0 --store access.db --sealing-key sealing.key --policy policy.toml \
    --audit audit.log --audit-key audit.pem --group-controller controller --group-key group.pem";
const POLICY: &str = r#"[[rule]]
subject = ["tag:display", "lamp"]
publisher = "controller"
allow = "POST /ace-group/lamps"

[[rule]]
subject = ["display", "porch"]
publisher = "controller"
allow = "POST /ace-group/lamps/requester"
"#;

/// The multicast addresses and ports of the groups, one for each test.
const GROUPS: [&str; 4] = ["239.255.78.1:20781", "239.255.78.2:20782", "239.255.78.3:20783", "239.255.78.4:20784"];

/// Writes the files of an operator and of the devices of the group.
fn furnish_group(dir: &Path) {
    furnish(dir);
    let porch = OwnedParty::from_words(["porch", "tag:display"]).unwrap();
    let porch = NewDevice::secret(porch, Credential::SharedKey, &SHARED_KEY).unwrap();
    with_state(dir, async |state| {
        state.add(&porch).await.unwrap();
    });
    std::fs::write(dir.join("policy.toml"), POLICY).unwrap();
    secret(dir, "group.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    for device in ["lamp", "mallory", "porch", "display"] {
        let key = "07".repeat(16);
        secret(dir, &format!("{device}.toml"), &format!("[[psk]]\nidentity = \"{device}\"\nkey = \"{key}\"\n"));
    }
}

/// Creates the group in the store of a server that does not run.
fn create(dir: &Path, group: &str, signature: Option<SignatureScheme>) {
    let key = SealingKey::from_file(&dir.join("sealing.key")).unwrap();
    let options = Options { sealing: Some(Arc::new(key)), ..Options::default() };
    let database = Database::open_with(&dir.join("access.db"), options).unwrap();
    let controller = Controller::new(database, None).unwrap();
    let config = GroupConfig { signature, ..GroupConfig::at(group.parse().unwrap()) };
    runtime().block_on(controller.create("lamps", config, &[])).unwrap();
}

/// Runs a command. Returns its exit code, its output as one JSON object per line, and its text on standard error.
fn tegmen(dir: &Path, arguments: &str) -> (Option<i32>, Vec<Value>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let done = command.args(arguments.split_whitespace()).arg("--json").current_dir(dir).output().unwrap();
    let lines = String::from_utf8(done.stdout).unwrap();
    let objects = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (done.status.code(), objects, String::from_utf8(done.stderr).unwrap())
}

fn lamp(dir: &Path, device: &str, group: &str) -> Server {
    lamp_with(dir, device, group, "--value /light=off")
}

/// Starts a lamp with these resources, and waits until it is a member.
fn lamp_with(dir: &Path, device: &str, group: &str, resources: &str) -> Server {
    let options = format!(
        "serve --no-secure --shards 1 --leisure 0.2 {resources} --member {device} --member-credentials {device}.toml"
    );
    let mut server = Server::spawn(dir, &options.split(' ').collect::<Vec<_>>(), 0);
    server.wait_for(&format!("member of the group lamps at {group}"));
    // It asked its controller whether it missed an epoch while no process heard the messages.
    server.wait_for("group lamps: ");
    server
}

/// Sends a request to the group. Returns the exit code, the members that answered, and the summary, which names the
/// members that did not answer.
fn send((dir, group): (&Path, &str), value: &str, options: &str) -> (Option<i32>, Vec<String>, Value) {
    let command =
        format!("group send coap://{group}/light -m PUT -e {value} --state switch --group-wait 2.5 {options}");
    let (code, mut lines, said) = tegmen(dir, &command);
    let summary = lines.pop().unwrap_or_else(|| panic!("{said}"));
    let mut from: Vec<String> = lines.iter().map(|line| line["from"].as_str().unwrap().to_owned()).collect();
    assert!(lines.iter().all(|line| line["code"] == "2.04"), "{lines:?}");
    from.sort_unstable();
    (code, from, summary)
}

#[test]
fn members_join_answer_restart_and_leave() {
    live("group-members", GROUPS[0], None);
}

#[test]
fn members_with_signatures_join_answer_restart_and_leave() {
    live("group-signed", GROUPS[3], Some(SignatureScheme::ECDSA_SECP256R1_SHA256));
}

fn live(name: &str, group: &str, signature: Option<SignatureScheme>) {
    let scene = Scene::new(name);
    let dir = &scene.0;
    furnish_group(dir);
    create(dir, group, signature);
    let controller = Server::spawn(dir, &CONTROLLER.split_whitespace().collect::<Vec<_>>(), 1);
    let uri = format!("coaps://{}/ace-group/lamps", controller.addresses[0]);
    let join = |device: &str, state: &str, number: u8, options: &str| {
        let command = "group join";
        tegmen(
            dir,
            &format!(
                "{command} {uri} --state {state} --address 127.0.78.{number} --credentials {device}.toml {options}"
            ),
        )
    };
    let (code, joined, said) = join("lamp", "lamp", 1, "");
    assert_eq!(
        (code, &joined[0]["address"], &joined[0]["sender_id"]),
        (Some(0), &"127.0.78.1".into(), &Value::Null),
        "{said}"
    );
    let (code, _, said) = join("lamp", "again", 1, "--send");
    assert!(code == Some(1) && said.contains("the controller does not allow this"), "{said}");
    let (code, _, said) = join("mallory", "mallory", 1, "");
    assert!(code == Some(1) && said.contains("another member has the address"), "{said}");
    assert_eq!(join("mallory", "mallory", 2, "").0, Some(0));
    let (code, joined, said) = join("display", "switch", 9, "--send");
    assert_eq!((code, &joined[0]["sender_id"]), (Some(0), &0.into()), "{said}");

    // Both lamps slept while the switch joined.
    let (first, mut second) = (lamp(dir, "lamp", group), lamp(dir, "mallory", group));
    let (code, from, summary) = send((dir, group), "on", "--credentials display.toml");
    assert_eq!((code, from), (Some(0), vec!["127.0.78.1".to_owned(), "127.0.78.2".to_owned()]), "{summary}");
    assert_eq!(summary["missing"], Value::Array(vec![]));
    second.wait_for("(group lamps) PUT /light: 2.04");

    // One lamp ends like a power cut, and is missing. It starts again without a new admission.
    let (code, _, said) = tegmen(dir, &format!("group send coap://{group}/light --state lamp"));
    assert!(code == Some(2) && said.contains("another process uses this membership"), "{said}");
    drop(first);
    let (code, from, summary) = send((dir, group), "off", "--no-catch-up");
    assert_eq!((code, from, &summary["missing"]), (Some(0), vec!["127.0.78.2".to_owned()], &vec!["127.0.78.1"].into()));
    let first = lamp(dir, "lamp", group);
    let (code, from, _) = send((dir, group), "on", "--no-catch-up");
    assert_eq!((code, from.len()), (Some(0), 2), "the lamp asked for a proof first");

    // It leaves. The other one stops, and nobody answers any more.
    first.end();
    let (code, left, said) = tegmen(dir, "group leave --state lamp --credentials lamp.toml");
    assert_eq!((code, &left[0]["event"]), (Some(0), &"left".into()), "{said}");
    assert!(!dir.join("lamp").exists());
    second.end();
    let (code, from, summary) = send((dir, group), "off", "--credentials display.toml");
    assert_eq!((code, from.len(), summary["missing"].as_array().unwrap().len()), (Some(1), 0, 2));

    // The controller is not there: the request is sent with a warning.
    controller.end();
    let wrong = "group send coap://239.255.78.99/light --state switch --credentials display.toml --handshake-timeout 1";
    let (code, _, said) = tegmen(dir, wrong);
    assert!(code == Some(2) && said.contains("the membership in the group lamps"), "{said}");
    let (code, _, said) = tegmen(dir, &wrong.replace("239.255.78.99", group));
    assert!(code == Some(1) && said.contains("the request is sent in epoch"), "{said}");
}

#[test]
fn members_with_files_of_the_operator_answer_until_they_are_evicted() {
    let scene = Scene::new("group-files");
    let (dir, group) = (&scene.0, GROUPS[1]);
    furnish_group(dir);
    write_keys(dir);
    let options = format!(
        "{CONTROLLER} --group-interface 127.0.0.1 --admin 127.0.0.1:0 --admin-cert admin.pem --admin-cert-key admin.key \
         --bootstrap bootstrap"
    );
    let controller = Server::spawn(dir, &options.split_whitespace().collect::<Vec<_>>(), 2);
    let operator = Operator { dir, server: format!("https://localhost:{}", controller.addresses[1].port()) };
    operator.succeeds("bootstrap", &format!("key create root {ALL} --output root.key"));
    operator.succeeds("root.key", &format!("group create lamps --address {group}"));
    for (device, options) in [("lamp", "127.0.78.1"), ("mallory", "127.0.78.2"), ("display", "127.0.78.9 --send")] {
        let uri = format!("--controller coaps://{}", controller.addresses[0]);
        let add = format!("group add lamps {device} --address {options} {uri} --output {device}.member");
        operator.succeeds("root.key", &add);
    }
    for (device, state) in [("lamp", "lamp"), ("mallory", "mallory"), ("display", "switch")] {
        let file = format!("{device}.member");
        std::fs::copy(dir.join(&file), dir.join("copy.member")).unwrap();
        let (code, joined, said) = tegmen(dir, &format!("group join --file {file} --state {state}"));
        assert_eq!(
            (code, &joined[0]["event"], &joined[0]["group"]),
            (Some(0), &"joined".into(), &"lamps".into()),
            "{said}"
        );
        assert!(!dir.join(&file).exists(), "a second member with its keys would repeat nonces");
        let (code, _, said) = tegmen(dir, &format!("group join --file copy.member --state {state}"));
        assert!(code == Some(2) && said.contains("has a membership already"), "{said}");
    }

    // The file of the lamp is of the epoch 2, and the group is in the epoch 4.
    let (_first, mut second) = (lamp(dir, "lamp", group), lamp(dir, "mallory", group));
    let (code, from, summary) = send((dir, group), "on", "--credentials display.toml");
    assert_eq!((code, from), (Some(0), vec!["127.0.78.1".to_owned(), "127.0.78.2".to_owned()]), "{summary}");
    // A sender without an address uses all of this machine, and the lamps have the port at theirs.
    operator.succeeds("root.key", "group add lamps oven --send --output oven.member");
    assert_eq!(tegmen(dir, "group join --file oven.member --state oven").0, Some(0));
    let (code, _, said) = tegmen(dir, &format!("group send coap://{group}/light --state oven"));
    assert!(code == Some(1) && said.contains("join again with an address that no other member has"), "{said}");
    operator.succeeds("root.key", "group remove lamps mallory");
    second.wait_for("the controller has evicted this member");
    let (code, from, summary) = send((dir, group), "off", "--credentials display.toml");
    assert_eq!((code, from, &summary["missing"]), (Some(0), vec!["127.0.78.1".to_owned()], &vec!["127.0.78.2"].into()));
    let shown = operator.succeeds("root.key", "group show lamps --json");
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["size"], 3);
}

/// A running command that observes a resource of the group.
struct Observing(Server);

impl Observing {
    fn next(&mut self) -> Value {
        let line = self.0.lines.next().expect("the command ended").unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Reads lines up to a line for which `is_it` returns true. Returns the representations up to this line, each with
    /// its member, in sorted order.
    fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Vec<(String, String)> {
        let mut seen = Vec::new();
        loop {
            let line = self.next();
            if line["event"] == "representation" {
                let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
                seen.push((text("from"), text("payload_text")));
            }
            if is_it(&line) {
                seen.sort_unstable();
                return seen;
            }
        }
    }
}

/// A client observes two lamps, one of which joins later. The other lamp is killed and started again, and registers the
/// client again. Then the client cancels the observation.
#[test]
fn lamps_are_observed_over_a_restart_and_an_epoch_until_the_client_cancels() {
    let scene = Scene::new("group-observe");
    let (dir, group) = (&scene.0, GROUPS[3]);
    furnish_group(dir);
    create(dir, group, None);
    let options = format!("{CONTROLLER} --group-interface 127.0.0.1");
    let controller = Server::spawn(dir, &options.split_whitespace().collect::<Vec<_>>(), 1);
    let join = |device: &str, state: &str, number: u8, options: &str| {
        let uri = format!("coaps://{}/ace-group/lamps", controller.addresses[0]);
        let join = format!(
            "group join {uri} --state {state} --address 127.0.78.{number} --credentials {device}.toml {options}"
        );
        let (code, _, said) = tegmen(dir, &join);
        assert_eq!(code, Some(0), "{said}");
    };
    join("lamp", "lamp", 41, "");
    join("porch", "switch", 48, "--send");
    join("display", "watch", 49, "--send");
    let first = lamp(dir, "lamp", group);
    let (code, _, said) = tegmen(dir, &format!("group send coap://{group}/light --observe -m PUT --state watch"));
    assert!(code == Some(2) && said.contains("only GET and FETCH register"), "{said}");
    let observe = format!(
        "group send coap://{group}/light --observe --alive 3 --group-wait 1.5 --state watch --credentials display.toml --json"
    );
    let mut observing = Observing(Server::spawn(dir, &observe.split(' ').collect::<Vec<_>>(), 0));
    let answered = |members: &'static [&str]| {
        move |line: &Value| line["event"] == "registered" && line["answered"] == Value::from(members)
    };
    let pair = |number: u8, value: &str| (format!("127.0.78.{number}"), value.to_owned());
    assert_eq!(observing.until(answered(&["127.0.78.41"])), [pair(41, "off")]);

    // A lamp joins late: it begins an epoch, and registers the client that it did not know.
    join("mallory", "mallory", 42, "");
    let mut second = lamp(dir, "mallory", group);
    let both: &[&str] = &["127.0.78.41", "127.0.78.42"];
    let seen = observing.until(answered(both));
    assert!(seen.contains(&pair(42, "off")), "{seen:?}");
    let (code, ..) = send((dir, group), "on", "--credentials porch.toml");
    assert_eq!(code, Some(0));
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(observing.until(|line| line["event"] == "representation"));
    }
    seen.sort_unstable();
    assert_eq!(seen, [pair(41, "on"), pair(42, "on")]);

    // One lamp ends like a power cut, and is missing. It starts again, asks for a proof, and registers the client again.
    drop(first);
    observing.until(|line| line["event"] == "registered" && line["missing"] == Value::from(&["127.0.78.41"][..]));
    let _first = lamp(dir, "lamp", group);
    let seen = observing.until(answered(both));
    assert_eq!(seen, [pair(41, "off")]);

    // The client cancels. The last request is the one that deregisters.
    let Observing(mut server) = observing;
    let told = Command::new("kill").args(["-INT", &server.process.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    second.wait_for("(group lamps) GET /light: 2.05");
}

/// A running command that sends an image to the group.
struct Sending {
    process: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Sending {
    fn start(dir: &Path, file: &str) -> Self {
        let group = GROUPS[2];
        let command = format!(
            "group send-image coap://{group}/firmware --file {file} --state switch --group-wait 2.5 --interval 4 \
             --no-catch-up --json"
        );
        let mut process = Command::new(env!("CARGO_BIN_EXE_tegmen"))
            .args(command.split_whitespace())
            .current_dir(dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn next(&mut self) -> Option<Value> {
        self.lines.next().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
    }

    /// Reads the output up to its end. Returns the exit code, all lines except the last, and the last line, which is
    /// the summary.
    fn end(mut self) -> (Option<i32>, Vec<Value>, Value) {
        let mut lines: Vec<_> = std::iter::from_fn(|| self.next()).collect();
        let summary = lines.pop().unwrap();
        (self.process.wait().unwrap().code(), lines, summary)
    }
}

/// Returns the bytes of an image. Each block has other bytes.
fn firmware(version: u32) -> Vec<u8> {
    (0..400_000_u32).map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(version) >> 13) as u8).collect()
}

/// Three lamps get a firmware image. One lamp is killed while it receives the image, and gets the missing blocks after
/// its restart.
#[test]
fn an_image_comes_to_all_members_and_blocks_that_were_missed_are_sent_again() {
    let scene = Scene::new("group-image");
    let dir = &scene.0;
    furnish_group(dir);
    create(dir, GROUPS[2], None);
    let controller = Server::spawn(dir, &CONTROLLER.split_whitespace().collect::<Vec<_>>(), 1);
    let uri = format!("coaps://{}/ace-group/lamps", controller.addresses[0]);
    for (device, state, number, options) in [
        ("lamp", "lamp", 21, ""),
        ("mallory", "mallory", 22, ""),
        ("porch", "porch", 23, ""),
        ("display", "switch", 29, "--send"),
    ] {
        let join = format!(
            "group join {uri} --state {state} --address 127.0.78.{number} --credentials {device}.toml {options}"
        );
        let (code, _, said) = tegmen(dir, &join);
        assert_eq!(code, Some(0), "{said}");
    }
    let start =
        |device: &str| lamp_with(dir, device, GROUPS[2], &format!("--image /firmware={device}.bin --image-max 500000"));
    let image = firmware(1);
    std::fs::write(dir.join("fw.bin"), &image).unwrap();
    std::fs::write(dir.join("lamp.bin"), b"old").unwrap();
    let (first, mut second, third) = (start("lamp"), start("mallory"), start("porch"));

    // The first lamp ends when its first blocks are on its disk, and misses others until it is there again.
    let mut sending = Sending::start(dir, "fw.bin");
    let round = std::iter::from_fn(|| sending.next()).find(|line| line["event"] == "round").unwrap();
    assert_eq!((&round["round"], &round["blocks"]), (&1.into(), &391.into()));
    wait("first block", || dir.join(".lamp.bin.part").exists().then_some(()));
    std::thread::sleep(Duration::from_millis(100));
    drop(first);
    assert_eq!(std::fs::read(dir.join("lamp.bin")).unwrap(), b"old", "no part of the image is seen");
    let first = start("lamp");
    let (code, lines, summary) = sending.end();
    let of = |member: &str, state: &str| {
        let is_it = |line: &&Value| line["from"] == member && line["state"] == state;
        lines.iter().find(is_it).unwrap_or_else(|| panic!("{member} {state}: {lines:?}")).clone()
    };
    assert_eq!(
        (code, &summary["incomplete"], &summary["missing"]),
        (Some(0), &Value::Array(vec![]), &Value::Array(vec![]))
    );
    assert_eq!(summary["complete"], Value::from(vec!["127.0.78.21", "127.0.78.22", "127.0.78.23"]));
    let lacked = of("127.0.78.21", "lacks")["detail"].as_u64().unwrap();
    assert!(
        (1..400_000).contains(&lacked),
        "it has the blocks from before the restart, and lacks later ones: {lines:?}"
    );
    let again = lines.iter().find(|line| line["event"] == "round").unwrap()["blocks"].as_u64().unwrap();
    assert!((1..391).contains(&again), "only blocks that are missing are sent again: {lines:?}");
    for device in ["lamp", "mallory", "porch"] {
        assert!(std::fs::read(dir.join(format!("{device}.bin"))).unwrap() == image, "{device}");
        assert!(!dir.join(format!(".{device}.bin.part")).exists());
    }
    second.wait_for("(group lamps) PUT /firmware: 2.04");

    // All have it: nothing is sent.
    let (code, lines, _) = Sending::start(dir, "fw.bin").end();
    assert!(code == Some(0) && lines.iter().all(|line| line["state"] == "complete") && lines.len() == 3, "{lines:?}");

    // The next version, while a lamp is off. Then the lamp gets it, too.
    std::fs::write(dir.join("next.bin"), firmware(2)).unwrap();
    drop(third);
    let (code, _, summary) = Sending::start(dir, "next.bin").end();
    assert_eq!((code, &summary["missing"]), (Some(1), &vec!["127.0.78.23"].into()), "{summary}");
    assert_eq!(summary["complete"], Value::from(vec!["127.0.78.21", "127.0.78.22"]));
    let third = start("porch");
    let (code, _, summary) = Sending::start(dir, "next.bin").end();
    assert_eq!((code, summary["complete"].as_array().unwrap().len()), (Some(0), 3), "{summary}");
    assert!(std::fs::read(dir.join("porch.bin")).unwrap() == firmware(2));

    // One that is too long is refused by all, and nothing of it is kept.
    std::fs::write(dir.join("long.bin"), vec![7; 500_001]).unwrap();
    let (code, lines, summary) = Sending::start(dir, "long.bin").end();
    assert_eq!((code, summary["incomplete"].as_array().unwrap().len()), (Some(1), 3));
    assert!(lines.iter().all(|line| line["state"] == "too-large"), "{lines:?}");
    for server in [first, second, third] {
        server.end();
    }
}

/// One client reads and replaces the file of an image resource. If the query of a request contains the name of the
/// image, the server verifies the digest of the image before it replaces the file.
#[test]
fn an_image_is_a_file_for_one_client() {
    let scene = Scene::new("one-image");
    let dir = &scene.0;
    let server = Server::start(dir, &["--no-secure", "--plain", "--shards", "1", "--image", "/firmware=fw"], 1);
    let uri = format!("coap://{}/firmware", server.addresses[0]);
    let image = firmware(3);
    std::fs::write(dir.join("fw.bin"), &image).unwrap();
    let is_served = |content: &[u8]| {
        let (code, _, said) = tegmen(dir, &format!("get {uri} --output back"));
        assert_eq!(code, Some(0), "{said}");
        std::fs::read(dir.join("back")).unwrap() == content && std::fs::read(dir.join("fw")).unwrap() == content
    };
    assert_eq!(tegmen(dir, &format!("put {uri} --file fw.bin")).0, Some(0));
    assert!(is_served(&image));
    // The same, with the name of the image: the digest is verified before the file is replaced.
    let next = firmware(4);
    std::fs::write(dir.join("fw.bin"), &next).unwrap();
    let named = |bytes: &[u8]| format!("put {uri}?{} --file fw.bin", ImageId::new(&sha256(bytes), 400_000).argument());
    let (code, lines, said) = tegmen(dir, &named(b"another image"));
    assert!(code == Some(1) && lines[0]["code"] == "4.22", "{lines:?} {said}");
    assert!(is_served(&image));
    let (code, _, said) = tegmen(dir, &named(&next));
    assert_eq!(code, Some(0), "{said}");
    assert!(is_served(&next));
    server.end();
}
