//! Signs and verifies the records of a membership, with the private key of the member and the public keys of the other
//! members. The signature of a response also covers the record number of the request that it answers. So [`Signing`]
//! stores the record numbers of the newest requests.

use super::groupcomm::{Cred, GroupKeys};
use crate::x509::signer::{Signer as _, SoftwareKey};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tegmen::axiom::{GroupNumber, Signatures};
use tegmen::coap::MessageRef;
use tegmen::crypto::{DIGEST_LEN, SignatureScheme};

/// Maximum number of requests that are stored so that responses to them can be signed or verified.
const REQUESTS: usize = 1024;

/// The keys with which a membership signs and verifies records; `None` in a group without signatures.
#[derive(Default)]
pub(super) struct Signing(Option<InUse>);

struct InUse {
    scheme: SignatureScheme,
    group: [u8; 16],
    key: Arc<SoftwareKey>,
    senders: HashMap<u8, Vec<u8>>,
    listeners: HashMap<[u8; 16], Vec<u8>>,
    /// The record numbers of the newest requests, with the token of each request.
    requests: VecDeque<(GroupNumber, Vec<u8>)>,
    /// True if the key of a member was looked up since the last call of [`Signing::was_asked`].
    was_asked: bool,
}

impl Signing {
    /// Returns the keys with which a member signs and verifies records. `keys` contains the public keys of the other
    /// members, and `key` is the private key of this member.
    pub(super) fn new(keys: &GroupKeys, key: &Arc<SoftwareKey>) -> Self {
        let mut made = InUse {
            scheme: key.scheme(),
            group: keys.group,
            key: Arc::clone(key),
            senders: HashMap::new(),
            listeners: HashMap::new(),
            requests: VecDeque::new(),
            was_asked: false,
        };
        made.know(keys);
        Self(Some(made))
    }

    /// Stores the public keys of all members, in place of the earlier keys.
    pub(super) fn know(&mut self, keys: &GroupKeys) {
        if let Some(in_use) = &mut self.0 {
            in_use.know(keys);
        }
    }

    /// True if the key of a member was looked up since the last call. A key is looked up only for a record whose tag is
    /// correct.
    pub(super) fn was_asked(&mut self) -> bool {
        self.0.as_mut().is_some_and(|in_use| std::mem::take(&mut in_use.was_asked))
    }
}

impl InUse {
    fn know(&mut self, keys: &GroupKeys) {
        self.senders.clear();
        self.listeners.clear();
        let public_key = self.key.public_key().to_vec();
        let own = Cred { sender_id: keys.sender_id, address: keys.own_address, public_key };
        // No other member has the SenderID or the address of this one.
        for Cred { sender_id, address, public_key } in keys.creds.iter().flatten().chain([&own]) {
            if let Some(id) = sender_id {
                self.senders.insert(*id, public_key.clone());
            }
            if *address != [0; 16] {
                self.listeners.insert(*address, public_key.clone());
            }
        }
    }
}

impl Signatures for Signing {
    fn scheme(&self) -> Option<SignatureScheme> {
        self.0.as_ref().map(|in_use| in_use.scheme)
    }

    fn group(&self) -> &[u8; 16] {
        self.0.as_ref().map_or(&[0; 16], |in_use| &in_use.group)
    }

    fn sign(&mut self, digest: &[u8; DIGEST_LEN], out: &mut [u8; 72]) -> Option<usize> {
        let signature = self.0.as_ref()?.key.sign_digest(digest).ok()?;
        out.get_mut(..signature.len())?.copy_from_slice(&signature);
        Some(signature.len())
    }

    fn key_of_sender(&mut self, id: u8) -> Option<&[u8]> {
        let in_use = self.0.as_mut()?;
        in_use.was_asked = true;
        in_use.senders.get(&id).map(Vec::as_slice)
    }

    fn key_of_listener(&mut self, address: &[u8; 16]) -> Option<&[u8]> {
        let in_use = self.0.as_mut()?;
        in_use.was_asked = true;
        in_use.listeners.get(address).map(Vec::as_slice)
    }

    fn note(&mut self, request: GroupNumber, message: &[u8]) {
        let (Some(in_use), Ok(message)) = (&mut self.0, MessageRef::parse(message)) else { return };
        if in_use.requests.len() >= REQUESTS {
            in_use.requests.pop_front();
        }
        in_use.requests.push_back((request, message.token().to_vec()));
    }

    fn asked(&self, sender: u8, response: &[u8]) -> Option<GroupNumber> {
        let message = MessageRef::parse(response).ok()?;
        let is_it = |(request, token): &&(GroupNumber, Vec<u8>)| request.id == sender && token == message.token();
        self.0.as_ref()?.requests.iter().rev().find(is_it).map(|(request, _)| *request)
    }
}
