//! Tests `tegmen oscore`: exported contexts, and the texts of errors and options.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tegmen_host::contexts::{self, ContextFile, Format, StoredContext};

/// A directory that is removed when the test ends.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-cli-oscore-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn tegmen(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments).current_dir(&self.0).output().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn begins_with(dir: &Path) -> u64 {
    contexts::used(dir).unwrap().next
}

#[test]
fn the_other_end_of_a_used_context_is_exported_past_its_numbers_or_not_at_all() {
    let scene = Scene::new("export");
    assert!(scene.tegmen(&["oscore", "new", "client", "server"]).status.success());
    let unused = scene.tegmen(&["oscore", "export", "--to", "aiocoap", "client", "unused"]);
    assert!(unused.status.success(), "{unused:?}");
    drop(StoredContext::open(&scene.path("client")).unwrap());
    for (format, target) in [("aiocoap", "directory"), ("libcoap", "file.conf")] {
        let refused = scene.tegmen(&["oscore", "export", "--to", format, "client", target]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("--recover"), "{refused:?}");
        assert!(!scene.path(target).exists(), "nothing is written");
        let exported = scene.tegmen(&["oscore", "export", "--to", format, "--recover", "client", target]);
        assert!(exported.status.success(), "{exported:?}");
    }
    Format::Aiocoap.import(&scene.path("directory"), &scene.path("back")).unwrap();
    assert!(begins_with(&scene.path("back")) > 300_000_000, "a day of numbers is left out");
    let theirs = ContextFile::read(&scene.path("back")).unwrap();
    assert_eq!(theirs.sender_id, ContextFile::read(&scene.path("server")).unwrap().sender_id);
    let number: u64 = std::fs::read_to_string(scene.path("file.conf.seq")).unwrap().trim().parse().unwrap();
    assert!(number > 300_000_000);
}

#[test]
fn what_cannot_be_written_is_not_told_to_make_a_context() {
    let scene = Scene::new("exists");
    assert!(scene.tegmen(&["oscore", "new", "client", "server"]).status.success());
    let again = scene.tegmen(&["oscore", "new", "client", "other"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && said.contains("nothing is written over"), "{said}");
    assert!(!said.contains("make a context"), "{said}");
}

#[test]
fn a_context_that_cannot_be_made_leaves_nothing_behind() {
    let scene = Scene::new("nothing");
    let calls: &[(&[&str], &str)] = &[
        (&["new", "zz", "./zz/"], "two directories"),
        (&["new", "zz", "yy", "--allow", "GT /*"], "--allow GT /*"),
        (&["new", "zz", "yy", "--expires", "tomorrow"], "expires"),
        (&["new", "zz", "yy", "--sender-id", "00", "--recipient-id", "00"], "recipient_id"),
        (&["new", "zz", "taken/server"], "is there already"),
        (&["new-group", "zz", "a", "a"], "two members have the name a"),
        (&["new-group", "zz", "a", "../b"], "no name of a member"),
        (&["new-group", "zz", "a", "b", "--allow", "c=GET /*"], "c has rights"),
        (&["new-group", "lights", "c", "d"], "already has a group"),
        (&["show", "zz"], "No such file"),
        (&["recover", "zz"], "No such file"),
        (&["export", "--to", "libcoap", "zz", "yy"], "No such file"),
    ];
    assert!(scene.tegmen(&["oscore", "new", "taken/client", "taken/server"]).status.success());
    assert!(scene.tegmen(&["oscore", "new-group", "lights", "a", "b"]).status.success());
    for (call, part) in calls {
        let refused = scene.tegmen(&[&["oscore"], *call].concat());
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(part), "{call:?}: {refused:?}");
        for name in ["zz", "yy", "lights/c"] {
            assert!(!scene.path(name).exists(), "{call:?}: {name}");
        }
    }
}

#[test]
fn an_option_without_its_value_leaves_the_uri_alone() {
    let scene = Scene::new("option");
    let asked = scene.tegmen(&["get", "--connection-id", "-u", "me", "--key-text", "key", "coaps://127.0.0.1:1/temp"]);
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(said.contains("nothing listens at 127.0.0.1:1"), "{said}");
    let mistaken = scene.tegmen(&["get", "-u", "me", "-k", "secret", "coaps://127.0.0.1:1/temp"]);
    let said = String::from_utf8_lossy(&mistaken.stderr);
    assert!(said.contains("--key-text"), "{said}");
}

#[test]
fn wireshark_gets_the_line_of_its_table_and_libcoap_the_rederivation() {
    let scene = Scene::new("wireshark");
    let new = ["oscore", "new", "client", "server", "--sender-id", "0a", "--id-context", "0b", "--rederivation"];
    assert!(scene.tegmen(&new).status.success());
    let exported = scene.tegmen(&["oscore", "export", "--to", "wireshark", "client", "contexts"]);
    assert!(exported.status.success(), "{exported:?}");
    let line = std::fs::read_to_string(scene.path("contexts")).unwrap();
    let fields: Vec<&str> = line.trim_end().split(',').map(|field| field.trim_matches('"')).collect();
    assert_eq!((fields[0], fields[1], fields[4]), ("0a", "", "0b"));
    assert_eq!((fields[2].len(), fields[3].len(), fields[5]), (32, 16, "AES-CCM-16-64-128 (CCM*)"));
    assert!(scene.tegmen(&["oscore", "export", "--to", "libcoap", "client", "server.conf"]).status.success());
    assert!(std::fs::read_to_string(scene.path("server.conf")).unwrap().contains("rfc8613_b_2,bool,true"));
}

#[test]
fn a_new_group_has_a_directory_for_each_member_which_is_shown_and_recovered() {
    let scene = Scene::new("group");
    let new = ["oscore", "new-group", "lights", "switch", "hall", "porch", "--curve", "p256"];
    let rights = ["--allow", "hall=GET /*", "--allow", "hall=PUT /light", "--expires", "2099-12-31T00:00:00Z"];
    let made = scene.tegmen(&[&new[..], &rights, &["--json"]].concat());
    assert!(made.status.success(), "{made:?}");
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let member = |at: usize, key: &str| made["members"][at][key].as_str().unwrap().to_owned();
    assert_eq!(
        (member(1, "name"), member(1, "id"), member(1, "dir")),
        ("hall".into(), "01".into(), "lights/hall".into())
    );
    let shown = scene.tegmen(&["oscore", "show", "lights/switch"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    for line in [
        "group         lights",
        "name          switch",
        "sender_id     00",
        "curve         p256",
        "expires       2099-12-31T00:00:00Z",
        "numbers       those below 0 may be used up; what the other members used is known",
        "member        hall (ID 01) may use: GET /*, PUT /light",
        "member        porch (ID 02) may use: everything",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is missing:\n{shown}");
    }
    let secret = std::fs::read_to_string(scene.path("lights/switch/context.toml")).unwrap();
    let secrets = secret.lines().filter(|line| line.starts_with("private_key") || line.starts_with("master_secret"));
    let digits: Vec<_> = secrets.map(|line| line.split('"').nth(1).unwrap()).collect();
    assert_eq!(digits.len(), 2);
    assert!(digits.iter().all(|digits| !shown.contains(digits)), "{shown}");
    let recovered = scene.tegmen(&["oscore", "recover", "lights/switch"]);
    assert!(recovered.status.success(), "{recovered:?}");
    assert!(begins_with(&scene.path("lights/switch")) > 300_000_000, "a day of numbers is left out");
    let again = scene.tegmen(&["oscore", "new-group", "lights", "attic", "hall"]);
    let text = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && text.contains("nothing is written over"), "{text}");
    assert!(!scene.path("lights/attic").exists());
    // Other programs have no such files.
    let exported = scene.tegmen(&["oscore", "export", "--to", "libcoap", "lights/hall", "hall.conf"]);
    let text = String::from_utf8_lossy(&exported.stderr);
    assert!(!exported.status.success() && text.contains("a member of a group"), "{text}");
}
