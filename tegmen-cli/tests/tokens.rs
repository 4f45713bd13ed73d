//! Tests `tegmen token` with an access control server and a resource server, which are processes of `tegmen serve`.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
#[path = "works/operator.rs"]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use operator::{OPTIONS, SHARED_KEY, furnish, secret, with_state};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::state::{Credential, NewDevice};
use tegmen_host::hex::to_hex;
use works::{Scene, Server};

const TOKEN_KEY: [u8; 32] = [5; 32];

/// Runs a command. Returns its exit code and its output.
fn tegmen(dir: &Path, arguments: &[&str]) -> (i32, String) {
    let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let output = tegmen.args(arguments).current_dir(dir).output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.code().unwrap(), text)
}

fn succeeds(dir: &Path, arguments: &[&str]) -> String {
    let (code, text) = tegmen(dir, arguments);
    assert_eq!(code, 0, "{arguments:?}: {text}");
    text
}

fn fails(dir: &Path, arguments: &[&str], expected: i32, words: &str) {
    let (code, text) = tegmen(dir, arguments);
    assert!(code == expected && text.contains(words), "{arguments:?}: {code}: {text}");
}

/// Starts a resource server. Returns the server and its URI.
fn hob(dir: &Path) -> (Server, String) {
    let options = "--no-secure --value /temp=21.5 --value /door=shut --resource-server hob --token-key hob.key";
    let server = Server::start(dir, &options.split(' ').collect::<Vec<_>>(), 1);
    let uri = format!("coap://{}", server.addresses[0]);
    (server, uri)
}

/// Starts an access control server that knows a resource server with this name and kind. The key of the resource server
/// is in `NAME.key`.
fn access(dir: &Path, name: &str, kind: Credential) -> Server {
    furnish(dir);
    secret(dir, &format!("{name}.key"), &to_hex(&TOKEN_KEY));
    with_state(dir, async |state| {
        let party = OwnedParty::from_words([name, "tag:kitchen"]).unwrap();
        state.add(&NewDevice::secret(party, kind, &TOKEN_KEY).unwrap()).await.unwrap();
    });
    secret(dir, "server.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    start_access(dir)
}

/// Starts the access control server again.
fn start_access(dir: &Path) -> Server {
    let options = format!("{OPTIONS} --cert-key server.pem");
    Server::start(dir, &options.split(' ').collect::<Vec<_>>(), 1)
}

#[test]
fn a_client_reads_with_a_token_and_comes_back_after_a_restart_of_the_resource_server() {
    let scene = Scene::new("tokens");
    let dir = scene.0.as_path();
    let access = access(dir, "hob", Credential::Oscore);
    let as_uri = format!("coaps://{}", access.addresses[0]);
    let key = to_hex(&SHARED_KEY);
    let request = |options: &[&'static str]| {
        let common = ["token", "request", &*as_uri, "-u", "display", "-k", &*key];
        [&common, options].concat()
    };
    let (server, uri) = hob(dir);
    let temp = format!("{uri}/temp");

    succeeds(dir, &request(&["--audience", "hob", "--allow", "GET /temp", "--output", "hob.token"]));
    assert_eq!(dir.join("hob.token").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    succeeds(dir, &["token", "post", "hob.token", &uri, "--context", "hob"]);
    assert_eq!(succeeds(dir, &["get", "--oscore", "hob", &temp]), "21.5\n");
    fails(dir, &["get", "--oscore", "hob", &format!("{uri}/door")], 1, "4.03");
    fails(dir, &["put", "--oscore", "hob", &temp, "1"], 1, "4.05");
    fails(dir, &["get", &temp], 1, "4.01");
    fails(dir, &["token", "post", "hob.token", &uri, "--context", "hob"], 2, "name another directory");

    succeeds(dir, &request(&["--update", "hob.token", "--allow", "GET /door", "--output", "more.token"]));
    succeeds(dir, &["token", "post", "more.token", &uri, "--context", "hob"]);
    assert_eq!(succeeds(dir, &["get", "--oscore", "hob", &format!("{uri}/door")]), "shut\n");
    fails(dir, &["get", "--oscore", "hob", &temp], 1, "4.03");
    fails(dir, &request(&["--update", "more.token", "--allow", "GET /door", "--output", "x"]), 2, "--update");
    fails(dir, &request(&["--audience", "hob", "--allow", "PUT /temp", "--output", "x"]), 1, "refuses");
    fails(dir, &request(&["--audience", "hob", "--allow", "GET /*", "--output", "x"]), 2, "one resource");
    assert!(!dir.join("x").exists());

    // The resource server forgets the context, and takes the same token again.
    server.end();
    let (server, uri) = hob(dir);
    fails(dir, &["get", "--oscore", "hob", &format!("{uri}/temp")], 1, "not know");
    succeeds(dir, &["token", "post", "hob.token", &uri, "--context", "again"]);
    assert_eq!(succeeds(dir, &["get", "--oscore", "again", &format!("{uri}/temp")]), "21.5\n");
    server.end();
    access.end();
    let log = std::fs::read_to_string(dir.join("audit.log")).unwrap();
    assert!(log.contains("asks for a token for hob: granted") && !log.contains(&to_hex(&TOKEN_KEY)), "{log}");
}

#[test]
fn a_resource_server_refuses_a_token_that_was_revoked() {
    let scene = Scene::new("tokens-revoked");
    let dir = scene.0.as_path();
    let server = access(dir, "hob", Credential::Oscore);
    let (as_uri, key) = (format!("coaps://{}", server.addresses[0]), to_hex(&SHARED_KEY));
    let request =
        ["token", "request", &as_uri, "-u", "display", "-k", &key, "--audience", "hob", "--allow", "GET /temp"];
    succeeds(dir, &[&request[..], &["--output", "hob.token"]].concat());
    server.end();
    with_state(dir, async |state| {
        let issued = state.view().sessions(|_, _| true).pop().unwrap();
        state.revoke(&issued.token.unwrap(), issued.until, &["hob", "display"]).await.unwrap();
    });
    let server = start_access(dir);
    let options = format!(
        "--no-secure --value /temp=21.5 --resource-server hob --token-key hob.key --revocations coaps://{}",
        server.addresses[0]
    );
    let mut hob = Server::start(dir, &options.split(' ').collect::<Vec<_>>(), 1);
    hob.wait_for("revoked tokens: 1 on the list");
    let uri = format!("coap://{}", hob.addresses[0]);
    fails(dir, &["token", "post", "hob.token", &uri, "--context", "hob"], 1, "4.01");
    hob.end();
    server.end();
}

#[test]
fn a_client_proves_by_edhoc_that_a_token_is_its_own() {
    let scene = Scene::new("tokens-edhoc");
    let dir = scene.0.as_path();
    let access = access(dir, "lock", Credential::Edhoc);
    let (as_uri, key) = (format!("coaps://{}", access.addresses[0]), to_hex(&SHARED_KEY));
    let request = |options: &[&'static str]| {
        let common = ["token", "request", &*as_uri, "-u", "display", "-k", &*key, "--audience", "lock"];
        [&common, options].concat()
    };
    let credential = succeeds(dir, &["edhoc", "new", "lock.edhoc", "--name", "lock"]);
    std::fs::write(dir.join("lock.pub"), credential).unwrap();
    for name in ["display", "other"] {
        succeeds(dir, &["edhoc", "new", &format!("{name}.edhoc"), "--name", name, "--by-value"]);
    }
    succeeds(dir, &["edhoc", "new", "short.edhoc", "--name", "short"]);
    let options = "--no-secure --value /state=shut --value /log=none --resource-server lock --token-key lock.key --edhoc lock.edhoc";
    let server = Server::start(dir, &options.split(' ').collect::<Vec<_>>(), 1);
    let uri = format!("coap://{}", server.addresses[0]);
    let (state, log) = (format!("{uri}/state"), format!("{uri}/log"));
    let get = |key: &'static str| ["get", "--edhoc", key, "--edhoc-server", "lock.pub"];

    let bound = ["--allow", "GET /state", "--output", "lock.token", "--own-key"];
    fails(dir, &request(&[&bound[..], &["short.edhoc"]].concat()), 2, "--by-value");
    fails(dir, &request(&bound[..4]), 1, "4.00");
    fails(dir, &[&get("display.edhoc")[..], &[&state]].concat(), 1, "does not know our credential");
    succeeds(dir, &request(&[&bound[..], &["display.edhoc"]].concat()));
    fails(dir, &["token", "post", "lock.token", &uri, "--context", "x"], 2, "--context");
    succeeds(dir, &["token", "post", "lock.token", &uri]);
    assert_eq!(succeeds(dir, &[&get("display.edhoc")[..], &[&state]].concat()), "shut\n");
    fails(dir, &[&get("display.edhoc")[..], &[&log]].concat(), 1, "4.03");
    // Another key proves nothing of the token.
    fails(dir, &[&get("other.edhoc")[..], &[&state]].concat(), 1, "does not know our credential");
    server.end();
    access.end();
}

#[test]
fn mistakes_of_a_resource_server_are_named() {
    let scene = Scene::new("tokens-mistakes");
    let dir = scene.0.as_path();
    secret(dir, "short.key", "00ff");
    let check = |options: &str, words: &str| {
        let arguments = format!("serve --check-config --no-secure --value /temp=1 {options}");
        fails(dir, &arguments.split(' ').collect::<Vec<_>>(), 2, words);
    };
    check("--oscore . --token-key short.key", "it needs --resource-server");
    check("--resource-server hob", "it needs --token-key");
    check("--resource-server hob --token-key short.key", "64 hexadecimal digits");
    check("--resource-server hob --token-key none.key", "none.key");
    check("--revocations coaps://a --oscore .", "it needs --resource-server");
    check("--resource-server hob --token-key short.key --revocations coap://a", "coaps://host[:port]");
    check("--resource-server hob --token-key short.key --revocations coaps://a/revoke/trl", "coaps://host[:port]");
    check("--plain --resource-server hob --token-key short.key --access-server coaps://a/token", "leave it out");
}
