//! Verifies the certificates in a Certificate message (RFC 5246, section 7.4.2) while the message arrives. This is for
//! an endpoint that cannot store the whole message: see [`Keys::CERTIFICATES_IN_PARTS`](crate::dtls::Keys).
//!
//! The receive buffer begins with the length of the list of certificates. A window into the list follows. It begins
//! with the certificate that is verified next. The bytes of the message enter the window in order, and are added to the
//! transcript when they enter. So the transcript contains exactly the verified bytes. When a certificate is complete,
//! the endpoint asks its owner to verify the certificate. The certificate leaves the buffer when the owner answers.
//!
//! Fragments that arrive too early wait at the end of the buffer, like every early message. A fragment that does not
//! fit is dropped, and the peer sends it again. Bytes that already arrived before are ignored.

use super::context::HandshakeContext;
use super::handshake::{self, Fragment, MessageType, u24};
use super::inbox::Inbox;
use super::outcome::Outcome;
use super::roles::Roles;
use super::state::{HandshakeState, Step};
use super::{Fatal, Need};
use crate::buf::{copy, shift_left};
use crate::crypto::Crypto;

/// Number of bytes of a length field. The list begins with a length field, and so does each certificate.
const LEN: usize = 3;

/// The certificate that is verified next. It is at the front of the part of the certificate list that is in the receive
/// buffer. Some bytes of the certificate can still be missing.
pub(crate) struct Due {
    /// The offset in the buffer at which the certificate ends. If the length of the certificate is not known yet, this
    /// is the offset at which the certificate's length field ends.
    end: usize,
    /// Number of bytes of the list after the certificate. Negative if the certificate would end after the end of the
    /// list.
    behind: isize,
}

impl Due {
    /// True if more certificates follow this one in the list.
    pub(crate) const fn has_more(&self) -> bool {
        self.behind > 0
    }
}

impl Inbox {
    /// Returns the certificate that is verified next.
    #[inline(never)]
    pub(crate) fn due(&self, room: &[u8]) -> Due {
        let (mut list, mut end) = (0, 2 * LEN);
        if let Some(&[l0, l1, l2, c0, c1, c2]) = room.first_chunk() {
            list = u32::from_be_bytes([l0, l1, l2, c0]) >> 8;
            if self.front() >= 2 * LEN {
                end = end.wrapping_add(u24([l2, c0, c1, c2]) as usize);
            }
        }
        let total = LEN.wrapping_add(list as usize).wrapping_add(self.front());
        Due { end, behind: total.wrapping_sub(self.come()).wrapping_sub(end).cast_signed() }
    }

    /// If all bytes of the next certificate have arrived, returns the [`Need`] that asks the owner of the endpoint
    /// whether the certificate is trusted. Otherwise returns `None`.
    #[inline]
    pub(crate) fn verify_certificate<'r>(&self, room: &'r [u8]) -> Option<Need<'r>> {
        let Due { end, behind } = self.due(room);
        let certificate = room.get(2 * LEN..end)?;
        Some(Need::VerifyCertificate { certificate, is_first: self.come() == self.front(), is_last: behind == 0 })
    }

    /// Drops the early fragments that wait at the end of the buffer, because the next certificate needs their space.
    /// The peer sends these fragments again.
    ///
    /// # Errors
    /// [`Fatal::TooLarge`] if no fragment waits.
    fn make_way(&mut self) -> Result<(), Fatal> {
        if self.drop_held() { Ok(()) } else { Err(Fatal::TooLarge) }
    }
}

impl Step {
    /// True while certificates of the peer arrive, and while the owner of the endpoint verifies one of them.
    pub(crate) const fn takes_certificates(self) -> bool {
        self.awaits_certificate() || matches!(self, Self::ClientVerifies | Self::ServerVerifies)
    }

    /// True while the endpoint waits for a certificate of the peer.
    pub(crate) const fn awaits_certificate(self) -> bool {
        matches!(self, Self::AwaitServerCertificate | Self::AwaitClientCertificate)
    }
}

impl HandshakeState {
    /// Processes a fragment of the Certificate message. The fragment must begin inside or directly after the bytes that
    /// have already arrived. `room` is the receive buffer without the early fragments at its end.
    #[inline(never)]
    pub(crate) fn add_certificates<C: Crypto, R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        room: &mut [u8],
        fragment: &Fragment<'_>,
    ) -> Result<(), Outcome> {
        let kind = fragment.message_type();
        if kind != MessageType::CERTIFICATE {
            return Err(Fatal::UnexpectedMessage(kind).into());
        }
        if room.len() < 2 * LEN {
            return Ok(self.inbox.make_way()?);
        }
        let front = self.inbox.front();
        let came = self.inbox.come().wrapping_sub(fragment.offset() as usize);
        let new = fragment.body.get(came..).unwrap_or(&[]);
        let place = room.get_mut(front..).unwrap_or(&mut []);
        let new = new.get(..place.len()).unwrap_or(new);
        let _ = copy(place, new);
        self.inbox.advance(new.len());
        let (end, total) = (front.wrapping_add(new.len()), fragment.length());
        let Some([_, l1, l2]) = room.get(..end).and_then(|list| list.first_chunk()) else { return Ok(()) };
        // A list of 2^16 bytes or more would take longer to arrive than a peer waits.
        let list = u16::from_be_bytes([*l1, *l2]);
        if u32::from(list).wrapping_add(LEN as u32) != total {
            return Err(Fatal::Decode.into());
        }
        let mut hashed = front;
        if front < LEN {
            hashed = 0;
            self.transcript.update::<C>(&handshake::header(kind, total, self.receive_seq, 0, total));
        }
        self.transcript.update::<C>(room.get(hashed..end).unwrap_or(&[]));
        if list == 0 && R::SERVER && self.step == Step::AwaitClientCertificate {
            self.end_certificates();
            return Ok(self.on_no_certificate(context)?);
        }
        self.next_certificate(room)
    }

    /// If all bytes of the next certificate have arrived, asks the owner of the endpoint to verify it.
    #[inline(never)]
    fn next_certificate(&mut self, room: &[u8]) -> Result<(), Outcome> {
        let Due { end, behind } = self.inbox.due(room);
        if behind < 0 {
            return Err(Fatal::Decode.into());
        }
        if end > room.len() {
            return Ok(self.inbox.make_way()?);
        }
        if end > self.inbox.front() {
            return Ok(());
        }
        self.step = match self.step {
            Step::AwaitServerCertificate => Step::ClientVerifies,
            _ => Step::ServerVerifies,
        };
        self.deadline = self.give_up;
        Err(Outcome::Need)
    }

    /// Removes from the receive buffer a certificate that the owner of the endpoint has verified. Then continues with
    /// the next certificate in the list.
    pub(crate) fn pass_certificate(&mut self, room: &mut [u8], due: &Due) -> Result<(), Outcome> {
        let window = room.get_mut(LEN..self.inbox.front()).unwrap_or(&mut []);
        let left = shift_left(window, due.end.wrapping_sub(LEN), 0);
        self.inbox.set_front(left.wrapping_add(LEN));
        self.step = match self.step {
            Step::ClientVerifies => Step::AwaitServerCertificate,
            _ => Step::AwaitClientCertificate,
        };
        self.next_certificate(room)
    }

    /// Ends the reception of the Certificate message, after its last certificate.
    pub(crate) const fn end_certificates(&mut self) {
        self.inbox.forget_pieces();
        self.receive_seq = self.receive_seq.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
