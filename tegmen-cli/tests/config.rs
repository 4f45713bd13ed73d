//! Tests the configuration file of `tegmen serve`.
#![cfg(unix)]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use works::{Plain, Scene, Server};

/// Checks a configuration file with `--check-config` and the options `more`. Returns the output.
fn check(scene: &Scene, text: &str, more: &[&str]) -> Output {
    std::fs::write(scene.0.join("tegmen.toml"), text).unwrap();
    let options = ["serve", "--config", "tegmen.toml", "--check-config"];
    Command::new(env!("CARGO_BIN_EXE_tegmen"))
        .args(options)
        .args(more)
        .env_remove("TEGMEN_CREDENTIALS")
        .current_dir(&scene.0)
        .output()
        .unwrap()
}

/// Returns the lines with the mistakes in a configuration file.
fn mistakes(scene: &Scene, text: &str, more: &[&str]) -> Vec<String> {
    let done = check(scene, text, more);
    assert_eq!((done.status.code(), &*done.stdout), (Some(2), &b""[..]));
    let said = String::from_utf8(done.stderr).unwrap();
    said.lines().map(|line| line.trim_start_matches("tegmen: ").to_owned()).collect()
}

const PLAIN: &str = "[addresses]\nplain = true\nno-secure = true\n";

#[test]
fn a_file_that_is_right_is_ok_and_options_override_it() {
    let scene = Scene::new("config-ok");
    let text = format!(
        "{PLAIN}listen = \"127.0.0.1\"\n[resources]\nvalue = [\"/a=1\", \"/b=2\"]\n[limits]\nmax-body = 0x1000\n\
         hello-limits = \"1,2\"\n[groups]\nleisure = 0.5\n[log]\nlog-level = \"debug\"\n"
    );
    let done = check(&scene, &text, &[]);
    assert_eq!((done.status.code(), &*done.stdout), (Some(0), &b"ok\n"[..]), "{done:?}");
    // A list of the command line replaces that of the file; an option replaces one that excludes it.
    let options = ["--config", "tegmen.toml", "--value", "/c=3", "--quiet", "--json", "--shards", "1"];
    let server = Server::start(&scene.0, &options, 1);
    let mut client = Plain::to(server.addresses[0]);
    assert_eq!((client.get("a"), client.get("c")), (404, 205));
}

#[test]
fn all_mistakes_are_named_by_file_line_and_key() {
    let scene = Scene::new("config-wrong");
    let text = "listen = [\"::1\"]\n[limits]\nmax-peer = 3\nmax-handshakes = \"many\"\nplain = true\nmtu = 1\n[log]\n\
                log-level = \"loud\"\nquiet = 1\nlog = [\"text\"]\n[dtls]\nmtu = 1\n[colours]\nred = 1\n";
    let said = mistakes(&scene, text, &[]);
    let expected = [
        ("1: listen", "it belongs to the section [addresses]"),
        ("3: limits.max-peer", "max-peers in [limits] is like it"),
        ("4: limits.max-handshakes", "\"many\" is wrong: invalid digit found in string (Maximum number of handshakes"),
        ("5: limits.plain", "it belongs to the section [addresses]"),
        ("6: limits.mtu", "it belongs to the section [dtls]"),
        ("8: log.log-level", "\"loud\" is none of error, warn, info, debug"),
        ("9: log.quiet", "true or false is expected, and here is an integer"),
        ("10: log.log", "one text or number is expected, and here is an array"),
        ("12: dtls.mtu", "\"1\" is wrong: 1 is not in 128..=2048"),
        ("13: colours", "no such section; there are [addresses], [keys]"),
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (line, (place, why)) in said.iter().zip(expected) {
        assert!(line.starts_with(&format!("tegmen.toml:{place}: ")) && line.contains(why), "{line}");
    }
    let said = mistakes(&scene, "[limits]\nmax-body = \n", &[]);
    assert!(said[0].starts_with("tegmen.toml:2: "), "{said:?}");
    let said = mistakes(&scene, "[limits]\nzzz = 1\n", &[]);
    assert!(said[0].contains("no such key; [limits] has shards, max-peers"), "{said:?}");
}

#[test]
fn what_is_wrong_beyond_its_form_is_named_as_well() {
    let scene = Scene::new("config-beyond");
    let text = format!(
        "{PLAIN}[resources]\nvalue = [\"/a=1\", \"b\"]\nfile = \"/a=nothing\"\ndir = [\"/c=nothing\"]\n[keys]\n\
         anonymous = [\"READ all\"]\noscore = \"nothing\"\n[public-keys]\nclient-ca = \"ca.pem\"\n[sessions]\n\
         state = \"nothing/state.db\"\n"
    );
    let said = mistakes(&scene, &text, &["--blink", "x"]);
    for expected in [
        "tegmen.toml:5: value: b: write it as /path=...",
        "tegmen.toml:6: file: /a: there are two resources at this path",
        "tegmen.toml:7: dir: nothing is not a directory",
        "--blink: x: write it as /path=...",
        "tegmen.toml:9: anonymous: READ all: write it as",
        "tegmen.toml:10: oscore: nothing is not a directory",
        "tegmen.toml:12: client-ca: it needs --cert-key",
        "tegmen.toml:14: state: nothing is not a directory",
    ] {
        assert!(said.iter().any(|line| line.starts_with(expected)), "{expected}: {said:#?}");
    }
    // Right alone, and wrong together.
    let text =
        format!("{PLAIN}[resources]\nblink = \"/b\"\n[dtls]\nno-connection-id = true\nfollow-unchecked = true\n");
    let said = mistakes(&scene, &text, &[]);
    assert!(said[0].contains("it cannot be used together with"), "{said:?}");
    assert!(said[0].starts_with("tegmen.toml:"), "{said:?}");
    let said = mistakes(&scene, PLAIN, &[]);
    assert!(said[0].starts_with("nothing to serve"), "{said:?}");
}

#[test]
fn mistakes_in_the_settings_of_acme_are_named() {
    let scene = Scene::new("config-acme");
    std::fs::write(scene.0.join("binding"), "kid-1 not!base64url\n").unwrap();
    std::fs::set_permissions(scene.0.join("binding"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "{PLAIN}[delegation]\ndelegation-acme = \"http://acme.example/dir\"\ndelegation-acme-dir = \"nothing\"\n\
         delegation-acme-trust = \"nothing.pem\"\ndelegation-acme-binding = \"binding\"\n"
    );
    let said = mistakes(&scene, &text, &[]);
    for expected in [
        "tegmen.toml:5: delegation-acme: http://acme.example/dir: write it as https://HOST/PATH",
        "tegmen.toml:5: delegation-acme: it needs --store",
        "tegmen.toml:6: delegation-acme-dir: nothing is not a directory: create it (mkdir -p -m 700 nothing)",
        "tegmen.toml:7: delegation-acme-trust: nothing.pem: ",
        "tegmen.toml:8: delegation-acme-binding: binding: write the identifier of the key, a space,",
    ] {
        assert!(said.iter().any(|line| line.starts_with(expected)), "{expected}: {said:#?}");
    }
    let without = format!("{PLAIN}[delegation]\ndelegation-acme = \"https://acme.example/dir\"\n");
    let said = mistakes(&scene, &without, &[]);
    assert!(said.iter().any(|line| line.contains("it needs --delegation-acme-dir")), "{said:#?}");
    let alone = format!("{PLAIN}[delegation]\ndelegation-acme-contact = \"mailto:a@example.org\"\n");
    let said = mistakes(&scene, &alone, &[]);
    assert!(said.iter().any(|line| line.contains("it needs --delegation-acme")), "{said:#?}");
    let both = format!("{without}delegation-ca = \"ca\"\n");
    assert!(mistakes(&scene, &both, &[])[0].contains("it cannot be used together with"));
}

#[test]
fn the_alert_rules_name_metrics_that_the_server_has() {
    let mut totals = tegmen_host::server::Totals::default();
    totals.certificate_expires = Some(std::time::SystemTime::now());
    totals.revocation_due = totals.certificate_expires;
    let started = std::time::SystemTime::now();
    let groups = Some(tegmen_host::metrics::GroupTotals::default());
    let delegation = Some(tegmen_host::metrics::DelegationTotals::default());
    let proxy = Some(tegmen_host::proxy::ProxyCounts::default());
    let (ready, reloads, reloads_refused) = (true, 0, 0);
    let operation =
        tegmen_host::metrics::Operation { started, ready, reloads, reloads_refused, groups, delegation, proxy };
    let page = tegmen_host::metrics::render(&totals, Some(&operation));
    let rules = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/alerts.yml")).unwrap();
    let expressions: Vec<&str> = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let names: Vec<_> = expressions.into_iter().filter(|word| word.starts_with("tegmen_")).collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        let has_name = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        assert!(page.lines().any(has_name), "{name}");
    }
}
