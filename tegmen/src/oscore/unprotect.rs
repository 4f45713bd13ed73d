//! From a protected message to the one inside, in place (RFC 8613, sections 8.2 and 8.4).

use super::context::{Context, NO_CHALLENGE};
use super::option::{BadOption, OscoreOption, PartialIv};
use crate::coap::Code;
use crate::coap::message::{HEADER_LEN, Malformed, MessageRef};
use crate::coap::option::{self, Class, Keep, OptionNumber};
use crate::crypto::{Crypto, NotAuthentic};
use crate::replay::{ReplayWindow, Replayed};

/// Which request a response answers: it authenticates no other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestBinding(pub(super) PartialIv);

impl RequestBinding {
    /// The number of the request.
    pub const fn partial_iv(&self) -> &PartialIv {
        &self.0
    }
}

/// The right to answer under the request's nonce, once (RFC 8613, section 5.2).
#[derive(PartialEq, Eq, Debug)]
pub struct RequestNonce(pub(super) RequestBinding);

impl RequestNonce {
    /// Which request it is of.
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

/// A request that came out of a protected message.
#[derive(Debug)]
pub enum Unprotected<'r> {
    /// It is what the other end sent, and came for the first time.
    Fresh(MessageRef<'r>, RequestNonce),
    /// It is what the other end sent, but perhaps a replay, since the window was lost: answer with a
    /// [challenge](Context::write_challenge) and do nothing else.
    Unverified(MessageRef<'r>, RequestBinding),
}

/// A request of ours that waits for its response, or for notifications.
#[derive(PartialEq, Eq, Debug)]
pub struct Pending {
    request: RequestBinding,
    newest: Newest,
}

/// The newest response to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Newest {
    None,
    /// Under the request's nonce, of which there can be one only.
    Numberless,
    Number(u64),
}

impl Pending {
    pub(super) const fn new(request: RequestBinding) -> Self {
        Self { request, newest: Newest::None }
    }

    /// Which request it is.
    pub const fn binding(&self) -> RequestBinding {
        self.request
    }

    /// The number of the newest notification (RFC 8613, section 7.4.1).
    pub const fn notification_number(&self) -> Option<u64> {
        match self.newest {
            Newest::Number(number) => Some(number),
            Newest::None | Newest::Numberless => None,
        }
    }

    /// What the newest is after a response with this number.
    fn after(&self, partial_iv: Option<PartialIv>) -> Result<Newest, Refused> {
        match (self.newest, partial_iv) {
            (Newest::None, None) => Ok(Newest::Numberless),
            (Newest::Number(newest), Some(number)) if number.number() <= newest => Err(Refused::Replayed),
            (_, Some(number)) => Ok(Newest::Number(number.number())),
            (_, None) => Err(Refused::Replayed),
        }
    }
}

/// Why a message is not delivered. Whoever sent it learns the [code](Self::code) and no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It is not protected.
    Unprotected,
    /// The OSCORE option makes no sense, or lacks what a request must have.
    BadOption,
    /// It names another context.
    UnknownContext,
    /// Its number was used before, or is too old to know.
    Replayed,
    /// It is no message of the other end.
    NotAuthentic,
    /// It is authentic, and what is inside is no message.
    Malformed,
}

impl Refused {
    /// The code of the error response to a request, which is not protected itself (RFC 8613, section 8.2).
    pub const fn code(self) -> Code {
        match self {
            Self::BadOption => Code::BAD_OPTION,
            Self::Unprotected | Self::UnknownContext | Self::Replayed => Code::UNAUTHORIZED,
            Self::NotAuthentic | Self::Malformed => Code::BAD_REQUEST,
        }
    }
}

impl From<BadOption> for Refused {
    fn from(_: BadOption) -> Self {
        Self::BadOption
    }
}

impl From<Replayed> for Refused {
    fn from(_: Replayed) -> Self {
        Self::Replayed
    }
}

impl From<NotAuthentic> for Refused {
    fn from(_: NotAuthentic) -> Self {
        Self::NotAuthentic
    }
}

impl Context {
    /// Decrypts a request where it lies. The number is looked for in the window before, and put into it only after the
    /// tag proved right.
    ///
    /// # Errors
    /// [`Refused`]; nothing of the context has then changed, unless the message was authentic and malformed inside.
    #[inline(never)]
    pub fn unprotect_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        datagram: &'r mut [u8],
    ) -> Result<Unprotected<'r>, Refused> {
        let (outer, option) = Outer::read(datagram)?;
        let (Some(number), Some(_)) = (option.partial_iv, option.kid) else { return Err(Refused::BadOption) };
        if !self.is_named_by(&option) {
            return Err(Refused::UnknownContext);
        }
        let ids = (&self.recipient_id, &number);
        let inputs = self.inputs(ids, ids);
        let mark = self.window.mark();
        let fresh = self.window.fresh(number.number());
        let fresh = if mark.is_some() { None } else { Some(fresh?) };
        let (text, tag) = outer.sealed(datagram, self.aead.tag_len())?;
        self.aead.open(crypto, self.recipient_key.expose(), &inputs, text, tag)?;
        if let Some(fresh) = fresh {
            fresh.accept();
        }
        let Ok(message) = &outer.inside(datagram, self.aead.tag_len()) else { return Err(Refused::Malformed) };
        if !message.code().is_request() {
            return Err(Refused::Malformed);
        }
        let binding = RequestBinding(number);
        if let Some(mark) = mark {
            let challenge = mark.to_be_bytes();
            if mark == NO_CHALLENGE || message.option(OptionNumber::ECHO) != Some(&challenge) {
                return Ok(Unprotected::Unverified(*message, binding));
            }
            // Whatever was sent before this may have been delivered before the window was lost.
            self.window = ReplayWindow::seen_up_to(number.number());
        }
        Ok(Unprotected::Fresh(*message, RequestNonce(binding)))
    }

    /// Decrypts the response to `pending` where it lies. A response under the request's nonce is taken once, notifications
    /// by rising number (RFC 8613, sections 7.4.1 and 8.4).
    ///
    /// # Errors
    /// [`Refused`]; the true response may still come, `pending` is as it was.
    pub fn unprotect_response<'r, C: Crypto>(
        &self,
        crypto: &mut C,
        pending: &mut Pending,
        datagram: &'r mut [u8],
    ) -> Result<MessageRef<'r>, Refused> {
        let (outer, option) = Outer::read(datagram)?;
        if option.kid.is_some_and(|kid| kid != self.recipient_id.as_bytes()) {
            return Err(Refused::UnknownContext);
        }
        let newest = pending.after(option.partial_iv)?;
        let request = (&self.sender_id, &pending.request.0);
        let inputs = match &option.partial_iv {
            Some(number) => self.inputs((&self.recipient_id, number), request),
            None => self.inputs(request, request),
        };
        let (text, tag) = outer.sealed(datagram, self.aead.tag_len())?;
        self.aead.open(crypto, self.recipient_key.expose(), &inputs, text, tag)?;
        let Ok(message) = &outer.inside(datagram, self.aead.tag_len()) else { return Err(Refused::Malformed) };
        if !message.code().is_response() {
            return Err(Refused::Malformed);
        }
        pending.newest = newest;
        Ok(*message)
    }
}

/// Where the parts of a protected message lie.
struct Outer {
    options_at: usize,
    options_len: usize,
    payload_at: usize,
    /// It may have options outside that are meant to be there.
    unprotected: bool,
}

impl Outer {
    /// The parts of a datagram, and what its OSCORE option says.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn read(datagram: &[u8]) -> Result<(Self, OscoreOption<'_>), Refused> {
        let Ok(message) = &MessageRef::parse(datagram) else { return Err(Refused::Unprotected) };
        let value = message.option(OptionNumber::OSCORE).ok_or(Refused::Unprotected)?;
        let outer = Self {
            options_at: HEADER_LEN.wrapping_add(message.token().len()),
            options_len: message.options_len(),
            payload_at: datagram.len().wrapping_sub(message.payload().len()),
            unprotected: message.may_have_unprotected(),
        };
        Ok((outer, OscoreOption::parse(value)?))
    }

    /// What is encrypted, and the tag.
    fn sealed<'r>(&self, datagram: &'r mut [u8], tag_len: usize) -> Result<(&'r mut [u8], &'r [u8]), Refused> {
        let payload = datagram.get_mut(self.payload_at..).unwrap_or(&mut []);
        let text_len = payload.len().checked_sub(tag_len).ok_or(Refused::NotAuthentic)?;
        let (text, tag) = payload.split_at_mut_checked(text_len).ok_or(Refused::NotAuthentic)?;
        Ok((text, tag))
    }

    /// The message inside, with those options outside that it is meant to have (RFC 8613, section 8.2, step 7).
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn inside<'r>(&self, datagram: &'r mut [u8], tag_len: usize) -> Result<MessageRef<'r>, Malformed> {
        let (outer, payload) = datagram.split_at_mut_checked(self.payload_at).unwrap_or_default();
        let mut kept = 0;
        if self.unprotected {
            let options = outer.get_mut(self.options_at..).and_then(|options| options.get_mut(..self.options_len));
            kept = option::retain(options.unwrap_or(&mut []), |number| match number.class() {
                Class::Unprotected if number != OptionNumber::OSCORE => Keep::Whole,
                _ => Keep::Nothing,
            });
        }
        let outer = outer.get(..self.options_at.saturating_add(kept)).unwrap_or(&[]);
        let text = payload.get(..payload.len().saturating_sub(tag_len)).unwrap_or(&[]);
        match &MessageRef::parse(outer) {
            Ok(message) => message.around(text),
            Err(malformed) => Err(*malformed),
        }
    }
}
