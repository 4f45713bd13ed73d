//! The interface for administrators that `tegmen serve` runs, with curl as its client.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use works::{Scene, Server};

const OPTIONS: &str = "--store access.db --sealing-key sealing.key --audit audit.log --audit-key audit.pem --admin 127.0.0.1:0 \
                       --admin-cert admin.pem --admin-cert-key admin.key --bootstrap bootstrap --json";

fn furnish(dir: &Path) {
    let secret = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).unwrap();
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(0o600)).unwrap();
    };
    secret("sealing.key", &"4".repeat(64));
    secret("audit.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    secret("admin.key", &key.serialize_pem());
    std::fs::write(dir.join("admin.pem"), certificate.pem()).unwrap();
}

/// Status and body of one request.
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
    furnish(&scene.0);
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
    furnish(&scene.0);
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
