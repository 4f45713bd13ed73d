//! Message protection of one node: OSCORE contexts, and the keys of protected payloads.
//!
//! What must survive a restart does: the ends of leases, as a mote keeps them in its flash memory.

use super::MESSAGE;
use crate::cost::{Costs, Oscore};
use std::collections::BTreeMap;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, MessageRef, MessageType, OptionNumber, Token};
use tegmen::coap_protected::{MAX_MESSAGES, Resource};
use tegmen::crypto::compact::Compact;
use tegmen::oscore::{Aead, Context, OscoreOption, Parameters, Pending, RequestBinding, RequestNonce, Unprotected};
use tegmen::secret::Secret;

/// Contexts and keys of a node. A pair of nodes is named by the one that makes readings.
pub(super) struct Objects {
    crypto: Compact,
    costs: Costs,
    contexts: BTreeMap<u16, Context>,
    resource: Option<(u16, Resource)>,
    kept: Kept,
    /// Instructions since they were asked for.
    pub(super) instructions: u64,
}

/// What is in flash memory: the ends of leases.
#[derive(Clone, Default)]
pub(super) struct Kept {
    contexts: BTreeMap<u16, u64>,
    /// The key of the protected payloads, and the end of its numbers.
    resource: (u16, u64),
}

/// A request that was opened.
pub(super) enum Opened {
    /// The request is new and may be served.
    Fresh(Vec<u8>, RequestNonce),
    /// The request may be a replay. It has to be answered with a challenge.
    Unverified(RequestBinding),
}

impl Objects {
    pub(super) fn new(seed: [u8; 32], costs: Costs, kept: Kept) -> Self {
        let crypto = Compact::new(seed);
        Self { crypto, costs, contexts: BTreeMap::new(), resource: None, kept, instructions: 0 }
    }

    /// What a restart leaves.
    pub(super) fn kept(&self) -> Kept {
        self.kept.clone()
    }

    /// The context with a node is lost from memory; what was kept of it is not.
    pub(super) fn forget(&mut self, maker: u16) {
        self.contexts.remove(&maker);
    }

    /// The context that node `maker` shares with node 0, as the one or the other. It is derived at the start of a node, before
    /// anything is asked, and not counted.
    fn context(&mut self, maker: u16, is_maker: bool) -> &mut Context {
        let kept = &mut self.kept.contexts;
        let context = self.contexts.entry(maker).or_insert_with(|| {
            let secret = [maker as u8; 16];
            let (bytes, len) = id_of(maker);
            let id = &bytes[2 - len..];
            let [sender_id, recipient_id]: [&[u8]; 2] = if is_maker { [id, &[TAKER]] } else { [&[TAKER], id] };
            let parameters = Parameters {
                master_secret: &secret,
                // The first byte of a longer ID tells its keys from those of the node with the same last byte.
                master_salt: &bytes[..len - 1],
                sender_id,
                recipient_id,
                id_context: None,
                aead: Aead::AesCcm16_64_128,
            };
            let context = match kept.get(&maker) {
                None => Context::new::<Compact>(&parameters),
                Some(kept) => Context::resume::<Compact>(&parameters, *kept),
            };
            context.expect("two short IDs")
        });
        if context.lease().left() == 0 {
            let end = context.lease().end() + LEASE;
            kept.insert(maker, end);
            context.lease_mut().extend(end);
        }
        context
    }

    /// Protects a request of this node.
    pub(super) fn protect_request(&mut self, maker: u16, frame: &mut Frame<'_>) -> Option<Pending> {
        let enciphered = enciphered(frame.bytes());
        self.instructions += Oscore::of_request(self.costs.oscore.protect_request, enciphered);
        self.context(maker, true);
        self.contexts.get_mut(&maker)?.protect_request(&mut self.crypto, frame).ok()
    }

    /// Opens a request, and says of whom it is.
    pub(super) fn unprotect_request(&mut self, datagram: &[u8]) -> Option<(u16, Opened)> {
        let maker = maker_of(datagram)?;
        let mut datagram = datagram.to_vec();
        self.context(maker, false);
        let opened = self.contexts.get_mut(&maker)?.unprotect_request(&mut self.crypto, &mut datagram).ok()?;
        let (message, opened) = match opened {
            Unprotected::Fresh(message, nonce) => (message, Opened::Fresh(bytes_of(&message), nonce)),
            Unprotected::Unverified(message, binding) => (message, Opened::Unverified(binding)),
        };
        let enciphered = enciphered(&bytes_of(&message));
        self.instructions += Oscore::of_request(self.costs.oscore.unprotect_request, enciphered);
        Some((maker, opened))
    }

    /// Protects the response to a request.
    pub(super) fn protect_response(&mut self, maker: u16, nonce: RequestNonce, frame: &mut Frame<'_>) -> Option<()> {
        let enciphered = enciphered(frame.bytes());
        self.instructions += Oscore::of_response(self.costs.oscore.protect_response, enciphered);
        let context = self.contexts.get_mut(&maker)?;
        context.protect_response(&mut self.crypto, &nonce.binding(), Some(nonce), frame).ok()
    }

    /// Writes the challenge to a request that may be a replay.
    pub(super) fn challenge(
        &mut self,
        maker: u16,
        binding: &RequestBinding,
        request: &MessageRef<'_>,
        frame: &mut Frame<'_>,
    ) -> Option<()> {
        self.instructions += Oscore::of_response(self.costs.oscore.protect_response, CHALLENGE);
        self.context(maker, false);
        let context = self.contexts.get_mut(&maker)?;
        let head = (MessageType::Acknowledgement, request.message_id());
        context.write_challenge(&mut self.crypto, binding, head, &Token::new(request.token()), frame).ok()
    }

    /// Opens a response: the message inside.
    pub(super) fn unprotect_response(&mut self, maker: u16, pending: &mut Pending, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut datagram = datagram.to_vec();
        let context = self.contexts.get(&maker)?;
        let message = context.unprotect_response(&mut self.crypto, pending, &mut datagram).ok()?;
        let message = bytes_of(&message);
        self.instructions += Oscore::of_response(self.costs.oscore.unprotect_response, enciphered(&message));
        Some(message)
    }

    /// Protects a payload alone.
    pub(super) fn seal_payload(&mut self, payload: &[u8]) -> Vec<u8> {
        let (mut key, mut end) = self.kept.resource;
        if end >= MAX_MESSAGES && self.resource.as_mut().is_none_or(|(_, known)| known.lease_mut().left() == 0) {
            // Keys are numbered, and both ends have them: the next one.
            (key, end, self.resource) = (key.wrapping_add(1), 0, None);
        }
        let (_, resource) = self.resource.get_or_insert_with(|| (key, payload_key(key, end)));
        if resource.lease_mut().left() == 0 {
            end += LEASE;
            resource.lease_mut().extend(end);
        }
        self.kept.resource = (key, end);
        self.instructions += self.costs.payload_of(payload.len());
        let mut out = [0; MESSAGE];
        resource.seal(&mut self.crypto, payload, &mut out).map(<[u8]>::to_vec).unwrap_or_default()
    }

    /// True if the payload is one that was protected.
    pub(super) fn open_payload(&mut self, payload: &[u8]) -> bool {
        let Some(key) = payload.first_chunk().map(|key| u16::from_be_bytes(*key)) else { return false };
        self.instructions += self.costs.payload_of(payload.len());
        payload_key(key, 0).open(&mut self.crypto, &mut payload.to_vec()).is_ok()
    }
}

fn payload_key(key_id: u16, kept: u64) -> Resource {
    let mut key = [0x5e; 16];
    key[..2].copy_from_slice(&key_id.to_be_bytes());
    Resource::new::<Compact>(Secret::new(key), key_id, super::RESOURCE.as_bytes(), kept)
}

/// The ID of a node in its context with node 0, behind zeros, and its length: one byte as far as that goes, then two.
fn id_of(maker: u16) -> ([u8; 2], usize) {
    (maker.to_be_bytes(), if maker <= 0xff { 1 } else { 2 })
}

fn maker_of(datagram: &[u8]) -> Option<u16> {
    let message = MessageRef::parse(datagram).ok()?;
    let option = OscoreOption::parse(message.option(OptionNumber::OSCORE)?).ok()?;
    match option.kid? {
        [one] => Some(u16::from(*one)),
        [first, second] => Some(u16::from_be_bytes([*first, *second])),
        _ => None,
    }
}

/// Bytes of a message that are enciphered: its code, options and payload.
fn enciphered(message: &[u8]) -> usize {
    let token = MessageRef::parse(message).map_or(0, |message| message.token().len());
    (message.len() + 1).saturating_sub(4 + token)
}

/// The message as one that was never protected.
fn bytes_of(message: &MessageRef<'_>) -> Vec<u8> {
    let mut storage = [0; MESSAGE + 64];
    let mut frame = Frame::new(&mut storage, 0);
    let head = (message.message_type(), message.code(), message.message_id());
    let built = Builder::new(&mut frame, head.0, head.1, head.2, message.token()).and_then(|mut builder| {
        for (number, value) in message.options().filter(|(number, _)| *number != OptionNumber::OSCORE) {
            builder.option(number, value)?;
        }
        if message.payload().is_empty() { Ok(()) } else { builder.payload(message.payload()) }
    });
    built.map(|()| frame.bytes().to_vec()).unwrap_or_default()
}

/// The ID of node 0 in every context; those of others begin with 1.
const TAKER: u8 = 0;
/// Numbers that are leased at once: one write to flash memory for so many messages.
const LEASE: u64 = 64;
/// Bytes that are enciphered of a challenge: code, and an Echo option with a number of a byte.
const CHALLENGE: usize = 4;
