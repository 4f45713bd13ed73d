//! Deterministic requests (draft-ietf-core-cacheable-oscore-02). If several members protect the same request, the
//! protected requests have the same bytes. So a proxy that is not a member can answer the later requests from its
//! cache.
//!
//! ```text
//! any member, as the Deterministic Client            server
//!   protect_deterministic_request        FETCH ->      unprotect_deterministic_request
//!   unprotect_response               <- signed         protect_response
//! ```
//!
//! The Partial IV is always 0. Each request has its own key, which depends on a hash of all encrypted and
//! authenticated data. So a nonce is never used for two plaintexts under one key. The same request may arrive again
//! and again, so the server delivers only safe methods.

use super::aad::Aad;
use super::context::{BadGroup, GroupContext};
use super::exchange::{GroupPending, GroupRequest, Replies, RequestHash};
use crate::cose::Aead;
use crate::error::ProtectError;
use crate::id::Id;
use crate::option::{OscoreOption, PartialIv};
use crate::protect::{Plain, enclose};
use crate::unprotect::UnprotectError;
use tegmen_base::buf::{Frame, copy, shift_left};
use tegmen_base::crypto::hash::{DIGEST_LEN, digest};
use tegmen_base::crypto::{Crypto, GroupCrypto, KEY_LEN, NotAuthentic};
use tegmen_base::secret::{Secret, same};
use tegmen_coap::option::{Class, Header, OptionNumber};
use tegmen_coap::{Code, MessageRef};

/// Length of a Request-Hash option in bytes.
pub(super) const REQUEST_HASH_LEN: usize = 4 + DIGEST_LEN;

/// The Deterministic Client of a group: a member in whose name all other members can send. It has no key pair and no
/// sequence numbers.
pub struct DeterministicClient {
    id: Id,
    key: Secret<KEY_LEN>,
}

impl DeterministicClient {
    /// Returns the ID of the Deterministic Client.
    pub const fn id(&self) -> &Id {
        &self.id
    }

    /// Returns true if a message is a request of this client: it has the ID of the client and a Request-Hash option.
    pub fn sent(&self, message: &MessageRef<'_>) -> bool {
        let option = message.option(OptionNumber::OSCORE).map(OscoreOption::parse_in_group);
        let kid = option.and_then(|option| option.ok()?.kid);
        kid == Some(self.id.as_bytes()) && message.option(OptionNumber::REQUEST_HASH).is_some()
    }

    /// Computes the SHA-256 hash of a request (draft-ietf-core-cacheable-oscore-02, section 3.4.2, step 2). The input
    /// begins with a secret of the group, so that an outsider cannot guess plaintexts and compare their hashes.
    fn hash<C: Crypto>(&self, aad: &Aad<'_>, plaintext: &[u8]) -> RequestHash {
        digest::<C, _>(&[self.key.expose(), aad.array(), plaintext])
    }
}

impl core::fmt::Debug for DeterministicClient {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DeterministicClient").field("id", &self.id).finish_non_exhaustive()
    }
}

/// An authentic request of the Deterministic Client. Any member of the group may have sent it, and it may be a
/// replay.
#[derive(Debug)]
pub enum DeterministicRequest<'r> {
    /// The method is GET or FETCH. Answer only with content that every member may read.
    Safe(MessageRef<'r>, GroupRequest),
    /// The method can change a resource. Answer with a protected 4.01, and do nothing else
    /// (draft-ietf-core-cacheable-oscore-02, section 3.4.3).
    Unsafe(GroupRequest),
}

impl<B: AsRef<[u8]>, const AAD: usize> GroupContext<B, AAD> {
    /// Derives the keys of the Deterministic Client. `id` is the ID that the Group Manager has assigned to this client.
    /// The hash algorithm is SHA-256.
    ///
    /// # Errors
    /// [`BadGroup::Algorithms`] if the group does not use both modes, [`BadGroup::IdTooLong`] and
    /// [`BadGroup::SameIds`].
    pub fn deterministic_client<C: GroupCrypto>(&self, id: Id) -> Result<DeterministicClient, BadGroup> {
        self.algorithms.of_pairwise_mode().and(self.algorithms.of_group_mode()).ok_or(BadGroup::Algorithms)?;
        self.check(&id, &[])?;
        if id == self.sender_id {
            return Err(BadGroup::SameIds);
        }
        Ok(DeterministicClient { id, key: self.key_of::<C>(&id) })
    }

    /// Protects the request in `frame` as the Deterministic Client (draft-ietf-core-cacheable-oscore-02, section
    /// 3.4.2). If another member protects the same request, the result has the same bytes after its token. If `to`
    /// names a member, only this member may answer. If `to` is `None`, each member may answer. The call uses no
    /// sequence number.
    ///
    /// # Errors
    /// Each [`ProtectError`] that any other request can cause. [`ProtectError::Malformed`] has two more causes here:
    /// the method is neither GET nor FETCH, or the request has an Observe option. In these two cases the frame is
    /// unchanged.
    pub fn protect_deterministic_request<C: GroupCrypto, R: AsMut<[Replies]>>(
        &self,
        crypto: &mut C,
        client: &DeterministicClient,
        to: Option<Id>,
        replies: R,
        frame: &mut Frame<'_>,
    ) -> Result<GroupPending<R>, ProtectError> {
        let plain = Plain::read(frame, true)?;
        if !plain.code.is_safe() || has_option(frame, |number| number == OptionNumber::OBSERVE) {
            return Err(ProtectError::Malformed);
        }
        let aead = self.algorithms.of_pairwise_mode().ok_or(ProtectError::Unsupported)?;
        let number = PartialIv::ZERO;
        let request = GroupRequest { kid: client.id, number, gid: self.gid, is_signed: false, hash: None };
        let option = OscoreOption {
            partial_iv: Some(number),
            kid_context: Some(self.gid.as_bytes()),
            kid: Some(client.id.as_bytes()),
            group: false,
        };
        let mut room = [0; AAD];
        let aad = self.aad_of(&option, &request, &[], &mut room)?;
        let nonce = self.nonce(aead, (&client.id, &number));
        let (plaintext, tag) = enclose(frame, &plain, Code::FETCH, &option, aead.tag_len())?;
        let hash = client.hash::<C>(&aad, plaintext);
        let key = self.key_of_request::<C>(client, aead, &hash);
        let sealed = crypto.seal(aead.of::<C>(), key.expose(), nonce.as_bytes(), aad.as_bytes(), plaintext, tag);
        sealed.map_err(|_| ProtectError::Unsupported)?;
        add_outer(frame, OptionNumber::REQUEST_HASH, &hash)?;
        Ok(GroupPending::new(GroupRequest { hash: Some(hash), ..request }, to, replies))
    }

    /// Decrypts a request of the Deterministic Client in place. Computes the hash of the decrypted request, which must
    /// be equal to the hash in the Request-Hash option (draft-ietf-core-cacheable-oscore-02, section 3.4.3). There is
    /// no replay window, because the Partial IV of each deterministic request is 0.
    ///
    /// # Errors
    /// [`UnprotectError`].
    pub fn unprotect_deterministic_request<'r, C: GroupCrypto>(
        &self,
        crypto: &mut C,
        client: &DeterministicClient,
        datagram: &'r mut [u8],
    ) -> Result<DeterministicRequest<'r>, UnprotectError> {
        let message = &MessageRef::parse(datagram).map_err(|_| UnprotectError::Unprotected)?;
        let (option, value) = self.option(message)?;
        if !self.is_named_by(&option) {
            return Err(UnprotectError::UnknownContext);
        }
        if option.kid != Some(client.id.as_bytes()) {
            return Err(UnprotectError::UnknownMember);
        }
        let hash = message.option(OptionNumber::REQUEST_HASH).and_then(|hash| RequestHash::try_from(hash).ok());
        let (Some(hash), Some(number @ PartialIv::ZERO), false) = (hash, option.partial_iv, option.group) else {
            return Err(UnprotectError::BadOption);
        };
        let request = GroupRequest { kid: client.id, number, gid: self.gid, is_signed: false, hash: None };
        let (kind, of, mut room) = ((true, false, value), (&client.id, &number), [0; AAD]);
        let sealed = self.read((message, datagram, &mut room), kind, of, &request, &[])?;
        let key = self.key_of_request::<C>(client, sealed.aead, &hash);
        let plaintext = sealed.decrypt(crypto, &key, datagram)?;
        if !same(&client.hash::<C>(&sealed.aad, plaintext), &hash) {
            return Err(NotAuthentic.into());
        }
        let message = sealed.parts.inside(datagram).map_err(|_| UnprotectError::Malformed)?;
        let request = GroupRequest { hash: Some(hash), ..request };
        match message.code() {
            code if code.is_safe() => Ok(DeterministicRequest::Safe(message, request)),
            code if code.is_request() => Ok(DeterministicRequest::Unsafe(request)),
            _ => Err(UnprotectError::Malformed),
        }
    }

    /// Derives the key of a request with this hash (draft-ietf-core-cacheable-oscore-02, section 3.4.2, step 3).
    fn key_of_request<C: Crypto>(
        &self,
        client: &DeterministicClient,
        aead: Aead,
        hash: &RequestHash,
    ) -> Secret<KEY_LEN> {
        self.pairwise_key::<C>(aead, &client.key, &[hash], &client.id)
    }
}

/// The value of Max-Age in a response to a deterministic request. It is repeated in an outer option, which caches can
/// read.
pub(super) struct MaxAge {
    bytes: [u8; 4],
    len: usize,
}

impl MaxAge {
    /// Reads Max-Age from the response in `frame`. Returns `None` if there is no such option.
    ///
    /// # Errors
    /// [`ProtectError::Malformed`] if a cache could not store the response, because it has Observe, or options that
    /// proxies process, or a Max-Age that is too long.
    pub(super) fn read(frame: &Frame<'_>) -> Result<Option<Self>, ProtectError> {
        if has_option(frame, |number| number == OptionNumber::OBSERVE || number.class() == Class::Unprotected) {
            return Err(ProtectError::Malformed);
        }
        let message = MessageRef::parse(frame.bytes()).map_err(|_| ProtectError::Malformed)?;
        let Some(value) = message.option(OptionNumber::MAX_AGE) else { return Ok(None) };
        let mut bytes = [0; 4];
        copy(&mut bytes, value).map_err(|_| ProtectError::Malformed)?;
        Ok(Some(Self { bytes, len: value.len() }))
    }

    /// Writes Max-Age as an outer option.
    pub(super) fn write(&self, frame: &mut Frame<'_>) -> Result<(), ProtectError> {
        add_outer(frame, OptionNumber::MAX_AGE, self.bytes.get(..self.len).unwrap_or(&[]))
    }
}

fn has_option(frame: &Frame<'_>, is_such: impl Fn(OptionNumber) -> bool) -> bool {
    MessageRef::parse(frame.bytes()).is_ok_and(|message| message.options().any(|(number, _)| is_such(number)))
}

/// Adds an outer option after the options of a protected message. `number` must not be lower than the number of any of
/// these options.
fn add_outer(frame: &mut Frame<'_>, number: OptionNumber, value: &[u8]) -> Result<(), ProtectError> {
    let message = MessageRef::parse(frame.bytes()).map_err(|_| ProtectError::Malformed)?;
    let last = message.options().last().map_or(0, |(number, _)| number.0);
    let delta = number.0.checked_sub(last).ok_or(ProtectError::Malformed)?;
    // The payload marker (1 byte) precedes the payload.
    let at = frame.len().wrapping_sub(message.payload().len()).wrapping_sub(1);
    let header = Header::new(delta, value.len());
    let header = header.as_bytes();
    let len = header.len().wrapping_add(value.len());
    let bytes = frame.widen(len, 0)?;
    shift_left(bytes.get_mut(..at.wrapping_add(len)).ok_or(ProtectError::Full)?, len, 0);
    let place = bytes.get_mut(at..).unwrap_or(&mut []);
    copy(place, header)?;
    copy(place.get_mut(header.len()..).unwrap_or(&mut []), value)?;
    Ok(())
}
