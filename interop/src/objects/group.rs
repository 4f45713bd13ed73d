//! Group OSCORE (RFC 10021). In most scenarios, one member of a group is Tegmen, and the other member is aiocoap. A
//! Python program that shares no code with Tegmen or aiocoap opens every message of a session.
//!
//! Tegmen's member uses `tegmen::oscore::group` and has its own socket.

mod commands;
mod deterministic;

use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port};
use crate::peers::{Built, Places};
use crate::process::Process;
use serde_json::{Map, Value, json};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::{Curve, ed25519};
use tegmen::oscore::group::{
    Algorithms, GroupContext, GroupNonce, GroupParameters, GroupPending, GroupRequest, Mode, Ourselves, Recipient,
    Replies,
};
use tegmen::oscore::{Aead, Id, ReplayWindow, Unprotected};
use tegmen::secret::Secret;
use tegmen_host::hex::to_hex;
use tegmen_host::provider::HostCrypto;
use tegmen_host::provider::public::{Group as Agreement, MAX_PUBLIC_LEN};

const CRYPTOGRAPHY: &str = "50.0.2";
const AIOCOAP: &str = "0.4.17";
const GID: &[u8] = b"a floor";
const SECRET: [u8; 16] = *b"a secret for all";
const SALT: &[u8] = b"salt";
/// The number of the Group Manager. Each member has a number, which is its ID of one byte.
const MANAGER: u8 = 0;
pub(crate) const OURS: u8 = 1;
pub(crate) const THEIRS: u8 = 2;
pub(crate) const THIRD: u8 = 3;
/// The number of the Deterministic Client.
const SHARED: u8 = 9;
/// Number of bytes that a buffer leaves free before and after a message, so that the message can be protected.
const ROOM: usize = 200;

/// The algorithms of a session: the curve, the AEAD Algorithm, and the Group Encryption Algorithm.
pub(crate) type Protection = (Curve, Aead, Aead);

const CCM: Aead = Aead::AesCcm16_64_128;
pub(crate) const USUAL: [Protection; 2] = [(Curve::Ed25519, CCM, CCM), (Curve::P256, CCM, CCM)];
const UNLIKE: [Protection; 2] = [
    (Curve::Ed25519, Aead::AesCcm16_128_128, Aead::A128Gcm),
    (Curve::P256, Aead::AesCcm64_64_128, Aead::AesCcm16_128_128),
];

pub(super) fn all(places: &Places) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let aiocoap = aiocoap(places);
    let reader = places.python_peer("group_oscore_reader.py", "cryptography==50.0.2");
    let cell = |program: &Arc<Built>, role: Role, scenario: &str, protection: Protection, play: Play| {
        let (curve, aead, group) = protection;
        let (name, version) = if role == Role::Reader { ("cryptography", CRYPTOGRAPHY) } else { ("aiocoap", AIOCOAP) };
        let program = Arc::clone(program);
        let scenario = format!("Group OSCORE: {scenario}, {curve:?}, {}, {}", name_of(aead), name_of(group));
        Cell::new(name, version, role, &scenario, move |scene| {
            program.ready()?;
            play(&scene.with_new_deadline(), &program, protection)
        })
    };
    let mut cells = Vec::new();
    for protection in USUAL.into_iter().chain(UNLIKE) {
        cells.push(cell(&aiocoap, Role::Server, "GET, PUT in both modes", protection, asks));
        cells.push(cell(&aiocoap, Role::Client, "GET, PUT in both modes", protection, answers));
        cells.push(cell(&reader, Role::Reader, "every message of a session", protection, read));
    }
    for protection in USUAL.into_iter().chain(UNLIKE) {
        cells.push(cell(&aiocoap, Role::Server, "deterministic GET", protection, deterministic::asks));
        cells.push(cell(&aiocoap, Role::Client, "deterministic GET", protection, deterministic::answers));
        let row = "deterministic requests of a session";
        cells.push(cell(&reader, Role::Reader, row, protection, deterministic::read));
    }
    for protection in USUAL {
        cells.push(cell(&aiocoap, Role::Client, "an Echo asked for after our crash", protection, challenges));
        cells.push(cell(&aiocoap, Role::Client, "tegmen serve, files of new-group", protection, commands::answers));
        cells.push(cell(&aiocoap, Role::Server, "tegmen get and put, files of new-group", protection, commands::asks));
    }
    (cells, vec![aiocoap, reader])
}

/// Returns the Python program that uses aiocoap.
pub(crate) fn aiocoap(places: &Places) -> Arc<Built> {
    places.python_peer("aiocoap_group_peer.py", "aiocoap[oscore,linkheader]==0.4.17")
}

type Play = fn(&Scene, &Built, Protection) -> Check;

fn name_of(aead: Aead) -> &'static str {
    match aead {
        Aead::AesCcm16_64_128 => "AES-CCM-16-64-128",
        Aead::AesCcm16_128_128 => "AES-CCM-16-128-128",
        Aead::AesCcm64_64_128 => "AES-CCM-64-64-128",
        Aead::AesCcm64_128_128 => "AES-CCM-64-128-128",
        Aead::A128Gcm => "A128GCM",
    }
}

/// Returns the private key of a member.
fn private_key(number: u8) -> [u8; 32] {
    core::array::from_fn(|at| number.wrapping_mul(37).wrapping_add(at as u8).wrapping_add(1))
}

/// Returns the credential of a member, which is a CWT Claims Set.
fn credential(curve: Curve, number: u8) -> Result<Vec<u8>, String> {
    let private = private_key(number);
    let mut ccs = vec![0xa2, 0x02, 0x61, b'a' + number, 0x08, 0xa1, 0x01];
    if curve == Curve::Ed25519 {
        ccs.extend_from_slice(&[0xa4, 0x01, 0x01, 0x03, 0x27, 0x20, 0x06, 0x21, 0x58, 0x20]);
        ccs.extend_from_slice(&ed25519::public_key_of(&private));
    } else {
        let mut point = [0; MAX_PUBLIC_LEN];
        Agreement::Secp256r1.public_key(&Secret::new(private), &mut point).map_err(|_| "no private key")?;
        let (x, y) = point.get(1..).and_then(|point| point.split_at_checked(32)).ok_or("no point")?;
        ccs.extend_from_slice(&[0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20]);
        ccs.extend_from_slice(x);
        ccs.extend_from_slice(&[0x22, 0x58, 0x20]);
        ccs.extend_from_slice(y);
    }
    Ok(ccs)
}

fn id(number: u8) -> Result<Id, String> {
    Id::new(&[number]).ok_or_else(|| "no ID".to_owned())
}

/// Describes the group for the Python programs. `us` is the member that reads the description, and `other` is its peer.
fn told((curve, aead, group): Protection, us: u8, other: u8) -> Result<Value, String> {
    let mut members = Map::new();
    for number in [OURS, THEIRS, THIRD] {
        let keys =
            json!({ "credential": to_hex(&credential(curve, number)?), "private": to_hex(&private_key(number)) });
        members.insert(to_hex(&[number]), keys);
    }
    members.insert(to_hex(&[SHARED]), json!({}));
    Ok(json!({
        "group": {
            "curve": if curve == Curve::Ed25519 { "Ed25519" } else { "P-256" },
            "aead": name_of(aead), "group_encryption": name_of(group), "gid": to_hex(GID), "master_secret": to_hex(&SECRET),
            "master_salt": to_hex(SALT), "group_manager_credential": to_hex(&credential(curve, MANAGER)?),
        },
        "members": members, "us": to_hex(&[us]), "other": to_hex(&[other]), "deterministic": to_hex(&[SHARED]),
    }))
}

/// A member that runs Tegmen's implementation of Group OSCORE.
struct Member {
    context: GroupContext<Vec<u8>, 512>,
    others: Vec<Recipient<Vec<u8>>>,
    crypto: HostCrypto,
}

type Pending = GroupPending<Vec<Replies>>;
/// Code and payload of a message.
type Said = (Code, Vec<u8>);

impl Member {
    /// Makes a member. `knows_windows` is false if the member has lost its replay windows, one for each other member.
    fn new((curve, aead, group): Protection, number: u8, knows_windows: bool) -> Result<Self, String> {
        let mut crypto = HostCrypto::from_os().map_err(|error| error.to_string())?;
        let parameters = GroupParameters {
            master_secret: &SECRET,
            master_salt: SALT,
            gid: GID,
            algorithms: Algorithms { aead: Some(aead), group_encryption: Some(group), ..Algorithms::both(curve) },
        };
        let ourselves = Ourselves {
            id: id(number)?,
            private_key: Secret::new(private_key(number)),
            credential: credential(curve, number)?,
            kept: 0,
        };
        let manager = credential(curve, MANAGER)?;
        let mut context = GroupContext::new::<HostCrypto>(&parameters, ourselves, manager).map_err(debug)?;
        context.lease_mut().extend(1000);
        let mut others = Vec::new();
        for other in [OURS, THEIRS, THIRD].into_iter().filter(|other| *other != number) {
            let window = knows_windows.then(ReplayWindow::default);
            let made = context.recipient(&mut crypto, id(other)?, credential(curve, other)?, window);
            others.push(made.map_err(debug)?);
        }
        Ok(Self { context, others, crypto })
    }

    /// Returns the group mode if `to` is `None`, and otherwise the pairwise mode with the member `to`.
    fn mode(others: &mut [Recipient<Vec<u8>>], to: Option<u8>) -> Result<Mode<'_, Vec<u8>>, String> {
        let Some(number) = to else { return Ok(Mode::Group) };
        let other = others.iter_mut().find(|other| other.id().as_bytes() == [number]);
        other.map(Mode::Pairwise).ok_or_else(|| "no such member".to_owned())
    }

    fn ask(&mut self, to: Option<u8>, plain: &[u8]) -> Result<(Pending, Vec<u8>), String> {
        let mut storage = vec![0; plain.len() + 2 * ROOM];
        let mut frame = Frame::new(&mut storage, ROOM);
        frame.append(plain).map_err(debug)?;
        let mode = Self::mode(&mut self.others, to)?;
        let replies = vec![Replies::default(); 3];
        let pending = self.context.protect_request(&mut self.crypto, mode, replies, &mut frame).map_err(debug)?;
        Ok((pending, frame.bytes().to_vec()))
    }

    fn answer(
        &mut self,
        to: Option<u8>,
        plain: &[u8],
        request: &GroupRequest,
        nonce: Option<GroupNonce>,
    ) -> Result<Vec<u8>, String> {
        let mut storage = vec![0; plain.len() + 2 * ROOM];
        let mut frame = Frame::new(&mut storage, ROOM);
        frame.append(plain).map_err(debug)?;
        let mode = Self::mode(&mut self.others, to)?;
        let done = self.context.protect_response(&mut self.crypto, mode, request, nonce, &mut frame);
        done.map_err(debug)?;
        Ok(frame.bytes().to_vec())
    }

    /// Decrypts a request. Returns three values: its code and its payload, the identity of the request, to which a
    /// response is bound, and the right to answer once under the nonce of the request. The last value is `None` if the
    /// request may be a replay.
    fn hear(&mut self, datagram: &[u8]) -> Result<(Said, GroupRequest, Option<GroupNonce>), String> {
        let mut datagram = datagram.to_vec();
        let others = self.others.as_mut_slice();
        match self.context.unprotect_request(&mut self.crypto, others, &mut datagram).map_err(debug)? {
            Unprotected::Fresh(message, nonce) => Ok((said(&message), nonce.request(), Some(nonce))),
            Unprotected::Unverified(message, request) => Ok((said(&message), request, None)),
        }
    }

    fn learn(&mut self, pending: &mut Pending, datagram: &[u8]) -> Result<Said, String> {
        let mut datagram = datagram.to_vec();
        let others = self.others.as_mut_slice();
        let opened = self.context.unprotect_response(&mut self.crypto, others, pending, &mut datagram);
        opened.map(|(message, _)| said(&message)).map_err(debug)
    }

    fn challenge(&mut self, number: u8, request: &GroupRequest, outer: &MessageRef<'_>) -> Result<Vec<u8>, String> {
        let mut storage = [0; 2 * ROOM];
        let mut frame = Frame::new(&mut storage, ROOM);
        let head = (answering(outer), outer.message_id());
        let Self { context, others, crypto } = self;
        let other = others.iter_mut().find(|other| other.id().as_bytes() == [number]).ok_or("no such member")?;
        context.write_challenge(crypto, other, request, head, &Token::new(outer.token()), &mut frame).map_err(debug)?;
        Ok(frame.bytes().to_vec())
    }
}

fn debug(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

fn said(message: &MessageRef<'_>) -> Said {
    (message.code(), message.payload().to_vec())
}

/// Returns the type of a response: an acknowledgement for a confirmable request, or otherwise a non-confirmable
/// message.
fn answering(outer: &MessageRef<'_>) -> MessageType {
    if outer.message_type() == MessageType::Confirmable {
        MessageType::Acknowledgement
    } else {
        MessageType::NonConfirmable
    }
}

fn message(
    (message_type, message_id): (MessageType, u16),
    token: &[u8],
    (code, payload): (Code, &[u8]),
    observe: bool,
) -> Result<Vec<u8>, String> {
    let mut storage = vec![0; payload.len() + ROOM];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, message_type, code, message_id, token).map_err(debug)?;
    if observe {
        builder.option(OptionNumber::OBSERVE, &[]).map_err(debug)?;
    }
    if code.is_request() {
        builder.option(OptionNumber::URI_PATH, b"v").map_err(debug)?;
    }
    builder.payload(payload).map_err(debug)?;
    Ok(frame.bytes().to_vec())
}

/// Starts aiocoap as a member of the group whose other member is Tegmen.
fn start(scene: &Scene, peer: &Built, protection: Protection, role: &str, words: &[&str]) -> Result<Process, String> {
    start_as((THEIRS, OURS), scene, peer, protection, role, words)
}

/// Starts aiocoap as the member `us`, which knows the member `other`.
pub(crate) fn start_as(
    (us, other): (u8, u8),
    scene: &Scene,
    peer: &Built,
    protection: Protection,
    role: &str,
    words: &[&str],
) -> Result<Process, String> {
    let group = scene.file(&format!("group-{us}.json"), told(protection, us, other)?.to_string())?;
    let mut command = peer.command()?;
    command.arg(role).arg(group).args(words);
    scene.start_command(command)
}

fn socket() -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind((LOOPBACK, free_port()?)).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(Duration::from_secs(10))).map_err(|error| error.to_string())?;
    Ok(socket)
}

fn receive(socket: &UdpSocket) -> Result<(Vec<u8>, SocketAddr), String> {
    let mut datagram = [0; 2048];
    let (len, from) = socket.recv_from(&mut datagram).map_err(|error| format!("no datagram: {error}"))?;
    Ok((datagram.get(..len).unwrap_or(&[]).to_vec(), from))
}

/// Checks requests of Tegmen to aiocoap in the group mode and in the pairwise mode of Group OSCORE. aiocoap answers
/// some requests in the group mode and others in the pairwise mode.
fn asks(scene: &Scene, peer: &Built, protection: Protection) -> Check {
    for answers in ["pairwise", "group"] {
        let port = free_port()?;
        let server = start(scene, peer, protection, "server", &["127.0.0.1", &port.to_string(), answers])?;
        server.await_output("listening", 0)?;
        let socket = socket()?;
        let mut ours = Member::new(protection, OURS, true)?;
        let mut value = b"hello".to_vec();
        for (number, to) in [None, Some(THEIRS), None].into_iter().enumerate() {
            let new = format!("new {number}").into_bytes();
            let id = number as u16 * 2;
            for (id, code, payload, expected) in [
                (id, Code::GET, &[][..], (Code::CONTENT, value.clone())),
                (id + 1, Code::PUT, &new, (Code::CHANGED, Vec::new())),
            ] {
                let plain = message((MessageType::NonConfirmable, id), &[number as u8], (code, payload), false)?;
                let (mut pending, datagram) = ours.ask(to, &plain)?;
                socket.send_to(&datagram, (LOOPBACK, port)).map_err(|error| error.to_string())?;
                let (answer, _) = receive(&socket)?;
                let option =
                    MessageRef::parse(&answer).map_err(debug)?.option(OptionNumber::OSCORE).unwrap_or(&[]).to_vec();
                let is_signed = option.first().is_some_and(|flags| flags & 0x20 != 0);
                let got = ours.learn(&mut pending, &answer).map_err(|why| format!("{why}: {}", to_hex(&answer)))?;
                if got != expected || is_signed != (answers == "group") {
                    return Err(format!("{got:?} instead of {expected:?}, signed {is_signed}").into());
                }
            }
            value = new;
        }
    }
    Ok(())
}

/// Answers the next request. Returns the code of the request.
fn serve(socket: &UdpSocket, ours: &mut Member, to: Option<u8>, value: &mut Vec<u8>) -> Result<Code, String> {
    let (datagram, from) = receive(socket)?;
    let outer = MessageRef::parse(&datagram).map_err(debug)?;
    let ((code, payload), request, nonce) =
        ours.hear(&datagram).map_err(|why| format!("{why}: {}", to_hex(&datagram)))?;
    let answer = match (code, nonce) {
        (_, None) => ours.challenge(THEIRS, &request, &outer)?,
        (code, nonce) => {
            let reply = if code == Code::GET { (Code::CONTENT, value.as_slice()) } else { (Code::CHANGED, &[][..]) };
            let plain = message((answering(&outer), outer.message_id()), outer.token(), reply, false)?;
            if code == Code::PUT {
                *value = payload;
            }
            ours.answer(to, &plain, &request, nonce)?
        }
    };
    socket.send_to(&answer, from).map_err(|error| error.to_string())?;
    Ok(code)
}

/// Checks requests of aiocoap to Tegmen in the group mode and in the pairwise mode of Group OSCORE. Tegmen answers
/// requests of each mode in the group mode and in the pairwise mode.
fn answers(scene: &Scene, peer: &Built, protection: Protection) -> Check {
    let socket = socket()?;
    let uri = format!("coap://{}/v", socket.local_addr().map_err(|error| error.to_string())?);
    let mut ours = Member::new(protection, OURS, true)?;
    let mut value = b"hello".to_vec();
    for (mode, to) in [("group", None), ("group", Some(THEIRS)), ("pairwise", Some(THEIRS)), ("pairwise", None)] {
        for (words, code, expected) in
            [(vec!["get", &uri], Code::GET, "2.05 hello"), (vec!["put", &uri, "hello"], Code::PUT, "2.04 ")]
        {
            let mut client = start(scene, peer, protection, "client", &[&[mode], words.as_slice()].concat())?;
            if serve(&socket, &mut ours, to, &mut value)? != code {
                return Err("it asked for something else".into());
            }
            client.await_output(expected, 0)?;
            client.await_end()?;
        }
    }
    Ok(())
}

/// Checks a challenge: a Tegmen member that has lost its replay windows answers a request with an Echo value, and
/// aiocoap repeats this value.
fn challenges(scene: &Scene, peer: &Built, protection: Protection) -> Check {
    let socket = socket()?;
    let uri = format!("coap://{}/v", socket.local_addr().map_err(|error| error.to_string())?);
    let mut ours = Member::new(protection, OURS, false)?;
    let mut value = b"hello".to_vec();
    let mut client = start(scene, peer, protection, "client", &["pairwise", "get", &uri])?;
    for _ in 0..2 {
        serve(&socket, &mut ours, Some(THEIRS), &mut value)?;
    }
    client.await_output("2.05 hello", 0)?;
    client.await_end()?;
    Ok(())
}

/// Checks a session of three members. Each member sends a request to the group and to each other member, and each
/// receiver answers with several responses, in the group mode and in the pairwise mode of Group OSCORE.
fn read(scene: &Scene, reader: &Built, protection: Protection) -> Check {
    let numbers = [OURS, THEIRS, THIRD];
    let mut members = Vec::new();
    for number in numbers {
        members.push(Member::new(protection, number, true)?);
    }
    let (mut messages, mut expected) = (Vec::new(), Vec::new());
    let mut note = |datagram: &[u8], from: u8, to: Option<u8>, answers: Option<usize>, plain: &[u8]| {
        messages.push(json!({
            "datagram": to_hex(datagram), "from": to_hex(&[from]), "to": to.map(|to| to_hex(&[to])), "answers": answers,
        }));
        expected.push((if to.is_none() { "group" } else { "pairwise" }, from, plain.to_vec()));
        messages.len() - 1
    };
    for (asking, asker) in numbers.into_iter().enumerate() {
        for to in [None].into_iter().chain(numbers.map(Some)).filter(|to| *to != Some(asker)) {
            let asked = format!("of {asker} to {to:?}");
            let plain = message((MessageType::NonConfirmable, 7), b"t", (Code::FETCH, asked.as_bytes()), true)?;
            let (mut pending, datagram) = members.get_mut(asking).ok_or("no member")?.ask(to, &plain)?;
            let request = note(&datagram, asker, to, None, asked.as_bytes());
            for (at, number) in numbers.into_iter().enumerate().filter(|(_, n)| to.map_or(*n != asker, |to| to == *n)) {
                let member = members.get_mut(at).ok_or("no member")?;
                let ((_, payload), of, nonce) = member.hear(&datagram)?;
                if payload != asked.as_bytes() || nonce.is_none() {
                    return Err("another request was opened".into());
                }
                let mut nonce = nonce;
                for back in [None, Some(asker), None] {
                    let text = format!("{number} to {back:?}");
                    let reply = (Code::CONTENT, text.as_bytes());
                    let plain = message((MessageType::NonConfirmable, 8), b"t", reply, true)?;
                    let member = members.get_mut(at).ok_or("no member")?;
                    let answer = member.answer(back, &plain, &of, nonce.take())?;
                    note(&answer, number, back, Some(request), text.as_bytes());
                    let got = members.get_mut(asking).ok_or("no member")?.learn(&mut pending, &answer)?;
                    if got != (Code::CONTENT, text.into_bytes()) {
                        return Err("another response was opened".into());
                    }
                }
            }
        }
    }
    is_read(scene, reader, protection, messages, &expected)
}

/// The mode, the sender and the payload of a message.
type Expected = (&'static str, u8, Vec<u8>);

/// Checks that the Python program `reader` decrypts all `messages`, and that it prints the mode, the sender and the
/// payload in `expected` for each message.
fn is_read(
    scene: &Scene,
    reader: &Built,
    protection: Protection,
    messages: Vec<Value>,
    expected: &[Expected],
) -> Check {
    let mut session = told(protection, THEIRS, OURS)?;
    if let Value::Object(session) = &mut session {
        session.insert("messages".to_owned(), Value::Array(messages));
    }
    let session = scene.file("session.json", session.to_string())?;
    let output = reader.command()?.arg(session).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str::<Value>).collect();
    let lines = lines.map_err(|error| format!("{error}: {text}"))?;
    let is_so = |(line, (mode, from, payload)): (&Value, &Expected)| {
        let plaintext = line["plaintext"].as_str().unwrap_or_default();
        line["mode"] == *mode && line["from"] == to_hex(&[*from]) && plaintext.ends_with(&to_hex(payload))
    };
    if lines.len() != expected.len() || !lines.iter().zip(expected).all(is_so) || !output.status.success() {
        return Err(format!("{} messages: {text}{}", expected.len(), String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(())
}
