//! Credentials: a TOML file of identities, keys and rights, which is read again when it changes.
//!
//! ```toml
//! [[psk]]
//! identity = "sensor-17"
//! key = "00112233445566778899aabbccddeeff"    # hexadecimal, or: key_text = "a passphrase"
//! previous_key = "ffeeddccbbaa99887766554433221100"   # optional; also accepted, while the key is replaced
//! allow = ["GET /*", "PUT /blink"]            # optional; without it everything is allowed
//!
//! [[certificate]]                             # a client with a certificate of this subject
//! name = "CN=device1,O=Works"
//! allow = ["GET /*"]
//!
//! [[raw_key]]                                 # a client with the raw public key of this name
//! name = "device2"
//! allow = ["PUT /blink"]
//!
//! [anonymous]                                 # clients without a certificate; without this section: no rights
//! allow = ["GET /blink"]
//! ```
//!
//! The name of a certificate or raw public key can also be `sha256:`, followed by the digest of the certificate or key.
//! The entry with the name `*` applies to all peers without their own entry. If there is no entry `*`, these peers have
//! all rights, except that peers of delegated sessions have none.
//!
//! Rights belong to a name and a kind of proof: an entry does not apply to a peer that proved the same name in another
//! way. There are two exceptions, which only limit rights. An OSCORE context has at most the rights of the pre-shared
//! key of the same name. A certificate or raw public key without its own entry and without an entry `*` has the rights
//! of the pre-shared key of the same name, instead of all rights.

mod file;
mod key_store;
mod principals;

pub(crate) use file::digest_name;
use file::fingerprint;
pub use file::{CredentialsError, MAX_IDENTITY, is_rule};
pub use key_store::{KeyStore, KeyTicket, StoredKey};
pub use principals::Held;

use crate::digest::Digest;
use crate::reading::{Reading, Stamp};
use crate::request_uri::Path;
use file::{Allow, Key, Rule, Table, covers, load};
use principals::{Principals, Proof, Who};
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::{Instant, SystemTime};
use tegmen::coap::{Code, Policy, Request};
use tegmen::dtls::{Answer, CertificateType};
use tegmen::identity::{Principal, Protection};
use zeroize::Zeroizing;

/// One pre-shared key of an identity.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityKey {
    /// The key, 1 to 64 bytes.
    pub key: Zeroizing<Vec<u8>>,
    /// The number that identifies requests of a peer with this key.
    pub principal: Principal,
}

impl IdentityKey {
    fn psk(&self) -> (&[u8], Principal) {
        (&self.key, self.principal)
    }
}

/// The pre-shared keys with which an identity is accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityKeys {
    /// The current key of the identity. A client that connects with this identity also uses this key.
    pub current: IdentityKey,
    /// The previous key, which is also accepted while the owner changes to the current key. `None` if the key is not
    /// being replaced.
    pub previous: Option<IdentityKey>,
}

impl IdentityKeys {
    /// Returns the keys of an identity that has only this key. `principal` identifies the requests of a peer with this
    /// key.
    pub fn single(key: Zeroizing<Vec<u8>>, principal: Principal) -> Self {
        Self { current: IdentityKey { key, principal }, previous: None }
    }

    /// Returns an iterator over the keys.
    pub fn iter(&self) -> impl Iterator<Item = &IdentityKey> {
        std::iter::once(&self.current).chain(&self.previous)
    }

    /// Keeps the keys that `keep` accepts. Returns `None` if it accepts no key.
    pub fn filter(self, keep: impl Fn(&IdentityKey) -> bool) -> Option<Self> {
        let mut kept = std::iter::once(self.current).chain(self.previous).filter(|key| keep(key));
        Some(Self { current: kept.next()?, previous: kept.next() })
    }

    /// Makes the answer for a handshake that asks for the key of this identity, and calls `with` with the answer.
    pub fn answer<T>(&self, with: impl FnOnce(Answer<'_>) -> T) -> T {
        match &self.previous {
            None => with(Answer::Psk { identity: &[], key: &self.current.key, principal: self.current.principal }),
            Some(previous) => with(Answer::Psks(&[self.current.psk(), previous.psk()])),
        }
    }
}

/// The credentials of an endpoint. Clones refer to the same credentials, so all threads of a server share them.
#[derive(Clone, Default)]
pub struct Credentials {
    shared: Arc<RwLock<Shared>>,
}

#[derive(Default)]
struct Shared {
    table: Table,
    principals: Principals,
    /// Rights of peers without a certificate or key, in addition to the rights in the file.
    anonymous: Vec<Rule>,
    /// True if the operator was warned of a peer without a certificate or key, which has no rights.
    told_of_anonymous: bool,
    /// Number of times that the identities, keys and rights in `table` were replaced.
    version: u64,
    file: Option<(PathBuf, Reading<Stamp>)>,
}

impl Shared {
    /// Returns the rights of the peer `who`, which has the number `principal`. Returns `None` if the peer has no
    /// rights, for example because the file no longer contains its key.
    fn rights(&self, principal: Principal, who: &Who) -> Option<&Allow> {
        match who.proof {
            // Another key of the same name is another peer.
            Proof::Psk(fingerprint) => {
                let entry = self.table.psk.get(&who.name)?;
                entry.keys().any(|key| key.fingerprint == fingerprint).then_some(&entry.allow)
            }
            Proof::Stored(_) | Proof::Context(_) => self.principals.learned(principal),
            Proof::Delegated(..) => {
                let entries = self.table.certified(CertificateType::X509);
                entries.named(&who.name).or_else(|| entries.others())
            }
            Proof::Certified(kind, digest) => {
                let entries = self.table.certified(CertificateType(kind));
                let others = || entries.others().or_else(|| self.limit(who));
                Some(entries.find(&who.name, &digest).or_else(others).unwrap_or(&None))
            }
        }
    }

    /// Returns the rights of the pre-shared key with the same name as the peer `who`. They limit a peer that proved
    /// this name in another way: see the [module](self).
    fn limit(&self, who: &Who) -> Option<&Allow> {
        self.table.psk.get(&who.name).map(|entry| &entry.allow)
    }

    fn allows(&self, principal: Principal, code: Code, path: impl Iterator<Item = u8> + Clone) -> bool {
        if principal == Principal::NOBODY {
            return self.anonymous.iter().chain(&self.table.anonymous).any(|rule| rule.covers(code, path.clone()));
        }
        let Some(who) = self.principals.get(principal) else { return false };
        let limit = if matches!(who.proof, Proof::Context(_)) { self.limit(who) } else { None };
        self.rights(principal, who).is_some_and(|allow| covers(allow, code, path.clone()))
            && limit.is_none_or(|allow| covers(allow, code, path))
    }
}

impl Credentials {
    /// Makes credentials with one identity that has all rights.
    pub fn single(identity: &str, key: &[u8]) -> Self {
        let credentials = Self::default();
        credentials.replace(Table::single(identity, key));
        credentials
    }

    /// Makes credentials from a file.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub fn from_file(path: &std::path::Path) -> Result<Self, CredentialsError> {
        let credentials = Self::default();
        credentials.set_file(path)?;
        Ok(credentials)
    }

    /// Replaces the identities, keys and rights by the content of a file. After an error the previous content stays
    /// in force. A peer keeps its session if the new content has the same key for this peer.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub fn set_file(&self, path: &std::path::Path) -> Result<(), CredentialsError> {
        let (table, stamp) = load(path)?;
        self.replace(table);
        self.write(|shared| shared.file = Some((path.to_owned(), Reading::of(stamp))));
        Ok(())
    }

    /// Reads the file again if it changed, or if the last attempt failed. Returns the number of its identities, or
    /// `None` if nothing was read. After an error the previous credentials stay in force. Call this function each
    /// second.
    ///
    /// # Errors
    /// [`CredentialsError`]; `Ok(None)` if it is the same error as the last time.
    pub fn reload_if_changed(&self) -> Result<Option<usize>, CredentialsError> {
        let Some((path, reading)) = self.read(|shared| shared.file.clone()) else { return Ok(None) };
        if Stamp::at(&path).is_some_and(|stamp| reading.is_current(&stamp)) {
            return Ok(None);
        }
        let loaded = load(&path);
        let count = loaded.as_ref().map_or(0, |(table, _)| table.psk.len());
        let loaded = loaded.map(|(table, stamp)| {
            self.replace(table);
            stamp
        });
        self.write(|shared| match (&mut shared.file, loaded) {
            (None, _) => Ok(None),
            (Some((_, reading)), Ok(stamp)) => {
                reading.succeeded(stamp);
                Ok(Some(count))
            }
            (Some((_, reading)), Err(error)) => reading.failed(error).map(|()| None),
        })
    }

    fn read<T>(&self, with: impl FnOnce(&Shared) -> T) -> T {
        with(&self.shared.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn write<T>(&self, with: impl FnOnce(&mut Shared) -> T) -> T {
        with(&mut self.shared.write().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn replace(&self, table: Table) {
        self.write(|shared| {
            for (name, entry) in &table.psk {
                for key in entry.keys() {
                    shared.principals.number(Proof::Psk(key.fingerprint), name, Instant::now());
                }
            }
            shared.table = table;
            shared.version += 1;
        });
    }

    /// Returns the keys of an identity.
    pub fn keys_of(&self, identity: &[u8]) -> Option<IdentityKeys> {
        let identity = std::str::from_utf8(identity).ok()?;
        self.read(|shared| {
            let entry = shared.table.psk.get(identity)?;
            let number = |key: &Key| {
                let principal = shared.principals.find(Proof::Psk(key.fingerprint), identity)?;
                Some(IdentityKey { key: key.bytes.clone(), principal })
            };
            Some(IdentityKeys { current: number(&entry.key)?, previous: entry.previous.as_ref().and_then(number) })
        })
    }

    /// Gives clients without a certificate or key these rights, such as `"GET /*"`, in addition to the rights of the
    /// file. The rules replace the rules of an earlier call. Without any rule such clients have no rights.
    ///
    /// # Errors
    /// The first text that is not a rule. The rights are then unchanged.
    pub fn allow_anonymous(&self, rules: &[String]) -> Result<(), String> {
        let parse = |rule: &String| Rule::parse(rule).ok_or_else(|| rule.clone());
        let rules = rules.iter().map(parse).collect::<Result<_, _>>()?;
        self.write(|shared| shared.anonymous = rules);
        Ok(())
    }

    /// Returns true if clients without a certificate or key have no rights, and no earlier call returned true. Call
    /// this when such a client has connected: the server refuses every request of the client, so the operator needs a
    /// warning.
    pub fn is_first_in_vain(&self) -> bool {
        self.write(|shared| {
            let may = !shared.anonymous.is_empty() || !shared.table.anonymous.is_empty();
            !may && !std::mem::replace(&mut shared.told_of_anonymous, true)
        })
    }

    /// Registers an OSCORE context. `name` is the name of the context in the log, and `allow` are the rights of its
    /// peer; `None` allows everything. Returns the number that identifies requests under this context.
    pub fn learn(&self, name: &str, allow: Option<&[String]>) -> Principal {
        self.write(|shared| {
            let principal = shared.principals.context(name, Instant::now());
            shared.principals.set_learned(principal, allow.map(rules));
            principal
        })
    }

    /// Removes the principal that [`Self::learn`] returned for an OSCORE context. The context must have ended.
    pub fn forget(&self, principal: Principal) {
        self.write(|shared| {
            let is_of_context = |who: &Who| matches!(who.proof, Proof::Context(_));
            if shared.principals.get(principal).is_some_and(is_of_context) {
                shared.principals.remove(principal);
            }
        });
    }

    /// Registers an identity that a [`KeyStore`] returned, with the rights `allow`; `None` allows everything. Returns
    /// the number that identifies requests of this identity. The rights replace the rights of an earlier call. They
    /// apply to each peer that proves this key of the store under this identity, and to no other peer. Another key of
    /// the same identity is another peer. `key` is `None` if the identity has another key in each session, or if the
    /// key is not known.
    ///
    /// The number is not removed for 5 minutes, and while a session [holds](Self::hold) it. After that the number of an
    /// identity that had no session is removed. The number of another identity is removed when 16,384 other identities
    /// of key stores have ended their last sessions after it. A ticket of a removed identity is refused.
    pub fn learn_stored(&self, identity: &str, key: Option<&[u8]>, allow: Option<&[String]>) -> Principal {
        self.write(|shared| {
            let principal = shared.principals.store(key.map(fingerprint), identity, Instant::now());
            shared.principals.set_learned(principal, allow.map(rules));
            principal
        })
    }

    /// Returns the number of a client whose certificate or raw public key has this digest. A peer with the same name
    /// and another certificate has another number. This call grants no rights: a client that sends a certificate has
    /// not yet proved that it has the private key. The number is removed after 5 minutes, unless a session
    /// [holds](Self::hold) it.
    pub fn certified_as(&self, name: &str, kind: CertificateType, digest: Digest) -> Principal {
        self.write(|shared| shared.principals.number(Proof::certified(kind, digest), name, Instant::now()))
    }

    /// Stores the time at which the certificate of a [certified](Self::certified_as) peer expires. `None` is for a raw
    /// public key, which does not expire.
    pub fn set_certificate_end(&self, principal: Principal, end: Option<SystemTime>) {
        self.write(|shared| shared.principals.set_end(principal, end));
    }

    /// Returns the time at which the certificate of a peer expires. Returns `None` if the peer proved its name without
    /// a certificate.
    pub fn certificate_end(&self, principal: Principal) -> Option<SystemTime> {
        self.read(|shared| shared.principals.end(principal))
    }

    /// Returns the certificate type and the digest of the certificate or raw public key of a peer. Returns `None` for a
    /// peer that proved its identity with neither of them.
    pub fn certified(&self, principal: Principal) -> Option<(CertificateType, Digest)> {
        self.read(|shared| match shared.principals.get(principal)?.proof {
            Proof::Certified(kind, digest) => Some((CertificateType(kind), digest)),
            _ => None,
        })
    }

    /// Registers the peer of a session that a delegation server opened in the name of a device, and returns the number
    /// of the peer. `device` is the number of the device, and `number` is the number of the session at this device. The
    /// peer has the rights of the `[[certificate]]` entry for its name, or of the entry `*`. Without such an entry it
    /// has no rights. The returned number is removed after 5 minutes, unless a session [holds](Self::hold) it.
    pub fn delegated_as(&self, name: &str, device: u32, number: u32) -> Principal {
        self.write(|shared| shared.principals.number(Proof::Delegated(device, number), name, Instant::now()))
    }

    /// Returns the number of the device and the number of the session for a peer that [`Self::delegated_as`]
    /// registered.
    pub fn delegated(&self, principal: Principal) -> Option<(u32, u32)> {
        self.read(|shared| match shared.principals.get(principal)?.proof {
            Proof::Delegated(device, number) => Some((device, number)),
            _ => None,
        })
    }

    /// Keeps a peer registered under its principal, which is the number that identifies the peer, while a session of
    /// the peer exists. The caller drops the returned value when the session ends. A peer with a certificate, a raw
    /// public key or a [delegated](Self::delegated_as) session is removed after its last session. A peer whose key came
    /// from a [`KeyStore`] is removed [later](Self::learn_stored). Returns `None` for other peers, whose principals do
    /// not depend on sessions.
    pub fn hold(&self, principal: Principal) -> Option<Held> {
        let ends = self.read(|shared| shared.principals.ends_with_sessions(principal));
        if ends { self.write(|shared| shared.principals.hold(principal, &self.shared)) } else { None }
    }

    /// Removes each registered peer, with its principal (the number that identifies it), if its handshake led to no
    /// session within 5 minutes, and if it has no other session. A peer of a [`KeyStore`] is removed
    /// [later](Self::learn_stored). Call this function each second.
    pub fn give_up_handshakes(&self) {
        self.write(|shared| shared.principals.give_up_handshakes(Instant::now()));
    }

    /// Returns the number of registered peers, which is the number of principals that are in use.
    pub fn peers(&self) -> usize {
        self.read(|shared| shared.principals.len())
    }

    /// Returns the principal of an identity whose key came from a [`KeyStore`]: that of the peer that proved the last
    /// key of the identity. Returns `None` if no such identity is registered.
    pub fn stored(&self, identity: &str) -> Option<Principal> {
        self.read(|shared| shared.principals.stored(identity))
    }

    /// If a peer proved the last key of an identity whose key came from a [`KeyStore`], passes this identity and the
    /// [digest](Self::digest_of_key) of the key to `take`, and returns the result. The digest is `None` if the key is not
    /// known. Returns `None` if the peer proved something else. `take` must not call the credentials.
    pub fn stored_as<T>(&self, principal: Principal, take: impl FnOnce(&str, Option<&Digest>) -> T) -> Option<T> {
        self.read(|shared| {
            let Who { proof: Proof::Stored(digest), name } = shared.principals.get(principal)? else { return None };
            (shared.principals.stored(name) == Some(principal)).then(|| take(name, digest.as_ref()))
        })
    }

    /// Returns the digest that identifies a pre-shared key, as [`Self::stored_as`] and [`Self::fingerprint`] do.
    pub fn digest_of_key(key: &[u8]) -> Digest {
        fingerprint(key)
    }

    /// Returns false if the peer proved another pre-shared key than `key`. Also returns true if it is not known which
    /// key the peer proved.
    pub fn may_have_proved(&self, principal: Principal, key: &[u8]) -> bool {
        self.fingerprint(principal).is_none_or(|proved| proved == fingerprint(key))
    }

    /// Returns a number that grows with each replacement of the credentials. After a change of this number, call
    /// [`Self::is_current`] again for each peer.
    pub fn version(&self) -> u64 {
        self.read(|shared| shared.version)
    }

    /// Returns false if the peer proved a key of the file, and the file no longer contains this key. The session of
    /// the peer must then end.
    pub fn is_current(&self, principal: Principal) -> bool {
        self.read(|shared| match shared.principals.get(principal) {
            Some(who) if matches!(who.proof, Proof::Psk(_)) => shared.rights(principal, who).is_some(),
            _ => true,
        })
    }

    /// If a peer proved a key of the credentials file or of a [`KeyStore`], returns the digest of this key. Returns
    /// `None` if the peer proved something else, or if its key is not known.
    pub fn fingerprint(&self, principal: Principal) -> Option<Digest> {
        self.read(|shared| match shared.principals.get(principal)?.proof {
            Proof::Psk(fingerprint) => Some(fingerprint),
            Proof::Stored(fingerprint) => fingerprint,
            _ => None,
        })
    }

    /// Replaces all identities, keys and rights of the file by this one identity, which has all rights.
    pub fn set_single(&self, identity: &str, key: &[u8]) {
        self.replace(Table::single(identity, key));
    }

    /// Returns the identity that has this number.
    pub fn name_of(&self, principal: Principal) -> Option<String> {
        self.read(|shared| shared.principals.get(principal).map(|who| who.name.clone()))
    }

    /// Returns two values about the peer with this number. The first is its identity. The second is true if the peer
    /// proved a pre-shared key of the file. Returns `None` if no peer has this number, or if the peer no longer has
    /// rights.
    pub fn standing(&self, principal: Principal) -> Option<(String, bool)> {
        self.read(|shared| {
            let who = shared.principals.get(principal)?;
            shared.rights(principal, who)?;
            Some((who.name.clone(), matches!(who.proof, Proof::Psk(_))))
        })
    }

    /// Returns all identities in alphabetical order.
    pub fn identities(&self) -> Vec<String> {
        let mut names: Vec<String> = self.read(|shared| shared.table.psk.keys().cloned().collect());
        names.sort();
        names
    }

    /// Returns true if the peer with the number `principal` may now use the method `code` on the path, according to the
    /// credentials file. A removed peer has no rights.
    fn allows(&self, principal: Principal, code: Code, path: impl Iterator<Item = u8> + Clone) -> bool {
        self.read(|shared| shared.allows(principal, code, path))
    }
}

/// Parses the rules. Leaves out a rule that cannot be parsed, so that it allows nothing.
fn rules(texts: &[String]) -> Vec<Rule> {
    texts.iter().filter_map(|text| Rule::parse(text)).collect()
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.identities()).finish()
    }
}

/// A policy that applies the rights of the credentials file. `plain_allowed` decides about unprotected requests.
#[derive(Clone)]
pub struct FilePolicy {
    /// The credentials with the rules.
    pub credentials: Credentials,
    /// True if requests over plain CoAP are served at all.
    pub plain_allowed: bool,
}

impl Policy for FilePolicy {
    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        Some(match request.identity.protection {
            Protection::Plain => self.plain_allowed,
            _ => Path::of(&request.message).is_ok_and(|path| {
                self.credentials.allows(request.identity.principal, request.message.code(), path.bytes())
            }),
        })
    }
}

#[cfg(test)]
mod tests;
