use super::file::ContextFile;
use super::*;
use crate::provider::HostCrypto;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageType};
use tegmen::oscore::Aead;
use zeroize::Zeroizing;

/// A directory that is removed at the end of the test.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-contexts-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn context() -> ContextFile {
    ContextFile {
        sender_id: vec![1],
        recipient_id: vec![],
        master_secret: Zeroizing::new((0..16).collect()),
        master_salt: vec![0x9e],
        id_context: Some(vec![7]),
        aead: Aead::AesCcm16_64_128,
        created: now(),
        expires: None,
        allow: None,
        rederivation: false,
    }
}

/// Protects a request. Returns the sequence number of the request.
fn send(stored: &mut StoredContext) -> u64 {
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, OVERHEAD);
    Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, b"t").unwrap();
    let number = stored.context.lease().next();
    let mut crypto = HostCrypto::new([0; 32], 16);
    stored.context.protect_request(&mut crypto, &mut frame).unwrap();
    number
}

fn refused(dir: &Path) -> String {
    StoredContext::open(dir).err().expect("refused").to_string()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in ["context.toml", "numbers.toml"] {
        let _ = std::fs::remove_file(to.join(file));
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

#[test]
fn an_orderly_end_loses_no_number_and_any_other_end_repeats_none() {
    let scene = Scene::new("end");
    let dir = scene.dir("a");
    create(&dir, &context()).unwrap();
    let mut stored = StoredContext::open(&dir).unwrap();
    assert_eq!((send(&mut stored), send(&mut stored)), (0, 1));
    assert_eq!(stored.context.window().mark(), None, "nobody has used it before");
    drop(stored);
    let mut stored = StoredContext::open(&dir).unwrap();
    assert_eq!(send(&mut stored), 2);
    stored.abandon();
    let mut stored = StoredContext::open(&dir).unwrap();
    assert_eq!(send(&mut stored), 2 + LEASE, "what was leased is given up");
    assert!(stored.context.window().mark().is_some(), "what the other end used is forgotten");
    drop(stored);
    let mut stored = StoredContext::open(&dir).unwrap();
    assert_eq!(send(&mut stored), 3 + LEASE);
    assert!(stored.context.window().mark().is_some(), "a lost window stays lost");
}

#[test]
fn a_context_is_open_once() {
    let scene = Scene::new("lock");
    let dir = scene.dir("a");
    create(&dir, &context()).unwrap();
    let stored = StoredContext::open(&dir).unwrap();
    assert!(refused(&dir).contains("another process uses this context"));
    assert!(matches!(recover(&dir), Err(ContextError::InUse { .. })));
    drop(stored);
    assert!(StoredContext::open(&dir).is_ok());
}

#[test]
fn a_context_is_open_once_whatever_is_removed_beside_it() {
    let scene = Scene::new("removed");
    let dir = scene.dir("a");
    create(&dir, &context()).unwrap();
    let mut first = StoredContext::open(&dir).unwrap();
    for entry in std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
        if !entry.ends_with("context.toml") && !entry.ends_with("numbers.toml") {
            std::fs::remove_file(entry).unwrap();
        }
    }
    assert!(refused(&dir).contains("another process uses this context"));
    // Somebody puts a file in the place of the one that is locked.
    std::fs::copy(dir.join("context.toml"), dir.join("again")).unwrap();
    std::fs::rename(dir.join("again"), dir.join("context.toml")).unwrap();
    let mut second = StoredContext::open(&dir).unwrap();
    assert!(send(&mut second) > send(&mut first), "it goes on behind the lease of the first");
    let error = first.renew().expect_err("both would lease the same numbers").to_string();
    assert!(error.contains("another process uses the context"), "{error}");
    assert!(first.close().is_err(), "nor does it write over the numbers of the second");
    second.renew().unwrap();
}

#[test]
fn copies_backups_and_damage_are_refused_and_recovery_goes_forward() {
    let scene = Scene::new("copies");
    let (dir, backup) = (scene.dir("a"), scene.dir("backup"));
    create(&dir, &context()).unwrap();
    drop(StoredContext::open(&dir).unwrap());
    copy(&dir, &backup);
    assert!(refused(&backup).contains("is a copy, or was restored from a backup"));
    let mut stored = StoredContext::open(&dir).unwrap();
    let used = (0..3000).map(|_| {
        if stored.context.lease().left() == 0 {
            stored.renew().unwrap();
        }
        send(&mut stored)
    });
    let used = used.max().unwrap();
    drop(stored);
    // Restores the backup, over the present files and as new ones.
    std::fs::write(dir.join("numbers.toml"), std::fs::read(backup.join("numbers.toml")).unwrap()).unwrap();
    assert!(refused(&dir).contains("restored from a backup"));
    copy(&backup, &dir);
    assert!(refused(&dir).contains("tegmen oscore recover"));
    assert!(recover(&dir).unwrap() > used);
    let mut stored = StoredContext::open(&dir).unwrap();
    assert!(send(&mut stored) > used);
    assert!(stored.context.window().mark().is_some(), "what the other end used is not known");
    drop(stored);
    let text = std::fs::read_to_string(dir.join("numbers.toml")).unwrap();
    for cut in 0..text.len() - 1 {
        std::fs::write(dir.join("numbers.toml"), &text[..cut]).unwrap();
        refused(&dir);
    }
    std::fs::write(dir.join("numbers.toml"), text.replace("next = ", "next = 1")).unwrap();
    assert!(refused(&dir).contains("damaged or was edited"));
    std::fs::remove_file(dir.join("numbers.toml")).unwrap();
    assert!(refused(&dir).contains("is missing"));
}

#[test]
fn a_context_that_nobody_used_may_be_moved() {
    let scene = Scene::new("move");
    let (made, used) = (scene.dir("made"), scene.dir("used"));
    create(&made, &context()).unwrap();
    copy(&made, &used);
    std::fs::set_permissions(
        used.join("context.toml"),
        std::fs::metadata(made.join("context.toml")).unwrap().permissions(),
    )
    .unwrap();
    assert!(StoredContext::open(&used).is_ok());
    let error = create(&used, &context()).expect_err("nothing is written over").to_string();
    assert!(error.contains("nothing is written over") && !error.contains("oscore new"), "{error}");
}

#[test]
fn an_unused_context_that_is_a_copy_or_old_begins_past_everything_that_may_have_been_used() {
    let scene = Scene::new("unused");
    let (made, image, old) = (scene.dir("made"), scene.dir("image"), scene.dir("old"));
    create(&made, &context()).unwrap();
    copy(&made, &image);
    let mut original = StoredContext::open(&made).unwrap();
    assert_eq!((send(&mut original), original.context.window().mark()), (0, None), "the one that was made here is new");
    let mut copied = StoredContext::open(&image).unwrap();
    assert!(send(&mut copied) > 300_000_000, "a day of numbers is left out");
    assert!(copied.context.window().mark().is_some(), "what the other end used is not known");
    create(&old, &ContextFile { created: now() - 3600, ..context() }).unwrap();
    assert!(used(&old).unwrap().next > 300_000_000);
    let mut old = StoredContext::open(&old).unwrap();
    assert!(send(&mut old) > 300_000_000 && old.context.window().mark().is_some());
}

#[test]
fn numbers_of_before_the_first_use_are_refused_where_the_context_was_used() {
    let scene = Scene::new("mark");
    let dir = scene.dir("a");
    create(&dir, &context()).unwrap();
    let unused = std::fs::read(dir.join("numbers.toml")).unwrap();
    drop(StoredContext::open(&dir).unwrap());
    std::fs::write(dir.join("numbers.toml"), &unused).unwrap();
    assert!(refused(&dir).contains("it was used here"));
    recover(&dir).unwrap();
    assert!(StoredContext::open(&dir).is_ok());
}

#[test]
fn an_expired_context_is_refused() {
    let scene = Scene::new("expired");
    let dir = scene.dir("a");
    create(&dir, &ContextFile { expires: Some((1, "1970-01-01T00:00:01Z".to_owned())), ..context() }).unwrap();
    assert!(refused(&dir).contains("expired at 1970-01-01T00:00:01Z"));
}

#[test]
fn foreign_formats_come_in_and_go_out() {
    let scene = Scene::new("foreign");
    for (format, name) in [(Format::Aiocoap, "aiocoap"), (Format::Libcoap, "libcoap")] {
        let (out, back) = (scene.dir(name), scene.dir(&format!("{name}-back")));
        format.export(&context(), &out).unwrap();
        format.import(&out, &back).unwrap();
        let (before, after) = (context(), ContextFile::read(&back).unwrap());
        assert_eq!((before.sender_id, before.recipient_id), (after.sender_id, after.recipient_id));
        assert_eq!((before.master_secret, before.master_salt), (after.master_secret, after.master_salt));
        assert_eq!((before.id_context, before.aead), (after.id_context, after.aead));
    }
    // What aiocoap has used is not used again, and what it received is not known.
    let used = scene.dir("aiocoap");
    std::fs::write(used.join("sequence.json"), "{\"next-to-send\": 4711, \"received\": \"unknown\"}").unwrap();
    let dir = scene.dir("used");
    Format::Aiocoap.import(&used, &dir).unwrap();
    let mut stored = StoredContext::open(&dir).unwrap();
    assert_eq!((send(&mut stored), stored.context.window().mark().is_some()), (4711, true));
    std::fs::write(used.join("sequence.json"), "{}").unwrap();
    assert!(Format::Aiocoap.import(&used, &scene.dir("damaged")).is_err());
}

#[test]
fn a_server_finds_the_context_that_a_request_names() {
    let scene = Scene::new("find");
    let named = |kid: u8, id_context: Option<u8>| ContextFile {
        sender_id: vec![9, 9],
        recipient_id: vec![kid],
        id_context: id_context.map(|byte| vec![byte]),
        ..context()
    };
    create(&scene.dir("a"), &named(1, None)).unwrap();
    create(&scene.dir("b"), &named(1, Some(5))).unwrap();
    create(&scene.dir("c"), &named(2, None)).unwrap();
    let contexts = Contexts::open(std::slice::from_ref(&scene.0), |_, _| Principal(0)).unwrap();
    assert_eq!(contexts.len(), 3);
    let find = |kid: &[u8], kid_context: Option<&[u8]>| {
        let option = OscoreOption { kid_context, kid: Some(kid), ..OscoreOption::default() };
        contexts.find(&option).map(|found| found.name().to_owned())
    };
    assert_eq!(find(&[1], Some(&[5])).as_deref(), Some("b"));
    assert_eq!(find(&[2], None).as_deref(), Some("c"));
    assert_eq!(find(&[1], None).as_deref(), Some("a"));
    assert_eq!((find(&[3], None), find(&[1], Some(&[6])), find(&[2], Some(&[5]))), (None, None, None));
    drop(contexts);
    create(&scene.dir("d"), &named(2, None)).unwrap();
    let twice = Contexts::open(std::slice::from_ref(&scene.0), |_, _| Principal(0));
    assert!(matches!(twice, Err(ContextError::Ambiguous { .. })));
}
