//! Tests responses of a server that violates the rules of deterministic requests.

use super::*;
use crate::UnprotectError;
use crate::id::Id;
use crate::protect::Plain;
use std::vec::Vec;
use tegmen_base::buf::Frame;
use tegmen_base::crypto::{Curve, RustCrypto, ed25519};
use tegmen_base::replay::ReplayWindow;
use tegmen_base::secret::Secret;
use tegmen_coap::{Builder, Code, MessageType, OptionNumber};

type Context = GroupContext<Vec<u8>, 256>;

fn id(number: u8) -> Id {
    Id::new(&[number]).unwrap()
}

fn credential(number: u8) -> Vec<u8> {
    let head = [0xa1, 0x08, 0xa1, 0x01, 0xa3, 0x01, 0x01, 0x20, 0x06, 0x21, 0x58, 0x20];
    [&head[..], &ed25519::public_key_of(&[number; 32])].concat()
}

fn member(number: u8, other: u8) -> (Context, Recipient<Vec<u8>>) {
    let algorithms = Algorithms::both(Curve::Ed25519);
    let parameters = GroupParameters { master_secret: &[7; 16], master_salt: b"", gid: b"g", algorithms };
    let private_key = Secret::new([number; 32]);
    let ourselves = Ourselves { id: id(number), private_key, credential: credential(number), kept: 0 };
    let mut context = Context::new::<RustCrypto>(&parameters, ourselves, credential(9)).unwrap();
    context.lease_mut().extend(10);
    let window = Some(ReplayWindow::default());
    let other = context.recipient(&mut RustCrypto::new([1; 32]), id(other), credential(other), window).unwrap();
    (context, other)
}

fn frame(storage: &mut [u8], code: Code) -> Frame<'_> {
    let mut frame = Frame::new(storage, 100);
    let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, code, 1, b"t").unwrap();
    builder.option(OptionNumber::CONTENT_FORMAT, b"").unwrap();
    frame
}

/// The draft (draft-ietf-core-cacheable-oscore-02) requires that the response is signed and has a Partial IV (section
/// 3.4.4). A response that violates this rule must be refused. Such a response would not be insecure: the keys of the
/// pairwise mode also prove which member answers, and the nonce of the request is new to the server.
#[test]
fn a_response_to_a_deterministic_request_is_signed_and_has_a_number() {
    let crypto = &mut RustCrypto::new([1; 32]);
    let ((client, server_at_client), (mut server, mut client_at_server)) = (member(1, 2), member(2, 1));
    let shared = client.deterministic_client::<RustCrypto>(id(3)).unwrap();
    let mut storage = [0; 300];
    let mut asked = frame(&mut storage, Code::GET);
    let replies = [Replies::default()];
    let mut pending = client.protect_deterministic_request(crypto, &shared, Some(id(2)), replies, &mut asked).unwrap();
    let opened = server.unprotect_deterministic_request(crypto, &shared, asked.bytes_mut()).unwrap();
    let DeterministicRequest::Safe(_, request) = opened else { panic!("it is a GET") };
    let mut others = [server_at_client];
    for (is_signed, has_number) in [(false, true), (true, false), (false, false), (true, true)] {
        let mut storage = [0; 300];
        let mut answer = frame(&mut storage, Code::CONTENT);
        let own = has_number.then(|| server.take_number().unwrap());
        let mut mode = if is_signed { Mode::Group } else { Mode::Pairwise(&mut client_at_server) };
        let plain = Plain::read(&answer, false).unwrap();
        server.seal(crypto, &plain, &mut mode, own.as_ref(), &request, &mut answer).unwrap();
        let opened = client.unprotect_response(crypto, others.as_mut_slice(), &mut pending, answer.bytes_mut());
        let expected = if is_signed && has_number { Ok(id(2)) } else { Err(UnprotectError::BadOption) };
        assert_eq!(opened.map(|(_, from)| from), expected, "signed {is_signed}, with a number {has_number}");
    }
}
