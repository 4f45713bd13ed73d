//! Numbers that identify peers by their proof of identity. A name alone is not enough, because a pre-shared key, a
//! certificate and an OSCORE context may have the same name.
//!
//! The number of a pre-shared key or of an OSCORE context does not depend on sessions. The configuration of the
//! operator limits the count of these numbers. A peer that proves itself with a certificate or a raw public key has its
//! number from its handshake to the end of its last session. This is also true for a peer whose session a delegation
//! server opened in the name of a device.

use super::Shared;
use crate::digest::Digest;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};
use tegmen::dtls::CertificateType;
use tegmen::identity::Principal;

/// Time after which a handshake that led to no session counts as failed.
const HANDSHAKE: Duration = Duration::from_secs(300);

/// The kind of proof of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Proof {
    /// A pre-shared key of the credentials file, identified by a digest of the key.
    Psk(Digest),
    /// A pre-shared key of a [`KeyStore`](super::KeyStore), identified by a digest of the key; `None` if the key is not
    /// known.
    Stored(Option<Digest>),
    /// An OSCORE context, identified by its number, so that two contexts with one name are two principals.
    Context(u32),
    /// A certificate, identified by its SHA-256, or a raw public key, identified by the SHA-256 of its
    /// SubjectPublicKeyInfo.
    Certified(u8, Digest),
    /// A session that a delegation server opened in the name of a device: the numbers of the device and of the session.
    Delegated(u32, u32),
}

impl Proof {
    pub(super) const fn certified(kind: CertificateType, digest: Digest) -> Self {
        Self::Certified(kind.0, digest)
    }

    /// Returns true if a peer that gave this kind of proof is removed when its last session ends. Another peer can then
    /// get the number of the removed peer.
    const fn is_of_sessions(self) -> bool {
        matches!(self, Self::Certified(..) | Self::Delegated(..))
    }
}

/// A peer: its proof and its name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Who {
    pub(super) proof: Proof,
    pub(super) name: String,
}

/// Keeps a peer registered for one of its sessions: see [`Credentials::hold`](super::Credentials::hold).
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is dropped with the last session")] Arc<Lease>);

/// A value that all sessions of one peer share. It has the number that identifies the peer. When the last of these
/// sessions ends, this value is dropped. The drop removes the peer and its number, unless the peer has begun another
/// handshake or session.
struct Lease {
    shared: Arc<RwLock<Shared>>,
    number: u32,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lease").field(&self.number).finish()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        // Another session may have begun meanwhile.
        shared.principals.remove_if_gone(self.number);
    }
}

/// A registered peer. A number, its principal, identifies the peer.
struct Numbered {
    who: Who,
    /// A reference to the [`Lease`], a value that the sessions of the peer share. The value no longer exists if the
    /// peer has no session.
    lease: Weak<Lease>,
    /// The time at which the peer began its last handshake, if this handshake has not led to a session yet; otherwise
    /// `None`.
    handshake: Option<Instant>,
    /// The time at which the certificate of the peer expires; `None` for a peer without a certificate.
    end: Option<SystemTime>,
}

/// Peers and their numbers. A peer keeps its number until the peer is removed, also after changes of the credentials
/// file. A number is reused only after all other numbers were given to peers.
#[derive(Default)]
pub(super) struct Principals {
    numbers: HashMap<Who, u32>,
    all: HashMap<u32, Numbered>,
    next: u32,
    /// The handshakes that have not led to a session yet: for each, the time at which it began, and the number that
    /// identifies its peer.
    handshakes: BTreeSet<(Instant, u32)>,
}

impl Principals {
    /// Returns the number that identifies a peer (its principal). Gives the peer a number if it has none.
    pub(super) fn number(&mut self, proof: Proof, name: &str, now: Instant) -> Principal {
        let who = Who { proof, name: name.to_owned() };
        let number = match self.numbers.get(&who) {
            Some(number) => *number,
            None => self.add(who),
        };
        if proof.is_of_sessions() {
            self.give_up_handshakes(now);
            self.set_handshake(number, Some(now));
        }
        Principal(number)
    }

    fn add(&mut self, who: Who) -> u32 {
        while self.next == Principal::NOBODY.0 || self.all.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.numbers.insert(who.clone(), number);
        self.all.insert(number, Numbered { who, lease: Weak::new(), handshake: None, end: None });
        number
    }

    /// Gives a new number to an OSCORE context.
    pub(super) fn context(&mut self, name: &str, now: Instant) -> Principal {
        self.number(Proof::Context(self.next), name, now)
    }

    /// Returns the number that identifies a peer (its principal), if it has one.
    pub(super) fn find(&self, proof: Proof, name: &str) -> Option<Principal> {
        self.numbers.get(&Who { proof, name: name.to_owned() }).copied().map(Principal)
    }

    pub(super) fn get(&self, principal: Principal) -> Option<&Who> {
        self.all.get(&principal.0).map(|numbered| &numbered.who)
    }

    /// Sets the time at which the certificate of a peer expires, if a peer has this number.
    pub(super) fn set_end(&mut self, principal: Principal, end: Option<SystemTime>) {
        if let Some(numbered) = self.all.get_mut(&principal.0) {
            numbered.end = end;
        }
    }

    pub(super) fn end(&self, principal: Principal) -> Option<SystemTime> {
        self.all.get(&principal.0)?.end
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if the peer with the number `principal` is removed when its last session ends. Another peer can
    /// then get the number.
    pub(super) fn ends_with_sessions(&self, principal: Principal) -> bool {
        self.get(principal).is_some_and(|who| who.proof.is_of_sessions())
    }

    /// Begins a session of the peer with the number `principal`. Returns `None` if no peer has this number, or if the
    /// peer stays registered after its last session ends.
    pub(super) fn hold(&mut self, principal: Principal, shared: &Arc<RwLock<Shared>>) -> Option<Held> {
        self.set_handshake(principal.0, None);
        let numbered = self.all.get_mut(&principal.0).filter(|numbered| numbered.who.proof.is_of_sessions())?;
        let lease = numbered.lease.upgrade().unwrap_or_else(|| {
            let lease = Arc::new(Lease { shared: Arc::clone(shared), number: principal.0 });
            numbered.lease = Arc::downgrade(&lease);
            lease
        });
        Some(Held(lease))
    }

    /// Ends the handshakes that have not led to a session within 5 minutes. Removes their peers, unless a peer has a
    /// session.
    pub(super) fn give_up_handshakes(&mut self, now: Instant) {
        while let Some((begun, number)) = self.handshakes.first().copied()
            && now.saturating_duration_since(begun) >= HANDSHAKE
        {
            self.set_handshake(number, None);
            self.remove_if_gone(number);
        }
    }

    /// Removes a peer and its number.
    pub(super) fn remove(&mut self, principal: Principal) {
        if let Some(numbered) = self.all.remove(&principal.0) {
            self.numbers.remove(&numbered.who);
        }
    }

    fn set_handshake(&mut self, number: u32, begun: Option<Instant>) {
        let Some(numbered) = self.all.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut numbered.handshake, begun) {
            self.handshakes.remove(&(before, number));
        }
        self.handshakes.extend(begun.map(|begun| (begun, number)));
    }

    /// Removes a peer if it has neither a session nor a handshake.
    fn remove_if_gone(&mut self, number: u32) {
        let is_gone = |numbered: &Numbered| numbered.handshake.is_none() && numbered.lease.strong_count() == 0;
        if let Some(numbered) = self.all.get(&number).filter(|numbered| is_gone(numbered)) {
            self.numbers.remove(&numbered.who);
            self.all.remove(&number);
        }
    }
}
