//! Tests of one-time keys: each registers one device before it expires.

use super::*;
use crate::access::enrolment::{OneTimeKey, Request};
use std::future::Future;
use std::task::Poll;
use tegmen_base::secret::Secret;

const END: u64 = NOW_SECONDS + 3600;

fn expected() -> Enrolment {
    Enrolment::new("panel", vec!["display".to_owned()], "public-key", END).expect("an enrolment")
}

fn panel(digest: u8) -> NewDevice {
    NewDevice::public(party("panel"), Credential::PublicKey([digest; 32])).expect("a device")
}

fn one_time_key(seed: u8) -> OneTimeKey {
    OneTimeKey::new("panel", Secret::new([seed; 32]))
}

/// Makes a one-time key for the device `panel` from `seed`, and stores it. Returns the key.
fn expecting(state: &State<Database>, seed: u8) -> OneTimeKey {
    let key = one_time_key(seed);
    wait(state.expect(&expected(), &key)).expect("expected");
    key
}

/// Enrols a device. Returns the code of the refusal, or `None` if the device was registered.
fn enrol(state: &State<Database>, key: &OneTimeKey, device: &NewDevice, now: u64) -> Option<&'static str> {
    let credential = device.device().credential;
    let payload = Request::encode::<RustCrypto>(key, credential.kind(), &credential.digest().expect("a digest"));
    wait(state.enrol("panel", &payload, now)).err().map(|error| error.code())
}

#[test]
fn a_one_time_key_registers_one_device_with_the_tags_of_the_operator() {
    let scene = Scene::new("enrolment");
    let state = scene.open();
    let key = expecting(&state, 1);
    assert_eq!(
        *state.view().enrolment_key("panel", NOW_SECONDS).expect("a key"),
        key.session_key::<RustCrypto>().expose()
    );
    let session_key = key.session_key::<RustCrypto>();
    // The database and the sealing key give the key of the session, and not the proof.
    let forged: [&[u8]; 4] = [b"\x83\x58\x20", session_key.expose(), b"\x6apublic-key\x58\x20", &[7; 32]];
    let forged = forged.concat();
    assert_eq!(wait(state.enrol("panel", &forged, NOW_SECONDS)).expect_err("refused").code(), "wrong-proof");
    let other = one_time_key(0);
    assert_eq!(enrol(&state, &other, &panel(7), NOW_SECONDS), Some("wrong-proof"));
    let certificate = NewDevice::public(party("panel"), Credential::Certificate([7; 32])).expect("a device");
    assert_eq!(enrol(&state, &key, &certificate, NOW_SECONDS), Some("other-kind"));
    assert_eq!(wait(state.enrol("panel", b"\x83", NOW_SECONDS)).expect_err("refused").code(), "malformed");
    drop(state);

    let state = scene.open();
    assert_eq!(enrol(&state, &key, &panel(7), NOW_SECONDS), None, "a restart forgets nothing");
    let view = state.view();
    let device = view.device("panel").expect("the panel");
    assert_eq!((device.party.to_string().as_str(), device.disabled), ("panel tag:display", false));
    assert_eq!((view.enrolments(None).count(), view.enrolment_key("panel", NOW_SECONDS)), (0, None));
    drop(view);
    assert_eq!(enrol(&state, &key, &panel(8), NOW_SECONDS), Some("no-one-time-key"), "it is used up");
    assert!(matches!(wait(state.expect(&expected(), &key)), Err(StateError::NameTaken(_))));
}

#[test]
fn an_expired_one_time_key_registers_nothing() {
    let scene = Scene::new("enrolment-expired");
    let state = scene.open();
    let key = expecting(&state, 1);
    assert_eq!(state.view().enrolment_key("panel", END), None);
    assert_eq!(enrol(&state, &key, &panel(7), END), Some("one-time-key-expired"));
    assert_eq!(wait(state.expire(END - 1)).expect("expired"), 0);
    assert_eq!(state.view().enrolments(None).count(), 1);
    wait(state.expire(END)).expect("expired");
    assert_eq!(state.view().enrolments(None).count(), 0);
    assert_eq!(enrol(&state, &key, &panel(7), NOW_SECONDS), Some("no-one-time-key"));
    assert!(state.view().device("panel").is_none());
}

#[test]
fn a_one_time_key_is_replaced_and_withdrawn() {
    let scene = Scene::new("enrolment-withdrawn");
    let state = scene.open();
    let first = expecting(&state, 1);
    let second = expecting(&state, 2);
    assert_eq!(enrol(&state, &first, &panel(7), NOW_SECONDS), Some("wrong-proof"));
    wait(state.withdraw("panel")).expect("withdrawn");
    assert_eq!(enrol(&state, &second, &panel(7), NOW_SECONDS), Some("no-one-time-key"));
    assert!(matches!(wait(state.withdraw("panel")), Err(StateError::NoOneTimeKey(_))));
}

#[test]
fn a_credential_of_another_device_is_refused_and_the_one_time_key_stays() {
    let scene = Scene::new("enrolment-digest");
    let state = scene.open();
    let other = NewDevice::public(party("other"), Credential::PublicKey([7; 32])).expect("a device");
    wait(state.add(&other)).expect("added");
    let key = expecting(&state, 1);
    assert_eq!(enrol(&state, &key, &panel(7), NOW_SECONDS), Some("digest-taken"));
    assert_eq!(enrol(&state, &key, &panel(8), NOW_SECONDS), None);
}

#[test]
fn of_two_enrolments_at_the_same_time_one_registers_its_device() {
    let scene = Scene::new("enrolment-race");
    let state = scene.open();
    let key = expecting(&state, 1);
    let payloads = [7, 8].map(|digest| Request::encode::<RustCrypto>(&key, "public-key", &[digest; 32]));
    let [mut one, mut other] = payloads.each_ref().map(|payload| Box::pin(state.enrol("panel", payload, NOW_SECONDS)));
    let (one, other) = wait(async {
        // Both read the row of the key before either of them changes it, if the store answers in the order of its calls.
        let (mut of_one, mut of_other) = (None, None);
        std::future::poll_fn(|context| {
            of_one = of_one.take().or_else(|| ready(one.as_mut().poll(context)));
            of_other = of_other.take().or_else(|| ready(other.as_mut().poll(context)));
            if of_one.is_some() && of_other.is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        (of_one.expect("an answer"), of_other.expect("an answer"))
    });
    let digest = |device: Device| device.credential.digest().expect("a digest");
    let (registered, refused) = match (one, other) {
        (Ok(device), Err(error)) | (Err(error), Ok(device)) => (digest(device), error),
        both => panic!("one registers, and the other is refused: {both:?}"),
    };
    assert_eq!(refused.code(), "no-one-time-key");
    assert_eq!(digest(state.view().device("panel").expect("the panel").clone()), registered);
    assert_eq!(state.view().enrolments(None).count(), 0);
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn a_device_that_an_operator_added_and_removed_does_not_come_back_with_an_earlier_one_time_key() {
    let scene = Scene::new("enrolment-removed");
    let state = scene.open();
    let key = expecting(&state, 1);
    wait(state.add(&panel(7))).expect("added");
    assert_eq!(state.view().enrolment_key("panel", NOW_SECONDS), None);
    wait(state.remove("panel", None)).expect("removed");
    assert_eq!(enrol(&state, &key, &panel(8), NOW_SECONDS), Some("no-one-time-key"));
    assert!(state.view().device("panel").is_none());
}

#[test]
fn a_new_device_has_no_name_that_is_another_psk_identity() {
    for name in ["enrol p9", "enrol ", "access control server", "hob;AAECAwQFBgcI"] {
        let party = || OwnedParty::new(name, Vec::new()).expect("a party");
        assert!(Enrolment::new(name, Vec::new(), "public-key", END).is_err(), "{name}");
        assert!(NewDevice::public(party(), Credential::PublicKey([1; 32])).is_err(), "{name}");
        assert!(NewDevice::secret(party(), Credential::SharedKey, &[1; 32]).is_err(), "{name}");
    }
    for name in ["enrol", "enrolment", "access control servers"] {
        assert!(Enrolment::new(name, Vec::new(), "shared-key", END).is_ok(), "{name}");
    }
}

/// An earlier version accepted such names.
#[test]
fn a_device_of_an_earlier_version_keeps_its_name() {
    let scene = Scene::new("earlier-name");
    let database = scene.database();
    let row = format!(r#"{{"kind":"public-key","sha256":"{}","tags":[],"disabled":false}}"#, "05".repeat(32));
    let transaction = Transaction::default().put(rows::device("enrol p9"), Value::Plain(row.into_bytes()));
    wait(database.commit(transaction)).expect("committed");
    assert!(open(database).view().device("enrol p9").is_some());
}
