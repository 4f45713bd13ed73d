//! Backups of a database, and databases that are restored from them.

use sha2::Digest as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tegmen_store::backup::{self, BackupError, Manifest};
use tegmen_store::clock::{DAY, now_millis};
use tegmen_store::database::Change;
use tegmen_store::sealing::Keeper;
use tegmen_store::store::{Number, Scan};
use tegmen_store::{
    Database, Numbers, Options, Revision, SealingKey, StateError, Store, StoreError, Transaction, Value,
};

/// A directory with a database and a clock. The directory is removed at the end.
struct Scene {
    dir: PathBuf,
    /// Milliseconds by which the clock of the database is later than the real time.
    ahead: Arc<AtomicU64>,
    behind: Arc<AtomicU64>,
    is_set: Arc<AtomicBool>,
    key: Option<Arc<SealingKey>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Scene {
    fn new(name: &str, key: Option<&str>) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-backup-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let key = key.map(|digit| {
            let file = dir.join("sealing.key");
            std::fs::write(&file, digit.repeat(64)).unwrap();
            #[cfg(unix)]
            std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            Arc::new(SealingKey::from_file(&file).unwrap())
        });
        Self { dir, ahead: Arc::default(), behind: Arc::default(), is_set: Arc::new(AtomicBool::new(true)), key }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn options(&self) -> Options {
        let (ahead, behind, is_set) = (self.ahead.clone(), self.behind.clone(), self.is_set.clone());
        let wall = move || match is_set.load(Ordering::Relaxed) {
            true => now_millis() + ahead.load(Ordering::Relaxed) - behind.load(Ordering::Relaxed),
            false => 1000,
        };
        let sealing = self.key.clone().map(|key| key as Arc<dyn Keeper>);
        Options { sealing, wall: Arc::new(wall), ..Options::default() }
    }

    fn open(&self) -> Result<Database, StateError> {
        Database::open_with(&self.file("state.db"), self.options())
    }

    fn verify(&self, name: &str) -> Result<Manifest, BackupError> {
        backup::verify(&self.file(name), self.key.as_deref().map(|key| key as &dyn Keeper))
    }

    fn restore(&self) -> Result<Manifest, BackupError> {
        backup::restore(&self.file("backup"), &self.file("state.db"), self.options())
    }

    fn advance(&self, millis: u64) {
        self.ahead.fetch_add(millis, Ordering::Relaxed);
    }

    /// Removes all files of the database, as the loss of a disk would.
    fn lose(&self) {
        for entry in std::fs::read_dir(&self.dir).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with("state.db") {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}

fn plain(text: &str) -> Value {
    Value::Plain(text.as_bytes().to_vec())
}

/// A generator of random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

const KEYS: [(&str, u64); 3] = [("n/slow", 10), ("n/fast", 1_000_000), ("n/epoch", 1000)];

/// Increases a number `most` times. Each time a random key selects the number. If the pace of the number allows the
/// increase, writes the new value to `issued` under this key. Returns the newest revision.
fn use_numbers(store: &Database, random: &mut Random, most: u64, issued: &mut BTreeMap<String, u64>) -> Revision {
    let mut newest = Revision::ABSENT;
    for _ in 0..most {
        let (key, pace) = KEYS[random.below(3) as usize];
        let found = store.read(key.as_bytes(), None).wait().unwrap().entry;
        let next = found.map_or(0, |entry| match entry.value {
            Value::Number(number) => number.next,
            _ => unreachable!("it is a number"),
        });
        let next = next + 1 + random.below(pace);
        let put = Transaction::default().put(key, Value::Number(Number { next, pace }));
        match store.commit(put).wait() {
            Ok(revision) => {
                issued.insert(key.to_owned(), next);
                newest = revision;
            }
            Err(StoreError::TooFast { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    newest
}

/// Returns all rows of numbers: for each key the number and its revision.
fn numbers(store: &Database) -> BTreeMap<String, (u64, Revision)> {
    let page = store.scan(Scan::of("n/", 100)).wait().unwrap();
    let number = |value: &Value| if let Value::Number(number) = value { number.next } else { unreachable!() };
    let row = |entry: &tegmen_store::store::Entry| {
        (String::from_utf8(entry.key.clone()).unwrap(), (number(&entry.value), entry.changed))
    };
    page.entries.iter().map(row).collect()
}

/// Restores a backup without [`backup::restore`]: writes the database in the backup to the old path of the database,
/// and removes the identity of the `.place` file from the database.
fn restore_naively(scene: &Scene) {
    let backup = std::fs::read(scene.file("backup")).unwrap();
    let at = backup.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
    std::fs::write(scene.file("state.db"), &backup[at..]).unwrap();
    assert!(matches!(scene.open(), Err(StateError::Untrusted { .. })), "a copy is refused");
    let connection = rusqlite::Connection::open(scene.file("state.db")).unwrap();
    connection.execute_batch("UPDATE state SET place = ''").unwrap();
}

#[test]
fn a_restored_backup_never_repeats_a_number() {
    let (mut attacks, mut seeds) = (0, 0);
    for seed in 0..40 {
        let (scene, mut random) = (Scene::new(&format!("numbers-{seed}"), None), Random(seed));
        let mut issued = BTreeMap::new();
        let store = scene.open().unwrap();
        use_numbers(&store, &mut random, 20, &mut issued);
        store.change_now(Change::Put("context/a".into(), Numbers::from(77, None))).unwrap();
        store.backup(&scene.file("backup")).unwrap();
        scene.advance(random.below(3 * DAY));
        let newest = use_numbers(&store, &mut random, 60, &mut issued);
        scene.advance(random.below(DAY));
        drop(store);
        // The attack: without the restore, numbers come twice.
        scene.lose();
        restore_naively(&scene);
        let naive = scene.open().unwrap();
        let repeats = numbers(&naive).iter().any(|(key, (next, _))| next < &issued[key]);
        attacks += u64::from(repeats);
        drop(naive);
        scene.lose();
        scene.restore().unwrap();
        let store = scene.open().unwrap();
        for (key, (next, changed)) in numbers(&store) {
            assert!(next >= issued[&key], "seed {seed}: {key} from {next}, and {} were used", issued[&key]);
            assert!(changed > newest, "another revision, as the value is another one");
        }
        let revision = store.commit(Transaction::default().put("k", plain("v"))).wait().unwrap();
        assert!(revision > newest, "seed {seed}: {revision:?} after {newest:?}");
        assert!(store.was_recovered() && store.load("").is_empty(), "contexts begin past everything");
        // Numbers continue.
        scene.advance(DAY);
        let mut later = BTreeMap::new();
        use_numbers(&store, &mut random, 30, &mut later);
        assert!(later.iter().all(|(key, next)| *next > issued[key]));
        seeds += 1;
    }
    assert!(attacks > seeds / 2, "{attacks} of {seeds} naive restores repeat a number");
}

#[test]
fn a_backup_has_all_rows_and_their_revisions() {
    let scene = Scene::new("rows", Some("a"));
    let store = scene.open().unwrap();
    let secret = Value::Secret(b"secret".to_vec().into());
    let lease = store.grant(std::time::Duration::from_secs(600)).wait().unwrap();
    store.commit(Transaction::default().put("gone", plain("x"))).wait().unwrap();
    store.commit(Transaction::default().delete("gone").put("a", plain("1"))).wait().unwrap();
    let changed = Transaction::default().put("a", plain("2")).put("s", secret.clone());
    let at = store.commit(changed.put_leased("l", plain("leased"), lease)).wait().unwrap();
    let manifest = store.backup(&scene.file("backup")).unwrap();
    assert_eq!((manifest.revision, scene.verify("backup").unwrap()), (at.0, manifest.clone()));
    store.commit(Transaction::default().put("late", plain("x"))).wait().unwrap();
    drop(store);
    assert!(matches!(scene.restore(), Err(BackupError::Exists { .. })));
    scene.lose();
    // A log of the lost database must not be applied to the restored one.
    std::fs::write(scene.file("state.db-wal"), [7; 4152]).unwrap();
    assert_eq!(scene.restore().unwrap(), manifest);
    let store = scene.open().unwrap();
    let page = store.scan(Scan::of("", 100)).wait().unwrap();
    let rows: Vec<_> = page.entries.iter().map(|entry| (&entry.key[..], &entry.value, entry.changed)).collect();
    let leased = plain("leased");
    assert_eq!(rows, [(&b"a"[..], &plain("2"), at), (&b"l"[..], &leased, at), (&b"s"[..], &secret, at)]);
    assert!(matches!(store.changes(b"", at, 10).wait(), Err(StoreError::Compacted { .. })), "a watcher begins again");
    store.revoke(lease).wait().unwrap();
    assert!(store.read(b"l", None).wait().unwrap().entry.is_none());
    // A copy of the restored database is one, too.
    drop(store);
    std::fs::copy(scene.file("state.db"), scene.file("copy.db")).unwrap();
    assert!(matches!(Database::open_with(&scene.file("copy.db"), scene.options()), Err(StateError::Untrusted { .. })));
}

/// Changes the bytes of a backup file.
fn spoil(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn a_sealed_database_is_backed_up_only_with_its_key() {
    let mut scene = Scene::new("keyless", Some("a"));
    let store = scene.open().unwrap();
    store.commit(Transaction::default().put("a", plain("1"))).wait().unwrap();
    let backup = scene.file("backup");
    store.backup(&backup).unwrap();
    drop(store);
    let key = scene.key.take();
    let refused = scene.open().unwrap().backup(&backup);
    assert!(matches!(refused, Err(BackupError::NotAuthentic { .. })), "{refused:?}");
    scene.key = key;
    scene.verify("backup").unwrap();
}

#[test]
fn a_backup_replaces_only_a_backup() {
    let scene = Scene::new("replaces", None);
    let store = scene.open().unwrap();
    let file = scene.file("precious");
    std::fs::write(&file, "a text of the operator").unwrap();
    assert!(matches!(store.backup(&file), Err(BackupError::File { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"a text of the operator");
    std::fs::write(&file, "").unwrap();
    for _ in 0..2 {
        store.backup(&file).unwrap();
        scene.verify("precious").unwrap();
    }
}

#[test]
fn a_backup_that_was_touched_is_refused() {
    let scene = Scene::new("touched", Some("a"));
    let store = scene.open().unwrap();
    store.commit(Transaction::default().put("a", plain("1"))).wait().unwrap();
    let backup = scene.file("backup");
    store.backup(&backup).unwrap();
    drop(store);
    let whole = std::fs::read(&backup).unwrap();
    let at = whole.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
    for place in [0, 20, at - 3, at + 30, at + 4000, whole.len() - 1] {
        spoil(&backup, |bytes| bytes[place] ^= 1);
        assert!(scene.verify("backup").is_err(), "byte {place}");
        std::fs::write(&backup, &whole).unwrap();
    }
    for len in [0, 10, at, at + 4096, whole.len() - 1] {
        spoil(&backup, |bytes| bytes.truncate(len));
        assert!(matches!(scene.verify("backup"), Err(BackupError::Damaged { .. })), "{len} bytes");
        std::fs::write(&backup, &whole).unwrap();
    }
    // Somebody who computes the digest again has no sealing key.
    let mut forged = whole.clone();
    let row = forged.windows(2).rposition(|two| two == b"a1").unwrap_or(whole.len() - 100);
    forged[row + 1] ^= 1;
    let digest = tegmen_base::hex::to_hex(&sha2::Sha256::digest(&forged[at..]));
    let header = String::from_utf8(forged[..at].to_vec()).unwrap();
    let old = header.split('"').nth(1).unwrap().to_owned();
    std::fs::write(&backup, [header.replace(&old, &digest).as_bytes(), &forged[at..]].concat()).unwrap();
    assert!(matches!(scene.verify("backup"), Err(BackupError::NotAuthentic { .. } | BackupError::Damaged { .. })));
    std::fs::write(&backup, &whole).unwrap();
    // With another key, or none.
    let other = Scene::new("touched-other", Some("b"));
    let verified = backup::verify(&backup, other.key.as_deref().map(|key| key as &dyn Keeper));
    assert!(matches!(verified, Err(BackupError::State(StateError::Sealing { .. }))), "{verified:?}");
    assert!(matches!(backup::verify(&backup, None), Err(BackupError::NotAuthentic { .. })));
    scene.verify("backup").unwrap();
    // One without a key, where a key is given.
    let without = Scene::new("touched-without", None);
    without.open().unwrap().backup(&without.file("backup")).unwrap();
    without.verify("backup").unwrap();
    let key = scene.key.as_deref().map(|key| key as &dyn Keeper);
    assert!(matches!(backup::verify(&without.file("backup"), key), Err(BackupError::NotAuthentic { .. })));
}

#[test]
fn a_backup_of_version_2_is_restored() {
    let scene = Scene::new("version-2", None);
    let store = scene.open().unwrap();
    let number = Value::Number(Number { next: 7, pace: 1000 });
    store.commit(Transaction::default().put("a", plain("1")).put("n/epoch", number)).wait().unwrap();
    let manifest = store.backup(&scene.file("backup")).unwrap();
    drop(store);
    scene.lose();
    // The tables as a release with version 2 left them.
    let backup = std::fs::read(scene.file("backup")).unwrap();
    let at = backup.windows(15).position(|bytes| bytes == b"SQLite format 3").unwrap();
    let (header, tables) = backup.split_at(at);
    let old = scene.file("old.db");
    std::fs::write(&old, tables).unwrap();
    let connection = rusqlite::Connection::open(&old).unwrap();
    connection
        .execute_batch(
            "DROP INDEX by_lease; CREATE INDEX by_lease ON versions (lease) WHERE lease IS NOT NULL;
             PRAGMA user_version = 2;",
        )
        .unwrap();
    drop(connection);
    let tables = std::fs::read(&old).unwrap();
    let digest: [u8; 32] = sha2::Sha256::digest(&tables).into();
    let header = String::from_utf8(header.to_vec()).unwrap();
    let header = header.replace(&manifest.sha256, &tegmen_base::hex::to_hex(&digest));
    let header = header.replace(&format!("bytes = {}", manifest.bytes), &format!("bytes = {}", tables.len()));
    std::fs::write(scene.file("backup"), [header.as_bytes(), &tables].concat()).unwrap();
    scene.restore().unwrap();
    let store = scene.open().unwrap();
    assert_eq!(store.read(b"a", None).wait().unwrap().entry.unwrap().value, plain("1"));
    let Value::Number(number) = store.read(b"n/epoch", None).wait().unwrap().entry.unwrap().value else { panic!() };
    assert!(number.next > 7, "a restored number moves on");
}

#[test]
fn nothing_is_restored_while_the_clock_is_not_set_or_the_database_is_in_use() {
    let scene = Scene::new("clock", None);
    let store = scene.open().unwrap();
    store.backup(&scene.file("backup")).unwrap();
    assert!(matches!(scene.restore(), Err(BackupError::State(StateError::InUse { .. }))));
    drop(store);
    scene.lose();
    scene.is_set.store(false, Ordering::Relaxed);
    assert!(matches!(scene.restore(), Err(BackupError::State(StateError::Untrusted { .. }))));
    assert!(!scene.file("state.db").exists());
    // A clock that is behind the backup by more than a correction.
    scene.is_set.store(true, Ordering::Relaxed);
    scene.behind.store(DAY, Ordering::Relaxed);
    assert!(matches!(scene.restore(), Err(BackupError::State(StateError::Untrusted { .. }))));
    assert!(!scene.file("state.db").exists());
    scene.behind.store(0, Ordering::Relaxed);
    scene.restore().unwrap();
    scene.open().unwrap();
}

#[test]
fn a_backup_never_replaces_a_file_of_its_database() {
    let scene = Scene::new("own", None);
    let store = scene.open().unwrap();
    store.commit(Transaction::default().put("a", plain("1"))).wait().unwrap();
    let before = std::fs::read(scene.file("state.db.key")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(scene.file("state.db"), scene.file("link")).unwrap();
    let own = ["state.db", "state.db.key", "state.db-wal", "state.db.place", "./state.db"];
    for name in own.into_iter().chain(cfg!(unix).then_some("link")) {
        let refused = store.backup(&scene.file(name));
        assert!(matches!(refused, Err(BackupError::File { .. })), "{name}: {refused:?}");
    }
    store.commit(Transaction::default().put("b", plain("2"))).wait().unwrap();
    assert_eq!(std::fs::read(scene.file("state.db.key")).unwrap(), before);
    store.backup(&scene.file("backup")).unwrap();
    drop(store);
    let found = scene.open().unwrap().read(b"b", None).wait().unwrap();
    assert_eq!(found.entry.map(|entry| entry.value), Some(plain("2")));
    // A backup first writes two files beside its own.
    let other = Database::open(&scene.file("kept.new")).unwrap();
    assert!(other.backup(&scene.file("kept")).is_err());
    other.commit(Transaction::default().put("c", plain("3"))).wait().unwrap();
    drop(other);
    let kept = Database::open(&scene.file("kept.new")).unwrap().read(b"c", None).wait().unwrap();
    assert_eq!(kept.entry.map(|entry| entry.value), Some(plain("3")));
}

/// SQLite follows a symbolic link at the name of the database, and writes its other files beside the target.
#[cfg(unix)]
#[test]
fn a_backup_does_not_replace_a_database_behind_a_symbolic_link() {
    use std::os::unix::fs::symlink;
    let scene = Scene::new("behind-a-link", None);
    std::fs::create_dir(scene.file("disk")).unwrap();
    std::fs::write(scene.file("disk/real.db"), "").unwrap();
    symlink(scene.file("disk/real.db"), scene.file("linked.db")).unwrap();
    let store = Database::open(&scene.file("linked.db")).unwrap();
    store.commit(Transaction::default().put("a", plain("1"))).wait().unwrap();
    std::fs::rename(scene.file("linked.db.key"), scene.file("disk/real.key")).unwrap();
    symlink(scene.file("disk/real.key"), scene.file("linked.db.key")).unwrap();
    symlink(scene.file("linked.db"), scene.file("further")).unwrap();
    for own in [
        "linked.db",
        "linked.db-wal",
        "linked.db.key",
        "disk/real.db",
        "disk/real.db-wal",
        "disk/real.db-journal",
        "disk/real.key",
        "further",
    ] {
        let why = store.backup(&scene.file(own)).unwrap_err().to_string();
        assert!(why.contains("it is a file of the database"), "{own}: {why}");
    }
    assert!(std::fs::symlink_metadata(scene.file("linked.db")).unwrap().is_symlink());
    store.backup(&scene.file("disk/backup")).unwrap();
}
