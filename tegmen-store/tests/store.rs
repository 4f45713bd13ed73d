//! The calls of a store, on a database in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tegmen_store::database::Change;
use tegmen_store::sealing::SealingKey;
use tegmen_store::store::{LeaseId, Number, Scan};
use tegmen_store::{Database, Options, Revision, StateError, Store, StoreError, Transaction, Value, Watch};
use zeroize::Zeroizing;

/// A directory that is gone at the end.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state.db")
    }

    fn open(&self) -> Database {
        Database::open(&self.file()).unwrap()
    }

    /// A file with a sealing key of one digit.
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

fn plain(text: &str) -> Value {
    Value::Plain(text.as_bytes().to_vec())
}

fn put(key: &str, text: &str) -> Transaction {
    Transaction::default().put(key, plain(text))
}

fn text(store: &Database, key: &str, at: Option<Revision>) -> Option<String> {
    let entry = store.read(key.as_bytes(), at).wait().unwrap().entry?;
    Some(String::from_utf8(entry.value.plain().unwrap().to_vec()).unwrap())
}

#[test]
fn a_transaction_is_made_as_a_whole_or_not_at_all() {
    let scene = Scene::new("whole");
    let store = scene.open();
    let first = store.commit(put("a", "1").put("b", plain("1"))).wait().unwrap();
    let refused = store.commit(put("a", "2").delete("b").require("b", Revision::ABSENT)).wait();
    assert_eq!(refused, Err(StoreError::Conflict { key: b"b".to_vec(), found: first }));
    assert_eq!((text(&store, "a", None), text(&store, "b", None)), (Some("1".into()), Some("1".into())));
    let second = store.commit(put("a", "2").delete("b").require("b", first)).wait().unwrap();
    assert!(second > first);
    assert_eq!((text(&store, "a", None), text(&store, "b", None)), (Some("2".into()), None));
    assert_eq!(text(&store, "b", Some(first)), Some("1".into()), "as it was then");
    assert!(matches!(store.commit(put("a", "3").delete("a")).wait(), Err(StoreError::Invalid { .. })));
}

#[test]
fn no_revision_comes_again_after_a_restart_and_rows_stay() {
    let scene = Scene::new("restart");
    let mut last = Revision::ABSENT;
    for round in 0..6 {
        let store = scene.open();
        let answers: Vec<_> = (0..50).map(|number| store.commit(put(&format!("{round}/{number}"), "x"))).collect();
        for answer in answers {
            let revision = answer.wait().unwrap();
            assert!(revision > last);
            last = revision;
        }
        if round % 2 == 0 {
            store.abandon();
        }
    }
    let page = scene.open().scan(Scan::of("", 1000)).wait().unwrap();
    assert_eq!((page.entries.len(), page.next), (300, None));
}

#[test]
fn pages_of_one_revision_have_each_row_once_while_others_change() {
    let scene = Scene::new("pages");
    let store = scene.open();
    for number in 0..10 {
        store.commit(put(&format!("k/{number}"), "old")).wait().unwrap();
    }
    store.commit(put("l", "other")).wait().unwrap();
    let (mut scan, mut keys) = (Some(Scan::of("k/", 3)), Vec::new());
    while let Some(this) = scan {
        let page = store.scan(this.clone()).wait().unwrap();
        keys.extend(page.entries.iter().map(|entry| String::from_utf8(entry.key.clone()).unwrap()));
        assert!(page.entries.iter().all(|entry| entry.value == plain("old")));
        store.commit(put("k/9", "new").delete("k/8").put("k/0a", plain("new"))).wait().unwrap();
        scan = this.following(&page);
    }
    assert_eq!(keys, (0..10).map(|number| format!("k/{number}")).collect::<Vec<_>>());
}

#[test]
fn a_watch_sees_each_change_in_order_and_is_told_of_compaction() {
    let scene = Scene::new("watch");
    let store = scene.open();
    let begin = store.read(b"w/a", None).wait().unwrap().at;
    let first = store.commit(put("w/a", "1").put("other", plain("x"))).wait().unwrap();
    let second = store.commit(put("w/a", "2")).wait().unwrap();
    let third = store.commit(Transaction::default().delete("w/a")).wait().unwrap();
    let mut watch = Watch::new(store.clone(), "w/", begin);
    let changes = watch.wait().unwrap().changes;
    let seen: Vec<_> = changes.iter().map(|change| (change.revision, change.entry.is_some())).collect();
    assert_eq!(seen, [(first, true), (second, true), (third, false)]);
    // One that waits is answered by the next change of its keys, and by no other.
    let waiting = std::thread::spawn(move || watch.wait().unwrap().changes);
    store.commit(put("other", "y")).wait().unwrap();
    let fourth = store.commit(put("w/b", "1")).wait().unwrap();
    let changes = waiting.join().unwrap();
    assert_eq!(changes.iter().map(|change| change.revision).collect::<Vec<_>>(), [fourth]);
    store.compact(third).wait().unwrap();
    let told = store.changes(b"w/", first, 10).wait();
    assert_eq!(told, Err(StoreError::Compacted { oldest: third }));
    assert!(matches!(store.read(b"w/a", Some(first)).wait(), Err(StoreError::Compacted { .. })));
    assert_eq!(text(&store, "w/b", None), Some("1".into()));
    assert_eq!(store.changes(b"w/", third, 10).wait().unwrap().changes.len(), 1);
}

#[test]
fn rows_of_a_lease_go_in_one_revision_when_its_time_is_over() {
    let scene = Scene::new("lease");
    let time = Arc::new(AtomicU64::new(0));
    let clock = time.clone();
    let monotonic = Arc::new(move || Duration::from_secs(clock.load(Ordering::SeqCst)));
    let store = Database::open_with(&scene.file(), Options { monotonic, ..Options::default() }).unwrap();
    let lease = store.grant(Duration::from_secs(10)).wait().unwrap();
    let attached = Transaction::default().put_leased("a", plain("1"), lease).put_leased("b", plain("1"), lease);
    let begin = store.commit(attached).wait().unwrap();
    time.store(9, Ordering::SeqCst);
    store.renew(lease).wait().unwrap();
    time.store(18, Ordering::SeqCst);
    assert_eq!(text(&store, "a", None), Some("1".into()));
    time.store(19, Ordering::SeqCst);
    let changes = store.changes(b"", begin, 10);
    let _ = store.read(b"a", None).wait().unwrap();
    let gone = changes.wait().unwrap().changes;
    assert!(gone.len() == 2 && gone.iter().all(|change| change.entry.is_none()));
    assert_eq!(gone[0].revision, gone[1].revision);
    assert_eq!(store.renew(lease).wait(), Err(StoreError::LeaseEnded(lease)));
    let late = store.commit(Transaction::default().put_leased("c", plain("1"), lease)).wait();
    assert_eq!(late, Err(StoreError::LeaseEnded(lease)));
    assert_eq!(store.revoke(LeaseId(7)).wait(), Err(StoreError::LeaseEnded(LeaseId(7))));
}

#[test]
fn a_number_only_goes_forward_at_its_pace() {
    let scene = Scene::new("number");
    let store = scene.open();
    let number = |next, pace| Transaction::default().put("n", Value::Number(Number { next, pace }));
    store.commit(number(5, 100)).wait().unwrap();
    for refused in [number(5, 100), number(4, 100), number(6, 101), put("n", "text")] {
        assert!(matches!(store.commit(refused).wait(), Err(StoreError::NotForward { .. })));
    }
    store.commit(number(90, 100)).wait().unwrap();
    assert!(matches!(store.commit(number(1000, 100)).wait(), Err(StoreError::TooFast { .. })));
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
    set_version(&scene.file(), 2);
    scene.open();
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
