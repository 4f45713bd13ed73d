//! Messages that aiocoap protected (`vectors/group-oscore`).

use crate::world::{Context, Recorder, Said, said};
use serde_json::Value;
use tegmen_base::buf::Frame;
use tegmen_base::crypto::Curve;
use tegmen_base::secret::Secret;
use tegmen_coap::{MessageRef, OptionNumber};
use tegmen_oscore::group::{Algorithms, DeterministicRequest, GroupParameters, Mode, Ourselves, Recipient, Replies};
use tegmen_oscore::{Aead, Id, ReplayWindow, Unprotected};

pub(crate) fn all() -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../../../vectors/group-oscore/group_oscore.json")).unwrap();
    all["groups"].as_array().unwrap().clone()
}

pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn aead(value: &Value) -> Option<Aead> {
    match value.as_str().unwrap() {
        "AES-CCM-16-64-128" => Some(Aead::AesCcm16_64_128),
        "AES-CCM-16-128-128" => Some(Aead::AesCcm16_128_128),
        "A128GCM" => Some(Aead::A128Gcm),
        other => panic!("{other}"),
    }
}

fn curve(group: &Value) -> Curve {
    if group["curve"] == "Ed25519" { Curve::Ed25519 } else { Curve::P256 }
}

pub(crate) fn algorithms(group: &Value) -> Algorithms {
    let curve = Some(curve(group));
    let (aead, group_encryption) = (aead(&group["aead"]), aead(&group["group_encryption"]));
    Algorithms { aead, group_encryption, signature: curve, key_agreement: curve }
}

/// Makes the context of the member `us`, and the Recipient Context of the member `them` for this context.
pub(crate) fn end(group: &Value, us: &str, them: &str) -> (Context, [Recipient<Vec<u8>>; 1]) {
    let (secret, salt, gid) = (bytes(&group["master_secret"]), bytes(&group["master_salt"]), bytes(&group["gid"]));
    let parameters =
        GroupParameters { master_secret: &secret, master_salt: &salt, gid: &gid, algorithms: algorithms(group) };
    let ourselves = Ourselves {
        id: Id::new(&bytes(&group[us]["id"])).unwrap(),
        private_key: Secret::new(bytes(&group[us]["private"]).try_into().unwrap()),
        credential: bytes(&group[us]["credential"]),
        kept: group[us]["number"].as_u64().unwrap(),
    };
    let mut context =
        Context::new::<Recorder>(&parameters, ourselves, bytes(&group["group_manager_credential"])).unwrap();
    context.lease_mut().extend(1 << 20);
    let id = Id::new(&bytes(&group[them]["id"])).unwrap();
    let other =
        context.recipient(&mut Recorder::new(), id, bytes(&group[them]["credential"]), Some(ReplayWindow::default()));
    (context, [other.unwrap()])
}

pub(crate) fn frame<'s>(storage: &'s mut [u8], plain: &[u8]) -> Frame<'s> {
    let mut frame = Frame::new(storage, 100);
    frame.append(plain).unwrap();
    frame
}

/// Returns code, options and payload of a message without Observe. Observe is left out, because OSCORE changes its
/// value in the inner message.
pub(crate) fn plain(message: &[u8]) -> Said {
    let mut said = said(&MessageRef::parse(message).unwrap());
    said.1.retain(|(number, _)| *number != OptionNumber::OBSERVE);
    said
}

#[test]
fn what_aiocoap_protected_is_opened() {
    for group in all() {
        let (client, mut at_client) = end(&group, "client", "server");
        let (server, mut at_server) = end(&group, "server", "client");
        let (mut sender, _) = end(&group, "client", "server");
        let crypto = &mut Recorder::new();
        for exchange in group["exchanges"].as_array().unwrap() {
            let name = format!("{}: {}", group["name"], exchange["name"]);
            let mut request = bytes(&exchange["request"]);
            let opened = server.unprotect_request(crypto, at_server.as_mut_slice(), &mut request);
            let Unprotected::Fresh(message, nonce) = opened.expect(&name) else { panic!("{name}") };
            let mut got = said(&message);
            got.1.retain(|(number, _)| *number != OptionNumber::OBSERVE);
            assert_eq!(got, plain(&bytes(&exchange["plain_request"])), "{name}");
            assert_eq!(nonce.request().is_signed(), exchange["pairwise"] == false, "{name}");

            // The response is to a request of ours with the same number.
            let mut storage = [0; 400];
            let mut made = frame(&mut storage, &bytes(&exchange["plain_request"]));
            let mode = match exchange["pairwise"].as_bool().unwrap() {
                false => Mode::Group,
                true => Mode::Pairwise(&mut at_client[0]),
            };
            let mut pending = sender.protect_request(crypto, mode, [Replies::default()], &mut made).unwrap();
            let mut response = bytes(&exchange["response"]);
            let opened = client.unprotect_response(crypto, at_client.as_mut_slice(), &mut pending, &mut response);
            let (message, from) = opened.expect(&name);
            let mut got = said(&message);
            got.1.retain(|(number, _)| *number != OptionNumber::OBSERVE);
            assert_eq!(got, plain(&bytes(&exchange["plain_response"])), "{name}");
            assert_eq!(from.as_bytes(), bytes(&group["server"]["id"]), "{name}");
        }
    }
}

/// The messages must have the same bytes, with three exceptions. A signature of ECDSA contains a random number. aiocoap
/// writes the sender's ID into a response to a pairwise request, and Tegmen leaves it out. aiocoap writes no outer
/// Observe into a notification.
#[test]
fn we_protect_as_aiocoap_does() {
    for group in all() {
        let (mut client, mut at_client) = end(&group, "client", "server");
        let (mut server, mut at_server) = end(&group, "server", "client");
        let crypto = &mut Recorder::new();
        for exchange in group["exchanges"].as_array().unwrap() {
            let name = format!("{}: {}", group["name"], exchange["name"]);
            let is_pairwise = exchange["pairwise"].as_bool().unwrap();
            let mut storage = [0; 400];
            let mut made = frame(&mut storage, &bytes(&exchange["plain_request"]));
            let mode = if is_pairwise { Mode::Pairwise(&mut at_client[0]) } else { Mode::Group };
            client.protect_request(crypto, mode, [Replies::default()], &mut made).unwrap();
            let is_deterministic = |is_signed: bool| !is_signed || curve(&group) == Curve::Ed25519;
            let compare = |ours: &[u8], theirs: &Value, is_signed: bool| {
                let theirs = bytes(theirs);
                let compared = if is_deterministic(is_signed) { theirs.len() } else { theirs.len() - 64 };
                assert_eq!((ours.len(), &ours[..compared]), (theirs.len(), &theirs[..compared]), "{name}");
            };
            compare(made.bytes(), &exchange["request"], !is_pairwise);

            let mut request = bytes(&exchange["request"]);
            let opened = server.unprotect_request(crypto, at_server.as_mut_slice(), &mut request);
            let Unprotected::Fresh(_, nonce) = opened.expect(&name) else { panic!("{name}") };
            let response = bytes(&exchange["response"]);
            let option = MessageRef::parse(&response).unwrap().option(OptionNumber::OSCORE).unwrap()[0];
            let (has_number, is_signed) = (option & 7 != 0, option & 0x20 != 0);
            let request = nonce.request();
            let mode = if is_signed { Mode::Group } else { Mode::Pairwise(&mut at_server[0]) };
            let mut storage = [0; 400];
            let mut made = frame(&mut storage, &bytes(&exchange["plain_response"]));
            let nonce = Some(nonce).filter(|_| !has_number);
            server.protect_response(crypto, mode, &request, nonce, &mut made).unwrap();
            if !is_pairwise && !name.contains("observation") {
                compare(made.bytes(), &exchange["response"], is_signed);
            }
        }
    }
}

#[test]
fn a_deterministic_request_is_that_of_aiocoap_and_so_is_the_response() {
    for group in all() {
        let (client, mut at_client) = end(&group, "client", "server");
        let (mut server, _) = end(&group, "server", "client");
        let (exchange, name) = (&group["deterministic"], group["name"].to_string());
        let crypto = &mut Recorder::new();
        let id = Id::new(&bytes(&exchange["kid"])).unwrap();
        let shared = client.deterministic_client::<Recorder>(id).unwrap();
        let mut storage = [0; 400];
        let mut made = frame(&mut storage, &bytes(&exchange["plain_request"]));
        let to = Some(Id::new(&bytes(&group["server"]["id"])).unwrap());
        let pending = client.protect_deterministic_request(crypto, &shared, to, [Replies::default()], &mut made);
        assert_eq!(made.bytes(), bytes(&exchange["request"]), "{name}");

        let mut request = bytes(&exchange["request"]);
        let opened = server.unprotect_deterministic_request(crypto, &shared, &mut request).expect(&name);
        let DeterministicRequest::Safe(message, request) = opened else { panic!("{name}") };
        assert_eq!(said(&message), plain(&bytes(&exchange["plain_request"])), "{name}");
        let mut storage = [0; 400];
        let mut made = frame(&mut storage, &bytes(&exchange["plain_response"]));
        server.protect_response(crypto, Mode::Group, &request, None, &mut made).unwrap();
        let mut response = bytes(&exchange["response"]);
        let signed = if curve(&group) == Curve::Ed25519 { response.len() } else { response.len() - 64 };
        assert_eq!((made.bytes().len(), &made.bytes()[..signed]), (response.len(), &response[..signed]), "{name}");

        let mut pending = pending.unwrap();
        let opened = client.unprotect_response(crypto, at_client.as_mut_slice(), &mut pending, &mut response);
        let (message, from) = opened.expect(&name);
        assert_eq!(said(&message), plain(&bytes(&exchange["plain_response"])), "{name}");
        assert_eq!(Some(from), to, "{name}");
    }
}
