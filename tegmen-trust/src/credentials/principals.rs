//! Numbers that identify peers by their proof of identity. A name alone is not enough, because a pre-shared key, a
//! certificate and an OSCORE context may have the same name.
//!
//! The number of a pre-shared key of the file or of an OSCORE context does not depend on sessions. The configuration of
//! the operator limits the count of these numbers. A peer that proves itself with a certificate or a raw public key has
//! its number from its handshake to the end of its last session. This is also true for a peer whose session a delegation
//! server opened in the name of a device. A peer whose key comes from a [`KeyStore`](super::KeyStore) keeps its number
//! after its last session, because it may resume the session. Only the last [`MAX_UNUSED`] such peers keep it. A peer
//! that never had a session loses its number when its handshake counts as failed.

use super::Shared;
use super::file::Allow;
use crate::digest::Digest;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};
use tegmen::dtls::CertificateType;
use tegmen::identity::Principal;

/// Time after which a handshake that led to no session counts as failed.
const HANDSHAKE: Duration = Duration::from_secs(300);

/// Maximum number of peers that had a session with a key of a [`KeyStore`](super::KeyStore), and that have neither a
/// session nor a handshake now.
const MAX_UNUSED: usize = 1 << 14;

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

    /// Returns true if a peer that gave this kind of proof is removed when its last session ends, or later. Another
    /// peer can then get the number of the removed peer.
    const fn is_of_sessions(self) -> bool {
        matches!(self, Self::Certified(..) | Self::Delegated(..) | Self::Stored(_))
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
    /// The rights of a peer whose rights are not in the file: a peer whose key comes from a
    /// [`KeyStore`](super::KeyStore), or an OSCORE context.
    learned: Option<Allow>,
    /// True if the peer had a session, so that it may resume this session.
    had_session: bool,
    /// The key of this peer in [`Principals::unused`].
    unused: Option<u64>,
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
    /// For each identity whose key came from a [`KeyStore`](super::KeyStore), the number of the peer that proved the
    /// last key of this identity.
    stored: HashMap<String, u32>,
    /// The numbers of the peers that had a session with a key of a [`KeyStore`](super::KeyStore), and that have neither
    /// a session nor a handshake now, at most [`MAX_UNUSED`]. The keys of the map are in the order in which the last sessions ended.
    unused: BTreeMap<u64, u32>,
    /// The next key of `unused`.
    ended: u64,
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
        let (lease, handshake, end, learned, had_session, unused) = (Weak::new(), None, None, None, false, None);
        self.all.insert(number, Numbered { who, lease, handshake, end, learned, had_session, unused });
        number
    }

    /// Returns the number of a peer that proved this key of a [`KeyStore`](super::KeyStore) under this identity. The
    /// number replaces that of an earlier key of the identity in [`Self::stored`].
    pub(super) fn store(&mut self, fingerprint: Option<Digest>, identity: &str, now: Instant) -> Principal {
        let principal = self.number(Proof::Stored(fingerprint), identity, now);
        self.stored.insert(identity.to_owned(), principal.0);
        principal
    }

    /// Returns the number of the peer that proved the last key of an identity from a [`KeyStore`](super::KeyStore).
    pub(super) fn stored(&self, identity: &str) -> Option<Principal> {
        self.stored.get(identity).copied().map(Principal)
    }

    /// Sets the rights of a peer whose rights are not in the file.
    pub(super) fn set_learned(&mut self, principal: Principal, allow: Allow) {
        if let Some(numbered) = self.all.get_mut(&principal.0) {
            numbered.learned = Some(allow);
        }
    }

    /// Returns the rights that [`Self::set_learned`] set.
    pub(super) fn learned(&self, principal: Principal) -> Option<&Allow> {
        self.all.get(&principal.0)?.learned.as_ref()
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

    /// Returns true if the peer with the number `principal` is removed when its last session ends, or later. Another
    /// peer can then get the number.
    pub(super) fn ends_with_sessions(&self, principal: Principal) -> bool {
        self.get(principal).is_some_and(|who| who.proof.is_of_sessions())
    }

    /// Begins a session of the peer with the number `principal`. Returns `None` if no peer has this number, or if the
    /// peer stays registered after its last session ends.
    pub(super) fn hold(&mut self, principal: Principal, shared: &Arc<RwLock<Shared>>) -> Option<Held> {
        self.set_handshake(principal.0, None);
        self.use_again(principal.0);
        let numbered = self.all.get_mut(&principal.0).filter(|numbered| numbered.who.proof.is_of_sessions())?;
        numbered.had_session = true;
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
            // A later key of the identity has another number.
            if self.stored.get(&numbered.who.name) == Some(&principal.0) {
                self.stored.remove(&numbered.who.name);
            }
        }
    }

    /// Notes that a peer has a handshake or a session again.
    fn use_again(&mut self, number: u32) {
        let unused = self.all.get_mut(&number).and_then(|numbered| numbered.unused.take());
        if let Some(unused) = unused {
            self.unused.remove(&unused);
        }
    }

    fn set_handshake(&mut self, number: u32, begun: Option<Instant>) {
        if begun.is_some() {
            self.use_again(number);
        }
        let Some(numbered) = self.all.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut numbered.handshake, begun) {
            self.handshakes.remove(&(before, number));
        }
        self.handshakes.extend(begun.map(|begun| (begun, number)));
    }

    /// Removes a peer if it has neither a session nor a handshake. A peer that had a session with a key of a
    /// [`KeyStore`](super::KeyStore) may resume it, so it is removed later, when too many such peers exist.
    fn remove_if_gone(&mut self, number: u32) {
        let is_gone = |numbered: &&mut Numbered| numbered.handshake.is_none() && numbered.lease.strong_count() == 0;
        let Some(numbered) = self.all.get_mut(&number).filter(is_gone) else { return };
        if !matches!(numbered.who.proof, Proof::Stored(_)) || !numbered.had_session {
            return self.remove(Principal(number));
        }
        if numbered.unused.is_none() {
            numbered.unused = Some(self.ended);
            self.unused.insert(self.ended, number);
            self.ended += 1;
        }
        if self.unused.len() > MAX_UNUSED
            && let Some((_, oldest)) = self.unused.pop_first()
        {
            self.remove(Principal(oldest));
        }
    }
}
