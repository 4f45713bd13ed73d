//! The Token Revocation List (RFC 9770): the revoked tokens, the parties that each token concerns, and the latest
//! updates of the list.

use super::ace::cwt::LONG_KEY_LEN;
use super::ace::trl::{Answer, Cursor, Query, TokenHash, TrlError, TrlErrorId, Update};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use tegmen_base::crypto::{Crypto, DIGEST_LEN, digest, hmac};
use tegmen_base::secret::Secret;
use tegmen_host::base64url::to_base64url;

/// The number that means SHA-256 in the registry of RFC 6920, section 9.4.
const SHA_256: u8 = 1;
/// The text over which [`list_key`] computes an HMAC.
const LABEL: &[u8] = b"tegmen revoke/trl";
/// The largest index of an update (RFC 9770, section 6.2.1). No list reaches it.
const MAX_INDEX: u64 = u64::MAX - 1;

/// Returns the hash of a token, encoded as the revocation list contains it. `token` has the bytes of the parameter
/// `access_token`. The input of the hash is the text of these bytes in base64url (RFC 9770, sections 4.2.1 and 4.3.1).
pub fn token_hash<C: Crypto>(token: &[u8]) -> TokenHash {
    [&[SHA_256][..], &digest::<C, DIGEST_LEN>(&[to_base64url(token).as_bytes()])].concat()
}

/// Returns the pre-shared key of the session in which a resource server reads the list of revoked tokens. The key is an
/// HMAC-SHA-256 under `token_key`, the key that seals tokens for this resource server. The PSK identity of the session
/// is the name of the resource server. The session gives no other right.
pub fn list_key<C: Crypto>(token_key: &Secret<LONG_KEY_LEN>) -> Secret<DIGEST_LEN> {
    Secret::new(hmac::<C, DIGEST_LEN>(&[token_key.expose()], &[LABEL]))
}

/// Returns the hashes in a response that contains the whole list: a response to a query without `diff`. Returns `None`
/// for another payload.
pub(crate) fn hashes(payload: &[u8]) -> Option<BTreeSet<TokenHash>> {
    match Answer::parse(payload) {
        Ok(Answer::Full { hashes, .. }) => Some(hashes.into_iter().collect()),
        _ => None,
    }
}

/// Limits of a [`RevocationList`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Maximum number of revoked tokens that are not expired.
    pub tokens: usize,
    /// Maximum number of updates that are kept for each requester: MAX_N of RFC 9770.
    pub updates: usize,
    /// Maximum number of updates in one answer: MAX_DIFF_BATCH of RFC 9770.
    pub batch: usize,
}

impl Default for Bounds {
    /// Returns the default limits: 100,000 tokens, 32 updates for each requester, and 8 updates in one answer.
    fn default() -> Self {
        Self { tokens: 100_000, updates: 32, batch: 8 }
    }
}

/// The party that requests the list of revoked tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requester<'a> {
    /// A registered device, by the name that it proved. It gets the tokens that concern it.
    Device(&'a str),
    /// An administrator, who gets all tokens.
    Administrator,
}

/// The error that the list is full. The token that was to be added stays valid. So the caller must inform the operator,
/// and must refuse to issue more tokens until some tokens on the list expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the revocation list is full: wait until revoked tokens expire, or raise its bound")]
pub struct ListFull;

/// A revoked token.
#[derive(Default)]
struct Revoked {
    /// The time at which the token expires, in seconds since 1970. `None` if the row of the token in the store cannot be
    /// read.
    expires: Option<u64>,
    concerned: BTreeSet<String>,
}

impl Revoked {
    fn has_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// The latest updates for one requester.
#[derive(Default)]
struct Updates {
    /// The index of the oldest update in `kept`.
    first: u64,
    kept: VecDeque<Update>,
}

impl Updates {
    fn push(&mut self, update: Update, most: usize) {
        self.kept.push_back(update);
        while self.kept.len() > most.max(1) {
            self.kept.pop_front();
            self.first = self.first.saturating_add(1);
        }
    }

    /// Returns the index of the last update, even if this update is no longer kept; `None` if there was no update.
    fn last(&self) -> Option<u64> {
        self.first.saturating_add(self.kept.len() as u64).checked_sub(1)
    }

    fn cursor(&self) -> Cursor {
        self.last().map_or(Cursor::Null, Cursor::At)
    }
}

/// The list of revoked tokens.
pub struct RevocationList {
    bounds: Bounds,
    /// The index of the first update in the history of each requester: the value that the caller passed to
    /// [`Self::starting_at`].
    first: u64,
    revoked: BTreeMap<TokenHash, Revoked>,
    devices: BTreeMap<String, Updates>,
    administrators: Updates,
}

impl RevocationList {
    /// Makes an empty list whose updates begin at the index 0.
    pub fn new(bounds: Bounds) -> Self {
        Self::starting_at(bounds, 0)
    }

    /// Makes an empty list whose updates begin at the index `first`. A server that starts again passes an index above
    /// those of all earlier updates. So a cursor from before the restart names an update that is no longer kept. The
    /// requester that sends this cursor then asks for the whole list.
    pub fn starting_at(bounds: Bounds, first: u64) -> Self {
        let (revoked, devices) = (BTreeMap::new(), BTreeMap::new());
        Self { bounds, first, revoked, devices, administrators: Updates { first, kept: VecDeque::new() } }
    }

    /// Registers a device. From then on the list keeps the updates for this device.
    pub fn register(&mut self, device: &str) {
        let first = self.first;
        self.devices.entry(device.to_owned()).or_insert_with(|| Updates { first, kept: VecDeque::new() });
    }

    /// Registers each device that a token on the list concerns, if `is_known` returns true for the name of the device.
    pub fn register_concerned(&mut self, is_known: impl Fn(&str) -> bool) {
        let concerned: BTreeSet<&String> = self.revoked.values().flat_map(|revoked| &revoked.concerned).collect();
        let known: Vec<String> = concerned.into_iter().filter(|name| is_known(name)).cloned().collect();
        known.iter().for_each(|name| self.register(name));
    }

    /// Adds a token that the store contains, because the token was on the list before a restart. The histories of the
    /// requesters get no update. The function ignores the limits, because a token that is missing on the list would be
    /// valid again.
    pub fn load(&mut self, hash: TokenHash, expires: u64, concerned: impl IntoIterator<Item = String>) {
        self.revoked.insert(hash, Revoked { expires: Some(expires), concerned: concerned.into_iter().collect() });
    }

    /// Checks that one more token fits into the list of revoked tokens.
    ///
    /// # Errors
    /// [`ListFull`] if the list has no space.
    pub fn has_room(&self) -> Result<(), ListFull> {
        if self.revoked.len() < self.bounds.tokens { Ok(()) } else { Err(ListFull) }
    }

    /// Returns true if the list has at least half of the maximum number of tokens.
    pub(crate) fn is_half_full(&self) -> bool {
        self.revoked.len() >= self.bounds.tokens.div_ceil(2)
    }

    /// Adds a token to the list. `concerned` are the registered devices that the token concerns. The token expires at
    /// the time `expires`, in seconds since 1970. If the token is already on the list, the devices are added to its
    /// entry, and the later expiry counts. Returns the devices whose observations must be notified: none if the token
    /// has expired.
    ///
    /// # Errors
    /// [`ListFull`] if the list has no space.
    pub fn revoke(
        &mut self,
        hash: TokenHash,
        expires: u64,
        concerned: &[&str],
        now: u64,
    ) -> Result<Vec<String>, ListFull> {
        if expires <= now {
            return Ok(Vec::new());
        }
        if !self.is_revoked(&hash) {
            self.has_room()?;
        }
        Ok(self.add(hash, expires, concerned.iter().map(|name| (*name).to_owned())))
    }

    /// Adds a token from the store to the list, and ignores the limits. If the token is already on the list, the devices
    /// are added to its entry, and the later expiry counts. Returns the devices whose observations must be notified: the
    /// registered devices that this call added.
    pub fn add(&mut self, hash: TokenHash, expires: u64, concerned: impl IntoIterator<Item = String>) -> Vec<String> {
        let is_new = !self.is_revoked(&hash);
        let revoked = self.revoked.entry(hash.clone()).or_default();
        revoked.expires = revoked.expires.max(Some(expires));
        let added = Update { removed: Vec::new(), added: vec![hash] };
        let newly = concerned.into_iter().filter(|name| revoked.concerned.insert(name.clone()));
        let of_devices = newly.map(|name| (name, added.clone())).collect();
        if is_new { self.update(of_devices, added) } else { self.update_devices(of_devices) }
    }

    /// Adds a token whose row in the store cannot be read, if it is not on the list yet. The key of the row has the hash of
    /// the token. The entry has no devices and no expiry, until [`Self::add`] adds them or [`Self::remove`] removes the
    /// token.
    pub(crate) fn add_unreadable(&mut self, hash: TokenHash) {
        if !self.revoked.contains_key(&hash) {
            self.revoked.insert(hash.clone(), Revoked::default());
            self.update(BTreeMap::new(), Update { removed: Vec::new(), added: vec![hash] });
        }
    }

    /// Removes these tokens from the list in one update. Returns the devices whose observations must be notified.
    pub fn remove(&mut self, hashes: &BTreeSet<TokenHash>) -> Vec<String> {
        self.take_off(|hash, _| hashes.contains(hash))
    }

    /// Returns the hashes of at most `most` expired tokens on the list. `now` is in seconds since 1970.
    pub fn expired(&self, now: u64, most: usize) -> Vec<TokenHash> {
        let expired = self.revoked.iter().filter(|(_, revoked)| revoked.has_expired(now));
        expired.take(most).map(|(hash, _)| hash.clone()).collect()
    }

    /// Removes the expired tokens from the list. Returns the devices whose observations must be notified. `now` is in
    /// seconds since 1970.
    pub fn expire(&mut self, now: u64) -> Vec<String> {
        self.take_off(|_, revoked| revoked.has_expired(now))
    }

    fn take_off(&mut self, goes: impl Fn(&TokenHash, &Revoked) -> bool) -> Vec<String> {
        let mut changes: BTreeMap<String, Update> = BTreeMap::new();
        let mut all = Update::default();
        self.revoked.retain(|hash, revoked| {
            let goes = goes(hash, revoked);
            if goes {
                all.removed.push(hash.clone());
                for name in &revoked.concerned {
                    changes.entry(name.clone()).or_default().removed.push(hash.clone());
                }
            }
            !goes
        });
        if all.removed.is_empty() { Vec::new() } else { self.update(changes, all) }
    }

    fn update(&mut self, changes: BTreeMap<String, Update>, all: Update) -> Vec<String> {
        self.administrators.push(all, self.bounds.updates);
        self.update_devices(changes)
    }

    fn update_devices(&mut self, changes: BTreeMap<String, Update>) -> Vec<String> {
        let mut notified = Vec::new();
        for (name, update) in changes {
            if let Some(updates) = self.devices.get_mut(&name) {
                updates.push(update, self.bounds.updates);
                notified.push(name);
            }
        }
        notified
    }

    /// Returns true if the token with this hash is on the list.
    pub fn is_revoked(&self, hash: &[u8]) -> bool {
        self.revoked.contains_key(hash)
    }

    /// Answers a query (RFC 9770, sections 7 to 9). A device that is not registered gets an empty list.
    ///
    /// # Errors
    /// The payload of a 4.00 response, if the cursor is past the last update, or is greater than every valid index.
    pub fn answer(&self, requester: Requester<'_>, query: Query) -> Result<Answer, TrlError> {
        let none = Updates::default();
        let updates = match requester {
            Requester::Administrator => &self.administrators,
            Requester::Device(name) => self.devices.get(name).unwrap_or(&none),
        };
        let Some(wanted) = query.diff else {
            return Ok(Answer::Full { hashes: self.hashes(requester), cursor: Some(updates.cursor()) });
        };
        if query.cursor.is_some_and(|cursor| cursor > MAX_INDEX) {
            return Err(TrlError { error: TrlErrorId::INVALID_VALUE, cursor: Some(updates.cursor()) });
        }
        let diff = |updates, cursor, more| Ok(Answer::Diff { updates, cursor: Some(cursor), more: Some(more) });
        let Some(last) = updates.last() else { return diff(Vec::new(), Cursor::Null, false) };
        // The first update that the requester does not know.
        let next = match query.cursor {
            Some(cursor) if cursor > last => {
                return Err(TrlError { error: TrlErrorId::OUT_OF_BOUND_CURSOR, cursor: None });
            }
            // Some are lost: the requester needs the whole list (section 9.2.3, case A).
            Some(cursor) if cursor.saturating_add(1) < updates.first => return diff(Vec::new(), Cursor::Null, true),
            Some(cursor) => cursor.saturating_add(1),
            None => updates.first,
        };
        let most = if wanted == 0 { u64::MAX } else { wanted };
        let available = last.saturating_add(1).saturating_sub(next).min(most);
        let batch = available.min(self.bounds.batch.max(1) as u64);
        let more = available > batch;
        // The answer has the oldest `batch` of the latest `available` updates, the latest of them first.
        let begin = last.saturating_add(1).saturating_sub(available);
        let skip = begin.saturating_sub(updates.first) as usize;
        let mut chosen: Vec<Update> = updates.kept.iter().skip(skip).take(batch as usize).cloned().collect();
        chosen.reverse();
        let cursor = if batch == 0 { last } else { begin.saturating_add(batch).saturating_sub(1) };
        diff(chosen, Cursor::At(cursor), more)
    }

    /// Returns two values: at most `most` hashes of the list in ascending order, and a flag that is true if further
    /// hashes follow. The first returned hash is the next one after `after`, or the first of the list if `after` is
    /// `None`.
    pub fn page(&self, after: Option<&[u8]>, most: usize) -> (Vec<TokenHash>, bool) {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = self.revoked.range::<[u8], _>((begin, Bound::Unbounded)).map(|(hash, _)| hash.clone());
        let hashes = behind.by_ref().take(most).collect();
        (hashes, behind.next().is_some())
    }

    fn hashes(&self, requester: Requester<'_>) -> Vec<TokenHash> {
        let concerns = |revoked: &Revoked| match requester {
            Requester::Administrator => true,
            Requester::Device(name) => self.devices.contains_key(name) && revoked.concerned.contains(name),
        };
        self.revoked.iter().filter(|(_, revoked)| concerns(revoked)).map(|(hash, _)| hash.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
