//! Peers by the proof of their identity. A name alone is not enough, because a pre-shared key, a certificate and an
//! OSCORE context may have the same name.

use crate::digest::Digest;
use std::collections::HashMap;
use tegmen::dtls::CertificateType;
use tegmen::identity::Principal;

/// The kind of proof of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Proof {
    /// A pre-shared key of the credentials file: a digest of the key.
    Psk(Digest),
    /// A pre-shared key of a [`KeyStore`](super::KeyStore).
    Stored,
    /// An OSCORE context: its number, so that two contexts of one name are two principals.
    Context(u32),
    /// A certificate, by its SHA-256, or a raw public key, by the SHA-256 of its SubjectPublicKeyInfo.
    Certified(u8, Digest),
    /// A session that a delegation server opened in the name of a device: the numbers of the device and of the session.
    Delegated(u32, u32),
}

impl Proof {
    pub(super) const fn certified(kind: CertificateType, digest: Digest) -> Self {
        Self::Certified(kind.0, digest)
    }
}

/// A peer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Who {
    pub(super) proof: Proof,
    pub(super) name: String,
}

/// Peers with a number that stays the same while the process lives, whatever the file says later.
#[derive(Default)]
pub(super) struct Principals {
    numbers: HashMap<Who, u32>,
    all: Vec<Who>,
}

impl Principals {
    /// The number of a peer, which gets one if it has none.
    pub(super) fn number(&mut self, proof: Proof, name: &str) -> Principal {
        let who = Who { proof, name: name.to_owned() };
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(who.clone()).or_insert(next);
        if number == next {
            self.all.push(who);
        }
        Principal(number)
    }

    /// The number of an OSCORE context, another one each time.
    pub(super) fn context(&mut self, name: &str) -> Principal {
        self.number(Proof::Context(self.all.len() as u32), name)
    }

    /// The number of a peer that has one.
    pub(super) fn find(&self, proof: Proof, name: &str) -> Option<Principal> {
        self.numbers.get(&Who { proof, name: name.to_owned() }).copied().map(Principal)
    }

    pub(super) fn get(&self, principal: Principal) -> Option<&Who> {
        self.all.get(principal.0 as usize)
    }
}
