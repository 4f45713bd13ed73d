//! Security contexts (RFC 8613, section 3).

use super::cose::{Aead, Inputs, MAX_NONCE};
use super::error::ProtectError;
use super::id::Id;
use super::naming::{AsItIs, Naming};
use super::option::{OscoreOption, PartialIv};
use tegmen_base::crypto::hkdf::Hkdf;
use tegmen_base::crypto::{Crypto, KEY_LEN};
use tegmen_base::lease::Lease;
use tegmen_base::replay::ReplayWindow;
use tegmen_base::secret::{self, Secret};

/// The parameters that both endpoints know beforehand (RFC 8613, section 3.2).
#[derive(Clone, Copy)]
pub struct Parameters<'a> {
    /// Master Secret: random, at least 16 bytes.
    pub master_secret: &'a [u8],
    /// Master Salt, which may be empty.
    pub master_salt: &'a [u8],
    /// The ID of this endpoint.
    pub sender_id: &'a [u8],
    /// The ID of the other endpoint.
    pub recipient_id: &'a [u8],
    /// The ID Context, which distinguishes contexts with the same master secret. `None` if the context has no ID
    /// Context.
    pub id_context: Option<&'a [u8]>,
    /// The AEAD algorithm.
    pub aead: Aead,
}

/// The reason why a context cannot be made from the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadParameters {
    /// An ID is longer than the algorithm's nonce allows.
    IdTooLong {
        /// Maximum number of bytes of the ID.
        max: usize,
    },
    /// The ID Context is longer than its space in the context: 16 bytes (`MAX_ID_CONTEXT`) for a [`Context`].
    IdContextTooLong,
    /// Both endpoints have the same ID, so that they would use the same nonces under the same key.
    SameIds,
    /// The provider does not have the algorithm.
    Unsupported,
}

/// One end of a security context. Such a value has 112 bytes.
pub type Context = SecurityContext<AsItIs>;

/// One end of a security context: a [`Context`], or a `RederivableContext`. `N` is the way in which the messages of the
/// context identify the ID Context.
///
/// The sequence numbers of the messages that this endpoint sends come from a reserved range ([`Lease`]). A
/// [`ReplayWindow`] records the sequence numbers that the other endpoint has used. A power cut loses the window. After
/// this, each request is answered with a challenge, which contains an Echo value. A request that repeats this value is
/// certainly not a replay. So the window begins again with the sequence number of this request (RFC 8613, appendix
/// B.1.2).
#[repr(C)]
pub struct SecurityContext<N: Naming> {
    /// The reserved range of sequence numbers for the messages that this endpoint sends.
    pub(super) lease: Lease,
    pub(super) window: ReplayWindow,
    pub(super) sender_id: Id,
    pub(super) recipient_id: Id,
    pub(super) sender_key: Secret<KEY_LEN>,
    pub(super) recipient_key: Secret<KEY_LEN>,
    /// The common IV. A shorter IV is at the end of the array. The order of the fields aligns the array, so that a
    /// mote can load words.
    pub(super) common_iv: [u8; MAX_NONCE],
    pub(super) aead: Aead,
    /// One more than the length of the ID Context; 0 if there is none.
    id_context_len: u8,
    id_context: N::IdContext,
    pub(super) naming: N,
}

impl<N: Naming> SecurityContext<N> {
    /// Makes a context that both endpoints use for the first time: the other endpoint has sent no message yet.
    ///
    /// The parameters must never have been used before. For a context that may have been used, call [`Self::resume`].
    /// Before the new context can protect a request, the caller must [reserve](Self::lease_mut) sequence numbers for
    /// it.
    ///
    /// # Errors
    /// [`BadParameters`].
    pub fn new<C: Crypto>(parameters: &Parameters<'_>) -> Result<Self, BadParameters> {
        Self::derive::<C>(parameters, Lease::resume(0), ReplayWindow::new())
    }

    /// Restores a context after a restart. `kept` is the end of the reserved sequence numbers that was last stored. The
    /// replay window, which records the sequence numbers that the other endpoint has used, counts as lost.
    ///
    /// # Errors
    /// [`BadParameters`].
    pub fn resume<C: Crypto>(parameters: &Parameters<'_>, kept: u64) -> Result<Self, BadParameters> {
        Self::derive::<C>(parameters, Lease::resume(kept), ReplayWindow::lost(NO_CHALLENGE))
    }

    /// Restores a context whose replay window is known, because the program stored the window after the last message
    /// and then ended without a failure. `kept` is the end of the reserved sequence numbers that was last stored. A
    /// stored window must be used only once.
    ///
    /// # Errors
    /// [`BadParameters`].
    pub fn restore<C: Crypto>(
        parameters: &Parameters<'_>,
        kept: u64,
        window: ReplayWindow,
    ) -> Result<Self, BadParameters> {
        Self::derive::<C>(parameters, Lease::resume(kept), window)
    }

    fn derive<C: Crypto>(
        parameters: &Parameters<'_>,
        lease: Lease,
        window: ReplayWindow,
    ) -> Result<Self, BadParameters> {
        Self::derive_named::<C>(parameters, parameters.id_context, lease, window)
    }

    /// Derives keys and common IV (RFC 8613, section 3.2.1) of a context with the ID Context `name`.
    #[inline]
    pub(super) fn derive_named<C: Crypto>(
        parameters: &Parameters<'_>,
        name: Option<&[u8]>,
        lease: Lease,
        window: ReplayWindow,
    ) -> Result<Self, BadParameters> {
        let Parameters { master_secret, master_salt, sender_id, recipient_id, id_context, aead } = *parameters;
        let max = aead.max_id();
        let id = |bytes: &[u8]| Id::new(bytes).filter(|_| bytes.len() <= max).ok_or(BadParameters::IdTooLong { max });
        let (sender_id, recipient_id) = (id(sender_id)?, id(recipient_id)?);
        if sender_id == recipient_id {
            return Err(BadParameters::SameIds);
        }
        if aead == Aead::A128Gcm && C::AES_128_GCM.is_none() {
            return Err(BadParameters::Unsupported);
        }
        let mut context = Self {
            aead,
            sender_id,
            recipient_id,
            id_context: N::NO_ID_CONTEXT,
            id_context_len: 0,
            sender_key: Secret::zeroed(),
            recipient_key: Secret::zeroed(),
            common_iv: [0; MAX_NONCE],
            lease,
            window,
            naming: N::default(),
        };
        if let Some(bytes) = name {
            tegmen_base::buf::copy(context.id_context.as_mut(), bytes).map_err(|_| BadParameters::IdContextTooLong)?;
            context.id_context_len = (bytes.len() as u8).wrapping_add(1);
        }
        let hkdf = &mut Hkdf::none();
        hkdf.extract::<C>(master_salt, &[master_secret]);
        let info = (id_context, aead);
        N::expand::<C>(hkdf, info, &context.sender_id, context.sender_key.expose_mut());
        N::expand::<C>(hkdf, info, &context.recipient_id, context.recipient_key.expose_mut());
        let iv = context.common_iv.get_mut(aead.nonce_at()..).unwrap_or(&mut []);
        N::expand::<C>(hkdf, info, &Id::default(), iv);
        Ok(context)
    }

    /// Returns the ID of the other endpoint.
    pub fn recipient_id(&self) -> &[u8] {
        self.recipient_id.as_bytes()
    }

    /// Returns the ID Context.
    pub fn id_context(&self) -> Option<&[u8]> {
        let len = usize::from(self.id_context_len).checked_sub(1)?;
        self.id_context.as_ref().get(..len)
    }

    /// Returns the reserved range of sequence numbers for messages that this endpoint sends. To reserve more sequence
    /// numbers, first store the new end of the range durably, and then call [`Lease::extend`]. The highest sequence
    /// number is 2^40 - 1, or 2^31 - 1 with AES-GCM.
    pub const fn lease_mut(&mut self) -> &mut Lease {
        &mut self.lease
    }

    /// Returns the reserved range of sequence numbers for messages that this endpoint sends.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the replay window, which records the sequence numbers that the other endpoint has used.
    pub const fn window(&self) -> &ReplayWindow {
        &self.window
    }

    /// Returns true if the option of a request identifies this context (RFC 8613, section 8.2, step 2).
    pub fn is_named_by(&self, option: &OscoreOption<'_>) -> bool {
        let id_context = option.kid_context.is_none_or(|asked| self.is_meant_by(asked));
        option.kid == Some(self.recipient_id.as_bytes()) && id_context
    }

    /// Returns the kid context of a message of this endpoint. `wrapped` is a buffer for a kid context that differs from
    /// the ID Context.
    #[inline]
    pub(super) fn kid_context<'a>(&'a self, wrapped: &'a mut N::Wrapped) -> Option<&'a [u8]> {
        self.naming.kid_context(self.id_context(), wrapped)
    }

    /// Returns true if a kid context identifies the ID Context of this context.
    #[inline]
    pub(super) fn is_meant_by(&self, kid_context: &[u8]) -> bool {
        self.naming.is_meant_by(self.id_context(), kid_context)
    }

    /// Returns the inputs to the encryption of a request or of a response. `request` contains the sender ID and the
    /// sequence number of the request: the message itself, or, for a response, the request that the response answers.
    /// The nonce is made from the sender ID `id` and the sequence number `own` of the message. If `own` is `None`, the
    /// nonce is made from `request`.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn inputs(&self, id: &Id, own: Option<&PartialIv>, request: (&Id, &PartialIv)) -> Inputs {
        Inputs::new(self.aead, &self.common_iv, own.map_or(request, |number| (id, number)), request)
    }

    /// Takes the sequence number of the next message from the reserved range.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn take_number(&mut self) -> Result<PartialIv, ProtectError> {
        let number = PartialIv::new(self.lease.next()).ok_or(ProtectError::Exhausted)?;
        self.lease.take().ok_or(ProtectError::LeaseSpent)?;
        Ok(number)
    }
}

impl<N: Naming> Drop for SecurityContext<N> {
    fn drop(&mut self) {
        secret::wipe(&mut self.common_iv);
    }
}

impl<N: Naming> core::fmt::Debug for SecurityContext<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut all = f.debug_struct("Context");
        all.field("aead", &self.aead).field("sender_id", &self.sender_id).field("recipient_id", &self.recipient_id);
        all.field("id_context", &self.id_context()).field("lease", &self.lease).field("window", &self.window).finish()
    }
}

/// The argument of [`ReplayWindow::lost`], as long as this endpoint has sent no challenge after the loss of the replay
/// window. From the first challenge on, the argument is the Echo value of the challenge.
pub(super) const NO_CHALLENGE: u64 = 0;
