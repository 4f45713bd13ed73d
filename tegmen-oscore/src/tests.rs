use super::context::Context;
use super::cose::Cbor;
use super::id::Id;
use super::naming::INFO_LEN;
use super::option::PartialIv;
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;
use std::string::String;
use std::vec::Vec;
use tegmen_base::buf::Frame;
use tegmen_base::crypto::{Ccm, Crypto, NotAuthentic, Unsupported};
use tegmen_base::crypto::{Compact, RustCrypto};
use tegmen_base::replay::ReplayWindow;
use tegmen_coap::{Builder, MessageRef, MessageType};
use tegmen_coap::{Code, OptionNumber, Token};

/// A provider that fails if a nonce occurs twice under one key.
struct Recorder {
    crypto: Compact,
    seen: HashSet<(Vec<u8>, Vec<u8>)>,
}

impl Recorder {
    fn new() -> Self {
        Self { crypto: Compact::new([1; 32]), seen: HashSet::new() }
    }
}

impl Crypto for Recorder {
    type Aead = Ccm;
    const AES_128_CCM: Ccm = Ccm;

    fn seal(
        &mut self,
        aead: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        assert!(self.seen.insert((key.to_vec(), nonce.to_vec())), "a nonce was used twice: {nonce:02x?}");
        self.crypto.seal(aead, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        aead: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.crypto.open(aead, key, nonce, aad, body, tag)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        Compact::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.crypto.random(out);
    }
}

const PARAMETERS: Parameters<'static> = Parameters {
    master_secret: &[7; 16],
    master_salt: b"salt",
    sender_id: b"c",
    recipient_id: b"s",
    id_context: None,
    aead: Aead::AesCcm16_64_128,
};

fn mirrored(parameters: Parameters<'static>) -> Parameters<'static> {
    Parameters { sender_id: parameters.recipient_id, recipient_id: parameters.sender_id, ..parameters }
}

/// Makes a client and a server with a common context. Each has reserved a thousand sequence numbers.
fn pair(parameters: Parameters<'static>) -> (Context, Context) {
    let mut client = Context::new::<Compact>(&parameters).unwrap();
    let mut server = Context::new::<Compact>(&mirrored(parameters)).unwrap();
    client.lease_mut().extend(1000);
    server.lease_mut().extend(1000);
    (client, server)
}

fn message(code: Code, options: &[(OptionNumber, &[u8])], payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 2000];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, code, 7, b"tok").unwrap();
    for (number, value) in options {
        builder.option(*number, value).unwrap();
    }
    builder.payload(payload).unwrap();
    frame.bytes().to_vec()
}

/// Copies `bytes` into a frame with free bytes on both sides, and calls `protect`. Returns the bytes that are then in
/// the frame, and the result of the call.
fn in_frame<T>(
    bytes: &[u8],
    protect: impl FnOnce(&mut Frame<'_>) -> Result<T, ProtectError>,
) -> Result<(Vec<u8>, T), ProtectError> {
    let mut storage = [0; 4000];
    let mut frame = Frame::new(&mut storage, 1400);
    frame.append(bytes).unwrap();
    let kept = protect(&mut frame)?;
    Ok((frame.bytes().to_vec(), kept))
}

fn request(client: &mut Context, crypto: &mut impl Crypto, bytes: &[u8]) -> (Vec<u8>, Pending) {
    in_frame(bytes, |frame| client.protect_request(crypto, frame)).unwrap()
}

/// The code, the options and the payload of a message.
type Said = (Code, Vec<(OptionNumber, Vec<u8>)>, Vec<u8>);

fn said(message: &MessageRef<'_>) -> Said {
    let options = message.options().map(|(number, value)| (number, value.to_vec())).collect();
    (message.code(), options, message.payload().to_vec())
}

fn appendix_c() -> Vec<serde_json::Value> {
    let all = include_str!("../../vectors/oscore_rfc8613_appendix_c.json");
    let all: serde_json::Value = serde_json::from_str(all).unwrap();
    all["sections"].as_array().unwrap().clone()
}

fn bytes(case: &serde_json::Value, name: &str) -> Option<Vec<u8>> {
    let text = case[name].as_str()?;
    Some((0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect())
}

#[test]
fn appendix_c_of_rfc_8613_derives_these_contexts() {
    let mut checked = Vec::new();
    for case in appendix_c() {
        let Some(master_secret) = bytes(&case, "master_secret") else { continue };
        let get = |name| bytes(&case, name).unwrap_or_default();
        let (salt, sender_id, recipient_id) = (get("master_salt"), get("sender_id"), get("recipient_id"));
        let id_context = bytes(&case, "id_context");
        let parameters = Parameters {
            master_secret: &master_secret,
            master_salt: &salt,
            sender_id: &sender_id,
            recipient_id: &recipient_id,
            id_context: id_context.as_deref(),
            aead: Aead::AesCcm16_64_128,
        };
        let context = Context::new::<Compact>(&parameters).unwrap();
        assert_eq!(context.sender_key.expose().to_vec(), get("sender_key"));
        assert_eq!(context.recipient_key.expose().to_vec(), get("recipient_key"));
        assert_eq!(context.common_iv.to_vec(), get("common_iv"));
        let zero = PartialIv::new(0).unwrap();
        let nonce = |id| context.inputs(id, None, (id, &zero)).nonce().to_vec();
        assert_eq!(
            (nonce(&context.sender_id), nonce(&context.recipient_id)),
            (get("sender_nonce"), get("recipient_nonce"))
        );
        for (name, id, len) in [
            ("sender_key_info", &context.sender_id, 16),
            ("recipient_key_info", &context.recipient_id, 16),
            ("common_iv_info", &Id::default(), 13),
        ] {
            let mut info = Cbor::<INFO_LEN>::beginning_with([0x85]);
            derivation::write_info(&mut info, context.id_context(), context.aead, id, len);
            assert_eq!(info.as_bytes(), get(name));
        }
        checked.push(String::from(case["section"].as_str().unwrap()));
    }
    assert_eq!(checked, ["C.1.1", "C.1.2", "C.2.1", "C.2.2", "C.3.1", "C.3.2"]);
}

/// Makes one end of a context from RFC 8613, appendix C. `section` is the number of the section with the parameters of
/// this end, such as C.1.1. The next message of this end has the sequence number `at`.
fn contexts(section: &str, at: u64) -> Context {
    let cases = appendix_c();
    let case = cases.iter().find(|case| case["section"] == section).unwrap();
    let get = |name| bytes(case, name).unwrap_or_default();
    let (secret, salt, id_context) = (get("master_secret"), get("master_salt"), bytes(case, "id_context"));
    let (sender_id, recipient_id) = (get("sender_id"), get("recipient_id"));
    let parameters = Parameters {
        master_secret: &secret,
        master_salt: &salt,
        sender_id: &sender_id,
        recipient_id: &recipient_id,
        id_context: id_context.as_deref(),
        aead: Aead::AesCcm16_64_128,
    };
    let mut context = Context::restore::<Compact>(&parameters, at, ReplayWindow::new()).unwrap();
    context.lease_mut().extend(at + 10);
    context
}

#[test]
fn appendix_c_of_rfc_8613_protects_these_messages() {
    let crypto = &mut Compact::new([0; 32]);
    for (section, client, server) in [("C.4", "C.1.1", "C.1.2"), ("C.5", "C.2.1", "C.2.2"), ("C.6", "C.3.1", "C.3.2")] {
        let cases = appendix_c();
        let case = cases.iter().find(|case| case["section"] == section).unwrap();
        let get = |name| bytes(case, name).unwrap();
        let number = case["sender_sequence_number"].as_u64().unwrap();
        let (mut client, mut server) = (contexts(client, number), contexts(server, 0));
        let piv = PartialIv::new(number).unwrap();
        assert_eq!(piv.as_bytes(), get("partial_iv"));
        let inputs = client.inputs(&client.sender_id, None, (&client.sender_id, &piv));
        assert_eq!(inputs.aad(), get("aad"));
        assert!(get("aad").ends_with(&get("aad_array")));
        assert_eq!(inputs.nonce(), get("nonce"));
        assert_eq!(client.sender_key.expose().to_vec(), get("encryption_key"));
        let (mut protected, _) = request(&mut client, crypto, &get("unprotected"));
        assert_eq!(protected, get("protected"), "{section}");
        let outer = MessageRef::parse(&protected).unwrap();
        assert_eq!(outer.option(OptionNumber::OSCORE), Some(&get("option")[..]));
        assert_eq!(outer.payload(), get("ciphertext"));
        let Ok(Unprotected::Fresh(message, _)) = server.unprotect_request(crypto, &mut protected) else { panic!() };
        let unprotected = get("unprotected");
        assert_eq!(said(&message), said(&MessageRef::parse(&unprotected).unwrap()));
    }
    for (section, with_number) in [("C.7", false), ("C.8", true)] {
        let cases = appendix_c();
        let case = cases.iter().find(|case| case["section"] == section).unwrap();
        let get = |name| bytes(case, name).unwrap();
        let (client, mut server) = (contexts("C.1.1", 20), contexts("C.1.2", 0));
        let binding = RequestBinding::of(20);
        let nonce = (!with_number).then(|| RequestNonce::of(20));
        let protect = |frame: &mut Frame<'_>| server.protect_response(crypto, &binding, nonce, frame);
        let (mut protected, ()) = in_frame(&get("unprotected"), protect).unwrap();
        assert_eq!(protected, get("protected"), "{section}");
        let mut pending = Pending::new(binding);
        let message = client.unprotect_response(crypto, &mut pending, &mut protected).unwrap();
        let unprotected = get("unprotected");
        assert_eq!(said(&message), said(&MessageRef::parse(&unprotected).unwrap()));
    }
}

#[test]
fn a_context_takes_112_bytes() {
    assert_eq!(size_of::<Context>(), 112);
}

#[test]
fn options_of_every_class_go_where_rfc_8613_has_them() {
    let (mut client, mut server) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let options: [(OptionNumber, &[u8]); 9] = [
        (OptionNumber::URI_HOST, b"host.example"),
        (OptionNumber::OBSERVE, &[]),
        (OptionNumber::URI_PORT, &[0x16, 0x33]),
        (OptionNumber::URI_PATH, b"secret"),
        (OptionNumber::HOP_LIMIT, &[9]),
        (OptionNumber::BLOCK2, &[6]),
        (OptionNumber::PROXY_SCHEME, b"coap"),
        (OptionNumber::ECHO, b"e"),
        (OptionNumber::REQUEST_TAG, &[]),
    ];
    let plain = message(Code::GET, &options, b"body");
    let (mut protected, mut pending) = request(&mut client, crypto, &plain);
    let outer = MessageRef::parse(&protected).unwrap();
    assert_eq!(outer.code(), Code::FETCH, "an observation is asked for with FETCH outside");
    let numbers: Vec<u16> = outer.options().map(|(number, _)| number.0).collect();
    assert_eq!(numbers, [3, 6, 7, 9, 16, 39]);
    assert!(!protected.windows(6).any(|bytes| bytes == b"secret"));
    let Unprotected::Fresh(inner, nonce) = server.unprotect_request(crypto, &mut protected).unwrap() else { panic!() };
    assert_eq!(said(&inner), said(&MessageRef::parse(&plain).unwrap()));

    let answer = message(Code::CONTENT, &[(OptionNumber::OBSERVE, &[1, 2]), (OptionNumber::MAX_AGE, &[5])], b"21 C");
    let binding = nonce.binding();
    let first = |frame: &mut Frame<'_>| server.protect_response(crypto, &binding, Some(nonce), frame);
    let (mut first, ()) = in_frame(&answer, first).unwrap();
    let outer = MessageRef::parse(&first).unwrap();
    assert_eq!((outer.code(), outer.uint(OptionNumber::OBSERVE)), (Code::CONTENT, Some(0x102)));
    assert_eq!(outer.option(OptionNumber::MAX_AGE), None);
    let inner = client.unprotect_response(crypto, &mut pending, &mut first).unwrap();
    assert_eq!((inner.option(OptionNumber::OBSERVE), inner.payload()), (Some(&[][..]), &b"21 C"[..]));
    assert_eq!(inner.uint(OptionNumber::MAX_AGE), Some(5));
}

#[test]
fn options_that_somebody_adds_outside_are_not_the_senders() {
    let (mut client, mut server) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let plain = message(Code::GET, &[(OptionNumber::URI_PATH, b"read")], &[]);
    let (protected, _) = request(&mut client, crypto, &plain);
    let mut storage = [0; 300];
    let mut frame = Frame::new(&mut storage, 0);
    let outer = MessageRef::parse(&protected).unwrap();
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, outer.code(), 7, outer.token()).unwrap();
    builder.option(OptionNumber::URI_HOST, b"h").unwrap();
    builder.option(OptionNumber::OBSERVE, &[]).unwrap();
    builder.option(OptionNumber::OSCORE, outer.option(OptionNumber::OSCORE).unwrap()).unwrap();
    builder.option(OptionNumber::URI_PATH, b"admin").unwrap();
    builder.option(OptionNumber::BLOCK1, &[8]).unwrap();
    builder.option(OptionNumber(2049), b"critical").unwrap();
    builder.payload(outer.payload()).unwrap();
    let Unprotected::Fresh(inner, _) = server.unprotect_request(crypto, frame.bytes_mut()).unwrap() else { panic!() };
    let (_, options, _) = said(&inner);
    assert_eq!(options, [(OptionNumber::URI_HOST, b"h".to_vec()), (OptionNumber::URI_PATH, b"read".to_vec())]);
    assert!(inner.path_is("read") && inner.option(OptionNumber::BLOCK1).is_none());
}

#[test]
fn a_replay_is_refused_and_a_forgery_moves_no_window() {
    let (mut client, mut server) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let plain = message(Code::PUT, &[(OptionNumber::URI_PATH, b"led")], b"on");
    let (protected, _) = request(&mut client, crypto, &plain);
    for at in 0..protected.len() {
        for bit in 0..8 {
            let mut forged = protected.clone();
            forged[at] ^= 1 << bit;
            let header = at < 4 || (4..7).contains(&at); // type, code, Message ID and token are not OSCORE's
            let got = server.unprotect_request(crypto, &mut forged).map(|_| ());
            if header && got.is_ok() {
                server.window = ReplayWindow::new();
                continue;
            }
            let refused = got.unwrap_err();
            assert!(matches!(refused.code(), Code::BAD_OPTION | Code::UNAUTHORIZED | Code::BAD_REQUEST));
            assert_eq!(server.window.next(), 0, "byte {at}, bit {bit}: {refused:?}");
        }
    }
    assert!(server.unprotect_request(crypto, &mut protected.clone()).is_ok());
    assert_eq!(server.unprotect_request(crypto, &mut protected.clone()).unwrap_err(), UnprotectError::Replayed);
}

#[test]
fn a_response_answers_its_own_request_once() {
    let (mut client, mut server) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let get = message(Code::GET, &[], &[]);
    let (mut first, mut first_pending) = request(&mut client, crypto, &get);
    let (mut second, mut second_pending) = request(&mut client, crypto, &get);
    let answer = |server: &mut Context, crypto: &mut Recorder, datagram: &mut [u8]| {
        let Ok(Unprotected::Fresh(_, nonce)) = server.unprotect_request(crypto, datagram) else { panic!() };
        let binding = nonce.binding();
        let text = message(Code::CONTENT, &[], b"x");
        in_frame(&text, |frame| server.protect_response(crypto, &binding, Some(nonce), frame)).unwrap().0
    };
    let to_first = answer(&mut server, crypto, &mut first);
    let to_second = answer(&mut server, crypto, &mut second);
    let mut open = |pending: &mut Pending, datagram: &[u8]| {
        client.unprotect_response(crypto, pending, &mut datagram.to_vec()).map(|_| ())
    };
    assert_eq!(open(&mut second_pending, &to_first), Err(UnprotectError::NotAuthentic));
    assert_eq!(open(&mut first_pending, &to_second), Err(UnprotectError::NotAuthentic));
    assert_eq!(open(&mut first_pending, &to_first), Ok(()));
    assert_eq!(open(&mut first_pending, &to_first), Err(UnprotectError::Replayed));
    assert_eq!(open(&mut second_pending, &message(Code::CONTENT, &[], b"x")), Err(UnprotectError::Unprotected));
    assert_eq!(open(&mut second_pending, &to_second), Ok(()));
}

#[test]
fn notifications_are_taken_by_rising_number() {
    let (mut client, mut server) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let observe = message(Code::GET, &[(OptionNumber::OBSERVE, &[])], &[]);
    let (mut registration, mut pending) = request(&mut client, crypto, &observe);
    let Ok(Unprotected::Fresh(_, nonce)) = server.unprotect_request(crypto, &mut registration) else { panic!() };
    let (binding, mut nonce) = (nonce.binding(), Some(nonce));
    let notifications: Vec<Vec<u8>> = (0..4u8)
        .map(|n| {
            let text = message(Code::CONTENT, &[(OptionNumber::OBSERVE, &[n])], &[n]);
            in_frame(&text, |frame| server.protect_response(crypto, &binding, nonce.take(), frame)).unwrap().0
        })
        .collect();
    for (which, expected) in
        [(0, Ok(None)), (0, Err(())), (2, Ok(Some(1))), (1, Err(())), (2, Err(())), (3, Ok(Some(2))), (0, Err(()))]
    {
        let mut datagram = notifications[which].clone();
        let got = client.unprotect_response(crypto, &mut pending, &mut datagram).map(|_| ());
        assert_eq!(got.map(|()| pending.notification_number()).map_err(|_| ()), expected, "{which}");
    }
}

#[test]
fn a_response_without_a_number_ends_an_observation_once() {
    let (mut client, mut server) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let observe = message(Code::GET, &[(OptionNumber::OBSERVE, &[])], &[]);
    let notification = message(Code::CONTENT, &[(OptionNumber::OBSERVE, &[1])], b"a");
    for (last, taken) in [
        (message(Code::NOT_FOUND, &[], &[]), true),
        (message(Code::CONTENT, &[], b"b"), true),
        // A first notification that comes late.
        (message(Code::CONTENT, &[(OptionNumber::OBSERVE, &[0])], b"b"), false),
    ] {
        let (mut registration, mut pending) = request(&mut client, crypto, &observe);
        let Ok(Unprotected::Fresh(_, nonce)) = server.unprotect_request(crypto, &mut registration) else { panic!() };
        let binding = nonce.binding();
        let mut protect = |text: &[u8], nonce| {
            in_frame(text, |frame| server.protect_response(crypto, &binding, nonce, frame)).unwrap().0
        };
        let [first, second] = [(); 2].map(|()| protect(&notification, None));
        let last = protect(&last, Some(nonce));
        let mut open = |datagram: &[u8]| {
            let mut datagram = datagram.to_vec();
            client.unprotect_response(crypto, &mut pending, &mut datagram).map(|message| message.code())
        };
        assert_eq!(open(&first), Ok(Code::CONTENT));
        assert_eq!(open(&last).is_ok(), taken);
        assert_eq!(open(&last), Err(UnprotectError::Replayed), "once");
        assert_eq!(open(&first), Err(UnprotectError::Replayed), "nor does it let an older notification in");
        assert!(open(&second).is_ok(), "numbers go on");
    }
}

#[test]
fn after_a_lost_window_nothing_is_delivered_before_the_challenge_came_back() {
    let (mut client, mut server) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let put = message(Code::PUT, &[(OptionNumber::URI_PATH, b"door")], b"open");
    let mut recorded = Vec::new();
    for _ in 0..3 {
        let (protected, _) = request(&mut client, crypto, &put);
        recorded.push(protected.clone());
        assert!(server.unprotect_request(crypto, &mut protected.clone()).is_ok());
    }
    let held_back = request(&mut client, crypto, &put).0;
    let kept = server.lease.end();
    let mut server = Context::resume::<Compact>(&mirrored(PARAMETERS), kept).unwrap();
    // No message from before the power cut is delivered again, and no challenge is sent before sequence numbers are
    // reserved.
    for replay in &recorded {
        let Ok(Unprotected::Unverified(_, binding)) = server.unprotect_request(crypto, &mut replay.clone()) else {
            panic!()
        };
        let mut storage = [0; 200];
        let mut frame = Frame::new(&mut storage, OVERHEAD);
        let head = (MessageType::Acknowledgement, 7);
        let spent = server.write_challenge(crypto, &binding, head, &Token::new(b"tok"), &mut frame);
        assert_eq!(spent, Err(ProtectError::LeaseSpent));
    }
    server.lease_mut().extend(kept + 10);
    let (mut next, mut pending) = request(&mut client, crypto, &put);
    let Ok(Unprotected::Unverified(_, binding)) = server.unprotect_request(crypto, &mut next) else { panic!() };
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, OVERHEAD);
    let head = (MessageType::Acknowledgement, 7);
    server.write_challenge(crypto, &binding, head, &Token::new(b"tok"), &mut frame).unwrap();
    let challenge = client.unprotect_response(crypto, &mut pending, frame.bytes_mut()).unwrap();
    assert_eq!(challenge.code(), Code::UNAUTHORIZED);
    let echo = challenge.option(OptionNumber::ECHO).unwrap().to_vec();
    assert_eq!(echo.len(), 8);
    // Another value than the one that was asked for helps nobody.
    let wrong = message(Code::PUT, &[(OptionNumber::URI_PATH, b"door"), (OptionNumber::ECHO, b"\x01")], b"open");
    let mut wrong = request(&mut client, crypto, &wrong).0;
    assert!(matches!(server.unprotect_request(crypto, &mut wrong), Ok(Unprotected::Unverified(..))));
    let again = message(Code::PUT, &[(OptionNumber::URI_PATH, b"door"), (OptionNumber::ECHO, &echo)], b"open");
    let again = request(&mut client, crypto, &again).0;
    assert!(matches!(server.unprotect_request(crypto, &mut again.clone()), Ok(Unprotected::Fresh(..))));
    for old in recorded.iter().chain([&held_back, &again]) {
        assert_eq!(server.unprotect_request(crypto, &mut old.clone()).unwrap_err(), UnprotectError::Replayed);
    }
    let mut later = request(&mut client, crypto, &put).0;
    assert!(matches!(server.unprotect_request(crypto, &mut later), Ok(Unprotected::Fresh(..))));
}

#[test]
fn an_echo_that_nobody_asked_for_proves_nothing() {
    let (mut client, _) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let mut server = Context::resume::<Compact>(&mirrored(PARAMETERS), 0).unwrap();
    for echo in [&[0][..], &[0; 8], &[0xff; 8]] {
        let text = message(Code::PUT, &[(OptionNumber::ECHO, echo)], b"open");
        let mut datagram = request(&mut client, crypto, &text).0;
        assert!(matches!(server.unprotect_request(crypto, &mut datagram), Ok(Unprotected::Unverified(..))));
    }
}

#[test]
fn nothing_is_protected_without_a_lease_and_nothing_after_the_last_number() {
    let mut client = Context::new::<Compact>(&PARAMETERS).unwrap();
    let crypto = &mut Recorder::new();
    let get = message(Code::GET, &[], &[]);
    let mut protect = |client: &mut Context| in_frame(&get, |frame| client.protect_request(crypto, frame)).map(|_| ());
    assert_eq!(protect(&mut client), Err(ProtectError::LeaseSpent));
    client.lease_mut().extend(1);
    assert_eq!((protect(&mut client), protect(&mut client)), (Ok(()), Err(ProtectError::LeaseSpent)));
    let mut last = Context::resume::<Compact>(&PARAMETERS, MAX_PARTIAL_IV).unwrap();
    last.lease_mut().extend(u64::MAX);
    assert_eq!((protect(&mut last), protect(&mut last)), (Ok(()), Err(ProtectError::Exhausted)));
}

/// A key of AES-GCM encrypts at most 2^32 messages (RFC 9053, section 4.1.1): half of them under sequence numbers of
/// its own endpoint, and half of them under sequence numbers of the other endpoint.
#[test]
fn a_key_of_aes_gcm_encrypts_no_more_than_2_to_the_32_messages() {
    let crypto = &mut RustCrypto::new([1; 32]);
    let (get, content) = (message(Code::GET, &[], &[]), message(Code::CONTENT, &[], b"21"));
    let gcm = Parameters { aead: Aead::A128Gcm, ..PARAMETERS };
    for (parameters, last) in [(gcm, (1 << 31) - 1), (PARAMETERS, MAX_PARTIAL_IV)] {
        let mut end = Context::resume::<RustCrypto>(&parameters, last).unwrap();
        end.lease_mut().extend(u64::MAX);
        let mut protect = || in_frame(&get, |frame| end.protect_request(crypto, frame)).map(|_| ());
        assert_eq!((protect(), protect()), (Ok(()), Err(ProtectError::Exhausted)));
    }
    let mut end = Context::new::<RustCrypto>(&gcm).unwrap();
    end.lease_mut().extend(1);
    let mut answer = |number| {
        let request = RequestBinding(PartialIv::new(number).unwrap());
        let nonce = Some(RequestNonce(request));
        in_frame(&content, |frame| end.protect_response(crypto, &request, nonce, frame)).map(|(bytes, ())| bytes)
    };
    // A request whose number is too large gives no nonce, so the response has a number of its own.
    let with_nonce = answer((1 << 31) - 1).unwrap();
    let with_number = answer(1 << 31).unwrap();
    assert_eq!(with_number.len(), with_nonce.len() + 2, "the flags and a Partial IV of one byte");
    assert_eq!(answer(1 << 31), Err(ProtectError::LeaseSpent));
}

#[test]
fn parameters_that_cannot_be_are_refused() {
    let bad = |parameters: Parameters<'_>| Context::new::<Compact>(&parameters).unwrap_err();
    assert_eq!(bad(Parameters { sender_id: b"s", ..PARAMETERS }), BadParameters::SameIds);
    assert_eq!(bad(Parameters { sender_id: &[1; 8], ..PARAMETERS }), BadParameters::IdTooLong { max: 7 });
    let short = Parameters { aead: Aead::AesCcm64_64_128, recipient_id: b"ab", ..PARAMETERS };
    assert_eq!(bad(short), BadParameters::IdTooLong { max: 1 });
    assert_eq!(
        bad(Parameters { id_context: Some(&[1; naming::MAX_ID_CONTEXT + 1]), ..PARAMETERS }),
        BadParameters::IdContextTooLong
    );
    assert_eq!(bad(Parameters { aead: Aead::A128Gcm, ..PARAMETERS }), BadParameters::Unsupported);
}

#[test]
fn a_frame_without_room_is_left_alone_or_refused() {
    let (mut client, _) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let get = message(Code::GET, &[(OptionNumber::URI_PATH, b"x")], &[]);
    for (headroom, behind) in [(0, 100), (4, 100), (100, 0), (100, 7)] {
        let mut storage = std::vec![0; headroom + get.len() + behind];
        let mut frame = Frame::new(&mut storage, headroom);
        frame.append(&get).unwrap();
        assert_eq!(client.protect_request(crypto, &mut frame).unwrap_err(), ProtectError::Full);
    }
}

#[test]
fn a_message_that_is_protected_is_not_protected_again() {
    let (mut client, _) = pair(PARAMETERS);
    let crypto = &mut Recorder::new();
    let get = message(Code::GET, &[(OptionNumber::URI_PATH, b"x")], &[]);
    let (protected, _) = request(&mut client, crypto, &get);
    let again = in_frame(&protected, |frame| client.protect_request(crypto, frame));
    assert_eq!(again.unwrap_err(), ProtectError::Malformed);
}

fn any_options() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    let number = prop_oneof![
        proptest::sample::select(std::vec![
            1u16, 3, 4, 6, 7, 11, 11, 12, 14, 15, 16, 17, 23, 27, 35, 39, 60, 252, 258, 292
        ]),
        0u16..3000
    ];
    let value = proptest::collection::vec(any::<u8>(), 0..20);
    proptest::collection::vec((number, value), 0..10).prop_map(|mut options| {
        options.retain(|(number, _)| *number != 9);
        options.sort_by_key(|(number, _)| *number);
        options.dedup_by(|a, b| a.0 == b.0 && a.0 == OptionNumber::OBSERVE.0);
        options
    })
}

proptest! {
    #[test]
    fn what_is_protected_comes_out_the_same_under_every_algorithm_and_id(
        options in any_options(),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        which in 0usize..4,
        ids in proptest::sample::select(std::vec![(&b""[..], &b"1"[..]), (b"a", b""), (b"a", b"b")]),
        context in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..=16)),
        start in prop_oneof![Just(0u64), Just(255), Just(65535), 0..MAX_PARTIAL_IV],
    ) {
        let parameters = Parameters {
            sender_id: ids.0,
            recipient_id: ids.1,
            id_context: context.as_deref(),
            aead: Aead::ALL[which],
            ..PARAMETERS
        };
        let mirrored = Parameters { sender_id: ids.1, recipient_id: ids.0, ..parameters };
        let crypto = &mut Recorder::new();
        let mut client = Context::restore::<Compact>(&parameters, start, ReplayWindow::new()).unwrap();
        client.lease_mut().extend(start + 1);
        let mut server = Context::new::<Compact>(&mirrored).unwrap();
        let listed: Vec<_> = options.iter().map(|(number, value)| (OptionNumber(*number), &value[..])).collect();
        let plain = message(Code::POST, &listed, &payload);
        let (protected, mut pending) = request(&mut client, crypto, &plain);
        prop_assert!(protected.len() <= plain.len() + OVERHEAD + options.iter().map(|(_, value)| value.len() + 3).sum::<usize>());
        let mut datagram = protected.clone();
        let Ok(Unprotected::Fresh(got, nonce)) = server.unprotect_request(crypto, &mut datagram) else {
            return Err(TestCaseError::fail("not fresh"));
        };
        prop_assert_eq!(said(&got), said(&MessageRef::parse(&plain).unwrap()));
        let answer = message(Code::CHANGED, &listed, &payload);
        let binding = nonce.binding();
        let (mut answered, ()) = in_frame(&answer, |frame| server.protect_response(crypto, &binding, Some(nonce), frame)).unwrap();
        let got = client.unprotect_response(crypto, &mut pending, &mut answered).unwrap();
        let mut expected = said(&MessageRef::parse(&answer).unwrap());
        expected.1.iter_mut().filter(|(number, _)| *number == OptionNumber::OBSERVE).for_each(|(_, value)| value.clear());
        prop_assert_eq!(said(&got), expected);
    }

    #[test]
    fn any_bytes_are_refused_and_change_nothing(datagram in proptest::collection::vec(any::<u8>(), 0..100), as_oscore in any::<bool>()) {
        let (client, mut server) = pair(PARAMETERS);
        let crypto = &mut Recorder::new();
        let datagram = if as_oscore {
            let (option, payload) = datagram.split_at(datagram.len() / 4);
            message(Code::POST, &[(OptionNumber::OSCORE, option)], payload)
        } else {
            datagram
        };
        prop_assert!(server.unprotect_request(crypto, &mut datagram.clone()).is_err());
        let mut pending = Pending::new(RequestBinding::of(0));
        prop_assert!(client.unprotect_response(crypto, &mut pending, &mut datagram.clone()).is_err());
        prop_assert_eq!((server.window.next(), pending), (0, Pending::new(RequestBinding::of(0))));
    }
}
