//! Compares the messages of initiator and responder byte for byte with the messages in RFC 9529, section 3. Also tests
//! the invalid messages of section 4.

#[path = "common/scripted.rs"]
mod scripted;

use scripted::Scripted;
use serde_json::Value;
use tegmen_base::secret::Secret;
use tegmen_edhoc::{
    ConnectionId, Credential, CredentialId, Failure, Identity, Initiator, PeerError, Responder, Transfer,
};

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

struct Traces(Value);

impl Traces {
    fn read() -> Self {
        Self(serde_json::from_str(include_str!("../../vectors/edhoc_rfc9529_static_dh.json")).unwrap())
    }

    /// Finds in the step `step` of the trace the first value whose label begins with `label`. Returns its bytes.
    fn get(&self, step: &str, label: &str) -> Vec<u8> {
        let cases = self.0["vectors"].as_array().unwrap();
        let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_owned();
        let found = cases.iter().find(|case| text(case, "step") == step && text(case, "label").starts_with(label));
        unhex(&text(found.unwrap_or_else(|| panic!("{step}: {label}")), "hex"))
    }

    fn key(&self, step: &str, label: &str) -> [u8; 32] {
        self.get(step, label).try_into().unwrap()
    }

    fn identity(&self, step: &str, role: char) -> Identity {
        let name = if role == 'I' { "Initiator's" } else { "Responder's" };
        let private = self.key(step, &format!("{name} private authentication key"));
        let credential = Credential::parse(&self.get(step, &format!("CRED_{role}"))).unwrap();
        Identity::new(Secret::new(private), credential, Transfer::ByReference)
    }
}

const SECOND: &str = "message_1 (second time)";

fn id(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

fn ephemeral(traces: &Traces, step: &str, role: char) -> Scripted {
    let (name, letter) = if role == 'I' { ("Initiator's", 'X') } else { ("Responder's", 'Y') };
    let private = traces.key(step, &format!("{name} ephemeral private key {letter}"));
    let x = traces.key(step, &format!("{name} ephemeral public key, 'x'-coordinate G_{letter} (Raw"));
    Scripted::with_key(private, x)
}

#[test]
fn a_session_has_the_bytes_of_rfc_9529() {
    let traces = Traces::read();
    let (initiator_is, responder_is) = (traces.identity("message_3", 'I'), traces.identity("message_2", 'R'));
    let (mut i, mut r) = (ephemeral(&traces, SECOND, 'I'), ephemeral(&traces, "message_2", 'R'));
    let (c_i, c_r) = (traces.get(SECOND, "Connection identifier"), traces.get("message_2", "Connection identifier"));

    let (initiator, message_1) = Initiator::begin_after(&mut i, id(&c_i), &[6]).unwrap();
    assert_eq!(message_1.as_bytes(), traces.get(SECOND, "message_1"));
    let (responder, message_2) = Responder::begin(&mut r, message_1.as_bytes(), &responder_is, |seen| {
        assert_eq!(seen.as_bytes(), c_i);
        Some(id(&c_r))
    })
    .unwrap();
    assert_eq!(message_2.as_bytes(), traces.get("message_2", "message_2 (CBOR"));

    let find = |named: &CredentialId<'_>| {
        assert_eq!(*named, CredentialId::Kid(&[0x32]));
        Some(*responder_is.credential())
    };
    let (at_initiator, message_3, message_4) =
        initiator.finish(&mut i, message_2.as_bytes(), &initiator_is, find).unwrap();
    assert_eq!(message_3.as_bytes(), traces.get("message_3", "message_3 (CBOR"));
    let find = |named: &CredentialId<'_>| {
        assert_eq!(*named, CredentialId::Kid(&[0x2b]));
        Some(*initiator_is.credential())
    };
    let (at_responder, written) = responder.finish(&mut r, message_3.as_bytes(), find).unwrap();
    assert_eq!(written.as_bytes(), traces.get("message_4", "message_4 (CBOR"));
    message_4.verify(&mut i, written.as_bytes()).unwrap();

    let step = "OSCORE Parameters";
    for agreed in [&at_initiator, &at_responder] {
        assert_eq!(agreed.master_secret.expose()[..], traces.get(step, "OSCORE Master Secret"));
        assert_eq!(agreed.master_salt.expose()[..], traces.get(step, "OSCORE Master Salt"));
    }
    assert_eq!(at_initiator.sender_id.as_bytes(), traces.get(step, "Client's OSCORE Sender ID"));
    assert_eq!(at_responder.sender_id.as_bytes(), traces.get(step, "Server's OSCORE Sender ID"));
    assert_eq!(at_initiator.sender_id, at_responder.recipient_id);
    assert_eq!(at_initiator.recipient_id, at_responder.sender_id);
    assert_eq!(at_responder.peer, *initiator_is.credential());
    assert_eq!(at_initiator.peer, *responder_is.credential());
}

#[test]
fn another_cipher_suite_gets_the_error_of_rfc_9529() {
    let traces = Traces::read();
    let first = traces.get("message_1 (first time)", "message_1 (CBOR");
    let identity = traces.identity("message_2", 'R');
    let refused = Responder::begin(&mut Scripted::new(), &first, &identity, |_| Some(id(&[1])));
    let failure = refused.map(|_| ()).unwrap_err();
    assert_eq!(failure, Failure::CipherSuite);
    let mut out = [0; 40];
    let error = failure.write(&mut out).unwrap();
    assert_eq!(error, traces.get("error", "error"));
    assert_eq!(PeerError::parse(error), Some(PeerError::WrongCipherSuite));
}

#[test]
fn invalid_messages_of_rfc_9529_are_refused() {
    let traces = Traces::read();
    let identity = traces.identity("message_2", 'R');
    let cases = traces.0["invalid"].as_array().unwrap();
    let mut count = 0;
    for case in cases.iter().filter(|case| case["label"].as_str().unwrap().contains("message_1")) {
        let message = unhex(case["hex"].as_str().unwrap());
        let begun = Responder::begin(&mut Scripted::new(), &message, &identity, |_| Some(id(&[1])));
        assert!(begun.is_err(), "{}", case["name"]);
        count += 1;
    }
    assert_eq!(count, 9);
}
