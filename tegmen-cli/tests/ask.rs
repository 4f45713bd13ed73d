//! Tests `tegmen get` and the other request commands: their output, the requests that they refuse to send, and their
//! exit codes.
#![cfg(unix)]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use works::{Scene, Server};

fn tegmen(scene: &Scene, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments).current_dir(&scene.0).output().unwrap()
}

/// Runs a command. Returns its exit code and its text on standard error.
fn outcome(scene: &Scene, arguments: &[&str]) -> (i32, String) {
    let output = tegmen(scene, arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Starts a server that answers each request with this code, these options and this payload. Returns its URI.
fn answering(code: u8, options: &'static [u8], payload: &'static [u8]) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let uri = format!("coap://{}/x", socket.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut request = [0; 1500];
        while let Ok((_, from)) = socket.recv_from(&mut request) {
            let token = usize::from(request[0] & 15);
            let head = [0x60 | token as u8, code, request[2], request[3]];
            let response = [&head, &request[4..4 + token], options, &[0xff], payload].concat();
            socket.send_to(&response, from).unwrap();
        }
    });
    uri
}

/// The option Content-Format with the value 40 (links). The command shows a payload with this format as text.
const LINKS: &[u8] = &[0xc1, 40];

#[test]
fn what_a_server_sends_does_nothing_to_a_terminal() {
    let scene = Scene::new("ask-terminal");
    let owned = b"a\tb\nx\x1b]0;owned\x07\xc2\x9b31m";
    let uri = answering(0x84, LINKS, owned);
    let (code, told) = outcome(&scene, &["get", &uri]);
    assert_eq!((code, told.trim_end()), (1, "4.04 Not Found: a\tb\nx\\u{1b}]0;owned\\u{7}\\u{9b}31m"));
    // To a program as it is.
    let uri = answering(0x45, LINKS, owned);
    assert_eq!(tegmen(&scene, &["get", &uri]).stdout.trim_ascii_end(), owned);
    // `script` gives it a terminal.
    let command = format!("{} get {uri}", env!("CARGO_BIN_EXE_tegmen"));
    let shown = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("\\u{1b}]0;owned") && !shown.contains(['\u{1b}', '\u{9b}']), "{shown:?}");
}

#[test]
fn a_body_that_is_too_long_is_refused_with_the_limit() {
    let scene = Scene::new("ask-too-long");
    let server = Server::start(&scene.0, &["--value", "/v=1", "--plain", "--no-secure", "--max-body", "5000"], 1);
    std::fs::write(scene.0.join("body"), [b'x'; 6000]).unwrap();
    let uri = format!("coap://{}/v", server.addresses[0]);
    let (code, told) = outcome(&scene, &["put", &uri, "--file", "body"]);
    assert_eq!((code, told.trim_end()), (1, "4.13 Request Entity Too Large; the server takes at most 5000 bytes"));
}

#[test]
fn what_would_need_too_many_blocks_is_refused_before_a_block_is_sent() {
    let scene = Scene::new("ask-blocks");
    let long = std::fs::File::create(scene.0.join("long")).unwrap();
    long.set_len((16 << 20) + 1).unwrap();
    let options = ["--file", "/v=long", "--value", "/w=1", "--plain", "--no-secure", "--json", "--shards", "1"];
    let server = Server::start(&scene.0, &options, 1);
    let uri = |path: &str| format!("coap://{}/{path}", server.addresses[0]);
    let (code, told) = outcome(&scene, &["put", &uri("w"), "--file", "long", "--block-size", "16"]);
    assert!(code == 2 && told.contains("2^20 blocks") && told.contains("--block-size 32"), "{code} {told}");
    let (code, told) = outcome(&scene, &["get", &uri("v"), "--block-size", "16"]);
    assert!(code == 2 && told.contains("2^20 blocks") && told.contains("--block-size 32"), "{code} {told}");
    let requests = server.end().iter().filter(|line| line.contains("\"event\":\"request\"")).count();
    assert_eq!(requests, 1, "the one that told the size");
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

#[test]
fn a_call_that_cannot_begin_ends_with_2_and_says_what_to_do() {
    let scene = Scene::new("ask-usage");
    std::fs::write(scene.0.join("file"), "").unwrap();
    let calls: &[(&[&str], &str)] = &[
        (&["put", "coap://127.0.0.1/v"], "a payload is missing"),
        (&["put", "coap://127.0.0.1/v", "{", "--content-format", "json"], "is not JSON"),
        (&["put", "coap://127.0.0.1/v", "--file", "none"], "the payload none cannot be read"),
        (&["get", "coap://127.0.0.1/te mp"], "a space as %20"),
        (&["get", "coap:/127.0.0.1/temp"], "// is missing"),
        (&["get", "coap://[fe80::1]/temp"], "needs its interface"),
        (&["get", "coap://[fe80::1%tegmen-none]/temp"], "no network interface tegmen-none"),
        (&["get", "coap://127.0.0.1/temp", "--timeout", "0"], "--timeout"),
        (&["get", "coaps://127.0.0.1/temp"], "coaps needs an identity and a key"),
        (&["get", "coaps://127.0.0.1/temp", "-u", "a", "-k", "secret"], "--key-text"),
        (&["get", "coaps://127.0.0.1/temp", "--credentials", "none"], "tegmen keys new"),
        (&["serve", "--value", "/a=1", "--plain", "--no-secure", "--dir", "/d=none"], "mkdir -p none"),
        (&["serve", "--value", "/a=1", "--credentials", "none"], "tegmen keys new"),
    ];
    for (call, part) in calls {
        let (code, told) = outcome(&scene, call);
        assert!(code == 2 && told.contains(part), "{call:?}: {code} {told}");
    }
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let serve = ["serve", "--value", "/a=1", "--plain", "--no-secure", "--listen", "127.0.0.1", "--plain-port", &port];
    assert_eq!(outcome(&scene, &serve).0, 2);
    // And so do mistakes that the parser of the arguments finds, as JSON if that is asked for.
    let (code, told) = outcome(&scene, &["--json", "get", "coap://127.0.0.1/", "--no-such-option"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert!(code == 2 && told["error"].as_str().unwrap().contains("--no-such-option"), "{told}");
}

#[test]
fn a_request_with_keys_that_do_not_protect_it_is_not_sent() {
    let scene = Scene::new("ask-in-clear");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let server = socket.local_addr().unwrap();
    let (uri, proxy) = (format!("coap://{server}/v"), format!("coap://{server}"));
    let (target, group) = ("coaps://192.0.2.1/v", "coap://239.255.80.2%127.0.0.1/v");
    let clear = "would be sent in clear";
    let calls: &[(&str, &[&str], &str)] = &[
        (&uri, &["--edhoc-server", "gateway.credential"], "--edhoc <FILE>"),
        (&uri, &["-u", "alice", "-k", "00ff"], clear),
        (&uri, &["-u", "alice", "--key-text", "secret"], clear),
        (&uri, &["--credentials", "px.toml"], clear),
        (&uri, &["--ca", "ca.pem"], clear),
        (&uri, &["--server-key", "00"], clear),
        (target, &["--proxy", &proxy, "-u", "alice", "-k", "00ff"], clear),
        (group, &["-u", "alice", "-k", "00ff"], clear),
        (group, &["--edhoc", "meter.edhoc", "--edhoc-server", "gateway.credential"], "EDHOC is between two endpoints"),
        (
            target,
            &["--proxy", &proxy, "--edhoc", "meter.edhoc", "--edhoc-server", "gateway.credential"],
            "through a proxy",
        ),
        (group, &["--oscore", "lights/switch", "--member", "hall"], "all members of the group can read"),
    ];
    for (uri, options, part) in calls {
        let (code, told) = outcome(&scene, &[&["put", uri, "x", "--timeout", "1"], *options].concat());
        assert!(code == 2 && told.contains(part), "{options:?}: {code} {told}");
    }
    assert!(socket.recv(&mut [0; 1500]).is_err(), "nothing is sent");
    // A proxy with DTLS uses the keys, and keys in the environment are for all commands.
    let proxied = ["get", &uri, "--proxy", "coaps://127.0.0.1:1", "-u", "alice", "-k", "00ff"];
    let (code, told) = outcome(&scene, &proxied);
    assert!(code == 1 && told.contains("nothing listens"), "{code} {told}");
    let mut asked = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    asked
        .args(["get", &answering(0x45, LINKS, b"in clear")])
        .envs([("TEGMEN_IDENTITY", "alice"), ("TEGMEN_KEY", "00ff")]);
    assert_eq!(asked.output().unwrap().stdout.trim_ascii_end(), b"in clear");
}

#[test]
fn a_failure_of_a_group_is_json_for_programs() {
    let scene = Scene::new("ask-group-json");
    assert!(tegmen(&scene, &["oscore", "new-group", "lights", "switch", "hall"]).status.success());
    let uri = "coap://239.255.80.3%127.0.0.1:20795/v";
    let ask = ["--json", "get", uri, "--group-wait", "0.1"];
    for (options, part) in
        [(&[][..], "no member of the group"), (&["--oscore", "lights/switch"], "no response within 0.1 s: hall")]
    {
        let (code, told) = outcome(&scene, &[&ask, options].concat());
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert!(code == 1 && told["error"].as_str().unwrap().contains(part), "{options:?}: {code} {told}");
    }
}

#[test]
fn a_missing_context_or_credential_is_named_as_missing() {
    let scene = Scene::new("ask-missing");
    assert!(tegmen(&scene, &["oscore", "new-group", "lights", "switch", "hall"]).status.success());
    assert!(tegmen(&scene, &["oscore", "new", "client", "server"]).status.success());
    assert!(tegmen(&scene, &["edhoc", "new", "meter.edhoc", "--name", "meter"]).status.success());
    let (server, group) = ("coap://127.0.0.1:1/v", "coap://239.255.80.4%127.0.0.1/v");
    let calls: &[(&[&str], &str)] = &[
        (&[server, "--oscore", "nodir", "--member", "hall"], "nodir/context.toml: No such file"),
        (&[server, "--oscore", "lights", "--member", "hall"], "lights/context.toml: No such file"),
        (&[group, "--oscore", "nodir"], "nodir/context.toml: No such file"),
        (&[server, "--oscore", "client", "--member", "hall"], "does not protect a request to the member hall"),
        (&[group, "--oscore", "client"], "does not protect a request to the group"),
        (&[server, "--edhoc", "meter.edhoc", "--edhoc-server", "nofile"], "nofile: there is no such file"),
    ];
    for (call, part) in calls {
        let (code, told) = outcome(&scene, &[&["get"], *call].concat());
        assert!(code == 2 && told.contains(part), "{call:?}: {code} {told}");
    }
    // A file with a private key is more than the client needs.
    let (_, told) = outcome(&scene, &["get", server, "--edhoc", "meter.edhoc", "--edhoc-server", "meter.edhoc"]);
    assert!(told.contains("this file has a private key"), "{told}");
}

#[test]
fn an_empty_payload_is_put_where_it_is_asked_for() {
    let scene = Scene::new("ask-empty");
    let server = Server::start(&scene.0, &["--value", "/v=1", "--plain", "--no-secure", "--shards", "1"], 1);
    let uri = format!("coap://{}/v", server.addresses[0]);
    assert_eq!(outcome(&scene, &["put", &uri, ""]).0, 0);
    assert_eq!(tegmen(&scene, &["get", &uri]).stdout, b"");
}

#[test]
fn an_option_whose_value_may_be_left_out_does_not_take_the_uri_for_it() {
    let scene = Scene::new("ask-connection-id");
    // A port that nobody listens at.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let uri = format!("coaps://127.0.0.1:{port}/x");
    for option in ["--connection-id", "--connection-id=4"] {
        let (code, told) = outcome(&scene, &["get", option, &uri, "-u", "a", "-k", "00"]);
        assert!(code == 1 && told.contains("nothing listens"), "{option}: {code} {told}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_resource_is_observed_at_all_members_of_a_group_without_protection() {
    let scene = Scene::new("ask-group");
    let group = "239.255.80.1%127.0.0.1";
    let uri = format!("coap://{group}:20794/temp");
    let server = |address, value| {
        let options =
            ["--no-secure", "--plain", "--value", value, "--leisure", "0.2", "--plain-port", "20794", "--group", group];
        Server::spawn(&scene.0, &[&["serve", "--listen", address][..], &options].concat(), 1)
    };
    let servers = [server("127.0.0.2", "/temp=21"), server("127.0.0.3", "/temp=22")];
    let seen = tegmen(&scene, &["observe", &uri, "--count", "2", "--group-wait", "3", "--json"]);
    let lines = String::from_utf8(seen.stdout).unwrap();
    assert!(seen.status.success(), "{lines} {}", String::from_utf8_lossy(&seen.stderr));
    for (address, value) in [("127.0.0.2", "21"), ("127.0.0.3", "22")] {
        let has =
            |line: &str| ["representation", address, value, "\"observed\":true"].iter().all(|part| line.contains(part));
        assert!(lines.lines().any(has), "{lines}");
    }
    drop(servers);
    // Nobody is left, and DTLS has no groups.
    let (code, told) = outcome(&scene, &["observe", &uri, "--for", "2", "--group-wait", "1"]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("no member of the group 239.255.80.1"), "{told}");
    let (code, told) = outcome(&scene, &["observe", "coaps://239.255.80.1/temp"]);
    assert_eq!(code, 2, "{told}");
}
