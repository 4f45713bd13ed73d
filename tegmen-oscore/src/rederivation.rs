//! Derivation of new keys by both endpoints, after one endpoint has lost its sequence numbers (RFC 8613, appendix B.2).
//!
//! ```text
//! client                                                      server
//!   request #1, kid context ID1          under ID1      ->      is authentic, perhaps a replay: never delivered
//!   is authentic, and no replay      <-  under R2 || ID1        response #1, kid context R2
//!   request #2, kid context R2 || R3     under R2 || R3 ->      the server made R2: no replay, delivered
//!                                    <-  under R2 || R3         response #2
//! ```
//!
//! A kid context of these messages is a CBOR byte string that contains the bytes in the figure. Later messages have no
//! kid context. A client that has lost its sequence numbers generates ID1 ([`RederivableContext::rederive`]). A server
//! that has lost its sequence numbers uses the client's previous ID Context as ID1, so that any request becomes request
//! #1.
//!
//! Response #1 is encrypted under the keys of R2 || ID1. It contains no sequence number, because it uses the nonce of
//! request #1, which is made with the common IV of ID1. A response #1 with its own sequence number is also accepted.
//!
//! R2 consists of 8 random bytes, followed by the first 8 bytes of an HMAC of these random bytes under a secret key
//! ([`Offers`]). So a server recognizes its own R2, and stores no state for a client that has not yet sent request #2.
//! The server generates the secret key again after each derivation, so it never accepts an old request #2 again.

use super::context::{BadParameters, Parameters, SecurityContext};
use super::cose::{Aead, MAX_NONCE};
use super::derivation;
use super::error::ProtectError;
use super::id::Id;
use super::naming::Naming;
use super::option::OscoreOption;
use super::unprotect::{Pending, RequestBinding, RequestNonce, UnprotectError, Unprotected};
use tegmen_base::buf::{Frame, Writer};
use tegmen_base::crypto::Crypto;
use tegmen_base::crypto::hash::{DIGEST_LEN, HmacKey};
use tegmen_base::crypto::hkdf::Hkdf;
use tegmen_base::lease::Lease;
use tegmen_base::replay::ReplayWindow;
use tegmen_base::secret::{Secret, same};
use tegmen_coap::option::OptionNumber;
use tegmen_coap::{Builder, MessageRef, MessageType};
use tegmen_coap::{Code, Token};

/// The security context of one endpoint. Both endpoints can derive new keys for it. Such a value has 136 bytes.
pub type RederivableContext = SecurityContext<Rederivable>;

/// The form of the ID Context in the messages of a [`RederivableContext`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Rederivable {
    /// Requests contain the ID Context unchanged.
    #[default]
    AsItIs,
    /// Requests and responses contain the ID Context as a CBOR byte string, until a message arrives under the new keys.
    Wrapped,
    /// Messages do not contain the ID Context, because both endpoints have the new keys.
    Omitted,
}

impl Naming for Rederivable {
    type IdContext = [u8; MAX_DERIVED_ID_CONTEXT];
    const NO_ID_CONTEXT: Self::IdContext = [0; MAX_DERIVED_ID_CONTEXT];
    type Wrapped = WrappedId;
    const MAX_KID_CONTEXT: usize = MAX_KID_CONTEXT;

    #[inline]
    fn kid_context<'a>(self, id_context: Option<&'a [u8]>, wrapped: &'a mut WrappedId) -> Option<&'a [u8]> {
        match self {
            Self::AsItIs => id_context,
            Self::Wrapped => wrap(id_context?, wrapped),
            Self::Omitted => None,
        }
    }

    #[inline]
    fn names_responses(self) -> bool {
        self == Self::Wrapped
    }

    #[inline]
    fn is_meant_by(self, id_context: Option<&[u8]>, kid_context: &[u8]) -> bool {
        match self {
            Self::AsItIs => id_context == Some(kid_context),
            Self::Wrapped | Self::Omitted => id_context == unwrap(kid_context),
        }
    }

    fn expand<C: Crypto>(hkdf: &Hkdf, info: (Option<&[u8]>, Aead), id: &Id, out: &mut [u8]) {
        derivation::expand::<C, INFO_LEN>(hkdf, info, id, out);
    }
}

/// An ID Context as a CBOR byte string.
pub struct WrappedId([u8; MAX_KID_CONTEXT]);

impl Default for WrappedId {
    #[inline]
    fn default() -> Self {
        Self([0; MAX_KID_CONTEXT])
    }
}

/// Length in bytes of ID1, of R3 and of each half of R2.
const NONCE_LEN: usize = 8;
/// Length of R2 in bytes.
const R2_LEN: usize = 16;
/// Maximum number of bytes of the ID Context of a [`RederivableContext`]: R2, R3, and an ID Context of 16 bytes.
pub const MAX_DERIVED_ID_CONTEXT: usize = 40;
/// Maximum number of bytes of a kid context: an ID Context as a CBOR byte string.
const MAX_KID_CONTEXT: usize = MAX_DERIVED_ID_CONTEXT + 2;
/// Maximum number of bytes of the array `info` (RFC 8613, section 3.2.1). R2 may precede the ID Context in it.
const INFO_LEN: usize = 76;

impl RederivableContext {
    /// Makes a context with a random ID1. Its first request is request #1, which the server does not deliver. Pass
    /// the response to [`Self::rederived`]. The ID Context in `parameters` is ignored.
    ///
    /// # Errors
    /// [`BadParameters`].
    pub fn rederive<C: Crypto>(crypto: &mut C, parameters: &Parameters<'_>) -> Result<Self, BadParameters> {
        let mut id1 = [0; NONCE_LEN];
        crypto.random(&mut id1);
        Self::fresh::<C>(parameters, &id1)
    }

    /// Restores a context of [`Self::rederived`] or [`Rederived::Second`] after a restart. `parameters` contain the [ID
    /// Context](Self::id_context) of this context. `kept` is the end of the reserved sequence numbers that was last
    /// stored. `window` is the replay window that the program stored after the last message, or `None` if the program
    /// ended without storing it. `settled` is true if the context was [settled](Self::settle).
    ///
    /// # Errors
    /// [`BadParameters`].
    pub fn resume_rederived<C: Crypto>(
        parameters: &Parameters<'_>,
        kept: u64,
        window: Option<ReplayWindow>,
        settled: bool,
    ) -> Result<Self, BadParameters> {
        let mut context = match window {
            Some(window) => Self::restore::<C>(parameters, kept, window)?,
            None => Self::resume::<C>(parameters, kept)?,
        };
        context.naming = if settled { Rederivable::Omitted } else { Rederivable::Wrapped };
        Ok(context)
    }

    /// Makes a context whose ID Context was never used before.
    fn fresh<C: Crypto>(parameters: &Parameters<'_>, id_context: &[u8]) -> Result<Self, BadParameters> {
        Self::named::<C>(parameters, id_context, id_context)
    }

    /// Makes a context that derives its keys from `id_context`, but whose messages contain `name` as ID Context. No
    /// context may have used `id_context` before.
    fn named<C: Crypto>(parameters: &Parameters<'_>, id_context: &[u8], name: &[u8]) -> Result<Self, BadParameters> {
        let parameters = &Parameters { id_context: Some(id_context), ..*parameters };
        let mut context = Self::derive_named::<C>(parameters, Some(name), Lease::resume(0), ReplayWindow::new())?;
        context.naming = Rederivable::Wrapped;
        Ok(context)
    }

    /// Decrypts response #1, which has a kid context. Returns the inner message, and a new context, which protects
    /// request #2 and all later messages. Before you send a message under the new context, reserve sequence numbers for
    /// it ([`Self::lease_mut`]), and store its [ID Context](Self::id_context) and the end of the reserved sequence
    /// numbers. When a message arrives under the new context, [settle](Self::settle) the new context.
    ///
    /// # Errors
    /// [`UnprotectError`]. `pending` is then unchanged, and the true response may still come.
    pub fn rederived<'r, C: Crypto>(
        &self,
        crypto: &mut C,
        parameters: &Parameters<'_>,
        pending: &mut Pending,
        datagram: &'r mut [u8],
    ) -> Result<(Self, MessageRef<'r>), UnprotectError> {
        let mut id = [0; R2_LEN + MAX_DERIVED_ID_CONTEXT];
        let mut writer = Writer::new(&mut id);
        let has_number;
        let r2_len = {
            let message = MessageRef::parse(datagram).map_err(|_| UnprotectError::Unprotected)?;
            let option = OscoreOption::parse(message.option(OptionNumber::OSCORE).ok_or(UnprotectError::Unprotected)?)?;
            has_number = option.partial_iv.is_some();
            let r2 =
                option.kid_context.and_then(unwrap).filter(|r2| r2.len() <= R2_LEN).ok_or(UnprotectError::BadOption)?;
            let whole = writer.put(r2).and_then(|()| writer.put(self.id_context().unwrap_or(&[])));
            whole.map_err(|_| UnprotectError::BadOption)?;
            r2.len()
        };
        // No later message contains the ID Context of the context of response #1, so this context gets an empty ID
        // Context.
        let mut first =
            Self::named::<C>(parameters, writer.written(), &[]).map_err(|_| UnprotectError::UnknownContext)?;
        if !has_number {
            first.common_iv = self.common_iv;
        }
        let message = first.unprotect_response(crypto, pending, datagram)?;
        let mut r3 = [0; NONCE_LEN];
        crypto.random(&mut r3);
        let end = r2_len.wrapping_add(NONCE_LEN);
        if let Some(place) = id.get_mut(r2_len..end) {
            place.copy_from_slice(&r3);
        }
        let context = Self::fresh::<C>(parameters, id.get(..end).unwrap_or(&[]));
        Ok((context.map_err(|_| UnprotectError::UnknownContext)?, message))
    }

    /// Records that a message arrived under this context. Requests then need no kid context any more.
    pub fn settle(&mut self) {
        if self.naming == Rederivable::Wrapped {
            self.naming = Rederivable::Omitted;
        }
    }

    /// Returns false if the keys were derived again and no message has arrived under the new keys yet. As long as the
    /// result is false, requests and response #1 have a kid context.
    pub fn is_settled(&self) -> bool {
        self.naming != Rederivable::Wrapped
    }
}

/// Writes a CBOR byte string (RFC 8949, section 3.1) that contains these bytes.
fn wrap<'a>(bytes: &[u8], WrappedId(room): &'a mut WrappedId) -> Option<&'a [u8]> {
    let len = bytes.len() as u8;
    let mut writer = Writer::new(room);
    let head = if len < 24 { writer.u8(0x40 | len) } else { writer.put(&[0x58, len]) };
    head.and_then(|()| writer.put(bytes)).ok()?;
    let written = writer.written().len();
    room.get(..written)
}

/// Returns the bytes in a CBOR byte string in its shortest form. No bytes may precede or follow the byte string.
fn unwrap(kid_context: &[u8]) -> Option<&[u8]> {
    let (len, bytes) = match kid_context {
        [head @ 0x40..=0x57, bytes @ ..] => (head & 0x1f, bytes),
        [0x58, len @ 24..=255, bytes @ ..] => (*len, bytes),
        _ => return None,
    };
    (bytes.len() == usize::from(len)).then_some(bytes)
}

/// The key with which a server recognizes an R2 that it has sent in a response #1. The server draws the key at the
/// start. It draws the key again after each new context that a client has made with such an R2. Each new key makes all
/// earlier values of R2 invalid.
pub struct Offers(Secret<DIGEST_LEN>);

/// The purpose of a request whose kid context contains a CBOR byte string: it is request #1 or request #2.
#[derive(Debug)]
pub enum Rederived<'r> {
    /// Request #1, which [`Offers::answer`] answers. Do not deliver it to the application, because it may be a
    /// replay.
    First(FirstRequest),
    /// Request #2, which is fresh. The first value is the new context, which replaces the previous context. The second
    /// value is the decrypted request, and the third value permits one response under the nonce of the request. Before
    /// you deliver the request, [reserve](SecurityContext::lease_mut) sequence numbers for the new context, store its
    /// [ID Context](SecurityContext::id_context) and the end of the reserved sequence numbers, and draw new [`Offers`].
    Second(RederivableContext, MessageRef<'r>, RequestNonce),
}

/// A request that the server answers with response #1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FirstRequest {
    request: RequestBinding,
    common_iv: [u8; MAX_NONCE],
    id1: [u8; MAX_DERIVED_ID_CONTEXT],
    id1_len: usize,
}

impl core::fmt::Debug for FirstRequest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FirstRequest").field("request", &self.request).field("id1", &self.id1()).finish()
    }
}

impl FirstRequest {
    /// Treats a request of a client as request #1. The request arrived under the keys of `context`, for which the
    /// server has lost the sequence numbers. ID1 is the ID Context of `context`.
    pub fn under(context: &RederivableContext, request: RequestBinding) -> Self {
        let id1 = context.id_context().unwrap_or(&[]);
        let common_iv = context.common_iv;
        let mut first = Self {
            request,
            common_iv,
            id1: [0; MAX_DERIVED_ID_CONTEXT],
            id1_len: id1.len().min(MAX_DERIVED_ID_CONTEXT),
        };
        first.id1.iter_mut().zip(id1).for_each(|(to, from)| *to = *from);
        first
    }

    /// Returns the identifier of the request.
    pub const fn binding(&self) -> RequestBinding {
        self.request
    }

    fn id1(&self) -> &[u8] {
        self.id1.get(..self.id1_len).unwrap_or(&[])
    }
}

impl Offers {
    /// Draws a new key, so that the server recognizes no earlier R2.
    pub fn draw<C: Crypto>(crypto: &mut C) -> Self {
        let mut key = Secret::zeroed();
        crypto.random(key.expose_mut());
        Self(key)
    }

    /// Decrypts request #1 or request #2 in place. The kid context of the request contains the ID Context from which
    /// the keys of the request are derived.
    ///
    /// # Errors
    /// [`UnprotectError`].
    pub fn open<'r, C: Crypto>(
        &self,
        crypto: &mut C,
        parameters: &Parameters<'_>,
        datagram: &'r mut [u8],
    ) -> Result<Rederived<'r>, UnprotectError> {
        let (mut context, is_ours) = {
            let message = MessageRef::parse(datagram).map_err(|_| UnprotectError::Unprotected)?;
            let option = OscoreOption::parse(message.option(OptionNumber::OSCORE).ok_or(UnprotectError::Unprotected)?)?;
            let id_context = option.kid_context.and_then(unwrap).ok_or(UnprotectError::UnknownContext)?;
            let context =
                RederivableContext::fresh::<C>(parameters, id_context).map_err(|_| UnprotectError::UnknownContext)?;
            (context, id_context.split_at_checked(R2_LEN).is_some_and(|(r2, r3)| !r3.is_empty() && self.made::<C>(r2)))
        };
        // The context is new, so its replay window has accepted no message under these keys.
        let Unprotected::Fresh(message, nonce) = context.unprotect_request(crypto, datagram)? else {
            return Err(UnprotectError::Replayed);
        };
        if !is_ours {
            return Ok(Rederived::First(FirstRequest::under(&context, nonce.binding())));
        }
        context.settle();
        Ok(Rederived::Second(context, message, nonce))
    }

    /// Writes response #1: a 4.01 without payload. It is an error response because the server did not pass request #1
    /// to its application.
    ///
    /// # Errors
    /// [`ProtectError`].
    pub fn answer<C: Crypto>(
        &self,
        crypto: &mut C,
        parameters: &Parameters<'_>,
        first: &FirstRequest,
        (message_type, message_id): (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let mut id = [0; R2_LEN + MAX_DERIVED_ID_CONTEXT];
        let mut writer = Writer::new(&mut id);
        let mut s2 = [0; NONCE_LEN];
        crypto.random(&mut s2);
        let mac = self.mac::<C>(&s2);
        writer.put(&s2)?;
        writer.put(mac.first_chunk::<NONCE_LEN>().unwrap_or(&[0; NONCE_LEN]))?;
        writer.put(first.id1())?;
        let id = writer.written();
        let r2 = id.get(..R2_LEN).unwrap_or(&[]);
        let mut context = RederivableContext::named::<C>(parameters, id, r2).map_err(|_| ProtectError::Unsupported)?;
        // The keys of this context encrypt only this response, and are never derived again. So the nonce of request #1
        // is not used twice under one key.
        context.common_iv = first.common_iv;
        Builder::new(frame, message_type, Code::UNAUTHORIZED, message_id, token.as_bytes())?;
        context.protect_response(crypto, &first.request, Some(RequestNonce(first.request)), frame)
    }

    fn mac<C: Crypto>(&self, s2: &[u8]) -> [u8; DIGEST_LEN] {
        HmacKey::new::<C>(&[self.0.expose()]).mac::<C>(&[s2])
    }

    /// Returns true if the server offered these 16 bytes as R2.
    fn made<C: Crypto>(&self, r2: &[u8]) -> bool {
        let Some((s2, mac)) = r2.split_first_chunk::<NONCE_LEN>() else { return false };
        same(mac, self.mac::<C>(s2).get(..NONCE_LEN).unwrap_or(&[]))
    }
}
