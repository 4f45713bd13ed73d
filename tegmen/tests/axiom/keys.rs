//! The [`Signatures`](tegmen::axiom::Signatures) of a member in these tests: the private key of the member, and the
//! public keys of all members.

use crate::recorder::stand_in;
use std::collections::BTreeMap;
use tegmen::axiom::{GroupNumber, Signatures};
use tegmen::crypto::{DIGEST_LEN, SignatureScheme, curves};

/// The keys of a member. In these tests, a request begins with a token of 8 bytes. In a response, the token follows 8
/// other bytes.
#[derive(Clone)]
pub struct Keys {
    pub scheme: Option<SignatureScheme>,
    pub group: [u8; 16],
    pub private: [u8; 32],
    /// The public key of each member, by its number. The number is the SenderID and is part of the address.
    pub directory: BTreeMap<u8, Vec<u8>>,
    pub requests: Vec<(GroupNumber, Vec<u8>)>,
    /// The members whose public keys were requested and missing.
    pub missing: Vec<u8>,
}

impl Keys {
    /// Creates the keys of the member `number`, with ECDSA.
    pub fn new(number: u8) -> Self {
        let key = |number| (number, curves::public_key_of(&private(number)).unwrap().to_vec());
        let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
        Self::with(Some(scheme), number, (0..8).map(key).collect())
    }

    /// Creates the keys of a member of the test world. If `is_on` is false, the group has no signatures. The signatures
    /// need almost no computation.
    pub fn cheap(is_on: bool, number: u8) -> Self {
        let key = |number| (number, private(number).to_vec());
        Self::with(is_on.then_some(SignatureScheme::ED25519), number, (0..8).map(key).collect())
    }

    fn with(scheme: Option<SignatureScheme>, number: u8, directory: BTreeMap<u8, Vec<u8>>) -> Self {
        Self { scheme, group: [7; 16], private: private(number), directory, requests: vec![], missing: vec![] }
    }

    fn key(&mut self, number: u8) -> Option<&[u8]> {
        let key = self.directory.get(&number);
        if key.is_none() {
            self.missing.push(number);
        }
        key.map(Vec::as_slice)
    }
}

fn private(number: u8) -> [u8; 32] {
    [number + 1; 32]
}

impl Signatures for Keys {
    fn scheme(&self) -> Option<SignatureScheme> {
        self.scheme
    }

    fn group(&self) -> &[u8; 16] {
        &self.group
    }

    fn sign(&mut self, digest: &[u8; DIGEST_LEN], out: &mut [u8; 72]) -> Option<usize> {
        if self.scheme == Some(SignatureScheme::ED25519) {
            let signature = stand_in(&self.private, digest);
            out[..signature.len()].copy_from_slice(&signature);
            return Some(signature.len());
        }
        curves::sign(&self.private, digest, out).ok()
    }

    fn key_of_sender(&mut self, id: u8) -> Option<&[u8]> {
        self.key(id)
    }

    fn key_of_listener(&mut self, address: &[u8; 16]) -> Option<&[u8]> {
        self.key(address[15])
    }

    fn note(&mut self, request: GroupNumber, message: &[u8]) {
        self.requests.push((request, message[..8].to_vec()));
    }

    fn asked(&self, sender: u8, response: &[u8]) -> Option<GroupNumber> {
        let token = response.get(8..16)?;
        let mut requests = self.requests.iter().rev();
        requests.find(|(request, of)| request.id == sender && of == token).map(|(request, _)| *request)
    }
}
