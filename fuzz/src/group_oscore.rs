//! Executes scripts of events for three members of a group with Group OSCORE.

use crate::Input;
use std::collections::HashSet;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::{Curve, ed25519};
use tegmen::oscore::group::{
    Algorithms, DeterministicClient, DeterministicRequest, GroupContext, GroupNonce, GroupParameters, GroupPending,
    GroupRequest, Mode, Ourselves, Recipient, Replies, key_of_ccs,
};
use tegmen::oscore::{Id, OscoreOption, ReplayWindow, Unprotected};
use tegmen::secret::Secret;
use tegmen_host::provider::HostCrypto;

const MEMBERS: usize = 3;
const MANAGER: usize = MEMBERS;
const SHARED: usize = MEMBERS + 1;
/// If this bit of a command is set, the member sends its request as the Deterministic Client.
const DETERMINISTIC: u8 = 8;
const PARAMETERS: GroupParameters<'static> = GroupParameters {
    master_secret: &[7; 16],
    master_salt: b"salt",
    gid: b"g",
    algorithms: Algorithms::both(Curve::Ed25519),
};

type Context = GroupContext<Vec<u8>, 256>;

fn id(number: usize) -> Id {
    Id::new(&[number as u8]).expect("it is short")
}

fn private_key(number: usize) -> [u8; 32] {
    [number as u8 + 1; 32]
}

fn credential(number: usize) -> Vec<u8> {
    let mut ccs = vec![0xa1, 0x08, 0xa1, 0x01, 0xa3, 0x01, 0x01, 0x20, 0x06, 0x21, 0x58, 0x20];
    ccs.extend_from_slice(&ed25519::public_key_of(&private_key(number)));
    ccs
}

struct Member {
    context: Context,
    others: Vec<Recipient<Vec<u8>>>,
    /// The requests of this member that wait for responses.
    pending: Vec<GroupPending<[Replies; MEMBERS]>>,
}

impl Member {
    /// Makes a member. `window` is the replay window of each other member, or `None` if the member has lost the
    /// windows.
    fn new(crypto: &mut HostCrypto, number: usize, kept: u64, window: Option<ReplayWindow>) -> Self {
        let ourselves = Ourselves {
            id: id(number),
            private_key: Secret::new(private_key(number)),
            credential: credential(number),
            kept,
        };
        let mut context = Context::new::<HostCrypto>(&PARAMETERS, ourselves, credential(MANAGER)).expect("it is valid");
        context.lease_mut().extend(kept + 50);
        let others = (0..MEMBERS)
            .filter(|other| *other != number)
            .map(|other| context.recipient(crypto, id(other), credential(other), window.clone()).expect("it is valid"));
        Self { others: others.collect(), context, pending: Vec::new() }
    }

    fn shared(&self) -> DeterministicClient {
        self.context.deterministic_client::<HostCrypto>(id(SHARED)).expect("the group has both modes")
    }

    fn mode(others: &mut [Recipient<Vec<u8>>], which: u8) -> Mode<'_, Vec<u8>> {
        match which & 3 {
            at @ 0..2 => others.get_mut(usize::from(at)).map_or(Mode::Group, Mode::Pairwise),
            _ => Mode::Group,
        }
    }
}

fn frame<'s>(storage: &'s mut [u8], code: Code, input: &mut Input<'_>, number: u32) -> Option<Frame<'s>> {
    let mut frame = Frame::new(storage, 200);
    let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, code, 1, b"t").ok()?;
    let mut before = 0;
    while before < 250 && input.byte() & 1 == 1 {
        before += u16::from(input.byte() % 60);
        builder.option(OptionNumber(before), input.bytes(9)).ok()?;
    }
    let number = number.to_be_bytes();
    builder.payload(&[&number, input.bytes(20)].concat()).ok()?;
    // A message that is protected is not protected again.
    MessageRef::parse(frame.bytes()).ok().filter(|message| message.option(OptionNumber::OSCORE).is_none())?;
    Some(frame)
}

/// Reads the bytes as a script: requests in both modes with any options, responses, restarts that lose the replay
/// windows, replays, damaged messages, and forgeries. A member must deliver only requests that were sent, and no
/// request twice.
pub fn script(data: &[u8]) {
    let _ = key_of_ccs(data, &PARAMETERS.algorithms);
    let _ = OscoreOption::parse_in_group(data);
    let mut input = Input::new(data);
    let mut crypto = HostCrypto::new([1; 32], 64);
    let mut members: Vec<_> =
        (0..MEMBERS).map(|number| Member::new(&mut crypto, number, 0, Some(ReplayWindow::default()))).collect();
    let mut sent: Vec<Vec<u8>> = Vec::new();
    let (mut delivered, mut number) = (HashSet::new(), 0u32);
    while !input.is_empty() && number < 40 {
        let command = input.byte();
        let which = usize::from(command >> 4) % MEMBERS;
        match command & 7 {
            0 | 1 if command & DETERMINISTIC != 0 => {
                number += 1;
                let mut storage = [0; 1000];
                let Some(mut frame) = frame(&mut storage, Code::FETCH, &mut input, number) else { continue };
                let shared = members[which].shared();
                let Member { context, pending, .. } = &mut members[which];
                let replies = [Replies::default(); MEMBERS];
                let made = context.protect_deterministic_request(&mut crypto, &shared, None, replies, &mut frame);
                if let Ok(made) = made {
                    pending.push(made);
                    sent.push(frame.bytes().to_vec());
                }
            }
            0 | 1 => {
                number += 1;
                let (mode, mut storage) = (input.byte(), [0; 1000]);
                let Some(mut frame) = frame(&mut storage, Code::PUT, &mut input, number) else { continue };
                let Member { context, others, pending } = &mut members[which];
                let mode = Member::mode(others, mode);
                let made = context.protect_request(&mut crypto, mode, [Replies::default(); MEMBERS], &mut frame);
                if let Ok(made) = made {
                    pending.push(made);
                    sent.push(frame.bytes().to_vec());
                }
            }
            2..=4 => {
                let at = usize::from(input.byte());
                let Some(mut datagram) = sent.get(at % sent.len().max(1)).cloned() else { continue };
                if command & 7 == 4 {
                    let (at, bit) = (usize::from(input.byte()) % datagram.len(), input.byte() & 7);
                    datagram[at] ^= 1 << bit;
                }
                learn(&mut members[which], &mut crypto, &mut input, &datagram);
                if let Some(answer) = hear(&mut members, which, &mut crypto, &mut input, &mut datagram, &mut delivered)
                {
                    sent.push(answer);
                }
            }
            5 => {
                let kept = members[which].context.lease().end();
                members[which] = Member::new(&mut crypto, which, kept, None);
            }
            6 => {
                let mut anything = input.bytes(120).to_vec();
                learn(&mut members[which], &mut crypto, &mut input, &anything);
                let _ = hear(&mut members, which, &mut crypto, &mut input, &mut anything, &mut delivered);
            }
            _ => {
                let mut storage = [0; 400];
                let mut frame = Frame::new(&mut storage, 0);
                let (option, payload) = (input.bytes(12), input.bytes(120));
                let builder = Builder::new(&mut frame, MessageType::NonConfirmable, Code::POST, 1, b"t");
                let built = builder.and_then(|mut builder| {
                    builder.option(OptionNumber::OSCORE, option)?;
                    builder.payload(payload)
                });
                if built.is_ok() {
                    let mut forged = frame.bytes().to_vec();
                    learn(&mut members[which], &mut crypto, &mut input, &forged);
                    let heard = hear(&mut members, which, &mut crypto, &mut input, &mut forged, &mut delivered);
                    assert!(heard.is_none(), "a tag was guessed");
                }
            }
        }
    }
}

/// Opens a datagram as the response to one of the requests of the member. No response must be accepted twice.
fn learn(member: &mut Member, crypto: &mut HostCrypto, input: &mut Input<'_>, datagram: &[u8]) {
    let Member { context, others, pending } = member;
    let index = usize::from(input.byte()) % pending.len().max(1);
    let Some(pending) = pending.get_mut(index) else { return };
    let others = others.as_mut_slice();
    let mut received = datagram.to_vec();
    if context.unprotect_response(crypto, others, pending, &mut received).is_ok() {
        let mut again = datagram.to_vec();
        let taken = context.unprotect_response(crypto, others, pending, &mut again).is_ok();
        assert!(!taken, "a response was taken twice");
    }
}

/// Opens a datagram as a request. Returns the response.
fn hear(
    members: &mut [Member],
    which: usize,
    crypto: &mut HostCrypto,
    input: &mut Input<'_>,
    datagram: &mut [u8],
    delivered: &mut HashSet<(usize, Vec<u8>)>,
) -> Option<Vec<u8>> {
    let shared = members.get(which)?.shared();
    if MessageRef::parse(datagram).is_ok_and(|message| shared.sent(&message)) {
        return hear_shared(members.get_mut(which)?, &shared, crypto, input, datagram);
    }
    let Member { context, others, .. } = members.get_mut(which)?;
    let (request, nonce): (GroupRequest, Option<GroupNonce>) =
        match context.unprotect_request(crypto, others.as_mut_slice(), datagram).ok()? {
            Unprotected::Fresh(message, nonce) => {
                let number = message.payload().get(..4).expect("each request has a number").to_vec();
                assert!(delivered.insert((which, number)), "a request was delivered twice");
                (nonce.request(), Some(nonce))
            }
            Unprotected::Unverified(_, request) => (request, None),
        };
    let (mode, mut storage) = (input.byte(), [0; 1000]);
    if nonce.is_none() {
        let mut frame = Frame::new(&mut storage, 200);
        let client = others.iter_mut().find(|other| other.id() == request.client())?;
        let head = (MessageType::NonConfirmable, 2);
        context.write_challenge(crypto, client, &request, head, &Token::new(b"t"), &mut frame).ok()?;
        return Some(frame.bytes().to_vec());
    }
    let mut frame = frame(&mut storage, Code::CHANGED, input, 0)?;
    let mode = Member::mode(others, mode);
    context.protect_response(crypto, mode, &request, nonce, &mut frame).ok()?;
    Some(frame.bytes().to_vec())
}

/// Decrypts a datagram as a request of the Deterministic Client. Returns the response. Unlike other requests, such a
/// request may be delivered several times.
fn hear_shared(
    member: &mut Member,
    shared: &DeterministicClient,
    crypto: &mut HostCrypto,
    input: &mut Input<'_>,
    datagram: &mut [u8],
) -> Option<Vec<u8>> {
    let Member { context, .. } = member;
    let opened = context.unprotect_deterministic_request(crypto, shared, datagram).ok()?;
    let DeterministicRequest::Safe(message, request) = opened else { panic!("nobody sends another method") };
    assert!(message.code() == Code::FETCH && message.payload().len() >= 4, "nobody sent this request");
    let mut storage = [0; 1000];
    let mut frame = frame(&mut storage, Code::CONTENT, input, 0)?;
    context.protect_response(crypto, Mode::Group, &request, None, &mut frame).ok()?;
    let outer = MessageRef::parse(frame.bytes()).expect("a protected message is one");
    assert!(outer.code() == Code::CONTENT && outer.option(OptionNumber::OSCORE).is_some());
    Some(frame.bytes().to_vec())
}
