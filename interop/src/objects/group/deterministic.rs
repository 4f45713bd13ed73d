//! Deterministic requests (draft-ietf-core-cacheable-oscore-02). In most scenarios one endpoint is Tegmen, and the
//! other is aiocoap. In one scenario a Python program decrypts the messages of three Tegmen members.

use super::{
    Member, OURS, Pending, Protection, ROOM, SHARED, THEIRS, THIRD, answering, debug, id, is_read, message, receive,
    said, socket, start,
};
use crate::cell::{Check, LOOPBACK, Scene, free_port};
use crate::peers::Built;
use serde_json::{Value, json};
use tegmen::buf::Frame;
use tegmen::coap::{Code, MessageRef, MessageType};
use tegmen::oscore::group::{DeterministicClient, DeterministicRequest, GroupRequest, Replies};
use tegmen_host::hex::to_hex;
use tegmen_host::provider::HostCrypto;

fn client(member: &Member) -> Result<DeterministicClient, String> {
    member.context.deterministic_client::<HostCrypto>(id(SHARED)?).map_err(debug)
}

/// Protects a GET as the Deterministic Client. The response must come from the member `to`.
fn ask(member: &mut Member, to: u8, plain: &[u8]) -> Result<(Pending, Vec<u8>), String> {
    let (client, to, replies) = (client(member)?, Some(id(to)?), vec![Replies::default()]);
    let mut storage = vec![0; plain.len() + 2 * ROOM];
    let mut frame = Frame::new(&mut storage, ROOM);
    frame.append(plain).map_err(debug)?;
    let Member { context, crypto, .. } = member;
    let pending = context.protect_deterministic_request(crypto, &client, to, replies, &mut frame).map_err(debug)?;
    Ok((pending, frame.bytes().to_vec()))
}

/// Opens a request of the Deterministic Client, which must be a GET.
fn hear(member: &mut Member, datagram: &[u8]) -> Result<GroupRequest, String> {
    let client = client(member)?;
    let mut datagram = datagram.to_vec();
    match member.context.unprotect_deterministic_request(&mut member.crypto, &client, &mut datagram).map_err(debug)? {
        DeterministicRequest::Safe(message, request) if message.code() == Code::GET => Ok(request),
        other => Err(debug(other)),
    }
}

fn get(number: u16) -> Result<Vec<u8>, String> {
    message((MessageType::NonConfirmable, number), &number.to_be_bytes(), (Code::GET, &[]), false)
}

/// Checks requests to aiocoap that two Tegmen members protect as the Deterministic Client. One of the two members sends
/// two requests.
pub(super) fn asks(scene: &Scene, peer: &Built, protection: Protection) -> Check {
    let port = free_port()?;
    let server = start(scene, peer, protection, "server", &["127.0.0.1", &port.to_string(), "pairwise"])?;
    server.await_output("listening", 0)?;
    let socket = socket()?;
    for (at, number) in [OURS, THIRD, OURS].into_iter().enumerate() {
        let mut ours = Member::new(protection, number, true)?;
        // aiocoap does not know the third member.
        let (mut pending, datagram) = ask(&mut ours, THEIRS, &get(at as u16)?)?;
        socket.send_to(&datagram, (LOOPBACK, port)).map_err(|error| error.to_string())?;
        let (answer, _) = receive(&socket)?;
        let got = ours.learn(&mut pending, &answer).map_err(|why| format!("{why}: {}", to_hex(&answer)))?;
        if got != (Code::CONTENT, b"hello".to_vec()) {
            return Err(format!("the response is {got:?}").into());
        }
    }
    Ok(())
}

/// Checks requests to Tegmen that aiocoap protects as the Deterministic Client. Two processes of aiocoap must send the
/// same request.
pub(super) fn answers(scene: &Scene, peer: &Built, protection: Protection) -> Check {
    let socket = socket()?;
    let uri = format!("coap://{}/v", socket.local_addr().map_err(|error| error.to_string())?);
    let mut ours = Member::new(protection, OURS, true)?;
    let mut payloads = Vec::new();
    for _ in 0..2 {
        let mut asking = start(scene, peer, protection, "deterministic-client", &[&uri])?;
        let (datagram, from) = receive(&socket)?;
        let outer = MessageRef::parse(&datagram).map_err(debug)?;
        let request = hear(&mut ours, &datagram).map_err(|why| format!("{why}: {}", to_hex(&datagram)))?;
        let head = (answering(&outer), outer.message_id());
        let plain = message(head, outer.token(), (Code::CONTENT, b"hello"), false)?;
        let answer = ours.answer(None, &plain, &request, None)?;
        socket.send_to(&answer, from).map_err(|error| error.to_string())?;
        asking.await_output("2.05 hello", 0)?;
        asking.await_end()?;
        payloads.push(said(&outer));
    }
    match payloads.as_slice() {
        [one, other] if one == other => Ok(()),
        _ => Err(format!("the requests differ: {payloads:?}").into()),
    }
}

/// Checks that the Python program `reader` decrypts all messages of a session of three members. In the session each
/// member protects a request to each other member as the Deterministic Client, and receives a response.
pub(super) fn read(scene: &Scene, reader: &Built, protection: Protection) -> Check {
    let numbers = [OURS, THEIRS, THIRD];
    let (mut messages, mut expected) = (Vec::<Value>::new(), Vec::new());
    for asker in numbers {
        let mut asking = Member::new(protection, asker, true)?;
        for other in numbers.into_iter().filter(|other| *other != asker) {
            let mut answering = Member::new(protection, other, true)?;
            let (mut pending, datagram) = ask(&mut asking, other, &get(asker.into())?)?;
            let answers = messages.len();
            let shared = to_hex(&[SHARED]);
            messages.push(json!({ "datagram": to_hex(&datagram), "from": shared, "to": null, "answers": null }));
            expected.push(("pairwise", SHARED, b"v".to_vec()));
            let request = hear(&mut answering, &datagram)?;
            let text = format!("{other} to {asker}").into_bytes();
            let plain = message((MessageType::NonConfirmable, 8), b"t", (Code::CONTENT, &text), false)?;
            let answer = answering.answer(None, &plain, &request, None)?;
            let from = to_hex(&[other]);
            messages.push(json!({ "datagram": to_hex(&answer), "from": from, "to": null, "answers": answers }));
            if asking.learn(&mut pending, &answer)? != (Code::CONTENT, text.clone()) {
                return Err("another response was opened".into());
            }
            expected.push(("group", other, text));
        }
    }
    is_read(scene, reader, protection, messages, &expected)
}
