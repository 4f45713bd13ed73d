//! The protection of messages at one node: its OSCORE contexts, and the keys of protected payloads.
//!
//! A node reserves message numbers in ranges. The end of a range survives a restart, because a mote stores this number
//! in its flash memory.

use super::MESSAGE;
use crate::coap_protected::{MAX_MESSAGES, Resource};
use crate::cost::{Costs, Oscore as OscoreCosts};
use std::collections::BTreeMap;
use tegmen::buf::Frame;
use tegmen::coap::{MessageRef, MessageType, OptionNumber, RequestId, Token};
use tegmen::crypto::{Compact, Crypto};
use tegmen::identity::{PeerId, Principal};
use tegmen::node::{Opened, Oscore, SendError};
use tegmen::oscore::{
    Aead, Context, OVERHEAD, OscoreOption, Parameters, Pending, ProtectError, RequestBinding, RequestNonce,
    UnprotectError, Unprotected,
};
use tegmen::secret::Secret;

/// The OSCORE contexts of a node, one for each pair. A pair consists of a node that makes readings, and the node that
/// receives these readings. Each pair has a number. If nodes make readings for one receiver, the number of a pair is
/// the number of the node that makes the readings. If several consumers use several producers, the number is computed
/// from the numbers of the consumer and of the producer.
pub(super) struct Contexts {
    /// The number of the pair of nodes whose OSCORE context protects the node's requests.
    pub(super) pair: u16,
    costs: Costs,
    contexts: BTreeMap<u16, Context>,
    /// The requests that wait for a response. Each entry has the peer, the request, the number of the pair of nodes
    /// whose context protects the request, and the data that verifies the response.
    asked: Vec<(PeerId, RequestId, u16, Pending)>,
    kept: BTreeMap<u16, u64>,
    /// Number of challenges that were sent and are not yet reported.
    pub(super) challenges: u32,
    /// Number of instructions of OSCORE operations that are not yet added to the instructions of the node.
    pub(super) instructions: u64,
}

/// The key of protected payloads, and the message numbers that the node may use under this key.
pub(super) struct Payloads {
    crypto: Compact,
    costs: Costs,
    resource: Option<(u16, Resource)>,
    kept: (u16, u64),
    /// Number of instructions for protected payloads that are not yet added to the instructions of the node.
    pub(super) instructions: u64,
}

/// The content of the flash memory: for each OSCORE context, and for the key of protected payloads, the end of the
/// range of message numbers that the node has reserved.
#[derive(Clone, Default)]
pub(super) struct Kept {
    contexts: BTreeMap<u16, u64>,
    /// The number of the key of protected payloads, and the first message number that the node has not reserved under
    /// this key. After a restart, the node continues with this message number, so it uses no message number twice.
    resource: (u16, u64),
}

impl Kept {
    /// Returns the part of a node's state that survives a restart.
    pub(super) fn of(contexts: &Contexts, payloads: &Payloads) -> Self {
        Self { contexts: contexts.kept.clone(), resource: payloads.kept }
    }
}

impl Contexts {
    pub(super) fn new(pair: u16, costs: Costs, kept: &Kept) -> Self {
        let (contexts, kept) = (BTreeMap::new(), kept.contexts.clone());
        Self { pair, costs, contexts, asked: Vec::new(), kept, challenges: 0, instructions: 0 }
    }

    /// Deletes from RAM the OSCORE context for the readings of the node `maker`. The flash memory still contains the
    /// end of the range of message numbers that the node has reserved for this context.
    pub(super) fn forget(&mut self, maker: u16) {
        self.contexts.remove(&maker);
    }

    /// Returns the OSCORE context between the node `maker`, which makes readings, and the node that receives these
    /// readings. `is_maker` is true if this node makes the readings, and false if it receives them. If the context is
    /// not in RAM, this function derives it. The cost of the derivation is not counted, because a real node derives the
    /// context before its first request.
    fn context(&mut self, maker: u16, is_maker: bool) -> &mut Context {
        let kept = &mut self.kept;
        let context = self.contexts.entry(maker).or_insert_with(|| {
            let secret = [maker as u8; 16];
            let (bytes, len) = id_of(maker);
            let id = &bytes[2 - len..];
            let [sender_id, recipient_id]: [&[u8]; 2] = if is_maker { [id, &[TAKER]] } else { [&[TAKER], id] };
            let parameters = Parameters {
                master_secret: &secret,
                // Two nodes whose IDs have the same last byte have the same secret. The first byte of a longer ID makes
                // their keys different.
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
}

impl Oscore for Contexts {
    const OVERHEAD: usize = OVERHEAD;
    type Exchange = (u16, RequestBinding);
    type Whole = [u8; 0];

    fn protect_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        request: RequestId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SendError> {
        let enciphered = enciphered(frame.bytes());
        self.instructions += OscoreCosts::of_request(self.costs.oscore.protect_request, enciphered);
        let pending = self.context(self.pair, true).protect_request(crypto, frame)?;
        self.asked.push((peer, request, self.pair, pending));
        Ok(())
    }

    fn is_for_us(&self, request: &MessageRef<'_>) -> bool {
        request.option(OptionNumber::PROXY_SCHEME).is_none()
    }

    fn is_forwarded(&self, _: PeerId) -> bool {
        true
    }

    fn unprotect_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        _: PeerId,
        datagram: &'r mut [u8],
    ) -> Result<Opened<'r, (u16, RequestBinding)>, UnprotectError> {
        let maker = maker_of(datagram).ok_or(UnprotectError::UnknownContext)?;
        let cost = OscoreCosts::of_request(self.costs.oscore.unprotect_request, ciphertext(datagram));
        let opened = match self.context(maker, false).unprotect_request(crypto, datagram)? {
            Unprotected::Fresh(message, nonce) => {
                let (principal, exchange) = (Principal(maker.into()), (maker, nonce.binding()));
                Opened::Fresh { message, principal, exchange, nonce }
            }
            Unprotected::Unverified(message, binding) => {
                let (principal, exchange) = (Principal(maker.into()), (maker, binding));
                Opened::Unverified { message: Some(message), principal, exchange }
            }
        };
        self.instructions += cost;
        Ok(opened)
    }

    fn protect_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        (maker, binding): &(u16, RequestBinding),
        nonce: Option<RequestNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let enciphered = enciphered(frame.bytes());
        self.instructions += OscoreCosts::of_response(self.costs.oscore.protect_response, enciphered);
        self.context(*maker, false).protect_response(crypto, binding, nonce, frame)
    }

    fn write_challenge<C: Crypto>(
        &mut self,
        crypto: &mut C,
        (maker, binding): &(u16, RequestBinding),
        head: (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        self.instructions += OscoreCosts::of_response(self.costs.oscore.protect_response, CHALLENGE);
        self.challenges += 1;
        self.context(*maker, false).write_challenge(crypto, binding, head, token, frame)
    }

    fn is_protected(&self, peer: PeerId, request: RequestId) -> bool {
        self.asked.iter().any(|asked| (asked.0, asked.1) == (peer, request))
    }

    fn unprotect_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        peer: PeerId,
        request: RequestId,
        datagram: &'r mut [u8],
    ) -> Result<MessageRef<'r>, UnprotectError> {
        let asked = self.asked.iter_mut().find(|asked| (asked.0, asked.1) == (peer, request));
        let (_, _, pair, pending) = asked.ok_or(UnprotectError::UnknownContext)?;
        let context = self.contexts.get(pair).ok_or(UnprotectError::UnknownContext)?;
        let cost = OscoreCosts::of_response(self.costs.oscore.unprotect_response, ciphertext(datagram));
        let message = context.unprotect_response(crypto, pending, datagram)?;
        self.instructions += cost;
        Ok(message)
    }

    fn retain(&mut self, mut is_open: impl FnMut(PeerId, RequestId) -> bool) {
        self.asked.retain(|(peer, request, ..)| is_open(*peer, *request));
    }
}

impl Payloads {
    pub(super) fn new(seed: [u8; 32], costs: Costs, kept: &Kept) -> Self {
        Self { crypto: Compact::new(seed), costs, resource: None, kept: kept.resource, instructions: 0 }
    }

    /// Protects a payload, without the message around it.
    pub(super) fn seal(&mut self, payload: &[u8]) -> Vec<u8> {
        let (mut key, mut end) = self.kept;
        if end >= MAX_MESSAGES && self.resource.as_ref().is_none_or(|(_, known)| known.left() == 0) {
            // Both nodes have all keys, which are numbered. The next key is used.
            (key, end, self.resource) = (key.wrapping_add(1), 0, None);
        }
        let (_, resource) = self.resource.get_or_insert_with(|| (key, payload_key(key, end)));
        if resource.left() == 0 {
            end += LEASE;
            resource.extend(end);
        }
        self.kept = (key, end);
        self.instructions += self.costs.payload_of(payload.len());
        let mut out = [0; MESSAGE];
        resource.seal(&mut self.crypto, payload, &mut out).map(<[u8]>::to_vec).unwrap_or_default()
    }

    /// Returns true if the payload is authentic under the key whose number it contains.
    pub(super) fn open(&mut self, payload: &[u8]) -> bool {
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

/// Returns the ID of the node `maker` in its OSCORE context, in two bytes with leading zeros. Also returns the length
/// of the ID: one byte up to 255, and two bytes above.
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

/// Returns the number of bytes that OSCORE encrypts in a message: those of its code, its inner options and its payload.
fn enciphered(message: &[u8]) -> usize {
    let token = MessageRef::parse(message).map_or(0, |message| message.token().len());
    (message.len() + 1).saturating_sub(4 + token)
}

/// Returns the number of encrypted bytes in an OSCORE message, without the tag.
fn ciphertext(datagram: &[u8]) -> usize {
    MessageRef::parse(datagram).map_or(0, |message| message.payload().len().saturating_sub(TAG))
}

/// The ID of node 0 in every context. The IDs of the other nodes are 1 and above.
const TAKER: u8 = 0;
/// Number of message numbers that a node reserves at once. The node writes to flash memory once for this number of
/// messages.
const LEASE: u64 = 64;
/// Number of encrypted bytes in a challenge: a code of one byte, and an Echo option.
const CHALLENGE: usize = 4;
/// Length of the tag of AES-CCM-16-64-128, in bytes.
const TAG: usize = 8;
