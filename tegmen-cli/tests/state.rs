//! Tests a server that is killed again and again with `kill -9`, and clients that continue their sessions.
#![cfg(unix)]

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Response, Session, Tap, Tapped};
use tegmen_host::contexts;
use tegmen_host::uri::Scheme;

/// A server process. It is killed at the latest when this value is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, and waits until it listens at both ports.
fn serve(dir: &Path, ports: (u16, u16)) -> (Server, SocketAddr, SocketAddr) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tegmen"))
        .args(["serve", "--value", "/value=21.5", "--listen", "127.0.0.1", "--oscore", "server", "--state", "state.db"])
        .args(["--credentials", "keys.toml", "--shards", "2", "--json"])
        .args(["--port", &ports.0.to_string(), "--plain-port", &ports.1.to_string()])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut at = || loop {
        let line = lines.next().expect("it listens").unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if line["event"] == "listening" {
            return line["address"].as_str().unwrap().parse().unwrap();
        }
    };
    let addresses = (at(), at());
    std::thread::spawn(move || lines.for_each(drop));
    (Server(child), addresses.0, addresses.1)
}

async fn get(client: &Session) -> Response {
    loop {
        match client.get("/value").await {
            // Without a session there is nobody to wait for while no process has the port.
            Err(ClientError::Refused { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
            answered => return answered.unwrap(),
        }
    }
}

#[tokio::test]
async fn sessions_and_contexts_go_on_after_kill_9() {
    let dir = std::env::temp_dir().join(format!("tegmen-kill-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let run = |arguments: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments).current_dir(&dir).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["oscore", "new", "client", "server"]);
    run(&["keys", "new", "--file", "keys.toml", "--identity", "me"]);
    let keys = tegmen_host::credentials::Credentials::from_file(&dir.join("keys.toml")).unwrap();
    let key = keys.keys_of(b"me").unwrap().current.key;

    // Every record of the session, by direction and number.
    let seen = Arc::new(Mutex::new((0usize, HashSet::new())));
    let (tap, hellos) = (seen.clone(), Arc::new(AtomicUsize::new(0)));
    let count = hellos.clone();
    let tap = Tap(Arc::new(move |tapped| {
        if let Tapped::Datagram { sent, datagram, .. } = tapped {
            let mut seen = tap.lock().unwrap();
            seen.0 += 1;
            if sent && datagram[0] == 22 && datagram[13] == 1 {
                count.fetch_add(1, Ordering::SeqCst);
            }
            if matches!(datagram[0], 23 | 25) {
                assert!(seen.1.insert((sent, datagram[3..11].to_vec())), "a number was used twice");
            }
        }
    }));
    let mut dtls = ClientConfig::default();
    dtls.trust.key = Some(ClientKey { identity: "me".to_owned(), key });
    dtls.state.session = Some(dir.join("session"));
    dtls.log.tap = Some(tap);
    dtls.coap.timeout = Duration::from_secs(20);
    dtls.dtls.connection_id = Some(tegmen::dtls::ConnectionIdConfig { len: 0, ..Default::default() });
    let mut oscore = ClientConfig::default();
    oscore.oscore = Some(dir.join("client"));

    let (mut server, secure, plain) = serve(&dir, (0, 0));
    let mut client = Session::connect_to(secure, Scheme::Coaps, dtls.clone()).await.unwrap();
    let objects = Session::connect_to(plain, Scheme::Coap, oscore.clone()).await.unwrap();
    assert_eq!((get(&client).await.payload, get(&objects).await.payload), (b"21.5".to_vec(), b"21.5".to_vec()));
    // A session that is a few milliseconds old may be lost; this one is on the disk.
    tokio::time::sleep(Duration::from_millis(200)).await;
    for round in 0..5u64 {
        // At any moment: also while it answers.
        let (dir, ports) = (dir.clone(), (secure.port(), plain.port()));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(3000 + 7919 * round));
            drop(server);
            serve(&dir, ports).0
        });
        while !killer.is_finished() {
            assert_eq!(get(&client).await.payload, b"21.5");
            assert_eq!(get(&objects).await.payload, b"21.5");
        }
        server = killer.join().unwrap();
        if round % 2 == 1 {
            // The client is killed, too.
            drop(client);
            client = Session::connect_to(secure, Scheme::Coaps, dtls.clone()).await.unwrap();
        }
        get(&client).await;
        get(&objects).await;
        // And then both know who speaks.
        let before = seen.lock().unwrap().0;
        get(&client).await;
        assert_eq!(seen.lock().unwrap().0, before + 2);
    }
    assert_eq!(hellos.load(Ordering::SeqCst), 2, "one handshake, and that with a cookie");
    drop((client, objects));
    drop(server);
    assert!(contexts::used(&dir.join("server")).unwrap().in_database);
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn a_hangup_reads_certificate_and_key_again_and_ends_nothing() {
    let dir = std::env::temp_dir().join(format!("tegmen-hangup-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let run = |arguments: &str| {
        let done =
            Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments.split(' ')).current_dir(&dir).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        done.status.success().then(|| String::from_utf8(done.stdout).unwrap()).ok_or(said)
    };
    for ca in ["one", "two"] {
        run(&format!("ca init {ca} --name {ca}")).unwrap();
        run(&format!("ca issue {ca} --name gateway --ip 127.0.0.1")).unwrap();
    }
    let show = |ca: &str| {
        for kind in ["pem", "key"] {
            std::fs::copy(dir.join(format!("{ca}/gateway.{kind}")), dir.join(format!("own.{kind}"))).unwrap();
        }
    };
    show("one");
    let child = Command::new(env!("CARGO_BIN_EXE_tegmen"))
        .args(["serve", "--value", "/value=21.5", "--listen", "127.0.0.1", "--port", "0", "--json"])
        .args(["--cert", "own.pem", "--cert-key", "own.key", "--anonymous", "GET /*"])
        .current_dir(&dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Server(child);
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut next = |event: &str| loop {
        let line: serde_json::Value = serde_json::from_str(&lines.next().expect("it runs").unwrap()).unwrap();
        if line["event"] == event {
            return line;
        }
    };
    let address = next("listening")["address"].as_str().unwrap().to_owned();
    let get = |ca: &str| run(&format!("get coaps://{address}/value --ca {ca}/ca.pem"));
    assert_eq!(get("one").unwrap().trim(), "21.5");
    assert!(get("two").is_err());
    let hangup = |server: &Server| {
        let done = Command::new("kill").args(["-HUP", &server.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    };
    show("two");
    hangup(&server);
    assert!(next("hangup")["error"].is_null());
    assert_eq!(get("two").unwrap().trim(), "21.5");
    assert!(get("one").is_err());
    // A key that is not of the certificate changes nothing.
    std::fs::copy(dir.join("one/gateway.key"), dir.join("own.key")).unwrap();
    hangup(&server);
    assert!(next("hangup")["error"].as_str().unwrap().contains("private key"));
    assert_eq!(get("two").unwrap().trim(), "21.5");
    drop(server);
    let _ = std::fs::remove_dir_all(&dir);
}
