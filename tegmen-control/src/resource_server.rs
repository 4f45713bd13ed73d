//! A resource server that takes access tokens from clients, in the OSCORE profile (RFC 9203) and in the profile of
//! EDHOC and OSCORE (draft-ietf-ace-edhoc-oscore-profile).
//!
//! ```text
//! POST /authz-info   application/ace+cbor (19). A request without protection contains a token and, in the first
//!                    profile, the nonce N1 and the client's Recipient ID. A request under OSCORE contains only a token,
//!                    which updates the rights of the Security Context that protects the request.
//! ```
//!
//! The access control server seals a token under a key that it shares with the resource server. Client and resource
//! server derive a Security Context from the secret in the token and from two new nonces, one from the client and one
//! from the resource server. A client has only the rights of its token, until the token expires.
//!
//! A token of the EDHOC profile contains the public key of its client, and the client sends no nonce with it. The
//! client then runs EDHOC with this key ([`Tokens::accept_edhoc`]).
//!
//! All state is in memory. After a restart a client posts its token again, and the new nonces give new keys. So no
//! sequence number is used twice under one key, even if the client or the resource server has lost its state.

mod edhoc;
mod revocation;
mod serving;

use crate::access::ace::cwt::{self, LONG_KEY_LEN, NotOpened};
use crate::access::ace::oscore::{InputMaterial, Nonces};
use crate::access::ace::trl::TokenHash;
use crate::access::ace::{Aif, Claims, Confirmation, Malformed, Offer, PostedToken};
use crate::access::revocation::token_hash;
use crate::publisher::{is_understood, rules, share};
pub use crate::upload::AUTHZ_INFO;
use edhoc::PublicKey;
pub use revocation::RevocationEvent;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tegmen::identity::Principal;
use tegmen_base::crypto::Crypto as _;
use tegmen_base::secret::Secret;
use tegmen_coap::Code;
use tegmen_host::contexts::AgreedContexts;
use tegmen_host::credentials::Credentials;
use tegmen_host::provider::HostCrypto;
use tegmen_store::clock::now_millis;

/// Length of N2 in bytes.
const NONCE: usize = 8;
/// Number of random bytes from which the server takes a Recipient ID that is not in use.
const CANDIDATES: usize = 64;
/// Seconds between the expiry of a token and the end of its Security Contexts. In this time observers are notified of
/// the expiry.
const LINGER: u64 = 2;

/// The reason why a resource server refuses a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The payload is no token with valid parameters.
    #[error("no token of this form: {0}")]
    Malformed(#[from] Malformed),
    /// The token is not sealed under the key of this resource server.
    #[error("the token is of another issuer or for another resource server")]
    NotAuthentic,
    /// The token is for another audience.
    #[error("the token is for another audience")]
    Audience,
    /// The token contains no rights in the form of RFC 9237, or a right on a path that is not the path of one resource.
    #[error("the token has rights that this resource server does not understand")]
    Scope,
    /// No new Security Context is possible: the token has no input material, or the Recipient ID in the request is too
    /// long.
    #[error("the token or the request does not give what a Security Context needs")]
    NoContext,
    /// The token is expired or not valid yet, or contains no expiry time.
    #[error("the token is expired or not valid yet, or has no end: correct the clocks")]
    Expired,
    /// The token is on the list of revoked tokens.
    #[error("the token is revoked")]
    Revoked,
    /// The token does not update the rights of the Security Context that protects the request with the token, or the
    /// token is older than the token whose rights this context has.
    #[error(
        "the token does not update the rights of the context that protects the request, or is older than the one before"
    )]
    OtherContext,
    /// The resource server already has the maximum number of tokens.
    #[error("the resource server has as many tokens as it can have: ask again in {seconds} s")]
    Busy {
        /// Seconds after which one of the tokens expires, so that the client may try again.
        seconds: u32,
    },
    /// The client already has the maximum number of tokens for one client, and the token is not newer than all of them.
    #[error(
        "the client has as many tokens as one client can have, and this one is not newer: ask again in {seconds} s"
    )]
    TooMany {
        /// Seconds after which one of the client's tokens expires, so that the client may try again.
        seconds: u32,
    },
}

impl Refusal {
    /// Returns the code of the response to an update of rights (RFC 9203, section 4.2).
    const fn code_of_update(self) -> Code {
        match self {
            Self::Audience | Self::Scope | Self::NoContext => Code::UNAUTHORIZED,
            other => other.code(),
        }
    }

    /// Returns the code of the response to a token that was sent without protection (RFC 9200, section 5.10.1.1; RFC
    /// 9203, section 4.2).
    const fn code(self) -> Code {
        match self {
            Self::Malformed(_) | Self::Scope | Self::NoContext => Code::BAD_REQUEST,
            Self::NotAuthentic | Self::Expired | Self::Revoked | Self::OtherContext => Code::UNAUTHORIZED,
            Self::Audience => Code::FORBIDDEN,
            Self::Busy { .. } => Code::SERVICE_UNAVAILABLE,
            Self::TooMany { .. } => Code::TOO_MANY_REQUESTS,
        }
    }
}

impl From<NotOpened> for Refusal {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::Malformed(malformed) => Self::Malformed(malformed),
            NotOpened::NotAuthentic => Self::NotAuthentic,
        }
    }
}

/// The settings of a resource server.
pub struct TokenSettings {
    /// The name of the resource server, which is the audience of its tokens.
    pub name: String,
    /// The key that the resource server shares with the access control server.
    pub key: Secret<LONG_KEY_LEN>,
    /// Maximum number of tokens at the same time. The maximum for one client is a quarter of this number, but at least
    /// two. If a client has its maximum, a newer token ends its oldest token.
    pub most: usize,
    /// The URI of the access control server. A client without protection receives it as a hint in a 4.01 response. With
    /// `None` there are no hints, and the policy of the CoAP server decides on requests without protection.
    pub hints: Option<String>,
}

/// The tokens of a resource server. All clones use the same tokens.
#[derive(Clone)]
pub struct Tokens(Arc<Inner>);

struct Inner {
    settings: TokenSettings,
    credentials: Credentials,
    contexts: AgreedContexts,
    crypto: Mutex<HostCrypto>,
    taken: Mutex<Table>,
    /// True if clients can run EDHOC with this server, and so can use tokens of the EDHOC profile.
    has_edhoc: AtomicBool,
}

/// The table of tokens.
#[derive(Default)]
struct Table {
    /// The tokens that were taken. The key of the map is the identifier of the token's input material in the OSCORE
    /// profile, and the identifier of the client's public key in the EDHOC profile.
    by_id: BTreeMap<Vec<u8>, Taken>,
    ids: HashMap<Principal, Vec<u8>>,
    /// The hashes of the tokens on the list of revoked tokens.
    revoked: BTreeSet<TokenHash>,
}

impl Table {
    fn of_principal(&self, principal: Principal) -> Option<&Taken> {
        self.by_id.get(self.ids.get(&principal)?)
    }

    fn insert(&mut self, id: &[u8], token: Taken) {
        self.ids.insert(token.principal, id.to_vec());
        self.by_id.insert(id.to_vec(), token);
    }

    /// Removes the tokens for which `is_kept` returns false. Returns the principals of these tokens: the numbers by
    /// which the CoAP server names the clients of the tokens.
    fn retain(&mut self, is_kept: impl Fn(&Taken) -> bool) -> Vec<Principal> {
        let mut removed = Vec::new();
        self.by_id.retain(|_, token| {
            let is_kept = is_kept(token);
            if !is_kept {
                removed.push(token.principal);
            }
            is_kept
        });
        for principal in &removed {
            self.ids.remove(principal);
        }
        removed
    }
}

/// A token that a resource server has taken.
struct Taken {
    principal: Principal,
    client: String,
    rights: Aif,
    /// The rights of the token as rules, in the form of the credentials file.
    rules: Vec<String>,
    /// The time at which the token expires, in seconds since 1970.
    expires: u64,
    issued_at: u64,
    hash: TokenHash,
    /// The public key of the client in the EDHOC profile, `None` in the OSCORE profile.
    key: Option<PublicKey>,
    /// True if [`Tokens::expire`] has already returned this token as expired. A later call does not return it again.
    is_over: bool,
}

/// The content of a valid token.
struct Valid {
    client: String,
    cnf: Confirmation,
    rights: Aif,
    expires: u64,
    issued_at: u64,
    hash: TokenHash,
}

impl Tokens {
    /// Creates a resource server without tokens. `credentials` are the credentials of the CoAP server that serves the
    /// resources. `contexts` are the Security Contexts that this CoAP server uses through
    /// [`Contexts::with_agreed`](tegmen_host::contexts::Contexts::with_agreed).
    ///
    /// # Errors
    /// The error of the system if it has no randomness.
    pub fn new(settings: TokenSettings, credentials: Credentials, contexts: AgreedContexts) -> std::io::Result<Self> {
        let (crypto, has_edhoc) = (Mutex::new(HostCrypto::from_os()?), AtomicBool::new(false));
        Ok(Self(Arc::new(Inner { settings, credentials, contexts, crypto, taken: Mutex::default(), has_edhoc })))
    }

    fn taken(&self) -> MutexGuard<'_, Table> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the table of tokens and returns it, unless the token `valid` is revoked.
    fn unless_revoked(&self, valid: &Valid) -> Result<MutexGuard<'_, Table>, Refusal> {
        let taken = self.taken();
        if taken.revoked.contains(&valid.hash) { Err(Refusal::Revoked) } else { Ok(taken) }
    }

    /// Returns the number of tokens.
    pub fn count(&self) -> usize {
        self.taken().by_id.len()
    }

    /// Takes the token in the payload of a request without protection, and makes a Security Context. Returns the nonce
    /// and the Recipient ID of this endpoint; `None` for a token of the EDHOC profile. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn take(&self, payload: &[u8], now: u64) -> Result<Option<Offer>, Refusal> {
        let posted = PostedToken::parse(payload)?;
        let valid = self.open(&posted.access_token, now)?;
        match &valid.cnf {
            Confirmation::Osc(material) => self.take_material(material, posted.offer, &valid, now).map(Some),
            Confirmation::Key(key) => self.take_key(key, &valid, now).map(|()| None),
            Confirmation::Kid(_) => Err(Refusal::NoContext),
        }
    }

    fn take_material(
        &self,
        material: &InputMaterial,
        offer: Option<Offer>,
        valid: &Valid,
        now: u64,
    ) -> Result<Offer, Refusal> {
        let offer = offer.ok_or(Refusal::Malformed(Malformed::Missing(NONCE_1)))?;
        if offer.recipient_id.len() > material.aead.max_id() {
            return Err(Refusal::NoContext);
        }
        let mut taken = self.unless_revoked(valid)?;
        if let Some(known) = taken.by_id.get_mut(&material.id) {
            // A token that is as old as an update, or older, does not take the update back: anyone can post it again.
            if valid.issued_at > known.issued_at {
                known.replace_by(valid);
                self.0.contexts.set_lifetime(known.principal, seconds(known.expires, now));
            }
            return self.agree(material, &offer, known, now);
        }
        let displaced = self.has_room(&mut taken, valid, now)?;
        let principal = self.0.credentials.learn(&valid.client, Some(&[]));
        let new = Taken::new(principal, valid);
        let agreed = self.agree(material, &offer, &new, now);
        match agreed {
            Ok(_) => {
                self.end(&mut taken, |token| Some(token.principal) == displaced);
                taken.insert(&material.id, new);
            }
            Err(_) => self.0.credentials.forget(principal),
        }
        agreed
    }

    /// Makes the Security Context of a token, with a new nonce and Recipient ID of this endpoint.
    fn agree(&self, material: &InputMaterial, theirs: &Offer, token: &Taken, now: u64) -> Result<Offer, Refusal> {
        let (mut nonce, mut candidates) = ([0; NONCE], [0; CANDIDATES]);
        let mut crypto = self.0.crypto.lock().unwrap_or_else(PoisonError::into_inner);
        crypto.random(&mut nonce);
        crypto.random(&mut candidates);
        drop(crypto);
        let contexts = &self.0.contexts;
        let recipient_id = contexts.choose(&candidates, &theirs.recipient_id);
        // If another request takes the Recipient ID first, the client must send its request again.
        let recipient_id = recipient_id.ok_or(Refusal::Busy { seconds: 1 })?;
        let nonces = Nonces { client: &theirs.nonce, server: &nonce };
        let file = material.context(&nonces, &theirs.recipient_id, &recipient_id).map_err(|_| Refusal::NoContext)?;
        let lifetime = seconds(token.expires, now);
        if contexts.take_of_token(&file, &token.client, token.principal, lifetime) {
            Ok(Offer { nonce: nonce.to_vec(), recipient_id })
        } else {
            Err(Refusal::Busy { seconds: 1 })
        }
    }

    /// Takes the token in the payload of a request that is protected by a Security Context. The token updates the
    /// rights of this context. `principal` is the number by which the CoAP server names the client of this context. A
    /// nonce and an ID in the payload are ignored. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`Refusal`]. Nothing has changed then.
    pub fn update(&self, principal: Principal, payload: &[u8], now: u64) -> Result<(), Refusal> {
        let posted = PostedToken::parse(payload)?;
        let valid = self.open(&posted.access_token, now)?;
        let id = match &valid.cnf {
            Confirmation::Kid(kid) => kid.clone(),
            Confirmation::Key(key) => PublicKey::of(key).ok_or(Refusal::OtherContext)?.id(),
            Confirmation::Osc(_) => return Err(Refusal::OtherContext),
        };
        let mut taken = self.unless_revoked(&valid)?;
        let known =
            taken.by_id.get_mut(&id).filter(|known| known.principal == principal && known.client == valid.client);
        let known = known.filter(|known| known.expires > now && valid.issued_at >= known.issued_at);
        let known = known.ok_or(Refusal::OtherContext)?;
        known.replace_by(&valid);
        self.0.contexts.set_lifetime(principal, seconds(known.expires, now));
        Ok(())
    }

    /// Opens a token, and checks its content (RFC 9200, section 5.10.1.1).
    fn open(&self, access_token: &[u8], now: u64) -> Result<Valid, Refusal> {
        let Inner { settings, crypto, .. } = &*self.0;
        let claims = {
            let mut crypto = crypto.lock().unwrap_or_else(PoisonError::into_inner);
            cwt::open(access_token, &settings.key, &mut *crypto)?
        };
        let Claims { subject, audience, expires, not_before, issued_at, cnf, scope, .. } = claims;
        if audience.as_deref() != Some(&settings.name) {
            return Err(Refusal::Audience);
        }
        let expires = expires.filter(|expires| *expires > now && not_before.is_none_or(|begin| begin <= now));
        let expires = expires.ok_or(Refusal::Expired)?;
        let rights = scope.and_then(|scope| scope.rights()).filter(is_understood).ok_or(Refusal::Scope)?;
        let cnf = cnf.ok_or(Refusal::NoContext)?;
        let client = subject.filter(|name| !name.is_empty()).ok_or(Refusal::NoContext)?;
        let (issued_at, hash) = (issued_at.unwrap_or_default(), token_hash::<HostCrypto>(access_token));
        Ok(Valid { client, cnf, rights, expires, issued_at, hash })
    }

    /// Checks that one more token of a client fits into the table, and into the client's share of the table. If the
    /// client uses its whole share, a token that is newer than all of its tokens takes the place of the oldest of them.
    /// Returns the principal of this oldest token, which the caller must [end](Self::end).
    fn has_room(&self, taken: &mut Table, valid: &Valid, now: u64) -> Result<Option<Principal>, Refusal> {
        self.forget_replaced(taken);
        let most = self.0.settings.most;
        let all = || taken.by_id.values();
        let own = || all().filter(|token| token.client == valid.client);
        let until = |first: Option<u64>| {
            u32::try_from(first.unwrap_or_default().saturating_sub(now)).unwrap_or(u32::MAX).max(1)
        };
        if own().count() >= share(most) {
            // Anyone can post an older token again. It must not end a token that the client uses.
            let is_newest = own().all(|token| token.age() < (valid.issued_at, valid.expires));
            let oldest = own().min_by_key(|token| token.age()).filter(|_| is_newest);
            let seconds = until(own().map(|token| token.expires).min());
            return oldest.map(|oldest| Some(oldest.principal)).ok_or(Refusal::TooMany { seconds });
        }
        if all().count() >= most {
            return Err(Refusal::Busy { seconds: until(all().map(|token| token.expires).min()) });
        }
        Ok(None)
    }

    /// Removes the tokens for which `is_over` returns true, and ends their Security Contexts.
    fn end(&self, taken: &mut Table, is_over: impl Fn(&Taken) -> bool) {
        for principal in taken.retain(|token| !is_over(token)) {
            self.0.contexts.remove(principal);
            self.0.credentials.forget(principal);
        }
    }

    /// Removes the tokens whose Security Contexts were replaced by the contexts of another token of the same client.
    fn forget_replaced(&self, taken: &mut Table) {
        let principals = self.0.contexts.principals();
        // A client with a token of the EDHOC profile has perhaps not begun yet.
        for principal in taken.retain(|token| token.key.is_some() || principals.contains(&token.principal)) {
            self.0.credentials.forget(principal);
        }
    }

    /// Removes the tokens that expired at least two seconds ago, and ends their Security Contexts. Returns two values
    /// for each token that expired since the last call: the principal, which is the number by which the CoAP server
    /// names the client, and the rights of the token. With these values the caller can notify the client if it observes
    /// a resource. The caller must call this function once a second. `now` is in seconds since 1970.
    pub fn expire(&self, now: u64) -> Vec<(Principal, Aif)> {
        let mut taken = self.taken();
        self.end(&mut taken, |token| now >= token.expires.saturating_add(LINGER));
        self.forget_replaced(&mut taken);
        let expired = taken.by_id.values_mut().filter(|token| token.expires <= now && !token.is_over);
        expired
            .map(|token| {
                token.is_over = true;
                // Requests find it no more. A notification is protected with it still.
                self.0.contexts.set_lifetime(token.principal, Duration::ZERO);
                (token.principal, token.rights.clone())
            })
            .collect()
    }
}

impl Taken {
    fn new(principal: Principal, valid: &Valid) -> Self {
        let Valid { client, rights, expires, issued_at, cnf, hash } = valid;
        let (client, rights, rules, hash) = (client.clone(), rights.clone(), rules(rights), hash.clone());
        let key = if let Confirmation::Key(key) = cnf { PublicKey::of(key) } else { None };
        Self { principal, client, rights, rules, expires: *expires, issued_at: *issued_at, hash, key, is_over: false }
    }

    /// Returns the time of issue and the expiry. Tokens are compared by these two values; a newer token has larger ones.
    const fn age(&self) -> (u64, u64) {
        (self.issued_at, self.expires)
    }

    /// Replaces the rights and the expiry of this token by those of a later token for the same Security Context.
    fn replace_by(&mut self, valid: &Valid) {
        *self = Self::new(self.principal, valid);
    }
}

/// Returns the time from now until `end`. `now` and `end` are in seconds since 1970. The part of the current second
/// that has already passed is subtracted.
fn seconds(end: u64, now: u64) -> Duration {
    let begun = Duration::from_millis(now_millis() % 1000);
    Duration::from_secs(end.saturating_sub(now)).saturating_sub(begun)
}

/// The label of the parameter N1 in a request to `/authz-info`.
const NONCE_1: i64 = 40;

#[cfg(test)]
mod tests;
