//! Runs the test cases of all drivers on a database in a file, and test cases for such files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tegmen_store::conformance::{Driver, cases};
use tegmen_store::database::Change;
use tegmen_store::sealing::SealingKey;
use tegmen_store::store::Number;
use tegmen_store::{Database, Options, StateError, Store, StoreError, Transaction, Value};
use zeroize::Zeroizing;

/// A directory and a clock. The first value is the path of the directory, which is removed at the end. The second value
/// is the time of the clock in seconds. The clock measures leases.
struct Scene(PathBuf, Arc<AtomicU64>);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir, Arc::default())
    }

    fn file(&self) -> PathBuf {
        self.0.join("state.db")
    }

    /// Writes a sealing key that consists of 64 equal digits to a file, and returns the key.
    fn key(&self, digit: &str) -> Arc<SealingKey> {
        let file = self.0.join(format!("{digit}.key"));
        std::fs::write(&file, digit.repeat(64)).unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Arc::new(SealingKey::from_file(&file).unwrap())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Driver for Scene {
    type Store = Database;

    fn open(&self) -> Database {
        let clock = self.1.clone();
        let monotonic = Arc::new(move || Duration::from_secs(clock.load(Ordering::SeqCst)));
        let sealing = Some(self.key("a") as Arc<dyn tegmen_store::sealing::Keeper>);
        Database::open_with(&self.file(), Options { sealing, monotonic, ..Options::default() }).unwrap()
    }

    fn crash(&self, store: Database) {
        store.abandon();
    }

    fn pass(&self, time: Duration) {
        self.1.fetch_add(time.as_secs(), Ordering::SeqCst);
    }
}

#[test]
fn a_database_in_a_file_passes_the_cases_of_all_drivers() {
    for case in cases() {
        println!("{}", case.name);
        (case.run)(&Scene::new(case.name));
    }
}

fn put(key: &str, text: &str) -> Transaction {
    Transaction::default().put(key, Value::Plain(text.as_bytes().to_vec()))
}

#[test]
fn an_older_copy_is_refused_after_a_number_moved() {
    let scene = Scene::new("copy");
    let number = |next| Transaction::default().put("n", Value::Number(Number { next, pace: 100 }));
    let store = scene.open();
    store.commit(number(1)).wait().unwrap();
    drop(store);
    let copy = std::fs::read(scene.file()).unwrap();
    let store = scene.open();
    store.commit(number(2)).wait().unwrap();
    drop(store);
    std::fs::write(scene.file(), copy).unwrap();
    assert!(matches!(Database::open(&scene.file()), Err(StateError::Untrusted { .. })));
}

#[test]
fn secrets_are_sealed_and_open_only_under_their_key() {
    let scene = Scene::new("sealed");
    let open = |key: Option<Arc<SealingKey>>| {
        let sealing = key.map(|key| key as Arc<dyn tegmen_store::sealing::Keeper>);
        Database::open_with(&scene.file(), Options { sealing, ..Options::default() })
    };
    let secret = || Transaction::default().put("s", Value::Secret(Zeroizing::new(b"in nobody's sight".to_vec())));
    let store = open(Some(scene.key("a"))).unwrap();
    store.commit(secret()).wait().unwrap();
    drop(store);
    let bytes = std::fs::read(scene.file()).unwrap();
    assert!(!bytes.windows(17).any(|window| window == b"in nobody's sight"));
    match open(Some(scene.key("b"))) {
        Err(error @ StateError::Sealing { .. }) => {
            assert!(error.to_string().contains("Give the sealing key"), "{error}")
        }
        _ => panic!("another key"),
    }
    let store = open(None).unwrap();
    assert_eq!(store.read(b"s", None).wait().unwrap_err(), StoreError::Sealed);
    assert_eq!(store.commit(secret()).wait().unwrap_err(), StoreError::Sealed);
    drop(store);
    let store = open(Some(scene.key("a"))).unwrap();
    let entry = store.read(b"s", None).wait().unwrap().entry.unwrap();
    assert!(matches!(entry.value, Value::Secret(bytes) if *bytes == b"in nobody's sight"));
}

#[test]
fn a_recovery_goes_past_all_revisions_that_were_used() {
    let scene = Scene::new("recover");
    let store = scene.open();
    let mut last = store.commit(put("a", "1")).wait().unwrap();
    drop(store);
    for _ in 0..3 {
        tegmen_store::recover(&scene.file()).unwrap();
        let store = scene.open();
        let next = store.commit(put("a", "1")).wait().unwrap();
        assert!(next > last);
        last = next;
    }
}

#[test]
fn tables_of_a_newer_version_are_left_alone() {
    let scene = Scene::new("version");
    drop(scene.open());
    set_version(&scene.file(), 99);
    let refused = Database::open(&scene.file()).err().unwrap();
    assert!(matches!(refused, StateError::Version { found: 99, .. }), "{refused}");
    set_version(&scene.file(), 3);
    scene.open();
}

const BY_LEASE: &str = "SELECT sql FROM sqlite_master WHERE name = 'by_lease'";

#[test]
fn tables_of_version_2_are_changed_and_keep_their_rows() {
    let scene = Scene::new("version-2");
    let store = scene.open();
    let lease = store.grant(Duration::from_secs(60)).wait().unwrap();
    let mut both = put("leased", "1");
    both.put[0].lease = Some(lease);
    store.commit(both.put("kept", Value::Plain(b"1".to_vec()))).wait().unwrap();
    store.commit(put("kept", "2")).wait().unwrap();
    drop(store);
    let connection = rusqlite::Connection::open(scene.file()).unwrap();
    let today: String = connection.query_row(BY_LEASE, [], |row| row.get(0)).unwrap();
    connection
        .execute_batch(
            "DROP INDEX by_lease; CREATE INDEX by_lease ON versions (lease) WHERE lease IS NOT NULL;
             PRAGMA user_version = 2;",
        )
        .unwrap();
    drop(connection);
    drop(scene.open());
    let connection = rusqlite::Connection::open(scene.file()).unwrap();
    assert_eq!(connection.query_row(BY_LEASE, [], |row| row.get::<_, String>(0)).unwrap(), today);
    drop(connection);
    let store = scene.open();
    assert!(store.read(b"leased", None).wait().unwrap().entry.is_some());
    assert_eq!(store.read(b"kept", None).wait().unwrap().entry.unwrap().value.plain(), Some(b"2".as_slice()));
    store.revoke(lease).wait().unwrap();
    assert!(store.read(b"leased", None).wait().unwrap().entry.is_none());
}

fn set_version(file: &Path, version: i64) {
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.pragma_update(None, "user_version", version).unwrap();
}

#[test]
fn a_stream_of_reads_does_not_hold_a_change_back() {
    let scene = Scene::new("stream");
    let store = scene.open();
    // The writing thread waits in here until all calls below are queued.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    store.change(Change::Remove("none".into()), Some(Box::new(move |_| wait.recv().unwrap())));
    let committed = store.commit(put("a", "1"));
    let reads: Vec<_> = (0..2_000).map(|_| store.read(b"a", None)).collect();
    go.send(()).unwrap();
    let committed = committed.wait().unwrap();
    let last = reads.into_iter().last().unwrap().wait().unwrap();
    assert!(last.at >= committed, "2,000 reads that were queued later were answered first");
}
