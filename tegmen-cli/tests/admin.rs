//! Tests the interface for administrators of `tegmen serve`. The clients are curl and the commands of `tegmen`.
#![cfg(target_os = "linux")]

#[path = "works/commands.rs"]
mod commands;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/operator.rs"]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/server_files.rs"]
mod server_files;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use commands::{ALL, OPTIONS, Operator};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use server_files::write_keys;
use std::io::BufRead as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use works::{Scene, Server};

/// Sends one request with curl. Returns the status and the body of the response.
fn curl(dir: &Path, port: u16, path: &str, key: &str, body: Option<&str>) -> (u16, serde_json::Value) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--cacert", "admin.pem", "--write-out", "\n%{http_code}"]);
    command.args([
        "--resolve",
        &format!("localhost:{port}:127.0.0.1"),
        "--header",
        &format!("authorization: Bearer {key}"),
    ]);
    if let Some(body) = body {
        command.args(["--data", body]);
    }
    let output = command.arg(format!("https://localhost:{port}{path}")).current_dir(dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    let status = status.parse().unwrap();
    assert_ne!(status, 0, "{}", String::from_utf8_lossy(&output.stderr));
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn the_first_key_adds_a_device_over_https() {
    let scene = Scene::new("admin");
    write_keys(&scene.0);
    let server = Server::start(&scene.0, &OPTIONS.split_whitespace().collect::<Vec<_>>(), 2);
    let port = server.addresses[1].port();
    let file = scene.0.join("bootstrap");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let bootstrap = std::fs::read_to_string(file).unwrap();
    let expires = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 3600;
    let first = format!(
        "{{\"name\": \"root\", \"scopes\": [\"keys:write\", \"devices:write\", \"devices:read\"], \"expires\": {expires}}}"
    );
    let (status, created) = curl(&scene.0, port, "/v1/keys", bootstrap.trim(), Some(&first));
    assert_eq!(status, 201, "{created}");
    let key = created["key"].as_str().unwrap();
    let device = format!("{{\"name\": \"oven\", \"kind\": \"protokey\", \"secret\": \"{}\"}}", "a1".repeat(32));
    assert_eq!(curl(&scene.0, port, "/v1/devices", key, Some(&device)).0, 201);
    let (status, listed) = curl(&scene.0, port, "/v1/devices", key, None);
    assert_eq!((status, &listed["devices"][0]["name"]), (200, &"oven".into()));
    let (status, refused) = curl(&scene.0, port, "/v1/policy", key, None);
    assert_eq!((status, &refused["code"]), (403, &"scope-missing".into()));
    drop(server);
    // No further token is drawn after the first key, and the key is still known.
    std::fs::remove_file(scene.0.join("bootstrap")).unwrap();
    let server = Server::start(&scene.0, &OPTIONS.split_whitespace().collect::<Vec<_>>(), 2);
    assert!(!scene.0.join("bootstrap").exists());
    assert_eq!(curl(&scene.0, server.addresses[1].port(), "/v1/devices", key, None).0, 200);
}

#[test]
fn an_interface_without_its_files_is_refused_before_the_server_starts() {
    let scene = Scene::new("admin-wrong");
    write_keys(&scene.0);
    let mut check = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let check =
        check.args(["serve", "--value", "/a=1", "--check-config", "--admin", "127.0.0.1:0", "--bootstrap", "no/token"]);
    let checked = check.args(["--admin-cert", "sealing.key"]).current_dir(&scene.0).output().unwrap();
    let text = String::from_utf8(checked.stderr).unwrap();
    assert_eq!(checked.status.code(), Some(2), "{text}");
    for expected in
        ["--admin: it needs --store", "--admin: it needs --admin-cert-key", "--admin-cert: sealing.key", "--bootstrap"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_key_of_the_interface_that_others_can_read_is_refused() {
    let scene = Scene::new("admin-exposed");
    write_keys(&scene.0);
    std::fs::set_permissions(scene.0.join("admin.key"), PermissionsExt::from_mode(0o644)).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let check =
        check.args(["serve", "--check-config"]).args(OPTIONS.split_whitespace().filter(|option| *option != "--json"));
    let checked = check.current_dir(&scene.0).output().unwrap();
    let text = String::from_utf8(checked.stderr).unwrap();
    assert_eq!(checked.status.code(), Some(2), "{text}");
    assert!(text.contains("--admin-cert-key: admin.key has mode 644"), "{text}");
}

#[test]
fn an_operator_changes_the_server_by_commands() {
    let scene = Scene::new("admin-commands");
    write_keys(&scene.0);
    let server = Server::start(&scene.0, &OPTIONS.split_whitespace().collect::<Vec<_>>(), 2);
    let operator = Operator { dir: &scene.0, server: format!("https://localhost:{}", server.addresses[1].port()) };
    let created = operator.succeeds("bootstrap", &format!("key create root {ALL} --output root.key"));
    let file = scene.0.join("root.key");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!created.contains(&std::fs::read_to_string(&file).unwrap()), "the key is in the file alone");
    operator.fails("bootstrap", &format!("key create other {ALL} --output other.key"), 1, "(unauthorized)");
    assert!(!scene.0.join("other.key").exists());
    operator.fails("root.key", "key create root --scope revoke --output root.key", 2, "exists");

    std::fs::write(scene.0.join("oven.secret"), "a1".repeat(32)).unwrap();
    let add = "device add oven --tag kitchen --kind protokey --secret-file oven.secret";
    operator.fails("root.key", add, 2, "chmod 600 oven.secret");
    std::fs::set_permissions(scene.0.join("oven.secret"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(operator.succeeds("root.key", add), "Added oven tag:kitchen: protokey\n");
    operator.fails("root.key", add, 1, "(name-taken)");
    operator.succeeds("root.key", "device add panel --kind certificate --certificate admin.pem");
    operator.fails("root.key", "device add lamp --kind protokey", 2, "--secret-file");
    operator.fails("root.key", "key create other --scope devices --output other.key", 2, "devices:read");
    let (listed, shown) =
        (operator.succeeds("root.key", "device list --json"), operator.succeeds("root.key", "device show oven --json"));
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains(&shown) && !listed.contains("a1a1"), "{listed}");
    operator.succeeds("root.key", "device disable oven");
    assert!(operator.succeeds("root.key", "device show oven").contains("disabled"));
    operator.succeeds("root.key", "device enable oven");

    let policy = "[[rule]]\nsubject = \"panel\"\npublisher = \"oven\"\nallow = \"read /*\"\n";
    std::fs::write(scene.0.join("policy.toml"), policy).unwrap();
    operator.succeeds("root.key", "policy apply policy.toml");
    let test = "\n[[test]]\nsubject = \"panel\"\npublisher = \"oven\"\nrequest = \"GET /a\"\nexpect = \"deny\"\n";
    std::fs::write(scene.0.join("policy.toml"), policy.to_owned() + test).unwrap();
    operator.fails("root.key", "policy apply policy.toml", 1, "policy.toml:6");

    let hash = format!("01{}", "5a".repeat(32));
    operator.succeeds("root.key", &format!("revoke --hash {hash} --concerned panel --concerned oven"));
    let key = std::fs::read_to_string(&file).unwrap();
    let (_, list) = curl(&scene.0, server.addresses[1].port(), "/v1/revocations", &key, None);
    assert_eq!(list["hashes"], serde_json::json!([hash]));
    operator.fails("root.key", "revoke oven;AAECAwQFBgcI", 1, "(unknown-session)");
    operator.fails("root.key", "revoke oven;AAECAwQFBgcI --concerned panel", 2, "cannot be used with");
    operator.fails("root.key", &format!("revoke --hash {hash}"), 2, "--concerned");

    operator.succeeds("root.key", "device remove panel");
    operator.fails("root.key", "device remove panel", 1, "(unknown-device)");
    operator.succeeds("root.key", "key create reader --scope devices:read --days 30 --output reader.key");
    operator.fails("reader.key", "device remove oven", 1, "(scope-missing)");
    let keys = operator.succeeds("root.key", "key list");
    let reader = keys.lines().find(|line| line.contains("reader")).unwrap();
    operator.succeeds("root.key", &format!("key remove {}", reader.split(' ').next().unwrap()));
    operator.fails("reader.key", "device list", 1, "(unauthorized)");
}

/// Starts a relay between a client and the server at this port, for one connection at a time. Returns the port of the
/// relay, and a sender. A message to this sender cuts the connection.
fn cutter(port: u16) -> (u16, std::sync::mpsc::Sender<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let (cut, is_cut) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for client in listener.incoming().map(Result::unwrap) {
            let server = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
            if is_cut.recv().is_err() {
                return;
            }
            let _ = (client.shutdown(std::net::Shutdown::Both), server.shutdown(std::net::Shutdown::Both));
        }
    });
    (own, cut)
}

#[test]
fn events_are_followed_over_a_connection_that_is_cut() {
    let scene = Scene::new("admin-events");
    write_keys(&scene.0);
    let server = Server::start(&scene.0, &OPTIONS.split_whitespace().collect::<Vec<_>>(), 2);
    let port = server.addresses[1].port();
    let operator = Operator { dir: &scene.0, server: format!("https://localhost:{port}") };
    operator.succeeds("bootstrap", &format!("key create root {ALL} --output root.key"));
    operator.succeeds("root.key", "key create reader --scope devices:read --days 30 --output reader.key");
    operator.fails("reader.key", "events", 1, "(scope-missing)");
    operator.fails("root.key", "events --after 18446744073709551615", 1, "(history-gone)");
    std::fs::write(scene.0.join("secret"), "a1".repeat(32)).unwrap();
    std::fs::set_permissions(scene.0.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    let add = |name: &str| {
        operator.succeeds("root.key", &format!("device add {name} --kind protokey --secret-file secret"));
    };
    let (own, cut) = cutter(port);
    let cut_off = Operator { dir: &scene.0, server: format!("https://localhost:{own}") };
    let follow = |arguments: &str| {
        let mut tegmen = cut_off.command(arguments);
        tegmen.env("TEGMEN_KEY_FILE", "root.key").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // It has begun when it prints a device; the number of those before is not known.
    let mut first = follow("events --json --count 1");
    for number in 0.. {
        add(&format!("early-{number}"));
        if first.try_wait().unwrap().is_some() {
            break;
        }
    }
    let first: serde_json::Value = serde_json::from_slice(&first.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(first["change"], "device-added");
    cut.send(()).unwrap();
    let after = first["id"].as_str().unwrap();
    add("oven");
    let mut following = follow(&format!("events --after {after}"));
    let mut lines = std::io::BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "device-added oven: protokey"));
    cut.send(()).unwrap();
    add("panel");
    operator.succeeds("root.key", "device remove oven");
    assert_eq!(lines.next().unwrap(), "device-added panel: protokey");
    assert_eq!(lines.next().unwrap(), "device-removed oven");
    following.kill().unwrap();
    let output = following.wait_with_output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("the connection was lost"));
}

#[test]
fn a_command_sends_its_key_to_no_other_server() {
    let scene = Scene::new("admin-other");
    write_keys(&scene.0);
    let server = Server::start(&scene.0, &OPTIONS.split_whitespace().collect::<Vec<_>>(), 2);
    let port = server.addresses[1].port();
    let at = |server: String| Operator { dir: &scene.0, server };
    let list = "device list";
    // Its certificate is for localhost.
    at(format!("https://127.0.0.1:{port}")).fails("bootstrap", list, 1, "the TLS handshake");
    at(format!("http://localhost:{port}")).fails("bootstrap", list, 2, "https://HOST:PORT");
    for path in ["/v1", "/?x=1", "?x=1"] {
        at(format!("https://localhost:{port}{path}")).fails("bootstrap", list, 2, "https://HOST:PORT");
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let other = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(scene.0.join("other.pem"), other.pem()).unwrap();
    let right = at(format!("https://localhost:{port}"));
    right.fails("bootstrap", "device list --ca other.pem", 1, "the TLS handshake");
    right.fails("admin.pem", list, 2, "chmod 600");
    drop(server);
    right.fails("bootstrap", list, 1, "cannot be reached");
}

#[test]
fn a_command_whose_response_is_lost_says_that_the_change_may_be_made() {
    let scene = Scene::new("admin-lost");
    write_keys(&scene.0);
    std::fs::write(scene.0.join("root.key"), "a key").unwrap();
    std::fs::set_permissions(scene.0.join("root.key"), PermissionsExt::from_mode(0o600)).unwrap();
    let certificate = CertificateDer::from_pem_file(scene.0.join("admin.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(scene.0.join("admin.key")).unwrap();
    let config = tegmen_admin::Tls::new(vec![certificate], key, None).unwrap().config().clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let taking = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut connection = tokio_rustls::rustls::ServerConnection::new(config.clone()).unwrap();
            let mut request = [0; 1 << 12];
            let mut stream = tokio_rustls::rustls::Stream::new(&mut connection, &mut stream);
            assert!(std::io::Read::read(&mut stream, &mut request).unwrap() > 0);
        }
    });
    let operator = Operator { dir: &scene.0, server };
    operator.fails("root.key", "device remove oven", 1, "it may have made the change");
    operator.fails("root.key", "device list", 1, "try again");
    taking.join().unwrap();
}

/// Writes an authority to the file `ca`. Writes a certificate of this authority to NAME.pem, and the private key of the
/// certificate to NAME.key. Returns the SHA-256 of the certificate.
fn client(dir: &Path, ca: &str, name: &str) -> String {
    let (key, own) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, ca);
    std::fs::write(dir.join(ca), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&own, &issuer).unwrap();
    std::fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
    let key = dir.join(format!("{name}.key"));
    std::fs::write(&key, own.serialize_pem()).unwrap();
    std::fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
    tegmen_host::hex::to_hex(&tegmen_host::x509::sha256(certificate.der()))
}

/// Sends SIGHUP to the server. Returns the log line that reports its result.
fn hang_up(server: &mut Server) -> String {
    let id = server.process.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    server.lines.by_ref().map(Result::unwrap).find(|line| line.contains("hangup")).unwrap()
}

#[test]
fn client_certificates_have_roles_and_a_hangup_changes_them_with_the_certificate_of_the_interface() {
    let scene = Scene::new("admin-certified");
    let dir = &scene.0;
    write_keys(dir);
    let alice = client(dir, "operators.pem", "alice");
    client(dir, "more.pem", "carol");
    client(dir, "other.pem", "bob");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    std::fs::write(dir.join("operators.pem"), read("operators.pem") + &read("more.pem")).unwrap();
    let configure = |role: &str| {
        let roles = "admin-role = [\"viewer=devices:read\", \"editor=devices:read,devices:write\"]";
        let text = format!("[admin]\nadmin-ca = \"operators.pem\"\n{roles}\nadmin-client = [\"{alice}={role}\"]\n");
        std::fs::write(dir.join("tegmen.toml"), text).unwrap();
    };
    configure("viewer");
    let options: Vec<_> = OPTIONS.split_whitespace().chain(["--config", "tegmen.toml"]).collect();
    let mut server = Server::start(dir, &options, 2);
    let operator = Operator { dir, server: format!("https://localhost:{}", server.addresses[1].port()) };
    let run = |name: &str, arguments: &str, expected: i32, words: &str| {
        let mut tegmen = operator.command(arguments);
        tegmen.env("TEGMEN_CLIENT_CERT", format!("{name}.pem")).env("TEGMEN_CLIENT_CERT_KEY", format!("{name}.key"));
        let output = tegmen.output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(output.status.code() == Some(expected) && text.contains(words), "{name}: {arguments}: {text}");
    };
    run("alice", "device list", 0, "");
    run("alice", "device remove oven", 1, "(scope-missing)");
    run("carol", "device list", 1, "(scope-missing)");
    run("bob", "device list", 1, "");
    assert_eq!(operator.command("device list").output().unwrap().status.code(), Some(2));
    // A key is accepted still.
    operator.succeeds("bootstrap", &format!("key create root {ALL} --output root.key"));
    operator.succeeds("root.key", "device list");

    let before = read("admin.pem");
    write_keys(dir);
    configure("editor");
    let line = hang_up(&mut server);
    assert!(line.contains("\"changed\":[\"admin-client\"]"), "{line}");
    run("alice", "device remove oven", 1, "(unknown-device)");
    operator.succeeds("root.key", "device list");
    std::fs::write(dir.join("before.pem"), before).unwrap();
    operator.fails("root.key", "device list --ca before.pem", 1, "the TLS handshake");

    // What is wrong changes nothing.
    std::fs::copy(dir.join("bob.key"), dir.join("admin.key")).unwrap();
    let line = hang_up(&mut server);
    assert!(line.contains("admin.key is not the key of the certificate admin.pem"), "{line}");
    configure("owner");
    let line = hang_up(&mut server);
    assert!(line.contains("tegmen.toml:4: admin-client: there is no role owner"), "{line}");
    std::fs::write(dir.join("operators.pem"), "no certificate").unwrap();
    let line = hang_up(&mut server);
    assert!(line.contains("tegmen.toml:2: admin-ca: operators.pem has no certificate"), "{line}");
    run("alice", "device remove oven", 1, "(unknown-device)");
}
