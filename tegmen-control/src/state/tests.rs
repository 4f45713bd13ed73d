//! Tests of the state with a database in a file, which is closed and opened again.

mod crashes;
mod enrolment;
mod lost;
mod sessions;
mod shared;

use super::*;
use crate::access::ace::trl::{Answer, Query, Update};
use crate::access::introspection::Reason;
use crate::access::policy::OwnedParty;
use crate::access::protokey::{Mode, NotAccepted};
use crate::access::revocation::{Requester, token_hash};
use crate::service::Service;
use std::path::PathBuf;
use std::sync::Arc;
use tegmen_base::crypto::RustCrypto;
use tegmen_base::time::Instant;
use tegmen_store::{Database, Options, SealingKey};

const POLICY: &str = r#"
[[rule]]
name = "displays read"
subject = "tag:display"
publisher = "tag:kitchen"
allow = "read /*"

[[test]]
subject = ["display", "tag:display"]
publisher = ["oven", "tag:kitchen"]
request = "GET /temp"
expect = "allow"
"#;
const PROTOKEY: [u8; 32] = *b"PROTOKEY-of-the-oven-0123456789a";
const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);
const NOW_SECONDS: u64 = 1_800_000_000;

/// A temporary directory, which is removed when the value is dropped.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-state-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        let key = dir.join("key");
        std::fs::write(&key, "4".repeat(64)).expect("a file");
        #[cfg(unix)]
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("permissions");
        Self(dir)
    }

    fn database(&self) -> Database {
        let key = SealingKey::from_file(&self.0.join("key")).expect("a key");
        let options = Options { sealing: Some(Arc::new(key)), ..Options::default() };
        Database::open_with(&self.0.join("state.db"), options).expect("a database")
    }

    fn open(&self) -> State<Database> {
        open(self.database())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open<S: Store>(store: S) -> State<S> {
    let bounds = Bounds { revoked: revocation::Bounds { tokens: 8, ..Default::default() }, ..Bounds::default() };
    wait(State::open(store, bounds, Box::new(|event| assert!(!matches!(event, Event::Fault(_)), "{event:?}"))))
        .expect("a state")
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn party(words: &str) -> OwnedParty {
    OwnedParty::from_words(words.split(' ')).expect(words)
}

fn oven() -> NewDevice {
    NewDevice::secret(party("oven tag:kitchen"), Credential::Protokey(Mode::Bound), &PROTOKEY).expect("a device")
}

fn display(name: &str, digest: u8) -> NewDevice {
    let party = party(&format!("{name} tag:display"));
    NewDevice::public(party, Credential::Certificate([digest; 32])).expect("a device")
}

/// Adds a publisher, a subscriber and a policy to a state.
fn furnish<S: Store>(state: &State<S>) {
    wait(state.add(&oven())).expect("added");
    wait(state.add(&display("display", 1))).expect("added");
    wait(state.apply_policy(("policy.toml", POLICY), "operator", None, NOW_SECONDS)).expect("applied");
}

#[test]
fn devices_are_there_after_a_restart_and_their_secrets_are_sealed() {
    let scene = Scene::new("devices");
    let state = scene.open();
    furnish(&state);
    let shared = NewDevice::secret(party("lamp"), Credential::SharedKey, &[5; 16]).expect("a device");
    wait(state.add(&shared)).expect("added");
    for twice in [wait(state.add(&oven())), wait(state.add(&display("display", 9)))] {
        assert!(matches!(twice, Err(StateError::NameTaken(_))), "{twice:?}");
    }
    let taken = wait(state.add(&display("other", 1)));
    assert!(matches!(taken, Err(StateError::DigestTaken(digits)) if digits == "01".repeat(32)));
    wait(state.set_disabled("lamp", true)).expect("disabled");
    assert!(matches!(wait(state.set_disabled("nobody", true)), Err(StateError::Unknown(_))));
    drop(state);

    for file in std::fs::read_dir(&scene.0).expect("a directory") {
        let bytes = std::fs::read(file.expect("a file").path()).expect("bytes");
        assert!(!bytes.windows(8).any(|window| window == &PROTOKEY[..8]), "the protokey is in clear");
    }
    let state = scene.open();
    let first = wait(state.list(None, 2)).expect("a page");
    let names = |page: &DevicePage| page.devices.iter().map(|device| device.name().to_owned()).collect::<Vec<_>>();
    assert_eq!((names(&first), first.next.as_deref()), (vec!["display".to_owned(), "lamp".to_owned()], Some("lamp")));
    let second = wait(state.list(first.next.as_deref(), 2)).expect("a page");
    assert_eq!((names(&second), second.next), (vec!["oven".to_owned()], None));
    let view = state.view();
    assert_eq!(view.devices(), 3);
    assert_eq!(view.with_digest(&[1; 32]).map(Device::name), Some("display"));
    assert_eq!(view.device("oven").map(|oven| oven.party.clone()), Some(party("oven tag:kitchen")));
    assert!(view.device("lamp").is_some_and(|lamp| lamp.disabled));
    assert!(view.shared_key("lamp").is_none(), "a disabled device has no key");
    drop(view);
    wait(state.set_disabled("lamp", false)).expect("enabled");
    assert_eq!(state.view().shared_key("lamp").as_deref(), Some(&vec![5; 16]));
}

#[test]
fn a_policy_that_fails_its_own_tests_is_not_applied() {
    let scene = Scene::new("policy");
    let state = scene.open();
    assert_eq!(state.view().in_force().revision, Revision::ABSENT);
    furnish(&state);
    let before = state.view().in_force();
    assert_eq!(before.policy.rules(), 1);
    let apply = |text: &str, over| wait(state.apply_policy(("new.toml", text), "operator", over, NOW_SECONDS));
    let refused = apply(&POLICY.replace("expect = \"allow\"", "expect = \"deny\""), None);
    assert!(matches!(&refused, Err(StateError::Tests(failed)) if failed[0].line == 8), "{refused:?}");
    assert!(matches!(apply("[[rule]]\nsubjekt = 1", None), Err(StateError::Policy(_))));
    assert!(matches!(apply(&"#\n".repeat(MAX_POLICY), None), Err(StateError::PolicyTooLong(_))));
    assert!(matches!(apply("", Some(Revision(1))), Err(StateError::Changed(_))));
    assert_eq!(state.view().in_force().revision, before.revision);
    // A long policy has several parts. A shorter one after it leaves nothing of it.
    let long = format!("{POLICY}{}", "# a comment\n".repeat(20_000));
    let revision = apply(&long, Some(before.revision)).expect("applied");
    drop(state);
    let state = scene.open();
    let in_force = state.view().in_force();
    assert_eq!((in_force.revision, in_force.policy.tests()), (revision, 1));
    wait(state.apply_policy(("empty.toml", ""), "operator", Some(revision), NOW_SECONDS)).expect("applied");
    drop(state);
    assert_eq!(scene.open().view().in_force().policy.rules(), 0);
}

#[test]
fn an_unchanged_file_does_not_replace_the_policy_of_an_operator() {
    let scene = Scene::new("configured");
    let service = shared::serve(&scene, scene.open());
    let configure = |service: &Service<Database>, text: &str| {
        let is_applied = wait(service.configure_policy("policy.toml", text)).expect("configured");
        (is_applied, service.state().view().in_force().policy.rules())
    };
    assert_eq!(configure(&service, POLICY), (true, 1));
    assert_eq!(configure(&service, POLICY), (false, 1));
    wait(service.apply_policy("operator", ("empty.toml", ""), None)).expect("applied");
    assert_eq!(configure(&service, POLICY), (false, 0));
    drop(service);
    let service = shared::serve(&scene, scene.open());
    assert_eq!(configure(&service, POLICY), (false, 0));
    let changed = format!("{POLICY}# a comment\n");
    assert_eq!(configure(&service, &changed), (true, 1));
    // The operator applied the text of the file before the server read it.
    wait(service.apply_policy("operator", ("policy.toml", POLICY), None)).expect("applied");
    assert_eq!(configure(&service, POLICY), (false, 1));
    wait(service.apply_policy("operator", ("empty.toml", ""), None)).expect("applied");
    assert_eq!(configure(&service, POLICY), (false, 0));
}

fn ask<S: Store>(state: &State<S>, subscriber: &str, identity: &str) -> Option<Reason> {
    let request = crate::access::ace::IntrospectionRequest { token: identity.into(), ..Default::default() };
    let outcome = state.view().introspect::<RustCrypto>(Some(subscriber), &request.encode(), NOW);
    outcome.refused
}

#[test]
fn a_session_identity_is_accepted_once() {
    let scene = Scene::new("session");
    let state = scene.open();
    furnish(&state);
    let identity = "oven;AAECAwQFBgcI";
    assert_eq!(ask(&state, "display", identity), None);
    let until = state.view().session_until(NOW);
    let of = |subscriber: &str| AcceptedSession {
        identity: identity.to_owned(),
        subscriber: subscriber.to_owned(),
        until,
        token: None,
    };
    wait(state.bind(&of("display"), &Grounds::default(), NOW_SECONDS)).expect("durable");
    drop(state);

    // The mutant keeps nothing over a restart: the state without the row accepts the identity again.
    let state = scene.open();
    assert_eq!(ask(&state, "display", "oven;not-made-durable"), None);
    drop(state);
    let state = scene.open();
    assert_eq!(ask(&state, "display", "oven;not-made-durable"), None, "the replay succeeds");

    assert_eq!(ask(&state, "display", identity), Some(Reason::Identity(NotAccepted::Used)));
    // A server whose memory does not have the identity learns of it from the store.
    let again = wait(state.bind(&of("display"), &Grounds::default(), NOW_SECONDS));
    assert!(matches!(again, Err(StateError::SessionUsed { of_another: false })), "{again:?}");
    let other = wait(state.bind(&of("mallory"), &Grounds::default(), NOW_SECONDS));
    assert!(matches!(other, Err(StateError::SessionUsed { of_another: true })), "{other:?}");
}

#[test]
fn a_disabled_device_gets_nothing_and_nobody_gets_its_keys() {
    let scene = Scene::new("disabled");
    let state = scene.open();
    furnish(&state);
    assert_eq!(ask(&state, "display", "oven;AAAAAAAAAAA1"), None);
    for name in ["display", "oven"] {
        wait(state.set_disabled(name, true)).expect("disabled");
        assert!(ask(&state, "display", "oven;AAAAAAAAAAA2").is_some(), "{name}");
        wait(state.set_disabled(name, false)).expect("enabled");
    }
    assert_eq!(ask(&state, "display", "oven;AAAAAAAAAAA2"), None);
}

#[test]
fn expired_tokens_leave_the_list_and_make_room() {
    let scene = Scene::new("expire");
    let state = scene.open();
    furnish(&state);
    let hash = |number: u8| token_hash::<RustCrypto>(&[number]);
    for number in 0..8 {
        wait(state.revoke(&hash(number), NOW_SECONDS + u64::from(number), &["oven"])).expect("revoked");
    }
    assert!(matches!(wait(state.revoke(&hash(8), NOW_SECONDS + 9, &["oven"])), Err(StateError::ListFull(_))));
    assert_eq!(wait(state.expire(NOW_SECONDS + 2)).expect("expired"), 3);
    assert!(!state.view().is_revoked(&hash(2)) && state.view().is_revoked(&hash(3)));
    wait(state.revoke(&hash(8), NOW_SECONDS + 9, &["oven"])).expect("revoked");
    let Ok(Answer::Full { hashes, cursor }) = state.view().revocations(Requester::Device("oven"), Query::default())
    else {
        panic!("the list")
    };
    assert_eq!(hashes.len(), 6);
    drop(state);
    // The cursor from before the restart leads to the whole list again.
    let Some(crate::access::ace::trl::Cursor::At(cursor)) = cursor else { panic!("a cursor") };
    let query = Query { diff: Some(0), cursor: Some(cursor) };
    let answer = scene.open().view().revocations(Requester::Device("oven"), query);
    assert!(matches!(&answer, Ok(Answer::Diff { more: Some(true), updates, .. }) if updates.is_empty()), "{answer:?}");
}

/// Returns the hashes of the revocation list that a device receives.
fn listed<S: Store>(state: &State<S>, device: &str) -> Vec<TokenHash> {
    match state.view().revocations(Requester::Device(device), Query::default()) {
        Ok(Answer::Full { hashes, .. }) => hashes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_revocation_reaches_further_devices_and_lasts_longer() {
    let scene = Scene::new("twice");
    let state = scene.open();
    furnish(&state);
    let hash = token_hash::<RustCrypto>(b"token");
    wait(state.revoke(&hash, NOW_SECONDS + 4, &["display", "nobody"])).expect("revoked");
    assert!(listed(&state, "oven").is_empty());
    for expires in [NOW_SECONDS + 9, NOW_SECONDS + 2] {
        wait(state.revoke(&hash, expires, &["oven"])).expect("revoked");
        assert_eq!((listed(&state, "oven"), listed(&state, "display")), (vec![hash.clone()], vec![hash.clone()]));
    }
    drop(state);
    let state = scene.open();
    assert_eq!(wait(state.expire(NOW_SECONDS + 8)).expect("not expired"), 0);
    assert_eq!((listed(&state, "oven"), listed(&state, "display")), (vec![hash.clone()], vec![hash]));
    assert_eq!(wait(state.expire(NOW_SECONDS + 9)).expect("expired"), 1);
}

#[test]
fn after_a_restart_updates_are_kept_for_devices_that_have_not_asked_for_the_list() {
    let scene = Scene::new("unasked");
    let state = scene.open();
    furnish(&state);
    let hash = |number: u8| token_hash::<RustCrypto>(&[number]);
    wait(state.revoke(&hash(1), NOW_SECONDS + 1, &["oven"])).expect("revoked");
    drop(state);
    let state = scene.open();
    assert_eq!(wait(state.expire(NOW_SECONDS + 2)).expect("expired"), 1);
    wait(state.revoke(&hash(2), NOW_SECONDS + 9, &["display", "nobody"])).expect("revoked");
    let updates = |name| match state.view().revocations(Requester::Device(name), Query { diff: Some(0), cursor: None })
    {
        Ok(Answer::Diff { updates, .. }) => updates,
        other => panic!("{other:?}"),
    };
    assert_eq!(updates("oven"), [Update { removed: vec![hash(1)], added: vec![] }]);
    assert_eq!(updates("display"), [Update { removed: vec![], added: vec![hash(2)] }]);
    assert!(updates("nobody").is_empty());
}

#[test]
fn a_device_is_changed_and_removed_with_its_digest() {
    let scene = Scene::new("change");
    let state = scene.open();
    let certificate = |digest: u8| Credential::Certificate([digest; 32]);
    let display = |digest| NewDevice::public(party("display tag:display"), certificate(digest)).expect("a device");
    let first = wait(state.add(&display(1))).expect("added");
    let proof = Change { proof: Some(display(2)), ..Change::default() };
    let second = wait(state.change("display", Some(first), proof)).expect("changed");
    assert!(state.view().with_digest(&[1; 32]).is_none());
    assert_eq!(state.view().with_digest(&[2; 32]).map(Device::name), Some("display"));
    let tags = || Change { tags: Some(vec!["wall".to_owned()]), ..Change::default() };
    let late = wait(state.change("display", Some(first), tags()));
    assert!(matches!(late, Err(StateError::Changed(_))), "{late:?}");
    wait(state.change("display", Some(second), tags())).expect("changed");
    let (device, third) = wait(state.find("display")).expect("there");
    assert_eq!((device.party.party().tags, device.credential), (&["wall".to_owned()][..], certificate(2)));
    let late = wait(state.remove("display", Some(second)));
    assert!(matches!(late, Err(StateError::Changed(_))), "{late:?}");
    wait(state.remove("display", Some(third))).expect("removed");
    assert!(matches!(wait(state.find("display")), Err(StateError::Unknown(_))));
    // Another device may have the certificate now, also after a restart.
    drop(state);
    let state = scene.open();
    assert!(state.view().device("display").is_none());
    wait(state.add(&NewDevice::public(party("panel"), certificate(2)).expect("a device"))).expect("added");
}

#[test]
fn a_row_that_cannot_be_read_gives_no_rights() {
    let scene = Scene::new("unreadable");
    let (sender, faults) = std::sync::mpsc::channel();
    let watcher: Watcher = Box::new(move |event| {
        if let Event::Fault(fault) = event {
            sender.send(fault.key.clone()).expect("a test that waits");
        }
    });
    let store = scene.database();
    let state = wait(State::open(store.clone(), Bounds::default(), watcher)).expect("a state");
    wait(state.add(&display("display", 5))).expect("added");
    assert!(state.view().with_digest(&[5; 32]).is_some());
    // A later version of the server has disabled the device, and revoked a token.
    let hash = token_hash::<RustCrypto>(b"token");
    let later = |text: &str| Value::Plain(text.as_bytes().to_vec());
    let device =
        later(&format!(r#"{{"kind":"certificate","sha256":"{}","disabled":true,"since":1}}"#, "05".repeat(32)));
    let transaction = Transaction::default().put(rows::device("display"), device);
    let transaction = transaction.put(rows::revoked(&hash), later(r#"{"until":1}"#));
    let revision = store.commit(transaction).wait().expect("committed");
    state.feed.shared.reached(revision).wait().expect("applied");
    assert_eq!(faults.try_iter().collect::<Vec<_>>(), [rows::device("display"), rows::revoked(&hash)]);
    assert!(state.view().with_digest(&[5; 32]).is_none());
    assert!(state.view().is_revoked(&hash));
    // The row gets a content that this version reads.
    let transaction = Transaction::default().put(rows::revoked(&hash), later(r#"{"expires":9,"concerned":["panel"]}"#));
    let revision = store.commit(transaction).wait().expect("committed");
    state.feed.shared.reached(revision).wait().expect("applied");
    assert_eq!(state.view().expired(9, 1), [hash]);
}
