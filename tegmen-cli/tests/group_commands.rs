//! Tests the commands of an operator for the groups of a server.
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
use std::io::BufRead as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use tegmen_host::group::member_file::MemberFile;
use works::{Scene, Server};

/// Starts a server with these further options and some devices. Its first API key is in the file root.key.
fn server<'s>(scene: &'s Scene, further: &str) -> (Server, Operator<'s>) {
    write_keys(&scene.0);
    secret(&scene.0, "group.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    secret(&scene.0, "device.key", &"07".repeat(16));
    let server = Server::start(&scene.0, &OPTIONS.split(' ').chain(further.split(' ')).collect::<Vec<_>>(), 2);
    let operator = Operator { dir: &scene.0, server: format!("https://localhost:{}", server.addresses[1].port()) };
    operator.succeeds("bootstrap", &format!("key create root {ALL} --output root.key"));
    for device in ["switch", "hall", "porch", "attic"] {
        operator.succeeds("root.key", &format!("device add {device} --kind shared-key --secret-file device.key"));
    }
    (server, operator)
}

const GROUPS: &str = "--group-controller controller --group-key group.pem";

fn member(dir: &Path, file: &str) -> MemberFile {
    MemberFile::open(&dir.join(file)).unwrap()
}

#[test]
fn an_operator_provisions_members_and_evicts_them() {
    let scene = Scene::new("group-commands");
    let (_server, operator) = server(&scene, GROUPS);
    let created = operator.succeeds(
        "root.key",
        "group create lamps --address [ff15::1]:5684 --levels 3 --senders 1 --sender switch --listener hall=fd00::1 \
         --controller coaps://controller.example --output-dir members",
    );
    assert!(
        created.contains("lamps: epoch 1, 65534 more epochs") && created.contains("  hall: at fd00::1, leaf 9"),
        "{created}"
    );
    assert!(created.contains("warning: all 1 SenderIDs"), "{created}");
    let (switch, hall) = (member(&scene.0, "members/switch.member"), member(&scene.0, "members/hall.member"));
    assert_eq!((switch.keys.epoch, switch.keys.sender_id, hall.keys.sender_id), (1, Some(0), None));
    assert_eq!(hall.controller.as_deref(), Some("coaps://controller.example/ace-group/lamps"));

    let add = "group add lamps porch --address fd00::2 --output porch.member";
    let added = operator.succeeds("root.key", add);
    assert!(added.contains("Added to lamps in the epoch 2: porch: at fd00::2, leaf 10, since epoch 2"), "{added}");
    assert!(added.contains("without --controller"), "{added}");
    assert_eq!(member(&scene.0, "porch.member").keys.epoch, 2);
    assert_eq!(scene.0.join("porch.member").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let keys = std::fs::read(scene.0.join("porch.member")).unwrap();
    operator.fails("root.key", add, 2, "porch.member exists");
    operator.fails("root.key", "group add lamps porch --address fd00::2 --output other.member", 1, "(name-taken)");
    operator.fails("root.key", "group add lamps attic --address fd00::2 --output other.member", 1, "(address-taken)");
    operator.fails("root.key", "group add lamps attic --address 10.0.0.2 --output other.member", 1, "same family");
    operator.fails("root.key", "group add lamps attic --send --output other.member", 1, "(no-sender-id)");
    operator.fails("root.key", "group add lamps attic --output other.member", 2, "--address");
    let unknown = "cellar is no device of this server";
    operator.fails("root.key", "group add lamps cellar --address fd00::3 --output other.member", 1, unknown);
    operator.fails("root.key", "group add lamps cellar --send --output other.member", 1, "tegmen device add cellar");
    operator.fails("root.key", "group add lights attic --send --output other.member", 1, "(unknown-group)");
    assert!(!scene.0.join("other.member").exists());
    assert_eq!(std::fs::read(scene.0.join("porch.member")).unwrap(), keys);

    let shown = operator.succeeds("root.key", "group show lamps");
    assert!(shown.contains("[ff15::1]:5684 ccm GroupID 1, 3 of 8 members, 1 of 1 SenderIDs"), "{shown}");
    assert!(shown.contains("  switch: SenderID 0, leaf 8, since epoch 1"), "{shown}");
    let (code, removed) = operator.run("root.key", "group remove lamps switch nobody hall");
    assert!(code == 1 && removed.contains("(unknown-member)"), "{removed}");
    assert!(removed.contains("Evicted switch from lamps, which is in the epoch 3."), "{removed}");
    assert!(removed.contains("Evicted hall from lamps, which is in the epoch 4."), "the others are evicted: {removed}");
    assert_eq!(operator.succeeds("root.key", "group rekey lamps"), "The group lamps is in the epoch 5.\n");
    let shown: Value = serde_json::from_str(&operator.succeeds("root.key", "group show lamps --json")).unwrap();
    assert_eq!(
        (&shown["epoch"], &shown["members"][0]["name"], &shown["size"]),
        (&5.into(), &"porch".into(), &1.into())
    );
    assert_eq!(operator.succeeds("root.key", "group list"), "lamps: epoch 5, 65530 more epochs\n");

    operator.succeeds("root.key", "group delete lamps");
    operator.fails("root.key", "group delete lamps", 1, "(unknown-group)");
    operator.fails("root.key", "group rekey lamps", 1, "create it");
    assert_eq!(operator.succeeds("root.key", "group list"), "");
    for line in ["porch was admitted to the group lamps", "switch was evicted", "the group lamps was deleted"] {
        // The line may be written after the answer.
        wait(line, || std::fs::read_to_string(scene.0.join("audit.log")).unwrap().contains(line).then_some(()));
    }
}

#[test]
fn a_group_with_signatures_has_members_that_join_by_themselves() {
    let scene = Scene::new("group-signatures");
    let (_server, operator) = server(&scene, GROUPS);
    let created = operator.succeeds("root.key", "group create lamps --address [ff15::1]:5684 --signature ed25519");
    assert!(created.contains("[ff15::1]:5684 ccm signatures ed25519 GroupID 1"), "{created}");
    let shown: Value = serde_json::from_str(&operator.succeeds("root.key", "group show lamps --json")).unwrap();
    assert_eq!(shown["config"]["signature"], "ed25519");
    let add = "group add lamps hall --address fd00::1 --output hall.member";
    operator.fails("root.key", add, 1, "let the device send its own join request");
    let create = "group create doors --address [ff15::2]:5684 --signature p256 --sender switch --output-dir members";
    operator.fails("root.key", create, 1, "switch has shown no public key");
    assert!(!scene.0.join("hall.member").exists() && !scene.0.join("members/switch.member").exists());
    operator.fails("root.key", "group create doors --address [ff15::2]:5684 --signature rsa", 2, "p256");
}

#[test]
fn a_group_that_is_full_or_near_its_last_epoch_is_told() {
    let scene = Scene::new("group-shortage");
    let (_server, operator) = server(&scene, GROUPS);
    operator.succeeds("root.key", "group create lamps --address [ff15::1]:5684 --levels 1 --last-epoch 9");
    for device in ["hall", "porch"] {
        let added = operator.succeeds("root.key", &format!("group add lamps {device} --send --output {device}.member"));
        assert!(!added.contains("Warning"), "{added}");
    }
    let attic = "group add lamps attic --send --output attic.member";
    operator.fails("root.key", attic, 1, "the group is full; create another group with more levels (group-full)");
    for epoch in 4..=6 {
        let rekeyed = operator.succeeds("root.key", "group rekey lamps");
        assert_eq!(rekeyed, format!("The group lamps is in the epoch {epoch}.\n"));
    }
    assert_eq!(operator.succeeds("root.key", "group list"), "lamps: epoch 6, 3 more epochs\n");
    let few = "the group lamps has 2 more epochs, the last 1 for evictions only: create a new group";
    let evicted = operator.succeeds("root.key", "group remove lamps porch");
    assert!(evicted.contains(&format!("Warning: {few}")), "{evicted}");
    let listed = operator.succeeds("root.key", "group list");
    assert_eq!(listed, format!("lamps: epoch 7, 2 more epochs\n  warning: {few}\n"));
    let shown = operator.succeeds("root.key", "group show lamps");
    assert!(shown.contains(&format!("  warning: {few}")), "{shown}");
    operator.succeeds("root.key", "group rekey lamps");
    operator.fails("root.key", "group rekey lamps", 1, "create a new group (no-epoch-left)");
    operator.fails("root.key", attic, 1, "create a new group (no-epoch-left)");
    assert!(!scene.0.join("attic.member").exists());
    // The last epoch is for an eviction.
    operator.succeeds("root.key", "group remove lamps hall");
    let (code, listed) = operator.run("root.key", "group list --json");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((code, &listed["epoch"], &listed["epochs_left"]), (0, &9.into(), &0.into()));
}

#[test]
fn mistakes_of_an_operator_are_named_before_anything_is_created() {
    let scene = Scene::new("group-mistakes");
    let (_server, operator) = server(&scene, GROUPS);
    let create = "group create lamps --address [ff15::1]:5684";
    operator.fails("root.key", &format!("{create} --listener hall --output-dir members"), 2, "NAME=IP");
    operator.fails("root.key", &format!("{create} --sender hall"), 2, "--output-dir");
    operator.fails("root.key", &format!("{create} --sender ../hall --output-dir members"), 2, "no name of a file");
    operator.fails("root.key", &format!("{create} --levels 24"), 2, "24");
    operator.fails("root.key", &format!("{create} --group-id 0"), 2, "1..=255");
    operator.fails("root.key", "group create lamps --address 10.0.0.1:5684", 1, "multicast");
    operator.fails("root.key", "group create lamps --address ff15::1", 2, "a multicast address with a port");
    operator.fails("none.key", "group list", 2, "there is no file none.key: correct the path, or let an administrator");
    operator.fails("root.key", &format!("{create} --controller lamps.example"), 1, "coaps://HOST");
    // Two members with one name would have one file.
    operator.fails("root.key", &format!("{create} --sender hall --sender hall --output-dir members"), 1, "once");
    assert_eq!(std::fs::read_dir(scene.0.join("members")).unwrap().count(), 0);
    operator.succeeds("root.key", "key create reader --scope groups:read --days 30 --output reader.key");
    operator.fails("reader.key", create, 1, "(scope-missing)");
    operator.fails("reader.key", "group watch lamps", 1, "needs the scope audit:read: use a key that has it");
    operator.fails("root.key", "group watch lamps", 1, "(unknown-group)");
    // A device can be a member of two groups at one port only if their GroupIDs differ.
    operator.succeeds("root.key", create);
    let doors = "group create doors --address [ff15::2]:5684";
    let taken = "the group lamps has the GroupID 1 at the port 5684: leave the GroupID out";
    operator.fails("root.key", &format!("{doors} --group-id 1"), 1, taken);
    operator.fails("root.key", &format!("{doors} --group-id 1 --oscore"), 2, "--oscore");
    let created = operator.succeeds("root.key", doors);
    assert!(created.contains("[ff15::2]:5684 ccm GroupID 2"), "{created}");
}

#[test]
fn a_server_without_groups_names_its_option() {
    let scene = Scene::new("group-none");
    let (_server, operator) = server(&scene, "--log-level info");
    operator.fails("root.key", "group list", 1, "set group-controller in the section [groups]");
}

#[test]
fn a_group_is_watched_until_it_is_deleted() {
    let scene = Scene::new("group-watch");
    let (_server, operator) = server(&scene, GROUPS);
    operator.succeeds("root.key", "group create lamps --address [ff15::1]:5684 --levels 1 --last-epoch 20");
    operator.succeeds("root.key", "group create valves --address [ff15::2]:5684");
    let mut watch = operator.command("group watch lamps");
    let mut watch = watch.env("TEGMEN_KEY_FILE", "root.key").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut reads = |expected: &[&str]| {
        for line in expected {
            assert_eq!(lines.next().as_deref(), Some(*line));
        }
    };
    reads(&[
        "lamps: epoch 1, 19 more epochs, the last 2 for evictions only",
        "  [ff15::1]:5684 ccm GroupID 1, 0 of 2 members, 0 of 16 SenderIDs",
    ]);
    operator.succeeds("root.key", "group add lamps hall --address fd00::1 --output hall.member");
    reads(&["member-admitted lamps hall: at fd00::1, leaf 2, since epoch 2", "epoch-began lamps 2, 18 more epochs"]);
    operator.succeeds("root.key", "group rekey valves");
    operator.succeeds("root.key", "group add lamps switch --send --output switch.member");
    reads(&[
        "member-admitted lamps switch: SenderID 0, leaf 3, since epoch 3",
        "epoch-began lamps 3, 17 more epochs",
        "  warning: the group is full; create another group with more levels",
    ]);
    operator.succeeds("root.key", "group remove lamps hall");
    reads(&["member-left lamps hall", "epoch-began lamps 4, 16 more epochs"]);
    operator.succeeds("root.key", "group delete lamps");
    reads(&["group-deleted lamps"]);
    assert_eq!(lines.next(), None);
    assert_eq!(watch.wait().unwrap().code(), Some(0));
}
