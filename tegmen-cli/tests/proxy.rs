//! Tests `tegmen serve` as a proxy, and `tegmen get --proxy`.
#![cfg(unix)]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use works::{Scene, Server};

fn tegmen(scene: &Scene, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments).current_dir(&scene.0).output().unwrap()
}

fn uri_of(server: &Server) -> String {
    format!("coap://127.0.0.1:{}", server.addresses[0].port())
}

fn shown(scene: &Scene, arguments: &[&str]) -> String {
    let output = tegmen(scene, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn a_forward_and_a_reverse_proxy_give_what_they_stored() {
    let scene = Scene::new("proxy-both");
    let origin = Server::start(&scene.0, &["--value", "/temp=21.5", "--plain", "--no-secure"], 1);
    let uri = uri_of(&origin);
    let reverse = format!("/house={uri}");
    let proxy = Server::start(
        &scene.0,
        &["--plain", "--no-secure", "--proxy-to", "coap://127.0.0.1:*", "--proxy-reverse", &reverse],
        1,
    );
    let at = uri_of(&proxy);
    let temp = format!("{uri}/temp");
    assert_eq!(shown(&scene, &["get", "--proxy", &at, &temp]), "21.5");
    assert_eq!(shown(&scene, &["get", &format!("{at}/house/temp")]), "21.5");
    shown(&scene, &["put", "--proxy", &at, &temp, "22"]);
    assert_eq!(shown(&scene, &["get", "--proxy", &at, &temp]), "22");
    drop(origin);
    assert_eq!(shown(&scene, &["get", &format!("{at}/house/temp")]), "22");
    let elsewhere = tegmen(&scene, &["get", "--proxy", &at, "coap://192.0.2.1/temp"]);
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("4.03"));
}

#[test]
fn a_reverse_proxy_has_an_origin_for_each_host() {
    let scene = Scene::new("proxy-hosts");
    let serve = |value: &str| Server::start(&scene.0, &["--value", value, "--plain", "--no-secure"], 1);
    let (attic, cellar) = (serve("/temp=31"), serve("/temp=12"));
    let file = format!(
        "[proxy]\nproxy-host = [\"attic.example={}\", \"cellar.example={}\", \"house.example=\"]\n\
         [addresses]\nplain = true\nno-secure = true\n[resources]\nvalue = [\"/temp=20\"]\n",
        uri_of(&attic),
        uri_of(&cellar),
    );
    std::fs::write(scene.0.join("tegmen.toml"), file).unwrap();
    assert_eq!(shown(&scene, &["serve", "--config", "tegmen.toml", "--check-config"]), "ok");
    let proxy = Server::start(&scene.0, &["--config", "tegmen.toml"], 1);
    let temp = format!("{}/temp", uri_of(&proxy));
    for (host, expected) in [("attic.example", "31"), ("Cellar.Example", "12"), ("house.example", "20")] {
        assert_eq!(shown(&scene, &["get", "-O", &format!("3={host}"), &temp]), expected);
    }
    assert_eq!(shown(&scene, &["get", &temp]), "20");
    let unknown = tegmen(&scene, &["get", "-O", "3=shed.example", &temp]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("4.04"));
    let lines = proxy.end();
    assert!(lines.iter().any(|line| line.contains("GET /proxy/host/attic.example/temp")), "{lines:?}");
}

/// Sends an HTTP request, and returns the response.
fn http(at: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: p\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn http_clients_use_the_forward_proxy() {
    let scene = Scene::new("proxy-http");
    let origin = Server::start(&scene.0, &["--value", "/temp=21.5", "--plain", "--no-secure"], 1);
    let file = "[proxy]\nproxy-to = [\"coap://127.0.0.1:*\"]\nproxy-http = \"127.0.0.1:0\"\n[addresses]\nplain = true\nno-secure = true\n";
    std::fs::write(scene.0.join("tegmen.toml"), file).unwrap();
    assert_eq!(shown(&scene, &["serve", "--config", "tegmen.toml", "--check-config"]), "ok");
    let proxy = Server::start(&scene.0, &["--config", "tegmen.toml"], 2);
    let at = proxy.addresses[1];
    let temp = format!("/hc/{}/temp", uri_of(&origin));
    assert!(http(at, "GET", &temp, "").ends_with("\r\n\r\n21.5"));
    assert!(http(at, "PUT", &temp, "22").starts_with("HTTP/1.1 204 "));
    assert!(http(at, "GET", &temp, "").ends_with("\r\n\r\n22"));
    assert!(http(at, "GET", "/hc/coap://192.0.2.1/temp", "").starts_with("HTTP/1.1 403 "));
    let lines = proxy.end();
    assert!(lines.iter().any(|line| line.contains("PUT /proxy/coap/127.0.0.1:")), "{lines:?}");
}

#[test]
fn http_clients_are_clients_in_clear() {
    let scene = Scene::new("proxy-http-clear");
    std::fs::write(scene.0.join("credentials.toml"), "").unwrap();
    let arguments = ["serve", "--check-config", "--proxy-to", "coap://a", "--proxy-http", "127.0.0.1:0"];
    let output = tegmen(&scene, &arguments);
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("--proxy-http: its clients are clients in clear: it needs --plain")
    );
}

#[test]
fn mistakes_name_the_option_and_the_reason() {
    let scene = Scene::new("proxy-mistakes");
    let wrong = |arguments: &[&str]| {
        let all = [&["serve", "--plain", "--no-secure"], arguments].concat();
        let output = tegmen(&scene, &all);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(wrong(&["--proxy-to", "ftp://a"]).contains("coap://sensor.local"));
    assert!(wrong(&["--proxy-reverse", "/a=coap://b/c"]).contains("an origin has no path"));
    assert!(wrong(&["--value", "/a=1", "--proxy-credentials", "keys.toml"]).contains("--proxy-to"));
    assert!(wrong(&["--value", "/a=1", "--proxy-http", "127.0.0.1:0"]).contains("proxy-http: it needs --proxy-to"));
    let twice = ["--proxy-reverse", "/a=coap://b", "--proxy-reverse", "/a=coap://c"];
    assert!(wrong(&twice).contains("two origins"));
    assert!(wrong(&["--proxy-host", "a=coap://b/c"]).contains("an origin has no path"));
    assert!(wrong(&["--proxy-host", "192.0.2.1=coap://b"]).contains("neither an address"));
    let twice = ["--proxy-host", "a=coap://b", "--proxy-host", "A=coap://c"];
    assert!(wrong(&twice).contains("two origins of this host"));
    assert!(wrong(&["--proxy-to", "coaps://b", "--proxy-ca", "missing.pem"]).contains("proxy-ca"));
    for (path, prefix) in [("/house", "/house"), ("/house/x", "/house"), ("/x", "/")] {
        let reverse = format!("--proxy-reverse={prefix}=coap://b");
        let hidden = wrong(&["--value", &format!("{path}=1"), &reverse]);
        assert!(hidden.contains(&format!("--value: {path}: --proxy-reverse has all paths")), "{hidden}");
    }
    for keyless in ["--proxy-to=coaps://b", "--proxy-reverse=/a=coaps://b", "--proxy-host=a=coaps://b"] {
        assert!(wrong(&[keyless]).contains("needs --proxy-credentials, or --proxy-ca"), "{keyless}");
    }
    assert!(wrong(&["--proxy-to", "https://b"]).contains("https://b:443: an origin with https needs --proxy-ca"));
    let spaced = wrong(&["--proxy-to", "coap://b", "--proxy-name", "my proxy"]);
    assert!(spaced.contains("--proxy-name: ") && spaced.contains("choose a name without spaces"), "{spaced}");
}
