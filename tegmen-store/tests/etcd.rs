//! Runs the test cases of all drivers on etcd, and test cases for etcd alone. `./ci.sh cluster` runs this file, which
//! needs the program `etcd`.

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tegmen_store::conformance::{Driver, cases};
use tegmen_store::etcd::Address;
use tegmen_store::sealing::{Keeper, SealingKey};
use tegmen_store::{Etcd, Revision, StateError, Store, StoreError, Transaction, Value};
use zeroize::Zeroizing;

/// A process of etcd with its directory and its port, and the name of a store in this etcd.
struct Scene {
    dir: PathBuf,
    port: u16,
    process: RefCell<Child>,
    name: RefCell<String>,
}

/// Returns a port of this machine at which no program listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-etcd-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let (port, peers) = (free_port(), free_port());
        let process = RefCell::new(start(&dir, port, peers));
        std::fs::write(dir.join("peers"), peers.to_string()).unwrap();
        Self { dir, port, process, name: RefCell::new("tegmen".to_owned()) }
    }

    fn address(&self) -> Address {
        format!("etcd://127.0.0.1:{}/{}", self.port, self.name.borrow()).parse().unwrap()
    }

    /// Writes a sealing key that consists of 64 equal digits to a file, and returns the key.
    fn key(&self, digit: &str) -> SealingKey {
        let file = self.dir.join(format!("{digit}.key"));
        std::fs::write(&file, digit.repeat(64)).unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        SealingKey::from_file(&file).unwrap()
    }

    fn with_key(&self, digit: &str) -> Result<Etcd, StateError> {
        Etcd::open(&self.address(), Some(&self.key(digit) as &dyn Keeper))
    }

    fn kill(&self) {
        let mut process = self.process.borrow_mut();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn restart(&self) {
        let peers = std::fs::read_to_string(self.dir.join("peers")).unwrap().parse().unwrap();
        *self.process.borrow_mut() = start(&self.dir, self.port, peers);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Starts etcd, and waits until it accepts connections.
fn start(dir: &std::path::Path, port: u16, peers: u16) -> Child {
    let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
    let process = Command::new("etcd")
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}"), "--log-level", "error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("etcd: {error}; type: sudo apt-get install --no-install-recommends etcd-server")
        });
    let end = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "etcd does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    process
}

impl Driver for Scene {
    type Store = Etcd;

    fn open(&self) -> Etcd {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            match self.with_key("a") {
                Ok(store) => return store,
                // It listens before it has a leader.
                Err(StateError::Unreachable { .. }) if Instant::now() < end => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn crash(&self, store: Etcd) {
        self.kill();
        drop(store);
        self.restart();
    }

    fn pass(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[test]
#[ignore = "it needs etcd: ./ci.sh cluster"]
fn etcd_passes_the_cases_of_all_drivers() {
    let scene = Scene::new("cases");
    for case in cases() {
        println!("{}", case.name);
        scene.name.replace(case.name.to_owned());
        (case.run)(&scene);
    }
}

#[test]
#[ignore = "it needs etcd: ./ci.sh cluster"]
fn secrets_in_etcd_open_only_under_their_key_and_in_their_row() {
    let scene = Scene::new("sealed");
    let store = scene.open();
    let secret =
        |key: &str| Transaction::default().put(key, Value::Secret(Zeroizing::new(b"in nobody's sight".to_vec())));
    store.commit(secret("s")).wait().unwrap();
    match scene.with_key("b") {
        Err(error @ StateError::Sealing { .. }) => {
            assert!(error.to_string().contains("Give the sealing key"), "{error}");
        }
        _ => panic!("another key"),
    }
    let without = Etcd::open(&scene.address(), None).unwrap();
    assert_eq!(without.read(b"s", None).wait().unwrap_err(), StoreError::Sealed);
    assert_eq!(without.commit(secret("t")).wait().unwrap_err(), StoreError::Sealed);
    // Somebody who can write to etcd puts the secret into another row.
    let v3 = |path: &str, body: String| {
        let mut stream = TcpStream::connect(("127.0.0.1", scene.port)).unwrap();
        let length = body.len();
        write!(stream, "POST /v3/kv/{path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        answer
    };
    // tegmen/row/s and tegmen/row/t in base64.
    let row = v3("range", r#"{"key":"dGVnbWVuL3Jvdy9z"}"#.to_owned());
    let value = row.split_once("\"value\":\"").unwrap().1.split_once('"').unwrap().0;
    v3("put", format!(r#"{{"key":"dGVnbWVuL3Jvdy90","value":"{value}"}}"#));
    assert!(matches!(store.read(b"t", None).wait(), Err(StoreError::Unavailable { why }) if why.contains("damaged")));
    assert!(store.read(b"s", None).wait().is_ok());
}

#[test]
#[ignore = "it needs etcd: ./ci.sh cluster"]
fn two_servers_that_begin_at_the_same_time_have_one_data_key() {
    let scene = Scene::new("data-key");
    drop(scene.open());
    let key: Arc<SealingKey> = Arc::new(scene.key("a"));
    for turn in 0..10 {
        scene.name.replace(format!("store-{turn}"));
        let (address, barrier) = (scene.address(), std::sync::Barrier::new(4));
        let stores: Vec<Etcd> = std::thread::scope(|scope| {
            let open = || {
                barrier.wait();
                Etcd::open(&address, Some(&*key)).unwrap()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let secret = Value::Secret(Zeroizing::new(vec![7]));
        stores[0].commit(Transaction::default().put("s", secret)).wait().unwrap();
        for store in &stores {
            assert!(store.read(b"s", None).wait().is_ok());
        }
    }
}

#[test]
#[ignore = "it needs etcd: ./ci.sh cluster"]
fn without_etcd_a_call_fails_and_a_watch_waits() {
    let scene = Scene::new("gone");
    let store = scene.open();
    let put = |text: &str| Transaction::default().put("k", Value::Plain(text.as_bytes().to_vec()));
    let first = store.commit(put("1")).wait().unwrap();
    let changes = store.changes(b"", first, 10);
    scene.kill();
    assert!(matches!(store.commit(put("2")).wait(), Err(StoreError::Unavailable { .. })));
    assert!(matches!(store.read(b"k", None).wait(), Err(StoreError::Unavailable { .. })));
    assert!(matches!(scene.with_key("a"), Err(StateError::Unreachable { .. })));
    scene.restart();
    let second = loop {
        match store.commit(put("3").require("k", first)).wait() {
            Ok(revision) => break revision,
            Err(StoreError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(changes.wait().unwrap().through, second);
    assert!(second > Revision(1));
}

/// A relay in front of a member of a cluster. While it hangs, it accepts connections and drops all bytes.
struct Relay {
    port: u16,
    hangs: Arc<AtomicBool>,
}

impl Relay {
    fn to(etcd: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, hangs) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let is_hung = Arc::clone(&hangs);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", etcd)).unwrap());
                let (to_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                for (from, to) in [(client, to_server), (server, to_client)] {
                    let is_hung = Arc::clone(&is_hung);
                    std::thread::spawn(move || pass_on(from, to, &is_hung));
                }
            }
        });
        Self { port, hangs }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_hung: &AtomicBool) {
    let mut part = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut part) {
        if !is_hung.load(Ordering::Relaxed) && to.write_all(&part[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
#[ignore = "it needs etcd: ./ci.sh cluster"]
fn a_member_that_hangs_is_asked_last() {
    let scene = Scene::new("hangs");
    drop(scene.open());
    let relay = Relay::to(scene.port);
    let address = format!("etcd://127.0.0.1:{},127.0.0.1:{}/tegmen", relay.port, scene.port);
    let store = Etcd::open(&address.parse().unwrap(), None).unwrap();
    let put = || Transaction::default().put("k", Value::Plain(vec![1]));
    store.commit(put()).wait().unwrap();
    relay.hangs.store(true, Ordering::Relaxed);
    // It may have been done, so it goes to no other member.
    assert!(matches!(store.commit(put()).wait(), Err(StoreError::Unavailable { .. })));
    store.commit(put()).wait().unwrap();
}

#[test]
fn an_address_names_members_and_a_store() {
    for (text, shown) in [
        ("etcd://a:1", "etcd://a:1/tegmen"),
        ("etcd://10.0.0.1:2379,10.0.0.2:2379/two", "etcd://10.0.0.1:2379,10.0.0.2:2379/two"),
        ("etcd://[::1]:2379/x", "etcd://[::1]:2379/x"),
    ] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
    }
    for wrong in
        ["a:1", "etcd://", "etcd://a", "etcd://a:0", "etcd://a:1,/x", "etcd://:1", "etcd://a:1/", "etcd://a:1/b/c"]
    {
        assert!(wrong.parse::<Address>().is_err(), "{wrong}");
    }
}
