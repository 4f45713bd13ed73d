//! Tokens of the profile of EDHOC and OSCORE: the public key of a client, and the credential with which the client runs
//! EDHOC.

use super::{Refusal, Taken, Tokens, Valid, seconds};
use crate::access::ace::{Claims, Confirmation, CoseKey, Material};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tegmen_host::edhoc::{Credential, CredentialId, EdhocServer, TokenPeer};
use tegmen_store::clock::now;

/// Length of a coordinate on P-256 in bytes.
const COORDINATE: usize = 32;
/// The number of P-256 in the COSE registry.
const P_256: i64 = 1;
/// Maximum number of bytes of a credential that is made from a public key.
const MAX_CREDENTIAL: usize = 128;

/// The public key of a client, on P-256.
pub(super) struct PublicKey {
    kid: Option<Vec<u8>>,
    x: [u8; COORDINATE],
    y: [u8; COORDINATE],
}

impl PublicKey {
    /// Converts a COSE key to a public key; returns `None` if the COSE key is not on P-256, or is not for ECDH.
    pub(super) fn of(key: &CoseKey) -> Option<Self> {
        let Material::Ec2 { curve: P_256, x, y } = &key.material else { return None };
        if !key.is_for_ecdh() {
            return None;
        }
        Some(Self { kid: key.kid.clone(), x: x.as_slice().try_into().ok()?, y: y.as_slice().try_into().ok()? })
    }

    /// Returns the identifier of the token in the table. It begins with a byte that is not ASCII. So it differs from
    /// each identifier of input material, which is ASCII text.
    pub(super) fn id(&self) -> Vec<u8> {
        [&[0xff][..], &self.x].concat()
    }

    /// Returns the credential of the client: a CWT Claims Set that contains only this key (RFC 9528, section 3.5.2).
    /// EDHOC messages name this credential by the kid of the key. Returns `None` if the key has no kid.
    fn credential(&self) -> Option<Credential> {
        let mut share = [4; 2 * COORDINATE + 1];
        let (_, point) = share.split_first_mut()?;
        let (x, y) = point.split_at_mut_checked(COORDINATE)?;
        x.copy_from_slice(&self.x);
        y.copy_from_slice(&self.y);
        let mut storage = [0; MAX_CREDENTIAL];
        let bytes = Credential::write(None, self.kid.as_deref()?, &share, &mut storage).ok()?;
        Credential::parse(bytes).ok()
    }
}

impl Tokens {
    /// Lets the resource server take tokens of the EDHOC profile, in addition to those of the OSCORE profile. A client
    /// with such a token then runs EDHOC with the responder `edhoc`. This responder must store its Security Contexts in
    /// the contexts of this resource server.
    pub fn accept_edhoc(&self, edhoc: &EdhocServer) {
        self.0.has_edhoc.store(true, Ordering::Relaxed);
        let inner = Arc::downgrade(&self.0);
        edhoc.accept_tokens(Box::new(move |id| {
            inner.upgrade().map_or_else(Vec::new, |inner| Self(inner).find_peers(id, now()))
        }));
    }

    /// Takes the token of a client. `key` is the client's public key in the token.
    pub(super) fn take_key(&self, key: &CoseKey, valid: &Valid, now: u64) -> Result<(), Refusal> {
        let key = PublicKey::of(key).filter(|_| self.0.has_edhoc.load(Ordering::Relaxed));
        let id = key.ok_or(Refusal::NoContext)?.id();
        let mut taken = self.unless_revoked(valid)?;
        match taken.by_id.get_mut(&id) {
            Some(known) if known.client != valid.client => return Err(Refusal::OtherContext),
            Some(known) if valid.issued_at > known.issued_at => {
                known.replace_by(valid);
                self.0.contexts.set_lifetime(known.principal, seconds(known.expires, now));
            }
            Some(_) => {}
            None => {
                let displaced = self.has_room(&mut taken, valid, now)?;
                self.end(&mut taken, |token| Some(token.principal) == displaced);
                let principal = self.0.credentials.learn(&valid.client, Some(&[]));
                taken.insert(&id, Taken::new(principal, valid));
            }
        }
        Ok(())
    }

    /// Finds the clients whose valid tokens have the public key of this credential. Clients choose their kids, so a kid
    /// can identify several clients (RFC 9052, section 3.1). If a kid identifies several keys of one client, only the
    /// newest of these tokens counts. So a client with many keys does not slow down the sessions of others.
    pub(super) fn find_peers(&self, id: &CredentialId<'_>, now: u64) -> Vec<TokenPeer> {
        let taken = self.taken();
        let peer = |token: &Taken, credential: Option<Credential>| {
            let (client, lifetime) = (token.client.clone(), seconds(token.expires, now));
            Some(TokenPeer { credential: credential?, client, principal: token.principal, lifetime })
        };
        match id {
            CredentialId::Value(bytes) => {
                let token = key_of(bytes).and_then(|key| taken.by_id.get(&key.id()));
                let valid = token.filter(|token| token.expires > now);
                valid.and_then(|token| peer(token, Credential::parse(bytes).ok())).into_iter().collect()
            }
            CredentialId::Kid(kid) => {
                let mut newest = BTreeMap::<&str, (&Taken, &PublicKey)>::new();
                for token in taken.by_id.values().filter(|token| token.expires > now) {
                    let Some(key) = token.key.as_ref().filter(|key| key.kid.as_deref() == Some(*kid)) else { continue };
                    let known = newest.entry(&token.client).or_insert((token, key));
                    if token.issued_at > known.0.issued_at {
                        *known = (token, key);
                    }
                }
                newest.into_values().filter_map(|(token, key)| peer(token, key.credential())).collect()
            }
        }
    }
}

/// Returns the public key in a credential; returns `None` if the credential has no public key on P-256.
fn key_of(credential: &[u8]) -> Option<PublicKey> {
    let Some(Confirmation::Key(key)) = Claims::parse(credential).ok()?.cnf else { return None };
    PublicKey::of(&key)
}
