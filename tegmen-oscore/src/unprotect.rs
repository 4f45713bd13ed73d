//! Verifies and decrypts a protected message in place (RFC 8613, sections 8.2 and 8.4).

use super::context::{NO_CHALLENGE, SecurityContext};
use super::cose::{Aead, Inputs};
use super::naming::Naming;
use super::option::{BadOption, OscoreOption, PartialIv};
use core::convert::Infallible;
use tegmen_base::crypto::{Crypto, KEY_LEN, NotAuthentic};
use tegmen_base::replay::{ReplayWindow, Replayed};
use tegmen_base::secret::Secret;
use tegmen_coap::Code;
use tegmen_coap::option::{self, OptionNumber, Part};
use tegmen_coap::{HEADER_LEN, Malformed, MessageRef};

/// The identity of the request that a response answers. The response is authentic for no other request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestBinding(pub(super) PartialIv);

/// The identity of a decrypted request, to which the responses are bound.
pub trait OpenedRequest: Copy {
    /// The type of the value that permits one response that is encrypted under the nonce of the request (RFC 8613,
    /// section 5.2).
    type Nonce;
}

impl OpenedRequest for RequestBinding {
    type Nonce = RequestNonce;
}

/// The identity of a decrypted request, together with a value that the owner of the node attaches to the request.
impl<T: Copy, R: OpenedRequest> OpenedRequest for (T, R) {
    type Nonce = R::Nonce;
}

/// The implementation for a node that decrypts no request.
impl OpenedRequest for Infallible {
    type Nonce = RequestNonce;
}

/// Permits one response that is encrypted under the nonce of the request (RFC 8613, section 5.2).
#[derive(PartialEq, Eq, Debug)]
pub struct RequestNonce(pub(super) RequestBinding);

impl RequestNonce {
    /// Returns the request of this nonce.
    pub const fn binding(&self) -> RequestBinding {
        self.0
    }
}

#[cfg(test)]
impl RequestBinding {
    pub(super) fn of(number: u64) -> Self {
        Self(PartialIv::new(number).unwrap())
    }
}

#[cfg(test)]
impl RequestNonce {
    pub(super) fn of(number: u64) -> Self {
        Self(RequestBinding::of(number))
    }
}

/// A decrypted request. A value of the type `N` permits one response that is encrypted under the nonce of the request.
/// `B` is the identity of the request, to which a response is bound.
#[derive(Debug)]
pub enum Unprotected<'r, N = RequestNonce, B = RequestBinding> {
    /// The message is authentic and new.
    Fresh(MessageRef<'r>, N),
    /// The message is authentic, but may be a replay, because the replay window was lost. Answer it with a
    /// [challenge](SecurityContext::write_challenge) and do nothing else.
    Unverified(MessageRef<'r>, B),
}

/// A request that this endpoint sent and that waits for its response, or for notifications.
#[derive(PartialEq, Eq, Debug)]
pub struct Pending {
    request: RequestBinding,
    taken: Taken,
}

/// Describes which responses of one endpoint to one request were accepted (RFC 8613, section 7.4.1; RFC 10021, section
/// 5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Taken {
    /// True after a response under the nonce of the request was accepted. There can be only one such response.
    answered: bool,
    /// One more than the Partial IV of the newest notification that had a Partial IV, or 0.
    pub(super) newest: u64,
}

impl Taken {
    /// Refuses a response that was accepted before, or that is older than an accepted response. `number` is the Partial
    /// IV of the response. It is `None` for a response under the nonce of the request.
    #[inline]
    pub(super) fn check(&self, number: Option<&PartialIv>) -> Result<(), UnprotectError> {
        match number {
            None if self.answered => Err(UnprotectError::Replayed),
            Some(number) if number.number() < self.newest => Err(UnprotectError::Replayed),
            _ => Ok(()),
        }
    }

    /// Records that an authentic response is accepted. `number` is the Partial IV of the response. Refuses a
    /// notification without a Partial IV if a notification with a Partial IV was accepted before, because the
    /// notification without a Partial IV is then older.
    #[inline]
    pub(super) fn take(&mut self, number: Option<&PartialIv>, message: &MessageRef<'_>) -> Result<(), UnprotectError> {
        match number {
            Some(number) => self.newest = number.number().wrapping_add(1),
            None => {
                let notifies = message.code().is_success() && message.option(OptionNumber::OBSERVE).is_some();
                if notifies && self.newest > 0 {
                    return Err(UnprotectError::Replayed);
                }
                self.answered = true;
            }
        }
        Ok(())
    }
}

impl Pending {
    pub(super) const fn new(request: RequestBinding) -> Self {
        Self { request, taken: Taken { answered: false, newest: 0 } }
    }

    /// Returns the identifier of the request.
    pub const fn binding(&self) -> RequestBinding {
        self.request
    }

    /// Returns the Partial IV of the newest notification (RFC 8613, section 7.4.1), or `None` if no accepted
    /// notification had a Partial IV.
    #[cfg(test)]
    pub(crate) const fn notification_number(&self) -> Option<u64> {
        self.taken.newest.checked_sub(1)
    }
}

/// The reason for which a message is not delivered. The sender of the message receives only the [code](Self::code).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnprotectError {
    /// The message is not protected.
    Unprotected,
    /// The OSCORE option is not valid, or lacks a field that a request must have.
    BadOption,
    /// The message identifies another context.
    UnknownContext,
    /// A message with the same sequence number was accepted before, or the sequence number is too old for the replay
    /// window.
    Replayed,
    /// The message does not authenticate.
    NotAuthentic,
    /// The message is authentic, but its content is not a valid message.
    Malformed,
    /// Only in Group OSCORE: the member that sent the message is not known. Ask the Group Manager for the
    /// authentication credential of this member.
    UnknownMember,
    /// Only in Group OSCORE: the memory that records the accepted responses to a request has one entry for each member,
    /// and other members have taken all entries.
    TooManyMembers,
}

impl UnprotectError {
    /// Returns the code of the error response to a request. This response is not protected (RFC 8613, section 8.2).
    pub const fn code(self) -> Code {
        match self {
            Self::BadOption => Code::BAD_OPTION,
            Self::Unprotected | Self::UnknownContext | Self::Replayed => Code::UNAUTHORIZED,
            Self::NotAuthentic | Self::Malformed => Code::BAD_REQUEST,
            Self::UnknownMember | Self::TooManyMembers => Code::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<BadOption> for UnprotectError {
    fn from(_: BadOption) -> Self {
        Self::BadOption
    }
}

impl From<Replayed> for UnprotectError {
    fn from(_: Replayed) -> Self {
        Self::Replayed
    }
}

impl From<NotAuthentic> for UnprotectError {
    fn from(_: NotAuthentic) -> Self {
        Self::NotAuthentic
    }
}

impl<N: Naming> SecurityContext<N> {
    /// Decrypts a request in place. Refuses a request whose sequence number was accepted before, or is too old for the
    /// replay window. Adds the sequence number to the window only after the tag is verified.
    ///
    /// # Errors
    /// [`UnprotectError`]. The context is then unchanged, with one exception: if the message is authentic but its
    /// content is not a valid message, the replay window has accepted the sequence number.
    #[inline(never)]
    pub fn unprotect_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        datagram: &'r mut [u8],
    ) -> Result<Unprotected<'r>, UnprotectError> {
        let sealed = self.read(datagram, None);
        let sealed = sealed.as_ref().map_err(|refused| *refused)?;
        let Some(number) = sealed.partial_iv else { return Err(UnprotectError::BadOption) };
        let mark = self.window.mark();
        let fresh = self.window.fresh(number.number());
        let fresh = if mark.is_some() { None } else { Some(fresh?) };
        sealed.open(crypto, self.aead, &self.recipient_key, datagram)?;
        if let Some(fresh) = fresh {
            fresh.accept();
        }
        let Ok(message) = &sealed.inside(datagram) else { return Err(UnprotectError::Malformed) };
        if !message.code().is_request() {
            return Err(UnprotectError::Malformed);
        }
        let binding = RequestBinding(number);
        let verified = mark
            .is_none_or(|mark| mark != NO_CHALLENGE && message.option(OptionNumber::ECHO) == Some(&mark.to_be_bytes()));
        if !verified {
            return Ok(Unprotected::Unverified(*message, binding));
        }
        if mark.is_some() {
            // Messages that were sent before this request may have been delivered before the replay window was lost.
            self.window = ReplayWindow::seen_up_to(number.number());
        }
        Ok(Unprotected::Fresh(*message, RequestNonce(binding)))
    }

    /// Decrypts the response to `pending` in place. Accepts one response under the nonce of the request. Accepts a
    /// notification with a Partial IV only if this Partial IV is higher than the Partial IV of each accepted
    /// notification (RFC 8613, sections 7.4.1 and 8.4). If a notification with a Partial IV was accepted, a
    /// notification without a Partial IV is older, and is refused (RFC 8613, section 4.1.3.5.2). A response that ends
    /// the observation (an error, or a response without Observe) is still accepted without a Partial IV.
    ///
    /// # Errors
    /// [`UnprotectError`]. `pending` is then unchanged, and the true response may still come.
    pub fn unprotect_response<'r, C: Crypto>(
        &self,
        crypto: &mut C,
        pending: &mut Pending,
        datagram: &'r mut [u8],
    ) -> Result<MessageRef<'r>, UnprotectError> {
        let sealed = self.read(datagram, Some(pending));
        let sealed = sealed.as_ref().map_err(|refused| *refused)?;
        sealed.open(crypto, self.aead, &self.recipient_key, datagram)?;
        let Ok(message) = &sealed.inside(datagram) else { return Err(UnprotectError::Malformed) };
        if !message.code().is_response() {
            return Err(UnprotectError::Malformed);
        }
        pending.taken.take(sealed.partial_iv.as_ref(), message)?;
        Ok(*message)
    }

    /// Reads the data that decryption needs from a message. The message is a response to `pending`, or a request if
    /// `pending` is `None`.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn read(&self, datagram: &[u8], pending: Option<&Pending>) -> Result<Sealed, UnprotectError> {
        let Ok(message) = &MessageRef::parse(datagram) else { return Err(UnprotectError::Unprotected) };
        let option = &OscoreOption::parse(message.option(OptionNumber::OSCORE).ok_or(UnprotectError::Unprotected)?)?;
        let number = option.partial_iv.as_ref();
        let request = match (pending, number) {
            (Some(pending), number) => {
                pending.taken.check(number)?;
                (&self.sender_id, &pending.request.0)
            }
            (None, Some(number)) if option.kid.is_some() => (&self.recipient_id, number),
            (None, _) => return Err(UnprotectError::BadOption),
        };
        let theirs = option.kid.is_none_or(|kid| kid == self.recipient_id.as_bytes());
        let id_context = option.kid_context.filter(|_| pending.is_none());
        if !theirs || id_context.is_some_and(|asked| !self.is_meant_by(asked)) {
            return Err(UnprotectError::UnknownContext);
        }
        Ok(Sealed {
            parts: Parts::of(message, datagram, self.aead.tag_len())?,
            partial_iv: option.partial_iv,
            inputs: self.inputs(&self.recipient_id, number, request),
        })
    }
}

/// The positions of the parts of a protected message, and the inputs to its decryption.
struct Sealed {
    parts: Parts,
    partial_iv: Option<PartialIv>,
    inputs: Inputs,
}

impl Sealed {
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn open<C: Crypto>(
        &self,
        crypto: &mut C,
        aead: Aead,
        key: &Secret<KEY_LEN>,
        datagram: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        let (text, tag) = self.parts.payload(datagram).ok_or(NotAuthentic)?;
        crypto.open(aead.of::<C>(), key.expose(), self.inputs.nonce(), self.inputs.aad(), text, tag)
    }

    #[inline]
    fn inside<'r>(&self, datagram: &'r mut [u8]) -> Result<MessageRef<'r>, Malformed> {
        self.parts.inside(datagram)
    }
}

/// The positions of the parts of a protected message.
pub(super) struct Parts {
    options_at: usize,
    /// Number of bytes of the outer options, or 0 if none of them, except OSCORE, can be of class U.
    options_len: usize,
    text_at: usize,
    text_len: usize,
}

impl Parts {
    /// Finds the parts of a message. The last `behind` bytes of its payload do not belong to the ciphertext.
    #[inline]
    pub(super) fn of(message: &MessageRef<'_>, datagram: &[u8], behind: usize) -> Result<Self, UnprotectError> {
        let payload_len = message.payload().len();
        Ok(Self {
            options_at: HEADER_LEN.wrapping_add(message.token().len()),
            options_len: if message.may_have_unprotected() { message.options_len() } else { 0 },
            text_at: datagram.len().wrapping_sub(payload_len),
            text_len: payload_len.checked_sub(behind).ok_or(UnprotectError::NotAuthentic)?,
        })
    }

    /// Returns the payload.
    pub(super) fn whole<'r>(&self, datagram: &'r [u8]) -> &'r [u8] {
        datagram.get(self.text_at..).unwrap_or(&[])
    }

    /// Returns the ciphertext, and the bytes of the payload after it.
    #[inline]
    pub(super) fn payload<'r>(&self, datagram: &'r mut [u8]) -> Option<(&'r mut [u8], &'r mut [u8])> {
        datagram.get_mut(self.text_at..).unwrap_or(&mut []).split_at_mut_checked(self.text_len)
    }

    /// Returns the inner message, with the outer options that apply to it (RFC 8613, section 8.2, step 7).
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn inside<'r>(&self, datagram: &'r mut [u8]) -> Result<MessageRef<'r>, Malformed> {
        let Some((outer, payload)) = datagram.split_at_mut_checked(self.text_at) else {
            return Err(Malformed::NotCoap);
        };
        let mut outer_len = self.options_at;
        if self.options_len > 0 {
            let options = outer.get_mut(self.options_at..).and_then(|options| options.get_mut(..self.options_len));
            let kept = option::retain(options.unwrap_or(&mut []), Part::Outside);
            outer_len = outer_len.wrapping_add(kept);
        }
        let mut message = MessageRef::parse(outer.get(..outer_len).unwrap_or(&[]));
        if let Ok(message) = &mut message
            && message.enclose(payload.get(..self.text_len).unwrap_or(&[])).is_err()
        {
            return Err(Malformed::NotCoap);
        }
        message
    }
}
